//! GC and STATUS.

use plan::netconf::Netconf;
use serde_json::{Value, json};

use super::world::{PRIMARY, World};

fn listed(ids: &[&str]) -> Value {
    ids.iter()
        .map(|id| json!({"containerID": id, "ifname": "eth0"}))
        .collect()
}

#[test]
fn what_the_runtime_does_not_list_is_detached() {
    let mut world = World::new();
    world.add("c1", "a").unwrap();
    world.add("c2", "a").unwrap();
    world.calls();
    world.gc(listed(&["c1"])).unwrap();
    let calls = world.calls();
    let texts: Vec<_> = calls.iter().map(super::world::Call::text).collect();
    assert_eq!(
        texts,
        [
            "DEL macvlan net1",
            "DEL portmap eth0",
            "DEL flannel eth0",
            "GC macvlan"
        ]
    );
    assert!(
        calls[..3]
            .iter()
            .all(|call| call.env["CNI_CONTAINERID"] == "c2")
    );
    assert_eq!(
        calls[3].stdin["cni.dev/valid-attachments"],
        json!([{"containerID": "c1", "ifname": "net1"}])
    );
    assert_eq!(
        world.left(),
        [
            ".multus-rs/c1.json",
            "/c1",
            "results/cbr0-c1-eth0",
            "results/neta-c1-net1"
        ]
    );
}

#[test]
fn nothing_is_collected_before_the_default_network_is_ready() {
    let mut world = World::new();
    world.add("c1", "a").unwrap();
    world.config["readinessindicatorfile"] = json!("/run/ready");
    world.config["cni.dev/valid-attachments"] = json!([]);
    let config = world.config.to_string();
    // Not generated: there the daemon itself looks after the file.
    let netconf = Netconf::effective(config.as_bytes(), &serde_json::Map::new(), false).unwrap();
    world.calls();
    let path = ["/opt/cni/bin".into()];
    assert_eq!(world.engine.gc(&path, &netconf).unwrap_err().code, 11);
    world.check_calls(&[]);
    world.put("run/ready", "");
    world.engine.gc(&path, &netconf).unwrap();
    assert!(world.left().is_empty());
}

#[test]
fn a_namespace_that_is_left_is_cleaned_too() {
    let mut world = World::new();
    world.add("c1", "").unwrap();
    world.put("var/run/netns/x", "");
    world.add("c2", "").unwrap();
    world.calls();
    world.gc(listed(&["c2"])).unwrap();
    assert_eq!(world.calls()[0].env["CNI_NETNS"], "/var/run/netns/x");
    std::fs::remove_file(world.dir.path().join("var/run/netns/x")).unwrap();
    world.gc(listed(&[])).unwrap();
    assert_eq!(world.calls()[0].env["CNI_NETNS"], "");
}

#[test]
fn the_default_network_hears_of_containers_older_than_multus() {
    let mut world = World::new();
    world.primary("1.1.0");
    world.add("c1", "").unwrap();
    world.calls();
    world.gc(listed(&["c0", "c1"])).unwrap();
    let calls = world.calls();
    assert_eq!(calls[0].text(), "GC flannel");
    assert_eq!(
        calls[0].stdin["cni.dev/valid-attachments"],
        listed(&["c0", "c1"])
    );
}

#[test]
fn a_failure_does_not_stop_the_others() {
    let mut world = World::new();
    world.add("c1", "a").unwrap();
    world.add("c2", "").unwrap();
    world.add("c3", "a").unwrap();
    world.calls();
    world.fail(&["DEL macvlan"]);
    let error = world.gc(listed(&["c3"])).unwrap_err();
    assert_eq!(error.code, 123);
    let left = world.left();
    assert!(left.contains(&"/c1".to_owned()) && !left.contains(&"/c2".to_owned()));
    let texts: Vec<_> = world.calls().iter().map(super::world::Call::text).collect();
    assert_eq!(texts.iter().filter(|text| *text == "GC macvlan").count(), 1);
    world.on_call(|_| Ok(()));
    world.gc(listed(&["c3"])).unwrap();
    assert!(!world.left().contains(&"/c1".to_owned()));
}

#[test]
fn without_a_list_nothing_is_touched() {
    let world = World::new();
    world.add("c1", "").unwrap();
    world.calls();
    let path = ["/opt/cni/bin".into()];
    let error = world.engine.gc(&path, &world.netconf()).unwrap_err();
    assert!(error.msg.contains("cni.dev/valid-attachments"));
    world.check_calls(&[]);
}

#[test]
fn damaged_and_orphaned_files_are_swept() {
    let mut world = World::new();
    world.put("var/lib/cni/multus/c1", "[{");
    world.put("var/lib/cni/multus/.multus-rs/c2.json", "{}");
    world.gc(json!([])).unwrap();
    assert!(world.left().is_empty(), "{:?}", world.left());
}

#[test]
fn damaged_state_of_a_living_container_stops_collecting() {
    let mut world = World::new();
    world.primary("1.1.0");
    world.put("var/lib/cni/multus/c1", "[{");
    let error = world.gc(listed(&["c1"])).unwrap_err();
    assert!(
        error.msg.contains("/var/lib/cni/multus/c1"),
        "{}",
        error.msg
    );
    world.check_calls(&[]);
}

#[test]
fn status_asks_the_default_network_once_in_a_while() {
    let world = World::new();
    world.status().unwrap();
    world.check_calls(&[]);
    world.primary("1.1.0");
    for _ in 0..3 {
        world.status().unwrap();
    }
    world.check_calls(&["STATUS flannel", "STATUS portmap"]);
}

#[test]
fn status_keeps_the_plugin_s_code_and_a_changed_primary_is_asked_at_once() {
    let world = World::new();
    world.primary("1.1.0");
    world.on_call(|_| Err(cni::types::CniError::new(51, "degraded")));
    assert_eq!(world.status().unwrap_err().code, 51);
    assert_eq!(world.status().unwrap_err().code, 51);
    world.check_calls(&["STATUS flannel"]);
    world.put(
        PRIMARY,
        r#"{"cniVersion":"1.1.0","name":"other","type":"bridge"}"#,
    );
    world.status().unwrap_err();
    world.check_calls(&["STATUS bridge"]);
}

#[test]
fn status_without_a_primary_or_its_plugin_is_50() {
    let world = World::new();
    world.missing("portmap");
    let error = world.status().unwrap_err();
    assert_eq!(error.code, 50);
    assert!(error.msg.contains("\"portmap\""));
    for content in ["{", r#"{"name":"n","plugins":[]}"#] {
        world.put(PRIMARY, content);
        assert_eq!(world.status().unwrap_err().code, 50);
    }
    std::fs::remove_file(world.dir.path().join(PRIMARY)).unwrap();
    let error = world.status().unwrap_err();
    assert_eq!(error.code, 50);
    assert!(error.msg.contains("failed to get clusterNetwork"));
}
