//! The plugins that make one interface in the container and give it the addresses of their IPAM plugin have these steps in common.

use cni::CniResult;
use cni::types::{Dns, Interface};
use serde::Deserialize;

use crate::attachment::{Container, remove_link};
use crate::call::Call;
use crate::config::IpamConfig;
use crate::error::{Context as _, Result, failure, or_undo};
use crate::kernel::link::{Link, attachment_alias};
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

/// DEL: gives the addresses back and deletes the interface; neither keeps the other from being done.
pub(super) fn delete(call: &Call, ipam: &IpamConfig, kind: &str) -> Result<()> {
    let released = ipam.del(call);
    if let Some(mut container) = Container::open_if_present(&call.netns)? {
        let links = container.netlink.links();
        let links = links.context(|| "failed to list links".to_owned())?;
        if let Some(link) = own_link(&links, call, kind) {
            remove_link(&mut container.netlink, link)?;
        }
    }
    released
}

/// Returns the link that was made for the attachment: its alias says so, whatever name the pod has given it; without an alias, as the
/// reference makes it, its name counts. A link of another kind or attachment, which the pod has put under the name, is not the one.
fn own_link<'a>(links: &'a [Link], call: &Call, kind: &str) -> Option<&'a Link> {
    let attachment = attachment_alias(&call.container_id, &call.ifname);
    let mut links = links.iter().filter(|link| link.kind == kind);
    let is_named = |link: &&Link| link.attachment.is_empty() && link.is_named(&call.ifname);
    let by_alias = |link: &&Link| !attachment.is_empty() && link.attachment == attachment;
    links
        .clone()
        .find(by_alias)
        .or_else(|| links.find(is_named))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delete_finds_the_link_by_its_alias_and_without_one_by_its_name() {
        let link = |name: &str, kind: &str, container: &str| Link {
            name: name.to_owned(),
            kind: kind.to_owned(),
            attachment: match container {
                "" => String::new(),
                id => attachment_alias(id, "net1"),
            },
            ..Link::default()
        };
        let call = Call {
            ifname: "net1".to_owned(),
            ..Call::with_config("{}", "")
        };
        let renamed = link("3f2a-nic", "macvlan", "pod");
        let ours = link("net1", "macvlan", "pod");
        let reference = link("net1", "macvlan", "");
        let dummy = link("net1", "dummy", "");
        let other = link("net1", "macvlan", "other");
        for (links, expected) in [
            (vec![dummy.clone(), renamed.clone()], Some(&renamed)),
            (vec![other.clone(), renamed.clone()], Some(&renamed)),
            (vec![ours.clone()], Some(&ours)),
            (vec![reference.clone()], Some(&reference)),
            (vec![dummy, other], None),
        ] {
            assert_eq!(own_link(&links, &call, "macvlan"), expected, "{links:?}");
        }
    }
}
