//! Decides whether a node can serve a definition: a function over its attachment and the facts of the node.
//!
//! A kernel without the driver of a link's kind, and an address or a VLAN that is taken, show only when a pod needs them.

use std::{collections::BTreeSet, path::Path};

use api::{network_report::Verdict, plugins::CLUSTER_IPAM};
use cni::config::NetworkConfig;
use dhcp::wire::sockets;
use ipam::wire::SOCKET as IPAM_SOCKET;
use netlink::link::{Link, mac_text};
use plan::{Attachment, PlanError};
use plugins::config::{Need, What, faults, needs};

use crate::host::links::NodeLinks;

/// The facts of a node. An error is a sentence that says why they are not known.
pub(super) trait NodeFacts {
    /// Fails with what is missing unless the plugin is in one of the directories that are searched.
    fn find_plugin(&self, plugin: &str) -> Result<(), String>;
    /// Returns the links of the node.
    fn links(&self) -> Result<&NodeLinks, String>;
    /// Returns whether a path of the node exists.
    fn exists(&self, path: &Path) -> bool;
    /// Returns the resources of which the node has devices.
    fn resources(&self) -> Result<&BTreeSet<String>, String>;
    /// Returns what the plugins of a network say of themselves.
    fn status(&self, config: &NetworkConfig) -> Status;
}

/// The answer of a network's plugins to STATUS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Status {
    /// They would serve an ADD.
    Ready,
    /// They would serve none, for this reason.
    NotReady(String),
    /// They did not answer, for this reason.
    NoAnswer(String),
    /// The version of their configuration has no STATUS.
    NotServed,
}

/// Returns whether the node of these facts can serve the network that a definition became.
pub(super) fn verdict(network: &Result<Attachment, PlanError>, facts: &dyn NodeFacts) -> Verdict {
    let network = match network {
        Ok(network) => network,
        Err(error) => return Verdict::Cannot(error.to_string()),
    };
    match examine(network, facts) {
        Err(missing) => Verdict::Cannot(missing),
        Ok(Some(unknown)) => Verdict::Unknown(unknown),
        Ok(None) => Verdict::Serves,
    }
}

/// Fails with the first thing that is missing. Otherwise returns the first one that could not be found out.
fn examine(network: &Attachment, facts: &dyn NodeFacts) -> Result<Option<String>, String> {
    let (config, resource) = (&network.config, network.device.as_ref());
    let mut faults = faults(config, resource.is_some()).into_iter();
    if let Some(fault) = faults.find(|fault| fault.is_refused) {
        return Err(fault.to_string());
    }
    plan::plugin_types(config).try_for_each(|plugin| facts.find_plugin(plugin))?;
    let mut unknown = Vec::new();
    let mut foreign = None;
    for Need { plugin, what } in needs(config) {
        match what {
            What::Unknown => drop(foreign.get_or_insert(plugin)),
            what => unknown.extend(missing(&plugin, &what, facts)?),
        }
    }
    if let Some(device) = resource {
        let resource = &device.resource;
        match facts.resources() {
            Ok(all) if all.contains(resource) => {}
            // A claim's name, as definitions of upstream's 4.3.0 have it.
            Ok(_) if !resource.contains('/') => {
                unknown.push(format!(
                    "devices of {resource}, which is no resource, are not known"
                ));
            }
            Ok(_) => {
                return Err(format!(
                    "the node has no device of {resource}: no device plugin or driver has registered one"
                ));
            }
            Err(reason) => unknown.push(reason),
        }
    }
    match (facts.status(config), foreign) {
        (Status::NotReady(reason), _) => return Err(reason),
        (Status::NoAnswer(reason), _) => unknown.push(reason),
        // The device is all that plugins for devices need.
        (Status::NotServed, Some(plugin)) if resource.is_none() => unknown.push(format!(
            "plugin {plugin} is there, but what else it needs is not known"
        )),
        (Status::Ready | Status::NotServed, _) => {}
    }
    Ok(unknown.into_iter().next())
}

/// Returns what a network lacks of these links, one text for each need.
pub(super) fn link_faults(config: &NetworkConfig, links: &NodeLinks) -> Vec<String> {
    let faults = needs(config)
        .into_iter()
        .map(|need| missing_link(&need.plugin, &need.what, links).err());
    faults.map(Option::unwrap_or_default).collect()
}

/// Fails with a sentence if the node does not have what a plugin needs. Otherwise returns why that is not known, if it is not.
fn missing(plugin: &str, what: &What, facts: &dyn NodeFacts) -> Result<Option<String>, String> {
    let there = |paths: &[&str], otherwise: String| {
        let mut all = paths.iter();
        let is_there = all.any(|path| facts.exists(Path::new(path)));
        is_there.then_some(None).ok_or(otherwise)
    };
    match what {
        What::Directory(path) => {
            let path = path.to_string_lossy();
            let otherwise = format!("the node has no device {path}, which {plugin} needs");
            there(&[&*path], otherwise)
        }
        What::DhcpService(socket) => {
            let sockets = sockets(socket);
            let otherwise = format!(
                "no DHCP service listens at {}: set manifests.dhcpDaemonSet in Multus' chart",
                sockets.join(" or ")
            );
            there(&sockets, otherwise)
        }
        What::IpamService => {
            let otherwise = format!(
                "the daemon gives no addresses of {CLUSTER_IPAM}: set ipam.enabled in Multus' chart"
            );
            there(&[IPAM_SOCKET], otherwise)
        }
        link => match facts.links() {
            Ok(links) => missing_link(plugin, link, links).map(|()| None),
            Err(reason) => Ok(Some(reason)),
        },
    }
}

/// Fails with a sentence if the node does not have the link that a plugin needs.
fn missing_link(plugin: &str, what: &What, links: &NodeLinks) -> Result<(), String> {
    let find = |is_it: &dyn Fn(&Link) -> bool| links.all.iter().find(|link| is_it(link));
    let on_ethernet = |link: &Link| {
        let name = &link.name;
        let other = || format!("link {name}, the master of {plugin}, is no Ethernet interface");
        link.is_ethernet().then_some(()).ok_or_else(other)
    };
    let moved = |found: Option<&Link>, name: &str| {
        found.map(drop).ok_or_else(|| {
            format!("the node has no {name}, which {plugin} moves into a pod: it is missing, or a pod has it")
        })
    };
    match what {
        What::Master(name) => {
            let link = find(&|link| link.is_named(name));
            let none = || format!("the node has no link {name}, the master of {plugin}");
            on_ethernet(link.ok_or_else(none)?)
        }
        What::MasterOfDefaultRoute => {
            let link = find(&|link| links.of_default_route == Some(link.index));
            let none = || {
                format!(
                    "the node has no default route, whose link would be the master of {plugin}: name one in \"master\""
                )
            };
            on_ethernet(link.ok_or_else(none)?)
        }
        What::Link(name) => moved(find(&|link| link.is_named(name)), &format!("link {name}")),
        What::LinkWithMac(mac) => {
            let name = format!("link with address {}", mac_text(mac));
            moved(find(&|link| link.mac == *mac), &name)
        }
        What::BridgeOrNothing(name) => match find(&|link| link.is_named(name)) {
            Some(link) if link.kind != "bridge" => Err(format!(
                "link {name} of the node is no bridge, so {plugin} can neither use nor make one of that name"
            )),
            _ => Ok(()),
        },
        What::Directory(_) | What::DhcpService(_) | What::IpamService | What::Unknown => Ok(()),
    }
}

#[cfg(test)]
mod tests;
