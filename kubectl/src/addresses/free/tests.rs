//! What is freed of a node, and the requests that free it.

use super::super::snapshot::{self, tests::Fixture};
use super::*;

const WARNING: &str = "\nnothing was freed: pods that still run on c would share these addresses with others; when its machine is off for good, add --yes\n";

fn fixture() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.node("c", "Unknown");
    fixture
}

fn report_of(fixture: &Fixture) -> Report {
    let node = fixture.nodes.first().map(snapshot::node);
    report(&fixture.snapshot(), "c", node.as_ref())
}

/// Applies the operations as RFC 6902 describes; `None` when one of them fails.
fn apply(mut object: Value, operations: &Value) -> Option<Value> {
    for operation in operations.as_array()? {
        let path = operation["path"].as_str()?;
        let value = operation["value"].clone();
        match operation["op"].as_str()? {
            "test" => {
                if *object.pointer(path)? != value {
                    return None;
                }
            }
            "replace" => *object.pointer_mut(path)? = value,
            other => {
                let (parent, key) = path.rsplit_once('/')?;
                let key = key.replace("~1", "/");
                let parent = object.pointer_mut(parent)?.as_object_mut()?;
                match other {
                    "add" => drop(parent.insert(key, value)),
                    "remove" => drop(parent.remove(&key)?),
                    _ => return None,
                }
            }
        }
    }
    Some(object)
}

#[test]
fn block_of_the_node_becomes_a_shared_one_without_owners() {
    let mut fixture = fixture();
    fixture.node_block("10.20.3.0", "c", "000000ff");
    fixture.node_block("10.20.4.0", "b", "000000ff");
    let report = report_of(&fixture);
    assert_eq!(
        text(&report),
        format!("has        block 10.20.3.0, 8 of 32 in use\n{WARNING}")
    );
    let operations = &report.steps[0].operations;
    let freed = apply(fixture.blocks[0].clone(), operations).unwrap();
    let spec = &freed["spec"];
    assert_eq!(
        (&spec["turn"], &spec["mode"]),
        (&json!(5), &json!("shared"))
    );
    assert!(spec.get("holder").is_none() && spec.get("used").is_none());
    assert_eq!(freed["metadata"]["labels"][NODE_LABEL], "");
    let block = ipam::AddressBlock::parse(&freed).unwrap();
    let expected = vec![Slot::default(); 32];
    assert!(matches!(block.mode, Mode::Shared(slots) if slots == expected));
}

#[test]
fn block_that_has_changed_since_it_was_read_is_left_alone() {
    let mut fixture = fixture();
    fixture.node_block("10.20.3.0", "c", "000000ff");
    let operations = &report_of(&fixture).steps[0].operations;
    let changed = |pointer: &str, value: Value| {
        let mut object = fixture.blocks[0].clone();
        *object.pointer_mut(pointer).unwrap() = value;
        apply(object, operations)
    };
    assert_eq!(changed("/metadata/uid", json!("another")), None);
    assert_eq!(changed("/spec/turn", json!(5)), None);
    assert_eq!(changed("/spec/holder/incarnation", json!("new")), None);
    assert_eq!(changed("/spec/mode", json!("closed")), None);
    // The holder's report changes all the time, and may be missing.
    assert!(changed("/spec/used", json!("ffffffff")).is_some());
    let mut unreported = fixture.blocks[0].clone();
    unreported["spec"].as_object_mut().unwrap().remove("used");
    assert!(apply(unreported, operations).is_some());
    fixture.blocks[0]["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("labels");
    let operations = &report_of(&fixture).steps[0].operations;
    let freed = apply(fixture.blocks[0].clone(), operations).unwrap();
    assert_eq!(freed["metadata"]["labels"][NODE_LABEL], "");
}

#[test]
fn slots_of_the_nodes_pods_are_emptied() {
    let mut fixture = fixture();
    fixture.shared_block("10.20.3.0", &[(6, "stays", "b"), (7, "lost", "c")]);
    let report = report_of(&fixture);
    assert_eq!(
        text(&report),
        format!("has        10.20.3.7 of pod shop/lost\n{WARNING}")
    );
    let operations = &report.steps[0].operations;
    let freed = apply(fixture.blocks[0].clone(), operations).unwrap();
    assert_eq!(freed["spec"]["slots"][7], json!({"owner": "", "pods": []}));
    assert_eq!(
        freed["spec"]["slots"][6],
        fixture.blocks[0]["spec"]["slots"][6]
    );
    let mut taken = fixture.blocks[0].clone();
    taken["spec"]["slots"][7]["owner"] = json!("pod/another/container/net1");
    assert_eq!(apply(taken, operations), None);
    let mut made_anew = fixture.blocks[0].clone();
    made_anew["metadata"]["uid"] = json!("another");
    assert_eq!(apply(made_anew, operations), None);
}

#[test]
fn deleted_blocks_are_let_go() {
    let mut fixture = fixture();
    fixture.node_block("10.20.3.0", "c", "000000ff");
    fixture.shared_block("10.20.4.0", &[(6, "also", "c"), (7, "lost", "c")]);
    fixture.shared_block("10.20.5.0", &[(6, "stays", "b"), (7, "lost", "c")]);
    fixture.shared_block("10.20.6.0", &[]);
    fixture.claim_slot(7, "c-1", &[("vm", "c")]);
    for block in &mut fixture.blocks {
        block["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        block["metadata"]["finalizers"] = json!([ipam::object::FINALIZER]);
    }
    let report = report_of(&fixture);
    assert_eq!(
        text(&report),
        format!(
            "has        block 10.20.3.0, 8 of 32 in use, which was deleted\n\
             has        10.20.4.6 of pod shop/also\n\
             has        10.20.4.7 of pod shop/lost\n\
             has        block 10.20.4.0, which was deleted\n\
             has        10.20.5.7 of pod shop/lost\n\
             has        10.20.6.7 of pod shop/vm, which stays that of claim shop/c-1\n{WARNING}"
        )
    );
    let steps = &report.steps;
    let gone = |object: Value| object["metadata"].get("finalizers").is_none();
    let held = apply(fixture.blocks[0].clone(), &steps[0].operations);
    assert!(held.is_some_and(gone));
    let shared = &fixture.blocks[1];
    let kept = apply(shared.clone(), &steps[1].operations).unwrap();
    assert_eq!(apply(kept.clone(), &steps[3].operations), None);
    let freed = apply(kept, &steps[2].operations).unwrap();
    assert!(apply(freed, &steps[3].operations).is_some_and(gone));
}

#[test]
fn claims_keep_their_address_without_the_nodes_pods() {
    let mut fixture = fixture();
    fixture.shared_block("10.20.3.0", &[]);
    fixture.claim_slot(7, "c-1", &[("vm-1", "c"), ("vm-2", "b")]);
    fixture.claim_slot(8, "c-2", &[("vm-3", "b")]);
    let report = report_of(&fixture);
    assert_eq!(report.steps.len(), 1);
    let kept = "10.20.3.7 of pod shop/vm-1, which stays that of claim shop/c-1";
    assert_eq!(report.steps[0].text, kept);
    let operations = &report.steps[0].operations;
    let freed = apply(fixture.blocks[0].clone(), operations).unwrap();
    let slot = &freed["spec"]["slots"][7];
    assert_eq!(slot["owner"], "claim/c-1/shop/c-1");
    assert_eq!(slot["pods"].as_array().unwrap().len(), 1);
    assert_eq!(slot["pods"][0]["name"], "vm-2");
    let mut migrated = fixture.blocks[0].clone();
    migrated["spec"]["slots"][7]["pods"][1]["name"] = json!("vm-9");
    assert_eq!(apply(migrated, operations), None);
}

#[test]
fn a_slot_that_also_has_a_pod_of_another_node_is_left_alone() {
    let mut fixture = fixture();
    fixture.shared_block("10.20.3.0", &[(7, "lost", "c")]);
    let mut other = fixture.blocks[0]["spec"]["slots"][7]["pods"][0].clone();
    other["node"] = json!("b");
    let pods = &mut fixture.blocks[0]["spec"]["slots"][7]["pods"];
    pods.as_array_mut().unwrap().push(other);
    assert_eq!(report_of(&fixture).steps, []);
}

#[test]
fn a_node_whose_kubelet_reports_is_refused() {
    for (ready, state) in [
        ("True", "is Ready"),
        ("False", "is NotReady, but its kubelet reports"),
    ] {
        let mut fixture = Fixture::new();
        fixture.node("c", ready);
        fixture.node_block("10.20.3.0", "c", "");
        let report = report_of(&fixture);
        assert_eq!(
            text(&report),
            format!(
                "has        block 10.20.3.0, use unknown\n\n\
                 nothing was freed: node c {state}, so its machine is on and its pods use these addresses: shut it down first, and wait until the Node is NotReady\n"
            )
        );
    }
    let mut gone = Fixture::new();
    gone.node_block("10.20.3.0", "c", "");
    assert_eq!(report_of(&gone).refusal, None);
}

#[test]
fn a_node_without_addresses_is_said_in_a_sentence() {
    let mut fixture = Fixture::new();
    fixture.node("c", "True");
    let report = report_of(&fixture);
    assert_eq!(
        (text(&report).as_str(), report.refusal),
        (
            "node c holds no block and no address of a shared one\n",
            None
        )
    );
}

#[test]
fn outcomes_are_reported_one_by_one() {
    let mut fixture = fixture();
    for block in ["10.20.3.0", "10.20.3.32", "10.20.3.64"] {
        fixture.node_block(block, "c", "00000001");
    }
    let mut report = report_of(&fixture);
    report.steps[0].outcome = Outcome::Freed;
    report.steps[1].outcome = Outcome::Changed("test failed".to_owned());
    report.steps[2].outcome = Outcome::Failed("forbidden".to_owned());
    assert_eq!(
        text(&report),
        "freed      block 10.20.3.0, 1 of 32 in use\n\
         not freed  block 10.20.3.32, 1 of 32 in use: it has changed meanwhile (test failed); run the command again\n\
         not freed  block 10.20.3.64, 1 of 32 in use: forbidden\n\n\
         1 of 3 entries of node c freed\n"
    );
}
