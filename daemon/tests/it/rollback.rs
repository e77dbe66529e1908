//! An ADD that fails leaves nothing: what was attached is detached in reverse, and the first error is the answer.

use testkit::api_server::Kind;

use crate::{node::Node, wait_for};

fn node_with_failing_ape() -> Node {
    let node = Node::new();
    node.define("zebra");
    node.define("ape");
    node.run_pod(Some("zebra,ape"));
    node.fail("ape", "ADD", 117, "no bananas");
    node
}

#[test]
fn what_was_attached_is_detached_in_reverse() {
    let node = node_with_failing_ape();
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert_eq!(error.code, 117, "the plugin's own");
    let told = ["shop/cart", "\"ape\"", "no bananas"];
    assert!(told.iter().all(|text| error.msg.contains(text)), "{error}");
    let order = [
        "ADD primary pod0",
        "ADD zebra net1",
        "ADD ape net2",
        "DEL ape net2",
        "DEL zebra net1",
        "DEL primary pod0",
    ];
    assert_eq!(node.order(), order);
    assert_eq!(node.state(), (vec![], vec![]));
    assert!(node.api.patches().is_empty());
    let events = node.api.wait_for_events(1);
    assert!(
        events[0].starts_with("FailedAddNetwork: ") && events[0].contains("no bananas"),
        "{events:?}"
    );
}

#[test]
fn what_fails_again_is_counted() {
    let node = node_with_failing_ape();
    let daemon = node.start().ready();
    // Each try is another container with another name, as a runtime's are.
    for times in 1..=3 {
        daemon
            .cni(&node.request("ADD", &format!("c{times}")))
            .error();
        assert_eq!(node.api.wait_for_event_counts(times), [times]);
    }
    // An event that the API server has forgotten is sent anew.
    node.api.expire_events();
    daemon.cni(&node.request("ADD", "c4")).error();
    assert_eq!(node.api.wait_for_event_counts(1), [1]);
}

#[test]
fn an_error_is_short_and_the_log_has_all_of_it() {
    let node = node_with_failing_ape();
    let cause = format!("no bananas{}; plant some", " left".repeat(100));
    node.fail("ape", "ADD", 117, &cause);
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert!(error.to_string().chars().count() < 240, "{error}");
    let told = ["shop/cart", "\"ape\"", "no bananas", "plant some (id "];
    assert!(told.iter().all(|text| error.msg.contains(text)), "{error}");
    let (_, id) = error.msg.rsplit_once("(id ").unwrap();
    let id = id.trim_end_matches(')');
    daemon.until_logged(id, 1);
    let log = daemon.log();
    let line = log.lines().find(|line| line.contains(id));
    assert!(line.unwrap().contains(&cause), "{line:?}");
}

#[test]
fn the_next_try_may_succeed() {
    let node = node_with_failing_ape();
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).error();
    node.heal("ape", "ADD");
    node.take_order();
    daemon.cni(&node.request("ADD", "c1")).result();
    let order = ["ADD primary pod0", "ADD zebra net1", "ADD ape net2"];
    assert_eq!(node.order(), order);
    assert_eq!(node.state().0, ["c1"]);
}

#[test]
fn what_cannot_be_detached_is_left_to_the_runtimes_del() {
    let node = node_with_failing_ape();
    node.fail("zebra", "DEL", 118, "not now");
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert_eq!(error.code, 117, "{error}");
    assert_eq!(node.state().0, ["c1"]);
    node.heal("zebra", "DEL");
    node.take_order();
    daemon.cni(&node.request("DEL", "c1")).done();
    assert_eq!(node.order(), ["DEL zebra net1"]);
    assert_eq!(node.state(), (vec![], vec![]));
}

#[test]
fn what_can_never_be_detached_does_not_keep_the_pod() {
    let node = node_with_failing_ape();
    node.fail("ape", "DEL", 117, "no bananas");
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).error();
    // It refuses DEL as it refused ADD: nothing is attached, so nothing is kept, and nobody hears of something given up.
    assert_eq!(node.state(), (vec![], vec![]));
    node.take_order();
    daemon.cni(&node.request("DEL", "c1")).done();
    assert_eq!(
        node.order(),
        ["DEL ape net2", "DEL zebra net1", "DEL primary pod0"],
        "without state, what the pod would get"
    );
    assert_eq!(node.state(), (vec![], vec![]));
    let log = daemon.log();
    assert!(!log.contains("network given up"), "{log}");
}

#[test]
fn a_status_that_cannot_be_written_undoes_the_add() {
    let node = Node::new();
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    node.api.refuse_patches(Some(403));
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert_eq!(error.code, 11, "{error}");
    let told = [
        "cannot write the network status",
        "shop/cart",
        "refused by the test (code 403)",
    ];
    assert!(told.iter().all(|text| error.msg.contains(text)), "{error}");
    let undone = ["DEL zebra net1", "DEL primary pod0"];
    assert_eq!(node.take_order()[2..], undone);
    assert_eq!(node.state(), (vec![], vec![]));
    let events = node.api.wait_for_events(1);
    assert!(events[0].starts_with("FailedAddNetwork: "), "{events:?}");
    node.api.refuse_patches(None);
    daemon.cni(&node.request("ADD", "c1")).result();
    assert_eq!(node.order(), ["ADD primary pod0", "ADD zebra net1"]);
}

#[test]
fn who_may_not_patch_any_more_may_still_update() {
    let node = Node::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    node.api.refuse_next_patches(403, 1);
    daemon.cni(&node.request("ADD", "c1")).result();
    let (_, written) = &node.api.patches()[0];
    // The whole object, with what it was asked for.
    assert_eq!(written["spec"]["nodeName"], "node-a", "{written}");
    assert!(written["metadata"]["resourceVersion"].is_string());
    let status = &written["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"];
    assert!(status.as_str().unwrap().contains("10.0.0.7"), "{status}");
}

#[test]
fn a_pod_that_went_meanwhile_needs_no_status() {
    let node = Node::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    node.api.refuse_patches(Some(404));
    daemon.cni(&node.request("ADD", "c1")).result();
    // The pod's name has gone to another pod, which makes the uid in the patch a conflict.
    let gate = node.close_gate("primary", "ADD");
    let adding = daemon.cni_meanwhile(&node.request("ADD", "c2"));
    wait_for("the second run", || {
        let runs = node.order();
        (runs == ["ADD primary pod0", "ADD primary pod0"]).then_some(())
    });
    node.api.refuse_patches(Some(409));
    node.api.delete(Kind::Pod, "shop", "cart");
    drop(gate);
    adding.join().unwrap().unwrap().result();
    assert_eq!(node.state().0, ["c1", "c2"]);
}

#[test]
fn a_status_is_written_in_spite_of_conflicts_and_overload() {
    let node = Node::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    for (status, container) in [(409, "c1"), (429, "c2"), (503, "c3")] {
        node.api.refuse_next_patches(status, 3);
        daemon.cni(&node.request("ADD", container)).result();
    }
    assert_eq!(node.api.patches().len(), 3);
    // A conflict that does not end is no pod that has gone.
    node.api.refuse_patches(Some(409));
    let error = daemon.cni(&node.request("ADD", "c4")).error();
    assert!(error.msg.contains("network status"), "{error}");
    assert_eq!(node.state().0, ["c1", "c2", "c3"]);
}
