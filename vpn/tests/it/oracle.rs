//! The plan's arguments through the model of K3s, over all kinds of nodes: etcd never leaves the LAN, and everything else is where the
//! plan says.

use std::net::IpAddr;

use testkit::fuzz::{self, Random};
use vpn::{
    Facts, Family,
    plan::{Datastore, Distro, Host, HostAddress, Node, Plan, Role, Settings, plan},
    provider::Selection,
};

use super::k3s::{RELEASES, Release, Resolution, Start, resolve};

pub(crate) const VPN: &str = "ts7";
const LAN_ADDRESSES: [&str; 5] = [
    "192.168.1.10",
    "2001:db8:1::10",
    "10.9.0.1",
    "172.17.0.1",
    // A LAN with addresses of the range that the VPN uses.
    "100.100.0.9",
];
const VPN_ADDRESSES: [&str; 2] = ["100.64.0.2", "fd7a:115c:a1e0::2"];

#[derive(Debug)]
struct Case {
    facts: Facts,
    node: Node,
    /// The first family of the cluster, which an agent learns from its server.
    cluster: Option<Family>,
}

impl Case {
    /// Returns addresses in the order in which this node uses them: the server's first family comes first.
    fn in_order(&self, mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
        if let Some(family) = self.cluster {
            addresses.sort_by_key(|address| Family::of(*address) != family);
        }
        addresses
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address of this test")
}

/// Half of the time the value, half of the time nothing.
fn maybe<T>(random: &mut Random, value: impl FnOnce(&mut Random) -> T) -> Option<T> {
    (random.below(2) == 0).then(|| value(random))
}

fn some_addresses(random: &mut Random) -> Vec<IpAddr> {
    let all = [&LAN_ADDRESSES[..], &VPN_ADDRESSES, &["203.0.113.7"]].concat();
    let count = random.below(3);
    let mut addresses: Vec<IpAddr> = Vec::new();
    for _ in 0..count {
        let one = address(random.pick(&all));
        // A node has at most one address of each family.
        if addresses
            .iter()
            .all(|own| Family::of(*own) != Family::of(one))
        {
            addresses.push(one);
        }
    }
    addresses
}

fn some_families(random: &mut Random) -> Vec<Family> {
    let all: [&[Family]; 5] = [
        &[],
        &[Family::Ipv4],
        &[Family::Ipv6],
        &[Family::Ipv4, Family::Ipv6],
        &[Family::Ipv6, Family::Ipv4],
    ];
    random.pick(&all).to_vec()
}

fn some_host(random: &mut Random, vpn: &[IpAddr]) -> Host {
    let mut addresses = vec![("lo", address("127.0.0.1")), ("eth0", address("fe80::1"))];
    for text in LAN_ADDRESSES {
        let interface = random.pick(&["eth0", "eth1"]);
        addresses.extend(maybe(random, |_| (interface, address(text))));
    }
    addresses.extend(vpn.iter().map(|address| (VPN, *address)));
    // The kernel lists interfaces in any order.
    let first = random.below(addresses.len());
    addresses.rotate_left(first);
    let own = |(interface, address): (&str, IpAddr)| HostAddress {
        interface: interface.to_owned(),
        address,
        length: if address.is_ipv4() { 24 } else { 64 },
    };
    let default = |random: &mut Random| {
        let interface = random.pick(&["eth0", "eth0", "eth1", VPN, ""]);
        Some(interface.to_owned()).filter(|name| !name.is_empty())
    };
    Host {
        addresses: addresses.into_iter().map(own).collect(),
        default_ipv4: default(random),
        default_ipv6: default(random),
    }
}

fn some_case(random: &mut Random) -> Case {
    let vpn = random.pick(&[&VPN_ADDRESSES[..], &VPN_ADDRESSES[..1], &VPN_ADDRESSES[1..]]);
    let vpn: Vec<IpAddr> = vpn.iter().map(|text| address(text)).collect();
    let roles = [
        &Role::Agent,
        &Role::Server(Datastore::Etcd),
        &Role::Server(Datastore::Etcd),
        &Role::Server(Datastore::Sqlite),
        &Role::Server(Datastore::External),
    ];
    let mut settings = Settings {
        cluster_families: some_families(random),
        ..Settings::default()
    };
    // Settings of the user are rare enough that most nodes have a plan.
    if random.below(2) == 0 {
        settings.node_ip = some_addresses(random);
        settings.node_external_ip = some_addresses(random);
        settings.advertise_address = some_addresses(random).pop();
        let names = some_addresses(random).into_iter();
        settings.tls_san = names.map(|name| name.to_string()).collect();
        settings.tls_san_is_in_file = random.below(2) == 0;
        settings.flannel_iface = maybe(random, |random| random.pick(&[VPN, "eth0"]).to_owned());
        settings.flannel_backend = maybe(random, |_| "none".to_owned());
    }
    let node = Node {
        selection: Selection::default(),
        distro: *random.pick(&[&Distro::K3s, &Distro::K3s, &Distro::Rke2]),
        role: *random.pick(&roles),
        settings,
        host: some_host(random, &vpn),
    };
    let facts = Facts {
        interface: VPN.to_owned(),
        addresses: vpn.into_iter().collect(),
        dns_name: maybe(random, |_| "a.tail1234.ts.net".to_owned()),
        mtu: 1280,
        ranges: Vec::new(),
    };
    let cluster = match node.role {
        Role::Agent => maybe(random, |random| {
            *random.pick(&[&Family::Ipv4, &Family::Ipv6])
        }),
        Role::Server(_) => None,
    };
    Case {
        facts,
        node,
        cluster,
    }
}

/// The user's settings as arguments.
fn own_args(settings: &Settings) -> Vec<String> {
    let mut args = Vec::new();
    let mut add = |name: &str, value: String| args.push(format!("--{name}={value}"));
    for address in &settings.node_ip {
        add("node-ip", address.to_string());
    }
    for address in &settings.node_external_ip {
        add("node-external-ip", address.to_string());
    }
    if let Some(address) = settings.advertise_address {
        add("advertise-address", address.to_string());
    }
    if !settings.tls_san_is_in_file {
        for name in &settings.tls_san {
            add("tls-san", name.clone());
        }
    }
    if let Some(interface) = &settings.flannel_iface {
        add("flannel-iface", interface.clone());
    }
    if let Some(backend) = &settings.flannel_backend {
        add("flannel-backend", backend.clone());
    }
    args
}

fn resolution(case: &Case, plan: &Plan, release: Release) -> Result<Resolution, String> {
    let settings = &case.node.settings;
    let args = [own_args(settings), plan.args()].concat();
    let file_tls_san: &[String] = if settings.tls_san_is_in_file {
        &settings.tls_san
    } else {
        &[]
    };
    resolve(
        release,
        &Start {
            distro: case.node.distro,
            is_server: case.node.role != Role::Agent,
            args: &args,
            file_tls_san,
            own_vpn: None,
            host: &case.node.host,
            cluster: case.cluster,
        },
    )
}

/// Asserts what the plan promises.
fn check(case: &Case, resolution: &Resolution) {
    let vpn: Vec<IpAddr> = [
        case.facts.addresses.ipv4.map(IpAddr::V4),
        case.facts.addresses.ipv6.map(IpAddr::V6),
    ]
    .into_iter()
    .flatten()
    .collect();
    let is_on_vpn = |address: &IpAddr| vpn.contains(address);
    let is_on_lan = |address: &IpAddr| {
        let mut all = case.node.host.addresses.iter();
        let own = all.find(|own| own.address == *address);
        own.is_some_and(|own| own.interface != VPN && own.interface != "lo")
    };
    let settings = &case.node.settings;
    let families = |addresses: &[IpAddr]| -> Vec<Family> {
        addresses
            .iter()
            .map(|address| Family::of(*address))
            .collect()
    };
    let node_ips = &resolution.node_ips;
    if case.node.role == Role::Server(Datastore::Etcd) {
        let etcd = resolution.etcd.expect("a server has an address for etcd");
        assert!(is_on_lan(&etcd), "etcd is at {etcd}");
        assert_eq!(resolution.annotations.etcd_address, Some(etcd));
        assert!(resolution.annotations.internal_ip.iter().all(is_on_lan));
        assert!(resolution.annotations.external_ip.iter().any(is_on_vpn));
        assert!(resolution.server_sans.contains(&etcd.to_string()));
        assert!(node_ips.contains(&etcd));
        assert!(node_ips.iter().all(is_on_lan));
        // Reached over the VPN in each family that the node has.
        for family in families(node_ips) {
            let external = resolution.external_ips.iter();
            let mut reached = external.filter(|address| Family::of(**address) == family);
            assert!(
                reached.any(is_on_vpn),
                "no VPN address in the kubelet's certificate"
            );
        }
    } else {
        assert!(node_ips.iter().all(is_on_vpn));
        assert!(resolution.annotations.internal_ip.iter().all(is_on_vpn));
    }
    assert_eq!(resolution.annotations.internal_ip, *node_ips);
    assert_eq!(resolution.annotations.external_ip, resolution.external_ips);
    for address in node_ips.iter().chain(&resolution.external_ips) {
        assert!(resolution.kubelet_cert.contains(address));
    }
    if case.node.role != Role::Agent {
        let advertised = resolution
            .advertise
            .expect("a server advertises an address");
        assert!(is_on_vpn(&advertised));
        assert_eq!(Family::of(advertised), Family::of(node_ips[0]));
        for name in vpn
            .iter()
            .map(ToString::to_string)
            .chain(case.facts.dns_name.clone())
        {
            assert!(
                resolution.server_sans.contains(&name),
                "{name} is in no certificate"
            );
        }
    }
    if settings.node_ip.is_empty() && !settings.cluster_families.is_empty() {
        let expected = &mut settings.cluster_families.clone();
        if let Some(first) = case.cluster {
            expected.sort_by_key(|family| *family != first);
        }
        assert_eq!(families(node_ips), *expected);
    }
    if let Some(family) = case.cluster
        && node_ips.len() > 1
    {
        assert_eq!(Family::of(node_ips[0]), family);
    }
    if case.node.distro == Distro::K3s && settings.flannel_backend.is_none() {
        assert_eq!(resolution.flannel_iface.as_deref(), Some(VPN));
        assert_eq!(resolution.flannel_ips, vpn);
    } else if case.node.distro == Distro::Rke2 {
        assert!(resolution.flannel_ips.is_empty());
    }
    // Nothing of the user's is lost.
    for own in &settings.tls_san {
        assert!(case.node.role == Role::Agent || resolution.server_sans.contains(own));
    }
    let kept = [
        (case.in_order(settings.node_ip.clone()), node_ips),
        (settings.node_external_ip.clone(), &resolution.external_ips),
    ];
    for (own, found) in kept {
        assert!(own.is_empty() || own == *found, "{own:?} became {found:?}");
    }
}

#[test]
fn etcd_never_leaves_the_lan_and_all_else_is_where_the_plan_says() {
    let (mut planned, mut with_etcd, mut swapped) = (0, 0, 0);
    let rounds = fuzz::repeat(20_000, |random| {
        let case = some_case(random);
        let Ok(plan) = plan(&case.facts, &case.node) else {
            return;
        };
        planned += 1;
        with_etcd += usize::from(case.node.role == Role::Server(Datastore::Etcd));
        for release in RELEASES {
            let found = resolution(&case, &plan, release);
            let found = found.unwrap_or_else(|error| panic!("{error}: {case:?} {plan:?}"));
            let is_swapped = found.node_ips[0].to_string() != plan.settings[0].values[0];
            swapped += usize::from(is_swapped && case.cluster.is_some());
            let shown = format!("{case:?}\n{plan:?}\n{found:?}");
            let checked = std::panic::catch_unwind(|| check(&case, &found));
            assert!(checked.is_ok(), "{shown}");
        }
    });
    assert!(
        planned > rounds / 5 && with_etcd > rounds / 50 && swapped > rounds / 50,
        "{planned} planned, {with_etcd} with etcd, {swapped} times swapped, of {rounds}: hardly tried"
    );
}
