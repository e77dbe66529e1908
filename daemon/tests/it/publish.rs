//! The option `publish`: labels of the Node, and files for Node Feature Discovery, that say which definitions the node can serve.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::Path,
    time::Duration,
};

use api::node_labels::PREFIX;
use serde_json::{Value, json};
use testkit::{api_server::Kind, kubelet::DevicePlugins};

use crate::{
    node::{NODE, NodeFixture},
    wait_for,
};

const FEATURES: &str = "etc/kubernetes/node-feature-discovery/features.d";

/// A node that publishes in this way, with a label of somebody else and one of a definition that is gone.
pub(crate) fn node(publish: &str) -> NodeFixture {
    let node = NodeFixture::new();
    node.configure(&json!({"publish": publish, "ownPlugins": {"install": false}}));
    put_node(&node);
    node
}

fn put_node(node: &NodeFixture) {
    let labels = json!({"disk": "ssd", label("gone"): "serves"});
    let object = json!({"metadata": {"name": NODE, "labels": labels}});
    node.api.put(Kind::Node, object);
}

fn label(name: &str) -> String {
    format!("{PREFIX}shop.{name}")
}

/// A definition that needs nothing but the plugin `bridge`.
fn define(node: &NodeFixture, name: &str) {
    define_with(node, name, "1.0.0", "bridge");
}

fn define_with(node: &NodeFixture, name: &str, version: &str, plugin: &str) {
    let config = json!({"cniVersion": version, "name": name, "type": plugin}).to_string();
    let nad = json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"config": config}});
    node.api.put(Kind::Definition, nad);
}

/// Waits until the Node has these labels for definitions, and the one of somebody else.
pub(crate) fn until_labelled(node: &NodeFixture, expected: &[(&str, &str)]) {
    let mut labels = json!({"disk": "ssd"});
    for (name, value) in expected {
        labels[label(name)] = json!(value);
    }
    wait_for("the labels", || {
        let nodes = node.api.objects(Kind::Node);
        let found = nodes.first()?;
        (found["metadata"]["labels"] == labels).then_some(())
    });
}

/// The changes of the Node that the daemon has asked for.
fn changes(node: &NodeFixture) -> Vec<Value> {
    let requests = node.api.requests().into_iter();
    let path = format!("PATCH /api/v1/nodes/{NODE}");
    let own = requests.filter(|request| request.method_and_path == path);
    own.map(|request| request.body["metadata"]["labels"].clone())
        .collect()
}

#[test]
fn labels_follow_definitions_plugins_and_the_node() {
    let node = node("labels");
    define(&node, "lan");
    let daemon = node.start().ready();
    until_labelled(&node, &[]);
    node.install_plugin("bridge");
    until_labelled(&node, &[("lan", "serves")]);
    define(&node, "storage");
    until_labelled(&node, &[("lan", "serves"), ("storage", "serves")]);
    node.api.delete(Kind::Definition, "shop", "storage");
    until_labelled(&node, &[("lan", "serves")]);
    let expected = [
        json!({label("gone"): null}),
        json!({label("lan"): "serves"}),
        json!({label("storage"): "serves"}),
        json!({label("storage"): null}),
    ];
    assert_eq!(changes(&node), expected);
    // The kubelet makes the Node anew.
    node.api.delete(Kind::Node, "", NODE);
    put_node(&node);
    until_labelled(&node, &[("lan", "serves")]);
    fs::remove_file(node.bin_dir().join("bridge")).unwrap();
    until_labelled(&node, &[]);
    assert!(!daemon.log().contains("cannot publish"), "{}", daemon.log());
}

#[test]
fn definition_with_a_long_name_gets_an_event_and_no_label() {
    let node = node("labels");
    node.install_plugin("bridge");
    let name = format!("lan-{}", "a".repeat(60));
    define(&node, &name);
    define(&node, "lan");
    let daemon = node.start().ready();
    until_labelled(&node, &[("lan", "serves")]);
    let events = node.api.wait_for_events(1);
    let expected = "NameTooLong: no node has a label or resource for this network: namespace and name have 68 characters together, and its name has at most 62";
    assert_eq!(events, [expected]);
    // Another daemon does not repeat it.
    daemon.kill();
    let daemon = node.start().ready();
    define(&node, "other");
    until_labelled(&node, &[("lan", "serves"), ("other", "serves")]);
    assert_eq!(node.api.wait_for_events(1).len(), 1);
    assert!(!daemon.log().contains("cannot report"), "{}", daemon.log());
}

#[test]
fn definition_with_a_malformed_selector_gets_an_event() {
    let node = node("labels");
    node.install_plugin("bridge");
    let select = |selector: &str| {
        let config = json!({"cniVersion": "1.0.0", "name": "lan", "type": "bridge"}).to_string();
        let annotations = json!({"k8s.v1.cni.cncf.io/nodeSelector": selector});
        let metadata = json!({"namespace": "shop", "name": "lan", "annotations": annotations});
        let nad = json!({"metadata": metadata, "spec": {"config": config}});
        node.api.put(Kind::Definition, nad);
    };
    select("disk");
    let daemon = node.start().ready();
    let events = node.api.wait_for_events(1);
    let expected = "NodeSelectorInvalid: the annotation k8s.v1.cni.cncf.io/nodeSelector is \"disk\", so pods do not get it: write one label as key=value";
    assert_eq!(events, [expected]);
    // Another malformed text is another fault.
    select("ssd");
    let events = node.api.wait_for_events(2);
    assert_eq!(events[1], expected.replace("disk", "ssd"));
    select("disk=ssd");
    until_labelled(&node, &[("lan", "serves")]);
    assert_eq!(node.api.wait_for_events(2).len(), 2);
    assert!(!daemon.log().contains("cannot report"), "{}", daemon.log());
}

#[test]
fn refused_labels_are_reported_and_tried_again() {
    let node = node("labels");
    node.install_plugin("bridge");
    define(&node, "lan");
    node.api
        .refuse_next_reads(&format!("/nodes/{NODE}"), 403, 2);
    let daemon = node.start().ready();
    daemon.until_logged("cannot publish which networks this node can serve", 1);
    until_labelled(&node, &[("lan", "serves")]);
    wait_for("the note is gone", || {
        let output = node.command().arg("status").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (!text.contains("cannot publish")).then_some(())
    });
}

/// Waits until the file for Node Feature Discovery says that the node serves exactly these definitions.
fn until_in_file(node: &NodeFixture, names: &[&str]) {
    let line = |name: &&str| format!("{}=serves\n", label(name));
    let expected: String = names.iter().map(line).collect();
    let file = node.path(FEATURES).join("multus-rs");
    wait_for("the file", || {
        let text = fs::read_to_string(&file).ok()?;
        (text == expected).then_some(())
    });
}

#[test]
fn features_are_a_file_that_goes_with_the_option() {
    let node = node("features");
    node.install_plugin("bridge");
    define(&node, "lan");
    let daemon = node.start().ready();
    let file = node.path(FEATURES).join("multus-rs");
    until_in_file(&node, &["lan"]);
    assert_eq!(changes(&node), [json!(null); 0]);
    daemon.kill();
    node.configure(&json!({"publish": "none"}));
    let daemon = node.start().ready();
    wait_for("the file is gone", || (!file.exists()).then_some(()));
    daemon.kill();
    // An uninstallation removes what a killed daemon has left.
    fs::write(&file, "").unwrap();
    let uninstalled = node.command().arg("uninstall").output().unwrap();
    assert!(uninstalled.status.success(), "{uninstalled:?}");
    assert!(!file.exists());
}

#[test]
fn reader_of_features_that_is_deaf_for_a_second_hears_of_a_change_afterwards() {
    let node = node("features");
    node.install_plugin("bridge");
    define(&node, "lan");
    let _daemon = node.start().ready();
    until_in_file(&node, &["lan"]);
    let dir = node.path(FEATURES);
    let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let end = modified(&dir.join("multus-rs")) + Duration::from_secs(1);
    wait_for("the change", || (modified(&dir) > end).then_some(()));
    wait_for("nothing but the file", || {
        let files = fs::read_dir(&dir).unwrap().count();
        (files == 1).then_some(())
    });
}

#[test]
fn status_that_a_report_hears_is_published_at_once() {
    let node = node("features");
    node.install_plugin("bridge");
    node.install_plugin("modern");
    let plugin = node.bin_dir().join("modern");
    // The daemon does not watch where the link leads.
    let [target, hidden] = ["calls/modern", "calls/hidden"].map(|name| node.path(name));
    fs::rename(&plugin, &hidden).unwrap();
    symlink(&target, &plugin).unwrap();
    // It watches the node's root, where plugins would create this file.
    node.write("order", "");
    let _daemon = node.start().ready();
    define_with(&node, "new", "1.1.0", "modern");
    define(&node, "lan");
    until_in_file(&node, &["lan"]);
    fs::rename(&hidden, &target).unwrap();
    let report = node.command().arg("networks").output().unwrap();
    assert!(report.status.success(), "{report:?}");
    until_in_file(&node, &["lan", "new"]);
    assert_eq!(node.order(), ["STATUS modern -"]);
}

#[test]
fn plugin_that_becomes_executable_is_published_and_runs_status_once() {
    let node = node("features");
    node.install_plugin("bridge");
    node.install_plugin("modern");
    let plugin = node.bin_dir().join("modern");
    // Each STATUS makes a file in the directory of plugins, which the daemon watches.
    let script = fs::read_to_string(&plugin).unwrap() + "\n: >\"$0.$$\"\n";
    fs::write(&plugin, script).unwrap();
    let set_mode = |mode| fs::set_permissions(&plugin, PermissionsExt::from_mode(mode)).unwrap();
    set_mode(0o644);
    let _daemon = node.start().ready();
    define_with(&node, "new", "1.1.0", "modern");
    define(&node, "lan");
    until_in_file(&node, &["lan"]);
    set_mode(0o755);
    until_in_file(&node, &["lan", "new"]);
    define(&node, "storage");
    until_in_file(&node, &["lan", "new", "storage"]);
    assert_eq!(node.order(), ["STATUS modern -"]);
}

/// Waits until the kubelet has devices for exactly these definitions.
fn until_offered(kubelet: &DevicePlugins, names: &[&str]) {
    let expected = names.iter().map(|name| (label(name), 1000)).collect();
    wait_for("the devices", || {
        (kubelet.devices() == expected).then_some(())
    });
}

#[test]
fn resources_follow_definitions_and_each_kubelet_that_starts() {
    let node = node("resources");
    node.install_plugin("bridge");
    let kubelet_dir = node.path("var/lib/kubelet");
    let sockets = kubelet_dir.join("device-plugins");
    let mut kubelet = DevicePlugins::start(&kubelet_dir);
    // A daemon that was killed left it.
    let dead = sockets.join("multus-rs-1.sock");
    drop(UnixListener::bind(&dead).unwrap());
    define(&node, "lan");
    let mut daemon = node.start().ready();
    until_offered(&kubelet, &["lan"]);
    assert!(!dead.exists());
    define(&node, "storage");
    until_offered(&kubelet, &["lan", "storage"]);
    node.api.delete(Kind::Definition, "shop", "lan");
    until_offered(&kubelet, &["storage"]);
    drop(kubelet);
    daemon.until_logged("cannot offer the kubelet", 1);
    kubelet = DevicePlugins::start(&kubelet_dir);
    until_offered(&kubelet, &["storage"]);
    let own = |name: &str| name.starts_with("multus-rs-");
    let names = fs::read_dir(&sockets).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| own(name)).count(), 1);
    daemon.kill();
    until_offered(&kubelet, &[]);
    daemon = node.start().ready();
    until_offered(&kubelet, &["storage"]);
    fs::remove_file(node.bin_dir().join("bridge")).unwrap();
    until_offered(&kubelet, &[]);
    assert_eq!(changes(&node), [json!(null); 0]);
    daemon.terminate();
    assert!(daemon.ended().success());
    let count = || fs::read_dir(&sockets).unwrap().count();
    assert_eq!(count(), 1, "sockets are left beside the kubelet's");
    drop(UnixListener::bind(&dead).unwrap());
    let uninstalled = node.command().arg("uninstall").output().unwrap();
    assert!(uninstalled.status.success(), "{uninstalled:?}");
    assert_eq!(count(), 1, "uninstall leaves the socket of a killed daemon");
}
