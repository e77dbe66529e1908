//! The replay of DELs that the shim journaled while no daemon answered: concurrent with other work, but before the pod's next ADD.

use std::fs;

use crate::{
    node::{IFNAME, NodeFixture},
    wait_for,
};

#[test]
fn journaled_del_runs_before_the_next_add_of_its_pod() {
    let node = NodeFixture::new();
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    daemon.kill();
    node.take_order();
    let (id, ifname) = ("c1".parse().unwrap(), IFNAME.parse().unwrap());
    let name = api::journal::file_name(&id, &ifname, "/proc/self/ns/net");
    let entry = node.journal().join(name);
    fs::write(&entry, node.request("DEL", "c1").to_json()).unwrap();

    let gate = node.block_plugin("zebra", "DEL");
    // The daemon is ready once the journal is read, before it is replayed.
    let daemon = node.start().ready();
    node.wait_for_call("DEL zebra net1");
    let adding = daemon.cni_meanwhile(&node.request("ADD", "c2"));
    daemon.cni(&node.request("STATUS", "")).done();
    assert!(!adding.is_finished());
    drop(gate);
    adding.join().unwrap().unwrap().result();
    assert!(!entry.exists());
    assert_eq!(node.state().0, ["c2"]);
    let order = [
        "DEL zebra net1",
        "DEL primary pod0",
        "ADD primary pod0",
        "ADD zebra net1",
    ];
    assert_eq!(node.order(), order);
}

#[test]
fn failing_entry_stays_and_blocks_no_add() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    daemon.kill();
    let dir = node.journal();
    fs::write(dir.join("c1.json"), node.request("DEL", "c1").to_json()).unwrap();
    fs::write(dir.join("c0.json"), "{").unwrap();
    node.fail("primary", "DEL", 118, "not now");
    let daemon = node.start().ready();
    let entries = || {
        let mut names: Vec<_> = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(entries(), ["c0.json.broken", "c1.json"]);
    // The ADD waits only for the first attempt.
    daemon.cni(&node.request("ADD", "c2")).result();
    daemon.kill();
    node.heal("primary", "DEL");
    let daemon = node.start().ready();
    wait_for("the replay", || {
        (entries() == ["c0.json.broken"]).then_some(())
    });
    assert_eq!(node.state().0, ["c2"], "{}", daemon.log());
}

#[test]
fn entry_written_after_the_start_is_replayed() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    // The shim may journal a DEL at the moment at which the daemon starts.
    let entry = node.journal().join("c1.json");
    let temporary = entry.with_file_name(".c1");
    fs::write(&temporary, node.request("DEL", "c1").to_json()).unwrap();
    fs::rename(&temporary, &entry).unwrap();
    wait_for("the replay", || (!entry.exists()).then_some(()));
    assert_eq!(node.order(), ["ADD primary pod0", "DEL primary pod0"]);
    assert_eq!(node.state(), (vec![], vec![]));
}

#[test]
fn del_before_discovery_is_journaled() {
    let node = NodeFixture::new();
    let mut command = node.command();
    // No runtime of this test runs a pod with this uid, so discovery fails.
    command.env("POD_UID", "uid-multus");
    let daemon = node.start_with(command).listening();
    let error = daemon.cni_held(&node.request("ADD", "c1"), 0).not_begun();
    assert_eq!(error.code, 11);
    assert!(error.msg.contains("discovery: "), "{error}");
    let mut request = node.request("DEL", "c1");
    request.env.insert("TOKEN".into(), "secret".into());
    daemon.cni(&request).done();
    let entries = fs::read_dir(node.journal()).unwrap();
    let entries: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries.len(), 1);
    let text = fs::read_to_string(&entries[0]).unwrap();
    assert!(text.contains("c1") && !text.contains("secret"), "{text}");
    drop(daemon);
    // A daemon whose discovery succeeds replays it.
    let _daemon = node.start().ready();
    wait_for("the replay", || (!entries[0].exists()).then_some(()));
}

#[test]
fn long_journal_delays_neither_the_start_nor_other_pods() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    for container in ["own", "other"] {
        daemon.cni(&node.request("ADD", container)).result();
    }
    daemon.kill();
    node.take_order();
    let entry = |container: &str, pod: &str| {
        let mut request = node.request("DEL", container);
        let args = format!("K8S_POD_NAMESPACE=old-{};K8S_POD_NAME={pod}", pod.len() % 3);
        request.env.insert("CNI_ARGS".into(), args);
        let file = node.journal().join(format!("{container}.json"));
        fs::write(file, request.to_json()).unwrap();
    };
    for number in 0..250 {
        entry(&format!("deleted-{number}"), &format!("deleted-{number}"));
    }
    entry("other", "other");
    let gate = node.block_plugin("primary", "DEL");
    let daemon = node.start().ready();
    node.wait_for_call("DEL primary pod0");
    // Another pod does not wait.
    daemon.cni(&node.request("ADD", "new")).result();
    assert!(fs::read_dir(node.journal()).unwrap().count() > 0);
    drop(gate);
    wait_for("the replay", || {
        (fs::read_dir(node.journal()).unwrap().count() == 0).then_some(())
    });
    assert_eq!(node.state().0, ["new", "own"], "{}", daemon.log());
}

#[test]
fn entry_that_keeps_failing_sends_one_event() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    let before = node.api.wait_for_events(1).len();
    daemon.kill();
    node.fail("primary", "DEL", 118, "not now");
    let entry = node.journal().join("c1.json");
    fs::write(&entry, node.request("DEL", "c1").to_json()).unwrap();
    let daemon = node.start().ready();
    daemon.until_logged("it will be retried", 2);
    let log = daemon.log();
    let warnings = log
        .lines()
        .filter(|line| line.contains(" WARN ") && line.contains("not now"));
    assert_eq!(warnings.count(), 2, "one for each attempt: {log}");
    node.heal("primary", "DEL");
    wait_for("the replay", || (!entry.exists()).then_some(()));
    let events = node.api.wait_for_events(before + 1);
    let failures: Vec<_> = events
        .iter()
        .filter(|event| event.starts_with("FailedDelNetwork: "))
        .collect();
    let [failure] = failures[..] else {
        panic!("{events:?}");
    };
    assert!(failure.contains("not now") && failure.ends_with("; it is retried"));
}
