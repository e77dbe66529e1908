//! `kubectl multus` in a cluster, where it asks each daemon by exec in its pod.

use std::fs;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use super::{ClusterFixture, NAMESPACE};
use crate::{
    cluster::rare::{LINK, RARE, add_rare_link, delete_rare_link, rare_network},
    control_plane::objects,
    kubectl_plugin::KubectlPlugin,
    sh,
};

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
        self.report(&plugin)?;
        cluster.delete(&[UNDEFINED.to_owned()])
    }

    /// Checks that the report has every node, the pods' networks as their daemons know them, and the pod that does not start.
    fn report(&self, plugin: &KubectlPlugin) -> anyhow::Result<()> {
        let page = self.env.dir.join("report.html");
        let html = page.to_str().context("the path is no text")?;
        let (status, report) = plugin.json(&["report", "--html", html], "")?;
        ensure!(status == 1 && report["gaps"] == json!([]), "{report}");
        let list = |key: &str| {
            let list = report[key].as_array();
            list.with_context(|| format!("the report has no {key}: {report}"))
        };
        let version = self.env.version()?;
        for member in &self.cluster.members {
            let name = member.node.name.as_str();
            let node = list("nodes")?.iter().find(|node| node["name"] == name);
            let daemon = &node.context(report.to_string())?["daemon"];
            ensure!(daemon["version"] == *version, "{daemon}");
            let pod = format!("default/second-{name}");
            let pod = list("pods")?.iter().find(|one| one["pod"] == *pod);
            let rows = pod.context(report.to_string())?["networks"].as_array();
            let mut rows = rows.into_iter().flatten();
            let second = rows.find(|row| row["interface"] == "net1");
            let second = second.context(report.to_string())?;
            ensure!(second["plugins"] == json!(["bridge"]), "{second}");
        }
        let is_timed = |pod: &Value| pod["addMilliseconds"]["net1"].is_u64();
        ensure!(
            list("pods")?.iter().any(is_timed),
            "no ADD has a time: {report}"
        );
        let object = json!([format!("pod default/{UNDEFINED}")]);
        let found = list("findings")?
            .iter()
            .find(|one| one["objects"] == object);
        let found = found.context(report.to_string())?;
        ensure!(found["severity"] == "error", "{found}");
        let page = fs::read_to_string(&page)?;
        ensure!(
            page.contains(&format!("kubectl multus why default/{UNDEFINED}")),
            "{page}"
        );
        Ok(())
    }

    /// Checks which nodes serve a network while its master is put on one node and removed.
    pub(super) fn networks_follow_links(&self, chart: &str) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        let plugin = KubectlPlugin::new(self.env, cluster.server(), cluster.control.admin());
        let [first, second, ..] = &cluster.members[..] else {
            bail!("the cluster has one node");
        };
        let (first, second) = (&first.node, &second.node);
        cluster.apply(&[rare_network(), objects::pod(RARE, &first.name, Some(RARE))])?;
        let missing = format!("the node has no link {LINK}, the master of macvlan");
        // Returns the nodes that serve the network; every other one must lack its master.
        let serving = |expected: i32| -> anyhow::Result<Vec<String>> {
            let (status, answer) = plugin.json(&["networks", RARE], "")?;
            ensure!(status == expected, "{answer}");
            let nodes = answer["networks"][0]["nodes"].as_array();
            let nodes = nodes.context("the answer has no nodes")?;
            ensure!(nodes.len() == cluster.members.len(), "{answer}");
            let (served, lacking): (Vec<&Value>, Vec<_>) =
                nodes.iter().partition(|one| one["state"] == "serves");
            for one in lacking {
                ensure!(one["reason"] == missing.as_str(), "{one}");
            }
            let names = served.iter().filter_map(|one| one["node"].as_str());
            Ok(names.map(str::to_owned).collect())
        };
        sh::until(60, "every daemon knows the definition", || {
            let served = serving(1)?;
            ensure!(served.is_empty(), "{served:?} serve it without a master");
            Ok(())
        })?;
        add_rare_link(second)?;
        // Links are looked at when somebody asks, so there is nothing to wait for.
        ensure!(serving(0)? == [second.name.as_str()], "{:?}", serving(0)?);
        sh::until(60, "why names the node that would do", || {
            let (status, why) = plugin.json(&["why", RARE], "")?;
            ensure!(status == 1 && why["cause"] == "master-missing", "{why}");
            ensure!(why["otherNodes"] == json!([second.name]), "{why}");
            Ok(())
        })?;
        let selector = format!("--selector=app={chart}");
        let field = format!("--field-selector=spec.nodeName={}", second.name);
        let output = "--output=jsonpath={.items[0].metadata.name}";
        let daemon = cluster.kubectl(&["get", "pod", NAMESPACE, &selector, &field, output])?;
        let text = cluster.kubectl(&[
            "exec",
            NAMESPACE,
            daemon.trim(),
            "--",
            "/usr/src/multus-cni/bin/multus-daemon",
            "networks",
        ])?;
        let mut lines = text
            .lines()
            .filter(|line| line.starts_with("default/rare "));
        ensure!(lines.any(|line| line.ends_with(" serves")), "{text}");
        delete_rare_link(second)?;
        let served = serving(1)?;
        ensure!(served.is_empty(), "{served:?} serve it without a master");
        cluster.delete(&[RARE.to_owned()])?;
        let definition = format!("network-attachment-definition/{RARE}");
        cluster.kubectl(&["delete", &definition]).map(drop)
    }
}
