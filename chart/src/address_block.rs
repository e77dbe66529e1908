//! The CRD of address blocks against the crate that reads them: it has the same names, and it refuses what that crate never uses.

use ipam::object::{AddressBlock, GROUP, KIND, RESOURCE, VERSION};
use jsonschema::Validator;
use serde_json::{Value, json};

const CRD: &str = include_str!("../template/crd/templates/addressBlock.yaml");
const DEFINITIONS: &str =
    include_str!("../template/crd/templates/networkAttachmentDefinition.yaml");

fn parse(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap()
}

fn block() -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND,
        "metadata": {"name": "10.20.3.0", "uid": "u", "resourceVersion": "7"},
        "spec": {
            "schema": 1, "space": "", "first": "10.20.3.0", "mode": "node", "turn": 4,
            "holder": {"node": "b", "uid": "n", "incarnation": "i", "boot": "o"}, "used": "000000ff", "wanted": ["a"]
        }
    })
}

fn shared_block() -> Value {
    let pod = json!({"namespace": "shop", "name": "web-0", "uid": "p", "node": "b", "boot": "o"});
    let mut slots = vec![json!({"owner": "", "pods": []}); 32];
    slots[5] = json!({"owner": "pod/p/c/net1", "pods": [pod]});
    let mut block = block();
    block["spec"]["mode"] = json!("shared");
    block["spec"]["slots"] = json!(slots);
    block["spec"].as_object_mut().unwrap().remove("holder");
    block
}

fn schema() -> Value {
    parse(CRD)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take()
}

#[test]
fn names_are_those_of_the_requests() {
    let crd = parse(CRD);
    let spec = &crd["spec"];
    assert_eq!(crd["metadata"]["name"], format!("{RESOURCE}.{GROUP}"));
    assert_eq!(
        (&spec["group"], &spec["scope"]),
        (&json!(GROUP), &json!("Cluster"))
    );
    let names = &spec["names"];
    assert_eq!(
        (&names["plural"], &names["kind"]),
        (&json!(RESOURCE), &json!(KIND))
    );
    let versions = spec["versions"].as_array().unwrap();
    assert_eq!((versions.len(), &versions[0]["name"]), (1, &json!(VERSION)));
    assert_eq!(versions[0]["subresources"], Value::Null);
}

#[test]
fn blocks_are_kept_on_uninstall_as_definitions_are() {
    let annotations = |text| parse(text)["metadata"]["annotations"].take();
    assert_eq!(annotations(CRD), annotations(DEFINITIONS));
}

#[test]
fn the_schema_accepts_blocks_and_knows_all_their_fields() {
    /// Adds each field that the schema would prune.
    fn unknown(value: &Value, schema: &Value, found: &mut Vec<String>) {
        for item in value.as_array().into_iter().flatten() {
            unknown(item, &schema["items"], found);
        }
        for (key, value) in value.as_object().into_iter().flatten() {
            match &schema["properties"][key] {
                Value::Null => found.push(key.clone()),
                schema => unknown(value, schema, found),
            }
        }
    }
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for block in [block(), shared_block()] {
        assert!(validator.is_valid(&block), "{block}");
        AddressBlock::parse(&block).unwrap();
        let mut found = Vec::new();
        unknown(&block["spec"], &schema["properties"]["spec"], &mut found);
        assert_eq!(found, [""; 0]);
    }
}

#[track_caller]
fn check_refused(validator: &Validator, block: &Value) {
    AddressBlock::parse(block).unwrap_err();
    assert!(!validator.is_valid(block), "{block}");
}

#[test]
fn the_schema_refuses_blocks_that_are_never_used() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for key in ["schema", "space", "first", "mode", "turn"] {
        let mut block = block();
        block["spec"].as_object_mut().unwrap().remove(key);
        check_refused(&validator, &block);
    }
    for key in ["node", "uid", "incarnation", "boot"] {
        let mut block = block();
        block["spec"]["holder"].as_object_mut().unwrap().remove(key);
        check_refused(&validator, &block);
    }
    for (pointer, value) in [
        ("/spec/mode", json!("mine")),
        ("/spec/turn", json!(-1)),
        ("/spec/wanted", json!([1])),
    ] {
        let mut block = block();
        *block.pointer_mut(pointer).unwrap() = value;
        check_refused(&validator, &block);
    }
    for slots in [31, 33] {
        let mut block = shared_block();
        block["spec"]["slots"] = json!(vec![json!({"owner": ""}); slots]);
        check_refused(&validator, &block);
    }
    let mut block = shared_block();
    block["spec"]["slots"][5]["pods"][0]
        .as_object_mut()
        .unwrap()
        .remove("node");
    check_refused(&validator, &block);
}
