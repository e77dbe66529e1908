//! `multus-daemon verify`: its result for complete and incomplete releases.

use std::process::Output;

use serde_json::json;
use testkit::api_server::Kind;

use crate::node::NodeFixture;

const POD: &str = "multus-test";

/// Runs the command for a release with this many ready daemons on two nodes.
pub(crate) fn verify(node: &NodeFixture, ready: u32) -> Output {
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
    let output = verify(&NodeFixture::new(), 2);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "DaemonSet kube-system/multus serves 2 of 2 nodes, and this pod got its networks from it\n"
    );
}

#[test]
fn release_without_a_ready_node_fails() {
    let output = verify(&NodeFixture::new(), 1);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("serves 1 of 2 nodes: see `kubectl"),
        "{error}"
    );
}

#[test]
fn missing_variable_is_named_outside_of_a_pod() {
    let output = NodeFixture::new().command().arg("verify").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("POD_NAMESPACE is not set"), "{error}");
}
