//! Networks of a pod that runs: its annotation changes, or another controller asks on `/delegate`.

use api::Request;
use serde_json::{Value, json};
use testkit::api_server::Kind;

use crate::{
    daemon::Daemon,
    node::{NODE, Node, pod},
    wait_for,
};

const DYNAMIC: &str = "dynamicNetworks";

/// A node that follows annotations, with two definitions and the pod without wishes.
fn node() -> Node {
    let node = Node::new();
    node.configure(&json!({DYNAMIC: true}));
    for name in ["zebra", "ape"] {
        node.define(name);
    }
    node.run_pod(None);
    node
}

/// Waits until the pod's status names these interfaces.
#[track_caller]
fn until_told(node: &Node, interfaces: &[&str]) {
    let what = format!("a status of {interfaces:?}");
    wait_for(&what, || {
        let (_, patch) = node.api.patches().pop()?;
        let text = &patch["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"];
        let status: Value = serde_json::from_str(text.as_str()?).ok()?;
        let names = status.as_array()?.iter();
        let names: Vec<_> = names.filter_map(|one| one["interface"].as_str()).collect();
        (names == interfaces).then_some(())
    });
}

fn change(node: &Node, networks: &str) {
    node.api.put(Kind::Pod, pod(NODE, Some(networks)));
}

/// Waits for an event that begins so.
#[track_caller]
fn until_said(node: &Node, begin: &str) {
    wait_for(begin, || {
        let events = node.api.wait_for_events(1);
        events
            .iter()
            .any(|event| event.starts_with(begin))
            .then_some(())
    });
}

#[test]
fn a_changed_annotation_attaches_and_detaches() {
    let node = node();
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    change(&node, "zebra");
    until_told(&node, &["pod0", "net1"]);
    change(&node, "ape@stripes");
    until_told(&node, &["pod0", "stripes"]);
    assert_eq!(
        node.order(),
        [
            "ADD primary pod0",
            "ADD zebra net1",
            "ADD ape stripes",
            "DEL zebra net1"
        ]
    );
    for event in [
        "AddedInterface: Add net1 [10.0.0.5/24] from shop/zebra",
        "AddedInterface: Add stripes [10.0.0.3/24] from shop/ape",
        "RemovedInterface: Remove net1 from shop/zebra",
    ] {
        until_said(&node, event);
    }
    let args = &node.calls()[1].env["CNI_ARGS"];
    assert_eq!(
        args,
        "IgnoreUnknown=true;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=uid-cart;COLOUR=blue",
        "as at the pod's own ADD"
    );
    daemon.cni(&node.request("DEL", "c1")).done();
    assert_eq!(node.order()[4..], ["DEL ape stripes", "DEL primary pod0"]);
    assert_eq!(node.state(), (vec![], vec![]));
}

#[test]
fn a_change_that_cannot_be_had_is_undone_told_and_tried_again() {
    let node = node();
    node.fail("ape", "ADD", 123, "no more bananas");
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    change(&node, "zebra,ape");
    until_said(&node, "FailedAddNetwork: [shop/cart/uid-cart:ape]");
    let order = node.order();
    let undone = [
        "ADD zebra net1",
        "ADD ape net2",
        "DEL ape net2",
        "DEL zebra net1",
    ];
    assert_eq!(order[1..5], undone);
    until_told(&node, &["pod0"]);
    node.heal("ape", "ADD");
    until_told(&node, &["pod0", "net1", "net2"]);
}

#[test]
fn a_status_that_cannot_be_written_is_written_later() {
    let node = node();
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.api.refuse_patches(Some(403));
    change(&node, "zebra");
    node.wait_for_call("ADD zebra net1");
    daemon.until_logged("the status of a running pod", 1);
    node.api.refuse_patches(None);
    until_told(&node, &["pod0", "net1"]);
    assert_eq!(node.order().len(), 2, "{:?}", node.order());
}

#[test]
fn what_changed_while_nobody_was_there_is_done_at_the_next_start() {
    let node = node();
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    daemon.kill();
    change(&node, "zebra");
    let _daemon = node.start().ready();
    until_told(&node, &["pod0", "net1"]);
}

/// The pod is attached as it asked before its ADD began, whether the watch tells of the change before or after that is over.
#[test]
fn a_change_during_the_add_is_not_lost() {
    let node = node();
    let gate = node.close_gate("primary", "ADD");
    let daemon = node.start().ready();
    let adding = daemon.cni_meanwhile(&node.request("ADD", "c1"));
    node.wait_for_call("ADD primary pod0");
    change(&node, "zebra");
    drop(gate);
    adding.join().unwrap().unwrap().result();
    until_told(&node, &["pod0", "net1"]);
}

#[test]
fn switched_off_nothing_follows() {
    let node = node();
    node.configure(&json!({}));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    change(&node, "zebra");
    // Another container of the pod gets what the pod asks for by now, so the change is known.
    wait_for("the changed annotation", || {
        daemon.cni(&node.request("ADD", "c2")).result();
        daemon.cni(&node.request("DEL", "c2")).done();
        let seen = node.order().iter().any(|call| call == "ADD zebra net1");
        seen.then_some(())
    });
    let of_first = |call: &crate::node::Call| call.env["CNI_CONTAINERID"] == "c1";
    assert_eq!(node.calls().iter().filter(|call| of_first(call)).count(), 1);
}

/// What upstream's controller sends.
fn delegate(node: &Node, command: &str, ifname: &str) -> Request {
    let mut request = node.request(command, "c1");
    request
        .env
        .insert("CNI_IFNAME".to_owned(), ifname.to_owned());
    request.config = json!({"cniVersion": "1.0.0", "name": "stripes", "type": "zebra", "capabilities": {"ips": true}})
        .to_string()
        .into_bytes();
    request.interface_attributes = Some(api::InterfaceAttributes {
        ips: vec!["10.0.0.5/24".to_owned()],
        mac: "02:00:00:00:00:01".to_owned(),
        cni_args: [("k".to_owned(), json!("v"))].into_iter().collect(),
    });
    request
}

fn ask(daemon: &Daemon, request: &Request) -> crate::daemon::Answer {
    daemon.send("POST", api::PATH_DELEGATE, &request.to_json())
}

#[test]
fn delegates_are_plugged_checked_and_unplugged() {
    let node = node();
    // The daemon's own file is not laid over the delegate's configuration.
    node.configure(&json!({"cniVersion": "0.4.0", "name": "mine", "capabilities": {"mac": true}}));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    let patches = node.api.patches().len();
    let result = ask(&daemon, &delegate(&node, "ADD", "ext0")).result();
    assert_eq!(result.interfaces[0].name, "ext0");
    until_said(&node, "AddedInterface: Add ext0 [10.0.0.5/24] from stripes");
    ask(&daemon, &delegate(&node, "CHECK", "ext0")).done();
    ask(&daemon, &delegate(&node, "STATUS", "ext0")).done();
    ask(&daemon, &delegate(&node, "DEL", "ext0")).done();
    let calls = node.calls();
    let order: Vec<_> = calls.iter().map(|call| call.what.as_str()).collect();
    let expected = [
        "ADD primary pod0",
        "ADD zebra ext0",
        "CHECK zebra ext0",
        "DEL zebra ext0",
    ];
    assert_eq!(order, expected);
    let stdin = &calls[1].stdin;
    assert_eq!(
        (&stdin["cniVersion"], &stdin["name"]),
        (&json!("1.0.0"), &json!("stripes"))
    );
    assert_eq!(stdin["runtimeConfig"], json!({"ips": ["10.0.0.5/24"]}));
    assert_eq!(stdin["args"]["cni"], json!({"k": "v"}));
    let args = &calls[1].env["CNI_ARGS"];
    assert!(
        args.ends_with(";MAC=02:00:00:00:00:01;IP=10.0.0.5/24"),
        "{args}"
    );
    assert_eq!(
        node.api.patches().len(),
        patches,
        "whoever asks tells the pod"
    );
}

#[test]
fn delegates_that_cannot_be_had_are_refused() {
    let node = node();
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.fail("zebra", "ADD", 123, "no more stripes");
    let error = ask(&daemon, &delegate(&node, "ADD", "ext0")).error();
    assert_eq!(error.code, 123, "{error}");
    assert_eq!(node.order()[1..], ["ADD zebra ext0", "DEL zebra ext0"]);
    let error = ask(&daemon, &delegate(&node, "GC", "ext0")).error();
    assert!(error.msg.contains("GC is not served"), "{error}");
    let mut request = delegate(&node, "DEL", "ext0");
    request.env.insert(
        "CNI_ARGS".to_owned(),
        "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=nobody".to_owned(),
    );
    let error = ask(&daemon, &request).error();
    assert!(error.msg.contains("shop/nobody"), "{error}");
    assert_eq!(daemon.send("GET", api::PATH_DELEGATE, b"").status, 405);
}
