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
    /// Chooses the backend.
    fn backend(&self) -> Result<Backend<'_>> {
        let firewalld = match self.backend.as_str() {
            "iptables" => None,
            "firewalld" => Some(Firewalld::connect(&self.zone)?),
            _ => Firewalld::connect_if_running(&self.zone),
        };
        Ok(firewalld.map_or_else(
            || Backend::Iptables(iptables::Chains::new(&self.admin_chain)),
            Backend::Firewalld,
        ))
    }
}

/// Where the container's addresses are let through.
enum Backend<'a> {
    Iptables(iptables::Chains<'a>),
    Firewalld(Firewalld<'a>),
}

impl Backend<'_> {
    fn add(&mut self, addresses: &[Cidr]) -> Result<()> {
        match self {
            Self::Iptables(chains) => chains.add(addresses),
            Self::Firewalld(firewalld) => firewalld.add(addresses),
        }
    }

    fn del(&mut self, addresses: &[Cidr]) -> Result<()> {
        match self {
            Self::Iptables(_) => iptables::del(addresses),
            Self::Firewalld(firewalld) => {
                firewalld.del(addresses);
                Ok(())
            }
        }
    }

    fn check(&mut self, addresses: &[Cidr]) -> Result<()> {
        match self {
            Self::Iptables(chains) => chains.check(addresses),
            Self::Firewalld(firewalld) => firewalld.check(addresses),
        }
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
    let mut backend = config.backend()?;
    let outcome = backend
        .add(&addresses)
        .and_then(|()| ingress::set_up(policy, &result, &addresses));
    if outcome.is_err() {
        // The error that is reported is the first one.
        let _ = backend.del(&addresses);
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
    config.backend()?.del(&addresses)
}

/// Fails unless the addresses are let through.
pub(crate) fn check(call: &Call) -> Result<()> {
    let config = Config::load(call)?;
    let result = call.prev_result()?.ok_or_else(missing_result)?;
    config.backend()?.check(&addresses(&result)?)
}
