//! Every result in every version, against `tests/fixtures/convert/<case>.json`: an object of the input and of its form in each
//! version. `UPDATE_EXPECT=1` rewrites the latter.

use std::path::PathBuf;

use cni::CniResult;
use cni::convert::{ConvertError, parse_result, parse_result_as, parse_value, result_to};
use cni::version::{SUPPORTED, Version};
use serde_json::{Map, Value};

fn check(case: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/convert")
        .join(format!("{case}.json"));
    let expected: Map<String, Value> =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let result = parse_value(&expected["input"], None).unwrap();
    let mut found = Map::new();
    found.insert("input".to_owned(), expected["input"].clone());
    for version in SUPPORTED {
        let converted = result_to(&result, version);
        // Converting to the same version again changes nothing.
        let again = parse_value(&converted, None).unwrap();
        assert_eq!(result_to(&again, version), converted, "{case} {version}");
        assert_eq!(again.cni_version, version.to_string());
        found.insert(version.to_string(), converted);
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&found).unwrap() + "\n").unwrap();
    } else {
        // As text, so that the order of keys counts, too.
        assert_eq!(
            serde_json::to_string_pretty(&found).unwrap(),
            serde_json::to_string_pretty(&expected).unwrap(),
            "{case}"
        );
    }
}

#[test]
fn result_with_every_field_of_1_1_0() {
    check("full");
}

#[test]
fn result_with_every_field_of_0_2_0() {
    check("old");
}

#[test]
fn result_with_several_addresses_of_a_family() {
    check("several");
}

#[test]
fn empty_result() {
    check("empty");
}

#[test]
fn result_without_version_has_that_of_its_configuration() {
    let bytes = br#"{"ips":[{"address":"10.0.0.2/8"}]}"#;
    let result = parse_result_as(bytes, Version::V1_0_0).unwrap();
    assert_eq!(
        (result.cni_version.as_str(), result.ips.len()),
        ("1.0.0", 1)
    );
    let result = parse_result(br#"{"ip4":{"ip":"10.0.0.2/8"}}"#).unwrap();
    assert_eq!(
        (result.cni_version.as_str(), result.ips.len()),
        ("0.1.0", 1)
    );
}

#[test]
fn entry_without_an_address_is_left_out_of_old_versions() {
    let old = |ips: &str| {
        let text = format!(r#"{{"cniVersion":"1.0.0","ips":[{ips}]}}"#);
        result_to(&parse_result(text.as_bytes()).unwrap(), Version::V0_2_0)
    };
    assert_eq!(old(r#"{"gateway":"10.0.0.1"}"#).get("ip4"), None);
    let with_another = old(r#"{"gateway":"10.0.0.1"},{"address":"10.0.0.2/8"}"#);
    assert_eq!(with_another["ip4"]["ip"], "10.0.0.2/8");
}

#[test]
fn unusable_results_are_refused() {
    let error = |text: &str| parse_result(text.as_bytes()).unwrap_err();
    assert!(matches!(error(""), ConvertError::Json(_)));
    assert_eq!(
        error("[]").to_string(),
        "unusable result: result is not an object"
    );
    assert_eq!(
        error(r#"{"cniVersion":1}"#).to_string(),
        "unusable result: cniVersion is not a string"
    );
    assert_eq!(
        error(r#"{"cniVersion":"1.0.0","ips":{}}"#).to_string(),
        "unusable result: ips is not an array"
    );
    assert_eq!(
        error(r#"{"cniVersion":"1.0.0","ips":["10.0.0.2/8"]}"#).to_string(),
        "unusable result: an ip is not an object"
    );
    assert_eq!(
        error(r#"{"cniVersion":"1.0.0","interfaces":[{"name":7}]}"#).to_string(),
        "unusable result: name is not a string"
    );
    assert_eq!(
        error(r#"{"cniVersion":"1.0.0","routes":[{"mtu":1.5}]}"#).to_string(),
        "unusable result: mtu is not a whole number"
    );
    assert_eq!(
        error(r#"{"cniVersion":"1.0.0","dns":{"search":[1]}}"#).to_string(),
        "unusable result: an entry is not a string"
    );
    assert_eq!(
        error(r#"{"cniVersion":"0.2.0","ip4":{}}"#).to_string(),
        "unusable result: ip4 is not an object with an address"
    );
    assert!(matches!(
        error(r#"{"cniVersion":"one"}"#),
        ConvertError::Version(_)
    ));
    assert!(
        matches!(error(r#"{"cniVersion":"1.2.0"}"#), ConvertError::Unsupported(version) if version == Version::new(1, 2, 0))
    );
}

#[test]
fn serde_keeps_the_version_of_a_result() {
    let text = r#"{"cniVersion":"0.4.0","ips":[{"version":"6","address":"fd00::2/64"}],"dns":{}}"#;
    let result: CniResult = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&result).unwrap(), text);
    let result = CniResult {
        cni_version: String::new(),
        ..result
    };
    assert_eq!(
        serde_json::to_string(&result).unwrap(),
        r#"{"cniVersion":"1.1.0","ips":[{"address":"fd00::2/64"}],"dns":{}}"#
    );
    assert!(serde_json::from_str::<CniResult>("7").is_err());
}
