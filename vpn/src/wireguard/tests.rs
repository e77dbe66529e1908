//! Peers as they are shown, changes of peers, and findings: one fact at a time differs from those of a sound interface.

use super::*;
use crate::{
    kernel::{Below, Link, Route},
    peers::Other,
    provider::{Pods, ProviderName, Selection, Settings},
    state::Record,
    status::{Sources, findings},
};

fn range(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn ranges(text: &str) -> Vec<Prefix> {
    text.split_whitespace().map(range).collect()
}

fn peer(number: u8, all: &str) -> DevicePeer {
    DevicePeer {
        endpoint: Some("192.168.1.7:51820".parse().unwrap()),
        keepalive: 25,
        handshake: 1000,
        ranges: ranges(all),
        ..DevicePeer::new(Key([number; 32]))
    }
}

#[test]
fn ranges_that_may_come_back_with_an_interface_are_named() {
    let assigned = ["10.42.1.0/24", "10.42.2.0/24"].map(|text| crate::peers::Assignment {
        peer: "b=".to_owned(),
        range: range(text),
    });
    let line = |phase, assigned: &[_]| crate::peers::return_of(&GUIDE, &phase, assigned);
    let away = || Phase::NoInterface("there is no interface wg0".to_owned());
    assert_eq!(
        line(away(), &assigned).unwrap(),
        "the interface is away, which had the subnets of pods 10.42.1.0/24, 10.42.2.0/24: if wg-quick has saved them (SaveConfig = true), take them out of AllowedIPs in its configuration"
    );
    assert_eq!(line(away(), &[]), None);
    assert_eq!(line(Phase::Running, &assigned), None);
}

#[test]
fn peer_has_the_name_of_its_address_and_is_online_for_the_time_of_a_session() {
    let shown = peer_status(&peer(1, "10.42.1.0/24 10.9.0.2/32 fd09::2/128"), 1179);
    assert_eq!((shown.name.as_str(), shown.routes.len()), ("10.9.0.2", 1));
    assert_eq!(shown.addresses.len(), 2);
    assert_eq!((shown.is_online, shown.handshake_age), (true, Some(179)));
    assert_eq!(shown.direct.as_deref(), Some("192.168.1.7:51820"));
    let silent = peer_status(&peer(1, ""), 1180);
    assert_eq!((silent.is_online, silent.direct), (false, None));
    assert_eq!(silent.name, Key([1; 32]).to_string());
    assert!(is_key(&silent.name), "{}", silent.name);
    let never = DevicePeer {
        handshake: 0,
        ..peer(1, "")
    };
    assert_eq!(peer_status(&never, 1).handshake_age, None);
    for text in [
        "",
        "x",
        &format!("{}x", &silent.name[..43]),
        &" ".repeat(44),
    ] {
        assert!(!is_key(text), "{text}");
    }
}

#[test]
fn range_is_taken_from_a_peer_without_its_other_ones() {
    let device = Device {
        peers: vec![
            peer(1, "10.9.0.1/32 10.42.1.0/24"),
            peer(2, "10.42.2.0/24 10.9.0.2/32"),
            peer(3, "10.9.0.3/32"),
        ],
        ..Device::default()
    };
    let one = |number: u8, text: &str| Assignment {
        peer: Key([number; 32]).to_string(),
        range: range(text),
    };
    let add = [one(1, "10.42.9.0/24"), one(7, "10.42.7.0/24")];
    let remove = [
        one(2, "10.42.2.0/24"),
        one(3, "10.42.3.0/24"),
        one(7, "10.9.0.1/32"),
    ];
    let change = |number, replaces, text: &str| Change {
        key: Key([number; 32]),
        replaces,
        ranges: ranges(text),
    };
    assert_eq!(
        changes(&device, &add, &remove),
        [
            change(1, false, "10.42.9.0/24"),
            change(2, true, "10.9.0.2/32")
        ]
    );
    // The last range of a peer.
    assert_eq!(
        changes(&device, &[], &[one(3, "10.9.0.3/32")]),
        [change(3, true, "")]
    );
    // A range moves, and the peer that had it loses another one.
    let remove = [one(1, "10.9.0.1/32")];
    assert_eq!(
        changes(&device, &[one(3, "10.42.1.0/24")], &remove),
        [change(1, true, ""), change(3, false, "10.42.1.0/24")]
    );
}

/// The sources of a report on a sound node; each test changes one of them.
struct Node {
    peer: DevicePeer,
    others: Vec<Other>,
    network: Network,
}

fn sound() -> Node {
    let link = |name: &str, mtu| Link {
        name: name.to_owned(),
        mtu,
        is_up: true,
        ..Link::default()
    };
    let route = |destination: &str, link| Route {
        destination: range(destination),
        table: MAIN,
        link: Some(link),
        protocol: 0,
    };
    Node {
        peer: peer(1, "10.9.0.2/32 10.42.2.0/24"),
        others: vec![Other {
            subnet: range("10.42.2.0/24"),
            address: [10, 9, 0, 2].into(),
            key: None,
            start: 1,
        }],
        network: Network {
            links: [(2, link("eth0", 1500)), (7, link("wg0", 1420))].into(),
            addresses: vec![([192, 168, 1, 10].into(), 2), ([10, 9, 0, 1].into(), 7)],
            routes: vec![
                route("0.0.0.0/0", 2),
                route("192.168.1.0/24", 2),
                route("10.9.0.0/24", 7),
                route("10.42.2.0/24", 7),
            ],
            ..Network::default()
        },
    }
}

fn check(change: impl FnOnce(&mut Node), expected: &[&str]) {
    let mut node = sound();
    change(&mut node);
    let mut status = status_of(&node.network, "wg0", "");
    status.peers = vec![peer_status(&node.peer, 1100)];
    let report = Report::new(&Sources {
        provider: &GUIDE,
        status: Ok(&status),
        settings: &Settings {
            accepts_routes: true,
            filters_packets: true,
            ..Settings::default()
        },
        record: &Record::of(Selection {
            provider: ProviderName::Wireguard,
            interface: Some("wg0".to_owned()),
            pods: Pods::Routes,
        }),
        cluster: &ranges("10.42.0.0/16"),
        pods: &ranges("10.42.0.0/16"),
        subnets: &ranges("10.42.1.0/24"),
        others: &node.others,
        has_flannel: true,
        is_kept: true,
        network: &node.network,
        forwards: (true, true),
        now: "2026-11-26T10:00:00Z".parse().unwrap(),
    });
    let found = findings(&report, None).into_iter().map(|finding| {
        let mark = if finding.is_problem { "!" } else { "" };
        format!("{mark}{}", finding.text)
    });
    let found: Vec<String> = found.collect();
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (text, expected) in found.iter().zip(expected) {
        assert!(text.starts_with(expected), "{text}");
    }
}

#[test]
fn sound_interface_has_no_findings() {
    check(|_| {}, &[]);
}

#[test]
fn silent_peer_is_a_problem_where_it_should_speak() {
    let since = "10.9.0.2 had its last handshake 10 min ago";
    check(
        |node| node.peer.handshake = 500,
        &[&format!("!{since}: see that its tunnel is up")],
    );
    check(
        |node| (node.peer.handshake, node.peer.keepalive) = (500, 0),
        &[&format!("{since}, which is not a fault")],
    );
    check(
        |node| (node.peer.handshake, node.peer.endpoint) = (0, None),
        &["10.9.0.2 never had a handshake, and this node has no Endpoint"],
    );
}

#[test]
fn node_behind_nat_keeps_the_way_open() {
    let elsewhere = |node: &mut Node| node.peer.endpoint = "203.0.113.7:51820".parse().ok();
    check(elsewhere, &[]);
    let idle = |node: &mut Node| {
        elsewhere(node);
        node.peer.keepalive = 0;
    };
    check(idle, &["this node has no public address"]);
    check(
        |node| {
            idle(node);
            node.network.addresses.push(([198, 51, 100, 7].into(), 2));
        },
        &[],
    );
    // A peer on the same LAN.
    check(|node| node.peer.keepalive = 0, &[]);
}

#[test]
fn mtu_leaves_room_for_the_packets_around() {
    let wider = |node: &mut Node| node.network.links.get_mut(&7).unwrap().mtu = 1500;
    check(
        wider,
        &["!wg0 has an MTU of 1500, and eth0 of 1500 leaves 1440: set MTU = 1440"],
    );
    check(
        |node| {
            wider(node);
            node.network.links.get_mut(&2).unwrap().mtu = 9000;
        },
        &[],
    );
}

#[test]
fn node_that_is_not_reached_is_named() {
    let lost = "!no peer leads to the node 10.9.0.2";
    check(|node| node.peer.ranges = ranges("10.9.0.9/32"), &[lost]);
    let table_off = |node: &mut Node| {
        let routes = &mut node.network.routes;
        routes.retain(|route| route.destination != range("10.9.0.0/24"));
    };
    check(table_off, &["!no route leads to 10.9.0.2 through wg0"]);
    let no_route = |node: &mut Node| {
        node.network.routes.pop();
    };
    let expected = "!the kernel has no route to 10.42.2.0/24: systemctl restart multus-vpn.service";
    check(no_route, &[expected]);
}

/// The kernel refuses a second route to the same subnet.
#[test]
fn route_that_another_back_end_of_flannel_left_is_named() {
    let left = |node: &mut Node| {
        let link = Link {
            name: "flannel.1".to_owned(),
            is_up: true,
            mtu: 1370,
            kind: Some("vxlan".to_owned()),
            below: Some(Below {
                link: 7,
                is_ipv6: false,
            }),
        };
        node.network.links.insert(9, link);
        node.network.routes.last_mut().unwrap().link = Some(9);
    };
    check(
        left,
        &[
            "flannel.1 sends VXLAN through wg0",
            "!10.42.2.0/24 of other nodes' pods is reached through flannel.1",
        ],
    );
}

#[test]
fn lan_or_cluster_with_the_nodes_own_address_is_named() {
    let lan = |node: &mut Node| {
        let mut route = node.network.routes[1].clone();
        route.destination = range("10.9.0.0/16");
        node.network.routes.push(route);
    };
    check(
        lan,
        &["!10.9.0.0/16 of the LAN overlaps 10.9.0.1/32 of the VPN"],
    );
}
