//! `kubectl multus` on pods that do not exist yet, that fail, and that run.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::NetnsFixture;
use crate::{
    control_plane::objects,
    kubectl_plugin::KubectlPlugin,
    node::inspect::nothing_left,
    report::{Checked, Report},
    sh,
    single_node::DAEMON_CONFIG,
};

impl NetnsFixture<'_> {
    /// Checks `kubectl multus`, and `multus-daemon pod` on the node: kubectl cannot exec it without a kubelet.
    pub(super) fn kubectl_plugin(&self, report: &mut Report) -> Checked {
        let plugin = KubectlPlugin::new(
            self.env,
            &self.single_node.node,
            self.single_node.control.admin(),
        );
        report.check("kubectl multus: status and why of a running pod", || {
            self.status_and_why(&plugin)
        })?;
        report.check(
            "kubectl multus: lint, ADD and why report the same missing definition",
            || self.missing_definition(&plugin),
        )
    }

    fn status_and_why(&self, plugin: &KubectlPlugin<'_>) -> anyhow::Result<()> {
        let inside = self.attach("running", Some("storage"), &["eth0", "net1"])?;
        let rows = plugin.ensure_status("running", &inside)?;
        let storage = &rows["net1"];
        ensure!(storage["plugins"] == json!(["bridge"]), "{storage}");
        let (status, why) = plugin.json(&["why", "running"], "")?;
        ensure!(status == 0 && why["cause"] == "healthy", "{why}");
        let pod_report = self.pod_report("running")?;
        let attachments = &pod_report["containers"][0]["attachments"];
        ensure!(
            attachments[1]["addresses"] == json!(inside["net1"])
                && attachments[1]["since"].is_u64(),
            "{pod_report}"
        );
        ensure!(pod_report["problem"].is_null(), "{pod_report}");
        self.single_node.remove("running")
    }

    fn missing_definition(&self, plugin: &KubectlPlugin<'_>) -> anyhow::Result<()> {
        let text = "cannot find a network-attachment-definition (nowhere) in namespace (default)";
        let pod = objects::pod("untold", &self.single_node.node.name, Some("nowhere"));
        let (status, lint) = plugin.json(&["lint", "--cluster", "-"], &pod.to_string())?;
        ensure!(status == 1 && lint["errors"] == 1, "{lint}");
        let finding = lint["findings"][0]["text"].as_str().unwrap_or_default();
        ensure!(finding.contains(text), "{lint}");
        let Err(error) = self.single_node.add("untold", Some("nowhere")) else {
            anyhow::bail!("ADD succeeded");
        };
        ensure!(error.to_string().contains(text), "{error}");
        let (status, why) = plugin.json(&["why", "untold"], "")?;
        ensure!(status == 1 && why["cause"] == "definition-missing", "{why}");
        let pod_report = self.pod_report("untold")?;
        let id = pod_report["failures"][0]["id"]
            .as_str()
            .context("no failure")?;
        ensure!(error.to_string().contains(id), "{error} and {pod_report}");
        sh::until(10, "the event is there", || {
            let (_, why) = plugin.json(&["why", "untold"], "")?;
            ensure!(why["log"].to_string().contains(id), "{why}");
            Ok(())
        })?;
        self.single_node.remove("untold")?;
        nothing_left(&self.single_node.node)
    }

    /// Returns what `multus-daemon pod` prints on the node.
    fn pod_report(&self, pod: &str) -> anyhow::Result<Value> {
        let mut command = self
            .single_node
            .node
            .command(self.env.program("multus-daemon"));
        let pod = format!("default/{pod}");
        let text = sh::run(command.args(["pod", &pod, "--root", "/", "--config", DAEMON_CONFIG]))?;
        Ok(serde_json::from_str(&text)?)
    }
}
