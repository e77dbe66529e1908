//! Masquerading as configurations of ptp and bridge switch it.

use cni::types::IpConfig;

use crate::attachment::cidr;
use crate::call::Call;
use crate::config::Masquerade;
use crate::error::{Result, or_undo};
use crate::filter::masquerade::{self, Owner};
use crate::interface::veth;
use crate::ip::Cidr;

impl Masquerade {
    /// ADD: masquerades the addresses of a result. A failure leaves nothing behind.
    pub(crate) fn set_up(&self, call: &Call, ips: &[IpConfig]) -> Result<()> {
        if !self.is_on {
            return Ok(());
        }
        let addresses: Vec<Cidr> = ips.iter().map(cidr).collect::<Result<_>>()?;
        let owner = owner(call, &call.container_id, &call.ifname);
        or_undo(
            || masquerade::set_up(self.backend.as_deref(), &addresses, &owner),
            || {
                // The error that is reported is the first one.
                let _ = masquerade::tear_down(Some(&addresses), &owner);
            },
        )
    }

    /// DEL: deletes the pair and returns the addresses that [`Self::tear_down`] needs: those of the container's end, and those of the
    /// previous result. There are none when the container is gone.
    pub(crate) fn remove_pair(&self, call: &Call) -> Result<Option<Vec<Cidr>>> {
        let mut addresses = veth::remove(call, self.is_on)?;
        if let Some(addresses) = &mut addresses {
            let listed = call.prev_result().ok().flatten().unwrap_or_default();
            addresses.extend(listed.ips.iter().filter_map(|config| cidr(config).ok()));
        }
        Ok(addresses)
    }

    /// DEL: ends it.
    pub(crate) fn tear_down(&self, call: &Call, addresses: Option<&[Cidr]>) -> Result<()> {
        if !self.is_on {
            return Ok(());
        }
        masquerade::tear_down(addresses, &owner(call, &call.container_id, &call.ifname))
    }

    /// GC: ends it for attachments that no longer exist.
    pub(crate) fn gc(&self, call: &Call) -> Result<()> {
        let Some(valid) = call.valid_attachments()?.filter(|_| self.is_on) else {
            return Ok(());
        };
        let valid: Vec<_> = valid
            .iter()
            .map(|attachment| owner(call, &attachment.container_id, &attachment.ifname))
            .collect();
        masquerade::gc(&call.network, &valid)
    }
}

fn owner(call: &Call, container_id: &str, ifname: &str) -> Owner {
    Owner {
        network: call.network.clone(),
        ifname: ifname.to_owned(),
        container_id: container_id.to_owned(),
    }
}
