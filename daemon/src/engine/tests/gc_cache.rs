//! GC by the result cache, and GC that runs concurrently with other verbs.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use serde_json::{Value, json};

use super::recall::attach;
use super::world::{Call, World};

/// Returns the valid attachments that a GC call passed.
fn valid<'a>(calls: &'a [Call], text: &str) -> &'a Value {
    let call = calls.iter().find(|call| call.text() == text);
    let call = call.unwrap_or_else(|| panic!("no {text} in {calls:?}"));
    &call.stdin["cni.dev/valid-attachments"]
}

fn texts(calls: &[Call]) -> Vec<String> {
    calls.iter().map(Call::text).collect()
}

fn listed(ids: &[&str]) -> Value {
    ids.iter()
        .map(|id| json!({"containerID": id, "ifname": "eth0"}))
        .collect()
}

#[test]
fn interface_plugged_into_a_listed_pod_is_valid() {
    let mut world = World::new();
    world.add("c1", "").unwrap();
    attach(&world, "c1", "hot", "net7", "bridge");
    world.calls();
    world.gc(listed(&["c1"])).unwrap();
    let calls = world.calls();
    assert_eq!(texts(&calls), ["GC bridge"]);
    assert_eq!(
        valid(&calls, "GC bridge"),
        &json!([{"containerID": "c1", "ifname": "net7"}])
    );
}

#[test]
fn listed_pod_without_state_stays_valid() {
    let mut world = World::new();
    world.add("c1", "a").unwrap();
    let own = world.dir.path().join("var/lib/cni/multus");
    std::fs::remove_file(own.join("c1")).unwrap();
    std::fs::remove_file(own.join(".multus-rs/c1.json")).unwrap();
    world.calls();
    world.gc(listed(&["c1"])).unwrap();
    let calls = world.calls();
    assert_eq!(texts(&calls), ["GC macvlan"]);
    assert_eq!(
        valid(&calls, "GC macvlan"),
        &json!([{"containerID": "c1", "ifname": "net1"}])
    );
    assert_eq!(world.left().len(), 2);
}

#[test]
fn gc_detaches_cached_attachments_with_their_own_configuration() {
    let mut world = World::new();
    world.add("c1", "").unwrap();
    attach(&world, "c2", "n", "net1", "bridge");
    attach(&world, "c3", "n", "net1", "macvlan");
    world.calls();
    world.gc(listed(&["c1"])).unwrap();
    let calls = world.calls();
    assert_eq!(texts(&calls), ["DEL bridge net1", "DEL macvlan net1"]);
    assert!(calls[0].env["CNI_ARGS"].contains("K8S_POD_NAME=cart-0"));
    assert_eq!(
        calls[0].stdin["runtimeConfig"],
        json!({"portMappings": ["net1"]})
    );
    let left = world.left();
    assert!(!left.iter().any(|name| name.contains("/n-")), "{left:?}");
}

#[test]
fn all_plugins_of_a_network_name_get_all_its_attachments() {
    let mut world = World::new();
    attach(&world, "c1", "n", "net1", "bridge");
    attach(&world, "c2", "n", "net2", "macvlan");
    attach(&world, "c3", "n", "net3", "macvlan");
    // The configuration of this one is invalid.
    attach(&world, "c4", "n", "net4", "macvlan");
    let file = "var/lib/cni/multus/results/n-c4-net4";
    let entry = std::fs::read_to_string(world.dir.path().join(file)).unwrap();
    let mut entry: Value = serde_json::from_str(&entry).unwrap();
    entry["config"] = json!("e30=");
    world.put(file, &entry.to_string());
    world.gc(listed(&["c1", "c2", "c3", "c4"])).unwrap();
    let calls = world.calls();
    assert_eq!(texts(&calls), ["GC bridge", "GC macvlan"]);
    for call in ["GC bridge", "GC macvlan"] {
        assert_eq!(valid(&calls, call).as_array().unwrap().len(), 4);
    }
}

#[test]
fn disable_gc_of_a_network_skips_it() {
    let mut world = World::new();
    let config = r#"{"cniVersion":"1.1.0","name":"quiet","disableGC":true,"type":"bridge"}"#;
    world.nad("q", config);
    world.add("c1", "q").unwrap();
    let file = "var/lib/cni/multus/results/quiet-c1-net1";
    let entry = std::fs::read_to_string(world.dir.path().join(file)).unwrap();
    world.put(
        &file.replace("c1", "c9"),
        &entry.replace("\"c1\"", "\"c9\""),
    );
    world.calls();
    world.gc(listed(&["c1"])).unwrap();
    world.check_calls(&[]);
    world.gc(listed(&[])).unwrap();
    world.check_calls(&["DEL bridge net1", "DEL portmap eth0", "DEL flannel eth0"]);
    assert_eq!(
        world.left(),
        ["/results/quiet-c9-net1".trim_start_matches('/')]
    );
    world.config["disableGC"] = json!(true);
    world.add("c2", "").unwrap();
    world.calls();
    world.gc(listed(&[])).unwrap();
    world.check_calls(&[]);
}

#[test]
fn attachments_in_upstreams_state_are_valid() {
    let mut world = World::new();
    world.put(
        "var/lib/cni/multus/c1",
        include_str!("../../../tests/fixtures/state/upstream.json"),
    );
    world.config["cniVersion"] = json!("1.1.0");
    world.gc(listed(&["c1"])).unwrap();
    let calls = world.calls();
    assert_eq!(texts(&calls), ["GC bridge"], "the one without a version");
    assert_eq!(
        valid(&calls, "GC bridge"),
        &json!([{"containerID": "c1", "ifname": "net2"}])
    );
}

#[test]
fn container_being_added_is_valid() {
    let world = Arc::new(World::new());
    world.primary("1.1.0");
    world.add("c1", "").unwrap();
    world.calls();
    let (other, once) = (Arc::clone(&world), Mutex::new(Some(())));
    world.on_call(move |call| {
        if call.text() == "ADD portmap eth0" && once.lock().unwrap().take().is_some() {
            let mut netconf = other.netconf();
            netconf.valid_attachments = Some(Vec::new());
            other.engine.gc(&["/opt/cni/bin".into()], &netconf).unwrap();
        }
        Ok(())
    });
    world.add("c2", "").unwrap();
    world.on_call(|_| Ok(()));
    let calls = world.calls();
    assert_eq!(
        valid(&calls, "GC flannel"),
        &json!([{"containerID": "c2", "ifname": "eth0"}])
    );
    let detached = calls.iter().filter(|call| call.text().starts_with("DEL"));
    assert!(
        detached.clone().count() == 2 && detached.clone().all(|c| c.env["CNI_CONTAINERID"] == "c1")
    );
    assert!(world.left().contains(&"/c2".to_owned()));
}

/// The runtime's list does not have a container whose ADD was running when GC started, although that ADD may end before GC
/// comes to the container.
#[test]
fn gc_spares_an_add_that_ends_meanwhile() {
    let world = World::new();
    world.add("c1", "").unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (done, is_done) = mpsc::channel::<()>();
    let (may_go_on, is_done) = (Mutex::new(may_go_on), Mutex::new(is_done));
    world.on_call(move |call| {
        match (call.text().as_str(), call.env["CNI_CONTAINERID"].as_str()) {
            ("ADD portmap eth0", "c2") => {
                begun.send(()).unwrap();
                may_go_on.lock().unwrap().recv().unwrap();
            }
            ("DEL portmap eth0", "c1") => {
                go_on.send(()).unwrap();
                is_done.lock().unwrap().recv().unwrap();
            }
            _ => {}
        }
        Ok(())
    });
    std::thread::scope(|scope| {
        let added = scope.spawn(|| {
            let added = world.add("c2", "").map(drop);
            done.send(()).unwrap();
            added
        });
        has_begun.recv().unwrap();
        let mut netconf = world.netconf();
        netconf.valid_attachments = Some(Vec::new());
        let collected = world.engine.gc(&["/opt/cni/bin".into()], &netconf);
        collected.unwrap();
        added.join().unwrap().unwrap();
    });
    let left = world.left();
    assert!(left.contains(&"/c2".to_owned()) && !left.contains(&"/c1".to_owned()));
}

#[test]
fn add_waits_while_gc_reports_valid_attachments() {
    let world = World::new();
    world.primary("1.1.0");
    let (collecting, begins) = mpsc::channel();
    let (added, is_added) = mpsc::channel();
    let is_added = Mutex::new(is_added);
    world.on_call(move |call| {
        match call.text().as_str() {
            "GC flannel" => {
                collecting.send(()).unwrap();
                let early = is_added.lock().unwrap();
                let early = early.recv_timeout(Duration::from_millis(300));
                assert!(early.is_err(), "the plugin would free the new address");
            }
            "ADD flannel eth0" => added.send(()).unwrap(),
            _ => {}
        }
        Ok(())
    });
    let mut netconf = world.netconf();
    netconf.valid_attachments = Some(Vec::new());
    let engine = &world.engine;
    std::thread::scope(|scope| {
        let collected = scope.spawn(move || engine.gc(&["/opt/cni/bin".into()], &netconf));
        begins.recv().unwrap();
        world.add("c1", "").unwrap();
        collected.join().unwrap().unwrap();
    });
    assert!(world.left().contains(&"/c1".to_owned()));
}
