//! Finds faults of the cluster itself that keep pods waiting: Multus is not installed, daemons are not ready, nodes have no network.

use serde_json::Value;

use crate::{cluster::Cluster, preflight};

/// Taints that keep pods off nodes that are not ready.
const TAINTS: [&str; 3] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/unreachable",
];
/// Parts of the message of a node's condition `Ready` when the node's network is not ready.
const NETWORK_MESSAGES: [&str; 3] = ["networkpluginnotready", "network plugin", "cni "];

/// Faults of the cluster itself; the default has none, for pods that need no such check.
#[derive(Debug, Default)]
pub(crate) struct ClusterHealth {
    /// True when a `DaemonSet` of Multus exists; `None` when `DaemonSets` could not be read.
    pub(crate) is_installed: Option<bool>,
    /// One sentence for each `DaemonSet` of Multus that has fewer ready daemons than desired.
    pub(crate) unready_daemon_sets: Vec<String>,
    /// Names of the nodes whose network is not ready, with the reasons.
    pub(crate) unready_nodes: Vec<(String, String)>,
}

impl ClusterHealth {
    /// Reads `DaemonSets` and, when requested, nodes; objects that the user may not read stay unknown.
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

    /// Evaluates these objects.
    pub(crate) fn of(daemon_sets: Option<&[Value]>, nodes: &[Value]) -> Self {
        let ours: Option<Vec<_>> = daemon_sets.map(|sets| {
            let sets = sets.iter();
            sets.filter(|set| preflight::is_multus(set)).collect()
        });
        let unready = ours.iter().flatten().filter_map(|set| unready(set));
        Self {
            unready_daemon_sets: unready.collect(),
            unready_nodes: nodes.iter().filter_map(without_network).collect(),
            is_installed: ours.map(|ours| !ours.is_empty()),
        }
    }
}

/// Returns true when a scheduler's message names nodes that are not ready.
pub(crate) fn names_unready_nodes(message: &str) -> bool {
    TAINTS.iter().any(|taint| message.contains(taint))
}

fn unready(set: &Value) -> Option<String> {
    let count = |key: &str| set["status"][key].as_u64().unwrap_or(0);
    let (ready, desired) = (count("numberReady"), count("desiredNumberScheduled"));
    let name = |key: &str| set["metadata"][key].as_str().unwrap_or_default();
    let set = format!("DaemonSet {}/{}", name("namespace"), name("name"));
    match desired {
        _ if ready >= desired => None,
        1 => Some(format!("the only daemon of {set} is not ready")),
        _ => Some(format!("{ready} of {desired} daemons of {set} are ready")),
    }
}

fn without_network(node: &Value) -> Option<(String, String)> {
    let conditions = node.pointer("/status/conditions")?.as_array()?;
    let ready = conditions.iter().find(|one| one["type"] == "Ready")?;
    let message = ready["message"].as_str().unwrap_or_default();
    let lower = message.to_lowercase();
    let is_network = NETWORK_MESSAGES.iter().any(|part| lower.contains(part));
    if ready["status"] == "True" || !is_network {
        return None;
    }
    // The kubelet appends the runtime's own message.
    let reason = message.rsplit("message:").next().unwrap_or(message);
    let name = node.pointer("/metadata/name")?.as_str()?;
    Some((name.to_owned(), reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_nodes_without_a_network_are_unready() {
        let node = |status: &str, message: &str| json!({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": status, "message": message}]}});
        let lacking = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized";
        let health = ClusterHealth::of(
            None,
            &[
                node("True", lacking),
                node("False", lacking),
                node("False", "kubelet stopped posting node status"),
                json!({}),
            ],
        );
        let reason = "Network plugin returns error: cni plugin not initialized";
        assert_eq!(health.unready_nodes, [("n".to_owned(), reason.to_owned())]);
        assert_eq!(health.is_installed, None);
        assert!(names_unready_nodes(
            "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }."
        ));
        assert!(!names_unready_nodes(
            "0/1 nodes are available: 1 Insufficient cpu."
        ));
    }

    #[test]
    fn daemons_that_are_not_ready_are_counted() {
        let set = |ready: u64| {
            json!({"metadata": {"namespace": "kube-system", "name": "m"}, "status": {"numberReady": ready, "desiredNumberScheduled": 3},
                "spec": {"template": {"spec": {"containers": [{"image": "multusrs/multus", "command": ["/usr/src/multus-cni/bin/multus-daemon"]}]}}}})
        };
        let mut only = set(0);
        only["status"]["desiredNumberScheduled"] = 1.into();
        assert_eq!(
            ClusterHealth::of(Some(&[only]), &[]).unready_daemon_sets,
            ["the only daemon of DaemonSet kube-system/m is not ready"]
        );
        let other = json!({"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}});
        let health = ClusterHealth::of(Some(&[set(1), set(3), other.clone()]), &[]);
        assert_eq!(
            health.unready_daemon_sets,
            ["1 of 3 daemons of DaemonSet kube-system/m are ready"]
        );
        assert_eq!(health.is_installed, Some(true));
        assert_eq!(
            ClusterHealth::of(Some(&[other]), &[]).is_installed,
            Some(false)
        );
    }
}
