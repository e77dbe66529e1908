//! The subnets of other nodes' pods at the peers of a WireGuard interface: which peer gets which, and what is taken back. Functions over
//! values.
//!
//! A subnet belongs to the peer to which packets for the node itself go, since its packets come from there: the node's own peer, or a hub
//! between. flannel's note of the node's public key counts only where no peer has its address.

use std::{collections::BTreeSet, net::IpAddr};

use serde::{Deserialize, Serialize};

use crate::{
    Prefix,
    kernel::{MAIN, Network, Route},
    provider::{Guide, Peer, Phase},
    routes,
    rule::PROTOCOL,
};

/// Another node of the cluster, as flannel's hook names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Other {
    /// The subnet of its pods.
    pub subnet: Prefix,
    /// Its address in the VPN.
    pub address: IpAddr,
    /// Its public key at the start of its flannel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The start of this node's flannel that has named it last.
    #[serde(default)]
    pub start: u32,
}

/// A range that this program gave to a peer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Assignment {
    /// The public key of the peer.
    pub peer: String,
    pub range: Prefix,
}

/// Returns whether a text is a public key: 32 bytes in base64.
pub fn is_key(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    text.len() == 44
        && text
            .strip_suffix('=')
            .is_some_and(|text| text.bytes().all(is_plain))
}

/// What is to be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// The assignments to record before anything changes, so that no crash makes one of them the user's.
    pub before: Vec<Assignment>,
    /// Those to record afterwards.
    pub after: Vec<Assignment>,
    pub add: Vec<Assignment>,
    pub remove: Vec<Assignment>,
    /// The subnets that are reached through the interface.
    pub routes: Vec<Prefix>,
    /// What keeps others from being reached, with what helps.
    pub problems: Vec<String>,
}

/// Decides from the peers as they are, what this program gave them, the other nodes, and the networks of all pods.
pub fn decide(
    peers: &[Peer],
    assigned: &[Assignment],
    others: &[Other],
    networks: &[Prefix],
) -> Decision {
    let mut decision = Decision {
        problems: without_ipv6(others, networks),
        ..Decision::default()
    };
    for other in others {
        if let Some(peer) = target(peers, assigned, other, &mut decision.problems) {
            let wanted = Assignment {
                peer: peer.key.clone().unwrap_or_default(),
                range: other.subnet,
            };
            decision.routes.push(other.subnet);
            let is_there = has(peer, other.subnet);
            // One that is there without a record is the user's.
            if !is_there || assigned.contains(&wanted) {
                if !is_there {
                    decision.add.push(wanted.clone());
                }
                decision.after.push(wanted);
            }
        }
    }
    // Both subnets of a node meet the same obstacle.
    decision.problems = unique(decision.problems);
    decision.remove = assigned.to_vec();
    decision.remove.retain(|former| {
        // A range has one peer: with a new one it has left the former.
        let is_moved = decision.add.iter().any(|new| new.range == former.range);
        let mut peers = peers.iter();
        let peer = peers.find(|peer| peer.key.as_ref() == Some(&former.peer));
        let is_there = peer.is_some_and(|peer| has(peer, former.range));
        is_there && !is_moved && !decision.after.contains(former)
    });
    decision.before = [assigned, &decision.after].concat();
    decision.before.sort_unstable();
    decision.before.dedup();
    decision
}

/// Names the nodes that have published no IPv6 subnet in a cluster that has such networks; no other node knows it.
fn without_ipv6(others: &[Other], networks: &[Prefix]) -> Vec<String> {
    let is_ipv6 = |prefix: Prefix| prefix.address().is_ipv6();
    if !networks.iter().copied().any(is_ipv6) {
        return Vec::new();
    }
    let has_ipv6 = |address| {
        let mut others = others.iter();
        others.any(|other| other.address == address && is_ipv6(other.subnet))
    };
    let lacking = others.iter().filter(|other| !has_ipv6(other.address));
    lacking
        .map(|other| {
            format!(
                "the node {} has published no IPv6 subnet of its pods, so they are reached with IPv4 alone: see that curl is installed there, and restart its distro",
                other.address
            )
        })
        .collect()
}

/// Returns each text once, in the order of the first ones.
fn unique(texts: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut texts = texts;
    texts.retain(|text| seen.insert(text.clone()));
    texts
}

/// Returns the peer that gets the subnet of a node's pods, unless another one has a part of it from the user.
fn target<'a>(
    peers: &'a [Peer],
    assigned: &[Assignment],
    other: &Other,
    problems: &mut Vec<String>,
) -> Option<&'a Peer> {
    let Other {
        subnet, address, ..
    } = other;
    let is_user_range = |peer: &Peer, range: Prefix| {
        !assigned
            .iter()
            .any(|ours| ours.range == range && Some(&ours.peer) == peer.key.as_ref())
    };
    let host = Prefix::host(*address);
    let by_address = peers
        .iter()
        .filter_map(|peer| {
            let ranges =
                ranges(peer).filter(|range| range.contains(host) && is_user_range(peer, *range));
            Some((ranges.map(Prefix::length).max()?, peer))
        })
        .max_by_key(|(length, _)| *length)
        .map(|(_, peer)| peer);
    let by_key = other.key.as_ref();
    let by_key = by_key.and_then(|key| peers.iter().find(|peer| peer.key.as_ref() == Some(key)));
    let peer = match (by_address, by_key) {
        (Some(by_address), Some(by_key)) if by_address.key != by_key.key => {
            problems.push(format!(
                "AllowedIPs of {address}'s own peer {} lack {address}, so packets to it go to {}: add {host} there",
                by_key.key.as_deref().unwrap_or_default(),
                by_address.name
            ));
            by_address
        }
        (Some(peer), _) => peer,
        (None, Some(peer)) => {
            problems.push(format!(
                "AllowedIPs of {address}'s peer {} lack {address}, so packets to the node itself are dropped: add {host} there",
                peer.key.as_deref().unwrap_or_default()
            ));
            peer
        }
        (None, None) => {
            problems.push(format!(
                "no peer leads to the node {address}, so its pods {subnet} are not reached: add {host} to AllowedIPs of its peer, or of the hub between"
            ));
            return None;
        }
    };
    let claim = peers
        .iter()
        .filter(|one| one.key != peer.key)
        .find_map(|one| {
            let range =
                ranges(one).find(|range| subnet.contains(*range) && is_user_range(one, *range));
            Some((one, range?))
        });
    let Some((one, range)) = claim else {
        return Some(peer);
    };
    problems.push(format!(
        "two peers claim {subnet}: it is of pods on {address}, behind {}, and {} has {range} in its AllowedIPs: take it out there",
        peer.name, one.name
    ));
    None
}

/// Returns the ranges of a peer, its own addresses among them.
fn ranges(peer: &Peer) -> impl Iterator<Item = Prefix> {
    let hosts = peer.addresses.iter().copied().map(Prefix::host);
    hosts.chain(peer.routes.iter().copied())
}

fn has(peer: &Peer, range: Prefix) -> bool {
    ranges(peer).any(|one| one == range)
}

/// Returns the line for ranges that may come back with an interface which is away while they are taken back.
pub fn return_of(guide: &Guide, phase: &Phase, assigned: &[Assignment]) -> Option<String> {
    let is_away = matches!(phase, Phase::NoInterface(_));
    if !is_away || assigned.is_empty() || guide.forget_ranges.is_empty() {
        return None;
    }
    let ranges: Vec<Prefix> = assigned.iter().map(|one| one.range).collect();
    Some(format!(
        "the interface is away, which had the subnets of pods {}: {}",
        routes::list(&ranges),
        guide.forget_ranges
    ))
}

/// Returns the routes to add and those to delete, until ours are these. One that is there through the interface is kept, whoever made it.
pub fn change_routes(
    network: &Network,
    link: Option<u32>,
    wanted: &[Prefix],
) -> (Vec<Prefix>, Vec<Route>) {
    let main_routes = network.routes.iter().filter(|route| route.table == MAIN);
    let is_wanted =
        |route: &Route| route.link == link && link.is_some() && wanted.contains(&route.destination);
    let mut add = wanted.to_vec();
    add.retain(|range| {
        let mut present = main_routes.clone();
        link.is_some() && !present.any(|route| is_wanted(route) && route.destination == *range)
    });
    let delete = main_routes.filter(|route| route.protocol == PROTOCOL && !is_wanted(route));
    (add, delete.cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, addresses: &str, routes: &str) -> Peer {
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        Peer {
            name: name.to_owned(),
            key: Some(format!("{name}=")),
            addresses: words(addresses)
                .iter()
                .map(|text| text.parse().unwrap())
                .collect(),
            routes: words(routes)
                .iter()
                .map(|text| text.parse().unwrap())
                .collect(),
            ..Peer::default()
        }
    }

    fn assignment(text: &str) -> Assignment {
        let (peer, range) = text.split_once(' ').unwrap();
        Assignment {
            peer: format!("{peer}="),
            range: range.parse().unwrap(),
        }
    }

    fn other(subnet: &str, address: &str, key: &str) -> Other {
        Other {
            subnet: subnet.parse().unwrap(),
            address: address.parse().unwrap(),
            key: Some(format!("{key}=")),
            start: 1,
        }
    }

    /// Compares what is added, removed and recorded, and the beginnings of the problems.
    fn check(
        peers: &[Peer],
        assigned: &[&str],
        others: &[Other],
        [add, remove, after]: [&[&str]; 3],
        problems: &[&str],
    ) {
        let all = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| assignment(text))
                .collect::<Vec<_>>()
        };
        let found = decide(peers, &all(assigned), others, &[]);
        let lists = [&found.add, &found.remove, &found.after];
        assert_eq!(lists, [&all(add), &all(remove), &all(after)]);
        for one in all(assigned).iter().chain(&found.after) {
            assert!(found.before.contains(one), "{one:?}");
        }
        assert_eq!(
            found.problems.len(),
            problems.len(),
            "{:#?}",
            found.problems
        );
        for (problem, expected) in found.problems.iter().zip(problems) {
            assert!(problem.starts_with(expected), "{problem}");
        }
    }

    const B: &str = "10.42.2.0/24";
    const C: &str = "10.42.3.0/24";

    fn both() -> [Other; 2] {
        [other(B, "10.9.0.2", "b"), other(C, "10.9.0.3", "c")]
    }

    #[test]
    fn subnet_belongs_to_the_peer_of_its_node_or_to_the_hub_between() {
        let direct = [peer("b", "10.9.0.2", ""), peer("c", "10.9.0.3", "")];
        let given = ["b 10.42.2.0/24", "c 10.42.3.0/24"];
        check(&direct, &[], &both(), [&given, &[], &given], &[]);
        // A node with a peer of its own, and the hub with all addresses.
        let hub = [peer("b", "10.9.0.2", "10.9.0.0/24")];
        let given = ["b 10.42.2.0/24", "b 10.42.3.0/24"];
        check(&hub, &[], &both(), [&given, &[], &given], &[]);
        let beside = [peer("hub", "", "0.0.0.0/0"), peer("c", "10.9.0.3", "")];
        let given = ["hub 10.42.2.0/24", "c 10.42.3.0/24"];
        check(&beside, &[], &both(), [&given, &[], &given], &[]);
    }

    #[test]
    fn what_is_there_is_left_alone_and_what_is_gone_is_taken_back() {
        let b = || peer("b", "10.9.0.2", B);
        let ours = ["b 10.42.2.0/24"];
        let one = [other(B, "10.9.0.2", "b")];
        check(&[b()], &ours, &one, [&[], &[], &ours], &[]);
        // Of the user.
        check(&[b()], &[], &one, [&[], &[], &[]], &[]);
        check(&[b()], &[], &[], [&[], &[], &[]], &[]);
        // The interface was made again.
        let bare = [peer("b", "10.9.0.2", "")];
        check(&bare, &ours, &one, [&ours, &[], &ours], &[]);
        // The node has left, its peer too.
        check(&[b()], &ours, &[], [&[], &ours, &[]], &[]);
        check(&bare, &ours, &[], [&[], &[], &[]], &[]);
        check(&[], &ours, &[], [&[], &[], &[]], &[]);
    }

    #[test]
    fn node_with_another_key_has_its_subnet_at_the_new_peer() {
        let ours = ["b 10.42.2.0/24"];
        let now = ["new 10.42.2.0/24"];
        let moved = [peer("b", "", B), peer("new", "10.9.0.2", "")];
        let one = [other(B, "10.9.0.2", "b")];
        // flannel has the former key until it is started again.
        let lacks = "AllowedIPs of 10.9.0.2's own peer b= lack 10.9.0.2";
        check(&moved, &ours, &one, [&now, &[], &now], &[lacks]);
        check(&moved[1..], &ours, &one, [&now, &[], &now], &[]);
    }

    #[test]
    fn both_subnets_of_a_node_go_to_the_peer_of_its_address() {
        const B6: &str = "fd42:0:0:2::/64";
        let networks = ["10.42.0.0/16", "fd42::/56"].map(|text| text.parse().unwrap());
        let hub = [peer("hub", "10.9.0.1", "10.9.0.0/24 fd09::/64")];
        let node = [other(B, "10.9.0.2", "b"), other(B6, "10.9.0.2", "b")];
        let given = ["hub 10.42.2.0/24", "hub fd42:0:0:2::/64"];
        check(&hub, &[], &node, [&given, &[], &given], &[]);
        let ours: Vec<_> = given.iter().map(|text| assignment(text)).collect();
        let there = [peer("hub", "10.9.0.1", &format!("10.9.0.0/24 {B} {B6}"))];
        let found = decide(&there, &ours, &node, &networks);
        assert_eq!((found.add, found.remove), (Vec::new(), Vec::new()));
        assert_eq!(found.routes, [B, B6].map(|text| text.parse().unwrap()));
        assert_eq!(found.problems, Vec::<String>::new());
        // One line for both, and one for a node that has published no IPv6 subnet.
        let lacks = [
            peer("hub", "10.9.0.1", "10.9.0.0/24"),
            peer("b", "10.9.0.7", ""),
        ];
        let found = decide(&lacks, &[], &node, &networks);
        assert_eq!(found.problems.len(), 1, "{:?}", found.problems);
        let alone = decide(&there, &[], &node[..1], &networks).problems;
        assert_eq!(alone.len(), 1, "{alone:?}");
        assert!(alone[0].starts_with("the node 10.9.0.2 has published no IPv6 subnet"));
    }

    #[test]
    fn mistakes_in_the_users_peers_are_named_with_their_cure() {
        let one = [other(B, "10.9.0.2", "b")];
        let none = "no peer leads to the node 10.9.0.2, so its pods 10.42.2.0/24 are not reached";
        check(&[peer("c", "10.9.0.3", "")], &[], &one, [&[]; 3], &[none]);
        let given = ["b 10.42.2.0/24"];
        let lacks = "AllowedIPs of 10.9.0.2's peer b= lack 10.9.0.2, so packets to the node itself";
        check(
            &[peer("b", "", "")],
            &[],
            &one,
            [&given, &[], &given],
            &[lacks],
        );
        let claims = [
            peer("b", "10.9.0.2", ""),
            peer("c", "10.9.0.3", "10.42.2.0/25"),
        ];
        let claim = "two peers claim 10.42.2.0/24: it is of pods on 10.9.0.2, behind b, and c has 10.42.2.0/25";
        check(&claims, &[], &one, [&[]; 3], &[claim]);
        // A range around it is not a claim: the smaller one counts.
        let around = [peer("b", "10.9.0.2", ""), peer("c", "", "10.42.0.0/16")];
        check(&around, &[], &one, [&given, &[], &given], &[]);
    }

    #[test]
    fn routes_of_others_are_neither_added_again_nor_deleted() {
        let route = |destination: &str, link, protocol| Route {
            destination: destination.parse().unwrap(),
            table: MAIN,
            link: Some(link),
            protocol,
        };
        let network = Network {
            routes: vec![
                route(B, 7, 3),
                route(C, 8, PROTOCOL),
                route("10.42.4.0/24", 7, PROTOCOL),
                route("10.9.0.0/24", 7, 2),
            ],
            ..Network::default()
        };
        let wanted = [B, C].map(|text| text.parse().unwrap());
        let (add, delete) = change_routes(&network, Some(7), &wanted);
        assert_eq!(add, [wanted[1]]);
        let expected = [&network.routes[1], &network.routes[2]];
        assert_eq!(delete.iter().collect::<Vec<_>>(), expected);
        let (add, delete) = change_routes(&network, None, &wanted);
        assert_eq!((add.len(), delete.len()), (0, 2));
    }
}
