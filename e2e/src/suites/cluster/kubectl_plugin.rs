//! What a person is told by `kubectl multus`, which asks the daemon in its pod by exec.

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::ClusterFixture;
use crate::{control_plane::objects, kubectl_plugin::KubectlPlugin, sh};

/// A pod of a network that nobody defined.
const LOST: &str = "lost";

impl ClusterFixture<'_> {
    /// Of a pod on every node, and of one that gets no network.
    pub(super) fn tells(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        let kubeconfig = cluster.control.admin();
        let plugin = KubectlPlugin {
            env: self.env,
            node: cluster.server(),
            kubeconfig: &kubeconfig,
        };
        let server = &cluster.server().name;
        cluster.apply(&[objects::pod(LOST, server, Some("nowhere"))])?;
        self.each(|member| {
            let pod = format!("second-{}", member.node.name);
            let rows = plugin.ensure_status(&pod, &cluster.interfaces(&pod)?)?;
            let second = &rows["net1"];
            ensure!(second["plugins"] == json!(["bridge"]), "{second}");
            ensure!(second["since"].is_u64(), "{second}");
            // Nobody but the daemon knows of the default network's plugins.
            let first = rows["eth0"]["plugins"].as_array().context("no plugins")?;
            ensure!(!first.is_empty(), "{rows:?}");
            Ok(())
        })?;
        sh::until(60, "the daemon tells of the lost pod", || {
            let (status, why) = plugin.json(&["why", LOST], "")?;
            ensure!(status == 1 && why["cause"] == "definition-missing", "{why}");
            let told = why["told"].as_array().into_iter().flatten();
            let mut daemon = told.filter(|one| one["who"] == "daemon");
            let words = daemon.next().context("the daemon told nothing")?;
            ensure!(words["message"].to_string().contains("(nowhere)"), "{why}");
            Ok(())
        })?;
        cluster.delete(&[LOST.to_owned()])
    }
}
