//! The address plan: from a node's role, settings, VPN and host addresses to every address that the distro is started with. A pure
//! function.
//!
//! K3s and RKE2 give etcd the first address of `node-ip`, and K3s' `flannel-iface` sets that address where it is absent; no flag sets
//! etcd's address alone. So on a server with etcd `node-ip` is always passed and never an address of the VPN, and the VPN's addresses are
//! the external ones. On every other node `node-ip` is the VPN's. A setting of the user is kept or refused, never replaced.
//!
//! A K3s server with SQLite is planned like one with an external datastore: nothing of its datastore listens, and its node is reached
//! over the VPN like any other. When `--cluster-init` turns SQLite into etcd, or etcd's files are on the disk, the same function moves
//! `node-ip` to the LAN before etcd starts for the first time; only the node's `InternalIP` changes then.

mod server;

use std::net::IpAddr;

use serde::Serialize;

use crate::{
    Facts, Family,
    provider::{Pods, Selection},
    state::{LIB_DIR, NET_CONF},
    vxlan::{MIN_IPV6_MTU, inner_mtu},
};

/// The distro that is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distro {
    /// K3s, whose flannel can announce pod subnets through the VPN.
    K3s,
    /// RKE2, which has no flags for flannel.
    Rke2,
}

/// The node's part in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A node without control plane.
    Agent,
    /// A node with control plane.
    Server(Datastore),
}

/// The place of the cluster's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Datastore {
    /// etcd inside the distro, on this node or on other servers.
    Etcd,
    /// SQLite on this node, the only server.
    Sqlite,
    /// A database that the servers reach by an address of its own.
    External,
}

/// The settings that decide about a server's datastore.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatastoreSettings {
    /// `datastore-endpoint`.
    pub endpoint: Option<String>,
    /// `cluster-init` or `cluster-reset` is set.
    pub starts_etcd: bool,
    /// `server` is set.
    pub joins: bool,
    /// etcd's files are in the data directory; the distro then starts etcd, whatever else is set.
    pub is_on_disk: bool,
}

impl Datastore {
    /// Returns the datastore of a server, as the distro chooses it.
    pub fn of(distro: Distro, settings: &DatastoreSettings) -> Self {
        let endpoint = settings.endpoint.as_deref().unwrap_or_default();
        let scheme = endpoint.split(':').next().unwrap_or_default();
        match scheme {
            _ if settings.is_on_disk => Self::Etcd,
            "" if distro == Distro::Rke2 || settings.starts_etcd || settings.joins => Self::Etcd,
            "etcd" => Self::Etcd,
            "" | "sqlite" => Self::Sqlite,
            _ => Self::External,
        }
    }
}

/// Settings of the distro that concern addresses, as its arguments, environment and files have them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub node_ip: Vec<IpAddr>,
    pub node_external_ip: Vec<IpAddr>,
    pub advertise_address: Option<IpAddr>,
    pub bind_address: Option<IpAddr>,
    pub tls_san: Vec<String>,
    /// The values of `tls-san` are in a file; the first one among the arguments replaces them.
    pub tls_san_is_in_file: bool,
    /// The families of `cluster-cidr`, in its order; empty where it is not set.
    pub cluster_families: Vec<Family>,
    pub flannel_iface: Option<String>,
    pub flannel_backend: Option<String>,
    pub flannel_conf: Option<String>,
    /// The URL of `server`.
    pub server: Option<String>,
}

/// The host's addresses, those of the VPN among them or not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// The addresses, in the kernel's order.
    pub addresses: Vec<HostAddress>,
    /// The interface of the IPv4 default route.
    pub default_ipv4: Option<String>,
    /// The interface of the IPv6 default route.
    pub default_ipv6: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAddress {
    pub interface: String,
    pub address: IpAddr,
    /// The length of its subnet's prefix.
    pub length: u8,
}

/// The input of the plan besides the VPN's facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The VPN.
    pub selection: Selection,
    pub distro: Distro,
    /// The node's part.
    pub role: Role,
    /// The settings that the user made.
    pub settings: Settings,
    /// The host's addresses.
    pub host: Host,
}

/// The plan for one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The settings that the distro gets.
    pub settings: Vec<Setting>,
    /// Consequences that an operator must know, a sentence each.
    pub notes: Vec<String>,
}

/// A setting of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The flag without dashes.
    pub name: &'static str,
    /// Its values, in the order in which the distro gets them.
    pub values: Vec<String>,
    /// The values that are passed as arguments; the distro has the others from the user.
    pub added: Vec<String>,
    /// The reason for the values.
    pub reason: &'static str,
}

impl Plan {
    /// Returns the arguments that follow the distro's own.
    pub fn args(&self) -> Vec<String> {
        let settings = self.settings.iter();
        settings
            .flat_map(|setting| {
                let name = setting.name;
                let added = setting.added.iter();
                added.map(move |value| format!("--{name}={value}"))
            })
            .collect()
    }
}

/// The reason why there is no plan, with what helps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {cure}")]
pub struct Refusal {
    /// The setting that is in the way.
    pub setting: &'static str,
    /// The reason why it is refused.
    pub reason: String,
    /// The way to cure it.
    pub cure: String,
}

fn refuse<T>(
    setting: &'static str,
    reason: impl Into<String>,
    cure: impl Into<String>,
) -> Result<T, Refusal> {
    Err(Refusal {
        setting,
        reason: reason.into(),
        cure: cure.into(),
    })
}

/// Returns the plan for a node.
pub fn plan(facts: &Facts, node: &Node) -> Result<Plan, Refusal> {
    let mut notes = Vec::new();
    let mut settings = match node.role {
        Role::Agent => {
            check_bind_address(facts, node)?;
            vec![
                node_ip_on_vpn(facts, node)?,
                // Further addresses are the user's own affair: node-ip has the VPN's.
                kept("node-external-ip", &node.settings.node_external_ip),
            ]
        }
        Role::Server(datastore) => {
            check_bind_address(facts, node)?;
            server::settings(facts, node, datastore, &mut notes)?
        }
    };
    match node.distro {
        Distro::K3s => settings.extend(flannel(facts, node, &mut notes)?),
        Distro::Rke2 => rke2(facts, node, &mut notes)?,
    }
    settings.retain(|setting| !setting.values.is_empty());
    Ok(Plan { settings, notes })
}

/// Returns the node's addresses where they are the VPN's.
fn node_ip_on_vpn(facts: &Facts, node: &Node) -> Result<Setting, Refusal> {
    let own = &node.settings.node_ip;
    if let Some(other) = own
        .iter()
        .find(|address| !vpn_addresses(facts).contains(address))
    {
        return refuse(
            "node-ip",
            format!("node-ip {other} is not an address of this node in the VPN"),
            "leave node-ip out",
        );
    }
    let values = if own.is_empty() {
        vpn_addresses_of(facts, &node.settings.cluster_families)?
    } else {
        own.clone()
    };
    Ok(decided(
        "node-ip",
        &values,
        own,
        "the other nodes reach this one over the VPN",
    ))
}

/// Returns the VPN's addresses of these families, in their order; all of them where no family is named.
fn vpn_addresses_of(facts: &Facts, families: &[Family]) -> Result<Vec<IpAddr>, Refusal> {
    if families.is_empty() {
        let all = vpn_addresses(facts);
        return if all.is_empty() {
            refuse(
                "node-ip",
                "this node has no address in the VPN",
                "see that the VPN is up",
            )
        } else {
            Ok(all)
        };
    }
    families
        .iter()
        .map(|family| vpn_address(facts, *family))
        .collect()
}

fn vpn_address(facts: &Facts, family: Family) -> Result<IpAddr, Refusal> {
    let addresses = vpn_addresses(facts);
    let found = addresses
        .into_iter()
        .find(|address| Family::of(*address) == family);
    match found {
        Some(address) => Ok(address),
        None => refuse(
            "cluster-cidr",
            format!(
                "this node has no {} address in the VPN, and the cluster uses {}",
                family.name(),
                family.name()
            ),
            format!(
                "enable {} in the VPN, or take it out of cluster-cidr and node-ip",
                family.name()
            ),
        ),
    }
}

/// Returns the node's addresses in the VPN, IPv4 first.
fn vpn_addresses(facts: &Facts) -> Vec<IpAddr> {
    let ipv4 = facts.addresses.ipv4.map(IpAddr::V4);
    ipv4.into_iter()
        .chain(facts.addresses.ipv6.map(IpAddr::V6))
        .collect()
}

/// Refuses an address to listen on that other nodes cannot reach over the VPN.
fn check_bind_address(facts: &Facts, node: &Node) -> Result<(), Refusal> {
    match node.settings.bind_address {
        Some(address) if !address.is_unspecified() && !vpn_addresses(facts).contains(&address) => {
            refuse(
                "bind-address",
                format!("bind-address {address} keeps this node from listening on the VPN"),
                "leave bind-address out",
            )
        }
        _ => Ok(()),
    }
}

/// Returns the settings by which K3s' flannel uses the VPN.
fn flannel(facts: &Facts, node: &Node, notes: &mut Vec<String>) -> Result<Vec<Setting>, Refusal> {
    let own = &node.settings;
    let is_vxlan = node.selection.pods == Pods::Vxlan;
    match own.flannel_backend.as_deref() {
        None => {}
        Some("vxlan") if is_vxlan => {}
        Some("none") => {
            notes.push(
                "flannel is switched off: the routes to the pods of other nodes are your network's own task"
                    .to_owned(),
            );
            return Ok(vec![
                kept("flannel-iface", &own.flannel_iface),
                kept("flannel-conf", &own.flannel_conf),
            ]);
        }
        Some(backend) => {
            return refuse(
                "flannel-backend",
                format!(
                    "flannel-backend {backend} would send the pods' packets around the VPN, or through two tunnels"
                ),
                "leave flannel-backend out, or set it to none",
            );
        }
    }
    if node.selection.pods == Pods::Routes {
        check_families(facts, node)?;
    }
    let conf = (!is_vxlan).then(|| format!("{LIB_DIR}/{NET_CONF}"));
    if let Some(other) = own
        .flannel_conf
        .as_ref()
        .filter(|other| Some(*other) != conf.as_ref())
    {
        return refuse(
            "flannel-conf",
            format!(
                "flannel-conf {other} replaces the configuration by which pods are reached over the VPN"
            ),
            "leave flannel-conf out, or set flannel-backend to none",
        );
    }
    let interface = &facts.interface;
    if let Some(other) = own
        .flannel_iface
        .as_ref()
        .filter(|other| *other != interface)
    {
        return refuse(
            "flannel-iface",
            format!("flannel-iface {other} is not the VPN's interface {interface}"),
            "leave flannel-iface out",
        );
    }
    if is_vxlan {
        notes.push(wrapped_twice(facts, has_vxlan_over_ipv6(facts, own)));
    }
    let mut settings = vec![decided(
        "flannel-iface",
        &[interface],
        &own.flannel_iface,
        "the pods of other nodes are behind the VPN",
    )];
    settings.extend(conf.map(|conf| {
        decided(
            "flannel-conf",
            &[conf],
            &own.flannel_conf,
            "flannel announces this node's pods through the VPN",
        )
    }));
    Ok(settings)
}

/// Refuses a cluster without IPv4: flannel names other nodes to its hooks by their IPv4 address and subnet alone.
fn check_families(facts: &Facts, node: &Node) -> Result<(), Refusal> {
    let families = &node.settings.cluster_families;
    if (families.is_empty() || families.contains(&Family::Ipv4)) && facts.addresses.ipv4.is_some() {
        return Ok(());
    }
    refuse(
        "cluster-cidr",
        "flannel tells its hooks no node without IPv4, so peers cannot get the subnets of a cluster with IPv6 alone",
        "add an IPv4 network to cluster-cidr and an IPv4 address to the tunnel, or add pods=vxlan to the VPN's settings",
    )
}

/// Returns the consequences of flannel's own back end in the tunnel.
fn wrapped_twice(facts: &Facts, is_over_ipv6: bool) -> String {
    let inner = inner_mtu(facts.mtu, is_over_ipv6);
    let mut text = format!(
        "flannel wraps packets to pods in VXLAN, inside the tunnel: they have an MTU of {inner}, and the packet filters of all nodes have to accept UDP port 8472 on {}",
        facts.interface
    );
    if inner < MIN_IPV6_MTU {
        text.push_str("; that is too small for pods with IPv6");
    }
    text
}

/// Refuses the flags that RKE2 does not know, and notes what its networks need.
fn rke2(facts: &Facts, node: &Node, notes: &mut Vec<String>) -> Result<(), Refusal> {
    let settings = &node.settings;
    for (name, value) in [
        ("flannel-iface", &settings.flannel_iface),
        ("flannel-backend", &settings.flannel_backend),
        ("flannel-conf", &settings.flannel_conf),
    ] {
        if value.is_some() {
            return refuse(
                name,
                format!("rke2 has no setting {name}"),
                "leave it out, and configure the network with a HelmChartConfig",
            );
        }
    }
    let inner = inner_mtu(facts.mtu, has_vxlan_over_ipv6(facts, settings));
    notes.push(format!(
        "rke2 has no settings for flannel, so no pod routes are announced: have its network use {} in a HelmChartConfig (rke2-canal: flannel.iface), with an MTU of {inner} where it encapsulates in VXLAN",
        facts.interface
    ));
    if inner < MIN_IPV6_MTU {
        notes.push(format!(
            "an MTU of {inner} is too small for IPv6, which needs {MIN_IPV6_MTU}: use IPv4 for pods, or a network that does not encapsulate"
        ));
    }
    Ok(())
}

/// Returns whether VXLAN has packets of IPv6 around it, which take the most room. rke2 has pods with IPv4 alone unless its networks say
/// more.
fn has_vxlan_over_ipv6(facts: &Facts, settings: &Settings) -> bool {
    let has_ipv6 = settings.cluster_families.contains(&Family::Ipv6);
    has_ipv6 || facts.addresses.ipv4.is_none()
}

/// Returns a setting with these values, of which those that the user did not set are passed as arguments.
fn decided<T: ToString + PartialEq>(
    name: &'static str,
    values: &[impl ToString],
    own: impl IntoIterator<Item = T>,
    reason: &'static str,
) -> Setting {
    let own: Vec<String> = own.into_iter().map(|value| value.to_string()).collect();
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    let missing = values.iter().filter(|value| !own.contains(value));
    Setting {
        name,
        added: missing.cloned().collect(),
        values,
        reason,
    }
}

/// Returns a setting of the user's as it is.
fn kept<T: ToString>(name: &'static str, own: impl IntoIterator<Item = T>) -> Setting {
    Setting {
        name,
        values: own.into_iter().map(|value| value.to_string()).collect(),
        added: Vec::new(),
        reason: "as you set it",
    }
}

#[cfg(test)]
mod tests;
