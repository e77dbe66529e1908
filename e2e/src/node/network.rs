//! The wire between nodes: a bridge in a network namespace of its own, and a namespace with one leg on it per node.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::sh;

const NAME: &str = "multus-e2e-lan";
/// Most nodes that a run has.
const NODES: u8 = 9;
/// Folders of a node that must not be those of the machine: they are mounted over at these paths.
pub(crate) const FOLDERS: &[&str] = &[
    "/etc/cni",
    "/etc/rancher",
    "/opt/cni",
    "/srv",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/multus",
    "/var/lib/rancher",
    "/var/log/containers",
    "/var/log/pods",
];

/// The wire; going away, it takes every namespace of the run along.
pub(crate) struct NodeNetwork {
    /// Its network namespace.
    namespace: &'static str,
    /// Mount points that this machine did not have.
    made: Vec<PathBuf>,
}

impl NodeNetwork {
    /// Lays the wire, after removing what a killed run left.
    pub(crate) fn new() -> anyhow::Result<Self> {
        remove();
        let mut network = Self {
            namespace: NAME,
            made: Vec::new(),
        };
        for folder in FOLDERS {
            network.make(Path::new(folder))?;
        }
        ip(&["netns", "add", NAME])?;
        ip(&["-n", NAME, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", NAME, "link", "set", "br0", "up"])?;
        Ok(network)
    }

    /// A network namespace with `eth0` on the wire; returns its file.
    pub(crate) fn attach(&self, number: u8) -> anyhow::Result<PathBuf> {
        let (name, port) = (namespace(number), format!("v{number}"));
        let (name, port) = (name.as_str(), port.as_str());
        ip(&["netns", "add", name])?;
        ip(&[
            "link",
            "add",
            port,
            "netns",
            self.namespace,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            name,
        ])?;
        ip(&[
            "-n",
            self.namespace,
            "link",
            "set",
            port,
            "master",
            "br0",
            "up",
        ])?;
        let address = format!("{}/24", address(number));
        ip(&["-n", name, "address", "add", &address, "dev", "eth0"])?;
        ip(&["-n", name, "link", "set", "lo", "up"])?;
        ip(&["-n", name, "link", "set", "eth0", "up"])?;
        // A default route that leads nowhere: programs look for one, packets find nothing.
        ip(&["-n", name, "route", "add", "default", "dev", "eth0"])?;
        ip(&[
            "netns",
            "exec",
            name,
            "sysctl",
            "-qw",
            "net.ipv4.ip_forward=1",
        ])?;
        Ok(Path::new("/run/netns").join(name))
    }

    /// Makes a folder and remembers what of it is new.
    fn make(&mut self, folder: &Path) -> anyhow::Result<()> {
        let absent: Vec<_> = folder.ancestors().take_while(|dir| !dir.exists()).collect();
        self.made.extend(absent.iter().map(|dir| (*dir).to_owned()));
        Ok(fs::create_dir_all(folder)?)
    }
}

impl Drop for NodeNetwork {
    fn drop(&mut self) {
        remove();
        self.made.sort();
        for folder in self.made.iter().rev() {
            // Somebody may have begun to use it.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// A node's address on the wire.
pub(crate) fn address(number: u8) -> String {
    format!("10.77.0.{number}")
}

fn namespace(number: u8) -> String {
    format!("multus-e2e-n{number}")
}

fn remove() {
    let nodes = (1..=NODES).map(namespace);
    for name in nodes.chain([NAME.to_owned()]) {
        if Path::new("/run/netns").join(&name).exists() {
            let _ = ip(&["netns", "delete", &name]);
        }
    }
}

fn ip(words: &[&str]) -> anyhow::Result<()> {
    sh::run(Command::new("ip").args(words)).map(drop)
}
