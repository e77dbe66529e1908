//! The chart installs plugins and no multiplexer: a runtime calls them, and the release is upgraded to a multiplexer and back under pods.

use std::fs;

use anyhow::ensure;
use serde_json::json;

use super::ClusterFixture;
use crate::{
    control_plane::objects,
    node::{file_hashes::FileHashes, inspect::nothing_left},
    report::{Checked, Report},
    sh,
};

const CHART: &str = "k3s-multus";
const ON: &str = "--set=cniplugins.standalone=true";
const OFF: &str = "--set=cniplugins.standalone=false";
/// All nodes at once.
const AT_ONCE: &str = "--set=updateStrategy.rollingUpdate.maxSurge=100%";
/// The node whose default network changes: K3s has no ptp.
const CHANGING: usize = 0;

impl ClusterFixture<'_> {
    pub(super) fn standalone(&self, before: &[FileHashes], report: &mut Report) -> Checked {
        report.check(
            "cniplugins.standalone: each node gets the plugins that it lacks, and nothing else",
            || {
                self.install(CHART, &self.env.chart(CHART)?, &[ON, AT_ONCE])?;
                self.wait_until_each_is_ready(CHART)?;
                self.ensure_not_pulled()?;
                self.ensure_standalone()
            },
        )?;
        report.check("the runtime itself calls an installed plugin", || {
            self.default_network_of_ptp()
        })?;
        report.check(
            "helm upgrade to the multiplexer removes them, and pods get all networks",
            || {
                self.install("k3s-multus-crd", &self.env.chart("k3s-multus-crd")?, &[])?;
                self.switch(OFF)?;
                self.wait_until_ready(CHART)?;
                self.each(|member| {
                    let names = member.node.list(&member.runtime.paths.bin_dir)?;
                    let has_macvlan = names.iter().any(|name| name == "macvlan");
                    let is_k3s = member.runtime.layout.is_k3s();
                    ensure!(has_macvlan != is_k3s, "{names:?}");
                    Ok(())
                })?;
                self.pods_on_every_node(&["eth0", "net1"])
            },
        )?;
        report.check(
            "helm upgrade back to the plugins removes the multiplexer, and new pods start",
            || {
                self.switch(ON)?;
                self.ensure_removed_multiplexer()?;
                self.ensure_standalone()?;
                self.default_network_alone()
            },
        )?;
        report.check("helm uninstall leaves the files as they were again", || {
            self.helm_uninstall("k3s-multus-crd")?;
            self.uninstall(CHART, before)
        })
    }

    fn switch(&self, switch: &str) -> anyhow::Result<()> {
        self.upgrade(CHART, &[switch, AT_ONCE])?;
        self.wait_until_rolled_out(&format!("daemonset/{CHART}"))
    }

    /// Fails unless every node has all plugins of the release, under whichever names were free, and no file of a multiplexer.
    fn ensure_standalone(&self) -> anyhow::Result<()> {
        self.each(|member| {
            let names = sh::until(30, "the plugins are installed", || {
                let names = self.release_plugins(member)?;
                for name in ["bridge", "dhcp", "macvlan", "ptp", "vlan"] {
                    ensure!(names.contains(name), "no {name} in {names:?}");
                }
                Ok(names)
            })?;
            ensure!(!names.contains("multus-shim"), "{names:?}");
            let left = member.node.list(&member.runtime.paths.conf_dir)?;
            ensure!(left == ["10-primary.conflist"], "{left:?}");
            Ok(())
        })
    }

    fn ensure_removed_multiplexer(&self) -> anyhow::Result<()> {
        self.ensure_removed()?;
        self.each(|member| {
            let own = "/var/lib/multus/bin/passthru";
            sh::until(30, "our directory is empty", || {
                ensure!(!member.node.path(own).exists(), "{own} is still there");
                Ok(())
            })
        })
    }

    /// Makes ptp the default network of a node that has it only from us, and starts a pod there.
    fn default_network_of_ptp(&self) -> anyhow::Result<()> {
        let member = &self.cluster.members[CHANGING];
        let file = format!("{}/05-ptp.conflist", member.runtime.paths.conf_dir);
        let network = json!({"cniVersion": "1.0.0", "name": "ptp", "plugins": [
            {"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.66.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
        ]});
        member.node.write(&file, network.to_string())?;
        let node = &member.node.name;
        let pods = ["ptp-1", "ptp-2", "ptp-3", "ptp-4"];
        // The runtime reads its directory a moment after the change, so an earlier pod may have the former network.
        let mut created = Vec::new();
        let mut found = false;
        for pod in pods {
            self.cluster.apply(&[objects::pod(pod, node, None)])?;
            created.push(pod.to_owned());
            let inside = self.cluster.interfaces(pod)?;
            if inside["eth0"].iter().any(|one| one.starts_with("10.66.0.")) {
                found = true;
                break;
            }
        }
        ensure!(found, "no pod has a network of ptp");
        self.cluster.delete(&created)?;
        nothing_left(&member.node)?;
        Ok(fs::remove_file(member.node.path(&file))?)
    }

    /// Starts and deletes a pod with a second network on every node.
    fn pods_on_every_node(&self, interfaces: &[&str]) -> anyhow::Result<()> {
        let names = self.names("purpose");
        let mut pods = vec![objects::storage()];
        for (name, member) in names.iter().zip(&self.cluster.members) {
            pods.push(objects::pod(name, &member.node.name, Some("storage")));
        }
        sh::until(30, "definitions can be made", || self.cluster.apply(&pods))?;
        for name in &names {
            self.cluster.ensure_interfaces(name, interfaces)?;
        }
        self.cluster.delete(&names)?;
        self.each(|member| nothing_left(&member.node))
    }
}
