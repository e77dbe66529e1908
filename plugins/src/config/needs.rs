//! What the plugins of a network need of a node besides themselves. What they make there when it is absent is no need.

use std::path::{Path, PathBuf};

use cni::config::NetworkConfig;

use super::{CHECKS, bond, bridge, calls, dhcp, host_device, ipvlan, macvlan, vlan};
use crate::call::Call;
use crate::error::Result;

/// The directory in which the kernel shows PCI devices.
const PCI: &str = "/sys/bus/pci/devices";
/// A plugin without a configuration.
const LOOPBACK: &str = "loopback";

/// One thing that a plugin needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The type of the plugin.
    pub plugin: String,
    /// What it needs.
    pub what: What,
}

/// What a plugin needs of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A link of this name, which may be an alternative one. The plugin builds on it, so it has to carry Ethernet.
    Master(String),
    /// A master as above: the link of the default route.
    MasterOfDefaultRoute,
    /// A link of this name, which the plugin moves into the pod.
    Link(String),
    /// A link with this hardware address, which the plugin moves into the pod.
    LinkWithMac(Vec<u8>),
    /// A device whose directory this is.
    Directory(PathBuf),
    /// A bridge of this name, or no link of this name: then the plugin makes the bridge.
    BridgeOrNothing(String),
    /// A DHCP service at this socket; the usual ones when it is empty.
    DhcpService(String),
    /// The daemon's service of addresses.
    IpamService,
    /// The plugin is somebody else's, so its needs are not known.
    Unknown,
}

/// Returns what the plugins of a network need. One whose configuration cannot be read needs nothing: [`super::faults`] reports it.
pub fn needs(network: &NetworkConfig) -> Vec<Need> {
    let mut needs = Vec::new();
    for (position, plugin) in network.plugins.iter().enumerate() {
        for (kind, call) in calls(network, plugin) {
            let found = of_plugin(kind, &call, position > 0).unwrap_or_default();
            needs.extend(found.into_iter().map(|what| Need {
                plugin: kind.to_owned(),
                what,
            }));
        }
    }
    needs
}

fn of_plugin(kind: &str, call: &Call, is_chained: bool) -> Result<Vec<What>> {
    let master = |name: String, is_in_container: bool| match name {
        _ if is_in_container => Vec::new(),
        name if name.is_empty() => vec![What::MasterOfDefaultRoute],
        name => vec![What::Master(name)],
    };
    Ok(match kind {
        "macvlan" => {
            let config: macvlan::Config = call.config()?;
            master(config.master, config.link_in_container)
        }
        "ipvlan" => {
            let config: ipvlan::Config = call.config()?;
            // In a chain it builds on the interface of the plugin before it.
            let is_previous = is_chained && config.master.is_empty();
            master(config.master, config.link_in_container || is_previous)
        }
        "vlan" => {
            let config: vlan::Config = call.config()?;
            master(config.master, config.link_in_container)
        }
        "bond" => {
            let config: bond::Config = call.config()?;
            let links = config.links.into_iter().map(|link| What::Link(link.name));
            links.filter(|_| !config.links_in_container).collect()
        }
        "bridge" => {
            let plan = bridge::Plan::load(call)?;
            vec![What::BridgeOrNothing(plan.config.bridge)]
        }
        "host-device" => device(call.config()?)?.into_iter().collect(),
        "dhcp" => vec![What::DhcpService(dhcp::load(call)?.socket)],
        "multus-ipam" => vec![What::IpamService],
        LOOPBACK => Vec::new(),
        kind if CHECKS.iter().any(|(name, _)| *name == kind) => Vec::new(),
        _ => vec![What::Unknown],
    })
}

/// Returns the device that the configuration names; the first key that is set counts.
fn device(config: host_device::Config) -> Result<Option<What>> {
    Ok(if !config.device.is_empty() {
        Some(What::Link(config.device))
    } else if !config.hwaddr.is_empty() {
        Some(What::LinkWithMac(config.parse_hwaddr()?))
    } else if !config.kernelpath.is_empty() {
        Some(What::Directory(config.kernelpath.into()))
    } else if !config.pci_address.is_empty() {
        Some(What::Directory(Path::new(PCI).join(config.pci_address)))
    } else {
        None
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The plugins of a network, and what they need; `daemon/src/networks/verdict/tests.rs` has what follows from it.
    const TABLE: &str = r#"
{"type": "macvlan", "Master": "ens5"} => Master("ens5")
{"type": "ipvlan", "master": "ens5"} => Master("ens5")
{"type": "vlan", "master": "ens5", "vlanId": 5} => Master("ens5")
{"type": "vlan", "master": "ens5", "vlanId": 5, "linkInContainer": true} =>
{"type": "ipvlan"} => MasterOfDefaultRoute
{"type": "dummy"}, {"type": "ipvlan"} =>
{"type": "dummy"}, {"type": "macvlan"} => MasterOfDefaultRoute
{"type": "bond", "links": [{"name": "eth1"}, {"name": "eth2"}]} => Link("eth1") Link("eth2")
{"type": "bond", "links": [{"name": "eth1"}], "linksInContainer": true} =>
{"type": "host-device", "device": "eth3", "hwaddr": "x"} => Link("eth3")
{"type": "host-device", "hwaddr": "02:00:00:00:00:07"} => LinkWithMac([2, 0, 0, 0, 0, 7])
{"type": "host-device", "kernelpath": "/sys/devices/x"} => Directory("/sys/devices/x")
{"type": "host-device", "pciBusID": "0000:18:02.5"} => Directory("/sys/bus/pci/devices/0000:18:02.5")
{"type": "host-device"} =>
{"type": "bridge"} => BridgeOrNothing("cni0")
{"type": "ptp"}, {"type": "tuning"}, {"type": "portmap"}, {"type": "loopback"} =>
{"type": "tap", "ipam": {"type": "dhcp", "daemonSocketPath": "/x"}} => DhcpService("/x")
{"type": "sriov", "ipam": {"type": "multus-ipam"}}, {"type": "rdma"} => Unknown IpamService Unknown
{"type": "tap", "ipam": {"type": "whereabouts"}} =>"#;

    #[test]
    fn needs_of_plugins() {
        for line in TABLE.trim_start().lines() {
            let (plugins, expected) = line.split_once(" =>").unwrap();
            let plugins: Value = serde_json::from_str(&format!("[{plugins}]")).unwrap();
            let config = json!({"cniVersion": "1.0.0", "name": "n", "plugins": plugins});
            let network = NetworkConfig::parse(config.to_string().as_bytes()).unwrap();
            let found = needs(&network).into_iter();
            let found: Vec<_> = found.map(|need| format!("{:?}", need.what)).collect();
            assert_eq!(found.join(" "), expected.trim(), "{line}");
        }
    }
}
