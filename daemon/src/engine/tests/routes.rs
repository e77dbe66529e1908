//! Default routes: what the kernel is told, and that results, status and the cache tell the same.

use std::net::IpAddr;

use plan::Family;
use plan::network_status;
use serde_json::{Value, json};

use super::world::{SetRoutes, World};
use crate::engine::{Added, DefaultRoute};

fn world() -> World {
    let world = World::new();
    let both = json!([{"dst": "0.0.0.0/0", "gw": "10.244.0.1"}, {"dst": "::/0", "gw": "fd00:244::1"}, {"dst": "10.244.0.0/16"}]);
    world.answer("eth0", json!({"routes": both}));
    world
}

fn route(family: Family, ifname: &str, gateway: &str) -> SetRoutes {
    let route = DefaultRoute {
        ifname: ifname.to_owned(),
        gateway: gateway.parse::<IpAddr>().ok(),
        metric: 0,
    };
    (family, vec![route])
}

/// `dst gw` of each route in the results, by network.
fn told(added: &Added) -> Vec<Vec<String>> {
    let text = |route: &cni::types::Route| format!("{} {}", route.dst, route.gw);
    added
        .attached
        .iter()
        .map(|attached| attached.result.routes.iter().map(text).collect())
        .collect()
}

#[test]
fn pods_that_ask_for_nothing_are_left_alone() {
    let world = world();
    let added = world.add("c1", "a").unwrap();
    assert_eq!(told(&added)[0].len(), 3);
    assert!(world.set_routes().is_empty());
}

#[test]
fn a_gateway_takes_its_family_from_all_others() {
    let world = world();
    let more = json!([{"dst": "0.0.0.0/0", "gw": "10.0.0.254"}, {"dst": "192.168.0.0/16", "gw": "10.0.0.254"}]);
    world.answer("net2", json!({"routes": more}));
    let added = world
        .add(
            "c1",
            r#"[{"name":"a","default-route":["10.0.0.1"]},{"name":"b"}]"#,
        )
        .unwrap();
    assert_eq!(world.set_routes(), [route(Family::V4, "net1", "10.0.0.1")]);
    let expected = [
        vec!["::/0 fd00:244::1", "10.244.0.0/16 "],
        vec!["0.0.0.0/0 10.0.0.1"],
        vec!["192.168.0.0/16 10.0.0.254"],
    ];
    assert_eq!(told(&added), expected);
    // The runtime, the status and the cache of results hear the same.
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
        let text = std::fs::read_to_string(world.dir.path().join(path)).unwrap();
        let entry: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(entry["result"]["routes"], expected, "{file}");
    }
}

#[test]
fn both_families_may_be_asked_for() {
    let world = world();
    let networks = r#"[{"name":"a","default-route":["fd00::1","10.0.0.1"]}]"#;
    let added = world.add("c1", networks).unwrap();
    assert_eq!(
        world.set_routes(),
        [
            route(Family::V6, "net1", "fd00::1"),
            route(Family::V4, "net1", "10.0.0.1")
        ]
    );
    let expected = [
        vec!["10.244.0.0/16 "],
        vec!["::/0 fd00::1", "0.0.0.0/0 10.0.0.1"],
    ];
    assert_eq!(told(&added), expected);
}

#[test]
fn an_empty_list_keeps_what_the_network_gives() {
    let world = world();
    // Where a route names no gateway, plugins take that of the address.
    let own = json!({"routes": [{"dst": "0.0.0.0/0"}], "ips": [{"interface": 0, "address": "10.0.0.9/24", "gateway": "10.0.0.1"}]});
    world.answer("net1", own);
    let added = world
        .add("c1", r#"[{"name":"a","default-route":[]}]"#)
        .unwrap();
    assert_eq!(world.set_routes(), [route(Family::V4, "net1", "10.0.0.1")]);
    let expected = [
        vec!["::/0 fd00:244::1", "10.244.0.0/16 "],
        vec!["0.0.0.0/0 10.0.0.1"],
    ];
    assert_eq!(told(&added), expected);
}

#[test]
fn an_empty_list_keeps_a_route_to_a_link() {
    let world = world();
    world.answer(
        "net1",
        json!({"routes": [{"dst": "0.0.0.0/0", "mtu": 1400}]}),
    );
    let added = world
        .add("c1", r#"[{"name":"a","default-route":[]}]"#)
        .unwrap();
    assert_eq!(world.set_routes(), [route(Family::V4, "net1", "")]);
    assert_eq!(added.attached[1].result.routes[0].mtu, 1400);
}

#[test]
fn an_empty_list_without_a_route_to_keep_fails_the_pod() {
    let world = world();
    let error = world
        .add("c1", r#"[{"name":"a","default-route":[]}]"#)
        .unwrap_err();
    for words in ["shop/cart-0", "shop/a", "name a gateway in the list"] {
        assert!(error.msg.contains(words), "{}", error.msg);
    }
    assert!(world.left().is_empty(), "{:?}", world.left());
}

#[test]
fn a_route_that_cannot_be_set_undoes_the_pod() {
    let world = world();
    world.plugins.no_route_after(0);
    let error = world
        .add("c1", r#"[{"name":"a","default-route":["10.9.9.9"]}]"#)
        .unwrap_err();
    for words in [
        "neta",
        "IPv4 default route via 10.9.9.9 on net1",
        "unreachable",
        "in a subnet of net1",
    ] {
        assert!(error.msg.contains(words), "no {words} in {}", error.msg);
    }
    let calls = world.calls();
    let dels: Vec<_> = calls[3..].iter().map(super::world::Call::text).collect();
    assert_eq!(
        dels,
        ["DEL macvlan net1", "DEL portmap eth0", "DEL flannel eth0"]
    );
    assert!(world.left().is_empty(), "{:?}", world.left());
}
