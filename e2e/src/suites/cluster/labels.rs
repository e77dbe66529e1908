//! Nodes have labels for the networks that they can serve, and pods find the node by them. The daemons have certificates here.

use anyhow::{Context as _, bail, ensure};
use serde_json::json;

use super::ClusterFixture;
use crate::{
    cluster::{
        pods::Pods as _,
        rare::{self, RARE, label},
    },
    control_plane::objects,
    report::{Checked, Report},
    sh,
};

/// As `kubectl cordon` sends it, which succeeds even when it is refused.
const CORDON: &str = r#"{"spec": {"unschedulable": true}}"#;

impl ClusterFixture<'_> {
    /// Checks labels with the installed chart, whose `publish` is `labels`.
    pub(super) fn labels(&self, chart: &str, report: &mut Report) -> Checked {
        let of = |what: &str| format!("{chart}: {what}");
        report.check(
            &of("a pod waits for a node that serves its network, whose label follows a link"),
            || self.labels_follow_links(),
        )?;
        report.check(
            &of("a daemon changes no other Node, and nothing else of its own"),
            || self.labels_are_all(),
        )
    }

    fn labels_follow_links(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        let [_, second, ..] = &cluster.members[..] else {
            bail!("the cluster has one node");
        };
        let node = &second.node;
        let mut pod = objects::unbound_pod(RARE, Some(RARE));
        pod["spec"]["nodeSelector"] = json!({label(RARE): "serves"});
        cluster.apply(&[rare::rare_network(), pod])?;
        sh::until(
            60,
            "every node has the label of the network storage",
            || {
                for node in cluster.nodes()? {
                    let storage = &node["metadata"]["labels"][label("storage")];
                    ensure!(storage == "serves", "{node}");
                }
                Ok(())
            },
        )?;
        rare::follow(cluster, node, rare::MOST)
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
        let mark = format!("{}=serves", label("by-hand"));
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
