//! Each known break of K3s' own VPN feature: it shows in the release that has it, not in those around it, and never with the plan.

use std::net::IpAddr;

use vpn::{
    Facts, Family,
    plan::{Datastore, Distro, Host, HostAddress, Node, Role, Settings, plan},
    provider::Selection,
};

use super::{
    k3s::{OwnVpn, RELEASES, Release, Resolution, Start, resolve},
    oracle::VPN,
};

const LAN: &str = "192.168.1.10";
const TAILNET: &str = "100.64.0.2";
const TAILNET6: &str = "fd7a:115c:a1e0::2";

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address of this test")
}

fn host() -> Host {
    let own = [("eth0", LAN), (VPN, TAILNET), (VPN, TAILNET6)];
    let own = own.iter().map(|(interface, text)| HostAddress {
        interface: (*interface).to_owned(),
        address: address(text),
        length: 24,
    });
    Host {
        addresses: own.collect(),
        default_ipv4: Some("eth0".to_owned()),
        default_ipv6: None,
    }
}

/// K3s with its own `vpn-auth` or `vpn-auth-file`.
fn with_vpn_auth(release: Release, is_server: bool, from_file: bool) -> Resolution {
    let own = OwnVpn {
        from_file,
        interface: VPN.to_owned(),
        ipv4: Some(address(TAILNET)),
        ipv6: Some(address(TAILNET6)),
    };
    start(release, is_server, &[], Some(&own))
}

/// K3s with the plan's arguments.
fn with_plan(release: Release, role: Role) -> Resolution {
    let facts = Facts {
        interface: VPN.to_owned(),
        addresses: [address(TAILNET), address(TAILNET6)].into_iter().collect(),
        dns_name: None,
        mtu: 1280,
        ranges: Vec::new(),
    };
    let node = Node {
        selection: Selection::default(),
        distro: Distro::K3s,
        role,
        settings: Settings::default(),
        host: host(),
    };
    let args = plan(&facts, &node).expect("a plain node has a plan").args();
    start(release, role != Role::Agent, &args, None)
}

fn start(
    release: Release,
    is_server: bool,
    args: &[String],
    own_vpn: Option<&OwnVpn>,
) -> Resolution {
    let host = host();
    resolve(
        release,
        &Start {
            distro: Distro::K3s,
            is_server,
            args,
            file_tls_san: &[],
            own_vpn,
            host: &host,
            cluster: Some(Family::Ipv4),
        },
    )
    .expect("K3s starts")
}

/// Asserts that exactly these releases have a break, and that none has it with the plan.
fn breaks(
    broken: &[Release],
    vpn_auth: impl Fn(Release) -> Resolution,
    role: Role,
    is_whole: impl Fn(&Resolution) -> bool,
) {
    for release in RELEASES {
        let own = vpn_auth(release);
        assert_eq!(
            is_whole(&own),
            !broken.contains(&release),
            "{release:?}: {own:?}"
        );
        let planned = with_plan(release, role);
        assert!(is_whole(&planned), "{release:?} with the plan: {planned:?}");
    }
}

#[test]
fn k3s_10064_agent_ignored_the_file_and_kept_its_lan_address() {
    // 1.35.0 has the later break of the same effect.
    breaks(
        &[Release::V1_28_2, Release::V1_30_0, Release::V1_35_0],
        |release| with_vpn_auth(release, false, true),
        Role::Agent,
        |found| {
            found.node_ips[0] == address(TAILNET)
                && found.annotations.internal_ip[0] == address(TAILNET)
        },
    );
    let with_text = with_vpn_auth(Release::V1_30_0, false, false);
    assert_eq!(with_text.node_ips[0], address(TAILNET));
}

#[test]
fn k3s_13457_kubelet_kept_its_lan_address() {
    breaks(
        &[Release::V1_35_0],
        |release| with_vpn_auth(release, false, false),
        Role::Agent,
        |found| found.node_ips == [address(TAILNET), address(TAILNET6)],
    );
}

#[test]
fn k3s_13659_vpn_address_was_not_in_the_kubelets_certificate() {
    let is_whole = |found: &Resolution| found.kubelet_cert.contains(&address(TAILNET));
    for role in [Role::Agent, Role::Server(Datastore::Etcd)] {
        breaks(
            // Mended by #13920.
            &[Release::V1_35_0, Release::V1_35_1],
            |release| with_vpn_auth(release, role != Role::Agent, false),
            role,
            is_whole,
        );
    }
}

#[test]
fn k3s_14515_etcd_moved_onto_the_vpn_on_upgrade() {
    breaks(
        // Since #14000.
        &[Release::V1_36_3],
        |release| with_vpn_auth(release, true, false),
        Role::Server(Datastore::Etcd),
        |found| {
            found.etcd == Some(address(LAN))
                && found.annotations.etcd_address == Some(address(LAN))
                && found.server_sans.contains(&LAN.to_owned())
        },
    );
}

/// Why `node-ip` is never left open: the flag for flannel sets it, and etcd's address with it.
#[test]
fn flannel_iface_alone_moves_etcd_onto_the_vpn() {
    let args = [format!("--flannel-iface={VPN}")];
    let found = start(Release::Mended, true, &args, None);
    assert_eq!(found.etcd, Some(address(TAILNET)));
    let planned = with_plan(Release::Mended, Role::Server(Datastore::Etcd));
    assert_eq!(planned.etcd, Some(address(LAN)));
    assert_eq!(planned.flannel_iface.as_deref(), Some(VPN));
}
