//! CHECK and STATUS: questions that change nothing.

use testkit::api_server::{ApiServer, Kind};

use crate::node::Node;

#[test]
fn check_asks_every_network_of_the_state() {
    let node = Node::new();
    node.define("zebra");
    node.run_pod(Some("zebra@stripes"));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.take_order();
    node.api.delete(Kind::Definition, "shop", "zebra");
    daemon.cni(&node.request("CHECK", "c1")).done();
    assert_eq!(
        node.take_order(),
        ["CHECK primary pod0", "CHECK zebra stripes"]
    );
    node.fail("zebra", "CHECK", 119, "stripes have faded");
    let error = daemon.cni(&node.request("CHECK", "c1")).error();
    assert_eq!(error.code, 119);
    let told = ["shop/cart", "\"zebra\"", "stripes have faded"];
    assert!(told.iter().all(|text| error.msg.contains(text)), "{error}");
    assert_eq!(node.state().0, ["c1"]);
}

#[test]
fn check_of_an_unknown_container_is_an_error() {
    let node = Node::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("CHECK", "c1")).error();
    assert_eq!(error.code, 3, "{error}");
    assert_eq!(node.order(), [""; 0]);
}

#[test]
fn status_is_the_primary_s() {
    let node = Node::with(ApiServer::start());
    node.install_primary_of("1.1.0");
    let daemon = node.start().ready();
    daemon.cni(&node.request("STATUS", "")).done();
    assert_eq!(node.order(), ["STATUS primary -"]);
    daemon.cni(&node.request("STATUS", "")).done();
    assert_eq!(
        node.order(),
        ["STATUS primary -"],
        "the answer is kept for a moment"
    );
}

#[test]
fn status_of_a_primary_that_is_not_well() {
    let node = Node::with(ApiServer::start());
    node.install_primary_of("1.1.0");
    node.fail("primary", "STATUS", 50, "out of addresses");
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("STATUS", "")).error();
    assert_eq!(error.code, 50);
    assert!(error.msg.contains("out of addresses"), "{error}");
}

#[test]
fn status_before_pods_are_served_says_what_is_missing() {
    let node = Node::with(ApiServer::start_without_lists());
    node.install_primary();
    let daemon = node.start();
    crate::wait_for("all but watches", || {
        daemon
            .problem()
            .filter(|problem| problem.starts_with("watches: "))
    });
    let error = daemon.cni(&node.request("STATUS", "")).error();
    assert_eq!(error.code, 50);
    assert!(error.msg.contains("watches: "), "{error}");
    assert_eq!(node.order(), [""; 0]);
}
