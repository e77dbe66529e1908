//! Annotations and definitions that would make a node build more than its pods need.

use serde_json::json;

use super::fixture::{DEFAULT_NETWORK, Fixture, config, pod};
use crate::*;

#[test]
fn annotation_with_very_many_networks_is_refused_before_any_is_looked_up() {
    let many = vec!["absent"; 100_000].join(",");
    Fixture::new().check_error(&pod(&many), &["shop/cart-0", "100000", "64", "remove some"]);
}

#[test]
fn equal_selections_share_one_configuration() {
    let fixture = Fixture::new().bridge("shop", "a").bridge("shop", "b");
    let networks = r#"[{"name":"a","mac":"02:00:00:00:00:01"},{"name":"b"},{"name":"a"},
        {"name":"a","cni-args":{"tier":"gold"}},{"name":"a","cni-args":{"tier":"gold"}}]"#;
    let plan = fixture.plan(Some(&pod(networks))).unwrap();
    let shares = |one: usize, other: usize| Arc::ptr_eq(&plan[one].config, &plan[other].config);
    assert!(shares(1, 3) && shares(4, 5) && !shares(1, 2) && !shares(1, 4));
    assert_eq!(config(&plan[5])["args"]["cni"], json!({"tier": "gold"}));
    let mac = |at: usize| plan[at].selection.as_ref().unwrap().mac.as_deref();
    assert_eq!((mac(1), mac(3)), (Some("02:00:00:00:00:01"), None));
}

#[test]
fn configurations_that_are_too_large_together_are_refused_with_their_size() {
    let large = json!({"type": "bridge", "name": "a", "note": "x".repeat(100 << 10)}).to_string();
    let fixture = Fixture::new().nad("shop", "a", &large);
    let networks = |count| pod(&vec!["a"; count].join(","));
    assert_eq!(fixture.plan(Some(&networks(10))).unwrap().len(), 11);
    let expected = (DEFAULT_NETWORK.len() + 11 * large.len()).to_string();
    fixture.check_error(
        &networks(40),
        &[&expected, "1048576", "select fewer networks"],
    );
}

#[test]
fn configuration_with_too_many_plugins_is_refused_with_their_number() {
    let list = |count| json!({"plugins": vec![json!({"type": "bridge"}); count]}).to_string();
    let fixture = Fixture::new()
        .nad("shop", "full", &list(32))
        .nad("shop", "long", &list(33));
    assert_eq!(fixture.plan(Some(&pod("full"))).unwrap().len(), 2);
    let with_args = r#"[{"name":"long","cni-args":{"tier":"gold"}}]"#;
    for networks in ["long", with_args] {
        fixture.check_error(&pod(networks), &["shop/long", "33 plugins", "32"]);
    }
}
