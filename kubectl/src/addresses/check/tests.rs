//! Findings over small clusters, and clusters without any.

use serde_json::json;

use super::super::snapshot::tests::Fixture;
use super::*;

fn fixture() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.define("shop/storage", &json!({"subnet": "10.20.0.0/16"}));
    fixture.node("a", "True");
    fixture.node("b", "True");
    fixture
}

#[track_caller]
fn check(fixture: &Fixture, expected: &str) {
    assert_eq!(text(&report(&fixture.snapshot())), expected);
}

#[test]
fn a_consistent_cluster_has_no_finding() {
    let mut fixture = fixture();
    fixture.claims = Some(Vec::new());
    fixture.claim("vm.storage.net1", "c-1");
    fixture.node_block("10.20.3.0", "a", "00000080");
    fixture.shared_block("10.20.4.0", &[(7, "shared", "b")]);
    fixture.claim_slot(8, "c-1", &[("vm-1", "a"), ("vm-2", "b")]);
    fixture.pod("own", "a", "shop/storage", "10.20.3.7");
    fixture.pod("shared", "b", "shop/storage", "10.20.4.7");
    fixture.pod("vm-1", "a", "shop/storage", "10.20.4.8");
    fixture.pod("vm-2", "b", "shop/storage", "10.20.4.8");
    // The addresses of other networks are those of each node.
    fixture.pod("local", "b", "shop/local", "10.20.3.7");
    check(
        &fixture,
        "nothing is wrong: 2 blocks with 3 addresses in use, 4 running pods with an address\n",
    );
}

#[test]
fn two_running_pods_with_one_address_are_found() {
    let mut fixture = fixture();
    fixture.node_block("10.20.3.0", "a", "00000080");
    fixture.pod("one", "a", "shop/storage", "10.20.3.7");
    fixture.pod("two", "b", "shop/storage", "10.20.3.7");
    check(
        &fixture,
        "twice: 10.20.3.7: shop/one net1 on a and shop/two net1 on b have it: only shop/one has it by its block, so delete the others for new addresses\n",
    );
    fixture.pods[1]["spec"]["nodeName"] = json!("a");
    check(
        &fixture,
        "twice: 10.20.3.7: shop/one net1 on a and shop/two net1 on a have it: delete all of them but one for new addresses\n",
    );
    fixture.pods[1]["status"]["phase"] = json!("Failed");
    assert!(report(&fixture.snapshot()).findings.is_empty());
}

#[test]
fn a_slot_counts_before_its_pod_has_a_network_status() {
    let mut fixture = fixture();
    fixture.shared_block("10.20.4.0", &[(7, "one", "a")]);
    fixture.pod("one", "a", "shop/storage", "10.20.9.9");
    fixture.pods[0]["metadata"]["annotations"] = json!({});
    fixture.pod("two", "b", "shop/storage", "10.20.4.7");
    check(
        &fixture,
        "twice: 10.20.4.7: shop/two net1 on b and shop/one on a have it: only shop/one has it by its block, so delete the others for new addresses\n",
    );
}

#[test]
fn a_claim_has_no_third_pod_and_none_that_its_slot_does_not_name() {
    let mut fixture = fixture();
    fixture.claim("vm.storage.net1", "c-1");
    fixture.shared_block("10.20.4.0", &[]);
    fixture.claim_slot(8, "c-1", &[("vm-1", "a")]);
    fixture.pod("vm-1", "a", "shop/storage", "10.20.4.8");
    fixture.pod("vm-2", "b", "shop/storage", "10.20.4.8");
    let kinds = |fixture: &Fixture| -> Vec<_> {
        let findings = report(&fixture.snapshot()).findings.into_iter();
        findings.map(|one| one.kind).collect()
    };
    assert_eq!(kinds(&fixture), [Kind::Twice]);
    fixture.claim_slot(8, "c-1", &[("vm-1", "a"), ("vm-2", "b")]);
    assert_eq!(kinds(&fixture), []);
    fixture.claim_slot(8, "c-1", &[("vm-1", "a"), ("vm-2", "b"), ("vm-3", "b")]);
    fixture.pod("vm-3", "b", "shop/storage", "10.20.4.8");
    assert_eq!(kinds(&fixture), [Kind::Twice]);
}

#[test]
fn equal_addresses_of_two_spaces_are_two() {
    let mut fixture = fixture();
    fixture.define(
        "shop/lab",
        &json!({"subnet": "10.20.0.0/16", "space": "lab"}),
    );
    fixture.node_block("10.20.3.0", "a", "00000080");
    fixture.pod("one", "a", "shop/storage", "10.20.3.7");
    fixture.pod("two", "b", "shop/lab", "10.20.3.7");
    check(
        &fixture,
        "unrecorded: 10.20.3.7 in space lab: shop/two net1 on b has it, and no node holds its block 10.20.3.0: delete the pod, so that it gets another address\n",
    );
}

#[test]
fn addresses_that_no_block_has_taken_are_unrecorded() {
    let mut fixture = fixture();
    fixture.define(
        "shop/pool",
        &json!({"type": "whereabouts", "range": "10.30.0.0/16"}),
    );
    fixture.node_block("10.20.3.0", "a", "00000080");
    fixture.shared_block("10.20.4.0", &[(8, "owner", "a")]);
    fixture.pod("owner", "a", "shop/storage", "10.20.4.8");
    for (pod, node, address, reason) in [
        ("p", "a", "10.20.3.7", None),
        (
            "p",
            "a",
            "10.20.3.6",
            Some("node a reports it as free in its block 10.20.3.0"),
        ),
        (
            "p",
            "b",
            "10.20.3.7",
            Some("node a holds its block 10.20.3.0"),
        ),
        (
            "p",
            "a",
            "10.20.4.7",
            Some("its slot in block 10.20.4.0 is free"),
        ),
        (
            "p",
            "a",
            "10.20.5.1",
            Some("no node holds its block 10.20.5.0"),
        ),
        // The gateway's address is of no range, so another plugin has set it.
        ("p", "a", "10.20.0.1", None),
    ] {
        let mut fixture = Fixture {
            pods: fixture.pods.clone(),
            definitions: fixture.definitions.clone(),
            blocks: fixture.blocks.clone(),
            nodes: fixture.nodes.clone(),
            claims: None,
        };
        fixture.pod(pod, node, "shop/storage", address);
        let findings = report(&fixture.snapshot()).findings;
        let found: Vec<_> = findings.iter().map(|one| one.text.as_str()).collect();
        let expected = reason.map(|reason| {
            format!("shop/p net1 on {node} has it, and {reason}: delete the pod, so that it gets another address")
        });
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{address}");
    }
    // Its pool may have it.
    fixture.pod("theirs", "a", "shop/pool", "10.30.0.9");
    assert!(report(&fixture.snapshot()).findings.is_empty());
}

#[test]
fn what_a_node_does_not_report_is_no_finding() {
    let mut fixture = fixture();
    fixture.node_block("10.20.3.0", "a", "");
    fixture.pod("p", "a", "shop/storage", "10.20.3.7");
    assert!(report(&fixture.snapshot()).findings.is_empty());
}

#[test]
fn slots_of_pods_and_claims_that_are_gone_are_leaked() {
    let mut fixture = fixture();
    fixture.claims = Some(Vec::new());
    fixture.shared_block("10.20.4.0", &[(7, "gone", "b")]);
    fixture.claim_slot(8, "c-1", &[]);
    check(
        &fixture,
        "leaked: 10.20.4.7: pod shop/gone no longer exists, and block 10.20.4.0 has it for the pod: the daemon of node b frees it; if the machine is off for good, kubectl multus ipam free --node b\n\
         leaked: 10.20.4.8: claim shop/c-1 no longer exists, and block 10.20.4.0 has it for the claim: the daemon of its last pod's node frees it, or the first that finds its range full\n",
    );
    // Claims that were not read may exist, and a pod of the name that is another one does not count.
    fixture.claims = None;
    fixture.pod("gone", "b", "shop/storage", "10.20.4.7");
    fixture.pods[0]["metadata"]["uid"] = json!("another");
    let found = report(&fixture.snapshot()).findings;
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].kind, found[0].object.as_str()),
        (Kind::Leaked, "10.20.4.7")
    );
    // The runtime knows static pods by a UID of the kubelet.
    fixture.pods[0]["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("hash");
    assert!(report(&fixture.snapshot()).findings.is_empty());
}

#[test]
fn address_that_came_with_a_pool_for_nobody_has_the_command_that_frees_it() {
    let mut fixture = fixture();
    fixture.shared_block("10.20.4.0", &[]);
    let block = fixture.blocks.last_mut().unwrap();
    block["spec"]["slots"][7]["owner"] = json!("pool/c/net1");
    let found = report(&fixture.snapshot()).findings;
    let [only] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((only.kind, &*only.object), (Kind::Leaked, "10.20.4.7"));
    let command = "kubectl patch addressblock 10.20.4.0 --type=json --patch='[{\"op\":\"test\",\"path\":\"/spec/slots/7/owner\",\"value\":\"pool/c/net1\"}";
    assert!(only.text.contains(command), "{}", only.text);
}

#[test]
fn blocks_of_nodes_that_are_gone_are_orphaned() {
    let mut fixture = fixture();
    fixture.node_block("10.20.3.0", "c", "00000000");
    check(
        &fixture,
        "orphaned: block 10.20.3.0: its node c no longer exists: it is freed ten minutes after no pod is bound to that name, or at once by kubectl multus ipam free --node c\n",
    );
    fixture.node("c", "True");
    assert!(report(&fixture.snapshot()).findings.is_empty());
    fixture.nodes[2]["metadata"]["uid"] = json!("another");
    check(
        &fixture,
        "orphaned: block 10.20.3.0: its node c was deleted, and a new Node has the name: while the machine is off, kubectl multus ipam free --node c\n",
    );
    let mut snapshot = fixture.snapshot();
    snapshot.nodes = None;
    assert!(report(&snapshot).findings.is_empty());
}

#[test]
fn unusable_blocks_have_the_error_of_their_reader() {
    let mut fixture = fixture();
    fixture.node_block("10.20.3.0", "a", "0");
    fixture.blocks[0]["spec"]["first"] = json!("10.20.3.1");
    check(
        &fixture,
        "unusable: block 10.20.3.0: spec.first 10.20.3.1 does not begin a block; write 10.20.3.0\n",
    );
}

#[test]
fn only_findings_of_both_readings_are_reported() {
    let mut fixture = fixture();
    fixture.shared_block("10.20.4.0", &[(7, "gone", "b"), (8, "ends", "b")]);
    let before = report(&fixture.snapshot());
    assert_eq!(before.findings.len(), 2);
    fixture.blocks.clear();
    fixture.shared_block("10.20.4.0", &[(7, "gone", "b"), (9, "begins", "b")]);
    let now = confirmed(&before.findings, report(&fixture.snapshot()).findings);
    let objects: Vec<_> = now.iter().map(|one| one.object.as_str()).collect();
    assert_eq!(objects, ["10.20.4.7"]);
}
