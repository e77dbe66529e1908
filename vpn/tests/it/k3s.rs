//! A model of K3s: from its flags and the host to every address that it and its parts use. RKE2 runs the same code without the flags
//! of flannel and the VPN.
//!
//! Each rule names the file that it was learnt from, and its release where that was noted; files are those of github.com/k3s-io/k3s,
//! unless they name another repository. A rule without a release is taken to hold for all releases here, which was not compared.
//! Annotations and flannel's address follow what the documents of K3s and flannel say: no file of K3s was compared with them.
//!
//! The model knows K3s' own `vpn-auth` too, so that each break of that feature shows in it, and only there.

use std::net::IpAddr;

use vpn::{
    Family,
    plan::{Distro, Host},
};

/// Releases with different rules, in order. But for the first one they differ in `vpn-auth` alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Release {
    /// 1.27.3 to 1.28.2, before #8460: of several addresses of the node a server's own is the first IPv4 address.
    V1_28_2,
    /// To 1.30.0: agents read `vpn-auth`, but not `vpn-auth-file` (#10064).
    V1_30_0,
    /// From #10074 on: `pkg/agent/config/config.go` replaces the node's addresses for kubelet and certificate alike.
    V1_30_1,
    /// From b9f1cc21 (#13262) on: `pkg/executor/embed/embed.go` replaces them in a variable of its own, so that the kubelet keeps the LAN's.
    V1_35_0,
    /// From #13457 on: the kubelet gets them, but its certificate was made before (#13659).
    V1_35_1,
    /// From #13920 on: they are replaced before the certificate is made.
    V1_35_4,
    /// From #14000 on (also 1.35.5): the flag itself is rewritten, before the server takes etcd's address from it (#14515).
    V1_36_3,
    /// After #14515.
    Mended,
}

pub(crate) const RELEASES: [Release; 8] = [
    Release::V1_28_2,
    Release::V1_30_0,
    Release::V1_30_1,
    Release::V1_35_0,
    Release::V1_35_1,
    Release::V1_35_4,
    Release::V1_36_3,
    Release::Mended,
];

/// K3s' own VPN feature, and the addresses that the VPN gives this node.
#[derive(Debug, Clone)]
pub(crate) struct OwnVpn {
    /// `vpn-auth-file` instead of `vpn-auth`.
    pub(crate) from_file: bool,
    pub(crate) interface: String,
    pub(crate) ipv4: Option<IpAddr>,
    pub(crate) ipv6: Option<IpAddr>,
}

/// A start of the distro.
#[derive(Debug, Clone)]
pub(crate) struct Start<'a> {
    pub(crate) distro: Distro,
    pub(crate) is_server: bool,
    /// All arguments, in the form `--name=value`.
    pub(crate) args: &'a [String],
    /// `tls-san` of the configuration file.
    pub(crate) file_tls_san: &'a [String],
    pub(crate) own_vpn: Option<&'a OwnVpn>,
    pub(crate) host: &'a Host,
    /// The first family of the cluster, where the server decides it and this is an agent.
    pub(crate) cluster: Option<Family>,
}

/// The addresses that the distro ends up with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resolution {
    /// etcd's address: what it listens on, its peer URL, and the one by which other members know it.
    pub(crate) etcd: Option<IpAddr>,
    /// The names in the certificates of the API server, the supervisor and etcd, which are one list.
    pub(crate) server_sans: Vec<String>,
    pub(crate) advertise: Option<IpAddr>,
    /// The kubelet's `--node-ip`, which becomes the node's `InternalIP`.
    pub(crate) node_ips: Vec<IpAddr>,
    pub(crate) external_ips: Vec<IpAddr>,
    pub(crate) kubelet_cert: Vec<IpAddr>,
    pub(crate) annotations: Annotations,
    pub(crate) flannel_iface: Option<String>,
    /// The addresses of flannel's interface, which its annotations `public-ip` and `public-ipv6` have: other nodes send packets of
    /// pods there.
    pub(crate) flannel_ips: Vec<IpAddr>,
}

/// The node's annotations with addresses. Rke2's have `rke2` in the place of `k3s`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Annotations {
    /// `k3s.io/internal-ip`, of which the cloud provider makes the node's `InternalIP`.
    pub(crate) internal_ip: Vec<IpAddr>,
    /// `k3s.io/external-ip`.
    pub(crate) external_ip: Vec<IpAddr>,
    /// `etcd.k3s.cattle.io/node-address`, by which a server removes a member of etcd.
    pub(crate) etcd_address: Option<IpAddr>,
}

pub(crate) fn resolve(release: Release, start: &Start<'_>) -> Result<Resolution, String> {
    if start.distro == Distro::Rke2 {
        refuse_unknown_flags(start)?;
    }
    let flag = |name: &str| values(start.args, name);
    let mut node_ip_flag = addresses(&flag("node-ip"))?;
    let external_ips = addresses(&flag("node-external-ip"))?;
    let backend = flag("flannel-backend").pop();
    let has_flannel = start.distro == Distro::K3s && backend.as_deref() != Some("none");
    let own_vpn = start.own_vpn.filter(|vpn| {
        // pkg/cli/agent/agent.go before #10074: only the server's command read the file.
        start.is_server || !vpn.from_file || release > Release::V1_30_0
    });
    if let Some(vpn) = own_vpn
        && release == Release::V1_36_3
        && has_flannel
    {
        // pkg/executor/embed/embed.go of 1.36.3, lines 114 to 131.
        node_ip_flag = vpn_ips(vpn, &node_ips(&node_ip_flag, start.host)?)?;
    }
    let mut resolution = Resolution::default();
    if start.is_server {
        server(
            release,
            start,
            &mut node_ip_flag,
            own_vpn,
            &external_ips,
            &mut resolution,
        )?;
    }
    agent(
        release,
        start,
        &node_ip_flag,
        own_vpn.filter(|_| has_flannel || release < Release::V1_35_0),
        &mut resolution,
    )?;
    if has_flannel {
        resolution.flannel_ips = flannel_ips(resolution.flannel_iface.as_ref(), start.host);
    } else {
        resolution.flannel_iface = None;
    }
    // pkg/agent/config/config.go, release not noted: the certificate is requested for internal and external addresses.
    resolution.kubelet_cert.extend(&external_ips);
    // pkg/agent/run.go, and pkg/etcd/etcd.go for etcd's; not compared.
    resolution.annotations = Annotations {
        internal_ip: resolution.node_ips.clone(),
        external_ip: external_ips.clone(),
        etcd_address: resolution.etcd,
    };
    resolution.external_ips = external_ips;
    Ok(resolution)
}

/// `pkg/cli/server/server.go`, the same from 1.28.3 to 1.36.
fn server(
    release: Release,
    start: &Start<'_>,
    node_ip_flag: &mut Vec<IpAddr>,
    own_vpn: Option<&OwnVpn>,
    external_ips: &[IpAddr],
    resolution: &mut Resolution,
) -> Result<(), String> {
    let flag = |name: &str| values(start.args, name);
    if let Some(interface) = flag("flannel-iface").pop()
        && node_ip_flag.is_empty()
    {
        *node_ip_flag = interface_ips(&interface, start.host)?;
    }
    let first = |addresses: &[IpAddr]| {
        let mut all = addresses.iter();
        let ipv4 = all.find(|address| address.is_ipv4());
        let ipv4 = ipv4.filter(|_| release == Release::V1_28_2);
        ipv4.or(addresses.first()).copied()
    };
    let private = first(node_ip_flag);
    let node_ips = node_ips(node_ip_flag, start.host)?;
    let tls_san = flag("tls-san");
    // pkg/configfilearg/parser.go, release not noted: a list among the arguments replaces that of the file.
    resolution.server_sans = if tls_san.is_empty() {
        start.file_tls_san.to_vec()
    } else {
        tls_san
    };
    let texts = node_ips.iter().map(ToString::to_string);
    resolution.server_sans.extend(texts);
    let is_ipv6 = Family::of(node_ips[0]) == Family::Ipv6;
    let explicit = addresses(&flag("advertise-address"))?.pop();
    resolution.advertise = match own_vpn {
        Some(vpn) if is_ipv6 => Some(
            vpn.ipv6
                .ok_or("tailscale does not provide an ipv6 address")?,
        ),
        Some(vpn) => Some(
            vpn.ipv4
                .ok_or("tailscale does not provide an ipv4 address")?,
        ),
        None => explicit
            .or_else(|| first(external_ips))
            .or_else(|| first(node_ip_flag)),
    };
    let advertised = resolution.advertise.map(|address| address.to_string());
    resolution.server_sans.extend(advertised);
    // pkg/etcd/etcd.go, release not noted: without PrivateIP the address of the default route; advertise-address plays no part (#2965).
    resolution.etcd = private.or_else(|| first(&node_ips));
    Ok(())
}

/// `pkg/agent/config/config.go`, of which the VPN's part differs from release to release as [`Release`] says, and is in
/// `pkg/executor/embed/embed.go` from 1.35 on; the rest was learnt without its release.
fn agent(
    release: Release,
    start: &Start<'_>,
    node_ip_flag: &[IpAddr],
    own_vpn: Option<&OwnVpn>,
    resolution: &mut Resolution,
) -> Result<(), String> {
    let flag = |name: &str| values(start.args, name);
    let mut ips = node_ips(node_ip_flag, start.host)?;
    resolution.flannel_iface = flag("flannel-iface").pop();
    if let Some(interface) = &resolution.flannel_iface {
        let is_there = start
            .host
            .addresses
            .iter()
            .any(|own| own.interface == *interface);
        is_there.then_some(()).ok_or("unable to find interface")?;
    }
    resolution.kubelet_cert.clone_from(&ips);
    if let Some(vpn) = own_vpn {
        let replaced = vpn_ips(vpn, &ips)?;
        resolution.flannel_iface = Some(vpn.interface.clone());
        match release {
            Release::V1_35_0 => {}
            Release::V1_35_1 => ips = replaced,
            _ => {
                resolution.kubelet_cert.clone_from(&replaced);
                ips = replaced;
            }
        }
    }
    // pkg/agent/config/config.go, release not noted: the first address has the family of the first cluster-cidr.
    if let Some(family) = start.cluster
        && Family::of(ips[0]) != family
        && ips.len() > 1
    {
        ips.swap(0, 1);
    }
    resolution.node_ips = ips;
    Ok(())
}

/// `pkg/cli/cmds/{server,agent}.go` of github.com/rancher/rke2, 1.36.4's line (6ce1a801): these flags of K3s are dropped.
fn refuse_unknown_flags(start: &Start<'_>) -> Result<(), String> {
    for name in [
        "flannel-iface",
        "flannel-conf",
        "flannel-backend",
        "vpn-auth",
    ] {
        if !values(start.args, name).is_empty() {
            return Err(format!("flag provided but not defined: -{name}"));
        }
    }
    Ok(())
}

/// The order in which the VPN's code lists its addresses, in `pkg/agent/config/config.go` of 1.30.1 and `pkg/executor/embed/embed.go` of
/// 1.36.3 alike: the family of the node's first address, then the other.
fn vpn_ips(vpn: &OwnVpn, node_ips: &[IpAddr]) -> Result<Vec<IpAddr>, String> {
    let (first, second) = match Family::of(node_ips[0]) {
        Family::Ipv4 => (vpn.ipv4, vpn.ipv6),
        Family::Ipv6 => (vpn.ipv6, vpn.ipv4),
    };
    let first = first.ok_or("address family mismatch when assigning VPN addresses")?;
    Ok(std::iter::once(first).chain(second).collect())
}

/// `GetHostnameAndIPs` of `pkg/util/net.go`, release not noted: the flag, or the default route's addresses, IPv4 first.
fn node_ips(flag: &[IpAddr], host: &Host) -> Result<Vec<IpAddr>, String> {
    if !flag.is_empty() {
        return Ok(flag.to_vec());
    }
    let of = |family: Family, interface: Option<&String>| {
        let mut all = host.addresses.iter();
        all.find(|own| {
            Some(&own.interface) == interface
                && Family::of(own.address) == family
                && is_global(own.address)
        })
        .map(|own| own.address)
    };
    let ipv4 = of(Family::Ipv4, host.default_ipv4.as_ref());
    let ipv6 = of(Family::Ipv6, host.default_ipv6.as_ref());
    let ips: Vec<IpAddr> = ipv4.into_iter().chain(ipv6).collect();
    if ips.is_empty() {
        return Err("unable to select an IP from default routes".to_owned());
    }
    Ok(ips)
}

/// `GetIPFromInterface` of `pkg/util/net.go`, release not noted: one IPv4 address, then the first IPv6 address.
fn interface_ips(interface: &str, host: &Host) -> Result<Vec<IpAddr>, String> {
    let of = |family: Family| {
        let all = host.addresses.iter().filter(move |own| {
            own.interface == interface
                && Family::of(own.address) == family
                && is_global(own.address)
        });
        all.map(|own| own.address).collect::<Vec<_>>()
    };
    let (ipv4, ipv6) = (of(Family::Ipv4), of(Family::Ipv6));
    match (&ipv4[..], &ipv6[..]) {
        ([_, _, ..], _) => Err("multiple global unicast addresses defined".to_owned()),
        ([], []) => Err(format!("can't find ip for interface {interface}")),
        (_, ipv6) => Ok(ipv4.iter().chain(ipv6.first()).copied().collect()),
    }
}

/// `pkg/agent/flannel/flannel.go`, not compared: the first address of each family on the interface, which is that of the default route
/// unless it is named. `flannel-external-ip` is not part of the model.
fn flannel_ips(interface: Option<&String>, host: &Host) -> Vec<IpAddr> {
    let of = |family: Family, default: Option<&String>| {
        let interface = interface.or(default)?;
        let mut all = host.addresses.iter();
        let found = all.find(|own| {
            own.interface == *interface
                && Family::of(own.address) == family
                && is_global(own.address)
        });
        found.map(|own| own.address)
    };
    let ipv4 = of(Family::Ipv4, host.default_ipv4.as_ref());
    let ipv6 = of(Family::Ipv6, host.default_ipv6.as_ref());
    ipv4.into_iter().chain(ipv6).collect()
}

fn is_global(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(is_link_local || address.is_loopback() || address.is_multicast() || address.is_unspecified())
}

/// The values of a flag; lists are separated by commas.
fn values(args: &[String], name: &str) -> Vec<String> {
    let prefix = format!("--{name}=");
    let values = args.iter().filter_map(|arg| arg.strip_prefix(&prefix));
    let items = values.flat_map(|value| value.split(','));
    items.map(str::to_owned).collect()
}

fn addresses(texts: &[String]) -> Result<Vec<IpAddr>, String> {
    let parse = |text: &String| {
        text.parse()
            .map_err(|_| format!("invalid ip format '{text}'"))
    };
    texts.iter().map(parse).collect()
}
