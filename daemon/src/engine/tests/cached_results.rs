//! DEL with cached results: for upstream's state, damaged state, and interfaces that no state lists.

use cni::cache::{self, Entry};
use serde_json::{Value, json};

use super::fixture::{Fixture, PluginCall, pod, request};

const UPSTREAM: &str = include_str!("../../../tests/fixtures/state/upstream.json");
/// Files that upstream v4.3.0 wrote.
const CAPTURED: [(&str, &str); 4] = [
    (
        "c1",
        include_str!("../../../tests/fixtures/state/v4.3.0/c1"),
    ),
    (
        "results/cbr0-c1-eth0",
        include_str!("../../../tests/fixtures/state/v4.3.0/results/cbr0-c1-eth0"),
    ),
    (
        "results/storage-c1-stor0",
        include_str!("../../../tests/fixtures/state/v4.3.0/results/storage-c1-stor0"),
    ),
    (
        "results/plain-c1-net2",
        include_str!("../../../tests/fixtures/state/v4.3.0/results/plain-c1-net2"),
    ),
];
const STATE: &str = "var/lib/cni/multus/c1";

/// Writes the cached result of an attachment as libcni does.
pub(super) fn attach(fixture: &Fixture, id: &str, network: &str, ifname: &str, plugin: &str) {
    let entry = Entry {
        kind: cache::KIND.to_owned(),
        container_id: id.to_owned(),
        config: json!({"cniVersion": "1.1.0", "name": network, "type": plugin, "capabilities": {"portMappings": true}})
            .to_string()
            .into_bytes(),
        if_name: ifname.to_owned(),
        network_name: network.to_owned(),
        cni_args: cni::args::parse(
            "IgnoreUnknown=true;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_UID=5b0c",
        ),
        capability_args: json!({"portMappings": [ifname]}).as_object().cloned().unwrap(),
        result: json!({"cniVersion": "1.0.0", "interfaces": [{"name": ifname, "sandbox": "/var/run/netns/x"}]})
            .as_object()
            .cloned()
            .unwrap(),
        ..Entry::default()
    };
    let dir = fixture.dir.path().join("var/lib/cni/multus/results");
    cache::store(&dir, &entry).unwrap();
}

fn texts(calls: &[PluginCall]) -> Vec<String> {
    calls.iter().map(PluginCall::text).collect()
}

#[test]
fn pod_of_upstream_4_3_0_is_detached_with_its_arguments() {
    let mut fixture = Fixture::new();
    for (name, content) in CAPTURED {
        fixture.put(&format!("var/lib/cni/multus/{name}"), content);
    }
    fixture.gc(json!([])).unwrap();
    let calls = fixture.calls();
    assert_eq!(
        texts(&calls[..4]),
        [
            "DEL bridge net2",
            "DEL macvlan stor0",
            "DEL portmap eth0",
            "DEL flannel eth0"
        ]
    );
    let storage = &calls[1];
    assert!(storage.env["CNI_ARGS"].contains(";K8S_POD_NAME=cart-0;"));
    assert!(storage.env["CNI_ARGS"].ends_with(";MAC=02:aa:00:00:00:05;IP=10.20.0.5/24"));
    assert_eq!(storage.env["CNI_NETNS"], "/var/run/netns/x");
    assert_eq!(
        storage.stdin["runtimeConfig"],
        json!({"ips": ["10.20.0.5/24"], "portMappings": [{"hostPort": 9, "containerPort": 90, "protocol": "tcp"}]})
    );
    assert_eq!(
        calls[2].stdin["runtimeConfig"],
        json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]})
    );
    assert_eq!(
        storage.stdin["prevResult"]["interfaces"][0]["name"],
        "stor0"
    );
    assert_eq!(calls[3].stdin["delegate"]["isDefaultGateway"], true);
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn cni_args_of_upstreams_add_come_from_its_cached_results() {
    let fixture = Fixture::new();
    fixture.put(STATE, UPSTREAM);
    attach(&fixture, "c1", "storage", "stor0", "macvlan");
    let mut request = request("c1");
    request.args.clear();
    fixture
        .engine
        .del(&request, &fixture.netconf(), None)
        .unwrap();
    let calls = fixture.calls();
    assert_eq!(calls[1].text(), "DEL macvlan stor0");
    assert_eq!(
        calls[1].env["CNI_ARGS"],
        "IgnoreUnknown=true;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_UID=5b0c"
    );
    for call in &calls {
        let name = &call.env["CNI_ARGS"];
        assert!(
            name.contains("K8S_POD_NAME=cart-0"),
            "{}: {name}",
            call.text()
        );
    }
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn capability_args_of_upstreams_add_come_from_its_cached_results() {
    let fixture = Fixture::new();
    let mut file: Vec<Value> = serde_json::from_str(UPSTREAM).unwrap();
    // {"name":"storage","type":"portmap","capabilities":{"portMappings":true},"cniVersion":"1.0.0"}
    file[1]["Bytes"] = json!(
        "eyJuYW1lIjoic3RvcmFnZSIsInR5cGUiOiJwb3J0bWFwIiwiY2FwYWJpbGl0aWVzIjp7InBvcnRNYXBwaW5ncyI6dHJ1ZX0sImNuaVZlcnNpb24iOiIxLjAuMCJ9"
    );
    let file = json!(file).to_string();
    let passed = |fixture: &Fixture| {
        fixture.put(STATE, &file);
        fixture.del("c1").unwrap();
        fixture.calls()[1].stdin["runtimeConfig"].clone()
    };
    assert_eq!(
        passed(&fixture),
        json!({"portMappings": [{"hostPort": 8080, "containerPort": 80}]}),
        "upstream gives the runtime's to every network"
    );
    attach(&fixture, "c1", "storage", "stor0", "portmap");
    assert_eq!(passed(&fixture), json!({"portMappings": ["stor0"]}));
}

#[test]
fn upstream_networks_without_a_result_do_not_fail_del() {
    let fixture = Fixture::new();
    fixture.put(STATE, UPSTREAM);
    attach(&fixture, "c1", "storage", "stor0", "macvlan");
    fixture.fail(&["DEL bridge"]);
    fixture.del("c1").unwrap();
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
    fixture.put(STATE, UPSTREAM);
    attach(&fixture, "c1", "storage", "stor0", "macvlan");
    fixture.fail(&["DEL macvlan"]);
    assert!(fixture.del("c1").unwrap_err().msg.contains("\"storage\""));
    fixture.on_call(|_| Ok(()));
    fixture.del("c1").unwrap();
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn del_detaches_hot_plugged_interfaces() {
    let fixture = Fixture::new();
    fixture.add("c1", "a").unwrap();
    attach(&fixture, "c1", "hot", "net7", "bridge");
    attach(&fixture, "c2", "hot", "net7", "bridge");
    fixture.calls();
    fixture.fail(&["DEL bridge"]);
    fixture.del("c1").unwrap_err();
    fixture.on_call(|_| Ok(()));
    fixture.del("c1").unwrap();
    assert_eq!(
        texts(&fixture.calls()),
        [
            "DEL bridge net7",
            "DEL macvlan net1",
            "DEL portmap eth0",
            "DEL flannel eth0",
            "DEL bridge net7",
        ]
    );
    assert_eq!(
        fixture.files(),
        ["results/hot-c2-net7"],
        "that of another container"
    );
}

#[test]
fn del_works_from_cached_results_alone() {
    for content in [None, Some(""), Some("[{"), Some("{}"), Some("\0\0\0")] {
        let fixture = Fixture::new();
        fixture.add("c1", "a,b").unwrap();
        fixture.calls();
        let own = fixture.dir.path().join("var/lib/cni/multus");
        std::fs::remove_file(own.join(".multus-rs/c1.json")).unwrap();
        match content {
            None => std::fs::remove_file(own.join("c1")).unwrap(),
            Some(content) => fixture.put(STATE, content),
        }
        fixture.delete_nads();
        fixture.del("c1").unwrap();
        fixture.check_calls(&[
            "DEL bridge net2",
            "DEL macvlan net1",
            "DEL portmap eth0",
            "DEL flannel eth0",
        ]);
        assert!(
            fixture.files().is_empty(),
            "{content:?}: {:?}",
            fixture.files()
        );
    }
}

#[test]
fn readable_delegates_of_damaged_state_come_before_guesses() {
    let fixture = Fixture::new();
    fixture.put(STATE, &UPSTREAM[..UPSTREAM.len() - 1]);
    fixture.nad("c", r#"{"type":"ipvlan"}"#);
    let del = fixture
        .engine
        .del(&request("c1"), &fixture.netconf(), Some(&pod("c,c,c")));
    del.unwrap();
    assert_eq!(
        texts(&fixture.calls()),
        [
            "DEL ipvlan net3",
            "DEL ipvlan net1",
            "DEL bridge net2",
            "DEL macvlan stor0",
            "DEL portmap eth0",
            "DEL flannel eth0",
        ]
    );
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn unreadable_state_does_not_block_del() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.dir.path().join(STATE)).unwrap();
    attach(&fixture, "c1", "n", "eth0", "bridge");
    fixture.del("c1").unwrap();
    fixture.check_calls(&["DEL bridge eth0"]);
    fixture.del("c1").unwrap();
    fixture.check_calls(&[]);
}

#[test]
fn deleted_netns_is_not_passed_to_plugins() {
    let fixture = Fixture::new();
    let netns = |path: &str, replayed: bool| {
        attach(&fixture, "c1", "n", "eth0", "bridge");
        let request = crate::engine::ContainerRequest {
            netns: Some(path.to_owned()),
            replayed,
            ..request("c1")
        };
        fixture
            .engine
            .del(&request, &fixture.netconf(), None)
            .unwrap();
        fixture.calls()[0].env["CNI_NETNS"].clone()
    };
    let alive = format!("/proc/{}/ns/net", std::process::id());
    assert_eq!(netns("/var/run/netns/x", true), "/var/run/netns/x");
    assert_eq!(netns("/var/run/netns/y", false), "");
    assert_eq!(netns(&alive, false), alive);
    assert_eq!(netns("/proc/4194305/ns/net", false), "");
    assert_eq!(
        netns(&alive, true),
        "",
        "the process id may since belong to another process"
    );
}
