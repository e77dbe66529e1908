//! The daemon's writes about a pod to the API server: the network status and events.

use testkit::api_server::Kind;

use crate::{node::NodeFixture, wait_for};

#[test]
fn expired_event_is_created_again() {
    let node = NodeFixture::new();
    node.define("ape");
    node.run_pod(Some("ape"));
    node.fail("ape", "ADD", 117, "no bananas");
    let daemon = node.start().ready();
    for times in 1..=2 {
        daemon
            .cni(&node.request("ADD", &format!("c{times}")))
            .error();
        assert_eq!(node.api.wait_for_event_counts(times), [times]);
    }
    node.api.expire_events();
    daemon.cni(&node.request("ADD", "c3")).error();
    assert_eq!(node.api.wait_for_event_counts(1), [1]);
}

#[test]
fn refused_network_status_is_reported_and_retried() {
    let node = NodeFixture::new();
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    node.api.refuse_patches(Some(403));
    daemon.cni(&node.request("ADD", "c1")).result();
    let events = node.api.wait_for_events(2);
    let expected = "FailedNetworkStatus: cannot write the network status of pod";
    let is_expected = |event: &String| {
        event.starts_with(expected) && event.contains("refused by the test (code 403)")
    };
    assert!(events.iter().any(is_expected), "{events:?}");
    assert!(node.api.patches().is_empty());
    node.api.refuse_patches(None);
    node.api.wait_for_patches(1);
    assert_eq!(node.order(), ["ADD primary pod0", "ADD zebra net1"]);
    wait_for("the end of the failure", || {
        let failures = daemon.send("GET", api::PATH_FAILURES, b"").body;
        (failures == b"[]").then_some(())
    });
}

#[test]
fn status_that_a_killed_daemon_left_is_written_by_the_next_one() {
    let node = NodeFixture::new();
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    node.api.hang_next_patches(1);
    daemon.cni(&node.request("ADD", "c1")).result();
    node.api.wait_for_request("/status");
    drop(daemon);
    assert!(node.api.patches().is_empty());
    let _next = node.start().ready();
    let (pod, patch) = node.api.wait_for_patches(1).remove(0);
    assert_eq!(pod, "shop/cart");
    let status = &patch["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"];
    assert!(status.as_str().unwrap().contains("shop/zebra"), "{status}");
}

#[test]
fn status_of_a_deleted_container_is_not_retried() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    node.api.refuse_patches(Some(403));
    daemon.cni(&node.request("ADD", "c1")).result();
    node.api.wait_for_events(2);
    daemon.cni(&node.request("DEL", "c1")).done();
    node.api.refuse_patches(None);
    // The next container's status is the only one.
    daemon.cni(&node.request("ADD", "c2")).result();
    node.api.wait_for_patches(1);
    assert_eq!(node.api.patches().len(), 1);
}

#[test]
fn refused_patch_falls_back_to_an_update() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    node.api.refuse_next_patches(403, 1);
    daemon.cni(&node.request("ADD", "c1")).result();
    let (_, written) = &node.api.wait_for_patches(1)[0];
    // An update sends the complete object, with the version that was read.
    assert_eq!(written["spec"]["nodeName"], "node-a", "{written}");
    assert!(written["metadata"]["resourceVersion"].is_string());
    let status = &written["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"];
    assert!(status.as_str().unwrap().contains("10.0.0.7"), "{status}");
}

#[test]
fn add_of_a_deleted_pod_succeeds_without_a_status() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    node.api.refuse_patches(Some(404));
    daemon.cni(&node.request("ADD", "c1")).result();
    // Another pod may take the deleted pod's name: the uid in the patch then makes it a conflict.
    let gate = node.block_plugin("primary", "ADD");
    let adding = daemon.cni_meanwhile(&node.request("ADD", "c2"));
    wait_for("the second ADD of the plugin", || {
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
fn conflicts_and_overload_are_retried() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    for (count, (status, container)) in [(409, "c1"), (429, "c2"), (503, "c3")]
        .into_iter()
        .enumerate()
    {
        node.api.refuse_next_patches(status, 3);
        daemon.cni(&node.request("ADD", container)).result();
        node.api.wait_for_patches(count + 1);
    }
    assert_eq!(node.api.patches().len(), 3);
}
