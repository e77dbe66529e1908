//! Definitions that the watch does not have: new ones, absent ones, and a cluster without the CRD NetworkAttachmentDefinition.

use testkit::api_server::Kind;

use crate::{
    node::{NodeFixture, definition, pod},
    wait_for,
};

/// The requests for single definitions so far.
fn reads(node: &NodeFixture) -> Vec<String> {
    let requests = node.api.requests().into_iter();
    let lines = requests.map(|request| request.method_and_path);
    lines
        .filter(|line| line.contains("/network-attachment-definitions/"))
        .collect()
}

#[test]
fn definition_that_the_watch_lacks_is_read_once() {
    let node = NodeFixture::new();
    node.define("ape");
    node.install_plugin("zebra");
    node.run_pod(Some("ape,zebra"));
    let daemon = node.start().ready();
    node.api.put_unseen(Kind::Definition, definition("zebra"));
    daemon.cni(&node.request("ADD", "c1")).result();
    let expected = ["ADD primary pod0", "ADD ape net1", "ADD zebra net2"];
    assert_eq!(node.order(), expected);
    assert_eq!(
        reads(&node),
        ["GET /apis/k8s.cni.cncf.io/v1/namespaces/shop/network-attachment-definitions/zebra"]
    );
}

#[test]
fn hot_plug_reads_a_definition_that_the_watch_lacks() {
    let node = NodeFixture::new();
    node.configure(&serde_json::json!({"dynamicNetworks": true}));
    node.install_plugin("zebra");
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.api.wait_for_watch(Kind::Pod);
    node.api.put_unseen(Kind::Definition, definition("zebra"));
    node.api.put(Kind::Pod, pod("node-a", Some("zebra")));
    node.wait_for_call("ADD zebra net1");
}

#[test]
fn absent_definition_is_an_error_and_its_name_no_path() {
    let node = NodeFixture::new();
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    let expected = "cannot find a network-attachment-definition (zebra) in namespace (shop)";
    assert!(error.msg.contains(expected), "{error}");
    assert_eq!(reads(&node).len(), 1);
    node.api.put(
        Kind::Pod,
        pod("node-a", Some(r#"[{"name": "../../pods/zebra"}]"#)),
    );
    wait_for("the other annotation", || {
        let error = daemon.cni(&node.request("ADD", "c1")).error();
        error.msg.contains("../../pods/zebra").then_some(())
    });
    assert!(reads(&node).iter().all(|line| line.ends_with("/zebra")));
    assert!(!reads(&node).iter().any(|line| line.contains("..")));
}

#[test]
fn definition_is_not_absent_while_the_api_server_fails() {
    let node = NodeFixture::new();
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    node.api.refuse_reads("/zebra", 503);
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert_eq!(error.code, 11, "{error}");
    let expected = "cannot read network-attachment-definition (zebra) in namespace (shop): refused by the test (code 503)";
    assert!(error.msg.contains(expected), "{error}");
}

#[test]
fn default_network_of_a_file_reads_no_definition() {
    let node = NodeFixture::new();
    node.configure(&serde_json::json!({"clusterNetwork": "cbr0", "confDir": "/etc/cni/net.d"}));
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    assert!(reads(&node).is_empty());
}

#[test]
fn default_network_without_a_definition_makes_an_event() {
    let node = NodeFixture::new();
    node.configure(&serde_json::json!({"clusterNetwork": "zebra"}));
    node.run_pod(None);
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert!(error.msg.contains("clusterNetwork zebra"), "{error}");
    let events = node.api.wait_for_events(1);
    assert!(events[0].starts_with("NoNetworkFound: "), "{events:?}");
}

#[test]
fn missing_crd_leaves_pods_without_networks_served() {
    let node = NodeFixture::new();
    node.api.remove_definition_crd();
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
}

#[test]
fn missing_crd_is_reported_with_the_chart_that_installs_it() {
    let node = NodeFixture::new();
    node.api.remove_definition_crd();
    node.run_pod(Some("zebra"));
    let mut command = node.command();
    command.env("MULTUS_CRD_CHART", "k3s-multus-crd");
    let daemon = node.start_with(command).ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    let hint = "the CRD is not installed: install k3s-multus-crd";
    assert!(error.msg.contains(hint), "{error}");
    assert_eq!(error.code, 11, "it may be installed later: {error}");
    let events = node.api.wait_for_events(1);
    assert!(
        events[0].starts_with("NoNetworkFound: ") && events[0].contains(hint),
        "{events:?}"
    );
    for args in [&["status"][..], &["status", "--ready"]] {
        let output = node.command().args(args).output().unwrap();
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
