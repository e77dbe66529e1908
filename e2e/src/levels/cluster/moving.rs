//! A node's CNI directories move under its running pods, as with an upgrade of the distro or another data directory.

use anyhow::ensure;

use super::Scene;
use crate::{inspect::nothing_left, objects, sh};

/// The node that moves; not the one with the control plane.
const MOVING: usize = 1;
const BIN_DIR: &str = "/var/lib/rancher/rke2/data/next/bin";
const CONF_DIR: &str = "/var/lib/rancher/rke2/agent/etc/cni/net.d";

impl Scene<'_> {
    /// Pods from before keep their networks and go without a trace, new ones come whole, and the old place is as it was.
    pub(super) fn moves(&mut self, chart: &str) -> anyhow::Result<()> {
        let node = self.cluster.members[MOVING].node.name.clone();
        let [before, after] = ["before", "after"].map(|kind| format!("{kind}-{node}"));
        let make = |scene: &Self, name: &str| {
            let pod = objects::pod(name, &node, Some("storage"));
            scene.cluster.apply(&[pod])?;
            scene.cluster.has(name, &["eth0", "net1"])
        };
        make(self, &before)?;
        let (work, member) = (self.work, &mut self.cluster.members[MOVING]);
        let old = member
            .runtime
            .move_to(work, &member.node, BIN_DIR, CONF_DIR)?;
        let member = &self.cluster.members[MOVING];
        sh::until(90, "the daemon has moved", || {
            for (folder, name, is_there) in [
                (BIN_DIR, "multus-shim", true),
                (CONF_DIR, "00-multus.conf", true),
                (&old.bin_dir, "multus-shim", false),
                (&old.conf_dir, "00-multus.conf", false),
            ] {
                let file = format!("{folder}/{name}");
                let found = member.node.path(&file).exists();
                ensure!(found == is_there, "{file} is there: {found}");
            }
            Ok(())
        })?;
        self.is_ready(chart)?;
        make(self, &after)?;
        self.cluster.has(&before, &["eth0", "net1"])?;
        self.cluster.delete(&[before, after])?;
        nothing_left(&self.cluster.members[MOVING].node)
    }
}
