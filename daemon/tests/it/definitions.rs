//! Definitions as the cluster has them: missing ones, late ones, and a cluster that does not know the kind.

use serde_json::json;
use testkit::api_server::Kind;

use crate::{node::Node, wait_for};

#[test]
fn a_missing_definition_is_named_together_with_the_pod() {
    let node = Node::new();
    node.define("zebra");
    node.run_pod(Some("zebra,unicorn"));
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert_eq!(error.code, 11, "it may turn up: {error}");
    assert!(error.msg.contains("[shop/cart]"), "{error}");
    assert!(
        error
            .msg
            .contains("network-attachment-definition (unicorn) in namespace (shop)"),
        "{error}"
    );
    let events = node.api.wait_for_events(1);
    assert!(
        events[0].starts_with("NoNetworkFound: ") && events[0].contains("unicorn"),
        "{events:?}"
    );
    assert_eq!(node.order(), [""; 0]);
    assert_eq!(node.state(), (vec![], vec![]));
}

#[test]
fn a_definition_that_comes_later_is_heard_of() {
    let node = Node::new();
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).error();
    node.define("zebra");
    wait_for("the definition", || {
        (daemon.cni(&node.request("ADD", "c1")).status == 200).then_some(())
    });
    assert_eq!(node.order(), ["ADD primary pod0", "ADD zebra net1"]);
}

#[test]
fn a_definition_that_cannot_be_used_is_named() {
    let node = Node::new();
    let check = |config: &str, text: &str| {
        node.api.put(
            Kind::Definition,
            json!({"metadata": {"namespace": "shop", "name": "zebra"}, "spec": {"config": config}}),
        );
        node.run_pod(Some("zebra"));
        let daemon = node.start().ready();
        let error = daemon.cni(&node.request("ADD", "c1")).error();
        assert_eq!(error.code, 7, "{error}");
        assert!(
            error.msg.contains("shop/zebra") && error.msg.contains(text),
            "{error}"
        );
    };
    check("{\"type\":", "EOF");
    check("{\"cniVersion\": \"1.0.0\"}", "type");
    assert_eq!(node.order(), [""; 0]);
}

#[test]
fn a_cluster_without_definitions_serves_plain_pods() {
    let node = Node::new();
    node.api.remove_definition_crd();
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
}

#[test]
fn missing_crd_is_named_with_the_chart_that_brings_it() {
    let node = Node::new();
    node.api.remove_definition_crd();
    node.run_pod(Some("zebra"));
    let mut command = node.command();
    command.env("MULTUS_CRD_CHART", "k3s-multus-crd");
    let daemon = node.start_with(command).ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    let cure = "the CRD is not installed: install k3s-multus-crd";
    assert!(error.msg.contains(cure), "{error}");
    assert_eq!(error.code, 11, "it may turn up: {error}");
    let events = node.api.wait_for_events(1);
    assert!(
        events[0].starts_with("NoNetworkFound: ") && events[0].contains(cure),
        "{events:?}"
    );
    for arguments in [&["status"][..], &["status", "--ready"]] {
        let output = node.command().args(arguments).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        assert!(
            text.contains(
                "note: the CRD NetworkAttachmentDefinition is not installed: install k3s-multus-crd"
            ),
            "{text}"
        );
    }
}

#[test]
fn an_odd_definition_hides_no_other() {
    let node = Node::new();
    for (name, spec) in [("null", json!(null)), ("odd", json!({"config": [1]}))] {
        let metadata = json!({"namespace": "shop", "name": name});
        node.api.put(
            Kind::Definition,
            json!({"metadata": metadata, "spec": spec}),
        );
    }
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.run_pod(Some("odd"));
    let error = wait_for("the other networks", || {
        let answer = daemon.cni(&node.request("ADD", "c2"));
        if answer.status == 200 {
            // The watch still shows the pod as it was.
            daemon.cni(&node.request("DEL", "c2")).done();
            return None;
        }
        Some(answer.error())
    });
    assert!(error.msg.contains("shop/odd"), "{error}");
}

#[test]
fn multus_is_refused_as_a_network_of_its_own() {
    let node = Node::new();
    let config = json!({"cniVersion": "1.0.0", "type": "multus-shim"}).to_string();
    node.api.put(
        Kind::Definition,
        json!({"metadata": {"namespace": "shop", "name": "loop"}, "spec": {"config": config}}),
    );
    node.run_pod(Some("loop"));
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert_eq!(error.code, 7, "{error}");
    assert!(
        error
            .msg
            .contains("shop/loop: multus cannot be its own delegate"),
        "{error}"
    );
    assert_eq!(node.order(), [""; 0]);
}

#[test]
fn a_plugin_that_is_not_allowed_never_runs_and_is_still_removed() {
    let node = Node::new();
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    daemon.kill();
    node.take_order();
    node.configure(&json!({"allowedPlugins": ["primary"]}));
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("ADD", "c2")).error();
    assert_eq!(error.code, 7, "{error}");
    for part in [
        "shop/cart",
        "network shop/zebra",
        "plugin zebra",
        "allowedPlugins",
    ] {
        assert!(error.msg.contains(part), "{part}: {error}");
    }
    assert_eq!(node.order(), [""; 0]);
    assert_eq!(node.state().0, ["c1"]);
    daemon.cni(&node.request("DEL", "c1")).done();
    assert_eq!(node.order(), ["DEL zebra net1", "DEL primary pod0"]);
}
