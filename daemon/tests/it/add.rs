//! ADD: which plugins run with what, and what runtime, pod and events get to know.

use serde_json::{Value, json};
use testkit::api_server::Kind;

use crate::node::{IFNAME, Node, pod};

/// The network status that the only patch so far carries.
fn status(node: &Node) -> Value {
    let patches = node.api.patches();
    let [(pod, patch)] = patches.as_slice() else {
        panic!("{patches:?}")
    };
    assert_eq!(pod, "shop/cart");
    assert_eq!(patch["metadata"]["uid"], "uid-cart");
    let status = &patch["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"];
    serde_json::from_str(status.as_str().unwrap()).unwrap()
}

#[test]
fn a_pod_without_wishes_gets_the_primary() {
    let node = Node::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    let answer = daemon.cni(&node.request("ADD", "c1"));
    assert_eq!(
        serde_json::from_slice::<Value>(&answer.body).unwrap(),
        json!({"Result": {
            "cniVersion": "1.1.0",
            "interfaces": [{"name": IFNAME, "mac": "02:00:00:00:00:01", "sandbox": "/proc/self/ns/net"}],
            "ips": [{"address": "10.0.0.7/24", "interface": 0}],
            "dns": {},
        }})
    );
    assert_eq!(node.order(), ["ADD primary pod0"]);
    assert_eq!(
        status(&node),
        json!([{"name": "cbr0", "interface": IFNAME, "ips": ["10.0.0.7"], "mac": "02:00:00:00:00:01", "default": true, "dns": {}}])
    );
    assert_eq!(
        node.api.wait_for_events(1),
        ["AddedInterface: Add pod0 [10.0.0.7/24] from cbr0"]
    );
    assert_eq!(node.state().0, ["c1"]);
}

#[test]
fn networks_are_attached_in_the_order_of_the_annotation() {
    let node = Node::new();
    node.define("zebra");
    node.define("ape");
    node.run_pod(Some("zebra, shop/ape@second"));
    let daemon = node.start().ready();
    let result = daemon.cni(&node.request("ADD", "c1")).result();
    assert_eq!(result.interfaces[0].name, IFNAME, "the primary's result");
    let order = ["ADD primary pod0", "ADD zebra net1", "ADD ape second"];
    assert_eq!(node.order(), order);
    let networks: Vec<_> = status(&node)
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{} {} {}", one["name"], one["interface"], one["ips"][0]))
        .collect();
    assert_eq!(
        networks,
        [
            r#""cbr0" "pod0" "10.0.0.7""#,
            r#""shop/zebra" "net1" "10.0.0.5""#,
            r#""shop/ape" "second" "10.0.0.3""#,
        ]
    );
    let mut events = node.api.wait_for_events(3);
    events.sort();
    assert_eq!(
        events,
        [
            "AddedInterface: Add net1 [10.0.0.5/24] from shop/zebra",
            "AddedInterface: Add pod0 [10.0.0.7/24] from cbr0",
            "AddedInterface: Add second [10.0.0.3/24] from shop/ape",
        ]
    );
    let read = |asked: &String| asked.starts_with("GET");
    assert!(
        !node.api.object_requests().iter().any(read),
        "{:?}",
        node.api.object_requests()
    );
}

#[test]
fn a_delegate_gets_variables_and_configuration() {
    let node = Node::new();
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    let calls = node.calls();
    let env = &calls[1].env;
    assert_eq!(env["CNI_COMMAND"], "ADD");
    assert_eq!(env["CNI_CONTAINERID"], "c1");
    assert_eq!(env["CNI_NETNS"], "/proc/self/ns/net");
    assert_eq!(env["CNI_IFNAME"], "net1");
    let bin_dir = node.bin_dir();
    let path = format!("{}:/opt/absent:/var/lib/multus/bin", bin_dir.display());
    assert_eq!(env["CNI_PATH"], path);
    assert_eq!(
        env["CNI_ARGS"],
        "IgnoreUnknown=true;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=uid-cart;COLOUR=blue"
    );
    assert!(
        !env.contains_key("KUBECONFIG"),
        "what is the daemon's stays with it"
    );
    assert_eq!(
        calls[1].stdin,
        json!({"cniVersion": "1.0.0", "type": "zebra", "kept": [1, "two"], "name": "zebra"})
    );
}

#[test]
fn wishes_in_json_reach_their_network_alone() {
    let node = Node::new();
    // The plugins here give addresses of their own.
    node.configure(&json!({"unservedRequests": "silent"}));
    node.define("zebra");
    node.define("ape");
    let wishes = json!([
        {"name": "zebra", "interface": "stripes", "mac": "02:00:00:00:00:77", "ips": ["10.0.0.200/24"]},
        {"name": "ape", "namespace": "shop"},
    ]);
    node.run_pod(Some(&wishes.to_string()));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    let calls = node.calls();
    let order: Vec<_> = calls.iter().map(|call| call.what.as_str()).collect();
    assert_eq!(
        order,
        ["ADD primary pod0", "ADD zebra stripes", "ADD ape net2"]
    );
    let wishes = "MAC=02:00:00:00:00:77;IP=10.0.0.200/24";
    let has_wishes = calls
        .iter()
        .map(|call| call.env["CNI_ARGS"].ends_with(wishes));
    assert_eq!(has_wishes.collect::<Vec<_>>(), [false, true, false]);
}

#[test]
fn a_name_that_is_taken_in_the_namespace_is_refused_before_anything_runs() {
    let node = Node::new();
    node.define("zebra");
    node.run_pod(Some("zebra@lo"));
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert_eq!(error.code, 7);
    assert!(
        error.msg.contains("interface name lo already exists"),
        "{error}"
    );
    assert_eq!(node.order(), [""; 0]);
    assert_eq!(node.state().0, [""; 0]);
}

#[test]
fn a_plugin_that_is_missing_is_found_out_before_anything_runs() {
    let node = Node::new();
    node.define("zebra");
    node.remove("opt/cni/bin/zebra");
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert!(
        error.msg.contains("shop/cart") && error.msg.contains("zebra"),
        "{error}"
    );
    assert!(
        error.msg.contains(node.bin_dir().to_str().unwrap()),
        "{error}"
    );
    assert_eq!(node.order(), [""; 0]);
    assert_eq!(node.state().0, [""; 0]);
}

#[test]
fn a_pod_that_the_watch_does_not_show_is_asked_for() {
    let node = Node::new();
    node.api.put(Kind::Pod, pod("node-b", None));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    assert_eq!(
        node.api.object_requests()[0],
        "GET /api/v1/namespaces/shop/pods/cart"
    );
    assert_eq!(node.order(), ["ADD primary pod0"]);
}

#[test]
fn a_container_is_added_once() {
    let node = Node::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert_eq!(error.code, 11, "{error}");
    assert!(error.msg.contains("has attachments already"), "{error}");
    assert_eq!(node.order(), ["ADD primary pod0"]);
}

#[test]
fn a_pod_of_the_same_name_is_another_pod() {
    let node = Node::new();
    let mut other = pod("node-b", None);
    other["metadata"]["uid"] = json!("uid-other");
    node.api.put(Kind::Pod, other);
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert!(
        error.msg.contains("uid-cart") && error.msg.contains("uid-other"),
        "{error}"
    );
    assert_eq!(node.order(), [""; 0]);
}
