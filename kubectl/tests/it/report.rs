//! `report` with a fake API server: the page is a file, and what cannot be read or queried is named.

use serde_json::{Value, json};

use crate::{
    check,
    cluster::{Cluster, forbidden, list},
    has, is_refused,
};

const NADS: &str = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions";

fn pod(namespace: &str, name: &str) -> Value {
    let status = json!([{"name": "shop/lan", "interface": "net1", "ips": ["10.20.3.7"]}]);
    json!({"metadata": {"namespace": namespace, "name": name, "uid": name, "annotations": {
            "k8s.v1.cni.cncf.io/networks": "shop/lan", "k8s.v1.cni.cncf.io/network-status": status.to_string()}},
        "spec": {"nodeName": "b", "containers": []}, "status": {"phase": "Running"}})
}

fn definition(config: &Value) -> Value {
    json!({"metadata": {"namespace": "shop", "name": "lan"}, "spec": {"config": config.to_string()}})
}

fn bridge() -> Value {
    definition(&json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": "br0"}))
}

/// A pod in which a daemon of ours does not run.
fn daemon() -> Value {
    json!({"metadata": {"namespace": "kube-system", "name": "m-b"},
        "spec": {"nodeName": "b", "containers": [{"name": "m", "command": ["/usr/bin/multus-daemon"], "env": [{"name": "MULTUS_DAEMONSET"}]}]},
        "status": {"containerStatuses": [{"name": "m", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}})
}

#[test]
fn page_is_written_and_nodes_without_an_answer_are_named() {
    let pods = json!([pod("shop", "cart"), pod("infra", "mirror"), daemon()]);
    let node = json!({"metadata": {"name": "b", "uid": "u"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let containers = json!([{"image": "multusrs/multus", "command": ["/usr/bin/multus-daemon"]}]);
    let set = json!({"metadata": {"name": "m"}, "spec": {"template": {"spec": {"containers": containers}}}});
    let server = Cluster::start(&[
        ("/api/v1/pods", 200, list(&pods)),
        ("/api/v1/events", 200, list(&json!([]))),
        ("/api/v1/namespaces/shop/events", 200, list(&json!([]))),
        ("/api/v1/nodes", 200, list(&json!([node]))),
        ("/apis/apps/v1/daemonsets", 200, list(&json!([set]))),
        (NADS, 200, list(&json!([bridge()]))),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let (page, vpn) = (dir.path().join("a.html"), dir.path().join("vpn.json"));
    std::fs::write(&vpn, r#"{"phase": "running", "name": "b"}"#).unwrap();
    let (page_name, vpn) = (page.to_str().unwrap(), vpn.to_str().unwrap());
    let report = server.answer(&["report", "-A", "--html", page_name, "--vpn", vpn]);
    let gap = "node b: kube-system/m-b does not run: CrashLoopBackOff";
    check(&report, 3, "/gaps", &json!([gap]));
    check(&report, 3, "/schema", &json!(1));
    check(&report, 3, "/findings", &json!([]));
    check(&report, 3, "/pods/0/pod", &json!("infra/mirror"));
    check(&report, 3, "/networks/0/links", &json!(["br0"]));
    check(&report, 3, "/vpn/0/name", &json!("b"));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains(gap.strip_prefix("node b: ").unwrap()),
        "{page}"
    );
    let report = server.answer(&["report"]);
    check(&report, 3, "/pods/1", &Value::Null);
    check(&report, 3, "/pods/0/pod", &json!("shop/cart"));
}

#[test]
fn addresses_are_not_compared_with_blocks_that_may_not_be_read() {
    let ipam = json!({"type": "multus-ipam", "subnet": "10.20.3.0/24"});
    let config = json!({"cniVersion": "1.0.0", "type": "macvlan", "master": "ens5", "ipam": ipam});
    let blocks = "/apis/ipam.multus-rs.cni.cncf.io/v1alpha1/addressblocks";
    let cluster = |blocks: (_, _, Value)| {
        Cluster::start(&[
            ("/api/v1/pods", 200, list(&json!([pod("shop", "cart")]))),
            (NADS, 200, list(&json!([definition(&config)]))),
            blocks,
        ])
    };
    let refused = cluster((blocks, 403, forbidden("addressblocks"))).answer(&["report", "-A"]);
    assert!(!refused.1.to_string().contains("unrecorded"), "{refused:?}");
    has(
        &refused.1["gaps"],
        "addressblocks were not read: addressblocks is forbidden",
    );
    let read = cluster((blocks, 200, list(&json!([])))).answer(&["report", "-A"]);
    has(
        &read.1["findings"],
        "unrecorded: shop/cart net1 on b has it",
    );
}

#[test]
fn user_of_one_namespace_gets_a_report_of_it() {
    let mut pending = pod("shop", "till");
    pending["metadata"]["annotations"] = json!({"k8s.v1.cni.cncf.io/networks": "absent"});
    pending["status"] = json!({"phase": "Pending"});
    let one = "/apis/k8s.cni.cncf.io/v1/namespaces/shop/network-attachment-definitions/lan";
    let refused = |path| (path, 403, forbidden("these"));
    let server = Cluster::start(&[
        refused("/api/v1/pods"),
        refused("/api/v1/nodes"),
        refused("/api/v1/namespaces/kube-system/pods"),
        refused("/apis/apps/v1/daemonsets"),
        refused(NADS),
        (one, 200, bridge()),
        (
            "/api/v1/namespaces/shop/pods",
            200,
            list(&json!([pod("shop", "cart"), pending])),
        ),
        ("/api/v1/namespaces/shop/events", 200, list(&json!([]))),
    ]);
    let report = server.answer(&["report"]);
    check(&report, 1, "/findings/0/objects", &json!(["pod shop/till"]));
    check(&report, 1, "/findings/1", &Value::Null);
    check(
        &report,
        1,
        "/findings/0/command",
        &json!("kubectl multus why shop/till"),
    );
    check(&report, 1, "/networks/0/name", &json!("shop/lan"));
    has(&report.1["gaps"], "nodes were not read: these is forbidden");
    has(
        &report.1["gaps"],
        "no daemon was queried: these is forbidden",
    );
    is_refused(
        &server.run(&["report", "-A"]),
        "cannot list pods: these is forbidden",
    );
    let vpn = server.run(&["report", "--vpn", "/no/such"]);
    is_refused(&vpn, "cannot read /no/such");
}
