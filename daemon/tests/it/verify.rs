//! `multus-daemon verify`: what it says of a release, and that it waits for one.

use std::process::Output;

use serde_json::json;
use testkit::api_server::Kind;

use crate::node::Node;

const POD: &str = "multus-test";

/// What the command says of the release with this many ready daemons on two nodes.
pub(crate) fn verify(node: &Node, ready: u32) -> Output {
    node.api.put(
        Kind::DaemonSet,
        json!({
            "metadata": {"namespace": "kube-system", "name": "multus", "generation": 1},
            "status": {
                "observedGeneration": 1, "desiredNumberScheduled": 2,
                "numberReady": ready, "updatedNumberScheduled": 2,
            },
        }),
    );
    let annotations = json!({"k8s.v1.cni.cncf.io/network-status": "[]"});
    node.api.put(
        Kind::Pod,
        json!({"metadata": {"namespace": "kube-system", "name": POD, "annotations": annotations}}),
    );
    let mut command = node.command();
    command
        .env("POD_NAMESPACE", "kube-system")
        .env("POD_NAME", POD)
        .env("MULTUS_DAEMONSET", "multus");
    command.arg("verify").output().unwrap()
}

#[test]
fn release_that_serves_every_node_passes() {
    let output = verify(&Node::new(), 2);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "DaemonSet kube-system/multus serves 2 of 2 nodes, and this pod got its networks from it\n"
    );
}

#[test]
fn release_that_lacks_a_node_fails() {
    let output = verify(&Node::new(), 1);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("serves 1 of 2 nodes: see `kubectl"),
        "{error}"
    );
}

#[test]
fn outside_of_its_pod_the_missing_variable_is_named() {
    let output = Node::new().command().arg("verify").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("POD_NAMESPACE is not set"), "{error}");
}
