//! What unlike nodes look like: where the runtime of each kind keeps its things.

use crate::workplace;

/// The kind of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// K3s: everything under its data directory, plugins in a folder named by a hash, behind links.
    K3s,
    /// RKE2: K3s' socket, the usual CNI directories.
    Rke2,
    /// kubeadm: everything at the usual places.
    Kubeadm,
}

/// containerd of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Generation {
    /// 1.6, from Debian: CNI up to 1.0.0.
    One,
    /// 2.x, built here: CNI up to 1.1.0.
    Two,
}

/// Places on a node.
pub(crate) struct Places {
    /// Content and metadata.
    pub(crate) root: String,
    /// Runtime state; the socket lies in it.
    pub(crate) state: String,
    pub(crate) socket: String,
    /// Network configurations.
    pub(crate) conf_dir: String,
    /// CNI plugins.
    pub(crate) bin_dir: String,
    /// Where the plugins are, if the directory above holds links.
    pub(crate) plugins: Option<String>,
    /// containerd's configuration.
    pub(crate) config: String,
}

/// Plugins that K3s ships, flannel apart.
const K3S_PLUGINS: &[&str] = &[
    "bandwidth",
    "bridge",
    "firewall",
    "host-local",
    "loopback",
    "portmap",
];

impl Layout {
    /// Whether a plugin is on such a node.
    pub(crate) fn has(self, plugin: &str) -> bool {
        self != Self::K3s || K3S_PLUGINS.contains(&plugin)
    }

    /// Where things are on a node of that name.
    pub(crate) fn places(self, node: &str) -> Places {
        let places =
            |root: &str, state: &str, conf_dir: &str, bin_dir: &str, config: &str| Places {
                root: root.to_owned(),
                state: state.to_owned(),
                socket: format!("{state}/containerd.sock"),
                conf_dir: conf_dir.to_owned(),
                bin_dir: bin_dir.to_owned(),
                plugins: None,
                config: config.to_owned(),
            };
        match self {
            Self::K3s => {
                let agent = "/var/lib/rancher/k3s/agent";
                let hash = workplace::sha256(node.as_bytes());
                Places {
                    plugins: Some(format!("/var/lib/rancher/k3s/data/{hash}/bin")),
                    ..places(
                        &format!("{agent}/containerd"),
                        "/run/k3s/containerd",
                        &format!("{agent}/etc/cni/net.d"),
                        "/var/lib/rancher/k3s/data/cni",
                        &format!("{agent}/etc/containerd/config.toml"),
                    )
                }
            }
            Self::Rke2 => places(
                "/var/lib/rancher/rke2/agent/containerd",
                "/run/k3s/containerd",
                "/etc/cni/net.d",
                "/opt/cni/bin",
                "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
            ),
            Self::Kubeadm => places(
                "/var/lib/containerd",
                "/run/containerd",
                "/etc/cni/net.d",
                "/opt/cni/bin",
                "/var/lib/containerd/config.toml",
            ),
        }
    }
}

/// containerd's configuration for these places.
pub(crate) fn containerd(generation: Generation, places: &Places, pause: &str) -> String {
    let Places {
        root,
        state,
        socket,
        conf_dir,
        bin_dir,
        ..
    } = places;
    let head =
        format!("root = \"{root}\"\nstate = \"{state}\"\n[grpc]\n  address = \"{socket}\"\n");
    let common = "  disable_apparmor = true\n  restrict_oom_score_adj = true\n";
    match generation {
        Generation::One => format!(
            "version = 2\n{head}[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"{pause}\"\n{common}\
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"{bin_dir}\"\n  conf_dir = \"{conf_dir}\"\n"
        ),
        Generation::Two => format!(
            "version = 3\n{head}[plugins.'io.containerd.cri.v1.images'.pinned_images]\n  sandbox = \"{pause}\"\n\
             [plugins.'io.containerd.cri.v1.runtime']\n{common}\
             [plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = [\"{bin_dir}\"]\n  conf_dir = \"{conf_dir}\"\n"
        ),
    }
}

/// The node's own network, in that version of CNI: a bridge with addresses of the node's range.
pub(crate) fn primary(version: &str, number: u8) -> String {
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
