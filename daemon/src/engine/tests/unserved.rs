//! Requests that no plugin can serve: an error, an event, or nothing.

use plan::Attached;
use serde_json::json;

use super::world::World;

/// Neither plugin of it has the capability.
const LIMITED: &str = r#"[{"name": "b"}, {"name": "a", "mac": "02:00:00:00:00:01", "bandwidth": {"ingressRate": 1, "ingressBurst": 1}}]"#;
/// Its plugin gives another address.
const ADDRESSED: &str = r#"[{"name": "b", "ips": ["10.0.0.7"]}]"#;

#[test]
fn with_error_a_missing_capability_fails_the_pod_before_any_plugin_runs() {
    let mut world = World::new();
    world.config["unservedRequests"] = json!("error");
    let error = world.add("c1", LIMITED).unwrap_err();
    for words in [
        "shop/cart-0",
        "shop/a",
        "for bandwidth:",
        "unservedRequests",
    ] {
        assert!(error.msg.contains(words), "no {words} in {}", error.msg);
    }
    assert_eq!(error.code, 7);
    world.check_calls(&[]);
    assert!(world.left().is_empty());
}

#[test]
fn with_error_an_address_that_is_not_assigned_undoes_the_pod() {
    let mut world = World::new();
    world.config["unservedRequests"] = json!("error");
    let error = world.add("c1", ADDRESSED).unwrap_err();
    for words in ["shop/cart-0", "network shop/b", "for ips:"] {
        assert!(error.msg.contains(words), "no {words} in {}", error.msg);
    }
    world.check_calls(&[
        "ADD flannel eth0",
        "ADD portmap eth0",
        "ADD bridge net1",
        "DEL bridge net1",
        "DEL portmap eth0",
        "DEL flannel eth0",
    ]);
    assert!(world.left().is_empty());
}

#[test]
fn an_address_that_is_given_without_the_capability_is_fine() {
    let mut world = World::new();
    world.config["unservedRequests"] = json!("error");
    let ips = json!([{"address": "10.0.0.7/24"}]);
    world.answer("net1", json!({ "ips": ips }));
    world.add("c1", ADDRESSED).unwrap();
}

#[test]
fn by_default_the_pod_starts_and_an_event_names_what_it_lacks() {
    let world = World::new();
    let warnings = |networks, id: &str| {
        let added = world.add(id, networks).unwrap();
        let all = added.attached.iter().filter_map(Attached::warning);
        all.collect::<Vec<_>>()
    };
    let [limited] = &*warnings(LIMITED, "c1") else {
        panic!("one warning")
    };
    assert!(
        limited.starts_with(
            "no plugin of network shop/a serves the pod's request for bandwidth on net2:"
        ),
        "{limited}"
    );
    let [addressed] = &*warnings(ADDRESSED, "c2") else {
        panic!("one warning")
    };
    assert!(
        addressed.contains("shop/b serves the pod's request for ips"),
        "{addressed}"
    );
}

#[test]
fn silence_is_upstreams() {
    let mut world = World::new();
    world.config["unservedRequests"] = json!("silent");
    for (id, networks) in [("c1", LIMITED), ("c2", ADDRESSED)] {
        let added = world.add(id, networks).unwrap();
        assert!(added.attached.iter().all(|one| one.warning().is_none()));
    }
}

#[test]
fn host_ports_reach_all_networks_where_that_is_wanted() {
    let mut world = World::new();
    world.config["runtimeConfigForAll"] = json!(true);
    world.add("c1", "a,b").unwrap();
    let ports = json!([{"hostPort": 8080, "containerPort": 80}]);
    let calls = world.calls();
    assert_eq!(calls[2].stdin["runtimeConfig"]["portMappings"], ports);
    assert_eq!(calls[3].stdin.get("runtimeConfig"), None, "no capability");
}
