//! GC by the runtime's list, by state and by the result cache, and GC that runs concurrently with other verbs.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use plan::netconf::Netconf;
use serde_json::{Value, json};

use super::cached_results::attach;
use super::fixture::{Fixture, PluginCall};

fn listed(ids: &[&str]) -> Value {
    ids.iter()
        .map(|id| json!({"containerID": id, "ifname": "eth0"}))
        .collect()
}

#[test]
fn gc_detaches_containers_that_the_runtime_does_not_list() {
    let mut fixture = Fixture::new();
    fixture.add("c1", "a").unwrap();
    fixture.add("c2", "a").unwrap();
    fixture.calls();
    fixture.gc(listed(&["c1"])).unwrap();
    let calls = fixture.calls();
    let texts: Vec<_> = calls.iter().map(super::fixture::PluginCall::text).collect();
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
        fixture.files(),
        [
            ".multus-rs/c1.json",
            "/c1",
            "results/cbr0-c1-eth0",
            "results/neta-c1-net1"
        ]
    );
}

#[test]
fn gc_fails_until_the_readiness_indicator_exists() {
    let mut fixture = Fixture::new();
    fixture.add("c1", "a").unwrap();
    fixture.config["readinessindicatorfile"] = json!("/run/ready");
    fixture.config["cni.dev/valid-attachments"] = json!([]);
    let config = fixture.config.to_string();
    // A generated configuration would leave the file to the daemon's own readiness.
    let netconf = Netconf::effective(config.as_bytes(), &serde_json::Map::new(), false).unwrap();
    fixture.calls();
    let path = ["/opt/cni/bin".into()];
    assert_eq!(fixture.engine.gc(&path, &netconf).unwrap_err().code, 11);
    fixture.check_calls(&[]);
    fixture.put("run/ready", "");
    fixture.engine.gc(&path, &netconf).unwrap();
    assert!(fixture.files().is_empty());
}

#[test]
fn gc_passes_the_netns_if_it_exists() {
    let mut fixture = Fixture::new();
    fixture.add("c1", "").unwrap();
    fixture.put("var/run/netns/x", "");
    fixture.add("c2", "").unwrap();
    fixture.calls();
    fixture.gc(listed(&["c2"])).unwrap();
    assert_eq!(fixture.calls()[0].env["CNI_NETNS"], "/var/run/netns/x");
    std::fs::remove_file(fixture.dir.path().join("var/run/netns/x")).unwrap();
    fixture.gc(listed(&[])).unwrap();
    assert_eq!(fixture.calls()[0].env["CNI_NETNS"], "");
}

#[test]
fn gc_reports_containers_older_than_multus_to_the_default_network() {
    let mut fixture = Fixture::new();
    fixture.default_network("1.1.0");
    fixture.add("c1", "").unwrap();
    fixture.calls();
    fixture.gc(listed(&["c0", "c1"])).unwrap();
    let calls = fixture.calls();
    assert_eq!(calls[0].text(), "GC flannel");
    assert_eq!(
        calls[0].stdin["cni.dev/valid-attachments"],
        listed(&["c0", "c1"])
    );
}

#[test]
fn gc_goes_on_after_failures() {
    let mut fixture = Fixture::new();
    fixture.add("c1", "a").unwrap();
    fixture.add("c2", "").unwrap();
    fixture.add("c3", "a").unwrap();
    fixture.calls();
    fixture.fail(&["DEL macvlan"]);
    let error = fixture.gc(listed(&["c3"])).unwrap_err();
    assert_eq!(error.code, 123);
    let files = fixture.files();
    assert!(files.contains(&"/c1".to_owned()) && !files.contains(&"/c2".to_owned()));
    let texts: Vec<_> = fixture
        .calls()
        .iter()
        .map(super::fixture::PluginCall::text)
        .collect();
    assert_eq!(texts.iter().filter(|text| *text == "GC macvlan").count(), 1);
    fixture.on_call(|_| Ok(()));
    fixture.gc(listed(&["c3"])).unwrap();
    assert!(!fixture.files().contains(&"/c1".to_owned()));
}

#[test]
fn gc_without_valid_attachments_is_refused() {
    let fixture = Fixture::new();
    fixture.add("c1", "").unwrap();
    fixture.calls();
    let path = ["/opt/cni/bin".into()];
    let error = fixture.engine.gc(&path, &fixture.netconf()).unwrap_err();
    assert!(error.msg.contains("cni.dev/valid-attachments"));
    fixture.check_calls(&[]);
}

#[test]
fn gc_removes_damaged_and_orphaned_files() {
    let mut fixture = Fixture::new();
    fixture.put("var/lib/cni/multus/c1", "[{");
    fixture.put("var/lib/cni/multus/.multus-rs/c2.json", "{}");
    fixture.gc(json!([])).unwrap();
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn damaged_state_of_a_listed_container_stops_gc() {
    let mut fixture = Fixture::new();
    fixture.default_network("1.1.0");
    fixture.put("var/lib/cni/multus/c1", "[{");
    let error = fixture.gc(listed(&["c1"])).unwrap_err();
    assert!(
        error.msg.contains("/var/lib/cni/multus/c1"),
        "{}",
        error.msg
    );
    fixture.check_calls(&[]);
}

/// Returns the valid attachments that a GC call passed.
fn valid<'a>(calls: &'a [PluginCall], text: &str) -> &'a Value {
    let call = calls.iter().find(|call| call.text() == text);
    let call = call.unwrap_or_else(|| panic!("no {text} in {calls:?}"));
    &call.stdin["cni.dev/valid-attachments"]
}

fn texts(calls: &[PluginCall]) -> Vec<String> {
    calls.iter().map(PluginCall::text).collect()
}

#[test]
fn interface_plugged_into_a_listed_pod_is_valid() {
    let mut fixture = Fixture::new();
    fixture.add("c1", "").unwrap();
    attach(&fixture, "c1", "hot", "net7", "bridge");
    fixture.calls();
    fixture.gc(listed(&["c1"])).unwrap();
    let calls = fixture.calls();
    assert_eq!(texts(&calls), ["GC bridge"]);
    assert_eq!(
        valid(&calls, "GC bridge"),
        &json!([{"containerID": "c1", "ifname": "net7"}])
    );
}

#[test]
fn listed_pod_without_state_stays_valid() {
    let mut fixture = Fixture::new();
    fixture.add("c1", "a").unwrap();
    let own = fixture.dir.path().join("var/lib/cni/multus");
    std::fs::remove_file(own.join("c1")).unwrap();
    std::fs::remove_file(own.join(".multus-rs/c1.json")).unwrap();
    fixture.calls();
    fixture.gc(listed(&["c1"])).unwrap();
    let calls = fixture.calls();
    assert_eq!(texts(&calls), ["GC macvlan"]);
    assert_eq!(
        valid(&calls, "GC macvlan"),
        &json!([{"containerID": "c1", "ifname": "net1"}])
    );
    assert_eq!(fixture.files().len(), 2);
}

#[test]
fn gc_detaches_cached_attachments_with_their_own_configuration() {
    let mut fixture = Fixture::new();
    fixture.add("c1", "").unwrap();
    attach(&fixture, "c2", "n", "net1", "bridge");
    attach(&fixture, "c3", "n", "net1", "macvlan");
    fixture.calls();
    fixture.gc(listed(&["c1"])).unwrap();
    let calls = fixture.calls();
    assert_eq!(texts(&calls), ["DEL bridge net1", "DEL macvlan net1"]);
    assert!(calls[0].env["CNI_ARGS"].contains("K8S_POD_NAME=cart-0"));
    assert_eq!(
        calls[0].stdin["runtimeConfig"],
        json!({"portMappings": ["net1"]})
    );
    let files = fixture.files();
    assert!(!files.iter().any(|name| name.contains("/n-")), "{files:?}");
}

#[test]
fn all_plugins_of_a_network_name_get_all_its_attachments() {
    let mut fixture = Fixture::new();
    attach(&fixture, "c1", "n", "net1", "bridge");
    attach(&fixture, "c2", "n", "net2", "macvlan");
    attach(&fixture, "c3", "n", "net3", "macvlan");
    // The configuration of this one is invalid.
    attach(&fixture, "c4", "n", "net4", "macvlan");
    let file = "var/lib/cni/multus/results/n-c4-net4";
    let entry = std::fs::read_to_string(fixture.dir.path().join(file)).unwrap();
    let mut entry: Value = serde_json::from_str(&entry).unwrap();
    entry["config"] = json!("e30=");
    fixture.put(file, &entry.to_string());
    fixture.gc(listed(&["c1", "c2", "c3", "c4"])).unwrap();
    let calls = fixture.calls();
    assert_eq!(texts(&calls), ["GC bridge", "GC macvlan"]);
    for call in ["GC bridge", "GC macvlan"] {
        assert_eq!(valid(&calls, call).as_array().unwrap().len(), 4);
    }
}

#[test]
fn disable_gc_of_a_network_skips_it() {
    let mut fixture = Fixture::new();
    let config = r#"{"cniVersion":"1.1.0","name":"quiet","disableGC":true,"type":"bridge"}"#;
    fixture.nad("q", config);
    fixture.add("c1", "q").unwrap();
    let file = "var/lib/cni/multus/results/quiet-c1-net1";
    let entry = std::fs::read_to_string(fixture.dir.path().join(file)).unwrap();
    fixture.put(
        &file.replace("c1", "c9"),
        &entry.replace("\"c1\"", "\"c9\""),
    );
    fixture.calls();
    fixture.gc(listed(&["c1"])).unwrap();
    fixture.check_calls(&[]);
    fixture.gc(listed(&[])).unwrap();
    fixture.check_calls(&["DEL bridge net1", "DEL portmap eth0", "DEL flannel eth0"]);
    assert_eq!(
        fixture.files(),
        ["/results/quiet-c9-net1".trim_start_matches('/')]
    );
    fixture.config["disableGC"] = json!(true);
    fixture.add("c2", "").unwrap();
    fixture.calls();
    fixture.gc(listed(&[])).unwrap();
    fixture.check_calls(&[]);
}

#[test]
fn attachments_in_upstreams_state_are_valid() {
    let mut fixture = Fixture::new();
    fixture.put(
        "var/lib/cni/multus/c1",
        include_str!("../../../tests/fixtures/state/upstream.json"),
    );
    fixture.config["cniVersion"] = json!("1.1.0");
    fixture.gc(listed(&["c1"])).unwrap();
    let calls = fixture.calls();
    assert_eq!(texts(&calls), ["GC bridge"], "the one without a version");
    assert_eq!(
        valid(&calls, "GC bridge"),
        &json!([{"containerID": "c1", "ifname": "net2"}])
    );
}

#[test]
fn container_being_added_is_valid() {
    let fixture = Arc::new(Fixture::new());
    fixture.default_network("1.1.0");
    fixture.add("c1", "").unwrap();
    fixture.calls();
    let (other, once) = (Arc::clone(&fixture), Mutex::new(Some(())));
    fixture.on_call(move |call| {
        if call.text() == "ADD portmap eth0" && once.lock().unwrap().take().is_some() {
            let mut netconf = other.netconf();
            netconf.valid_attachments = Some(Vec::new());
            other.engine.gc(&["/opt/cni/bin".into()], &netconf).unwrap();
        }
        Ok(())
    });
    fixture.add("c2", "").unwrap();
    fixture.on_call(|_| Ok(()));
    let calls = fixture.calls();
    assert_eq!(
        valid(&calls, "GC flannel"),
        &json!([{"containerID": "c2", "ifname": "eth0"}])
    );
    let detached = calls.iter().filter(|call| call.text().starts_with("DEL"));
    assert!(
        detached.clone().count() == 2 && detached.clone().all(|c| c.env["CNI_CONTAINERID"] == "c1")
    );
    assert!(fixture.files().contains(&"/c2".to_owned()));
}

/// The runtime's list does not have a container whose ADD was running when GC started, although that ADD may end before GC
/// comes to the container.
#[test]
fn gc_spares_an_add_that_ends_meanwhile() {
    let fixture = Fixture::new();
    fixture.add("c1", "").unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (done, is_done) = mpsc::channel::<()>();
    let (may_go_on, is_done) = (Mutex::new(may_go_on), Mutex::new(is_done));
    fixture.on_call(move |call| {
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
            let added = fixture.add("c2", "").map(drop);
            done.send(()).unwrap();
            added
        });
        has_begun.recv().unwrap();
        let mut netconf = fixture.netconf();
        netconf.valid_attachments = Some(Vec::new());
        let collected = fixture.engine.gc(&["/opt/cni/bin".into()], &netconf);
        collected.unwrap();
        added.join().unwrap().unwrap();
    });
    let files = fixture.files();
    assert!(files.contains(&"/c2".to_owned()) && !files.contains(&"/c1".to_owned()));
}

#[test]
fn plugins_of_gc_share_a_short_time_for_which_adds_wait() {
    let mut fixture = Fixture::new();
    attach(&fixture, "c1", "n", "net1", "bridge");
    attach(&fixture, "c2", "m", "net2", "macvlan");
    fixture.calls();
    fixture.gc(listed(&["c1", "c2"])).unwrap();
    let calls = fixture.calls();
    assert_eq!(texts(&calls), ["GC macvlan", "GC bridge"]);
    let limit = Duration::from_secs(15);
    // One that hangs leaves time for the others.
    assert!(calls.iter().all(|call| call.time <= limit / 2), "{calls:?}");
    assert!(calls[0].time > limit / 3, "{calls:?}");
}

#[test]
fn add_waits_while_gc_reports_valid_attachments() {
    let fixture = Fixture::new();
    fixture.default_network("1.1.0");
    let (collecting, begins) = mpsc::channel();
    let (added, is_added) = mpsc::channel();
    let is_added = Mutex::new(is_added);
    fixture.on_call(move |call| {
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
    let mut netconf = fixture.netconf();
    netconf.valid_attachments = Some(Vec::new());
    let engine = &fixture.engine;
    std::thread::scope(|scope| {
        let collected = scope.spawn(move || engine.gc(&["/opt/cni/bin".into()], &netconf));
        begins.recv().unwrap();
        fixture.add("c1", "").unwrap();
        collected.join().unwrap().unwrap();
    });
    assert!(fixture.files().contains(&"/c1".to_owned()));
}
