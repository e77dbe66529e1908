//! `multus-daemon networks`: which definitions the node can serve.

use serde_json::{Value, json};
use testkit::{api_server::Kind, kubelet::Kubelet};

use crate::{
    devices::{RESOURCE, SOCKET, definition_with_resource, list},
    node::NodeFixture,
    wait_for,
};

fn define(node: &NodeFixture, name: &str, config: &Value) {
    let mut config = config.clone();
    if config.get("cniVersion").is_none() {
        config["cniVersion"] = "1.0.0".into();
    }
    let nad = json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"config": config.to_string()}});
    node.api.put(Kind::Definition, nad);
}

fn run(node: &NodeFixture, args: &[&str]) -> (bool, String, String) {
    let output = node.command().arg("networks").args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.success(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Returns state and reason of a definition.
fn verdict(node: &NodeFixture, name: &str) -> (String, String) {
    let (succeeded, text, error) = run(node, &["--json"]);
    assert!(succeeded, "{error}");
    let report: Value = serde_json::from_str(&text).unwrap();
    let all = report["networks"].as_array().unwrap();
    let found = all
        .iter()
        .find(|one| one["network"] == format!("shop/{name}"));
    let found = found.unwrap_or_else(|| panic!("{name}: {report}"));
    let part = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (part("state"), part("reason"))
}

fn served() -> (String, String) {
    ("serves".to_owned(), String::new())
}

#[test]
fn definitions_are_listed_with_what_the_node_lacks() {
    let node = NodeFixture::new();
    for plugin in ["macvlan", "bridge"] {
        node.install_plugin(plugin);
    }
    define(
        &node,
        "made",
        &json!({"type": "bridge", "bridge": "no-such-bridge"}),
    );
    define(
        &node,
        "lan",
        &json!({"type": "macvlan", "master": "no-such-link"}),
    );
    define(&node, "looped", &json!({"type": "macvlan", "master": "lo"}));
    define(&node, "foreign", &json!({"type": "mystery"}));
    let _daemon = node.start().ready();
    let (succeeded, text, error) = run(&node, &[]);
    assert!(succeeded, "{error}");
    let bin = node.bin_dir();
    let foreign = format!(
        "shop/foreign  cannot   plugin \"mystery\" is in none of {}",
        bin.display()
    );
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with(&foreign), "{text}");
    let expected = [
        "shop/lan      cannot   the node has no link no-such-link, the master of macvlan",
        "shop/looped   cannot   link lo, the master of macvlan, is no Ethernet interface",
        "shop/made     serves",
    ];
    assert_eq!(lines[1..], expected);
    // A plugin or a definition that comes is seen at once.
    node.install_plugin("mystery");
    let (state, reason) = verdict(&node, "foreign");
    assert_eq!(state, "unknown", "{reason}");
    define(&node, "lan", &json!({"type": "bridge"}));
    wait_for("the changed definition", || {
        (verdict(&node, "lan") == served()).then_some(())
    });
}

#[test]
fn plugins_answer_status_once_in_a_minute() {
    let node = NodeFixture::new();
    node.install_plugin("modern");
    node.fail("modern", "STATUS", 50, "no pool is left");
    for name in ["modern", "same"] {
        define(
            &node,
            name,
            &json!({"cniVersion": "1.1.0", "name": "n", "type": "modern"}),
        );
    }
    let _daemon = node.start().ready();
    for name in ["modern", "same"] {
        let (state, reason) = verdict(&node, name);
        assert_eq!(state, "cannot");
        assert!(reason.contains("no pool is left"), "{reason}");
    }
    assert_eq!(node.order(), ["STATUS modern -"]);
}

#[test]
fn devices_are_those_that_kubelet_could_allocate() {
    let node = NodeFixture::new();
    for (name, resource) in [("fast", RESOURCE), ("slow", "vendor.example/other")] {
        node.install_plugin(name);
        let nad = definition_with_resource(name, resource);
        node.api.put(Kind::Definition, nad);
    }
    let _daemon = node.start().ready();
    let (state, reason) = verdict(&node, "fast");
    assert_eq!(state, "unknown");
    assert!(reason.contains("kubelet does not listen"), "{reason}");
    let _kubelet = Kubelet::start(&node.path(SOCKET), Some(&list(&[&["0"]])));
    assert_eq!(verdict(&node, "fast"), served());
    assert_eq!(verdict(&node, "slow").0, "cannot");
    node.api.put(
        Kind::Slice,
        json!({"metadata": {"name": "slice"}, "spec": {"nodeName": crate::node::NODE, "driver": "d", "devices": [
            {"name": "one", "attributes": {"k8s.cni.cncf.io/resourceName": {"string": "vendor.example/other"}}},
        ]}}),
    );
    assert_eq!(verdict(&node, "slow"), served());
}

#[test]
fn node_that_is_not_known_yet_is_said_so() {
    let node = NodeFixture::new();
    node.api.refuse_reads("network-attachment-definitions", 503);
    let _daemon = node.start().listening();
    let (succeeded, text, error) = run(&node, &[]);
    assert!(!succeeded, "{text}");
    assert!(error.contains("not known yet: "), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}
