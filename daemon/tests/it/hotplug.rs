//! Networks of a running pod: its annotation changes, or another controller sends requests to `/delegate`.

use api::Request;
use serde_json::{Value, json};
use testkit::api_server::Kind;

use crate::{
    daemon::Daemon,
    node::{NODE, NodeFixture, pod},
    wait_for,
};

const DYNAMIC: &str = "dynamicNetworks";

/// A node with `dynamicNetworks`, two definitions and a pod without networks.
fn node() -> NodeFixture {
    let node = NodeFixture::new();
    node.configure(&json!({DYNAMIC: true}));
    for name in ["zebra", "ape"] {
        node.define(name);
    }
    node.run_pod(None);
    node
}

/// Waits until the pod's status names these interfaces.
#[track_caller]
fn until_status(node: &NodeFixture, interfaces: &[&str]) {
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

fn change(node: &NodeFixture, networks: &str) {
    node.api.put(Kind::Pod, pod(NODE, Some(networks)));
}

/// Waits for an event with this prefix.
#[track_caller]
fn until_event(node: &NodeFixture, begin: &str) {
    wait_for(begin, || {
        let events = node.api.wait_for_events(1);
        events
            .iter()
            .any(|event| event.starts_with(begin))
            .then_some(())
    });
}

#[test]
fn pod_without_a_cached_result_is_not_changed_and_the_log_says_so() {
    let node = node();
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.remove("var/lib/cni/multus/results/cbr0-c1-pod0");
    change(&node, "zebra");
    daemon.until_logged("the result of one is not in the result cache", 1);
    assert_eq!(node.order(), ["ADD primary pod0"]);
}

#[test]
fn changed_annotation_attaches_and_detaches() {
    let node = node();
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    change(&node, "zebra");
    until_status(&node, &["pod0", "net1"]);
    change(&node, "ape@stripes");
    until_status(&node, &["pod0", "stripes"]);
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
        until_event(&node, event);
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
fn failed_change_is_undone_reported_and_retried() {
    let node = node();
    node.fail("ape", "ADD", 123, "no more bananas");
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    change(&node, "zebra,ape");
    until_event(&node, "FailedAddNetwork: [shop/cart/uid-cart:ape]");
    let order = node.order();
    let undone = [
        "ADD zebra net1",
        "ADD ape net2",
        "DEL ape net2",
        "DEL zebra net1",
    ];
    assert_eq!(order[1..5], undone);
    until_status(&node, &["pod0"]);
    node.heal("ape", "ADD");
    until_status(&node, &["pod0", "net1", "net2"]);
}

#[test]
fn status_of_a_change_is_retried() {
    let node = node();
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.api.refuse_patches(Some(403));
    change(&node, "zebra");
    node.wait_for_call("ADD zebra net1");
    daemon.until_logged("cannot write a network status", 1);
    node.api.refuse_patches(None);
    until_status(&node, &["pod0", "net1"]);
    assert_eq!(node.order().len(), 2, "{:?}", node.order());
}

#[test]
fn change_during_a_restart_is_applied_at_the_start() {
    let node = node();
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    daemon.kill();
    change(&node, "zebra");
    let _daemon = node.start().ready();
    until_status(&node, &["pod0", "net1"]);
}

/// The ADD attaches the networks of the annotation at its begin, whether the watch reports the change before or after the ADD ends.
#[test]
fn change_during_the_add_is_applied_after_it() {
    let node = node();
    let gate = node.block_plugin("primary", "ADD");
    let daemon = node.start().ready();
    let adding = daemon.cni_meanwhile(&node.request("ADD", "c1"));
    node.wait_for_call("ADD primary pod0");
    change(&node, "zebra");
    drop(gate);
    adding.join().unwrap().unwrap().result();
    until_status(&node, &["pod0", "net1"]);
}

#[test]
fn changes_are_ignored_without_dynamic_networks() {
    let node = node();
    node.configure(&json!({}));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    change(&node, "zebra");
    // Another container of the pod gets the new network, so the daemon knows the change.
    wait_for("the changed annotation", || {
        daemon.cni(&node.request("ADD", "c2")).result();
        daemon.cni(&node.request("DEL", "c2")).done();
        let seen = node.order().iter().any(|call| call == "ADD zebra net1");
        seen.then_some(())
    });
    let is_of_first = |call: &crate::node::PluginCall| call.env["CNI_CONTAINERID"] == "c1";
    assert_eq!(
        node.calls().iter().filter(|call| is_of_first(call)).count(),
        1
    );
}

/// A request of upstream's controller.
fn delegate(node: &NodeFixture, command: &str, ifname: &str) -> Request {
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

fn send(daemon: &Daemon, request: &Request) -> crate::daemon::HttpResponse {
    daemon.send("POST", api::PATH_DELEGATE, &request.to_json())
}

#[test]
fn delegate_is_plugged_checked_and_unplugged() {
    let node = node();
    // The daemon's own file does not override the delegate's configuration.
    node.configure(&json!({"cniVersion": "0.4.0", "name": "mine", "capabilities": {"mac": true}}));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    let patches = node.api.wait_for_patches(1).len();
    let result = send(&daemon, &delegate(&node, "ADD", "ext0")).result();
    assert_eq!(result.interfaces[0].name, "ext0");
    until_event(&node, "AddedInterface: Add ext0 [10.0.0.5/24] from stripes");
    send(&daemon, &delegate(&node, "CHECK", "ext0")).done();
    send(&daemon, &delegate(&node, "STATUS", "ext0")).done();
    send(&daemon, &delegate(&node, "DEL", "ext0")).done();
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
        "the network status is left to the client"
    );
}

#[test]
fn failing_delegates_are_refused() {
    let node = node();
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.fail("zebra", "ADD", 123, "no more stripes");
    let error = send(&daemon, &delegate(&node, "ADD", "ext0")).error();
    assert_eq!(error.code, 123, "{error}");
    assert_eq!(node.order()[1..], ["ADD zebra ext0", "DEL zebra ext0"]);
    let error = send(&daemon, &delegate(&node, "GC", "ext0")).error();
    assert!(error.msg.contains("GC is not served"), "{error}");
    let mut request = delegate(&node, "DEL", "ext0");
    request.env.insert(
        "CNI_ARGS".to_owned(),
        "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=unknown".to_owned(),
    );
    let error = send(&daemon, &request).error();
    assert!(error.msg.contains("shop/unknown"), "{error}");
    assert_eq!(daemon.send("GET", api::PATH_DELEGATE, b"").status, 405);
}
