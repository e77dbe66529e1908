//! The network between nodes: a bridge in a network namespace of its own, and a namespace with one interface on it per node.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::init::DIRECTORIES;
use crate::sh;

const NAME: &str = "multus-e2e-lan";
/// How the names of all nodes' namespaces begin.
const NODE_PREFIX: &str = "multus-e2e-n";
/// Where the names of network namespaces are files.
const NAMESPACES: &str = "/run/netns";

/// The bridge. When it is dropped, every network namespace of the run is deleted.
pub(crate) struct NodeNetwork {
    namespace: &'static str,
    /// Mount points that the machine did not have before.
    created: Vec<PathBuf>,
}

impl NodeNetwork {
    /// Creates the bridge, after deleting what a killed run left, and the mount points of the nodes' own directories.
    pub(crate) fn new() -> anyhow::Result<Self> {
        delete_all();
        let mut network = Self {
            namespace: NAME,
            created: Vec::new(),
        };
        for directory in DIRECTORIES {
            network.create_directory(Path::new(directory))?;
        }
        ip(&format!("netns add {NAME}"))?;
        ip(&format!("-n {NAME} link add br0 type bridge"))?;
        ip(&format!("-n {NAME} link set br0 up"))?;
        Ok(network)
    }

    /// Creates a network namespace with `eth0` on the bridge; returns the namespace's file.
    pub(crate) fn attach(&self, number: u8) -> anyhow::Result<PathBuf> {
        let (name, address) = (namespace(number), address(number));
        let (port, bridge) = (format!("v{number}"), self.namespace);
        ip(&format!("netns add {name}"))?;
        ip(&format!(
            "link add {port} netns {bridge} type veth peer name eth0 netns {name}"
        ))?;
        ip(&format!("-n {bridge} link set {port} master br0 up"))?;
        ip(&format!("-n {name} address add {address}/24 dev eth0"))?;
        ip(&format!("-n {name} link set lo up"))?;
        ip(&format!("-n {name} link set eth0 up"))?;
        // A default route without a gateway: some programs require a default route, and no packet may leave the machine.
        ip(&format!("-n {name} route add default dev eth0"))?;
        ip(&format!(
            "netns exec {name} sysctl -qw net.ipv4.ip_forward=1"
        ))?;
        Ok(Path::new(NAMESPACES).join(name))
    }

    /// Deletes a node's network namespace, and its port on the bridge at once, whatever still runs there.
    pub(crate) fn detach(&self, number: u8) -> anyhow::Result<()> {
        ip(&format!("-n {} link delete v{number}", self.namespace))?;
        ip(&format!("netns delete {}", namespace(number)))
    }

    /// Creates a directory and records which of its ancestors are new.
    fn create_directory(&mut self, directory: &Path) -> anyhow::Result<()> {
        let absent: Vec<_> = directory
            .ancestors()
            .take_while(|dir| !dir.exists())
            .collect();
        self.created
            .extend(absent.iter().map(|dir| (*dir).to_owned()));
        Ok(fs::create_dir_all(directory)?)
    }
}

impl Drop for NodeNetwork {
    fn drop(&mut self) {
        delete_all();
        self.created.sort();
        for directory in self.created.iter().rev() {
            // Another program may have put files there meanwhile.
            let _ = fs::remove_dir(directory);
        }
    }
}

/// The address of a node's `eth0`.
pub(crate) fn address(number: u8) -> String {
    format!("10.77.0.{number}")
}

fn namespace(number: u8) -> String {
    format!("{NODE_PREFIX}{number}")
}

fn delete_all() {
    let entries = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    for name in names.filter(|name| name == NAME || name.starts_with(NODE_PREFIX)) {
        let _ = ip(&format!("netns delete {name}"));
    }
}

fn ip(line: &str) -> anyhow::Result<()> {
    sh::run(Command::new("ip").args(line.split(' '))).map(drop)
}
