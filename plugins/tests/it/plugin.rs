//! Starts a plugin.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// Starts a verb of a plugin and writes the configuration to it.
pub(crate) fn start(plugin: &str, verb: &str, container_id: &str, config: &Value) -> Child {
    start_with(plugin, verb, container_id, config, &[])
}

/// The same with more variables in the plugin's environment.
pub(crate) fn start_with(
    plugin: &str,
    verb: &str,
    container_id: &str,
    config: &Value,
    env: &[(&str, &str)],
) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_multus-cni-plugins"))
        .arg0(plugin)
        // Runtimes end a plugin by its process group.
        .process_group(0)
        .env_clear()
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", container_id)
        .env("CNI_NETNS", "/no/such/netns")
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", "/no/such/directory")
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(config.to_string().as_bytes()).unwrap();
    child
}

/// Runs a verb and returns its output with the document on stdout: null when there is none.
#[track_caller]
pub(crate) fn end(child: Child) -> (Output, Value) {
    let output = child.wait_with_output().unwrap();
    let document = if output.stdout.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&output.stdout).unwrap()
    };
    (output, document)
}

/// Runs a verb that must succeed and returns its document.
#[track_caller]
pub(crate) fn succeed(plugin: &str, verb: &str, container_id: &str, config: &Value) -> Value {
    let (output, document) = end(start(plugin, verb, container_id, config));
    assert!(output.status.success(), "{document}");
    document
}

/// Runs a verb that must fail and returns the message of its error.
#[track_caller]
pub(crate) fn fail(plugin: &str, verb: &str, container_id: &str, config: &Value) -> String {
    let (output, document) = end(start(plugin, verb, container_id, config));
    assert!(!output.status.success(), "{document}");
    document["msg"].as_str().unwrap().to_owned()
}
