//! `status` and `why` for a user with few rights.

use serde_json::{Value, json};

use crate::{
    check,
    cluster::{Cluster, forbidden, list},
    has, is_refused, run,
};

const POD: &str = "/api/v1/namespaces/shop/pods/cart";

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": "cart", "uid": "u-1", "annotations": {"k8s.v1.cni.cncf.io/networks": "storage"}},
        "spec": {"nodeName": "node-a", "containers": [{"name": "c"}]}, "status": {"phase": "Pending"}})
}

#[test]
fn missing_rights_are_reported_as_gaps() {
    let event = json!({"reason": "NoNetworkFound", "message": "m (id 0a0b)", "type": "Warning", "count": 2,
        "lastTimestamp": "2026-01-01T00:00:00Z", "involvedObject": {"uid": "u-1"}});
    let server = Cluster::start(&[
        (POD, 200, pod()),
        ("/api/v1/namespaces/shop/events", 200, list(&json!([event]))),
        ("/api/v1/pods", 403, forbidden("pods")),
        (
            "/api/v1/namespaces/kube-system/pods",
            403,
            forbidden("pods"),
        ),
    ]);
    let why = server.answer(&["why", "cart"]);
    check(&why, 1, "/cause", &json!("definition-missing"));
    check(&why, 1, "/log/0/message", &json!("m (id 0a0b)"));
    check(&why, 1, "/log/0/count", &json!(2));
    has(&why.1["gaps"][0], "forbidden");
    has(&why.1["gaps"][0], "--daemon-namespace");
    let report = server.answer(&["status", "pod/cart"]);
    check(&report, 1, "/missing", &json!(["shop/storage"]));
}

#[test]
fn nodes_without_a_daemon_or_with_upstreams_are_recognised() {
    let nad = "/apis/k8s.cni.cncf.io/v1/namespaces/shop/network-attachment-definitions/storage";
    let definition = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "storage", "namespace": "shop"}, "spec": {"config": r#"{"cniVersion":"1.0.0","type":"bridge"}"#}});
    let with_pods = |pods: &Value| {
        Cluster::start(&[
            (POD, 200, pod()),
            (nad, 200, definition.clone()),
            ("/api/v1/namespaces/shop/events", 403, forbidden("events")),
            ("/api/v1/pods", 200, list(pods)),
        ])
    };
    let why = with_pods(&json!([])).answer(&["why", "shop/cart"]);
    check(&why, 1, "/cause", &json!("daemon-missing"));
    has(&why.1["gaps"][0], "events were not read");
    let uninstalled = Cluster::start(&[
        (POD, 200, pod()),
        (nad, 200, definition.clone()),
        ("/api/v1/pods", 200, list(&json!([]))),
        ("/apis/apps/v1/daemonsets", 200, list(&json!([]))),
    ]);
    let why = uninstalled.answer(&["why", "cart"]);
    check(&why, 1, "/cause", &json!("not-installed"));
    let upstream = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "kube-system", "name": "m"},
        "spec": {"containers": [{"name": "kube-multus", "command": ["/usr/src/multus-cni/bin/multus-daemon"]}]},
        "status": {"containerStatuses": [{"name": "kube-multus", "state": {"running": {}}}]}});
    let why = with_pods(&json!([upstream])).answer(&["why", "cart"]);
    check(&why, 0, "/cause", &json!("being-attached"));
    has(&why.1["daemon"], "another Multus");
}

#[test]
fn exec_credentials_of_the_kubeconfig_are_used() {
    let server = Cluster::start(&[(POD, 200, pod())]);
    let (_, report) = server.answer(&["status", "cart", "--context", "commanded"]);
    assert_eq!(report["pod"], "shop/cart");
    let users = server.users();
    assert!(users.iter().all(|one| one == "secret"), "{users:?}");
    assert!(users.len() > 2, "{users:?}");
}

#[test]
fn an_unreadable_pod_exits_with_3() {
    let server = Cluster::start(&[]);
    let absent = ["status", "cart", "--kubeconfig", "/no/such"];
    for (output, expected) in [
        (server.run(&["why", "cart"]), "there is no pod shop/cart"),
        (server.run(&["why", "cart", "-n", "x"]), "no pod x/cart"),
        (server.run(&["status", "cart", "--context", "y"]), "y"),
        (run(&absent, ""), "/no/such"),
    ] {
        is_refused(&output, expected);
        let lines = output.stderr.iter().filter(|byte| **byte == b'\n');
        assert_eq!(lines.count(), 1, "{output:?}");
    }
}

#[test]
fn status_without_a_pod_lists_those_of_a_namespace_or_of_all() {
    let server = Cluster::start(&[
        ("/api/v1/pods", 200, list(&json!([pod(), pod()]))),
        ("/api/v1/namespaces/shop/pods", 200, list(&json!([pod()]))),
        ("/api/v1/namespaces/empty/pods", 403, forbidden("pods")),
    ]);
    for (args, expected) in [(&["status"][..], 1), (&["status", "-A"], 2)] {
        let report = server.answer(args);
        check(&report, 1, "/pods/0/missing", &json!(["shop/storage"]));
        let pods = report.1["pods"].as_array().unwrap();
        assert_eq!(pods.len(), expected, "{pods:?}");
    }
    let output = server.run(&["status", "-n", "empty"]);
    is_refused(&output, "cannot list pods: pods is forbidden");
}
