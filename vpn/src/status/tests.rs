//! Tests of the findings: one fact at a time differs from those of a sound node.

use super::*;
use crate::{
    kernel::{Below, Route, Rule},
    provider::ProviderName,
};

fn prefixes(text: &str) -> Vec<Prefix> {
    text.split_whitespace()
        .map(|text| text.parse().unwrap())
        .collect()
}

/// The sources of a report on a node on which all is well; each test changes one of them.
struct Node {
    status: Result<Status, ProviderError>,
    settings: Settings,
    record: Record,
    cluster: Vec<Prefix>,
    subnets: Vec<Prefix>,
    others: Vec<Other>,
    has_flannel: bool,
    is_kept: bool,
    network: Network,
    forwards: (bool, bool),
    now: &'static str,
    state: Option<State>,
}

fn healthy() -> Node {
    let link = |name: &str, kind: Option<&str>| Link {
        name: name.to_owned(),
        mtu: 1280,
        is_up: true,
        kind: kind.map(str::to_owned),
        below: None,
    };
    let route = |destination: &str, table, link| Route {
        destination: destination.parse().unwrap(),
        table,
        link: Some(link),
        protocol: 0,
    };
    Node {
        status: Ok(Status {
            phase: Phase::Running,
            version: "1.102.5".to_owned(),
            own: Peer {
                name: "a".to_owned(),
                addresses: vec!["100.64.0.1".parse().unwrap()],
                routes: prefixes("10.42.1.0/24"),
                ..Peer::default()
            },
            peers: vec![Peer {
                name: "b".to_owned(),
                routes: prefixes("10.42.2.0/24"),
                is_online: true,
                is_active: true,
                direct: Some("192.0.2.7:41641".to_owned()),
                relay: Some("fra".to_owned()),
                ..Peer::default()
            }],
            health: Vec::new(),
            has_interface: true,
            ..Status::default()
        }),
        settings: Settings {
            advertised: prefixes("10.42.1.0/24"),
            accepts_routes: true,
            translates_sources: false,
            accepts_dns: false,
            filters_packets: true,
            blocks_incoming: false,
            uses_exit_node: false,
            control_server: Some("https://headscale.example".to_owned()),
        },
        record: Record::default(),
        cluster: prefixes("10.42.0.0/16 10.43.0.0/16"),
        subnets: prefixes("10.42.1.0/24"),
        others: Vec::new(),
        has_flannel: true,
        is_kept: true,
        network: Network {
            links: [
                (2, link("eth0", None)),
                (7, link("tailscale0", Some("tun"))),
            ]
            .into(),
            addresses: vec![
                ("100.64.0.1".parse().unwrap(), 7),
                ("192.168.1.10".parse().unwrap(), 2),
            ],
            routes: vec![
                route("192.168.1.0/24", MAIN, 2),
                route("10.42.2.0/24", 52, 7),
            ],
            rules: prefixes("10.42.1.0/24 192.168.1.0/24")
                .into_iter()
                .map(|range| Rule {
                    priority: rule::PRIORITY,
                    destination: Some(range),
                    table: MAIN,
                    protocol: rule::PROTOCOL,
                })
                .collect(),
            ..Network::default()
        },
        forwards: (true, false),
        now: "2026-11-22T20:00:00Z",
        state: None,
    }
}

impl Node {
    fn report(&self) -> Report {
        Report::new(&Sources {
            provider: ProviderName::default().guide(),
            status: self.status.as_ref(),
            settings: &self.settings,
            record: &self.record,
            cluster: &self.cluster,
            pods: &self.cluster,
            subnets: &self.subnets,
            others: &self.others,
            has_flannel: self.has_flannel,
            is_kept: self.is_kept,
            network: &self.network,
            forwards: self.forwards,
            now: self.now.parse().unwrap(),
        })
    }

    fn status(&mut self) -> &mut Status {
        self.status.as_mut().unwrap()
    }
}

/// Compares the findings on a node with one change. A problem begins with `!`.
fn check(change: impl FnOnce(&mut Node), expected: &[&str]) {
    let mut node = healthy();
    change(&mut node);
    let found = findings(&node.report(), node.state.as_ref());
    let texts: Vec<String> = found
        .iter()
        .map(|finding| {
            format!(
                "{}{}",
                if finding.is_problem { "!" } else { "" },
                finding.text
            )
        })
        .collect();
    assert_eq!(texts.len(), expected.len(), "{texts:#?}");
    for (text, expected) in texts.iter().zip(expected) {
        assert!(text.starts_with(expected), "{text}\ninstead of\n{expected}");
        assert!(
            text.contains(": ") || !text.starts_with('!'),
            "a problem names its cure: {text}"
        );
    }
}

#[test]
fn healthy_node_has_no_findings() {
    check(|_| {}, &[]);
    let text = healthy().report().to_string();
    for line in [
        "vpn            tailscale 1.102.5, running\n",
        "node           a: 100.64.0.1\n",
        "interface      tailscale0, MTU 1280\n",
        "advertised     10.42.1.0/24; approved: 10.42.1.0/24\n",
        "peer           b direct, 192.0.2.7:41641; routes: 10.42.2.0/24\n",
        "lan            192.168.1.0/24\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn vpn_that_does_not_run_is_the_only_finding() {
    let phase = |phase: Phase| move |node: &mut Node| node.status().phase = phase;
    check(phase(Phase::Stopped), &["!the VPN is down: tailscale up"]);
    check(
        phase(Phase::NeedsLogin(None)),
        &["!this node is not logged in to the VPN: run tailscale up"],
    );
    check(
        phase(Phase::NeedsApproval),
        &["!the VPN waits for the approval of this node, a: approve it"],
    );
    check(
        |node| node.status = Err(ProviderError::NotInstalled("tailscale".to_owned())),
        &["!tailscale is not installed: install it"],
    );
    check(
        |node| {
            node.status = Err(ProviderError::DaemonDown {
                program: "tailscale",
                unit: "tailscaled.service",
            });
        },
        &["!tailscaled does not run: systemctl start tailscaled.service"],
    );
    // The unit knows that the key was refused.
    check(
        |node| {
            node.status().phase = Phase::NeedsLogin(None);
            node.state = Some(State::missing("invalid authkey: correct the key"));
        },
        &["!invalid authkey: correct the key"],
    );
}

#[test]
fn expiry_and_clock_are_compared_with_now() {
    let expiry = |time: &'static str| {
        move |node: &mut Node| node.status().own.key_expiry = Some(time.to_owned())
    };
    check(
        expiry("2026-11-22T19:59:00Z"),
        &["!the node's key expired at 2026-11-22T19:59:00Z: log in again"],
    );
    check(
        expiry("2026-12-01T00:00:00Z"),
        &["!the node's key expires at 2026-12-01"],
    );
    check(
        expiry("2027-05-01T00:00:00Z"),
        &["the node's key expires at 2027-05-01T00:00:00Z, and the node leaves"],
    );
    let created = |time: &'static str| {
        move |node: &mut Node| node.status().own.created = Some(time.to_owned())
    };
    check(created("2026-11-22T20:04:00Z"), &[]);
    check(
        created("2027-01-01T00:00:00Z"),
        &["!the clock says 2026-11-22T20:00:00Z, before this node was made in the VPN: set it"],
    );
}

#[test]
fn release_that_reads_no_key_from_a_file_is_too_old() {
    let version =
        |version: &'static str| move |node: &mut Node| node.status().version = version.to_owned();
    check(version("1.18.2-t1"), &["!tailscale 1.18.2-t1 is too old"]);
    check(version("1.20.0"), &[]);
    check(version("2.0"), &[]);
}

#[test]
fn vxlan_over_the_vpn_is_double_encapsulation() {
    let vxlan = |mtu: u32, is_ipv6: bool| {
        move |node: &mut Node| {
            let link = Link {
                name: "flannel.1".to_owned(),
                is_up: true,
                mtu,
                kind: Some("vxlan".to_owned()),
                below: Some(Below { link: 7, is_ipv6 }),
            };
            node.network.links.insert(9, link);
        }
    };
    // As the address plan of rke2 has it.
    for (mtu, is_ipv6) in [(1230, false), (1210, true)] {
        check(
            vxlan(mtu, is_ipv6),
            &[
                "flannel.1 sends VXLAN through tailscale0: every packet is wrapped twice; with K3s' flannel",
            ],
        );
    }
    check(
        vxlan(1231, false),
        &[
            "!flannel.1 sends VXLAN through tailscale0: every packet is wrapped twice, and its MTU of 1231 does not fit into 1280: set it to 1230",
        ],
    );
    check(
        vxlan(1230, true),
        &[
            "!flannel.1 sends VXLAN through tailscale0: every packet is wrapped twice, and its MTU of 1230 does not fit into 1280: set it to 1210",
        ],
    );
    check(
        |node| {
            if let Some(link) = node.network.links.get_mut(&7) {
                link.mtu = 1200;
            }
        },
        &["!tailscale0 has an MTU of 1200, too small for IPv6: 1280 or more"],
    );
    check(
        |node| node.network.addresses.clear(),
        &[
            "!no interface has the VPN's addresses: ",
            "!the kernel has no route to",
        ],
    );
}

#[test]
fn subnets_that_another_back_end_of_flannel_reaches_are_a_problem() {
    let beside = |node: &mut Node, destination: &str| {
        let link = Link {
            name: "flannel.1".to_owned(),
            is_up: true,
            mtu: 1450,
            kind: Some("vxlan".to_owned()),
            below: Some(Below {
                link: 2,
                is_ipv6: false,
            }),
        };
        node.network.links.insert(9, link);
        node.network.routes.push(Route {
            destination: destination.parse().unwrap(),
            table: MAIN,
            link: Some(9),
            protocol: 0,
        });
    };
    let expected =
        "!10.42.3.0/24 of other nodes' pods is reached through flannel.1, around the VPN";
    check(|node| beside(node, "10.42.3.0/24"), &[expected]);
}

#[test]
fn flannel_that_has_announced_nothing_and_a_unit_that_does_not_run_are_named() {
    check(
        |node| node.subnets.clear(),
        &["flannel has announced no subnet of this node's pods yet"],
    );
    check(
        |node| node.is_kept = false,
        &["!multus-vpn.service does not run"],
    );
}

#[test]
fn routes_are_followed_from_wanted_to_installed() {
    check(
        |node| node.settings.advertised.clear(),
        &[
            "!10.42.1.0/24 of this node's pods is not advertised: systemctl restart multus-vpn.service",
        ],
    );
    check(
        |node| node.status().own.routes.clear(),
        &["!advertised, not approved: approve 10.42.1.0/24 of node a"],
    );
    check(
        |node| node.settings.accepts_routes = false,
        &["!this node does not take the routes of other nodes: tailscale set --accept-routes"],
    );
    check(
        |node| node.network.routes.truncate(1),
        &["!the kernel has no route to 10.42.2.0/24: systemctl restart tailscaled.service"],
    );
    check(
        |node| node.forwards.0 = false,
        &["!the kernel forwards no packets to pods: sysctl"],
    );
    check(
        |node| node.settings.filters_packets = false,
        &["tailscale makes no rules of the packet filter: a firewall"],
    );
    // A node without pods in the VPN needs none of it.
    check(
        |node| {
            node.subnets.clear();
            node.has_flannel = false;
            node.settings.accepts_routes = false;
            node.forwards.0 = false;
            node.settings.filters_packets = false;
            node.network.routes.truncate(1);
        },
        &[],
    );
}

#[test]
fn lan_without_rule_and_overlapping_ranges_are_reported() {
    check(
        |node| node.network.rules.clear(),
        &[
            "!a route of another node could pull 10.42.1.0/24, 192.168.1.0/24 into the VPN: systemctl restart",
        ],
    );
    check(
        |node| {
            node.status().peers[0]
                .routes
                .extend(prefixes("192.168.0.0/16"));
        },
        &[
            "!the kernel has no route to 192.168.0.0/16",
            "b advertises 192.168.0.0/16, which has addresses of this node's LAN 192.168.1.0/24",
        ],
    );
    check(
        |node| node.cluster = prefixes("192.168.0.0/16"),
        &[
            "!192.168.1.0/24 of the LAN overlaps 192.168.0.0/16 of the cluster, and packets go astray: give",
        ],
    );
    check(
        |node| node.cluster = prefixes("100.100.0.0/16"),
        &["!100.100.0.0/16 of the cluster overlaps 100.64.0.0/10 of the VPN"],
    );
}

#[test]
fn control_server_that_is_away_at_a_start_is_no_missing_login() {
    let away = |node: &mut Node| node.status().phase = Phase::Unreached("no such host".to_owned());
    check(
        away,
        &["!the VPN's control server is not reached, and without it"],
    );
}

#[test]
fn another_node_with_the_subnet_of_our_pods_is_named_instead_of_a_missing_approval() {
    check(
        |node| {
            let theirs = prefixes("10.42.1.0/24");
            node.status().own.routes.clear();
            node.status().peers[0].routes.extend(theirs);
            let mut route = node.network.routes[1].clone();
            route.destination = "10.42.1.0/24".parse().unwrap();
            node.network.routes.push(route);
        },
        &["!b of the VPN advertises 10.42.1.0/24, and 10.42.1.0/24 of it is of this node's pods"],
    );
}

#[test]
fn relayed_path_and_settings_that_change_packets_are_noted() {
    check(
        |node| node.status().peers[0].direct = None,
        &["packets to b go through the relay fra, slower than directly: let UDP port 41641"],
    );
    check(
        |node| node.settings.blocks_incoming = true,
        &["!this node takes no connection from other nodes"],
    );
    check(
        |node| node.settings.uses_exit_node = true,
        &["packets of this node and its pods to the Internet leave through an exit node"],
    );
    check(
        |node| node.settings.accepts_dns = true,
        &["resolv.conf may name the VPN's DNS server"],
    );
    check(
        |node| node.settings.translates_sources = true,
        &["packets from other nodes reach pods with this node's address"],
    );
    check(
        |node| {
            node.status()
                .health
                .push("IP forwarding is disabled.".to_owned());
        },
        &["tailscale warns: IP forwarding is disabled"],
    );
}
