//! Nodes have labels for the networks that they can serve, and pods find the node by them. The daemons have certificates here.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use super::{
    ClusterFixture,
    kubectl_plugin::{RARE, add_rare_link, delete_rare_link, rare_network},
};
use crate::{
    control_plane::objects,
    report::{Checked, Report, say},
    sh,
};

const PREFIX: &str = "networks.multus-rs.cni.cncf.io/";
/// As `kubectl cordon` sends it, which succeeds even when it is refused.
const CORDON: &str = r#"{"spec": {"unschedulable": true}}"#;
/// Labels follow the node within this time.
const MOST: Duration = Duration::from_secs(5);

impl ClusterFixture<'_> {
    /// Checks labels with the installed chart, whose `publish` is `labels`.
    pub(super) fn labels(&self, chart: &str, report: &mut Report) -> Checked {
        let of = |what: &str| format!("{chart}: {what}");
        let followed = report.check(
            &of("a pod waits for a node that serves its network, whose label follows a link"),
            || self.labels_follow_links(),
        )?;
        say(&format!("        {followed}"));
        report.check(
            &of("a daemon changes no other Node, and nothing else of its own"),
            || self.labels_are_all(),
        )
    }

    fn labels_follow_links(&self) -> anyhow::Result<String> {
        let cluster = &self.cluster;
        let [_, second, ..] = &cluster.members[..] else {
            bail!("the cluster has one node");
        };
        let (node, label) = (&second.node, format!("{PREFIX}default.{RARE}"));
        let mut pod = objects::pod(RARE, &node.name, Some(RARE));
        let spec = pod["spec"].as_object_mut().context("the pod has no spec")?;
        spec.remove("nodeName");
        spec.insert("nodeSelector".to_owned(), json!({&*label: "serves"}));
        cluster.apply(&[rare_network(), pod])?;
        sh::until(
            60,
            "every node has the label of the network storage",
            || {
                for node in self.labelled_nodes()? {
                    let storage = &node["metadata"]["labels"][format!("{PREFIX}default.storage")];
                    ensure!(storage == "serves", "{node}");
                }
                Ok(())
            },
        )?;
        let state = cluster.pod(RARE)?;
        ensure!(state["spec"]["nodeName"].is_null(), "{state}");
        let serving = || -> anyhow::Result<Vec<String>> {
            let nodes = self.labelled_nodes()?;
            let serving = nodes
                .iter()
                .filter(|node| node["metadata"]["labels"][&label] == "serves");
            let names = serving.filter_map(|node| node["metadata"]["name"].as_str());
            Ok(names.map(str::to_owned).collect())
        };
        ensure!(serving()?.is_empty(), "{:?}", serving()?);
        let until = |expected: &[String]| -> anyhow::Result<Duration> {
            let start = Instant::now();
            sh::until(60, "the label follows the link", || {
                let serving = serving()?;
                ensure!(serving == expected, "{serving:?} serve it");
                Ok(())
            })?;
            Ok(start.elapsed())
        };
        add_rare_link(node)?;
        let added = until(std::slice::from_ref(&node.name))?;
        cluster.ensure_interfaces(RARE, &["eth0", "net1"])?;
        let bound = cluster.pod(RARE)?;
        ensure!(bound["spec"]["nodeName"] == *node.name, "{bound}");
        cluster.delete(&[RARE.to_owned()])?;
        delete_rare_link(node)?;
        let removed = until(&[])?;
        let definition = format!("network-attachment-definition/{RARE}");
        cluster.kubectl(&["delete", &definition])?;
        ensure!(
            added.max(removed) < MOST,
            "the label came after {added:?} and went after {removed:?}"
        );
        Ok(format!(
            "the label came after {} ms and went after {} ms",
            added.as_millis(),
            removed.as_millis()
        ))
    }

    fn labelled_nodes(&self) -> anyhow::Result<Vec<Value>> {
        let nodes = self.cluster.get(&["nodes"])?;
        let nodes = nodes["items"].as_array();
        Ok(nodes.context("there are no nodes")?.clone())
    }

    /// Tries every other change with the certificate of the first node.
    fn labels_are_all(&self) -> anyhow::Result<()> {
        let server = self.cluster.server();
        let (own, other) = ("n1", "n2");
        ensure!(
            server.name == own,
            "the control plane is on {}",
            server.name
        );
        let run = |args: &[&str]| sh::run(self.as_node(server).args(args));
        let mark = format!("{PREFIX}default.by-hand=serves");
        let foreign = "a daemon may change no labels of its Node but those that begin with";
        let refused: [(&[&str], &str); 5] = [
            (&["label", "node", other, &mark], "its own Node only"),
            (&["label", "node", own, "disk=ssd"], foreign),
            (&["label", "node", own, "kubernetes.io/os-"], foreign),
            (
                &["patch", "node", own, "--patch", CORDON],
                "nothing but labels",
            ),
            (&["annotate", "node", own, "a=b"], "nothing but labels"),
        ];
        for (args, expected) in refused {
            let error = run(args).err();
            let error = error.with_context(|| format!("{args:?} is allowed"))?;
            ensure!(error.to_string().contains(expected), "{args:?}: {error}");
        }
        // Its daemon takes the label away again.
        run(&["label", "node", own, &mark])?;
        sh::until(30, "the daemon keeps its labels as they have to be", || {
            let nodes = self.cluster.get(&["nodes"])?.to_string();
            ensure!(!nodes.contains("by-hand"), "the label by hand is there");
            Ok(())
        })
    }
}
