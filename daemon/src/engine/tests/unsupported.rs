//! Requests that no plugin supports: the three modes of `unservedRequests`.

use plan::Attached;
use serde_json::json;

use super::fixture::Fixture;

/// Its second network requests a bandwidth, and the plugin lacks the capability.
const LIMITED: &str = r#"[{"name": "b"}, {"name": "a", "mac": "02:00:00:00:00:01", "bandwidth": {"ingressRate": 1, "ingressBurst": 1}}]"#;
/// Its plugin assigns another address.
const ADDRESSED: &str = r#"[{"name": "b", "ips": ["10.0.0.7"]}]"#;

#[test]
fn error_mode_refuses_a_missing_capability_before_any_plugin_runs() {
    let mut fixture = Fixture::new();
    fixture.config["unservedRequests"] = json!("error");
    let error = fixture.add("c1", LIMITED).unwrap_err();
    for part in [
        "shop/cart-0",
        "shop/a",
        "for bandwidth:",
        "unservedRequests",
    ] {
        assert!(error.msg.contains(part), "no {part} in {}", error.msg);
    }
    assert_eq!(error.code, 7);
    fixture.check_calls(&[]);
    assert!(fixture.files().is_empty());
}

#[test]
fn error_mode_undoes_add_when_a_requested_address_is_not_assigned() {
    let mut fixture = Fixture::new();
    fixture.config["unservedRequests"] = json!("error");
    let error = fixture.add("c1", ADDRESSED).unwrap_err();
    for part in ["shop/cart-0", "network shop/b", "for ips:"] {
        assert!(error.msg.contains(part), "no {part} in {}", error.msg);
    }
    fixture.check_calls(&[
        "ADD flannel eth0",
        "ADD portmap eth0",
        "ADD bridge net1",
        "DEL bridge net1",
        "DEL portmap eth0",
        "DEL flannel eth0",
    ]);
    assert!(fixture.files().is_empty());
}

#[test]
fn requested_address_may_be_assigned_without_the_capability() {
    let mut fixture = Fixture::new();
    fixture.config["unservedRequests"] = json!("error");
    let ips = json!([{"address": "10.0.0.7/24"}]);
    fixture.add_to_result("net1", json!({ "ips": ips }));
    fixture.add("c1", ADDRESSED).unwrap();
}

#[test]
fn event_mode_attaches_and_warns_of_unsupported_requests() {
    let fixture = Fixture::new();
    let warnings = |networks, id: &str| {
        let added = fixture.add(id, networks).unwrap();
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
fn silent_mode_does_not_warn() {
    let mut fixture = Fixture::new();
    fixture.config["unservedRequests"] = json!("silent");
    for (id, networks) in [("c1", LIMITED), ("c2", ADDRESSED)] {
        let added = fixture.add(id, networks).unwrap();
        assert!(added.attached.iter().all(|one| one.warning().is_none()));
    }
}

#[test]
fn runtime_config_for_all_reaches_every_network_with_the_capability() {
    let mut fixture = Fixture::new();
    fixture.config["runtimeConfigForAll"] = json!(true);
    fixture.add("c1", "a,b").unwrap();
    let ports = json!([{"hostPort": 8080, "containerPort": 80}]);
    let calls = fixture.calls();
    assert_eq!(calls[2].stdin["runtimeConfig"]["portMappings"], ports);
    assert_eq!(calls[3].stdin.get("runtimeConfig"), None, "no capability");
}
