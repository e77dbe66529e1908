//! Networks of the site that share addresses with those of the cluster, which Kubernetes forbids. Functions over values.

use std::collections::BTreeMap;

use crate::{
    Prefix,
    kernel::{MAIN, Network},
    rule::PROTOCOL,
};

/// A network of the cluster, by the setting that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterNetwork {
    /// The setting: `cluster-cidr` or `service-cidr`.
    pub setting: &'static str,
    pub range: Prefix,
}

/// Returns the networks that this node reaches neither through the VPN nor by a default route, and its addresses outside of them, each with
/// its interface. Bridges and tunnels that a distro made for its pods are none of the site.
pub fn networks(network: &Network, vpn: &str) -> BTreeMap<Prefix, String> {
    let site_name = |link: u32| {
        let name = &network.links.get(&link)?.name;
        let is_of_distro = ["cni0", "flannel", "cali", "vxlan.calico"]
            .iter()
            .any(|start| name.starts_with(start));
        (name != vpn && name != "lo" && !is_of_distro).then(|| name.clone())
    };
    let routes = network.routes.iter().filter(|route| {
        let is_ours = route.protocol == PROTOCOL;
        route.table == MAIN && !is_ours && !route.destination.is_default()
    });
    let routes = routes.filter_map(|route| Some((route.destination, site_name(route.link?)?)));
    let mut found: BTreeMap<_, _> = routes.filter(|(range, _)| !is_local(*range)).collect();
    for (address, link) in &network.addresses {
        let host = Prefix::host(*address);
        let is_covered = found.keys().any(|range| range.contains(host));
        if let Some(name) = site_name(*link).filter(|_| !is_covered && !is_local(host)) {
            found.insert(host, name);
        }
    }
    found
}

fn is_local(range: Prefix) -> bool {
    match range.address() {
        std::net::IpAddr::V4(address) => address.is_link_local() || address.is_multicast(),
        std::net::IpAddr::V6(address) => address.is_unicast_link_local() || address.is_multicast(),
    }
}

/// Returns a line for each network of the site that shares addresses with one of the cluster.
pub fn overlaps(site: &BTreeMap<Prefix, String>, cluster: &[ClusterNetwork]) -> Vec<String> {
    let pairs = site.iter().flat_map(|one| {
        let cluster = cluster.iter();
        cluster.map(move |own| (one, own))
    });
    let shared = pairs.filter(|((range, _), own)| range.intersection(own.range).is_some());
    shared
        .map(|((range, interface), ClusterNetwork { setting, range: own })| {
            format!(
                "the network {range} of this site, on {interface}, shares addresses with {setting} {own}, to which packets stay in the cluster: give the cluster another {setting} before its first start, or the site another network"
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Link, Route};

    /// A node on a LAN, with a VPN and the interfaces of a distro that runs.
    fn node(routes: &[(&str, u32, u8)]) -> Network {
        let names = ["lo", "eth0", "wg0", "cni0", "flannel.1"];
        let links = (1..).zip(names).map(|(index, name)| {
            let link = Link {
                name: name.to_owned(),
                ..Link::default()
            };
            (index, link)
        });
        let routes = routes.iter().map(|(destination, link, protocol)| Route {
            destination: destination.parse().unwrap(),
            table: MAIN,
            link: Some(*link),
            protocol: *protocol,
        });
        Network {
            links: links.collect(),
            routes: routes.collect(),
            ..Network::default()
        }
    }

    fn check(routes: &[(&str, u32, u8)], expected: &[&str]) {
        let cluster = [
            ("cluster-cidr", "10.42.0.0/16"),
            ("cluster-cidr", "fd42::/56"),
            ("service-cidr", "10.43.0.0/16"),
        ];
        let cluster = cluster.map(|(setting, range)| ClusterNetwork {
            setting,
            range: range.parse().unwrap(),
        });
        let found = overlaps(&networks(&node(routes), "wg0"), &cluster);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (text, expected) in found.iter().zip(expected) {
            assert!(text.starts_with(expected), "{text}");
        }
    }

    #[test]
    fn networks_of_the_site_inside_of_the_clusters_are_named() {
        check(&[("192.168.1.0/24", 2, 2), ("0.0.0.0/0", 2, 3)], &[]);
        let lan = "the network 10.42.7.0/24 of this site, on eth0, shares addresses with cluster-cidr 10.42.0.0/16";
        check(&[("10.42.7.0/24", 2, 2)], &[lan]);
        check(
            &[("10.43.0.10/32", 2, 3), ("fd42::/64", 2, 2)],
            &[
                "the network 10.43.0.10/32 of this site, on eth0, shares addresses with service-cidr",
                "the network fd42::/64 of this site, on eth0, shares addresses with cluster-cidr fd42::/56",
            ],
        );
        // A range around both.
        let around = "the network 10.0.0.0/8 of this site, on eth0, shares addresses with";
        check(&[("10.0.0.0/8", 2, 3)], &[around, around]);
    }

    #[test]
    fn address_counts_where_no_route_has_it() {
        let mut node = node(&[("192.168.1.0/24", 2, 2)]);
        for (address, link) in [
            ("192.168.1.7", 2),
            ("10.42.7.1", 2),
            ("10.42.1.1", 4),
            ("10.9.0.1", 3),
            ("fe80::1", 2),
        ] {
            node.addresses.push((address.parse().unwrap(), link));
        }
        let found: Vec<_> = networks(&node, "wg0").into_keys().collect();
        let expected = ["10.42.7.1/32", "192.168.1.0/24"];
        assert_eq!(found, expected.map(|text| text.parse().unwrap()));
    }

    #[test]
    fn networks_of_the_vpn_and_of_the_distro_are_none_of_the_site() {
        check(
            &[
                ("10.42.2.0/24", 3, PROTOCOL),
                ("10.42.9.0/24", 3, 3),
                ("10.42.1.0/24", 4, 2),
                ("10.42.3.0/24", 5, 3),
                ("fe80::/64", 2, 2),
                ("0.0.0.0/0", 2, 3),
            ],
            &[],
        );
    }
}
