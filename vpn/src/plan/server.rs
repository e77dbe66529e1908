//! The plan of a server: where its datastore is decides where its node is.

use std::net::IpAddr;

use super::{
    Datastore, HostAddress, Node, Refusal, Setting, decided, kept, node_ip_on_vpn, refuse,
    vpn_address, vpn_addresses,
};
use crate::{Facts, Family, Prefix, provider::Guide};

const EXTERNAL: &str = "use an external datastore (datastore-endpoint)";

/// Returns the settings of a server, with notes on what they cost.
pub(super) fn settings(
    facts: &Facts,
    node: &Node,
    datastore: Datastore,
    notes: &mut Vec<String>,
) -> Result<Vec<Setting>, Refusal> {
    let own = &node.settings;
    let (node_ip, external_ip) = if datastore == Datastore::Etcd {
        check_server_url(facts, node, notes)?;
        check_listening(own.bind_address)?;
        let node_ip = node_ip_on_lan(facts, node)?;
        let addresses: Vec<IpAddr> = node_ip.iter().map(|address| address.address).collect();
        notes.push(cost(node.selection.guide(), &addresses));
        (
            decided(
                "node-ip",
                &addresses,
                &own.node_ip,
                "etcd takes its address from here, and stays on the LAN",
            ),
            external_ip(facts, node, &addresses)?,
        )
    } else {
        if datastore == Datastore::Sqlite {
            notes.push(
                "with --cluster-init this server gets etcd, and its node-ip moves to the LAN before etcd starts"
                    .to_owned(),
            );
        }
        (
            node_ip_on_vpn(facts, node)?,
            kept("node-external-ip", &own.node_external_ip),
        )
    };
    let advertise = advertise_address(facts, node, &node_ip)?;
    Ok(vec![node_ip, external_ip, advertise, tls_san(facts, node)])
}

/// Names the consequences of a node whose own address is the LAN's, and the settings that change them.
fn cost(guide: &Guide, addresses: &[IpAddr]) -> String {
    let hosts: Vec<Prefix> = addresses.iter().copied().map(Prefix::host).collect();
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!(
        "this node's InternalIP is {}, and its VPN address is its ExternalIP: programs that use InternalIP, as metrics-server and Prometheus do, reach it from its LAN alone, and services of type LoadBalancer show the VPN's address; {}; an external datastore (datastore-endpoint) puts the node itself onto the VPN",
        texts.join(","),
        (guide.reach_lan)(&hosts)
    )
}

/// Refuses to join etcd through the VPN: the members of etcd meet by the first `node-ip` of each server, and these are on the LAN.
fn check_server_url(facts: &Facts, node: &Node, notes: &mut Vec<String>) -> Result<(), Refusal> {
    let Some(url) = &node.settings.server else {
        return Ok(());
    };
    let host = host(url);
    if is_on_vpn(facts, node, host) {
        return refuse(
            "server",
            format!(
                "this server joins etcd at {host}, an address of the VPN, and etcd stays on the LAN"
            ),
            format!(
                "name the other server by its LAN address; where there is no path between the LANs, {EXTERNAL}"
            ),
        );
    }
    if host.parse::<IpAddr>().is_err() {
        notes.push(format!(
            "etcd's members meet on the LAN, so {host} has to lead to an address of the LAN"
        ));
    }
    Ok(())
}

/// Returns whether a host is reached over the VPN. A subnet of the host itself counts first.
fn is_on_vpn(facts: &Facts, node: &Node, host: &str) -> bool {
    let Ok(address) = host.parse::<IpAddr>() else {
        let domain = facts.dns_name.as_deref();
        let domain = domain.and_then(|name| name.split_once('.'));
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let is_below = |domain: &str| {
            let below = host.strip_suffix(&domain.to_ascii_lowercase());
            below.is_some_and(|name| name.ends_with('.'))
        };
        return domain.is_some_and(|(_, domain)| is_below(domain))
            || node
                .selection
                .guide()
                .domains
                .iter()
                .any(|domain| is_below(domain));
    };
    let mut lan = lan(facts, node);
    let mut ranges = facts.ranges.iter();
    let is_in_range = node.selection.guide().covers(address)
        || ranges.any(|range| range.contains(Prefix::host(address)));
    vpn_addresses(facts).contains(&address)
        || (is_in_range && !lan.any(|own| is_same_subnet(address, own.address, own.length)))
}

/// Returns the host of a URL, without brackets.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    if let Some(address) = authority.strip_prefix('[') {
        return address.split(']').next().unwrap_or_default();
    }
    authority.split(':').next().unwrap_or_default()
}

/// Refuses a server that listens on the VPN alone: the other members join it by its LAN address.
fn check_listening(bind_address: Option<IpAddr>) -> Result<(), Refusal> {
    match bind_address {
        Some(address) if !address.is_unspecified() => refuse(
            "bind-address",
            format!(
                "bind-address {address} keeps this server from listening on the LAN, where the other servers join it"
            ),
            "leave bind-address out",
        ),
        _ => Ok(()),
    }
}

/// Returns the node's addresses on the LAN: the user's own, or those of the default route, as the distro itself would choose them.
fn node_ip_on_lan<'a>(facts: &Facts, node: &'a Node) -> Result<Vec<&'a HostAddress>, Refusal> {
    let own = &node.settings.node_ip;
    if !own.is_empty() {
        return own
            .iter()
            .map(|address| explicit(facts, node, *address))
            .collect();
    }
    let families = &node.settings.cluster_families;
    if !families.is_empty() {
        return families
            .iter()
            .map(|family| chosen(facts, node, *family))
            .collect();
    }
    // etcd and a cluster without further settings have one family, IPv4 where there is one.
    let is_ipv4 = |own: &HostAddress| Family::of(own.address) == Family::Ipv4;
    let family = if lan(facts, node).any(is_ipv4) {
        Family::Ipv4
    } else {
        Family::Ipv6
    };
    Ok(vec![chosen(facts, node, family)?])
}

fn explicit<'a>(
    facts: &Facts,
    node: &'a Node,
    address: IpAddr,
) -> Result<&'a HostAddress, Refusal> {
    if vpn_addresses(facts).contains(&address) {
        return refuse(
            "node-ip",
            format!("node-ip {address} would move etcd onto the VPN"),
            format!(
                "set it to the LAN address, or leave it out; to have this node on the VPN, {EXTERNAL}"
            ),
        );
    }
    match lan(facts, node).find(|own| own.address == address) {
        Some(own) => Ok(own),
        None => refuse(
            "node-ip",
            format!("node-ip {address} is on no interface of the LAN"),
            "correct it, or leave it out",
        ),
    }
}

/// Returns the address that the distro would choose: the first of the default route's interface, or the only one there is.
fn chosen<'a>(facts: &Facts, node: &'a Node, family: Family) -> Result<&'a HostAddress, Refusal> {
    let host = &node.host;
    let default = match family {
        Family::Ipv4 => host.default_ipv4.as_deref(),
        Family::Ipv6 => host.default_ipv6.as_deref(),
    };
    let all: Vec<&HostAddress> = lan(facts, node)
        .filter(|own| Family::of(own.address) == family)
        .collect();
    let on_default = all
        .iter()
        .find(|own| default == Some(own.interface.as_str()));
    match (on_default, &all[..]) {
        (Some(own), _) | (None, [own]) => Ok(own),
        (None, []) => refuse(
            "node-ip",
            format!(
                "this host has no {} address besides the VPN's, and etcd stays on the LAN",
                family.name()
            ),
            format!("give it one, or {EXTERNAL}"),
        ),
        (None, several) => {
            let names: Vec<String> = several
                .iter()
                .map(|own| format!("{} ({})", own.address, own.interface))
                .collect();
            refuse(
                "node-ip",
                format!(
                    "this host has several {} addresses and no default route: {}",
                    family.name(),
                    names.join(", ")
                ),
                "choose etcd's address with node-ip",
            )
        }
    }
}

/// Returns the host's addresses that other hosts can reach without the VPN.
fn lan<'a>(facts: &Facts, node: &'a Node) -> impl Iterator<Item = &'a HostAddress> {
    let vpn = vpn_addresses(facts);
    let interface = facts.interface.clone();
    node.host.addresses.iter().filter(move |own| {
        let is_local = match own.address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        own.interface != interface
            && !vpn.contains(&own.address)
            && !is_local
            && !own.address.is_loopback()
            && !own.address.is_unspecified()
            && !own.address.is_multicast()
    })
}

/// Returns the external addresses, by which the kubelet's certificate gets the VPN's: one of each family that the node has.
fn external_ip(facts: &Facts, node: &Node, node_ip: &[IpAddr]) -> Result<Setting, Refusal> {
    let families = node_ip.iter().map(|address| Family::of(*address));
    let needed = families
        .map(|family| vpn_address(facts, family))
        .collect::<Result<Vec<_>, _>>()?;
    let own = &node.settings.node_external_ip;
    if own.is_empty() {
        return Ok(decided(
            "node-external-ip",
            &needed,
            own,
            "the kubelet's certificate is valid for the VPN's address",
        ));
    }
    match needed.iter().find(|address| !own.contains(address)) {
        None => Ok(kept("node-external-ip", own)),
        Some(missing) => refuse(
            "node-external-ip",
            format!(
                "node-external-ip has no {missing}, so the kubelet's certificate is not valid on the VPN"
            ),
            format!("add {missing} to it, or leave it out"),
        ),
    }
}

/// Returns the address by which other nodes and pods reach the API server. Its family is that of the first `node-ip`.
fn advertise_address(facts: &Facts, node: &Node, node_ip: &Setting) -> Result<Setting, Refusal> {
    let first = node_ip.values.first().and_then(|value| value.parse().ok());
    let family = first.map_or(Family::Ipv4, Family::of);
    let address = vpn_address(facts, family)?;
    let own = node.settings.advertise_address;
    match own {
        Some(other) if other != address => refuse(
            "advertise-address",
            format!("nodes elsewhere cannot reach the API server at advertise-address {other}"),
            format!("leave it out, or set it to {address}"),
        ),
        _ => Ok(decided(
            "advertise-address",
            &[address],
            own,
            "nodes reach the API server over the VPN",
        )),
    }
}

/// Returns the names of the server's certificate: the user's own, the VPN's addresses, and the node's name in the VPN.
fn tls_san(facts: &Facts, node: &Node) -> Setting {
    let own = &node.settings.tls_san;
    let mut values = own.clone();
    let addresses = vpn_addresses(facts).into_iter();
    let ours = addresses.map(|address| address.to_string());
    for value in ours.chain(facts.dns_name.clone()) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    let is_complete = values.len() == own.len();
    let mut setting = decided(
        "tls-san",
        &values,
        own,
        "the API server's certificate is valid on the VPN",
    );
    if node.settings.tls_san_is_in_file && !is_complete {
        setting.added = setting.values.clone();
    }
    setting
}

fn is_same_subnet(one: IpAddr, other: IpAddr, length: u8) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            let differ = one.to_bits() ^ other.to_bits();
            differ.leading_zeros() >= length.into()
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            let differ = one.to_bits() ^ other.to_bits();
            differ.leading_zeros() >= length.into()
        }
        _ => false,
    }
}
