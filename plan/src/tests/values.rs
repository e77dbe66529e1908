//! Values of configurations and annotations that are invalid for their network.

use serde_json::json;

use super::fixture::{Fixture, pod};

#[test]
fn only_infiniband_networks_take_infiniband_hardware_addresses() {
    let long = "02:00:00:00:00:00:00:07";
    let asks = |mac: &str| pod(&json!([{"name": "a", "mac": mac}]).to_string());
    let plain = Fixture::new().bridge("shop", "a");
    plain.check(&asks("02:00:00:00:00:07"), "cbr0=eth0 shop/a=net1");
    plain.check_error(&asks(long), &["shop/a", long, "6 bytes"]);
    for infiniband in [
        r#"{"cniVersion":"1.0.0","type":"ib-sriov"}"#,
        r#"{"cniVersion":"1.0.0","type":"ipoib"}"#,
        r#"{"cniVersion":"1.0.0","type":"mine","capabilities":{"infinibandGUID":true}}"#,
    ] {
        let fixture = Fixture::new().nad("shop", "a", infiniband);
        fixture.check(&asks(long), "cbr0=eth0 shop/a=net1");
    }
}

#[test]
fn a_name_that_is_not_a_string_is_refused() {
    for config in [
        r#"{"cniVersion":"1.0.0","name":7,"type":"bridge"}"#,
        r#"{"cniVersion":"1.0.0","name":["x"],"plugins":[{"type":"bridge"}]}"#,
    ] {
        let fixture = Fixture::new().nad("shop", "a", config);
        fixture.check_error(&pod("a"), &["shop/a", "\"name\"", "string"]);
    }
    let absent = r#"{"cniVersion":"1.0.0","name":null,"type":"bridge"}"#;
    let fixture = Fixture::new().nad("shop", "a", absent);
    fixture.check(&pod("a"), "cbr0=eth0 shop/a=net1");
}
