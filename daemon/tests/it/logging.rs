//! The destination of the daemon's own log.

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::json;

use crate::{node::NodeFixture, wait_for};

#[test]
fn log_file_replaces_stderr() {
    let node = NodeFixture::new();
    node.configure(&json!({"logFile": "/var/log/multus/daemon.log", "logToStderr": false}));
    let daemon = node.start().ready();
    let file = node.path("var/log/multus/daemon.log");
    wait_for("a line in the file", || {
        let text = fs::read_to_string(&file).ok()?;
        text.contains("ready").then_some(())
    });
    assert_eq!(daemon.log(), "");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
}

#[test]
fn level_panic_logs_nothing() {
    let node = NodeFixture::new();
    node.configure(&json!({"logLevel": "panic"}));
    node.run_pod(None);
    let daemon = node.start().ready();
    // A request that fails.
    daemon.cni(&node.request("CHECK", "c9")).error();
    assert_eq!(daemon.log(), "");
}
