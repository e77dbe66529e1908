//! firewall: lets the host's firewall pass what containers send and receive.

mod dbus;
mod firewalld;
mod ingress;
mod iptables;

use cni::{CniResult, Version};

use crate::attachment::cidr;
use crate::call::Call;
use crate::config::firewall::{Config, Policy};
use crate::error::{Result, failure};
use crate::ip::Cidr;
use firewalld::Firewalld;

/// The versions whose DEL comes with the previous result, without which nothing could be deleted.
pub(crate) const VERSIONS: &[Version] = &[Version::V0_4_0, Version::V1_0_0, Version::V1_1_0];

impl Config {
    /// Returns firewalld, unless the addresses are let through by iptables.
    fn firewalld(&self) -> Result<Option<Firewalld<'_>>> {
        match self.backend.as_str() {
            "iptables" => Ok(None),
            "firewalld" => Firewalld::connect(&self.zone).map(Some),
            _ => Ok(Firewalld::connect_if_running(&self.zone)),
        }
    }
}

fn delete(firewalld: Option<Firewalld<'_>>, addresses: &[Cidr]) -> Result<()> {
    match firewalld {
        Some(mut firewalld) => {
            firewalld.del(addresses);
            Ok(())
        }
        None => iptables::del(addresses),
    }
}

/// Returns the addresses of the previous result, each without its network.
fn addresses(result: &CniResult) -> Result<Vec<Cidr>> {
    let hosts = result.ips.iter().map(cidr);
    hosts.map(|cidr| Ok(Cidr::host(cidr?.address))).collect()
}

fn missing_result() -> cni::CniError {
    failure!("missing prevResult from earlier plugin")
}

/// Lets the addresses of the previous result through.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let config = Config::load(call)?;
    let result = call.prev_result()?.ok_or_else(missing_result)?;
    let addresses = addresses(&result)?;
    let policy = Policy::parse(&config.ingress_policy)?;
    let mut firewalld = config.firewalld()?;
    let added = match &mut firewalld {
        Some(firewalld) => firewalld.add(&addresses),
        None => iptables::add(&config.admin_chain, &addresses),
    };
    let outcome = added.and_then(|()| ingress::set_up(policy, &result, &addresses));
    if outcome.is_err() {
        // The error that is reported is the first one.
        let _ = delete(firewalld, &addresses);
    }
    outcome?;
    Ok(result)
}

/// Takes the rules for the addresses away. The rules of the ingress policy belong to the bridge, which others may use.
///
/// After a failed ADD the runtime has no result, so the addresses are unknown here, and a rule that ADD made before it was killed
/// remains, as with the reference. The next container with the address takes it for its own, and its DEL deletes it.
pub(crate) fn del(call: &Call) -> Result<()> {
    let config = Config::load(call)?;
    let Some(result) = call.prev_result()? else {
        return Ok(());
    };
    let addresses = addresses(&result)?;
    if addresses.is_empty() {
        return Ok(());
    }
    delete(config.firewalld()?, &addresses)
}

/// Fails unless the addresses are let through.
pub(crate) fn check(call: &Call) -> Result<()> {
    let config = Config::load(call)?;
    let result = call.prev_result()?.ok_or_else(missing_result)?;
    let firewalld = config.firewalld()?;
    let addresses = addresses(&result)?;
    match firewalld {
        Some(mut firewalld) => firewalld.check(&addresses),
        None => iptables::check(&config.admin_chain, &addresses),
    }
}
