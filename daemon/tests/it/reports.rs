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
fn refused_network_status_undoes_the_add() {
    let node = NodeFixture::new();
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    node.api.refuse_patches(Some(403));
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert_eq!(error.code, 11, "{error}");
    let parts = [
        "cannot write the network status",
        "shop/cart",
        "refused by the test (code 403)",
    ];
    assert!(parts.iter().all(|text| error.msg.contains(text)), "{error}");
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
fn refused_patch_falls_back_to_an_update() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    node.api.refuse_next_patches(403, 1);
    daemon.cni(&node.request("ADD", "c1")).result();
    let (_, written) = &node.api.patches()[0];
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
    for (status, container) in [(409, "c1"), (429, "c2"), (503, "c3")] {
        node.api.refuse_next_patches(status, 3);
        daemon.cni(&node.request("ADD", container)).result();
    }
    assert_eq!(node.api.patches().len(), 3);
    // A pod that still exists makes a lasting conflict an error.
    node.api.refuse_patches(Some(409));
    let error = daemon.cni(&node.request("ADD", "c4")).error();
    assert!(error.msg.contains("network status"), "{error}");
    assert_eq!(node.state().0, ["c1", "c2", "c3"]);
}
