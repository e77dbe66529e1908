//! A distro is upgraded, restarted with other directories and rolled back under running pods.

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

/// The node whose distro changes: the older K3s with the older containerd.
const CHANGING: usize = 3;
/// The directory of newer K3s releases with links to their plugins, and the plugin directory of the next release.
const LINKS: &str = "/var/lib/rancher/k3s/data/cni";
const UNPACKED: &str = "/var/lib/rancher/k3s/data/next";
/// Directories that an operator may configure instead.
const OWN_BIN_DIR: &str = "/opt/cni/own";
const OWN_CONF_DIR: &str = "/etc/cni/own.d";

impl ClusterFixture<'_> {
    /// Pods keep their networks through every change and can be deleted, new pods get all networks, and no file of ours stays in a
    /// directory that the runtime no longer uses.
    pub(super) fn distro_changes(&mut self, chart: &str) -> anyhow::Result<()> {
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
        for (name, paths) in [
            ("upgraded", upgraded),
            ("moved", moved),
            ("back", original.clone()),
        ] {
            self.change(ContainerdVersion::V2, paths).context(name)?;
            self.wait_until_ready(chart)?;
            pods.push(self.pod_on_changing(name).context(name)?);
            for pod in &pods {
                let has = self.cluster.ensure_interfaces(pod, &["eth0", "net1"]);
                has.with_context(|| format!("{name}: {pod}"))?;
            }
        }
        self.delete_pods(&pods)?;
        // containerd 1.6 does not know the sandboxes of 2.x, so an operator deletes the pods before this rollback.
        self.change(ContainerdVersion::V1, original)?;
        self.wait_until_ready(chart)?;
        let last = self.pod_on_changing("older")?;
        self.delete_pods(&[last])?;
        // The test created these directories, and no runtime uses them now.
        let node = &self.cluster.members[CHANGING].node;
        for directory in [LINKS, UNPACKED, OWN_BIN_DIR, OWN_CONF_DIR] {
            fs::remove_dir_all(node.path(directory)).context(directory)?;
        }
        Ok(())
    }

    fn delete_pods(&self, pods: &[String]) -> anyhow::Result<()> {
        self.cluster.delete(pods)?;
        nothing_left(&self.cluster.members[CHANGING].node)
    }

    fn change(
        &mut self,
        containerd_version: ContainerdVersion,
        paths: NodePaths,
    ) -> anyhow::Result<()> {
        let (env, member) = (self.env, &mut self.cluster.members[CHANGING]);
        let left = member
            .runtime
            .restart_as(env, &member.node, (containerd_version, paths))?;
        let (node, now) = (&member.node, &member.runtime.paths);
        let wanted = now.multus_files();
        sh::until(90, "the daemon has moved its files", || {
            for file in &wanted {
                ensure!(node.path(file).exists(), "there is no {file}");
            }
            for file in left.multus_files() {
                let is_left = !wanted.contains(&file) && node.path(&file).exists();
                ensure!(!is_left, "{file} is still there");
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
