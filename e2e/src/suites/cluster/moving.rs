//! A distro is upgraded, started with other directories and rolled back under its running pods.

use std::fs;

use anyhow::{Context as _, ensure};

use super::ClusterFixture;
use crate::{
    control_plane::objects,
    node::{
        inspect::nothing_left,
        layout::{ContainerdVersion, NodePaths},
    },
    sh,
};

/// The node that changes: the older K3s on the older containerd.
const CHANGING: usize = 3;
/// Where newer releases of K3s have links to their plugins, and the folder of the new one.
const LINKS: &str = "/var/lib/rancher/k3s/data/cni";
const UNPACKED: &str = "/var/lib/rancher/k3s/data/next";
/// What an operator might choose instead.
const OWN_BIN_DIR: &str = "/opt/cni/own";
const OWN_CONF_DIR: &str = "/etc/cni/own.d";

impl ClusterFixture<'_> {
    /// Pods of every time keep their networks and go without a trace, new ones come whole, and each place that is left is as
    /// it was.
    pub(super) fn changes(&mut self, chart: &str) -> anyhow::Result<()> {
        let original = self.cluster.members[CHANGING].runtime.paths.clone();
        let upgraded = NodePaths {
            bin_dir: LINKS.to_owned(),
            plugins: Some(format!("{UNPACKED}/bin")),
            ..original.clone()
        };
        let moved = NodePaths {
            bin_dir: OWN_BIN_DIR.to_owned(),
            conf_dir: OWN_CONF_DIR.to_owned(),
            plugins: None,
            ..original.clone()
        };
        let mut pods = vec![self.pod_on_changing("before")?];
        for (name, places) in [
            ("upgraded", upgraded),
            ("moved", moved),
            ("back", original.clone()),
        ] {
            self.change(ContainerdVersion::V2, places).context(name)?;
            self.is_ready(chart)?;
            pods.push(self.pod_on_changing(name).context(name)?);
            for pod in &pods {
                let has = self.cluster.ensure_interfaces(pod, &["eth0", "net1"]);
                has.with_context(|| format!("{name}: {pod}"))?;
            }
        }
        self.gone(&pods)?;
        // containerd 1.6 does not know sandboxes that 2.x has made: whoever goes back that far takes their pods away first.
        self.change(ContainerdVersion::V1, original)?;
        self.is_ready(chart)?;
        let last = self.pod_on_changing("older")?;
        self.gone(&[last])?;
        // They were laid out here, and nobody looks there now.
        let node = &self.cluster.members[CHANGING].node;
        for folder in [LINKS, UNPACKED, OWN_BIN_DIR, OWN_CONF_DIR] {
            fs::remove_dir_all(node.path(folder)).context(folder)?;
        }
        Ok(())
    }

    fn gone(&self, pods: &[String]) -> anyhow::Result<()> {
        self.cluster.delete(pods)?;
        nothing_left(&self.cluster.members[CHANGING].node)
    }

    fn change(&mut self, generation: ContainerdVersion, paths: NodePaths) -> anyhow::Result<()> {
        let (env, member) = (self.env, &mut self.cluster.members[CHANGING]);
        let left = member
            .runtime
            .restart_as(env, &member.node, (generation, paths))?;
        let (node, now) = (&member.node, &member.runtime.paths);
        let ours = |paths: &NodePaths| {
            [
                format!("{}/multus-shim", paths.bin_dir),
                format!("{}/00-multus.conf", paths.conf_dir),
            ]
        };
        let wanted = ours(now);
        sh::until(90, "the daemon has followed", || {
            for file in &wanted {
                ensure!(node.path(file).exists(), "there is no {file}");
            }
            for file in ours(&left) {
                let is_left = !wanted.contains(&file) && node.path(&file).exists();
                ensure!(!is_left, "there still is {file}");
            }
            Ok(())
        })
    }

    fn pod_on_changing(&self, kind: &str) -> anyhow::Result<String> {
        let node = &self.cluster.members[CHANGING].node.name;
        let name = format!("{kind}-{node}");
        let pod = objects::pod(&name, node, Some("storage"));
        self.cluster.apply(&[pod])?;
        self.cluster.ensure_interfaces(&name, &["eth0", "net1"])?;
        Ok(name)
    }
}
