//! Tables of nodes and their plans. `tests/it` has all kinds of nodes against a model of K3s.

use super::*;
use crate::provider::ProviderName;

const LAN: &str = "192.168.1.10";
const LAN6: &str = "2001:db8:1::10";
const VPN: &str = "100.64.0.2";
const VPN6: &str = "fd7a:115c:a1e0::2";

fn facts(addresses: &[&str]) -> Facts {
    let addresses = addresses.iter().map(|text| address(text));
    Facts {
        interface: "ts7".to_owned(),
        addresses: addresses.collect(),
        dns_name: Some("a.tail1234.ts.net".to_owned()),
        mtu: 1280,
        ranges: Vec::new(),
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn host(addresses: &[(&str, &str)]) -> Host {
    let addresses = addresses.iter().map(|(interface, text)| HostAddress {
        interface: (*interface).to_owned(),
        address: address(text),
        length: if text.contains(':') { 64 } else { 24 },
    });
    Host {
        addresses: addresses.collect(),
        default_ipv4: Some("eth0".to_owned()),
        default_ipv6: Some("eth0".to_owned()),
    }
}

fn node(distro: Distro, role: Role) -> Node {
    Node {
        selection: Selection::default(),
        distro,
        role,
        settings: Settings::default(),
        host: host(&[
            ("lo", "127.0.0.1"),
            ("docker0", "172.17.0.1"),
            ("eth0", LAN),
            ("eth0", "fe80::1"),
            ("eth0", LAN6),
            ("ts7", VPN),
            ("ts7", VPN6),
        ]),
    }
}

fn server(datastore: Datastore) -> Node {
    node(Distro::K3s, Role::Server(datastore))
}

fn with(mut node: Node, change: impl FnOnce(&mut Settings)) -> Node {
    change(&mut node.settings);
    node
}

/// Compares the arguments, without dashes, and the beginnings of the notes.
#[track_caller]
fn check(addresses: &[&str], node: &Node, expected: &[String], notes: &[&str]) {
    let plan = plan(&facts(addresses), node).unwrap_or_else(|refusal| panic!("{refusal}"));
    let args = plan.args();
    let args: Vec<&str> = args.iter().map(|arg| arg.trim_start_matches('-')).collect();
    assert_eq!(args, expected);
    assert_eq!(plan.notes.len(), notes.len(), "{:?}", plan.notes);
    for (note, expected) in plan.notes.iter().zip(notes) {
        assert!(note.starts_with(expected), "{note}");
    }
}

#[track_caller]
fn refused(addresses: &[&str], node: &Node, setting: &str, part: &str) {
    let refusal = plan(&facts(addresses), node).unwrap_err();
    assert_eq!(refusal.setting, setting, "{refusal}");
    assert!(refusal.to_string().contains(part), "{refusal}");
}

macro_rules! args {
    ($($format:literal),* $(,)?) => { &[$(format!($format)),*] };
}

#[test]
fn agents_are_on_the_vpn() {
    let agent = node(Distro::K3s, Role::Agent);
    check(
        &[VPN, VPN6],
        &agent,
        args![
            "node-ip={VPN}",
            "node-ip={VPN6}",
            "flannel-iface=ts7",
            "flannel-conf=/var/lib/multus-vpn/net-conf.json"
        ],
        &[],
    );
    check(
        &[VPN6],
        &agent,
        args![
            "node-ip={VPN6}",
            "flannel-iface=ts7",
            "flannel-conf=/var/lib/multus-vpn/net-conf.json"
        ],
        &[],
    );
    let rke2 = node(Distro::Rke2, Role::Agent);
    check(
        &[VPN],
        &rke2,
        args!["node-ip={VPN}"],
        &["rke2 has no settings for flannel", "an MTU of 1230"],
    );
    // The room of VXLAN is larger in packets of IPv6.
    check(
        &[VPN6],
        &rke2,
        args!["node-ip={VPN6}"],
        &["rke2 has no settings for flannel", "an MTU of 1210"],
    );
    let mut both = node(Distro::Rke2, Role::Agent);
    both.settings.cluster_families = vec![Family::Ipv4, Family::Ipv6];
    check(
        &[VPN, VPN6],
        &both,
        args!["node-ip={VPN}", "node-ip={VPN6}"],
        &["rke2 has no settings for flannel", "an MTU of 1210"],
    );
    refused(&[], &agent, "node-ip", "no address in the VPN");
}

#[test]
fn servers_without_etcd_are_on_the_vpn() {
    for datastore in [Datastore::External, Datastore::Sqlite] {
        let notes: &[&str] = match datastore {
            Datastore::Sqlite => &["with --cluster-init"],
            _ => &[],
        };
        check(
            &[VPN],
            &server(datastore),
            args![
                "node-ip={VPN}",
                "advertise-address={VPN}",
                "tls-san={VPN}",
                "tls-san=a.tail1234.ts.net",
                "flannel-iface=ts7",
                "flannel-conf=/var/lib/multus-vpn/net-conf.json",
            ],
            notes,
        );
    }
}

#[test]
fn route_to_the_lan_address_of_a_server_with_etcd_is_offered_with_its_policy() {
    let node = server(Datastore::Etcd);
    let plan = plan(&facts(&[VPN]), &node).unwrap();
    for part in [
        "--advertise-routes=192.168.1.10/32 in extraArgs",
        "needs \"autoApprovers\": {\"routes\": {\"192.168.1.10/32\": [\"tag:k3s\"]}} in the VPN's policy",
    ] {
        assert!(plan.notes[0].contains(part), "{:?}", plan.notes);
    }
}

#[test]
fn servers_with_etcd_are_on_the_lan_and_reached_over_the_vpn() {
    check(
        &[VPN, VPN6],
        &server(Datastore::Etcd),
        args![
            "node-ip={LAN}",
            "node-external-ip={VPN}",
            "advertise-address={VPN}",
            "tls-san={VPN}",
            "tls-san={VPN6}",
            "tls-san=a.tail1234.ts.net",
            "flannel-iface=ts7",
            "flannel-conf=/var/lib/multus-vpn/net-conf.json",
        ],
        &["this node's InternalIP is 192.168.1.10"],
    );
    check(
        &[VPN],
        &node(Distro::Rke2, Role::Server(Datastore::Etcd)),
        args![
            "node-ip={LAN}",
            "node-external-ip={VPN}",
            "advertise-address={VPN}",
            "tls-san={VPN}",
            "tls-san=a.tail1234.ts.net",
        ],
        &["this node's InternalIP", "rke2 has no", "an MTU of 1230"],
    );
}

#[test]
fn families_follow_the_clusters_in_its_order() {
    use Family::{Ipv4, Ipv6};
    let etcd = |families: &[Family]| {
        with(server(Datastore::Etcd), |settings| {
            settings.cluster_families = families.to_vec();
        })
    };
    let first = |node: &Node, count: usize| {
        let plan = plan(&facts(&[VPN, VPN6]), node).unwrap();
        plan.args()[..count].join(" ")
    };
    assert_eq!(
        first(&etcd(&[Ipv6, Ipv4]), 5),
        format!(
            "--node-ip={LAN6} --node-ip={LAN} --node-external-ip={VPN6} --node-external-ip={VPN} --advertise-address={VPN6}"
        )
    );
    assert_eq!(
        first(&etcd(&[Ipv4, Ipv6]), 2),
        format!("--node-ip={LAN} --node-ip={LAN6}")
    );
    assert_eq!(
        first(&etcd(&[Ipv6]), 3),
        format!("--node-ip={LAN6} --node-external-ip={VPN6} --advertise-address={VPN6}")
    );
    refused(
        &[VPN],
        &etcd(&[Ipv4, Ipv6]),
        "cluster-cidr",
        "no IPv6 address",
    );
    let external = with(server(Datastore::External), |settings| {
        settings.cluster_families = vec![Ipv6, Ipv4];
    });
    assert_eq!(
        first(&external, 3),
        format!("--node-ip={VPN6} --node-ip={VPN} --advertise-address={VPN6}")
    );
    // Without a setting of the cluster a LAN that has IPv6 alone decides.
    let mut lan6 = server(Datastore::Etcd);
    lan6.host = host(&[("eth0", LAN6), ("ts7", VPN)]);
    assert_eq!(
        first(&lan6, 2),
        format!("--node-ip={LAN6} --node-external-ip={VPN6}")
    );
    refused(&[VPN], &lan6, "cluster-cidr", "no IPv6 address");
}

#[test]
fn settings_of_the_user_are_kept_where_they_agree() {
    let agent = with(node(Distro::K3s, Role::Agent), |settings| {
        settings.node_ip = vec![address(VPN6), address(VPN)];
        settings.node_external_ip = vec![address("203.0.113.7")];
        settings.flannel_iface = Some("ts7".to_owned());
        settings.bind_address = Some(address("0.0.0.0"));
    });
    check(
        &[VPN, VPN6],
        &agent,
        args!["flannel-conf=/var/lib/multus-vpn/net-conf.json"],
        &[],
    );
    let etcd = with(server(Datastore::Etcd), |settings| {
        settings.node_ip = vec![address("172.17.0.1")];
        settings.node_external_ip = vec![address("203.0.113.7"), address(VPN)];
        settings.advertise_address = Some(address(VPN));
        settings.tls_san = vec!["home.example".to_owned(), VPN.to_owned()];
        settings.flannel_backend = Some("none".to_owned());
        settings.server = Some("https://192.168.1.11:6443".to_owned());
    });
    check(
        &[VPN],
        &etcd,
        args!["tls-san=a.tail1234.ts.net"],
        &[
            "this node's InternalIP is 172.17.0.1",
            "flannel is switched off",
        ],
    );
    // The first tls-san among the arguments replaces those of a file.
    let in_file = with(etcd, |settings| settings.tls_san_is_in_file = true);
    check(
        &[VPN],
        &in_file,
        args![
            "tls-san=home.example",
            "tls-san={VPN}",
            "tls-san=a.tail1234.ts.net",
        ],
        &["this node's InternalIP", "flannel is switched off"],
    );
}

#[test]
fn settings_of_the_user_that_disagree_are_refused() {
    let agent = |change: fn(&mut Settings)| with(node(Distro::K3s, Role::Agent), change);
    let etcd = |change: fn(&mut Settings)| with(server(Datastore::Etcd), change);
    for (node, setting, part) in [
        (
            agent(|s| s.node_ip = vec![address(LAN)]),
            "node-ip",
            "leave node-ip out",
        ),
        (
            agent(|s| s.bind_address = Some(address(LAN))),
            "bind-address",
            "leave",
        ),
        (
            agent(|s| s.flannel_iface = Some("eth0".to_owned())),
            "flannel-iface",
            "ts7",
        ),
        (
            agent(|s| s.flannel_backend = Some("vxlan".to_owned())),
            "flannel-backend",
            "vxlan",
        ),
        (
            agent(|s| s.flannel_conf = Some("/f".to_owned())),
            "flannel-conf",
            "/f",
        ),
        (
            etcd(|s| s.node_ip = vec![address(VPN)]),
            "node-ip",
            "move etcd onto the VPN",
        ),
        (
            etcd(|s| s.node_ip = vec![address("10.9.9.9")]),
            "node-ip",
            "no interface",
        ),
        (
            etcd(|s| s.node_external_ip = vec![address(LAN)]),
            "node-external-ip",
            "add 100.64.0.2",
        ),
        (
            etcd(|s| s.advertise_address = Some(address(LAN))),
            "advertise-address",
            VPN,
        ),
        (
            etcd(|s| s.bind_address = Some(address(LAN))),
            "bind-address",
            "the VPN",
        ),
        (
            etcd(|s| s.bind_address = Some(address(VPN))),
            "bind-address",
            "the LAN",
        ),
    ] {
        refused(&[VPN], &node, setting, part);
    }
    let rke2 = with(node(Distro::Rke2, Role::Agent), |settings| {
        settings.flannel_iface = Some("ts7".to_owned());
    });
    refused(&[VPN], &rke2, "flannel-iface", "HelmChartConfig");
}

#[test]
fn joining_etcd_over_the_vpn_is_refused() {
    let join = |url: &str| {
        with(server(Datastore::Etcd), |settings| {
            settings.server = Some(url.to_owned());
        })
    };
    for url in [
        "https://100.64.0.1:6443",
        "https://[fd7a:115c:a1e0::1]:6443/",
        "https://B.tail1234.ts.net.:6443",
        "https://b.other.ts.net",
    ] {
        refused(&[VPN], &join(url), "server", "use an external datastore");
    }
    let joined = |facts: &Facts, url: &str| plan(facts, &join(url)).unwrap().notes.len();
    assert_eq!(joined(&facts(&[VPN]), "https://192.168.1.11:6443"), 1);
    assert_eq!(joined(&facts(&[VPN]), "https://[2001:db8:1::11]:6443"), 1);
    // A name may lead anywhere.
    assert_eq!(joined(&facts(&[VPN]), "https://b:6443"), 2);
    // A control server may have a domain of its own.
    let mut own = facts(&[VPN]);
    own.dns_name = Some("a.vpn.example".to_owned());
    assert!(plan(&own, &join("https://b.vpn.example:6443")).is_err());
    assert_eq!(joined(&own, "https://vpn.example:6443"), 2);
    // A LAN may have addresses of the range that the provider uses.
    let mut shared = join("https://100.64.9.1:6443");
    shared.host = host(&[("eth0", "100.64.9.2")]);
    assert!(plan(&facts(&[VPN]), &shared).is_ok());
    // Agents, and servers with an external datastore, join over the VPN.
    for role in [Role::Agent, Role::Server(Datastore::External)] {
        let mut node = join("https://b.other.ts.net:6443");
        node.role = role;
        assert!(plan(&facts(&[VPN]), &node).is_ok());
    }
}

#[test]
fn address_of_the_lan_is_that_of_the_default_route_or_the_only_one() {
    let choose = |addresses: &[(&str, &str)], default: Option<&str>| {
        let mut node = server(Datastore::Etcd);
        node.host = host(addresses);
        node.host.default_ipv4 = default.map(str::to_owned);
        plan(&facts(&[VPN]), &node).map(|plan| plan.settings[0].values.join(","))
    };
    let two = [("eth1", "10.0.0.1"), ("eth0", LAN), ("ts7", VPN)];
    assert_eq!(choose(&two, Some("eth0")).unwrap(), LAN);
    assert_eq!(choose(&two[1..], None).unwrap(), LAN);
    // An exit node makes the VPN the default route.
    assert_eq!(choose(&two[1..], Some("ts7")).unwrap(), LAN);
    let several = choose(&two, None).unwrap_err().to_string();
    assert!(
        several.contains("10.0.0.1 (eth1), 192.168.1.10 (eth0)"),
        "{several}"
    );
    let none = choose(&two[2..], Some("ts7"));
    assert_eq!(none.unwrap_err().setting, "node-ip");
}

#[test]
fn datastore_is_chosen_as_the_distro_does() {
    let of = |distro, endpoint: Option<&str>, starts_etcd, joins, is_on_disk| {
        Datastore::of(
            distro,
            &DatastoreSettings {
                endpoint: endpoint.map(str::to_owned),
                starts_etcd,
                joins,
                is_on_disk,
            },
        )
    };
    let k3s = Distro::K3s;
    assert_eq!(of(k3s, None, false, false, false), Datastore::Sqlite);
    assert_eq!(of(k3s, None, true, false, false), Datastore::Etcd);
    assert_eq!(of(k3s, None, false, true, false), Datastore::Etcd);
    assert_eq!(of(k3s, None, false, false, true), Datastore::Etcd);
    let external = Some("postgres://u:p@h/db");
    assert_eq!(of(k3s, external, false, true, false), Datastore::External);
    assert_eq!(of(k3s, external, false, false, true), Datastore::Etcd);
    let sqlite = Some("sqlite:///x.db");
    assert_eq!(of(k3s, sqlite, false, false, false), Datastore::Sqlite);
    assert_eq!(of(Distro::Rke2, None, false, false, false), Datastore::Etcd);
    assert_eq!(
        of(Distro::Rke2, external, false, false, false),
        Datastore::External
    );
}

fn by_interface(node: Node, pods: Pods) -> Node {
    let selection = Selection {
        provider: ProviderName::Interface,
        interface: Some("ts7".to_owned()),
        pods,
    };
    Node { selection, ..node }
}

#[test]
fn flannel_keeps_its_own_back_end_in_a_tunnel_that_knows_no_pods() {
    let agent = || by_interface(node(Distro::K3s, Role::Agent), Pods::Vxlan);
    let wrapped =
        "flannel wraps packets to pods in VXLAN, inside the tunnel: they have an MTU of 1230,";
    let expected = args!["node-ip={VPN}", "flannel-iface=ts7"];
    check(&[VPN], &agent(), expected, &[wrapped]);
    let own = with(agent(), |own| {
        own.flannel_backend = Some("vxlan".to_owned());
    });
    check(&[VPN], &own, expected, &[wrapped]);
    let other = with(agent(), |own| {
        own.flannel_backend = Some("wireguard-native".to_owned());
    });
    refused(&[VPN], &other, "flannel-backend", "through two tunnels");
    let conf = with(agent(), |own| own.flannel_conf = Some("/x".to_owned()));
    refused(&[VPN], &conf, "flannel-conf", "leave flannel-conf out");
}

#[test]
fn etcd_is_not_joined_through_a_range_of_the_users_tunnel() {
    let mut facts = facts(&[VPN]);
    facts.ranges = vec!["10.9.0.0/24".parse().unwrap()];
    let joins = |url: &str| {
        let server = by_interface(server(Datastore::Etcd), Pods::Vxlan);
        let server = with(server, |own| own.server = Some(url.to_owned()));
        plan(&facts, &server)
    };
    let refusal = joins("https://10.9.0.1:6443").unwrap_err();
    assert_eq!(refusal.setting, "server", "{refusal}");
    let plan = joins("https://192.168.1.11:6443").unwrap();
    let cost = "a route to 192.168.1.10/32 through the tunnel";
    assert!(
        plan.notes.iter().any(|note| note.contains(cost)),
        "{:?}",
        plan.notes
    );
}

#[test]
fn peers_get_routes_of_clusters_with_ipv4() {
    let agent = || by_interface(node(Distro::K3s, Role::Agent), Pods::Routes);
    let conf = "/var/lib/multus-vpn/net-conf.json";
    let expected = args!["node-ip={VPN}", "flannel-iface=ts7", "flannel-conf={conf}"];
    check(&[VPN], &agent(), expected, &[]);
    refused(&[VPN6], &agent(), "cluster-cidr", "add pods=vxlan");
    let of = |families: &[Family]| {
        let families = families.to_vec();
        with(agent(), |own| own.cluster_families = families)
    };
    let both = args![
        "node-ip={VPN}",
        "node-ip={VPN6}",
        "flannel-iface=ts7",
        "flannel-conf={conf}"
    ];
    check(&[VPN, VPN6], &of(&[Family::Ipv4, Family::Ipv6]), both, &[]);
    let ipv6 = of(&[Family::Ipv6]);
    refused(&[VPN, VPN6], &ipv6, "cluster-cidr", "add pods=vxlan");
}
