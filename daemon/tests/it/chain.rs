//! Plugins that others put beside the primary: a directory named like its list, or like the auxiliary chain.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::json;

use crate::node::Node;

const OWN: &str = "var/lib/multus/bin/passthru";

fn chained(node: &Node, dir: &str, plugins: &[&str]) {
    fs::create_dir_all(node.path("etc/cni/net.d").join(dir)).unwrap();
    for plugin in plugins {
        node.install_plugin(plugin);
        let text = json!({"type": plugin}).to_string();
        node.write(&format!("etc/cni/net.d/{dir}/{plugin}.conf"), &text);
    }
}

#[test]
fn plugins_beside_the_primary_run_after_it_and_are_removed_before_it() {
    let node = Node::new();
    chained(&node, "cbr0", &["tune", "meter"]);
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    daemon.cni(&node.request("CHECK", "c1")).done();
    // Whoever put them there takes them away: what was attached is detached all the same.
    fs::remove_dir_all(node.path("etc/cni/net.d/cbr0")).unwrap();
    daemon.cni(&node.request("DEL", "c1")).done();
    let words = |verb: &str, names: [&str; 3]| names.map(|name| format!("{verb} {name} pod0"));
    let expected = [
        words("ADD", ["primary", "meter", "tune"]),
        words("CHECK", ["primary", "meter", "tune"]),
        words("DEL", ["tune", "meter", "primary"]),
    ];
    assert_eq!(node.order(), expected.concat());
    let calls = node.calls();
    assert_eq!(
        calls[2].stdin["prevResult"]["ips"][0]["address"],
        "10.0.0.5/24"
    );
    assert_eq!(node.state(), (vec![], vec![]));
}

#[test]
fn the_auxiliary_chain_begins_with_passthru_and_ends_with_the_pod() {
    let node = Node::new();
    node.configure(&json!({"auxiliaryCNIChainName": "vendor"}));
    chained(&node, "vendor", &["tune"]);
    // Ours cannot run here: tests look for plugins below a directory and run them without it.
    node.install_plugin("passthru");
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    assert_eq!(node.config()["auxiliaryCNIChainName"], "vendor");
    daemon.cni(&node.request("ADD", "c1")).result();
    daemon.cni(&node.request("DEL", "c1")).done();
    assert_eq!(
        node.order(),
        [
            "ADD primary pod0",
            "ADD zebra net1",
            "ADD passthru net2",
            "ADD tune net2",
            "DEL tune net2",
            "DEL passthru net2",
            "DEL zebra net1",
            "DEL primary pod0"
        ]
    );
    assert_eq!(node.state(), (vec![], vec![]));
}

#[test]
fn without_plugins_there_is_no_auxiliary_chain() {
    let node = Node::new();
    node.configure(&json!({"auxiliaryCNIChainName": "vendor"}));
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    assert_eq!(node.order(), ["ADD primary pod0"]);
}

#[test]
fn a_broken_file_of_a_chain_is_named_and_nothing_runs() {
    let node = Node::new();
    chained(&node, "cbr0", &["tune"]);
    node.write("etc/cni/net.d/cbr0/broken.conf", "{");
    node.run_pod(None);
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert!(error.msg.contains("cbr0/broken.conf"), "{error}");
    assert_eq!(node.order(), [""; 0]);
}

#[test]
fn passthru_is_the_shim_in_a_directory_of_our_own() {
    let node = Node::new();
    let _daemon = node.start().ready();
    assert_eq!(fs::read(node.path(OWN)).unwrap(), b"the shim");
    let mode = fs::metadata(node.path(OWN)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}
