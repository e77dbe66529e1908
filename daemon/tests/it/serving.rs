//! Requests that are held, queued or abandoned before their verb begins.

use std::{os::unix::net::UnixStream, process::Command};

use api::Request;
use serde_json::json;
use testkit::api_server::{ApiServer, Kind};

use crate::{
    daemon::Daemon,
    node::{NODE, NodeFixture, PluginBlock, pod},
    wait_for,
};

/// Longer than any test.
const LONG: u32 = 100_000;

/// A daemon whose watches have not been answered yet.
fn starting() -> (NodeFixture, Daemon) {
    let node = NodeFixture::with(ApiServer::start_without_lists());
    node.install_primary();
    node.run_pod(None);
    let daemon = node.start().listening();
    (node, daemon)
}

#[test]
fn early_add_is_served_once_the_daemon_is_ready() {
    let (node, daemon) = starting();
    let adding = daemon.cni_held_meanwhile(&node.request("ADD", "c1"), LONG);
    let checking = daemon.cni_held_meanwhile(&node.request("CHECK", "c2"), LONG);
    // Upstream's shim polls `/readyz`.
    assert!(daemon.problem().is_some());
    daemon.cni(&node.request("DEL", "c3")).done();
    let status = daemon.cni(&node.request("STATUS", "")).error();
    assert_eq!(status.code, 50);
    assert!(status.msg.contains("watches: "), "{status}");
    assert!(!adding.is_finished() && !checking.is_finished());
    assert_eq!(node.order(), [""; 0]);
    node.api.answer_lists();
    adding.join().unwrap().unwrap().result();
    assert_eq!(checking.join().unwrap().unwrap().error().code, 3);
    assert_eq!(daemon.problem(), None);
}

#[test]
fn status_reports_no_problem_while_a_daemon_restarts() {
    let mut node = NodeFixture::new();
    node.start().ready().kill();
    node.api.shut_down();
    let daemon = node.start().listening();
    assert!(daemon.problem().is_some());
    daemon.cni(&node.request("STATUS", "")).done();
}

#[test]
fn add_that_times_out_reports_that_nothing_was_begun() {
    let (node, daemon) = starting();
    let error = daemon.cni_held(&node.request("ADD", "c1"), 1).not_begun();
    assert_eq!(error.code, 11);
    assert!(error.msg.contains("watches: "), "{error}");
    assert_eq!(node.order(), [""; 0]);
}

#[test]
fn held_requests_need_no_threads() {
    let (node, daemon) = starting();
    let callers: Vec<_> = (0..250)
        .map(|number| daemon.cni_held_and_leave(&node.request("ADD", &format!("c{number}"))))
        .collect();
    daemon.cni(&node.request("DEL", "other")).done();
    assert!(
        daemon.status("Threads") < 20,
        "{}",
        daemon.status("Threads")
    );
    drop(callers);
    daemon.until_logged("a client disconnected", 250);
}

#[test]
fn held_add_is_released_by_the_shutdown() {
    let (node, mut daemon) = starting();
    let adding = daemon.cni_held_meanwhile(&node.request("ADD", "c1"), LONG);
    wait_for("the held ADD", || {
        (!adding.is_finished()).then(|| daemon.cni(&node.request("DEL", "c2")).done())
    });
    daemon.terminate();
    let error = adding.join().unwrap().unwrap().not_begun();
    assert!(error.msg.contains("shutting down"), "{error}");
    assert!(daemon.ended().success());
    assert_eq!(node.order(), [""; 0]);
}

/// A node with four slots, whose plugin hangs.
fn hanging(version: &str) -> (NodeFixture, Daemon, PluginBlock) {
    let node = NodeFixture::with(ApiServer::start());
    node.install_primary_of(version);
    node.configure(&json!({"verbsAtOnce": 4}));
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "known")).result();
    node.take_order();
    let gate = node.block_plugin("primary", "ADD");
    (node, daemon, gate)
}

fn in_another_namespace(mut request: Request) -> Request {
    let args = "K8S_POD_NAMESPACE=other;K8S_POD_NAME=cart".to_owned();
    request.env.insert("CNI_ARGS".to_owned(), args);
    request
}

fn adds(node: &NodeFixture) -> usize {
    let is_add = |call: &&String| *call == "ADD primary pod0";
    node.order().iter().filter(is_add).count()
}

#[test]
fn hanging_plugins_block_only_their_own_namespace() {
    let (node, daemon, gate) = hanging("1.1.0");
    let before = daemon.status("VmRSS");
    let callers: Vec<UnixStream> = (0..250)
        .map(|number| daemon.cni_held_and_leave(&node.request("ADD", &format!("c{number}"))))
        .collect();
    wait_for("two running ADDs", || (adds(&node) >= 2).then_some(()));
    daemon.cni(&node.request("STATUS", "")).done();
    daemon.cni(&node.request("CHECK", "known")).done();
    assert_eq!(daemon.problem(), None);
    let deleting = in_another_namespace(node.request("DEL", "known"));
    daemon.cni(&deleting).done();
    let mut other = pod(NODE, None);
    other["metadata"]["namespace"] = json!("other");
    node.api.put(Kind::Pod, other);
    let adding = in_another_namespace(node.request("ADD", "other"));
    let adding = daemon.cni_held_and_leave(&adding);
    wait_for("the ADD of another namespace", || {
        let mut calls = node.calls().into_iter();
        let is_other = |id: &String| id == "other";
        calls.find(|call| call.env.get("CNI_CONTAINERID").is_some_and(is_other))
    });
    // After three seconds each running ADD makes room for another one, up to half of the maximum.
    assert!(adds(&node) <= 8 + 1, "the others wait");
    assert!(
        daemon.status("Threads") < 30,
        "{}",
        daemon.status("Threads")
    );
    let grown = daemon.status("VmRSS").saturating_sub(before);
    println!("250 requests: {grown} kB more than {before} kB");
    assert!(grown < 12_000, "250 requests take {grown} kB");
    // Requests that leave the queue are never begun.
    drop((callers, adding));
    daemon.until_logged("a client disconnected", 251);
    drop(gate);
    daemon.cni(&node.request("ADD", "last")).result();
    assert!(adds(&node) <= 8 + 2, "{}", adds(&node));
    wait_for("the undone ADDs", || {
        (node.state().0 == ["last"]).then_some(())
    });
}

#[test]
fn abandoned_del_leaves_the_queue() {
    let (node, daemon, gate) = hanging("1.0.0");
    let adding = daemon.cni_meanwhile(&node.request("ADD", "c0"));
    node.wait_for_call("ADD primary pod0");
    // It waits for the ADD of its container.
    let abandoned = daemon.cni_held_and_leave(&node.request("DEL", "c0"));
    // It is in the queue once a later request is served.
    daemon.cni(&node.request("STATUS", "")).done();
    drop(abandoned);
    daemon.until_logged("a client disconnected", 1);
    drop(gate);
    adding.join().unwrap().unwrap().result();
    daemon.cni(&node.request("DEL", "known")).done();
    assert_eq!(node.state().0, ["c0"]);
}

#[test]
fn del_that_waits_for_an_add_takes_no_slot() {
    let (node, daemon, gate) = hanging("1.0.0");
    let adding = daemon.cni_meanwhile(&node.request("ADD", "c1"));
    node.wait_for_call("ADD primary pod0");
    let deleting: Vec<_> = (0..8)
        .map(|_| daemon.cni_meanwhile(&node.request("DEL", "c1")))
        .collect();
    daemon.cni(&node.request("DEL", "known")).done();
    assert!(deleting.iter().all(|deleting| !deleting.is_finished()));
    drop(gate);
    adding.join().unwrap().unwrap().result();
    for deleting in deleting {
        deleting.join().unwrap().unwrap().done();
    }
    assert_eq!(node.state().0, [""; 0]);
}

#[test]
fn daemon_has_a_higher_file_limit_than_its_plugins() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.command();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ulimit -S -n 128; exec \"$@\"", "sh"]);
    command.arg(daemon.get_program()).args(daemon.get_args());
    command.env_clear();
    command.envs(
        daemon
            .get_envs()
            .filter_map(|(key, value)| Some((key, value?))),
    );
    let daemon = node.start_with(command).ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    let limits = daemon.limits();
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words: Vec<_> = files.unwrap().split_whitespace().collect();
    assert_eq!(words[3], words[4], "{limits}");
    assert_eq!(node.calls()[0].env["OPEN_FILES"], "128");
}
