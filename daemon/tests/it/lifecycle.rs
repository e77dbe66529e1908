//! Stops and starts of the daemon: what stays, what is finished first, what is removed, and what the next start cleans up.

use std::{fs, io, process::Command, thread::JoinHandle};

use serde_json::json;
use testkit::api_server::{ApiServer, Kind};

use crate::{
    daemon::{Daemon, HttpResponse},
    node::{NODE, NodeFixture, PluginBlock},
    wait_for,
};

const CONFIGURATION: &str = "etc/cni/net.d/00-multus.conf";

#[test]
fn cni_configuration_outlives_the_daemon() {
    let node = NodeFixture::new();
    let mut daemon = node.start().ready();
    let before = fs::read(node.path(CONFIGURATION)).unwrap();
    daemon.terminate();
    assert!(daemon.ended().success());
    assert!(!daemon.listens());
    assert_eq!(fs::read(node.path(CONFIGURATION)).unwrap(), before);
    assert!(node.path("opt/cni/bin/multus-shim").exists());
}

#[test]
fn uninstallation_removes_configuration_and_shim() {
    let node = NodeFixture::new();
    put_daemon_set(&node);
    let mut daemon = owned(&node).ready();
    delete_daemon_set(&node, &daemon, 1);
    assert!(
        node.path(CONFIGURATION).exists(),
        "it is removed when the daemon stops"
    );
    daemon.terminate();
    assert!(daemon.ended().success());
    assert!(!node.path(CONFIGURATION).exists());
    assert!(!node.path("opt/cni/bin/multus-shim").exists());
    assert!(!node.path("var/lib/multus/bin/passthru").exists());
    assert!(node.path("opt/cni/bin/primary").exists());
}

#[test]
fn requests_in_flight_leave_no_lock_file_after_an_uninstallation() {
    let node = NodeFixture::new();
    node.run_pod(None);
    put_daemon_set(&node);
    let gate = node.block_plugin("primary", "ADD");
    let mut daemon = owned(&node).ready();
    let adding = daemon.cni_meanwhile(&node.request("ADD", "c1"));
    node.wait_for_call("ADD primary pod0");
    let deleting = daemon.cni_meanwhile(&node.request("DEL", "c1"));
    delete_daemon_set(&node, &daemon, 1);
    daemon.terminate();
    let configuration = node.path(CONFIGURATION);
    wait_for("the uninstallation", || {
        (!configuration.exists()).then_some(())
    });
    drop(gate);
    adding.join().unwrap().unwrap().result();
    deleting.join().unwrap().unwrap();
    assert!(daemon.ended().success());
    let locks = node.path("var/lib/cni/multus/.multus-rs/container.locks");
    assert!(!locks.exists());
}

#[test]
fn uninstallation_detaches_stale_containers_if_configured() {
    let node = NodeFixture::new();
    node.configure(&json!({"detachOnUninstall": true}));
    node.define("zebra");
    node.run_pod(Some("zebra"));
    put_daemon_set(&node);
    let mut daemon = owned(&node).ready();
    for container in ["c1", "c2"] {
        daemon.cni(&node.request("ADD", container)).result();
    }
    node.lose_namespace("c1");
    node.take_order();
    delete_daemon_set(&node, &daemon, 1);
    daemon.terminate();
    assert!(daemon.ended().success());
    assert_eq!(node.take_order(), ["DEL zebra net1", "DEL primary pod0"]);
    assert!(!node.path(CONFIGURATION).exists());
    let log = daemon.log();
    assert!(log.contains("keeps network shop/zebra on net1"), "{log}");
}

#[test]
fn daemon_set_that_was_never_seen_does_not_count_as_deleted() {
    let node = NodeFixture::new();
    let mut daemon = owned(&node).ready();
    daemon.terminate();
    assert!(daemon.ended().success());
    assert!(node.path(CONFIGURATION).exists());
}

#[test]
fn daemon_set_that_was_created_again_stays() {
    let node = NodeFixture::new();
    node.api.put(
        Kind::DaemonSet,
        json!({"metadata": {"namespace": "kube-system", "name": "multus", "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    let mut daemon = owned(&node).ready();
    daemon.until_logged("DaemonSet is deleted", 1);
    put_daemon_set(&node);
    daemon.terminate();
    assert!(daemon.ended().success());
    assert!(node.path(CONFIGURATION).exists());
    assert!(node.path("opt/cni/bin/multus-shim").exists());
}

#[test]
fn daemon_set_that_was_deleted_counts_as_such_while_the_api_server_does_not_answer() {
    let node = NodeFixture::new();
    node.api.put(
        Kind::DaemonSet,
        json!({"metadata": {"namespace": "kube-system", "name": "multus", "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    let mut daemon = owned(&node).ready();
    daemon.until_logged("DaemonSet is deleted", 1);
    node.api.refuse_reads("/daemonsets", 503);
    daemon.terminate();
    assert!(daemon.ended().success());
    assert!(!node.path(CONFIGURATION).exists());
}

#[test]
fn daemon_set_is_read_and_not_watched() {
    let node = NodeFixture::new();
    put_daemon_set(&node);
    let mut daemon = owned(&node).ready();
    daemon.until_logged(STAYS, 1);
    daemon.terminate();
    assert!(daemon.ended().success());
    assert!(node.path(CONFIGURATION).exists());
    let asks = node.api.requests();
    let reads: Vec<_> = asks
        .iter()
        .filter(|ask| ask.method_and_path.ends_with("/daemonsets"))
        .map(|ask| {
            (
                &ask.method_and_path[..4],
                ask.query.contains("resourceVersion=0"),
            )
        })
        .collect();
    assert_eq!(
        reads,
        [("GET ", true), ("GET ", false)],
        "first from the API server's cache, then its newest version"
    );
}

/// A release that was uninstalled, or rolled back to another chart: the permissions are deleted before the daemons.
#[test]
fn lost_permissions_mean_uninstallation_unless_a_daemon_follows() {
    let check = |pod_is_there: bool, may_read_pods: bool, successor: Option<&str>| {
        let node = NodeFixture::new();
        put_daemon_set(&node);
        node.start().ready().kill();
        let pod = |name: &str, uid: &str, revision: &str, minute: u8, program: &str| {
            json!({
                "metadata": {
                    "namespace": "kube-system", "name": name, "uid": uid,
                    "labels": {"app": "multus", "controller-revision-hash": revision},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "multus", "uid": "set"}],
                    "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z"),
                },
                "spec": {"nodeName": "node-a", "containers": [{"name": "multus", "command": [program]}]},
            })
        };
        if pod_is_there {
            let own = pod("multus-x", "our-uid", "ours", 1, "/multus-daemon");
            node.api.put(Kind::Pod, own);
        }
        let mut command = node.command();
        command.env("POD_UID", "our-uid");
        let mut daemon = owned_with(&node, command);
        daemon.until_logged(STAYS, 1);
        daemon.until_logged(": ready part=Watches", 2);
        if let Some(program) = successor {
            let next = pod("multus-y", "next-uid", "next", 2, program);
            node.api.put(Kind::Pod, next);
        }
        node.api.refuse_reads("/daemonsets", 403);
        if !may_read_pods {
            node.api.refuse_reads("/pods/multus-x", 403);
        }
        daemon.terminate();
        assert!(daemon.ended().success());
        node.path(CONFIGURATION).exists()
    };
    assert!(!check(true, false, None), "the release was uninstalled");
    assert!(!check(true, true, None), "the first node of a roll back");
    assert!(!check(true, true, Some("/thin_entrypoint")), "thin again");
    assert!(check(true, true, Some("/multus-daemon")), "thick again");
    assert!(check(false, false, None), "the pod was deleted by force");
}

/// A changed node selector, label or taint: no daemon follows, and a configuration that stays would let every pod of the node wait.
#[test]
fn daemon_removes_what_it_installed_from_a_node_that_it_leaves() {
    let check = |selector: &str, is_pod_deleted: bool, may_read_nodes: bool| {
        let node = NodeFixture::new();
        select_nodes(&node, selector);
        let mut daemon = own_pod(&node);
        if is_pod_deleted {
            delete_own_pod(&node);
        }
        if !may_read_nodes {
            node.api.refuse_reads(&format!("/nodes/{NODE}"), 403);
        }
        daemon.terminate();
        assert!(daemon.ended().success());
        let stays = node.path(CONFIGURATION).exists();
        assert_eq!(node.path("opt/cni/bin/multus-shim").exists(), stays);
        stays
    };
    assert!(!check("hdd", true, true), "the node is not selected");
    assert!(check("ssd", true, true), "a rolling update");
    assert!(check("hdd", false, true), "the node restarts");
    assert!(check("hdd", true, false), "unknown");
}

/// Puts a DaemonSet that selects nodes by this label, and the node, which has `ssd`.
pub(crate) fn select_nodes(node: &NodeFixture, label: &str) {
    node.api.put(
        Kind::DaemonSet,
        json!({
            "metadata": {"namespace": "kube-system", "name": "multus"},
            "spec": {"template": {"spec": {
                "nodeSelector": {"disk": label},
                "containers": [{"name": "multus", "command": ["/multus-daemon"]}],
            }}},
        }),
    );
    node.api.put(
        Kind::Node,
        json!({"metadata": {"name": NODE, "labels": {"disk": "ssd"}}, "spec": {}}),
    );
}

/// Starts a daemon that knows its DaemonSet and its pod, and waits until it has read both.
pub(crate) fn own_pod(node: &NodeFixture) -> Daemon {
    node.api.put(Kind::Pod, our_pod());
    let mut command = node.command();
    command.env("POD_UID", "our-uid");
    // Discovery without a runtime needs a record.
    let first = node.start().ready();
    let watching = ": ready part=Watches";
    let before = first.log().matches(watching).count();
    first.kill();
    let daemon = owned_with(node, command);
    daemon.until_logged(STAYS, 1);
    daemon.until_logged(watching, before + 1);
    daemon
}

/// Deletes the daemon's own pod as the API server does: it stays until the kubelet has ended it.
pub(crate) fn delete_own_pod(node: &NodeFixture) {
    let mut pod = our_pod();
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    node.api.put(Kind::Pod, pod);
}

fn our_pod() -> serde_json::Value {
    json!({
        "metadata": {"namespace": "kube-system", "name": "multus-x", "uid": "our-uid"},
        "spec": {"nodeName": NODE},
    })
}

/// Starts a daemon that knows its DaemonSet.
fn owned(node: &NodeFixture) -> Daemon {
    owned_with(node, node.command())
}

pub(crate) fn owned_with(node: &NodeFixture, mut command: Command) -> Daemon {
    command
        .env("POD_NAMESPACE", "kube-system")
        .env("MULTUS_DAEMONSET", "multus");
    node.start_with(command)
}

pub(crate) fn put_daemon_set(node: &NodeFixture) {
    node.api.put(
        Kind::DaemonSet,
        json!({"metadata": {"namespace": "kube-system", "name": "multus"}}),
    );
}

/// The log message of a daemon that has read its DaemonSet.
const STAYS: &str = "this daemon's DaemonSet stays";

/// Waits until this many daemons have read their DaemonSet, and deletes it.
pub(crate) fn delete_daemon_set(node: &NodeFixture, daemon: &Daemon, seen: usize) {
    daemon.until_logged(STAYS, seen);
    node.api.delete(Kind::DaemonSet, "kube-system", "multus");
}

#[test]
fn uninstallation_needs_only_the_record() {
    let node = NodeFixture::new();
    put_daemon_set(&node);
    node.start().ready().kill();
    node.write("daemon-config.json", "{}");
    let mut daemon = owned(&node);
    wait_for("failed discovery", || {
        daemon
            .problem()
            .filter(|problem| problem.contains("no container runtime"))
    });
    delete_daemon_set(&node, &daemon, 1);
    daemon.terminate();
    assert!(daemon.ended().success());
    assert!(!node.path(CONFIGURATION).exists());
    assert!(!node.path("opt/cni/bin/multus-shim").exists());
}

#[test]
fn replaced_daemon_removes_nothing() {
    let node = NodeFixture::new();
    put_daemon_set(&node);
    let mut old = owned(&node).ready().by_own_name();
    let mut new = owned(&node).by_own_name().ready();
    old.until_replaced();
    delete_daemon_set(&node, &old, 2);
    old.terminate();
    assert!(old.ended().success());
    assert!(node.path(CONFIGURATION).exists());
    assert!(node.path("opt/cni/bin/multus-shim").exists());
    new.terminate();
    assert!(new.ended().success());
    assert!(!node.path(CONFIGURATION).exists());
    assert!(!node.path("opt/cni/bin/multus-shim").exists());
}

/// A daemon with an ADD in flight, and the gate that blocks its plugin.
type Adding = (Daemon, PluginBlock, JoinHandle<io::Result<HttpResponse>>);

/// Starts a daemon and blocks it in an ADD.
fn adding(node: &NodeFixture) -> Adding {
    let gate = node.block_plugin("primary", "ADD");
    let daemon = node.start().ready();
    let adding = daemon.cni_meanwhile(&node.request("ADD", "c1"));
    node.wait_for_call("ADD primary pod0");
    (daemon, gate, adding)
}

/// The same after SIGTERM.
fn ending(node: &NodeFixture) -> Adding {
    let adding = adding(node);
    let daemon = &adding.0;
    daemon.terminate();
    wait_for("the shutdown", || {
        daemon
            .problem()
            .filter(|problem| problem.contains("shutting down"))
    });
    adding
}

#[test]
fn add_in_flight_is_finished_before_the_end() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let (mut daemon, gate, adding) = ending(&node);
    drop(gate);
    let result = adding.join().unwrap().unwrap().result();
    assert_eq!(result.ips[0].address, "10.0.0.7/24");
    assert!(daemon.ended().success());
    assert_eq!(node.api.patches().len(), 1);
    assert_eq!(node.state().0, ["c1"]);
}

#[test]
fn abandoned_add_is_undone() {
    let node = NodeFixture::new();
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let gate = node.block_plugin("primary", "ADD");
    let daemon = node.start().ready();
    let abandoned = daemon.cni_and_leave(&node.request("ADD", "c1"));
    node.wait_for_call("ADD primary pod0");
    drop(abandoned);
    daemon.until_logged("a client disconnected", 1);
    // It waits for the ADD, which holds the container.
    let deleting = daemon.cni_meanwhile(&node.request("DEL", "c1"));
    drop(gate);
    deleting.join().unwrap().unwrap().done();
    wait_for("the undone ADD", || {
        let order = node.order();
        assert!(!order.contains(&"ADD zebra net1".to_owned()), "{order:?}");
        (order.len() >= 2).then_some(())
    });
    assert_eq!(node.state(), (vec![], vec![]));
    assert!(node.api.patches().is_empty());
}

#[test]
fn add_waits_for_the_watches_and_del_does_not() {
    let node = NodeFixture::with(ApiServer::start_without_lists());
    node.install_primary();
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let daemon = node.start().listening();
    let adding = daemon.cni_meanwhile(&node.request("ADD", "c1"));
    daemon.cni(&node.request("DEL", "c2")).done();
    assert!(!adding.is_finished());
    node.api.answer_lists();
    adding.join().unwrap().unwrap().result();
    assert_eq!(node.order(), ["ADD primary pod0", "ADD zebra net1"]);
}

#[test]
fn del_is_served_during_the_shutdown() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let (mut daemon, gate, adding) = ending(&node);
    daemon.cni(&node.request("DEL", "c2")).done();
    drop(gate);
    adding.join().unwrap().unwrap().result();
    assert!(daemon.ended().success());
    assert!(!daemon.listens());
}

#[test]
fn slow_plugin_delays_only_its_own_container() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.take_order();
    let gate = node.block_plugin("primary", "ADD");
    let adding = daemon.cni_meanwhile(&node.request("ADD", "c2"));
    node.wait_for_call("ADD primary pod0");
    daemon.cni(&node.request("CHECK", "c1")).done();
    daemon.cni(&node.request("DEL", "c1")).done();
    assert!(!adding.is_finished());
    drop(gate);
    adding.join().unwrap().unwrap().result();
    assert_eq!(node.state().0, ["c2"]);
}

#[test]
fn next_daemon_detaches_networks_of_the_killed_one() {
    let mut node = NodeFixture::new();
    node.define("zebra");
    node.run_pod(Some("zebra@stripes"));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    daemon.kill();
    node.take_order();
    node.api.shut_down();
    let daemon = node.start();
    wait_for("a replayed journal", || {
        daemon
            .problem()
            .filter(|problem| problem.starts_with("watches: "))
    });
    daemon.cni(&node.request("DEL", "c1")).done();
    assert_eq!(node.order(), ["DEL zebra stripes", "DEL primary pod0"]);
    assert_eq!(node.state(), (vec![], vec![]));
}

#[test]
fn interrupted_add_is_undone_by_the_next_daemon() {
    let node = NodeFixture::new();
    node.define("zebra");
    node.define("ape");
    node.run_pod(Some("zebra,ape"));
    let gate = node.block_plugin("zebra", "ADD");
    let daemon = node.start().ready();
    let adding = daemon.cni_meanwhile(&node.request("ADD", "c1"));
    node.wait_for_call("ADD zebra net1");
    daemon.kill();
    adding.join().unwrap().unwrap_err();
    drop(gate);
    let daemon = node.start().ready();
    node.take_order();
    daemon.cni(&node.request("DEL", "c1")).done();
    // The plugin ape was never started.
    assert_eq!(node.order(), ["DEL zebra net1", "DEL primary pod0"]);
    assert_eq!(node.state(), (vec![], vec![]));
}

#[test]
fn start_detaches_only_stale_containers() {
    let node = NodeFixture::new();
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    for container in ["c1", "c2"] {
        daemon.cni(&node.request("ADD", container)).result();
    }
    daemon.kill();
    node.take_order();
    node.lose_namespace("c1");
    let daemon = node.start().ready();
    wait_for("the sweep", || (node.state().0 == ["c2"]).then_some(()));
    daemon.until_logged("searched for stale containers", 2);
    assert_eq!(node.order(), ["DEL zebra net1", "DEL primary pod0"]);
    assert_eq!(
        node.state(),
        (vec!["c2".to_owned()], vec!["c2.json".to_owned()])
    );
    let netns = |call: &crate::node::PluginCall| call.env.get("CNI_NETNS").cloned();
    assert!(
        node.calls()
            .iter()
            .all(|call| netns(call).is_none_or(|netns| netns.is_empty()))
    );
}

#[test]
fn stale_container_that_cannot_be_detached_is_tried_again() {
    let node = NodeFixture::new();
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    daemon.kill();
    node.take_order();
    node.lose_namespace("c1");
    node.fail("zebra", "DEL", 100, "the fabric does not answer");
    let daemon = node.start().ready();
    daemon.until_logged("cannot detach a stale container", 1);
    assert_eq!(node.state().0, ["c1"]);
    node.heal("zebra", "DEL");
    wait_for("another try", || node.state().0.is_empty().then_some(()));
    let order = node.order();
    assert_eq!(order.last().unwrap(), "DEL zebra net1", "{order:?}");
}

#[test]
fn orphaned_plugin_is_ended_by_the_next_daemon() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let (daemon, gate, adding) = adding(&node);
    daemon.kill();
    adding.join().unwrap().unwrap_err();
    let order = fs::read_to_string(node.path("order")).unwrap();
    let pid = order.trim().rsplit_once(' ').unwrap().1;
    let lives = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    assert!(lives(), "it waits at the gate");
    let daemon = node.start().listening();
    assert!(!lives(), "before the first request is answered");
    drop(gate);
    let daemon = daemon.ready();
    daemon.cni(&node.request("DEL", "c1")).done();
    assert_eq!(node.order(), ["ADD primary pod0", "DEL primary pod0"]);
    assert_eq!(node.state(), (vec![], vec![]));
}

#[test]
fn unreachable_api_server_is_explained_in_the_log() {
    let mut node = NodeFixture::new();
    node.api.shut_down();
    let daemon = node.start();
    let is_warning = |line: &&str| line.contains("the watch was interrupted");
    wait_for("a warning", || {
        daemon
            .log()
            .lines()
            .any(|line| is_warning(&line))
            .then_some(())
    });
    let log = daemon.log();
    for line in log.lines().filter(is_warning) {
        assert!(line.contains("cannot connect to 127.0.0.1:"), "{line}");
        assert!(line.contains("onnection refused"), "{line}");
    }
}
