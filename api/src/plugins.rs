//! The plugins of multus-rs: one program with many names, which the daemon installs into a directory of its own.

/// The directory of our own plugins on the node. No other program's file is ever touched for them.
pub const PLUGIN_DIR: &str = "/var/lib/multus/bin";
/// The file name of the program; every plugin is a link to it.
pub const PROGRAM: &str = "multus-cni-plugins";
/// The names of the plugins, in the order of the alphabet.
pub const NAMES: &[&str] = &[
    "bandwidth",
    "bond",
    "bridge",
    "dhcp",
    "dummy",
    "firewall",
    "host-device",
    "host-local",
    "ipvlan",
    "loopback",
    "macvlan",
    "portmap",
    "ptp",
    "sbr",
    "static",
    "tap",
    "tuning",
    "vlan",
    "vrf",
];
