//! `ipam` with a fake API server, for users with all or few rights.

use serde_json::{Value, json};

use crate::{answer, cluster::Cluster, run};

const BLOCKS: &str = "/apis/ipam.multus-rs.cni.cncf.io/v1alpha1/addressblocks";
const NADS: &str = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions";
const CLAIMS: &str = "/apis/k8s.cni.cncf.io/v1alpha1/ipamclaims";

fn list(items: &Value) -> Value {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
}

fn forbidden(what: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": format!("{what} is forbidden: User \"u\" cannot list resource \"{what}\"")})
}

fn node(name: &str, ready: &str) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-{name}")}, "status": {"conditions": [{"type": "Ready", "status": ready}]}})
}

fn block(first: &str, node: &str) -> Value {
    json!({"metadata": {"name": first, "uid": format!("uid-{first}"), "resourceVersion": "7",
            "labels": {"ipam.multus-rs.cni.cncf.io/node": node}},
        "spec": {"schema": 1, "space": "", "first": first, "mode": "node", "turn": 4, "used": "00000080",
            "holder": {"node": node, "uid": format!("uid-{node}"), "incarnation": "i", "boot": "o"}}})
}

fn pod(name: &str, address: &str) -> Value {
    let status = json!([{"name": "shop/storage", "interface": "net1", "ips": [address]}]);
    json!({"metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"),
            "annotations": {"k8s.v1.cni.cncf.io/network-status": status.to_string()}},
        "spec": {"nodeName": "b", "containers": []}, "status": {"phase": "Running"}})
}

/// A cluster with one network, a block of node b, another of node c that is off, and these pods.
fn cluster(pods: &Value, others: &[(&str, u16, Value)]) -> Cluster {
    let config = json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": {"type": "multus-ipam", "subnet": "10.20.0.0/16"}});
    let definition = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "storage", "namespace": "shop"}, "spec": {"config": config.to_string()}});
    let blocks = json!([block("10.20.3.0", "b"), block("10.20.3.32", "c")]);
    let nodes = json!([node("b", "True"), node("c", "Unknown")]);
    let usual = [
        (BLOCKS, 200, list(&blocks)),
        (NADS, 200, list(&json!([definition]))),
        (CLAIMS, 200, list(&json!([]))),
        ("/api/v1/nodes", 200, list(&nodes)),
        ("/api/v1/nodes/b", 200, node("b", "True")),
        ("/api/v1/nodes/c", 200, node("c", "Unknown")),
        ("/api/v1/pods", 200, list(pods)),
    ];
    Cluster::start(&[&usual[..], others].concat())
}

#[track_caller]
fn run_on(server: &Cluster, args: &[&str]) -> (i32, Value) {
    let kubeconfig = server.kubeconfig();
    let kubeconfig = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    answer(&[&["ipam"], args, &kubeconfig].concat(), "")
}

/// Runs the program for its text, and returns exit status, stdout and stderr.
#[track_caller]
fn text_on(server: &Cluster, args: &[&str]) -> (i32, String, String) {
    let kubeconfig = server.kubeconfig();
    let kubeconfig = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    let output = run(&[&["ipam"], args, &kubeconfig].concat(), "");
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn ranges_are_a_table_or_json() {
    let server = cluster(&json!([]), &[]);
    let (status, text, _) = text_on(&server, &[]);
    let expected = "SPACE   RANGE          USED   FREE     HELD BY               NOTE\n\
        -       10.20.0.0/16   2      65,531   2 blocks of 2 nodes\n";
    assert_eq!((status, text.as_str()), (0, expected));
    let (status, report) = run_on(&server, &[]);
    assert_eq!(status, 0, "{report}");
    let range = &report["ranges"][0];
    assert_eq!(range["networks"], json!(["shop/storage"]));
    assert_eq!(range["nodeBlocks"], json!({"b": 1, "c": 1}));
}

#[test]
fn objects_that_cannot_be_read_are_gaps_or_the_error() {
    let nodes = ("/api/v1/nodes", 403, forbidden("nodes"));
    let (status, report) = run_on(&cluster(&json!([]), &[nodes]), &[]);
    assert_eq!(status, 3, "{report}");
    let gap = report["gaps"][0].as_str().unwrap();
    assert!(
        gap.starts_with("nodes were not read: nodes is forbidden"),
        "{gap}"
    );
    let blocks = (
        BLOCKS,
        404,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "message": "not found"}),
    );
    let (status, report) = run_on(&cluster(&json!([]), &[blocks]), &[]);
    assert_eq!(
        (status, &report["gaps"][0]),
        (
            3,
            &json!("the cluster does not know AddressBlock: install Multus with ipam.enabled")
        )
    );
    let blocks = (BLOCKS, 403, forbidden("addressblocks"));
    let (status, _, error) = text_on(&cluster(&json!([]), &[blocks]), &["check"]);
    assert!(
        status == 3 && error.contains("cannot list addressblocks: addressblocks is forbidden"),
        "{error}"
    );
    let pods = ("/api/v1/pods", 403, forbidden("pods"));
    let (status, _, error) = text_on(&cluster(&json!([]), &[pods]), &["who", "10.20.3.7"]);
    assert!(
        status == 3 && error.contains("cannot list the pods of all namespaces: pods is forbidden"),
        "{error}"
    );
}

#[test]
fn who_exits_with_1_for_an_address_of_no_pod() {
    let server = cluster(&json!([pod("web-0", "10.20.3.7")]), &[]);
    let (status, text, _) = text_on(&server, &["who", "10.20.3.7"]);
    let expected = "10.20.3.7  shop/web-0 net1 (network shop/storage) on b\n";
    assert_eq!((status, text.as_str()), (0, expected));
    let (status, report) = run_on(&server, &["who", "10.20.3.8"]);
    assert_eq!((status, &report["holders"]), (1, &json!([])));
    let block = "block 10.20.3.0 is held by node b, which reports that it is free";
    assert_eq!(report["places"][1], block);
    let (status, _, error) = text_on(&server, &["who", "::ffff:10.20.3.7"]);
    assert!(status == 2 && error.contains("write 10.20.3.7"), "{error}");
}

#[test]
fn check_reads_again_before_it_reports() {
    let right = cluster(&json!([pod("web-0", "10.20.3.7")]), &[]);
    let (status, report) = run_on(&right, &["check"]);
    assert_eq!(status, 0, "{report}");
    assert_eq!(
        (&report["blocks"], &report["addresses"]),
        (&json!(2), &json!(2))
    );
    let wrong = cluster(
        &json!([pod("web-0", "10.20.3.7"), pod("web-1", "10.20.3.8")]),
        &[],
    );
    for (recheck, readings) in [("0", 1), ("1", 2)] {
        let before = wrong.requests("GET /api/v1/pods");
        let (status, report) = run_on(&wrong, &["check", "--recheck", recheck]);
        assert_eq!(status, 1, "{report}");
        assert_eq!(report["findings"].as_array().unwrap().len(), 1, "{report}");
        let finding = &report["findings"][0];
        assert_eq!(
            (&finding["kind"], &finding["object"]),
            (&json!("unrecorded"), &json!("10.20.3.8"))
        );
        assert_eq!(wrong.requests("GET /api/v1/pods") - before, readings);
    }
}

#[test]
fn free_changes_nothing_without_yes() {
    let server = cluster(&json!([]), &[]);
    let (status, text, _) = text_on(&server, &["free", "--node", "c"]);
    assert_eq!(status, 1, "{text}");
    assert!(
        text.contains("has        block 10.20.3.32, 1 of 32 in use") && text.contains("add --yes"),
        "{text}"
    );
    assert_eq!(server.patches(), []);
}

#[test]
fn free_patches_the_blocks_of_the_node() {
    let path = format!("{BLOCKS}/10.20.3.32");
    let server = cluster(&json!([]), &[(&path, 200, block("10.20.3.32", "c"))]);
    let (status, report) = run_on(&server, &["free", "--node", "c", "--yes"]);
    assert_eq!(status, 0, "{report}");
    assert_eq!(report["steps"][0]["outcome"], "freed");
    let patches = server.patches();
    assert_eq!(patches.len(), 1);
    assert_eq!(patches[0].method_and_path, format!("PATCH {path}"));
    assert_eq!(patches[0].content_type, "application/json-patch+json");
    let tests: Vec<_> = patches[0]
        .body
        .as_array()
        .unwrap()
        .iter()
        .filter(|operation| operation["op"] == "test")
        .map(|operation| operation["path"].as_str().unwrap())
        .collect();
    assert_eq!(
        tests,
        ["/metadata/uid", "/spec/mode", "/spec/turn", "/spec/holder"]
    );
}

#[test]
fn a_refused_patch_is_reported() {
    let path = format!("{BLOCKS}/10.20.3.32");
    let refusal = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422, "reason": "Invalid", "message": "a test failed"});
    let server = cluster(&json!([]), &[(&path, 422, refusal)]);
    let (status, text, _) = text_on(&server, &["free", "--node", "c", "--yes"]);
    let expected = "not freed  block 10.20.3.32, 1 of 32 in use: it has changed meanwhile (a test failed); run the command again\n\n\
        0 of 1 entry of node c freed\n";
    assert_eq!((status, text.as_str()), (1, expected));
}

#[test]
fn yes_does_not_free_what_a_running_node_has() {
    let server = cluster(&json!([]), &[]);
    let (status, report) = run_on(&server, &["free", "--node", "b", "--yes"]);
    assert_eq!(
        (status, &report["steps"][0]["outcome"]),
        (1, &json!("planned"))
    );
    let refusal = report["refusal"].as_str().unwrap();
    assert!(refusal.starts_with("node b is Ready"), "{refusal}");
    let hidden = ("/api/v1/nodes/c", 403, forbidden("nodes"));
    let blind = cluster(&json!([]), &[hidden]);
    let (status, _, error) = text_on(&blind, &["free", "--node", "c", "--yes"]);
    assert!(
        status == 3 && error.contains("nothing was freed: cannot read node c"),
        "{error}"
    );
    assert_eq!((server.patches(), blind.patches()), (vec![], vec![]));
}

#[test]
fn pools_are_not_moved_without_yes_or_past_an_obstacle() {
    let pools = "/apis/whereabouts.cni.cncf.io/v1alpha1";
    let entry = |pod: &str| json!({"id": format!("container-{pod}"), "podref": format!("shop/{pod}"), "ifname": "net1"});
    let pool = json!({"metadata": {"name": "10.40.0.0-24", "namespace": "kube-system", "resourceVersion": "3"},
        "spec": {"range": "10.40.0.0/24", "allocations": {"1": entry("web"), "2": entry("gone")}}});
    let program = json!({"metadata": {"name": "whereabouts", "namespace": "kube-system"},
        "spec": {"template": {"spec": {"containers": [{"image": "ghcr.io/k8snetworkplumbingwg/whereabouts:v0.9.4"}]}}}});
    let server = |programs: &Value| {
        let (all, reservations) = (
            format!("{pools}/ippools"),
            format!("{pools}/overlappingrangeipreservations"),
        );
        let others = [
            (&*all, 200, list(&json!([pool]))),
            (&*reservations, 200, list(&json!([]))),
            ("/apis/apps/v1/daemonsets", 200, list(programs)),
            (
                "/api/v1/namespaces/kube-system",
                200,
                json!({"metadata": {"name": "kube-system"}}),
            ),
        ];
        cluster(&json!([pod("web", "10.40.0.1")]), &others)
    };
    let free = server(&json!([]));
    let (status, text, _) = text_on(&free, &["adopt", "whereabouts"]);
    assert_eq!(status, 1, "{text}");
    let leaked = "note: 10.40.0.2 of IPPool 10.40.0.0-24 is that of a pod that does not exist";
    assert!(text.starts_with(leaked), "{text}");
    let end = "1 pool with 2 addresses: nothing was changed; move them with --yes\n";
    assert!(text.ends_with(end), "{text}");
    let taken = server(&json!([program]));
    let (status, report) = run_on(&taken, &["adopt", "whereabouts", "--yes"]);
    let obstacle = report["obstacles"][0].as_str().unwrap();
    assert!(
        status == 1 && obstacle.starts_with("DaemonSet kube-system/whereabouts"),
        "{report}"
    );
    let (status, text, _) = text_on(&free, &["return", "whereabouts", "--yes"]);
    assert_eq!(
        (status, text.as_str()),
        (0, "1 pool with 0 addresses: no pool is in blocks\n")
    );
    assert_eq!((free.patches(), taken.patches()), (vec![], vec![]));
    let (status, _, error) = text_on(&cluster(&json!([]), &[]), &["adopt", "whereabouts"]);
    assert!(
        status == 3 && error.contains("the cluster has no pools of whereabouts"),
        "{error}"
    );
}

#[test]
fn pool_that_was_made_since_goes_back_to_blocks_in_its_own_space() {
    let (pools, word) = (
        "/apis/whereabouts.cni.cncf.io/v1alpha1",
        "ipam.multus-rs.cni.cncf.io/pool",
    );
    let pool = |name: &str, range: &str, state: &str, annotations: &Value| {
        json!({"metadata": {"name": name, "namespace": "kube-system", "resourceVersion": "3", "labels": {word: state}, "annotations": annotations},
            "spec": {"range": range, "allocations": {}}})
    };
    let space = json!({"ipam.multus-rs.cni.cncf.io/space": ""});
    let old = pool("10.40.0.0-24", "10.40.0.0/24", "returning", &space);
    let new = pool("10.41.0.0-24", "10.41.0.0/24", "new", &json!({}));
    let config = json!({"cniVersion": "1.0.0", "type": "macvlan",
        "ipam": {"type": "whereabouts", "range": "10.41.0.0/24", "enable_overlapping_ranges": false}});
    let definition = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "own", "namespace": "shop"}, "spec": {"config": config.to_string()}});
    let path = |name: &str| format!("{pools}/namespaces/kube-system/ippools/{name}");
    let (all, reservations) = (
        format!("{pools}/ippools"),
        format!("{pools}/overlappingrangeipreservations"),
    );
    let (old_path, new_path) = (path("10.40.0.0-24"), path("10.41.0.0-24"));
    let namespace = json!({"metadata": {"name": "kube-system", "labels": {"ipam.multus-rs.cni.cncf.io/pools": "closed"}}});
    let others = [
        (&*all, 200, list(&json!([old, new]))),
        (&*old_path, 200, old.clone()),
        (&*new_path, 200, new.clone()),
        (&*reservations, 200, list(&json!([]))),
        (NADS, 200, list(&json!([definition]))),
        ("/apis/apps/v1/daemonsets", 200, list(&json!([]))),
        ("/api/v1/namespaces/kube-system", 200, namespace),
    ];
    let server = cluster(&json!([]), &others);
    let (status, report) = run_on(&server, &["adopt", "whereabouts", "--yes"]);
    assert_eq!(status, 0, "{report}");
    let patches = server.patches();
    let of_new = patches
        .iter()
        .find(|one| one.method_and_path.ends_with(&new_path));
    let steps = of_new.unwrap().body.as_array().unwrap();
    assert_eq!(steps.last().unwrap()["value"], "pool 10.41.0.0-24");
}
