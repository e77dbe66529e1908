//! GC: what the runtime does not list is detached from its state, and plugins are told what is still alive.

use api::Request;
use serde_json::{Value, json};

use crate::node::{IFNAME, Node};

/// GC with these containers alive.
fn gc(node: &Node, alive: Option<&[&str]>) -> Request {
    let mut request = node.request("GC", "");
    request
        .env
        .retain(|key, _| matches!(key.as_str(), "CNI_COMMAND" | "CNI_PATH"));
    let mut config = node.config();
    if let Some(alive) = alive {
        let list: Vec<Value> = alive
            .iter()
            .map(|id| json!({"containerID": id, "ifname": IFNAME}))
            .collect();
        config["cni.dev/valid-attachments"] = json!(list);
    }
    request.config = config.to_string().into_bytes();
    request
}

#[test]
fn what_is_not_listed_is_detached() {
    let node = Node::with(testkit::api_server::ApiServer::start());
    node.install_primary_of("1.1.0");
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    daemon.cni(&node.request("ADD", "c2")).result();
    node.take_order();
    daemon.cni(&gc(&node, Some(&["c1"]))).done();
    let calls = node.calls();
    let what: Vec<_> = calls.iter().map(|call| call.what.as_str()).collect();
    assert_eq!(what, ["DEL zebra net1", "DEL primary pod0", "GC primary -"]);
    assert!(
        calls[..2]
            .iter()
            .all(|call| call.env["CNI_CONTAINERID"] == "c2")
    );
    assert_eq!(
        calls[2].stdin["cni.dev/valid-attachments"],
        json!([{"containerID": "c1", "ifname": IFNAME}])
    );
    assert_eq!(node.state().0, ["c1"]);
}

#[test]
fn without_a_list_nothing_is_touched() {
    let node = Node::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.take_order();
    let error = daemon.cni(&gc(&node, None)).error();
    assert!(error.msg.contains("cni.dev/valid-attachments"), "{error}");
    assert_eq!(node.order(), [""; 0]);
    assert_eq!(node.state().0, ["c1"]);
}
