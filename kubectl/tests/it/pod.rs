//! `status` and `why` for a user with few rights.

use serde_json::{Value, json};

use crate::{answer, cluster::Cluster, run};

const POD: &str = "/api/v1/namespaces/shop/pods/cart";

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": "cart", "uid": "u-1", "annotations": {"k8s.v1.cni.cncf.io/networks": "storage"}},
        "spec": {"nodeName": "node-a", "containers": [{"name": "c"}]}, "status": {"phase": "Pending"}})
}

fn list(items: &Value) -> Value {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
}

fn forbidden(what: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": format!("{what} is forbidden: User \"u\" cannot list resource \"{what}\"")})
}

#[track_caller]
fn run_on(server: &Cluster, args: &[&str]) -> (i32, Value) {
    let kubeconfig = server.kubeconfig();
    let kubeconfig = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    answer(&[args, &kubeconfig].concat(), "")
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
    let (status, why) = run_on(&server, &["why", "cart"]);
    assert_eq!(
        (status, &why["cause"]),
        (1, &json!("definition-missing")),
        "{why}"
    );
    assert_eq!(why["log"][0]["message"], "m (id 0a0b)");
    assert_eq!(why["log"][0]["count"], 2);
    let gap = why["gaps"][0].as_str().unwrap();
    assert!(
        gap.contains("forbidden") && gap.contains("--daemon-namespace"),
        "{gap}"
    );
    let (status, report) = run_on(&server, &["status", "pod/cart"]);
    assert_eq!(
        (status, &report["missing"]),
        (1, &json!(["shop/storage"])),
        "{report}"
    );
}

#[test]
fn nodes_without_a_daemon_or_with_upstreams_are_recognised() {
    let nad = "/apis/k8s.cni.cncf.io/v1/namespaces/shop/network-attachment-definitions/storage";
    let definition = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "storage", "namespace": "shop"}, "spec": {"config": r#"{"cniVersion":"1.0.0","type":"bridge"}"#}});
    let of = |pods: &Value| {
        Cluster::start(&[
            (POD, 200, pod()),
            (nad, 200, definition.clone()),
            ("/api/v1/namespaces/shop/events", 403, forbidden("events")),
            ("/api/v1/pods", 200, list(pods)),
        ])
    };
    let (status, why) = run_on(&of(&json!([])), &["why", "shop/cart"]);
    assert_eq!(
        (status, &why["cause"]),
        (1, &json!("daemon-missing")),
        "{why}"
    );
    assert!(
        why["gaps"][0]
            .as_str()
            .unwrap()
            .contains("events were not read"),
        "{why}"
    );
    let uninstalled = Cluster::start(&[
        (POD, 200, pod()),
        (nad, 200, definition.clone()),
        ("/api/v1/pods", 200, list(&json!([]))),
        ("/apis/apps/v1/daemonsets", 200, list(&json!([]))),
    ]);
    let (status, why) = run_on(&uninstalled, &["why", "cart"]);
    assert_eq!(
        (status, &why["cause"]),
        (1, &json!("not-installed")),
        "{why}"
    );
    let upstream = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "kube-system", "name": "m"},
        "spec": {"containers": [{"name": "kube-multus", "command": ["/usr/src/multus-cni/bin/multus-daemon"]}]},
        "status": {"containerStatuses": [{"name": "kube-multus", "state": {"running": {}}}]}});
    let (status, why) = run_on(&of(&json!([upstream])), &["why", "cart"]);
    assert_eq!(
        (status, &why["cause"]),
        (0, &json!("being-attached")),
        "{why}"
    );
    assert!(
        why["daemon"].as_str().unwrap().contains("another Multus"),
        "{why}"
    );
}

#[test]
fn exec_credentials_of_the_kubeconfig_are_used() {
    let server = Cluster::start(&[(POD, 200, pod())]);
    let (_, report) = run_on(&server, &["status", "cart", "--context", "commanded"]);
    assert_eq!(report["pod"], "shop/cart");
    let users = server.users();
    assert!(users.iter().all(|one| one == "secret"), "{users:?}");
    assert!(users.len() > 2, "{users:?}");
}

#[test]
fn an_unreadable_pod_exits_with_3() {
    let server = Cluster::start(&[]);
    let kubeconfig = server.kubeconfig();
    let kubeconfig = kubeconfig.to_str().unwrap();
    for (args, expected) in [
        (
            &["why", "cart", "--kubeconfig", kubeconfig][..],
            "there is no pod shop/cart",
        ),
        (
            &["why", "cart", "--kubeconfig", kubeconfig, "-n", "x"],
            "no pod x/cart",
        ),
        (
            &[
                "status",
                "cart",
                "--kubeconfig",
                kubeconfig,
                "--context",
                "y",
            ],
            "y",
        ),
        (&["status", "cart", "--kubeconfig", "/no/such"], "/no/such"),
    ] {
        let output = run(args, "");
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.contains(expected) && text.lines().count() == 1,
            "{text}"
        );
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
        let (status, report) = run_on(&server, args);
        assert_eq!(status, 1, "{report}");
        assert_eq!(
            report["pods"].as_array().unwrap().len(),
            expected,
            "{report}"
        );
        assert_eq!(report["pods"][0]["missing"], json!(["shop/storage"]));
    }
    let kubeconfig = server.kubeconfig();
    let kubeconfig = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    let output = run(&[&["status", "-n", "empty"][..], &kubeconfig].concat(), "");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("cannot list pods: pods is forbidden"),
        "{error}"
    );
}
