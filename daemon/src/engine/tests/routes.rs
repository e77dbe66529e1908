//! Default routes: kernel, results, status and cache agree after an ADD, and when the networks of a running pod change.

use std::net::IpAddr;

use plan::Family;
use plan::network_status;
use serde_json::{Value, json};

use super::fixture::{Fixture, SetRoutes};
use crate::engine::{Added, DefaultRoute};

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    let both = json!([{"dst": "0.0.0.0/0", "gw": "10.244.0.1"}, {"dst": "::/0", "gw": "fd00:244::1"}, {"dst": "10.244.0.0/16"}]);
    fixture.add_to_result("eth0", json!({"routes": both}));
    fixture
}

fn route(family: Family, ifname: &str, gateway: &str) -> SetRoutes {
    let route = DefaultRoute {
        ifname: ifname.to_owned(),
        gateway: gateway.parse::<IpAddr>().ok(),
        metric: 0,
    };
    (family, vec![route])
}

/// Returns `dst gw` of each route in the results, by network.
fn result_routes(added: &Added) -> Vec<Vec<String>> {
    let text = |route: &cni::types::Route| format!("{} {}", route.dst, route.gw);
    added
        .attached
        .iter()
        .map(|attached| attached.result.routes.iter().map(text).collect())
        .collect()
}

#[test]
fn pod_without_default_route_request_keeps_its_routes() {
    let fixture = fixture();
    let added = fixture.add("c1", "a").unwrap();
    assert_eq!(result_routes(&added)[0].len(), 3);
    assert!(fixture.set_routes().is_empty());
}

#[test]
fn gateway_request_replaces_the_familys_default_routes() {
    let fixture = fixture();
    let more = json!([{"dst": "0.0.0.0/0", "gw": "10.0.0.254"}, {"dst": "192.168.0.0/16", "gw": "10.0.0.254"}]);
    fixture.add_to_result("net2", json!({"routes": more}));
    let added = fixture
        .add(
            "c1",
            r#"[{"name":"a","default-route":["10.0.0.1"]},{"name":"b"}]"#,
        )
        .unwrap();
    assert_eq!(
        fixture.set_routes(),
        [route(Family::V4, "net1", "10.0.0.1")]
    );
    let expected = [
        vec!["::/0 fd00:244::1", "10.244.0.0/16 "],
        vec!["0.0.0.0/0 10.0.0.1"],
        vec!["192.168.0.0/16 10.0.0.254"],
    ];
    assert_eq!(result_routes(&added), expected);
    // The runtime, the status and the result cache get the same routes.
    assert_eq!(added.result, added.attached[0].result);
    let status: Value =
        serde_json::from_str(&network_status::build(&added.attached).unwrap()).unwrap();
    let gateways: Vec<_> = (0..3)
        .map(|index| status[index]["gateway"].clone())
        .collect();
    assert_eq!(
        gateways,
        [json!(["fd00:244::1"]), json!(["10.0.0.1"]), Value::Null]
    );
    for (file, expected) in [
        (
            "cbr0-c1-eth0",
            json!([{"dst": "::/0", "gw": "fd00:244::1"}, {"dst": "10.244.0.0/16"}]),
        ),
        (
            "neta-c1-net1",
            json!([{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}]),
        ),
        (
            "b-c1-net2",
            json!([{"dst": "192.168.0.0/16", "gw": "10.0.0.254"}]),
        ),
    ] {
        let path = format!("var/lib/cni/multus/results/{file}");
        let text = std::fs::read_to_string(fixture.dir.path().join(path)).unwrap();
        let entry: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(entry["result"]["routes"], expected, "{file}");
    }
}

#[test]
fn gateways_of_both_families_are_set() {
    let fixture = fixture();
    let networks = r#"[{"name":"a","default-route":["fd00::1","10.0.0.1"]}]"#;
    let added = fixture.add("c1", networks).unwrap();
    assert_eq!(
        fixture.set_routes(),
        [
            route(Family::V6, "net1", "fd00::1"),
            route(Family::V4, "net1", "10.0.0.1")
        ]
    );
    let expected = [
        vec!["10.244.0.0/16 "],
        vec!["::/0 fd00::1", "0.0.0.0/0 10.0.0.1"],
    ];
    assert_eq!(result_routes(&added), expected);
}

#[test]
fn empty_list_keeps_the_networks_own_default_route() {
    let fixture = fixture();
    // A route that names no gateway has that of the address.
    let own = json!({"routes": [{"dst": "0.0.0.0/0"}], "ips": [{"interface": 0, "address": "10.0.0.9/24", "gateway": "10.0.0.1"}]});
    fixture.add_to_result("net1", own);
    let added = fixture
        .add("c1", r#"[{"name":"a","default-route":[]}]"#)
        .unwrap();
    assert_eq!(
        fixture.set_routes(),
        [route(Family::V4, "net1", "10.0.0.1")]
    );
    let expected = [
        vec!["::/0 fd00:244::1", "10.244.0.0/16 "],
        vec!["0.0.0.0/0 10.0.0.1"],
    ];
    assert_eq!(result_routes(&added), expected);
}

#[test]
fn empty_list_keeps_an_on_link_default_route() {
    let fixture = fixture();
    fixture.add_to_result(
        "net1",
        json!({"routes": [{"dst": "0.0.0.0/0", "mtu": 1400}]}),
    );
    let added = fixture
        .add("c1", r#"[{"name":"a","default-route":[]}]"#)
        .unwrap();
    assert_eq!(fixture.set_routes(), [route(Family::V4, "net1", "")]);
    assert_eq!(added.attached[1].result.routes[0].mtu, 1400);
}

#[test]
fn empty_list_without_own_default_route_fails_add() {
    let fixture = fixture();
    let error = fixture
        .add("c1", r#"[{"name":"a","default-route":[]}]"#)
        .unwrap_err();
    for part in ["shop/cart-0", "shop/a", "name a gateway in the list"] {
        assert!(error.msg.contains(part), "{}", error.msg);
    }
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn route_that_cannot_be_set_undoes_add() {
    let fixture = fixture();
    fixture.plugins.fail_route_after(0);
    let error = fixture
        .add("c1", r#"[{"name":"a","default-route":["10.9.9.9"]}]"#)
        .unwrap_err();
    for part in [
        "neta",
        "IPv4 default route via 10.9.9.9 on net1",
        "unreachable",
        "in a subnet of net1",
    ] {
        assert!(error.msg.contains(part), "no {part} in {}", error.msg);
    }
    let calls = fixture.calls();
    let dels: Vec<_> = calls[3..]
        .iter()
        .map(super::fixture::PluginCall::text)
        .collect();
    assert_eq!(
        dels,
        ["DEL macvlan net1", "DEL portmap eth0", "DEL flannel eth0"]
    );
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

/// Returns a node with a running pod whose default network has a default route of each family, and network `b` one of IPv4.
fn running(networks: &str) -> Fixture {
    let fixture = Fixture::new();
    let both = json!([{"dst": "0.0.0.0/0", "gw": "10.244.0.1"}, {"dst": "::/0", "gw": "fd00:244::1"}, {"dst": "10.244.0.0/16"}]);
    fixture.add_to_result("eth0", json!({"routes": both}));
    let own = json!({"routes": [{"dst": "0.0.0.0/0", "priority": 50}], "ips": [{"interface": 0, "address": "10.9.0.9/24", "gateway": "10.9.0.1"}]});
    fixture.add_to_result("own0", own);
    fixture.add("c1", networks).unwrap();
    take_set_routes(&fixture);
    fixture
}

/// Takes the routes that were set since the last call, as `family: gateway interface, …`.
fn take_set_routes(fixture: &Fixture) -> Vec<String> {
    let routes = std::mem::take(&mut *fixture.plugins.routes.lock().unwrap());
    let one = |route: &crate::engine::DefaultRoute| {
        let gateway = route.gateway.map_or("-".to_owned(), |one| one.to_string());
        format!("{gateway} {}", route.ifname)
    };
    routes
        .iter()
        .map(|(family, routes)| {
            let all: Vec<_> = routes.iter().map(one).collect();
            format!("{family}: {}", all.join(", "))
        })
        .collect()
}

/// Returns the routes in the cached result of the default network.
fn cached(fixture: &Fixture) -> Value {
    let path = "var/lib/cni/multus/results/cbr0-c1-eth0";
    let text = std::fs::read_to_string(fixture.dir.path().join(path)).unwrap();
    let entry: Value = serde_json::from_str(&text).unwrap();
    entry["result"]["routes"].clone()
}

fn all_of_default_network() -> Value {
    json!([{"dst": "::/0", "gw": "fd00:244::1"}, {"dst": "0.0.0.0/0", "gw": "10.244.0.1"}, {"dst": "10.244.0.0/16"}])
}

const V4: &str = r#"{"name":"a","default-route":["10.0.0.1"]}"#;

#[test]
fn detached_network_restores_the_default_route() {
    let fixture = running(&format!("[{V4}]"));
    assert_eq!(cached(&fixture).as_array().unwrap().len(), 2);
    let reconciled = fixture.reconcile("c1", "").unwrap();
    assert!(reconciled.detach_errors.is_empty(), "{reconciled:?}");
    assert_eq!(take_set_routes(&fixture), ["IPv4: 10.244.0.1 eth0"]);
    // The result cache and the status have the restored route.
    let expected = json!([{"dst": "0.0.0.0/0", "gw": "10.244.0.1"}, {"dst": "::/0", "gw": "fd00:244::1"}, {"dst": "10.244.0.0/16"}]);
    assert_eq!(cached(&fixture), expected);
    assert_eq!(reconciled.networks.unwrap()[0].result.routes.len(), 3);
    // A second run changes nothing.
    fixture.status_written("c1").unwrap();
    assert!(fixture.reconcile("c1", "").unwrap().networks.is_none());
    assert!(
        take_set_routes(&fixture).is_empty()
            && fixture.state("c1")["delegates"][0]["displaced"].is_null()
    );
}

#[test]
fn every_network_regains_its_default_route_with_its_metric() {
    let fixture = running(
        r#"[{"name":"b","interface":"own0"},{"name":"a","default-route":["10.0.0.1","fd00::1"]}]"#,
    );
    fixture
        .reconcile("c1", r#"[{"name":"b","interface":"own0"}]"#)
        .unwrap();
    let mut families = take_set_routes(&fixture);
    families.sort();
    assert_eq!(
        families,
        [
            "IPv4: 10.244.0.1 eth0, 10.9.0.1 own0",
            "IPv6: fd00:244::1 eth0"
        ]
    );
    assert_eq!(cached(&fixture), all_of_default_network());
}

#[test]
fn replacement_takes_over_the_default_route() {
    let fixture = running(&format!("[{V4}]"));
    let networks = r#"[{"name":"b","default-route":["10.0.0.2"]}]"#;
    fixture.reconcile("c1", networks).unwrap();
    assert_eq!(take_set_routes(&fixture), ["IPv4: 10.0.0.2 net2"]);
    // The first routes are still known.
    fixture.reconcile("c1", "").unwrap();
    assert_eq!(take_set_routes(&fixture), ["IPv4: 10.244.0.1 eth0"]);
    assert_eq!(cached(&fixture).as_array().unwrap().len(), 3);
}

#[test]
fn restoring_one_family_leaves_requested_families() {
    let fixture = running(
        r#"[{"name":"a","default-route":["10.0.0.1"]},{"name":"b","default-route":["fd00::1"]}]"#,
    );
    fixture
        .reconcile("c1", r#"[{"name":"b","default-route":["fd00::1"]}]"#)
        .unwrap();
    assert_eq!(take_set_routes(&fixture), ["IPv4: 10.244.0.1 eth0"]);
    // An empty list requests the network's own default route.
    let fixture = running(&format!("[{V4}]"));
    fixture
        .reconcile(
            "c1",
            r#"[{"name":"b","interface":"own0","default-route":[]}]"#,
        )
        .unwrap();
    assert_eq!(take_set_routes(&fixture), ["IPv4: 10.9.0.1 own0"]);
    assert_eq!(cached(&fixture).as_array().unwrap().len(), 2);
}

#[test]
fn failed_change_keeps_the_default_route() {
    let fixture = running("");
    fixture.fail(&["ADD bridge"]);
    let reconciled = fixture
        .reconcile("c1", &format!(r#"[{V4},{{"name":"b"}}]"#))
        .unwrap();
    assert!(reconciled.failure.is_some());
    assert_eq!(cached(&fixture).as_array().unwrap().len(), 3);
    // If the kernel refuses the second of two routes, the first is undone.
    fixture.on_call(|_| Ok(()));
    let refused = json!([{"name": "a", "default-route": ["10.0.0.1", "fd00::1"]}]).to_string();
    fixture.plugins.fail_route_after(1);
    let reconciled = fixture.reconcile("c1", &refused).unwrap();
    assert!(reconciled.failure.is_some(), "{reconciled:?}");
    let mut families = take_set_routes(&fixture);
    families.sort();
    assert_eq!(
        families,
        [
            "IPv4: 10.0.0.1 net1",
            "IPv4: 10.244.0.1 eth0",
            "IPv6: fd00:244::1 eth0"
        ]
    );
    assert_eq!(cached(&fixture).as_array().unwrap().len(), 3);
}

#[test]
fn failed_restore_of_a_route_is_retried() {
    let fixture = running(&format!("[{V4}]"));
    fixture.plugins.fail_route_after(0);
    let reconciled = fixture.reconcile("c1", "").unwrap();
    let error = &reconciled.detach_errors[0].to_string();
    for part in ["shop/cart-0", "IPv4 default route", "cbr0"] {
        assert!(error.contains(part), "no {part} in {error}");
    }
    fixture.status_written("c1").unwrap();
    let reconciled = fixture.reconcile("c1", "").unwrap();
    assert!(reconciled.detach_errors.is_empty(), "{reconciled:?}");
    assert_eq!(take_set_routes(&fixture), ["IPv4: 10.244.0.1 eth0"]);
}
