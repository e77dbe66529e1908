//! The table of plugins: the names under which the program answers, and the functions of each.

use cni::Version;
use cni::version::SUPPORTED;

use crate::ipam;
use crate::protocol::Plugin;

/// The versions whose results list interfaces.
const SINCE_0_3_0: &[Version] = SUPPORTED.split_at(2).1;

/// All plugins, by name.
pub(crate) const PLUGINS: &[Plugin] = &[
    Plugin {
        versions: SINCE_0_3_0,
        add: crate::meta::bandwidth::add,
        del: crate::meta::bandwidth::del,
        check: crate::meta::bandwidth::check,
        ..Plugin::named("bandwidth")
    },
    Plugin {
        add: crate::interface::bond::add,
        del: crate::interface::bond::del,
        check: crate::interface::bond::check,
        status: crate::interface::bond::status,
        gc: crate::interface::single::gc,
        ..Plugin::named("bond")
    },
    Plugin {
        add: crate::interface::bridge::add,
        del: crate::interface::bridge::del,
        check: crate::interface::bridge::check,
        status: crate::interface::bridge::status,
        gc: crate::interface::bridge::gc,
        ..Plugin::named("bridge")
    },
    ipam::DHCP,
    Plugin {
        add: crate::interface::dummy::add,
        del: crate::interface::dummy::del,
        check: crate::interface::dummy::check,
        status: crate::interface::dummy::status,
        gc: crate::interface::single::gc,
        ..Plugin::named("dummy")
    },
    Plugin {
        versions: crate::meta::firewall::VERSIONS,
        add: crate::meta::firewall::add,
        del: crate::meta::firewall::del,
        check: crate::meta::firewall::check,
        ..Plugin::named("firewall")
    },
    Plugin {
        add: crate::interface::host_device::add,
        del: crate::interface::host_device::del,
        check: crate::interface::host_device::check,
        status: crate::interface::single::status,
        gc: crate::interface::single::gc,
        ..Plugin::named("host-device")
    },
    ipam::HOST_LOCAL,
    Plugin {
        add: crate::interface::ipvlan::add,
        del: crate::interface::ipvlan::del,
        check: crate::interface::ipvlan::check,
        status: crate::interface::single::status,
        gc: crate::interface::single::gc,
        ..Plugin::named("ipvlan")
    },
    Plugin {
        add: crate::interface::loopback::add,
        del: crate::interface::loopback::del,
        check: crate::interface::loopback::check,
        ..Plugin::named("loopback")
    },
    Plugin {
        add: crate::interface::macvlan::add,
        del: crate::interface::macvlan::del,
        check: crate::interface::macvlan::check,
        status: crate::interface::single::status,
        gc: crate::interface::single::gc,
        ..Plugin::named("macvlan")
    },
    ipam::MULTUS_IPAM,
    Plugin {
        add: crate::meta::portmap::add,
        del: crate::meta::portmap::del,
        check: crate::meta::portmap::check,
        gc: crate::meta::portmap::gc,
        ..Plugin::named("portmap")
    },
    Plugin {
        add: crate::interface::ptp::add,
        del: crate::interface::ptp::del,
        check: crate::interface::ptp::check,
        status: crate::interface::ptp::status,
        gc: crate::interface::ptp::gc,
        ..Plugin::named("ptp")
    },
    Plugin {
        add: crate::meta::sbr::add,
        del: crate::meta::sbr::del,
        check: crate::meta::sbr::check,
        ..Plugin::named("sbr")
    },
    ipam::STATIC,
    Plugin {
        add: crate::interface::tap::add,
        del: crate::interface::tap::del,
        check: crate::interface::tap::check,
        status: crate::interface::single::status,
        gc: crate::interface::single::gc,
        ..Plugin::named("tap")
    },
    Plugin {
        add: crate::meta::tuning::add,
        del: crate::meta::tuning::del,
        check: crate::meta::tuning::check,
        ..Plugin::named("tuning")
    },
    Plugin {
        add: crate::interface::vlan::add,
        del: crate::interface::vlan::del,
        check: crate::interface::vlan::check,
        status: crate::interface::vlan::status,
        gc: crate::interface::single::gc,
        ..Plugin::named("vlan")
    },
    Plugin {
        versions: crate::meta::vrf::VERSIONS,
        add: crate::meta::vrf::add,
        del: crate::meta::vrf::del,
        check: crate::meta::vrf::check,
        ..Plugin::named("vrf")
    },
];

/// Returns the plugin of a name. That of another project is not in the table, so that no list installs it.
pub(crate) fn find(name: &str) -> Option<&'static Plugin> {
    let mut all = PLUGINS.iter().chain([&ipam::WHEREABOUTS]);
    all.find(|plugin| plugin.name == name)
}
