//! The provider interface: any interface that leads to the other nodes, such as that of `ZeroTier`, `NetBird`, Nebula or `OpenVPN`. Its user
//! brings it up; flannel wraps the packets of pods itself.

use std::{
    fs,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use crate::{
    Prefix, echo,
    kernel::{Link, Netlink, Network},
    provider::{Guide, Peer, Phase, Provider, ProviderError, Status},
    rule::PROTOCOL,
};

/// What is said about such an interface.
pub const GUIDE: Guide = Guide {
    program: "interface",
    daemon: "the VPN",
    ping: "ping",
    reach_lan,
    ..Guide::PLAIN
};

/// An interface of this node.
#[derive(Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
}

impl Provider for Interface {
    fn status(&self) -> Result<Status, ProviderError> {
        let cure = "bring it up, or correct its name in the VPN's settings";
        Ok(status_of(&read_network()?, &self.name, cure))
    }

    fn guide(&self) -> &'static Guide {
        &GUIDE
    }

    fn ping(&self, address: IpAddr) -> Result<Duration, ProviderError> {
        echo::ping(address).map_err(ProviderError::Ping)
    }
}

/// Returns how nodes elsewhere reach a server with etcd at its own address.
pub(crate) fn reach_lan(hosts: &[Prefix]) -> String {
    let texts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    format!(
        "a route to {} through the tunnel, on nodes whose own LAN has another range, has them reach it from elsewhere",
        texts.join(", ")
    )
}

pub(crate) fn read_network() -> Result<Network, ProviderError> {
    let network = Netlink::open().and_then(|mut netlink| netlink.network());
    network.map_err(ProviderError::Kernel)
}

/// Returns the status of an interface; `cure` is what helps where it is missing.
pub(crate) fn status_of(network: &Network, name: &str, cure: &str) -> Status {
    let missing = |reason: &str| Status {
        phase: Phase::NoInterface(format!("{reason}: {cure}")),
        ..Status::default()
    };
    let found = network.link_named(name);
    let Some((index, link)) = found.and_then(|index| Some((index, network.links.get(&index)?)))
    else {
        return missing(&format!("there is no interface {name}"));
    };
    if !link.is_up {
        return missing(&format!("the interface {name} is down"));
    }
    let own = network.addresses.iter().filter(|(_, link)| *link == index);
    let own = own.map(|(address, _)| *address);
    let addresses: Vec<IpAddr> = own.filter(|address| !is_link_local(*address)).collect();
    if addresses.is_empty() {
        return missing(&format!("the interface {name} has no address"));
    }
    Status {
        phase: Phase::Running,
        version: format!("{name}, {}", kind(link)),
        ranges: ranges(network, index),
        own: Peer {
            name: host_name(),
            addresses,
            is_online: true,
            ..Peer::default()
        },
        interface: Some(name.to_owned()),
        ..Status::default()
    }
}

fn kind(link: &Link) -> &str {
    link.kind.as_deref().unwrap_or("hardware")
}

/// Returns the ranges that others have routed through the interface.
fn ranges(network: &Network, index: u32) -> Vec<Prefix> {
    let routes = network.routes.iter().filter(|route| {
        route.link == Some(index)
            && route.protocol != PROTOCOL
            && !route.destination.is_default()
            && !is_link_local(route.destination.address())
            && !route.destination.address().is_multicast()
    });
    let mut ranges: Vec<Prefix> = routes.map(|route| route.destination).collect();
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => Ipv6Addr::is_unicast_link_local(&address),
    }
}

fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{MAIN, Route};

    /// A node with an interface `zt0`, its addresses, and routes through it.
    fn node(addresses: &[&str], routes: &[(&str, u8)]) -> Network {
        let mut network = Network::default();
        for (index, name) in [(2, "eth0"), (7, "zt0")] {
            let link = Link {
                name: name.to_owned(),
                mtu: 1400,
                is_up: true,
                ..Link::default()
            };
            network.links.insert(index, link);
        }
        // Another interface has the same address, as an unnumbered one does.
        network.addresses.push(("10.9.0.2".parse().unwrap(), 2));
        let own = addresses.iter().map(|text| (text.parse().unwrap(), 7));
        network.addresses.extend(own);
        let routes = routes.iter().map(|(destination, protocol)| Route {
            destination: destination.parse().unwrap(),
            table: MAIN,
            link: Some(7),
            protocol: *protocol,
        });
        network.routes.extend(routes);
        network
    }

    fn reason(network: &Network) -> String {
        match status_of(network, "zt0", "bring it up").phase {
            Phase::NoInterface(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn interface_that_is_up_gives_its_addresses_and_what_is_behind_it() {
        let network = node(
            &["fe80::1", "10.9.0.2", "fd09::2"],
            &[
                ("10.9.0.0/24", 2),
                ("10.42.1.0/24", PROTOCOL),
                ("0.0.0.0/0", 3),
                ("fe80::/64", 2),
            ],
        );
        let status = status_of(&network, "zt0", "");
        assert_eq!(status.phase, Phase::Running);
        assert_eq!(status.addresses().to_string(), "10.9.0.2, fd09::2");
        assert_eq!(status.ranges, ["10.9.0.0/24".parse().unwrap()]);
        assert_eq!(status.link(&network), Some(7));
    }

    #[test]
    fn interface_that_cannot_be_used_is_waited_for() {
        let mut network = node(&["fe80::1"], &[]);
        assert_eq!(
            reason(&network),
            "the interface zt0 has no address: bring it up"
        );
        network.links.get_mut(&7).unwrap().is_up = false;
        assert_eq!(reason(&network), "the interface zt0 is down: bring it up");
        network.links.remove(&7);
        assert_eq!(reason(&network), "there is no interface zt0: bring it up");
    }
}
