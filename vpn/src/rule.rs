//! Rules of policy routing that keep traffic of the LAN on the LAN. Functions over values.
//!
//! A node accepts the routes of others, and tailscale's table comes before the main one. Another node that advertises the LAN would
//! pull all traffic of the LAN into the tunnel, etcd's first. So each range that the main table reaches without the VPN has a rule
//! before tailscale's (5210 to 5270). The rules do not wait for such a route: no interval would be short enough.

use std::collections::BTreeSet;

use crate::{
    Prefix,
    kernel::{MAIN, Network, Rule},
};

/// The place of our rules, before tailscale's first.
pub const PRIORITY: u32 = 5200;
/// The number by which our rules are known.
pub const PROTOCOL: u8 = 77;

/// The ranges that belong into the VPN.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Carried {
    /// The VPN's own addresses.
    pub vpn: Vec<Prefix>,
    /// The networks of the cluster's pods.
    pub pods: Vec<Prefix>,
    /// The routes that other nodes advertise.
    pub accepted: Vec<Prefix>,
    /// The present subnets of this node's own pods. tailscale takes them into the tunnel like any other when another node advertises them.
    pub own: Vec<Prefix>,
}

/// Returns the ranges that the main table reaches without the VPN's interface and without a default route.
pub fn lan(network: &Network, vpn_link: u32, pods: &[Prefix]) -> BTreeSet<Prefix> {
    lan_of(network, |link| link != vpn_link, pods)
}

/// Returns the ranges that need a rule before the VPN runs, when neither its interface nor the routes of other nodes are known.
pub fn before_the_vpn(
    network: &Network,
    vpn: Vec<Prefix>,
    pods: Vec<Prefix>,
    own: Vec<Prefix>,
) -> BTreeSet<Prefix> {
    let is_tunnel = |link: u32| {
        let link = network.links.get(&link);
        link.is_some_and(|link| link.kind.as_deref() == Some("tun"))
    };
    let lan = lan_of(network, |link| !is_tunnel(link), &pods);
    let accepted = Vec::new();
    protected(
        &lan,
        &Carried {
            vpn,
            pods,
            accepted,
            own,
        },
    )
}

/// Returns a line for each route of another node that has addresses of the LAN.
pub fn claims<'a>(
    lan: &[Prefix],
    routes: impl IntoIterator<Item = (&'a str, Prefix)>,
) -> Vec<String> {
    taken(lan, routes, |node, route, lan| {
        format!(
            "{node} advertises {route}, which has addresses of this node's LAN {lan}: packets to {lan} stay on the LAN; withdraw the route if it is not meant"
        )
    })
}

/// Returns a line for each route of another node that takes addresses of this node's own pods.
pub fn twins<'a>(
    own: &[Prefix],
    routes: impl IntoIterator<Item = (&'a str, Prefix)>,
) -> Vec<String> {
    taken(own, routes, |node, route, own| {
        format!(
            "{node} of the VPN advertises {route}, and {own} of it is of this node's pods: that node is of another cluster with the same cluster-cidr, which then needs another one, or this node's former machine, which has to leave the VPN; until then other nodes may reach its pods instead of these"
        )
    })
}

/// Returns a line for each route of another node that has addresses of one of these ranges; a default route is meant to have all.
fn taken<'a>(
    ranges: &[Prefix],
    routes: impl IntoIterator<Item = (&'a str, Prefix)>,
    line: impl Fn(&str, Prefix, Prefix) -> String,
) -> Vec<String> {
    let routes = routes.into_iter().filter(|(_, route)| !route.is_default());
    routes
        .filter_map(|(node, route)| {
            let mut ranges = ranges.iter();
            let range = ranges.find(|range| range.intersection(route).is_some())?;
            Some(line(node, route, *range))
        })
        .collect()
}

/// Leaves out routes that another node advertises too. Control servers name a route at one of two nodes alone, so nothing says whether it
/// is approved at this one.
pub fn without_twins(mut routes: Vec<Prefix>, accepted: &[Prefix]) -> Vec<Prefix> {
    routes.retain(|route| !accepted.contains(route));
    routes
}

fn lan_of(network: &Network, is_of_lan: impl Fn(u32) -> bool, pods: &[Prefix]) -> BTreeSet<Prefix> {
    let is_of_pods = |route: &crate::kernel::Route| {
        // A bridge of pods or a tunnel of another back end, whose subnet may have moved to another node.
        let link = route.link.and_then(|index| network.links.get(&index));
        let is_virtual =
            link.is_some_and(|link| link.kind.is_some() && link.kind.as_deref() != Some("veth"));
        // calico has a route for each pod, to a link without addresses of its own, and BGP has blocks of other nodes behind a router. A LAN
        // has an address of this node.
        let has_own_address = network.addresses.iter().any(|(address, link)| {
            Some(*link) == route.link && route.destination.contains(Prefix::host(*address))
        });
        let is_inside = pods.iter().any(|pods| pods.contains(route.destination));
        is_inside && (is_virtual || !has_own_address)
    };
    let is_local = |range: Prefix| match range.address() {
        std::net::IpAddr::V4(address) => address.is_link_local() || address.is_multicast(),
        std::net::IpAddr::V6(address) => {
            address.is_unicast_link_local() || address.is_multicast() || address.is_loopback()
        }
    };
    let routes = network.routes.iter();
    routes
        .filter(|route| route.table == MAIN && route.link.is_some_and(&is_of_lan))
        .filter(|route| !route.destination.is_default() && !is_local(route.destination))
        .filter(|route| !is_of_pods(route))
        .map(|route| route.destination)
        .collect()
}

/// Returns the ranges that need a rule.
///
/// A LAN that contains the VPN's or the pods' addresses would take these with it: there only what another node's route claims of the
/// LAN has a rule, as far as none of these addresses are in it.
pub fn protected(lan: &BTreeSet<Prefix>, carried: &Carried) -> BTreeSet<Prefix> {
    let inside = |range: Prefix| {
        let mut all = carried.vpn.iter().chain(&carried.pods);
        all.any(|own| range.contains(*own))
    };
    let claimed = |range: Prefix| {
        let routes = carried.accepted.iter();
        let lan_routes = routes.filter(|route| {
            let mut all = carried.vpn.iter().chain(&carried.pods);
            !all.any(|own| own.contains(**route))
        });
        lan_routes.filter_map(move |route| range.intersection(*route))
    };
    let mut found: BTreeSet<Prefix> = carried.own.iter().copied().collect();
    for range in lan {
        if inside(*range) {
            found.extend(claimed(*range).filter(|part| !inside(*part)));
        } else {
            found.insert(*range);
        }
    }
    found
}

/// Returns the rules to add and those to delete.
pub fn change(present: &[Rule], wanted: &BTreeSet<Prefix>) -> (Vec<Rule>, Vec<Rule>) {
    let ours: Vec<&Rule> = present
        .iter()
        .filter(|rule| rule.priority == PRIORITY && rule.protocol == PROTOCOL)
        .collect();
    let add = wanted
        .iter()
        .map(|range| Rule {
            priority: PRIORITY,
            destination: Some(*range),
            table: MAIN,
            protocol: PROTOCOL,
        })
        .filter(|rule| !ours.contains(&rule))
        .collect();
    let is_wanted = |rule: &Rule| {
        rule.table == MAIN
            && rule
                .destination
                .is_some_and(|range| wanted.contains(&range))
    };
    let delete = ours
        .into_iter()
        .filter(|rule| !is_wanted(rule))
        .cloned()
        .collect();
    (add, delete)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::kernel::{Link, Route};

    const LAN_LINK: u32 = 2;
    const VPN_LINK: u32 = 3;
    const BRIDGE: u32 = 4;
    const TAILSCALE: u32 = 52;

    fn ranges(text: &str) -> Vec<Prefix> {
        text.split_whitespace()
            .map(|text| text.parse().unwrap())
            .collect()
    }

    /// A node with one LAN and a pod bridge, which accepts routes of others.
    fn node(lan: &str, accepted: &str) -> (Network, Carried) {
        let mut network = Network::default();
        for (index, name, kind) in [
            (LAN_LINK, "eth0", None),
            (VPN_LINK, "tailscale0", Some("tun")),
            (BRIDGE, "cni0", Some("bridge")),
        ] {
            let link = Link {
                name: name.to_owned(),
                kind: kind.map(str::to_owned),
                ..Link::default()
            };
            network.links.insert(index, link);
        }
        let mut add = |destinations: &str, table, link| {
            let routes = ranges(destinations).into_iter().map(|destination| Route {
                destination,
                table,
                link: Some(link),
                protocol: 0,
            });
            network.routes.extend(routes);
        };
        add("0.0.0.0/0 fe80::/64", MAIN, LAN_LINK);
        add(lan, MAIN, LAN_LINK);
        let own = ranges(lan).into_iter().map(|lan| (lan.address(), LAN_LINK));
        add("10.42.1.0/24", MAIN, BRIDGE);
        add("100.64.0.2/32 100.64.0.3/32", TAILSCALE, VPN_LINK);
        add(accepted, TAILSCALE, VPN_LINK);
        network.addresses.extend(own);
        let carried = Carried {
            vpn: ranges("100.64.0.0/10"),
            pods: ranges("10.42.0.0/16"),
            accepted: ranges(accepted),
            own: ranges("10.42.1.0/24"),
        };
        (network, carried)
    }

    /// Sends a packet as the kernel does: our rules, tailscale's table, the main table.
    fn interface(network: &Network, rules: &BTreeSet<Prefix>, to: &str) -> &'static str {
        let to: IpAddr = to.parse().unwrap();
        let host = Prefix::host(to);
        let look_up = |table| {
            let routes = network.routes.iter().filter(|route| route.table == table);
            let matching = routes.filter(|route| route.destination.contains(host));
            matching.max_by_key(|route| route.destination.length())
        };
        let is_kept = rules.iter().any(|range| range.contains(host));
        let found = is_kept.then(|| look_up(MAIN)).flatten();
        match found
            .or_else(|| look_up(TAILSCALE))
            .or_else(|| look_up(MAIN))
        {
            Some(route) if route.link == Some(VPN_LINK) => "vpn",
            Some(route) if route.link == Some(BRIDGE) => "bridge",
            _ => "lan",
        }
    }

    fn check(lan_ranges: &str, accepted: &str, expected: &[(&str, &str)]) {
        let (network, carried) = node(lan_ranges, accepted);
        let lan = lan(&network, VPN_LINK, &carried.pods);
        let rules = protected(&lan, &carried);
        for (to, interface_name) in expected {
            assert_eq!(
                interface(&network, &rules, to),
                *interface_name,
                "{to} with LAN {lan_ranges}, accepted {accepted}, rules {rules:?}"
            );
        }
    }

    #[test]
    fn pods_of_networks_that_route_are_no_lan() {
        let (mut network, carried) = node("192.168.1.0/24", "");
        let (pod, router) = (20, LAN_LINK);
        let link = Link {
            name: "cali0".to_owned(),
            kind: Some("veth".to_owned()),
            ..Link::default()
        };
        network.links.insert(pod, link);
        for (destination, link) in [("10.42.1.7/32", pod), ("10.42.9.0/26", router)] {
            network.routes.push(Route {
                destination: destination.parse().unwrap(),
                table: MAIN,
                link: Some(link),
                protocol: 0,
            });
        }
        let found = lan(&network, VPN_LINK, &carried.pods);
        assert_eq!(Vec::from_iter(found), ranges("192.168.1.0/24"));
    }

    #[test]
    fn own_pods_are_reached_when_another_node_advertises_their_subnet() {
        let theirs = "10.42.1.0/24 10.42.2.0/24";
        let expected = [("10.42.1.5", "bridge"), ("10.42.2.5", "vpn")];
        check("192.168.1.0/24", theirs, &expected);
        let (network, carried) = node("192.168.1.0/24", theirs);
        let without = interface(&network, &BTreeSet::new(), "10.42.1.5");
        assert_eq!(without, "vpn", "the rule decides");
        let routes = carried.accepted.iter().map(|route| ("other", *route));
        let lines = twins(&carried.own, routes);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("other of the VPN advertises 10.42.1.0/24, "));
        let pending = without_twins(ranges("10.42.1.0/24 fd42::/64"), &carried.accepted);
        assert_eq!(pending, ranges("fd42::/64"));
    }

    #[test]
    fn accepted_route_that_covers_the_lan_leaves_its_traffic_on_the_lan() {
        let etcd = "192.168.1.11";
        let others = [
            ("10.42.2.5", "vpn"),
            ("100.64.0.2", "vpn"),
            ("10.42.1.5", "bridge"),
            ("1.1.1.1", "lan"),
        ];
        for accepted in [
            "192.168.1.0/24",
            "192.168.0.0/16",
            "192.168.1.0/25 192.168.1.11/32",
        ] {
            let accepted = format!("{accepted} 10.42.2.0/24");
            check(
                "192.168.1.0/24",
                &accepted,
                &[&[(etcd, "lan")][..], &others].concat(),
            );
            // Without rules the kernel sends it into the tunnel.
            let (network, _) = node("192.168.1.0/24", &accepted);
            assert_eq!(interface(&network, &BTreeSet::new(), etcd), "vpn");
        }
        // What the route covers besides the LAN is reached through the VPN.
        check(
            "192.168.1.0/24",
            "192.168.0.0/16",
            &[("192.168.7.1", "vpn")],
        );
        check(
            "2001:db8:1::/64",
            "2001:db8::/32",
            &[("2001:db8:1::b", "lan"), ("2001:db8:2::b", "vpn")],
        );
    }

    #[test]
    fn lan_around_pods_or_vpn_leaves_them_in_the_vpn() {
        let pods = [
            ("10.42.2.5", "vpn"),
            ("10.42.1.5", "bridge"),
            ("100.64.0.2", "vpn"),
        ];
        let around = |etcd: &'static str, lan: &str, accepted: &str| {
            check(lan, accepted, &[&[(etcd, "lan")][..], &pods].concat());
        };
        around("10.0.0.11", "10.0.0.0/8", "10.42.2.0/24");
        around("10.0.0.11", "10.0.0.0/8", "10.42.2.0/24 10.0.0.0/16");
        around("10.0.0.11", "10.0.0.0/8", "10.42.2.0/24 10.0.0.11/32");
        around("100.70.0.1", "100.64.0.0/10", "10.42.2.0/24");
    }

    #[test]
    fn lan_inside_the_pod_network_stays_the_lan() {
        check(
            "10.42.7.0/24",
            "10.42.7.0/24 10.42.2.0/24",
            &[("10.42.7.11", "lan"), ("10.42.2.5", "vpn")],
        );
    }

    #[test]
    fn lan_has_its_rules_before_the_vpn_runs() {
        let early = |lan: &str| {
            let (mut network, carried) = node(lan, "192.168.0.0/16");
            // A route of another program's tunnel, or of the VPN's: they cannot be told apart yet.
            network.routes.push(Route {
                destination: "10.8.0.0/24".parse().unwrap(),
                table: MAIN,
                link: Some(VPN_LINK),
                protocol: 0,
            });
            let found = before_the_vpn(&network, carried.vpn, carried.pods, carried.own);
            Vec::from_iter(found)
        };
        assert_eq!(
            early("192.168.1.0/24"),
            ranges("10.42.1.0/24 192.168.1.0/24")
        );
        assert_eq!(
            early("10.42.7.0/24 2001:db8:1::/64"),
            ranges("10.42.1.0/24 10.42.7.0/24 2001:db8:1::/64")
        );
        // Rules for these would take the VPN's and the pods' packets.
        assert_eq!(early("10.0.0.0/8 100.64.0.0/10"), ranges("10.42.1.0/24"));
    }

    #[test]
    fn bridge_with_a_former_subnet_gets_no_rule() {
        let (mut network, carried) = node("192.168.1.0/24", "10.42.9.0/24");
        network.routes.push(Route {
            destination: "10.42.9.0/24".parse().unwrap(),
            table: MAIN,
            link: Some(BRIDGE),
            protocol: 0,
        });
        let found = lan(&network, VPN_LINK, &carried.pods);
        assert_eq!(Vec::from_iter(found), ranges("192.168.1.0/24"));
    }

    #[test]
    fn only_rules_of_ours_are_changed() {
        let rule = |range: &str, protocol| Rule {
            priority: PRIORITY,
            destination: Some(range.parse().unwrap()),
            table: MAIN,
            protocol,
        };
        let present = [
            rule("10.0.0.0/24", PROTOCOL),
            rule("10.1.0.0/24", PROTOCOL),
            rule("10.2.0.0/24", 0),
        ];
        let wanted = ranges("10.1.0.0/24 10.3.0.0/24").into_iter().collect();
        let (add, delete) = change(&present, &wanted);
        assert_eq!(add, [rule("10.3.0.0/24", PROTOCOL)]);
        assert_eq!(delete, [rule("10.0.0.0/24", PROTOCOL)]);
    }
}
