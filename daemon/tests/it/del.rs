//! DEL: from the state alone, whatever has become of pod, definitions and API server, and as often as the runtime likes.

use testkit::api_server::Kind;

use crate::{node::Node, wait_for};

fn attached() -> Node {
    let node = Node::new();
    node.define("zebra");
    node.define("ape");
    node.run_pod(Some("zebra,ape@second"));
    node
}

const DETACHED: [&str; 3] = ["DEL ape second", "DEL zebra net1", "DEL primary pod0"];

#[test]
fn pod_definitions_and_api_server_may_be_gone() {
    let mut node = attached();
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    let added = node.calls();
    node.take_order();
    daemon.kill();
    node.api.delete(Kind::Pod, "shop", "cart");
    node.api.delete(Kind::Definition, "shop", "zebra");
    node.api.delete(Kind::Definition, "shop", "ape");
    let daemon = node.start().ready();
    node.api.shut_down();
    daemon.cni(&node.request("DEL", "c1")).done();
    assert_eq!(node.order(), DETACHED);
    assert_eq!(node.state(), (vec![], vec![]));
    for (deleted, added) in node.calls().iter().zip(added.iter().rev()) {
        assert_eq!(deleted.env["CNI_ARGS"], added.env["CNI_ARGS"]);
        let mut config = deleted.stdin.clone();
        let previous = config
            .as_object_mut()
            .unwrap()
            .remove("prevResult")
            .unwrap();
        assert_eq!(previous["interfaces"][0]["name"], added.env["CNI_IFNAME"]);
        assert_eq!(config, added.stdin, "the same configuration as at ADD");
    }
}

#[test]
fn asked_twice_it_succeeds_twice() {
    let node = attached();
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.take_order();
    node.api.delete(Kind::Pod, "shop", "cart");
    daemon.cni(&node.request("DEL", "c1")).done();
    assert_eq!(node.take_order(), DETACHED);
    wait_for("the pod's end", || {
        daemon.cni(&node.request("DEL", "c1")).done();
        node.take_order().is_empty().then_some(())
    });
    assert_eq!(node.state(), (vec![], vec![]));
}

#[test]
fn a_container_that_was_never_added_is_no_error() {
    let node = Node::new();
    let daemon = node.start().ready();
    daemon.cni(&node.request("DEL", "unknown")).done();
    assert_eq!(node.order(), [""; 0]);
}

#[test]
fn state_that_is_cut_off_is_made_up_for_by_the_results() {
    let mut node = attached();
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.take_order();
    daemon.kill();
    node.api.delete(Kind::Pod, "shop", "cart");
    node.api.delete(Kind::Definition, "shop", "zebra");
    node.api.delete(Kind::Definition, "shop", "ape");
    let state = node.path("var/lib/cni/multus/c1");
    let whole = std::fs::read(&state).unwrap();
    std::fs::write(&state, &whole[..whole.len() / 2]).unwrap();
    node.remove("var/lib/cni/multus/.multus-rs/c1.json");
    let daemon = node.start().ready();
    node.api.shut_down();
    daemon.cni(&node.request("DEL", "c1")).done();
    assert_eq!(node.order(), DETACHED);
    assert_eq!(node.state(), (vec![], vec![]));
}

#[test]
fn it_goes_on_after_a_failure_and_does_the_rest_when_asked_again() {
    let node = attached();
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.take_order();
    node.fail("zebra", "DEL", 118, "not now");
    let error = daemon.cni(&node.request("DEL", "c1")).error();
    assert_eq!(error.code, 118, "{error}");
    assert!(
        error.msg.contains("shop/cart") && error.msg.contains("\"zebra\""),
        "{error}"
    );
    assert_eq!(node.take_order(), DETACHED);
    assert_eq!(node.state().0, ["c1"]);
    node.heal("zebra", "DEL");
    daemon.cni(&node.request("DEL", "c1")).done();
    assert_eq!(node.order(), ["DEL zebra net1"]);
    assert_eq!(node.state(), (vec![], vec![]));
}
