//! The plugins that make one interface in the container and give it the addresses of their IPAM plugin have these steps in common.

use cni::CniResult;
use cni::types::{Dns, Interface};
use serde::Deserialize;

use crate::attachment::Container;
use crate::call::Call;
use crate::config::IpamConfig;
use crate::error::{Result, failure, or_undo};
use crate::kernel::link::Link;
use crate::kernel::sysctl;

/// The part of a configuration that STATUS and GC concern.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    ipam: IpamConfig,
}

/// ADD: runs `work` on the interface that was just made, and deletes it when that fails.
pub(super) fn or_delete(
    call: &Call,
    work: impl FnOnce() -> Result<CniResult>,
) -> Result<CniResult> {
    or_undo(work, || {
        // The error that is reported is the first one.
        let _ = Container::open(&call.netns)
            .and_then(|mut container| container.delete_link(&call.ifname));
    })
}

/// Returns the entry of the result for the interface that was made.
pub(super) fn made_interface(call: &Call, mac: String) -> Interface {
    Interface {
        name: call.ifname.clone(),
        mac,
        sandbox: call.netns.clone(),
        ..Interface::default()
    }
}

/// ADD: returns the result for an interface without an IPAM plugin.
pub(super) fn without_addresses(interface: Interface, dns: &Dns) -> CniResult {
    CniResult {
        interfaces: vec![interface],
        dns: dns.clone(),
        ..CniResult::default()
    }
}

/// ADD: gives the interface the addresses of a result, and returns that with the interface and the configuration's name resolution.
/// `notify` has the kernel's parameters by which neighbours learn at once that an address has moved here, with their family.
pub(super) fn configure(
    call: &Call,
    container: &mut Container,
    interface: Interface,
    dns: &Dns,
    notify: &[(&str, &str)],
    addresses: CniResult,
) -> Result<CniResult> {
    let result = CniResult {
        interfaces: vec![interface],
        dns: dns.clone(),
        ..addresses
    };
    if !notify.is_empty() {
        container.enter_netns(|| {
            for (family, name) in notify {
                // Those that this kernel lacks are passed over.
                let _ = sysctl::write(&format!("net/{family}/conf/{}/{name}", call.ifname), "1");
            }
        })?;
    }
    container.configure(&call.ifname, &result)?;
    Ok(result)
}

/// The parameters for both families.
pub(super) const NOTIFY: [(&str, &str); 2] = [("ipv4", "arp_notify"), ("ipv6", "ndisc_notify")];

/// DEL: gives the addresses back and deletes the interface; neither keeps the other from being done. A link of another kind, which the
/// pod or somebody else has put under the name, stays.
pub(super) fn delete(call: &Call, ipam: &IpamConfig, kind: &str) -> Result<()> {
    let released = ipam.del(call);
    if let Some(mut container) = Container::open_if_present(&call.netns)?
        && !has_other_kind(&mut container, &call.ifname, kind)
    {
        container.delete_link(&call.ifname)?;
    }
    released
}

/// Returns whether the link of this name is one that the plugin has not made.
fn has_other_kind(container: &mut Container, name: &str, kind: &str) -> bool {
    let link = container.netlink.link_by_name(name);
    link.is_ok_and(|link| link.kind != kind)
}

/// STATUS: fails when the IPAM plugin could serve no ADD.
pub(crate) fn status(call: &Call) -> Result<()> {
    call.config::<Config>()?.ipam.status(call)
}

/// GC: lets the IPAM plugin give back what no attachment has.
pub(crate) fn gc(call: &Call) -> Result<()> {
    call.config::<Config>()?.ipam.gc(call)
}

/// CHECK: returns the previous result. `prefix` begins the errors of a plugin that names itself in them, here and below.
pub(super) fn expected_result(call: &Call, prefix: &str) -> Result<CniResult> {
    call.prev_result()?
        .ok_or_else(|| failure!("{prefix}Required prevResult missing"))
}

/// CHECK: returns the interface of a previous result that is the call's.
pub(super) fn expected_interface<'a>(result: &'a CniResult, call: &Call) -> Result<&'a Interface> {
    let found = result
        .interfaces
        .iter()
        .rfind(|interface| interface.name == call.ifname && interface.sandbox == call.netns);
    found.ok_or_else(|| {
        failure!(
            "Sandbox in prevResult  doesn't match configured netns: {}",
            call.netns
        )
    })
}

/// CHECK: the same with its link.
pub(super) fn expected_link<'a>(
    container: &mut Container,
    call: &Call,
    result: &'a CniResult,
    prefix: &str,
) -> Result<(&'a Interface, Link)> {
    let interface = expected_interface(result, call)?;
    let link = container.netlink.link_by_name(&interface.name);
    let link = link.map_err(|_| {
        failure!(
            "{prefix}Container Interface name in prevResult: {} not found",
            interface.name
        )
    })?;
    Ok((interface, link))
}

/// CHECK: fails when the link is of another kind.
pub(super) fn check_kind(link: &Link, kind: &str) -> Result<()> {
    if link.kind == kind {
        return Ok(());
    }
    Err(failure!(
        "Error: Container interface {} not of type {kind}",
        link.name
    ))
}

/// CHECK: fails when the link has another hardware address than the previous result.
pub(super) fn check_mac(interface: &Interface, link: &Link, prefix: &str) -> Result<()> {
    if interface.mac.is_empty() || interface.mac == link.mac_text() {
        return Ok(());
    }
    Err(failure!(
        "{prefix}Interface {} Mac {} doesn't match container Mac: {}",
        interface.name,
        interface.mac,
        link.mac_text()
    ))
}

/// CHECK: fails unless the container has the addresses and routes of the previous result.
pub(super) fn check_addresses_and_routes(
    container: &mut Container,
    call: &Call,
    result: &CniResult,
) -> Result<()> {
    container.check_addresses(&call.ifname, &result.ips)?;
    container.check_routes(&result.routes)
}
