//! The status for results of every shape. The complete text is compared where its form matters.

use super::*;
use serde_json::{Value, json};

fn attached(name: &str, is_default: bool, result: Value) -> Attached {
    Attached {
        name: name.to_owned(),
        ifname: "eth0".to_owned(),
        is_default,
        result: serde_json::from_value(result).unwrap(),
        unsupported: Vec::new(),
        device_info: None,
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "cases write json!() in place"
)]
fn check(result: Value, is_default: bool, expected: Value) {
    let text = build(&[attached("n", is_default, result)]).unwrap_or_else(|| "[]".to_owned());
    let got: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(got, expected);
}

#[test]
fn the_text_has_the_form_that_consumers_know() {
    let first = json!({
        "cniVersion": "1.1.0",
        "interfaces": [
            {"name": "veth1"},
            {"name": "eth0", "mac": "0a:58:0a:f4:01:07", "sandbox": "/var/run/netns/x"},
        ],
        "ips": [{"interface": 1, "address": "10.244.1.7/24", "gateway": "10.244.1.1"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.244.1.1"}],
        "dns": {},
    });
    let second = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "net1", "mac": "02:aa:00:00:00:05", "mtu": 9000, "sandbox": "/var/run/netns/x"}],
        "ips": [{"address": "10.20.0.5/24"}],
        "dns": {"nameservers": ["10.0.0.10"], "search": ["a.b"]},
    });
    let text = build(&[
        attached("k8s-pod-network", true, first),
        attached("shop/storage", false, second),
    ])
    .unwrap();
    assert_eq!(
        text,
        include_str!("../../tests/fixtures/network_status.txt").trim_end()
    );
}

#[test]
fn several_interfaces_share_the_addresses_by_index() {
    check(
        json!({
            "interfaces": [
                {"name": "host"},
                {"name": "a", "sandbox": "/n"},
                {"name": "b", "sandbox": "/n"},
            ],
            "ips": [
                {"interface": 1, "address": "10.0.0.1/24"},
                {"interface": 2, "address": "10.0.1.1/24", "gateway": "10.0.1.254"},
                {"address": "10.0.2.1/24"},
                {"interface": 7, "address": "10.0.3.1/24"},
                {"interface": -1, "address": "10.0.4.1/24"},
            ],
        }),
        true,
        json!([
            {"name": "n", "interface": "a", "ips": ["10.0.0.1"], "default": false, "dns": {}},
            {"name": "n", "interface": "b", "ips": ["10.0.1.1", "10.0.2.1"], "default": true, "dns": {}},
        ]),
    );
}

#[test]
fn without_a_gateway_the_first_interface_inside_is_the_default_one() {
    let result = json!({
        "interfaces": [{"name": "host"}, {"name": "a", "sandbox": "/n"}, {"name": "b", "sandbox": "/n"}],
    });
    check(
        result.clone(),
        true,
        json!([
            {"name": "n", "interface": "a", "default": true, "dns": {}},
            {"name": "n", "interface": "b", "default": false, "dns": {}},
        ]),
    );
    check(
        result,
        false,
        json!([
            {"name": "n", "interface": "a", "default": false, "dns": {}},
            {"name": "n", "interface": "b", "default": false, "dns": {}},
        ]),
    );
}

#[test]
fn default_routes_without_gateway_are_omitted() {
    check(
        json!({
            "interfaces": [{"name": "a", "sandbox": "/n"}],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0", "gw": "fd00::1"}, {"dst": "10.0.0.0/8", "gw": "10.0.0.1"}],
        }),
        false,
        json!([{"name": "n", "interface": "a", "default": false, "dns": {}, "gateway": ["fd00::1"], "default-route": ["fd00::1"]}]),
    );
}

#[test]
fn a_result_without_interfaces_is_reported_for_the_requested_interface() {
    let with_address = json!({"ips": [{"address": "10.0.0.1/8"}]});
    let entry = |default: bool| json!([{"name": "n", "interface": "eth0", "ips": ["10.0.0.1"], "default": default, "dns": {}}]);
    check(with_address.clone(), true, entry(true));
    check(with_address, false, entry(false));
    let bare = json!([{"name": "n", "interface": "eth0", "default": true, "dns": {}}]);
    check(json!({}), true, bare.clone());
    let outside = json!({"interfaces": [{"name": "veth1"}, {"name": "br0"}]});
    check(outside.clone(), true, bare);
    // A network that gives the pod neither interface nor address, as passthru.
    check(json!({}), false, json!([]));
    check(outside, false, json!([]));
    assert_eq!(build(&[]), None);
}

#[test]
fn addresses_are_reported_in_canonical_form() {
    check(
        json!({
            "interfaces": [{"name": "a", "sandbox": "/n"}],
            "ips": [{"address": "fd05:0:0::2/64"}, {"address": "odd"}],
            "routes": [{"dst": "::/0", "gw": "FD05:0::1"}],
        }),
        false,
        json!([{"name": "n", "interface": "a", "ips": ["fd05::2", "odd"], "default": false, "dns": {}, "gateway": ["fd05::1"], "default-route": ["fd05::1"]}]),
    );
}

#[test]
fn each_interface_reports_the_device() {
    let result =
        json!({"interfaces": [{"name": "a", "sandbox": "/n"}, {"name": "b", "sandbox": "/n"}]});
    let info = json!({"type": "pci"});
    let one = Attached {
        device_info: info.as_object().cloned(),
        ..attached("n", false, result)
    };
    let status: Value = serde_json::from_str(&build(&[one]).unwrap()).unwrap();
    assert_eq!(
        status,
        json!([
            {"name": "n", "interface": "a", "default": false, "dns": {}, "device-info": info},
            {"name": "n", "interface": "b", "default": false, "dns": {}, "device-info": info},
        ])
    );
}
