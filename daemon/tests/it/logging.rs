//! Where the daemon's own log goes.

use std::fs;

use serde_json::json;

use crate::{node::Node, wait_for};

#[test]
fn a_log_file_of_the_node_gets_the_log_and_stderr_nothing() {
    let node = Node::new();
    node.configure(&json!({"logFile": "/var/log/multus/daemon.log", "logToStderr": false}));
    let daemon = node.start().ready();
    let file = node.path("var/log/multus/daemon.log");
    wait_for("a line in the file", || {
        let text = fs::read_to_string(&file).ok()?;
        text.contains("ready").then_some(())
    });
    assert_eq!(daemon.log(), "");
}

#[test]
fn at_level_panic_nothing_is_logged() {
    let node = Node::new();
    node.configure(&json!({"logLevel": "panic"}));
    node.run_pod(None);
    let daemon = node.start().ready();
    // A warning, and an error of a request.
    daemon.cni(&node.request("CHECK", "c9")).error();
    assert_eq!(daemon.log(), "");
}
