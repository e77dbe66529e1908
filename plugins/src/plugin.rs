//! The table of plugins: the names under which the program answers, and the functions of each.

use cni::Version;
use cni::version::SUPPORTED;

use crate::interface::{
    bond, bridge, dummy, host_device, ipvlan, loopback, macvlan, ptp, single, tap, vlan,
};
use crate::ipam;
use crate::meta::{bandwidth, firewall, portmap, sbr, tuning, vrf};
use crate::protocol::{Plugin, plugin};

/// The versions whose results list interfaces.
const SINCE_0_3_0: &[Version] = SUPPORTED.split_at(2).1;

/// All plugins, by name.
pub(crate) const PLUGINS: &[Plugin] = &[
    plugin!("bandwidth", bandwidth, versions: SINCE_0_3_0),
    plugin!("bond", bond, status: bond::status, gc: single::gc),
    plugin!("bridge", bridge, status: bridge::status, gc: bridge::gc),
    ipam::DHCP,
    plugin!("dummy", dummy, status: dummy::status, gc: single::gc),
    plugin!("firewall", firewall, versions: firewall::VERSIONS),
    plugin!("host-device", host_device, status: single::status, gc: single::gc),
    ipam::HOST_LOCAL,
    plugin!("ipvlan", ipvlan, status: single::status, gc: single::gc),
    plugin!("loopback", loopback),
    plugin!("macvlan", macvlan, status: single::status, gc: single::gc),
    ipam::MULTUS_IPAM,
    plugin!("portmap", portmap, gc: portmap::gc),
    plugin!("ptp", ptp, status: ptp::status, gc: ptp::gc),
    plugin!("sbr", sbr),
    ipam::STATIC,
    plugin!("tap", tap, status: single::status, gc: single::gc),
    plugin!("tuning", tuning),
    plugin!("vlan", vlan, status: vlan::status, gc: single::gc),
    plugin!("vrf", vrf, versions: vrf::VERSIONS),
];

/// Returns the plugin of a name. That of another project is not in the table, so that no list installs it.
pub(crate) fn find(name: &str) -> Option<&'static Plugin> {
    let mut all = PLUGINS.iter().chain([&ipam::WHEREABOUTS]);
    all.find(|plugin| plugin.name == name)
}
