//! CHECK: the bridge, the container's end and the host's end are as the previous result says.

use cni::CniResult;
use cni::types::Interface;

use crate::attachment::Container;
use crate::call::Call;
use crate::config::bridge::Plan;
use crate::error::{Result, bail, failure};
use crate::interface::bridge::device;
use crate::interface::{single, veth};
use crate::kernel::Netlink;
use crate::kernel::link::{IFF_PROMISC, Link};

/// Compares the interfaces with the previous result.
pub(crate) fn check(call: &Call) -> Result<()> {
    let plan = Plan::load(call)?;
    let mut container = Container::open(&call.netns)?;
    plan.config.ipam.check(call)?;
    let result = single::expected_result(call, "")?;
    let mut host = Netlink::open()?;

    let name = &plan.config.bridge;
    let bridge_interface = result
        .interfaces
        .iter()
        .rfind(|interface| interface.name == *name)
        .ok_or_else(|| failure!("Interface name missing "))?;
    let bridge = host_link(&mut host, bridge_interface)?;
    check_bridge(bridge_interface, &bridge, plan.config.promisc_mode)?;

    let container_interface = single::expected_interface(&result, call)?;
    let end = container
        .netlink
        .link_by_name(&container_interface.name)
        .map_err(|_| not_found(&container_interface.name))?;
    let peer = check_container(container_interface, &end)?;

    check_port(&mut host, &result, &bridge, &end, peer, name)?;
    container.check_addresses(&call.ifname, &result.ips)?;
    container.check_routes(&result.routes)
}

/// Returns the host's link for an interface of the result.
fn host_link(host: &mut Netlink, interface: &Interface) -> Result<Link> {
    let name = &interface.name;
    let link = host.link_by_name(name).map_err(|_| not_found(name))?;
    if interface.sandbox.is_empty() {
        Ok(link)
    } else {
        Err(failure!("Interface {name} should not be in sandbox"))
    }
}

fn check_bridge(expected: &Interface, link: &Link, is_promiscuous: bool) -> Result<()> {
    let name = &expected.name;
    if link.kind != device::KIND {
        bail!("Interface {name} does not have link type of bridge");
    }
    if has_other_mac(expected, link) {
        bail!(
            "Bridge interface {name} Mac doesn't match: {}",
            expected.mac
        );
    }
    // The flag is the owner's own setting; the number of users counts those that listen for a while, too.
    let present = link.flags & IFF_PROMISC != 0;
    if present != is_promiscuous {
        bail!(
            "Bridge interface {name} configured Promisc Mode {is_promiscuous} doesn't match current state: {present} "
        );
    }
    Ok(())
}

/// Checks the container's end and returns the index of its other end.
fn check_container(expected: &Interface, link: &Link) -> Result<u32> {
    let name = &expected.name;
    if !veth::is_veth(link) {
        bail!("Error: Container interface {name} not of type veth");
    }
    if has_other_mac(expected, link) {
        bail!(
            "Interface {name} Mac {} doesn't match container Mac: {}",
            expected.mac,
            link.mac_text()
        );
    }
    link.parent
        .ok_or_else(|| failure!("Unable to obtain veth peer index for veth {name}"))
}

/// Finds the host's end among the interfaces of the result: the peer of the container's end, and a port of the bridge.
fn check_port(
    host: &mut Netlink,
    result: &CniResult,
    bridge: &Link,
    end: &Link,
    peer: u32,
    bridge_name: &str,
) -> Result<()> {
    for interface in &result.interfaces {
        if interface.name == *bridge_name || interface.name == end.name {
            continue;
        }
        let link = host_link(host, interface)?;
        let is_port = veth::is_veth(&link)
            && link.index == peer
            && link.parent == Some(end.index)
            && link.master == Some(bridge.index);
        if !is_port {
            continue;
        }
        if has_other_mac(interface, &link) {
            bail!(
                "Interface {} Mac doesn't match: {} not found",
                interface.name,
                interface.mac
            );
        }
        return Ok(());
    }
    Err(failure!(
        "CNI veth created for bridge {bridge_name} was not found"
    ))
}

fn has_other_mac(expected: &Interface, link: &Link) -> bool {
    !expected.mac.is_empty() && expected.mac != link.mac_text()
}

fn not_found(name: &str) -> cni::CniError {
    failure!("Interface name {name} not found")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(mac: &str) -> Interface {
        Interface {
            name: "cni0".to_owned(),
            mac: mac.to_owned(),
            ..Interface::default()
        }
    }

    fn link(kind: &str, flags: u32, parent: Option<u32>) -> Link {
        Link {
            kind: kind.to_owned(),
            mac: vec![2, 0, 0, 0, 0, 1],
            flags,
            parent,
            ..Link::default()
        }
    }

    #[test]
    fn bridge_has_its_kind_address_and_mode() {
        let check = |mac: &str, link: &Link, is_promiscuous: bool| {
            let checked = check_bridge(&interface(mac), link, is_promiscuous);
            checked.err().map(|error| error.msg)
        };
        let bridge = link("bridge", 0, None);
        assert_eq!(check("", &bridge, false), None);
        assert_eq!(check("02:00:00:00:00:01", &bridge, false), None);
        assert_eq!(
            check("02:00:00:00:00:02", &bridge, false).as_deref(),
            Some("Bridge interface cni0 Mac doesn't match: 02:00:00:00:00:02")
        );
        assert_eq!(
            check("", &bridge, true).as_deref(),
            Some(
                "Bridge interface cni0 configured Promisc Mode true doesn't match current state: false "
            )
        );
        assert_eq!(check("", &link("bridge", IFF_PROMISC, None), true), None);
        assert_eq!(
            check("", &link("veth", 0, None), false).as_deref(),
            Some("Interface cni0 does not have link type of bridge")
        );
    }

    #[test]
    fn container_has_one_end_of_a_pair() {
        assert_eq!(
            check_container(&interface(""), &link("veth", 0, Some(4))),
            Ok(4)
        );
        for (mac, link) in [
            ("", link("veth", 0, None)),
            ("", link("macvlan", 0, Some(4))),
            ("02:00:00:00:00:02", link("veth", 0, Some(4))),
        ] {
            assert!(check_container(&interface(mac), &link).is_err(), "{link:?}");
        }
    }
}
