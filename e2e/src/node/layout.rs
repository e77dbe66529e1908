//! The kinds of nodes: the paths that the runtime of each distro uses.

use std::fmt;

use crate::test_env;

/// The kind of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// K3s: everything in its data directory, plugins in a directory named by a hash, with links to them in a stable directory.
    K3s,
    /// K3s before October 2024: the runtime uses the directory named by a hash.
    K3sHash,
    /// K3s with another data directory; an earlier start with the usual one has unpacked the plugins there.
    K3sMoved,
    /// K3s on a system that is read-only except `/var`.
    K3sReadOnly,
    /// RKE2: K3s' socket and the usual CNI directories.
    Rke2,
    /// kubeadm: the usual paths for everything.
    Kubeadm,
}

/// The major version of a node's containerd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ContainerdVersion {
    /// 1.6 from Debian, with CNI up to 1.0.0.
    V1,
    /// 2.x from the pinned module, with CNI up to 1.1.0.
    V2,
}

impl fmt::Display for ContainerdVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::V1 => "1.6",
            Self::V2 => "2.x",
        })
    }
}

/// The paths of a node's runtime.
#[derive(Clone)]
pub(crate) struct NodePaths {
    /// containerd's content and metadata.
    pub(crate) root: String,
    /// containerd's runtime state, with the socket.
    pub(crate) state: String,
    pub(crate) socket: String,
    pub(crate) conf_dir: String,
    pub(crate) bin_dir: String,
    /// The directory of the plugins when `bin_dir` has links to them.
    pub(crate) plugins: Option<String>,
    /// containerd's configuration file.
    pub(crate) config: String,
}

/// The plugins that K3s ships, except flannel.
pub(crate) const K3S_PLUGINS: &[&str] = &[
    "bandwidth",
    "bridge",
    "firewall",
    "host-local",
    "loopback",
    "portmap",
];

impl NodePaths {
    /// Returns the directory with a file for each registry, next to containerd's configuration, as K3s and RKE2 have it.
    pub(crate) fn registries(&self) -> String {
        let dir = self.config.rsplit_once('/').map_or("", |(dir, _)| dir);
        format!("{dir}/certs.d")
    }

    /// Returns the files by which the runtime finds Multus.
    pub(crate) fn multus_files(&self) -> [String; 2] {
        [
            format!("{}/multus-shim", self.bin_dir),
            format!("{}/00-multus.conf", self.conf_dir),
        ]
    }
}

impl Layout {
    /// Returns whether such a node has a plugin.
    pub(crate) fn has(self, plugin: &str) -> bool {
        !self.is_k3s() || K3S_PLUGINS.contains(&plugin)
    }

    /// Returns whether it is a kind of K3s, whose plugins are links to one program.
    pub(crate) fn is_k3s(self) -> bool {
        !matches!(self, Self::Rke2 | Self::Kubeadm)
    }

    /// Returns whether the node is read-only except `/var`.
    pub(crate) fn is_read_only(self) -> bool {
        self == Self::K3sReadOnly
    }

    pub(crate) fn paths(self, node: &str) -> NodePaths {
        let paths =
            |root: &str, state: &str, conf_dir: &str, bin_dir: &str, config: &str| NodePaths {
                root: root.to_owned(),
                state: state.to_owned(),
                socket: format!("{state}/containerd.sock"),
                conf_dir: conf_dir.to_owned(),
                bin_dir: bin_dir.to_owned(),
                plugins: None,
                config: config.to_owned(),
            };
        match self {
            Self::K3s | Self::K3sHash | Self::K3sMoved | Self::K3sReadOnly => {
                let agent = match self {
                    Self::K3sMoved => "/srv/k3s/agent",
                    _ => "/var/lib/rancher/k3s/agent",
                };
                let hash = test_env::sha256(node.as_bytes());
                let unpacked = format!("/var/lib/rancher/k3s/data/{hash}/bin");
                let (bin_dir, plugins) = match self {
                    Self::K3sHash => (unpacked, None),
                    _ => ("/var/lib/rancher/k3s/data/cni".to_owned(), Some(unpacked)),
                };
                NodePaths {
                    plugins,
                    ..paths(
                        &format!("{agent}/containerd"),
                        "/run/k3s/containerd",
                        &format!("{agent}/etc/cni/net.d"),
                        &bin_dir,
                        &format!("{agent}/etc/containerd/config.toml"),
                    )
                }
            }
            Self::Rke2 => paths(
                "/var/lib/rancher/rke2/agent/containerd",
                "/run/k3s/containerd",
                "/etc/cni/net.d",
                "/opt/cni/bin",
                "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
            ),
            Self::Kubeadm => paths(
                "/var/lib/containerd",
                "/run/containerd",
                "/etc/cni/net.d",
                "/opt/cni/bin",
                "/var/lib/containerd/config.toml",
            ),
        }
    }
}

/// Returns containerd's configuration for these paths.
pub(crate) fn containerd(
    containerd_version: ContainerdVersion,
    paths: &NodePaths,
    pause: &str,
) -> String {
    let NodePaths {
        root,
        state,
        socket,
        conf_dir,
        bin_dir,
        ..
    } = paths;
    let registries = paths.registries();
    let head =
        format!("root = \"{root}\"\nstate = \"{state}\"\n[grpc]\n  address = \"{socket}\"\n");
    let common = "  disable_apparmor = true\n  restrict_oom_score_adj = true\n";
    match containerd_version {
        ContainerdVersion::V1 => format!(
            "version = 2\n{head}[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"{pause}\"\n{common}\
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"{bin_dir}\"\n  conf_dir = \"{conf_dir}\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\".registry]\n  config_path = \"{registries}\"\n"
        ),
        ContainerdVersion::V2 => format!(
            "version = 3\n{head}[plugins.'io.containerd.cri.v1.images'.pinned_images]\n  sandbox = \"{pause}\"\n\
             [plugins.'io.containerd.cri.v1.runtime']\n{common}\
             [plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = [\"{bin_dir}\"]\n  conf_dir = \"{conf_dir}\"\n\
             [plugins.'io.containerd.cri.v1.images'.registry]\n  config_path = \"{registries}\"\n"
        ),
    }
}

/// Returns the default network of a node in this version of CNI: a bridge with addresses of the node's range.
pub(crate) fn default_network(version: &str, number: u8) -> String {
    serde_json::json!({"cniVersion": version, "name": "cbr0", "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": format!("10.244.{number}.0/24")}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }},
        {"type": "portmap", "capabilities": {"portMappings": true}},
    ]})
    .to_string()
}
