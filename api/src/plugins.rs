//! The plugins of multus-rs: one program with many names, which the daemon installs into a directory of its own.

use std::path::{Path, PathBuf};

/// The directory of our own plugins on the node. No other program's file is ever touched for them.
pub const PLUGIN_DIR: &str = "/var/lib/multus/bin";
/// The directory that upstream's daemon searches, whatever the node's runtime does: other DaemonSets put their plugins there.
pub const COMMON_DIR: &str = "/opt/cni/bin";
/// The file name of the program; every plugin is a link to it.
pub const PROGRAM: &str = "multus-cni-plugins";
/// The plugin that only a daemon which serves pods gives addresses to.
pub const CLUSTER_IPAM: &str = "multus-ipam";
/// The plugin of another project, which a daemon that serves its pools installs into [`PLUGIN_DIR`]. It is in no list of ours: what is installed
/// elsewhere under this name would take the place of that project's program.
pub const WHEREABOUTS: &str = "whereabouts";
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
    CLUSTER_IPAM,
    "portmap",
    "ptp",
    "sbr",
    "static",
    "tap",
    "tuning",
    "vlan",
    "vrf",
];

/// Returns the directories that are searched for plugins, in order: the configured one, those of the runtime, our own, and the common one.
/// With `own_first` our own come first. Relative ones are left out, and so is the second of two that are equal.
pub fn search_path<'a>(
    configured: Option<&'a Path>,
    runtime: impl IntoIterator<Item = &'a Path>,
    own_first: bool,
) -> Vec<PathBuf> {
    let own = Path::new(PLUGIN_DIR);
    let first = own_first.then_some(own).into_iter().chain(configured);
    let mut path: Vec<PathBuf> = Vec::new();
    for dir in first.chain(runtime).chain([own, Path::new(COMMON_DIR)]) {
        if dir.is_absolute() && !path.iter().any(|known| known == dir) {
            path.push(dir.to_owned());
        }
    }
    path
}
