//! What a person is told of pods: before they exist, while they fail, and when they are well.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::{
    control_plane::objects,
    kubectl_plugin::KubectlPlugin,
    node::inspect::nothing_left,
    report::{CheckFailed, Report},
    sh,
    single_node::{DAEMON_CONFIG, SingleNode},
    test_env::TestEnv,
};

impl SingleNode {
    /// `kubectl multus`, and the daemon's own answer, which needs a kubelet to be asked from afar.
    pub(super) fn tells(&self, env: &TestEnv, report: &mut Report) -> Result<(), CheckFailed> {
        let kubeconfig = self.control.admin();
        let plugin = KubectlPlugin {
            env,
            node: &self.node,
            kubeconfig: &kubeconfig,
        };
        report.check(
            "kubectl multus: status and why of a pod that is well",
            || self.is_told(&plugin),
        )?;
        report.check(
            "kubectl multus: lint says before what ADD says after, why says it too",
            || self.is_told_before_and_after(&plugin),
        )?;
        report.check("kubectl multus: lint refuses what is broken", || {
            broken_is_refused(&plugin)
        })
    }

    fn is_told(&self, plugin: &KubectlPlugin<'_>) -> anyhow::Result<()> {
        let inside = self.attaches("told", Some("storage"), &["eth0", "net1"])?;
        let rows = plugin.status_is("told", &inside)?;
        let storage = &rows["net1"];
        ensure!(storage["plugins"] == json!(["bridge"]), "{storage}");
        let (status, why) = plugin.json(&["why", "told"], "")?;
        ensure!(status == 0 && why["cause"] == "well", "{why}");
        let answer = self.answer(plugin.env, "told")?;
        let attachments = &answer["containers"][0]["attachments"];
        ensure!(
            attachments[1]["addresses"] == json!(inside["net1"])
                && attachments[1]["since"].is_u64(),
            "{answer}"
        );
        ensure!(answer["problem"].is_null(), "{answer}");
        self.remove("told")
    }

    fn is_told_before_and_after(&self, plugin: &KubectlPlugin<'_>) -> anyhow::Result<()> {
        let words = "cannot find a network-attachment-definition (nowhere) in namespace (default)";
        let pod = objects::pod("untold", &self.node.name, Some("nowhere"));
        let (status, lint) = plugin.json(&["lint", "--cluster", "-"], &pod.to_string())?;
        ensure!(status == 1 && lint["errors"] == 1, "{lint}");
        let text = lint["findings"][0]["text"].as_str().unwrap_or_default();
        ensure!(text.contains(words), "{lint}");
        let Err(error) = self.add("untold", Some("nowhere")) else {
            anyhow::bail!("ADD succeeded");
        };
        ensure!(error.to_string().contains(words), "{error}");
        let (status, why) = plugin.json(&["why", "untold"], "")?;
        ensure!(status == 1 && why["cause"] == "definition-missing", "{why}");
        let answer = self.answer(plugin.env, "untold")?;
        let id = answer["failures"][0]["id"].as_str().context("no failure")?;
        ensure!(error.to_string().contains(id), "{error} and {answer}");
        sh::until(10, "the event is there", || {
            let (_, why) = plugin.json(&["why", "untold"], "")?;
            ensure!(why["told"].to_string().contains(id), "{why}");
            Ok(())
        })?;
        self.remove("untold")?;
        nothing_left(&self.node)
    }

    /// What `multus-daemon pod` says on the node.
    fn answer(&self, env: &TestEnv, pod: &str) -> anyhow::Result<Value> {
        let mut command = self.node.command(env.program("multus-daemon"));
        let pod = format!("default/{pod}");
        let text = sh::run(command.args(["pod", &pod, "--root", "/", "--config", DAEMON_CONFIG]))?;
        Ok(serde_json::from_str(&text)?)
    }
}

/// Three definitions that no pod can use and one that is well, together with the pod that asks for it, in a folder.
fn broken_is_refused(plugin: &KubectlPlugin<'_>) -> anyhow::Result<()> {
    let dir = "/tmp/manifests";
    let mut cut = objects::storage();
    cut["spec"]["config"] = json!("{\"cniVersion\":\"1.0.0\",");
    let both = json!({"kind": "List", "items": [
        objects::network("own", &json!({"cniVersion": "1.0.0", "type": "multus"})),
        objects::network("none", &json!({"cniVersion": "1.0.0", "plugins": []})),
    ]});
    let pod = objects::pod("p", "n", Some("wire"));
    plugin
        .node
        .write(&format!("{dir}/one.json"), cut.to_string())?;
    plugin
        .node
        .write(&format!("{dir}/sub/two.yaml"), format!("---\n{both}\n"))?;
    plugin.node.write(
        &format!("{dir}/sub/well.yaml"),
        format!("{}\n---\n{pod}\n", objects::wire()),
    )?;
    let (status, lint) = plugin.json(&["lint", dir], "")?;
    ensure!(
        status == 1 && lint["errors"] == 3 && lint["objects"] == 5,
        "{lint}"
    );
    let (status, lint) = plugin.json(&["lint", &format!("{dir}/sub/well.yaml")], "")?;
    ensure!(status == 0 && lint["findings"] == json!([]), "{lint}");
    Ok(std::fs::remove_dir_all(plugin.node.path(dir))?)
}
