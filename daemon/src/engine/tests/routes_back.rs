//! Default routes of a pod whose networks change: networks that lost theirs regain them.

use serde_json::{Value, json};

use super::world::World;

/// Returns a node with a running pod whose default network has a default route of each family, and network `b` one of IPv4.
fn running(networks: &str) -> World {
    let world = World::new();
    let both = json!([{"dst": "0.0.0.0/0", "gw": "10.244.0.1"}, {"dst": "::/0", "gw": "fd00:244::1"}, {"dst": "10.244.0.0/16"}]);
    world.answer("eth0", json!({"routes": both}));
    let own = json!({"routes": [{"dst": "0.0.0.0/0", "priority": 50}], "ips": [{"interface": 0, "address": "10.9.0.9/24", "gateway": "10.9.0.1"}]});
    world.answer("own0", own);
    world.add("c1", networks).unwrap();
    set(&world);
    world
}

/// Takes the routes that were set since the last call, as `family: gateway interface, …`.
fn set(world: &World) -> Vec<String> {
    let routes = std::mem::take(&mut *world.plugins.routes.lock().unwrap());
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
fn cached(world: &World) -> Value {
    let path = "var/lib/cni/multus/results/cbr0-c1-eth0";
    let text = std::fs::read_to_string(world.dir.path().join(path)).unwrap();
    let entry: Value = serde_json::from_str(&text).unwrap();
    entry["result"]["routes"].clone()
}

fn all_of_default_network() -> Value {
    json!([{"dst": "::/0", "gw": "fd00:244::1"}, {"dst": "0.0.0.0/0", "gw": "10.244.0.1"}, {"dst": "10.244.0.0/16"}])
}

const V4: &str = r#"{"name":"a","default-route":["10.0.0.1"]}"#;

#[test]
fn detached_network_restores_the_default_route() {
    let world = running(&format!("[{V4}]"));
    assert_eq!(cached(&world).as_array().unwrap().len(), 2);
    let followed = world.follow("c1", "").unwrap();
    assert!(followed.stuck.is_empty(), "{followed:?}");
    assert_eq!(set(&world), ["IPv4: 10.244.0.1 eth0"]);
    // The result cache and the status have the restored route.
    let expected = json!([{"dst": "0.0.0.0/0", "gw": "10.244.0.1"}, {"dst": "::/0", "gw": "fd00:244::1"}, {"dst": "10.244.0.0/16"}]);
    assert_eq!(cached(&world), expected);
    assert_eq!(followed.now.unwrap()[0].result.routes.len(), 3);
    // A second run changes nothing.
    let id = "c1".parse().unwrap();
    world.engine.told(&id, &world.netconf()).unwrap();
    assert!(world.follow("c1", "").unwrap().now.is_none());
    assert!(set(&world).is_empty() && world.state("c1")["delegates"][0]["displaced"].is_null());
}

#[test]
fn every_network_regains_its_default_route_with_its_metric() {
    let world = running(
        r#"[{"name":"b","interface":"own0"},{"name":"a","default-route":["10.0.0.1","fd00::1"]}]"#,
    );
    world
        .follow("c1", r#"[{"name":"b","interface":"own0"}]"#)
        .unwrap();
    let mut families = set(&world);
    families.sort();
    assert_eq!(
        families,
        [
            "IPv4: 10.244.0.1 eth0, 10.9.0.1 own0",
            "IPv6: fd00:244::1 eth0"
        ]
    );
    assert_eq!(cached(&world), all_of_default_network());
}

#[test]
fn replacement_takes_over_the_default_route() {
    let world = running(&format!("[{V4}]"));
    let networks = r#"[{"name":"b","default-route":["10.0.0.2"]}]"#;
    world.follow("c1", networks).unwrap();
    assert_eq!(set(&world), ["IPv4: 10.0.0.2 net2"]);
    // The first routes are still known.
    world.follow("c1", "").unwrap();
    assert_eq!(set(&world), ["IPv4: 10.244.0.1 eth0"]);
    assert_eq!(cached(&world).as_array().unwrap().len(), 3);
}

#[test]
fn restoring_one_family_leaves_requested_families() {
    let world = running(
        r#"[{"name":"a","default-route":["10.0.0.1"]},{"name":"b","default-route":["fd00::1"]}]"#,
    );
    world
        .follow("c1", r#"[{"name":"b","default-route":["fd00::1"]}]"#)
        .unwrap();
    assert_eq!(set(&world), ["IPv4: 10.244.0.1 eth0"]);
    // An empty list requests the network's own default route.
    let world = running(&format!("[{V4}]"));
    world
        .follow(
            "c1",
            r#"[{"name":"b","interface":"own0","default-route":[]}]"#,
        )
        .unwrap();
    assert_eq!(set(&world), ["IPv4: 10.9.0.1 own0"]);
    assert_eq!(cached(&world).as_array().unwrap().len(), 2);
}

#[test]
fn failed_change_keeps_the_default_route() {
    let world = running("");
    world.fail(&["ADD bridge"]);
    let followed = world
        .follow("c1", &format!(r#"[{V4},{{"name":"b"}}]"#))
        .unwrap();
    assert!(followed.failure.is_some());
    assert_eq!(cached(&world).as_array().unwrap().len(), 3);
    // If the kernel refuses the second of two routes, the first is undone.
    world.on_call(|_| Ok(()));
    let refused = json!([{"name": "a", "default-route": ["10.0.0.1", "fd00::1"]}]).to_string();
    world.plugins.no_route_after(1);
    let followed = world.follow("c1", &refused).unwrap();
    assert!(followed.failure.is_some(), "{followed:?}");
    let mut families = set(&world);
    families.sort();
    assert_eq!(
        families,
        [
            "IPv4: 10.0.0.1 net1",
            "IPv4: 10.244.0.1 eth0",
            "IPv6: fd00:244::1 eth0"
        ]
    );
    assert_eq!(cached(&world).as_array().unwrap().len(), 3);
}

#[test]
fn failed_restore_of_a_route_is_retried() {
    let world = running(&format!("[{V4}]"));
    world.plugins.no_route_after(0);
    let followed = world.follow("c1", "").unwrap();
    let error = &followed.stuck[0].msg;
    for part in ["shop/cart-0", "IPv4 default route", "cbr0"] {
        assert!(error.contains(part), "no {part} in {error}");
    }
    let id = "c1".parse().unwrap();
    world.engine.told(&id, &world.netconf()).unwrap();
    let followed = world.follow("c1", "").unwrap();
    assert!(followed.stuck.is_empty(), "{followed:?}");
    assert_eq!(set(&world), ["IPv4: 10.244.0.1 eth0"]);
}
