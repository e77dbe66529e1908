//! DEL of pods that the runtime attached itself, before multus was installed: only the runtime's result cache has them.

use serde_json::{Value, json};

use super::fixture::{Fixture, pod, request};

const RESULTS: &str = "var/lib/cni/results";

/// Writes a result as the runtime's libcni caches it, and returns its path.
fn cached(fixture: &Fixture, network: &str, ifname: &str, config: &Value) -> std::path::PathBuf {
    let entry = cni::cache::Entry {
        kind: cni::cache::KIND.to_owned(),
        container_id: "c1".to_owned(),
        config: config.to_string().into_bytes(),
        if_name: ifname.to_owned(),
        network_name: network.to_owned(),
        netns: "/var/run/netns/x".to_owned(),
        cni_args: vec![("K8S_POD_NAME".to_owned(), "cart-0".to_owned())],
        result: json!({"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.7/24"}]})
            .as_object()
            .unwrap()
            .clone(),
        ..Default::default()
    };
    let path = format!("{RESULTS}/{network}-c1-{ifname}");
    fixture.put(&path, &serde_json::to_string(&entry).unwrap());
    fixture.dir.path().join(path)
}

fn flannel() -> Value {
    json!({"cniVersion": "1.0.0", "name": "old", "plugins": [{"type": "flannel"}, {"type": "portmap"}]})
}

#[test]
fn pod_of_the_runtime_is_detached_with_its_cached_configuration() {
    let fixture = Fixture::new();
    let path = cached(&fixture, "old", "eth0", &flannel());
    // The pod was deleted from the API server already.
    fixture.del("c1").unwrap();
    let calls = fixture.calls();
    let texts: Vec<_> = calls.iter().map(super::fixture::PluginCall::text).collect();
    assert_eq!(texts, ["DEL portmap eth0", "DEL flannel eth0"]);
    assert_eq!(calls[0].stdin["name"], "old");
    assert_eq!(
        calls[0].stdin["prevResult"]["ips"][0]["address"],
        "10.0.0.7/24"
    );
    assert!(
        !path.exists() && fixture.files().is_empty(),
        "{:?}",
        fixture.files()
    );
}

#[test]
fn failed_del_is_retried_from_the_adopted_result() {
    let fixture = Fixture::new();
    let path = cached(&fixture, "old", "eth0", &flannel());
    fixture.fail(&["DEL flannel"]);
    fixture.del("c1").unwrap_err();
    assert!(!path.exists());
    fixture.on_call(|_| Ok(()));
    fixture.calls();
    fixture.del("c1").unwrap();
    assert_eq!(fixture.calls().len(), 2);
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn cached_result_of_the_runtime_replaces_the_guess() {
    let fixture = Fixture::new();
    cached(&fixture, "old", "eth0", &flannel());
    let (request, netconf) = (request("c1"), fixture.netconf());
    fixture
        .engine
        .del(&request, &netconf, Some(&pod("")))
        .unwrap();
    assert_eq!(fixture.calls()[0].stdin["name"], "old");
    fixture.check_calls(&[]);
}

#[test]
fn results_of_shim_and_loopback_are_not_adopted() {
    let fixture = Fixture::new();
    let shim = json!({"cniVersion": "1.0.0", "name": "multus-cni-network", "type": "multus-shim"});
    let loopback =
        json!({"cniVersion": "1.0.0", "name": "cni-loopback", "plugins": [{"type": "loopback"}]});
    let paths = [
        cached(&fixture, "multus-cni-network", "eth0", &shim),
        cached(&fixture, "cni-loopback", "lo", &loopback),
    ];
    fixture.del("c1").unwrap();
    fixture.check_calls(&[]);
    // For a container with state, the runtime has only the result of the shim.
    fixture.add("c1", "").unwrap();
    fixture.calls();
    fixture.del("c1").unwrap();
    fixture.check_calls(&["DEL portmap eth0", "DEL flannel eth0"]);
    assert!(paths.iter().all(|path| path.exists()));
}
