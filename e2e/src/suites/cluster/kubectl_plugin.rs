//! `kubectl multus` in a cluster, where it asks each daemon by exec in its pod.

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::ClusterFixture;
use crate::{control_plane::objects, kubectl_plugin::KubectlPlugin, sh};

/// A pod that requests a network without a definition.
const UNDEFINED: &str = "undefined";

impl ClusterFixture<'_> {
    /// Checks `status` of a pod on every node, and `why` of one that does not start.
    pub(super) fn kubectl_plugin(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        let plugin = KubectlPlugin::new(self.env, cluster.server(), cluster.control.admin());
        let server = &cluster.server().name;
        cluster.apply(&[objects::pod(UNDEFINED, server, Some("nowhere"))])?;
        self.each(|member| {
            let pod = format!("second-{}", member.node.name);
            let rows = plugin.ensure_status(&pod, &cluster.interfaces(&pod)?)?;
            let second = &rows["net1"];
            ensure!(second["plugins"] == json!(["bridge"]), "{second}");
            ensure!(second["since"].is_u64(), "{second}");
            // Only the daemon knows the plugins of the default network.
            let first = rows["eth0"]["plugins"].as_array().context("no plugins")?;
            ensure!(!first.is_empty(), "{rows:?}");
            Ok(())
        })?;
        sh::until(60, "the daemon reports why the pod does not start", || {
            let (status, why) = plugin.json(&["why", UNDEFINED], "")?;
            ensure!(status == 1 && why["cause"] == "definition-missing", "{why}");
            let reports = why["log"].as_array().into_iter().flatten();
            let mut daemon_reports = reports.filter(|one| one["source"] == "daemon");
            let report = daemon_reports.next().context("no report of the daemon")?;
            ensure!(report["message"].to_string().contains("(nowhere)"), "{why}");
            Ok(())
        })?;
        cluster.delete(&[UNDEFINED.to_owned()])
    }
}
