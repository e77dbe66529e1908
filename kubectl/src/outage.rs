//! Whether the cluster's network itself is what is wrong: no Multus installed, daemons that are not ready, nodes without a network.

use serde_json::Value;

use crate::{cluster::Cluster, preflight};

/// Taints by which a scheduler keeps pods from nodes that are not ready.
const TAINTS: [&str; 3] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/unreachable",
];
/// Words of a node's condition when its network is what it lacks.
const OF_NETWORK: [&str; 3] = ["networkpluginnotready", "network plugin", "cni "];

/// What the cluster lacks; empty where nobody had to look.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// Whether a `DaemonSet` of Multus is there; `None` where that is not known.
    pub(crate) is_installed: Option<bool>,
    /// `DaemonSets` of Multus with fewer ready daemons than they should have, as sentences.
    pub(crate) lacking: Vec<String>,
    /// Nodes whose network is not ready, and why.
    pub(crate) nodes: Vec<(String, String)>,
}

impl Outage {
    /// Reads what there is; what may not be read stays unknown.
    pub(crate) async fn read(cluster: &Cluster, with_nodes: bool) -> Self {
        let group = ("apps", "v1");
        let sets = cluster.all(group, "DaemonSet", "daemonsets").await;
        let nodes = if with_nodes {
            cluster.all(("", "v1"), "Node", "nodes").await
        } else {
            Ok(None)
        };
        let nodes = nodes.ok().flatten().unwrap_or_default();
        Self::of(sets.ok().flatten().as_deref(), &nodes)
    }

    /// What these objects say.
    pub(crate) fn of(daemon_sets: Option<&[Value]>, nodes: &[Value]) -> Self {
        let ours: Option<Vec<_>> = daemon_sets.map(|sets| {
            let sets = sets.iter();
            sets.filter(|set| preflight::is_multus(set)).collect()
        });
        let lacking = ours.iter().flatten().filter_map(|set| lacking(set));
        Self {
            lacking: lacking.collect(),
            nodes: nodes.iter().filter_map(without_network).collect(),
            is_installed: ours.map(|ours| !ours.is_empty()),
        }
    }
}

/// Whether a scheduler's words tell of nodes that are not ready.
pub(crate) fn is_of_nodes(scheduler: &str) -> bool {
    TAINTS.iter().any(|taint| scheduler.contains(taint))
}

fn lacking(set: &Value) -> Option<String> {
    let count = |key: &str| set["status"][key].as_u64().unwrap_or(0);
    let (ready, desired) = (count("numberReady"), count("desiredNumberScheduled"));
    let name = |key: &str| set["metadata"][key].as_str().unwrap_or_default();
    (ready < desired).then(|| {
        format!(
            "{ready} of {desired} daemons of DaemonSet {}/{} are ready",
            name("namespace"),
            name("name")
        )
    })
}

fn without_network(node: &Value) -> Option<(String, String)> {
    let conditions = node.pointer("/status/conditions")?.as_array()?;
    let ready = conditions.iter().find(|one| one["type"] == "Ready")?;
    let message = ready["message"].as_str().unwrap_or_default();
    let lower = message.to_lowercase();
    let is_network = OF_NETWORK.iter().any(|words| lower.contains(words));
    if ready["status"] == "True" || !is_network {
        return None;
    }
    // The kubelet puts the runtime's own words last.
    let reason = message.rsplit("message:").next().unwrap_or(message);
    let name = node.pointer("/metadata/name")?.as_str()?;
    Some((name.to_owned(), reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_without_a_network_are_told_from_others() {
        let node = |status: &str, message: &str| json!({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": status, "message": message}]}});
        let lacking = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized";
        let outage = Outage::of(
            None,
            &[
                node("True", lacking),
                node("False", lacking),
                node("False", "kubelet stopped posting node status"),
                json!({}),
            ],
        );
        let reason = "Network plugin returns error: cni plugin not initialized";
        assert_eq!(outage.nodes, [("n".to_owned(), reason.to_owned())]);
        assert_eq!(outage.is_installed, None);
        assert!(is_of_nodes(
            "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }."
        ));
        assert!(!is_of_nodes("0/1 nodes are available: 1 Insufficient cpu."));
    }

    #[test]
    fn daemons_that_are_not_ready_are_counted() {
        let set = |ready: u64| {
            json!({"metadata": {"namespace": "kube-system", "name": "m"}, "status": {"numberReady": ready, "desiredNumberScheduled": 3},
                "spec": {"template": {"spec": {"containers": [{"image": "multusrs/multus", "command": ["/usr/src/multus-cni/bin/multus-daemon"]}]}}}})
        };
        let other = json!({"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}});
        let outage = Outage::of(Some(&[set(1), set(3), other.clone()]), &[]);
        assert_eq!(
            outage.lacking,
            ["1 of 3 daemons of DaemonSet kube-system/m are ready"]
        );
        assert_eq!(outage.is_installed, Some(true));
        assert_eq!(Outage::of(Some(&[other]), &[]).is_installed, Some(false));
    }
}
