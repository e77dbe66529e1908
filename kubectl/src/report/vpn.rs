//! The VPN of nodes, from files that `multus-distro vpn status --json` wrote there.

use std::{fs, path::Path};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// The parts of one node's answer that are reported.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VpnNode {
    pub(super) provider: String,
    /// `running`, or a word for what is missing.
    pub(super) phase: String,
    /// The node's name in the VPN.
    pub(super) name: String,
    pub(super) addresses: Vec<String>,
    pub(super) interface: Option<Interface>,
    pub(super) routes: Routes,
    pub(super) peers: Vec<VpnPeer>,
    pub(super) findings: Vec<VpnFinding>,
    /// The time of the answer.
    pub(super) now: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) mtu: u32,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Routes {
    /// The subnets of this node's pods.
    pub(super) wanted: Vec<String>,
    pub(super) approved: Vec<String>,
    /// Subnets of pods that are not approved.
    pub(super) pending: Vec<String>,
    /// The routes of other nodes that the kernel does not have.
    pub(super) not_installed: Vec<String>,
}

/// Another node.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct VpnPeer {
    pub(super) name: String,
    pub(super) online: bool,
    /// Packets went to it lately.
    pub(super) active: bool,
    /// The address to which packets go directly.
    pub(super) direct: Option<String>,
    /// The relay through which they go otherwise.
    pub(super) relay: Option<String>,
    /// The subnets behind it.
    pub(super) routes: Vec<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VpnFinding {
    pub(super) is_problem: bool,
    pub(super) text: String,
}

impl VpnPeer {
    /// Returns the path of packets to it, as a text.
    pub(super) fn path(&self) -> String {
        match (&self.direct, &self.relay) {
            _ if !self.online => "offline".to_owned(),
            (Some(address), _) => format!("direct, {address}"),
            (None, Some(relay)) if self.active => format!("relayed by {relay}"),
            (None, _) => "no packets lately".to_owned(),
        }
    }
}

/// Reads a file.
pub(super) fn read(path: &Path) -> anyhow::Result<VpnNode> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let node: VpnNode = serde_json::from_slice(&bytes).with_context(|| {
        format!(
            "{} is not an answer of `multus-distro vpn status --json`",
            path.display()
        )
    })?;
    anyhow::ensure!(
        !node.phase.is_empty(),
        "{} has no phase: write it by `multus-distro vpn status --json`",
        path.display()
    );
    Ok(node)
}
