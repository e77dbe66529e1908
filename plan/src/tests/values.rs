//! Values of configurations and annotations that mean nothing for the network that they are for.

use serde_json::json;

use super::world::{World, pod};

#[test]
fn a_hardware_address_of_infiniband_is_for_infiniband_alone() {
    let long = "02:00:00:00:00:00:00:07";
    let asks = |mac: &str| pod(&json!([{"name": "a", "mac": mac}]).to_string());
    let plain = World::new().bridge("shop", "a");
    plain.check(&asks("02:00:00:00:00:07"), "cbr0=eth0 shop/a=net1");
    plain.check_error(&asks(long), &["shop/a", long, "6 bytes"]);
    for infiniband in [
        r#"{"cniVersion":"1.0.0","type":"ib-sriov"}"#,
        r#"{"cniVersion":"1.0.0","type":"ipoib"}"#,
        r#"{"cniVersion":"1.0.0","type":"mine","capabilities":{"infinibandGUID":true}}"#,
    ] {
        let world = World::new().nad("shop", "a", infiniband);
        world.check(&asks(long), "cbr0=eth0 shop/a=net1");
    }
}

#[test]
fn a_name_that_is_no_text_is_refused() {
    for config in [
        r#"{"cniVersion":"1.0.0","name":7,"type":"bridge"}"#,
        r#"{"cniVersion":"1.0.0","name":["x"],"plugins":[{"type":"bridge"}]}"#,
    ] {
        let world = World::new().nad("shop", "a", config);
        world.check_error(&pod("a"), &["shop/a", "\"name\"", "string"]);
    }
    let absent = r#"{"cniVersion":"1.0.0","name":null,"type":"bridge"}"#;
    let world = World::new().nad("shop", "a", absent);
    world.check(&pod("a"), "cbr0=eth0 shop/a=net1");
}
