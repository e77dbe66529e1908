//! Two daemons of one node, as in a rolling update, and a deleted socket.

use std::fs;

use rustix::process::Pid;

use crate::{node::NodeFixture, spawner::runs, wait_for};

const SOCKET: &str = "run/multus/multus.sock";
const CONFIGURATION: &str = "etc/cni/net.d/00-multus.conf";

#[test]
fn next_daemon_takes_over_while_the_old_one_finishes() {
    let node = NodeFixture::new();
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let mut old = node.start().ready().by_own_name();
    let gate = node.block_plugin("primary", "ADD");
    let adding = old.cni_meanwhile(&node.request("ADD", "c1"));
    node.wait_for_call("ADD primary pod0");
    let new = node.start().by_own_name().ready();
    old.until_replaced();
    assert_eq!(old.problem(), None, "pods are served");
    old.terminate();
    assert!(!adding.is_finished());
    // The new daemon waits for the container that the old one works on.
    let deleting = new.cni_meanwhile(&node.request("DEL", "c1"));
    drop(gate);
    adding.join().unwrap().unwrap().result();
    deleting.join().unwrap().unwrap().done();
    assert!(old.ended().success());
    assert_eq!(
        node.order(),
        [
            "ADD primary pod0",
            "ADD zebra net1",
            "DEL zebra net1",
            "DEL primary pod0"
        ]
    );
    assert_eq!(node.state(), (vec![], vec![]));
    assert!(node.path(SOCKET).exists() && node.path(CONFIGURATION).exists());
    let found = node.socket("run/multus/multus.sock");
    assert!(
        found.problem().is_none(),
        "the old daemon removed nothing of the new one"
    );
}

#[test]
fn requests_waiting_at_the_old_daemon_are_sent_to_the_new_one() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let old = node.start().ready().by_own_name();
    let gate = node.block_plugin("primary", "ADD");
    let adding = old.cni_meanwhile(&node.request("ADD", "c1"));
    node.wait_for_call("ADD primary pod0");
    // They wait for the ADD of their container.
    let queued = old.cni_held_meanwhile(&node.request("ADD", "c1"), 100_000);
    let deleting = old.cni_held_meanwhile(&node.request("DEL", "c1"), 0);
    let _new = node.start().by_own_name().ready();
    old.until_replaced();
    for waiting in [queued, deleting] {
        assert_eq!(waiting.join().unwrap().unwrap().not_begun().code, 11);
    }
    assert!(!adding.is_finished(), "a verb that has begun goes on");
    drop(gate);
    adding.join().unwrap().unwrap().result();
    let found = node.socket(SOCKET);
    found.cni(&node.request("ADD", "c2")).result();
    assert_eq!(node.state().0, ["c1", "c2"]);
}

#[test]
fn del_waits_for_the_end_of_a_plugin_whose_daemon_was_replaced_and_killed() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let old = node.start().ready().by_own_name();
    let _gate = node.block_plugin("primary", "ADD");
    let _adding = old.cni_meanwhile(&node.request("ADD", "c1"));
    node.wait_for_call("ADD primary pod0");
    let new = node.start().by_own_name().ready();
    old.until_replaced();
    let order = fs::read_to_string(node.path("order")).unwrap();
    let plugin = order.trim().rsplit(' ').next().unwrap();
    let plugin = Pid::from_raw(plugin.parse().unwrap()).unwrap();
    assert!(runs(plugin));
    old.kill();
    new.cni(&node.request("DEL", "c1")).done();
    assert!(!runs(plugin), "{}", new.log());
    assert_eq!(node.state(), (vec![], vec![]));
}

#[test]
fn daemon_that_cannot_serve_does_not_take_over() {
    let mut node = NodeFixture::new();
    let old = node.start().ready().by_own_name();
    node.api.shut_down();
    let new = node.start().by_own_name();
    wait_for("the closed gate", || {
        new.problem()
            .filter(|problem| problem.starts_with("watches: "))
    });
    assert!(old.problem().is_none());
    old.kill();
    // Now it is the only daemon, and deleting a pod needs no API server.
    let found = node.socket(SOCKET);
    wait_for("the new daemon on the socket", || {
        found
            .problem()
            .filter(|problem| problem.contains("watches"))
    });
    found.cni(&node.request("DEL", "c1")).done();
}

#[test]
fn deleted_socket_is_restored() {
    let node = NodeFixture::new();
    let daemon = node.start().ready();
    for deleted in ["multus.sock", "daemon", ""] {
        let dir = node.path("run/multus");
        match deleted {
            "" => fs::remove_dir_all(&dir).unwrap(),
            "daemon" => {
                for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
                    if entry.file_name() != "multus.sock" {
                        fs::remove_file(entry.path()).unwrap();
                    }
                }
            }
            name => fs::remove_file(dir.join(name)).unwrap(),
        }
        wait_for("both names", || {
            let entries = fs::read_dir(&dir).ok()?;
            (entries.count() == 2 && daemon.problem().is_none()).then_some(())
        });
    }
    let stale = fs::read_dir(node.path("run/multus")).unwrap().count();
    drop(daemon);
    // A killed daemon leaves its names behind, and the next one removes them.
    assert_eq!(stale, 2);
    let daemon = node.start().ready();
    let names = fs::read_dir(node.path("run/multus")).unwrap();
    assert_eq!(names.count(), 2);
    assert!(daemon.listens());
}

#[test]
fn old_daemon_takes_the_socket_back_from_a_killed_one() {
    let node = NodeFixture::new();
    let old = node.start().ready().by_own_name();
    let new = node.start().by_own_name().ready();
    old.until_replaced();
    new.kill();
    let found = node.socket(SOCKET);
    wait_for("the old daemon on the socket", || {
        found.problem().is_none().then_some(())
    });
    node.run_pod(None);
    found.cni(&node.request("ADD", "c1")).result();
}
