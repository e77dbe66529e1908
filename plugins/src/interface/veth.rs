//! Pairs of veth links: one end is the container's interface, the other one is on the host. The plugins ptp and bridge share this.

use std::net::IpAddr;

use cni::types::Interface;

use crate::attachment::{Container, delete_link, random_veth_name, remove_link};
use crate::call::Call;
use crate::error::{Context, Result, bail, failure};
use crate::ip::Cidr;
use crate::kernel::link::{Link, NewLink, ifinfo};
use crate::kernel::netns::Namespace;
use crate::kernel::{Errno, Message, Netlink, sysctl};

/// The kind of the links.
pub(crate) const KIND: &str = "veth";
const VETH_INFO_PEER: u16 = 1;
/// The host's end has no queue.
const HOST_QUEUE: Option<u32> = Some(0);
/// How many random names are tried for the end on the host.
const NAME_ATTEMPTS: usize = 10;

/// A pair between the host and a container.
#[derive(Debug, Default)]
pub(crate) struct Pair<'a> {
    /// The name of the container's end.
    pub(crate) ifname: &'a str,
    /// The hardware address of the container's end; the kernel chooses one when it is empty.
    pub(crate) mac: &'a [u8],
    /// The MTU of both ends; the kernel's default when absent.
    pub(crate) mtu: Option<u32>,
    /// The index of the bridge that the host's end becomes a port of.
    pub(crate) bridge: Option<u32>,
}

impl Pair<'_> {
    /// Creates the pair and returns the name of the host's end, which is up. The container's end is down. One message does all this,
    /// and the container's namespace need not be entered.
    pub(crate) fn create(&self, host: &mut Netlink, container: &Namespace) -> Result<String> {
        let is_taken = || {
            let container = Netlink::open_in(container);
            container.is_ok_and(|mut netlink| netlink.link_by_name(self.ifname).is_ok())
        };
        let name = with_random_name(self.ifname, is_taken, |name| {
            host.request(self.request(name, container.fd()))
        })?;
        ignore_router_advertisements(&name);
        Ok(name)
    }

    fn request(&self, name: &str, netns: u32) -> Message {
        let ours = NewLink {
            name,
            kind: KIND,
            mtu: self.mtu,
            tx_queue: HOST_QUEUE,
            master: self.bridge,
            is_up: true,
            ..NewLink::default()
        };
        let theirs = NewLink {
            name: self.ifname,
            mtu: self.mtu,
            mac: self.mac,
            netns: Some(netns),
            ..NewLink::default()
        };
        ours.message(|data| put_peer(data, &theirs))
    }
}

/// Creates a pair whose ends are both on the host, down, and returns the name of the other end.
pub(crate) fn create_on_host(host: &mut Netlink, ifname: &str, mtu: Option<u32>) -> Result<String> {
    let is_there = || Netlink::open().is_ok_and(|mut host| host.link_by_name(ifname).is_ok());
    let name = with_random_name(ifname, is_there, |name| {
        let link = NewLink {
            name: ifname,
            kind: KIND,
            mtu,
            ..NewLink::default()
        };
        let peer = NewLink {
            name,
            mtu,
            tx_queue: HOST_QUEUE,
            ..NewLink::default()
        };
        host.request(link.message(|data| put_peer(data, &peer)))
    })?;
    ignore_router_advertisements(&name);
    Ok(name)
}

fn put_peer(data: &mut Message, peer: &NewLink<'_>) {
    data.nest_after(VETH_INFO_PEER, &ifinfo(0, 0, 0), |message| {
        peer.put(message);
    });
}

/// Creates a pair under random names until one is free. `is_taken` says whether the other end's name is the one that is not free.
fn with_random_name(
    ifname: &str,
    is_taken: impl Fn() -> bool,
    mut create: impl FnMut(&str) -> std::result::Result<(), Errno>,
) -> Result<String> {
    for _ in 0..NAME_ATTEMPTS {
        let name = random_veth_name()?;
        match create(&name) {
            Ok(()) => return Ok(name),
            Err(Errno::EEXIST) if is_taken() => {
                bail!("container veth name ({ifname:?}) peer provided ({name:?}) already exists");
            }
            Err(Errno::EEXIST) => {}
            Err(error) => {
                bail!("failed to make veth pair: {error}");
            }
        }
    }
    Err(failure!("failed to find a unique veth name"))
}

/// Keeps router advertisements that arrive on a link of the host from changing the host's routes.
pub(crate) fn ignore_router_advertisements(name: &str) {
    // A kernel without IPv6 has no such parameter.
    let _ = sysctl::write(&format!("net/ipv6/conf/{name}/accept_ra"), "0");
}

/// Deletes a pair by the name of the host's end, to undo an ADD whose error is the one to report.
pub(crate) fn undo(host: &mut Netlink, name: &str) {
    let _ = delete_link(host, name);
}

/// Deletes the attachment's pair, for DEL. Returns the addresses of the container's end that other hosts may have seen, if they are wanted,
/// or `None` when the container is gone.
pub(crate) fn remove(call: &Call, wants_addresses: bool) -> Result<Option<Vec<Cidr>>> {
    let Some(mut container) = Container::open_if_present(&call.netns)? else {
        return remove_by_host_end(call).map(|()| None);
    };
    let Some(link) = container_end(call, &mut container)? else {
        return Ok(Some(Vec::new()));
    };
    let netlink = &mut container.netlink;
    let mut addresses = Vec::new();
    if wants_addresses {
        let present = netlink.addresses(link.index);
        let present =
            present.context(|| format!("failed to get IP addresses for {:?}", link.name))?;
        addresses.extend(present.iter().map(|address| address.cidr));
        addresses.retain(|cidr| is_global_unicast(cidr.address));
    }
    remove_link(netlink, &link)?;
    Ok(Some(addresses))
}

/// Returns the container's end of the attachment's pair. Its name is not enough: a pod may rename the link and give the name to another
/// one, as pods of virtual machines do. The previous result lists the host's end, whose other end is ours; without it, the link of the
/// name is ours if its other end is on the host.
fn container_end(call: &Call, container: &mut Container) -> Result<Option<Link>> {
    let mut host = Netlink::open()?;
    let listed = call.prev_result().ok().flatten().unwrap_or_default();
    for interface in listed.interfaces {
        if interface.sandbox.is_empty()
            && let Ok(ours) = host.link_by_name(&interface.name)
            && let Some(theirs) = other_end(&ours, &mut container.netlink)
        {
            return Ok(Some(theirs));
        }
    }
    let ifname = &call.ifname;
    match container.netlink.link_by_name(ifname) {
        Ok(theirs) => Ok(other_end(&theirs, &mut host).map(|_| theirs)),
        Err(Errno::ENODEV) => Ok(None),
        Err(error) => Err(failure!("failed to lookup {ifname:?}: {error}")),
    }
}

/// Returns the other end of a pair if it is in the network namespace of the socket.
fn other_end(link: &Link, namespace: &mut Netlink) -> Option<Link> {
    let other = namespace.link_by_index(link.parent?).ok()?;
    are_pair(link, &other).then_some(other)
}

/// Returns whether two links of different network namespaces are the ends of a pair.
fn are_pair(one: &Link, other: &Link) -> bool {
    let is_end = |link: &Link, of: &Link| {
        is_veth(link) && link.has_remote_parent && link.parent == Some(of.index)
    };
    is_end(one, other) && is_end(other, one)
}

/// Deletes a pair by the host's end that the previous result names. A namespace whose path is removed lives on, with its links, as
/// long as a process is in it.
fn remove_by_host_end(call: &Call) -> Result<()> {
    let Ok(Some(result)) = call.prev_result() else {
        return Ok(());
    };
    let mut host = Netlink::open()?;
    for interface in &result.interfaces {
        let link = host.link_by_name(&interface.name);
        if link.is_ok_and(|link| is_host_end(interface, &link)) {
            delete_link(&mut host, &interface.name)?;
        }
    }
    Ok(())
}

/// Returns whether a link of the host is the end of a pair with a container that a result lists. A gateway's pair, whose ends are
/// both on the host, serves other containers as well.
fn is_host_end(interface: &Interface, link: &Link) -> bool {
    let is_listed = interface.sandbox.is_empty() && interface.mac == link.mac_text();
    is_listed && is_veth(link) && link.has_remote_parent
}

fn is_global_unicast(address: IpAddr) -> bool {
    let is_local = match address {
        IpAddr::V4(address) => address.is_broadcast() || address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(is_local || address.is_unspecified() || address.is_loopback() || address.is_multicast())
}

/// Lets the host forward packets of these families.
pub(crate) fn enable_forwarding(addresses: impl IntoIterator<Item = IpAddr>) -> Result<()> {
    let (v4, v6): (Vec<_>, Vec<_>) = addresses.into_iter().partition(IpAddr::is_ipv4);
    for (parameter, family) in [
        ("net/ipv4/ip_forward", v4),
        ("net/ipv6/conf/all/forwarding", v6),
    ] {
        if !family.is_empty() {
            sysctl::ensure(parameter, "1").context(|| format!("open /proc/sys/{parameter}"))?;
        }
    }
    Ok(())
}

/// Returns whether a link is an end of a pair.
pub(crate) fn is_veth(link: &Link) -> bool {
    link.kind == KIND
}

/// Runs every step of DEL or GC to its end: returns the first error, with the texts of those that came after it.
pub(crate) fn combine<const N: usize>(steps: [Result<()>; N]) -> Result<()> {
    let mut errors = steps.into_iter().filter_map(Result::err);
    let Some(mut first) = errors.next() else {
        return Ok(());
    };
    for error in errors {
        first.msg = format!("{}; {}", first.msg, error.msg);
    }
    Err(first)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::config::DnsConfig;
    use cni::types::Dns;

    #[test]
    fn taken_random_name_is_replaced_by_another() {
        let names = RefCell::new(Vec::new());
        let create = |name: &str| {
            names.borrow_mut().push(name.to_owned());
            match names.borrow().len() {
                3 => Ok(()),
                _ => Err(Errno::EEXIST),
            }
        };
        let name = with_random_name("eth0", || false, create).unwrap();
        let names = names.into_inner();
        assert_eq!(names.len(), 3);
        assert_eq!(names[2], name);
        assert_ne!(names[0], names[1]);
    }

    #[test]
    fn taken_interface_name_is_an_error() {
        let mut calls = 0;
        let create = |_: &str| {
            calls += 1;
            Err(Errno::EEXIST)
        };
        let error = with_random_name("eth0", || true, create).unwrap_err();
        assert!(error.msg.starts_with("container veth name (\"eth0\")"));
        assert_eq!(calls, 1);
        let error = with_random_name("eth0", || false, |_| Err(Errno::EEXIST)).unwrap_err();
        assert_eq!(error.msg, "failed to find a unique veth name");
        let error = with_random_name("eth0", || true, |_| Err(Errno::EPERM)).unwrap_err();
        assert_eq!(
            error.msg,
            "failed to make veth pair: operation not permitted"
        );
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn pair_is_one_request() {
        let pair = Pair {
            ifname: "eth0",
            mac: &[2, 0, 0, 0, 0, 1],
            mtu: Some(1400),
            bridge: Some(7),
        };
        let expected = [
            // The header: length, RTM_NEWLINK, create exclusively and acknowledge, sequence, port.
            &[144, 0, 0, 0, 16, 0, 5, 6, 1, 0, 0, 0, 0, 0, 0, 0][..],
            // ifinfomsg: up.
            &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0],
            // IFLA_IFNAME, IFLA_MTU, IFLA_TXQLEN, IFLA_MASTER.
            &[10, 0, 3, 0],
            b"veth1\0\0\0",
            &[8, 0, 4, 0, 0x78, 5, 0, 0],
            &[8, 0, 13, 0, 0, 0, 0, 0],
            &[8, 0, 10, 0, 7, 0, 0, 0],
            // IFLA_LINKINFO with IFLA_INFO_KIND and IFLA_INFO_DATA.
            &[76, 0, 18, 0x80],
            &[8, 0, 1, 0],
            b"veth",
            &[64, 0, 2, 0x80],
            // VETH_INFO_PEER: ifinfomsg, then IFLA_IFNAME, IFLA_MTU, IFLA_ADDRESS, IFLA_NET_NS_FD.
            &[60, 0, 1, 0x80],
            &[0; 16],
            &[9, 0, 3, 0],
            b"eth0\0\0\0\0",
            &[8, 0, 4, 0, 0x78, 5, 0, 0],
            &[10, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 0],
            &[8, 0, 28, 0, 5, 0, 0, 0],
        ]
        .concat();
        assert_eq!(pair.request("veth1", 5).finish(4, 1), expected);
    }

    #[test]
    fn host_end_is_a_veth_whose_other_end_is_elsewhere() {
        let interface = |mac: &str, sandbox: &str| Interface {
            mac: mac.to_owned(),
            sandbox: sandbox.to_owned(),
            ..Interface::default()
        };
        let link = |kind: &str, has_remote_parent| Link {
            mac: vec![2, 0, 0, 0, 0, 1],
            kind: kind.to_owned(),
            has_remote_parent,
            ..Link::default()
        };
        let mac = "02:00:00:00:00:01";
        assert!(is_host_end(&interface(mac, ""), &link(KIND, true)));
        for (interface, link) in [
            (interface(mac, ""), link(KIND, false)),
            (interface(mac, ""), link("bridge", true)),
            (interface("", ""), link(KIND, true)),
            (interface(mac, "/run/netns/pod"), link(KIND, true)),
        ] {
            assert!(!is_host_end(&interface, &link), "{interface:?} {link:?}");
        }
    }

    #[test]
    fn ends_of_a_pair_name_each_other() {
        let end = |index, parent| Link {
            index,
            parent: Some(parent),
            kind: KIND.to_owned(),
            has_remote_parent: true,
            ..Link::default()
        };
        assert!(are_pair(&end(7, 2), &end(2, 7)));
        // Another pod's end, a link of another kind, and a pair whose ends are both in the pod.
        for other in [
            end(2, 9),
            Link {
                kind: "macvlan".to_owned(),
                ..end(2, 7)
            },
            Link {
                has_remote_parent: false,
                ..end(2, 7)
            },
        ] {
            assert!(!are_pair(&end(7, 2), &other), "{other:?}");
            assert!(!are_pair(&other, &end(7, 2)), "{other:?}");
        }
    }

    #[test]
    fn only_addresses_that_others_see_are_returned() {
        for (text, expected) in [
            ("10.0.0.1", true),
            ("fd00::1", true),
            ("169.254.0.1", false),
            ("fe80::1", false),
            ("127.0.0.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
        ] {
            assert_eq!(is_global_unicast(text.parse().unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn empty_list_of_the_configuration_replaces_name_resolution() {
        let ipam = Dns {
            nameservers: vec!["10.0.0.1".to_owned()],
            ..Dns::default()
        };
        for (text, expected) in [
            ("{}", ipam.clone()),
            (r#"{"domain": ""}"#, ipam.clone()),
            (r#"{"search": []}"#, Dns::default()),
            (
                r#"{"domain": "a.test"}"#,
                Dns {
                    domain: "a.test".to_owned(),
                    ..Dns::default()
                },
            ),
        ] {
            let config: DnsConfig = serde_json::from_str(text).unwrap();
            assert_eq!(config.or(ipam.clone()), expected, "{text}");
        }
    }

    #[test]
    fn later_errors_follow_the_first() {
        let fail = |text: &str| Err(failure!("{text}"));
        let error = combine([Ok(()), fail("a"), Ok(()), fail("b")]).unwrap_err();
        assert_eq!(error.msg, "a; b");
        assert_eq!(combine([Ok(()), Ok(())]), Ok(()));
    }
}
