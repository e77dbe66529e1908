//! DEL and CHECK from state, including repeated calls and missing parts.

use cni::types::CniError;
use serde_json::{Value, json};

use super::fixture::{Fixture, pod, request};

const UPSTREAM: &str = include_str!("../../../tests/fixtures/state/upstream.json");

#[test]
fn del_needs_state_alone_and_succeeds_again() {
    let fixture = Fixture::new();
    fixture.add("c1", "a@ext0,b").unwrap();
    fixture.calls();
    let attached = fixture.engine.add_durations().into_iter();
    let attached: Vec<_> = attached.map(|one| one.interface).collect();
    assert_eq!(attached, ["eth0", "ext0", "net2"]);
    fixture.delete_nads();
    std::fs::remove_file(fixture.dir.path().join(super::fixture::DEFAULT_NETWORK)).unwrap();
    fixture.del("c1").unwrap();
    fixture.check_calls(&[
        "DEL bridge net2",
        "DEL macvlan ext0",
        "DEL portmap eth0",
        "DEL flannel eth0",
    ]);
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
    assert_eq!(fixture.engine.add_durations(), []);
    fixture.del("c1").unwrap();
    fixture.check_calls(&[]);
}

#[test]
fn del_repeats_the_arguments_of_add() {
    let mut fixture = Fixture::new();
    let networks = r#"[{"name":"a","ips":["10.20.0.5/24"],"portMappings":[{"hostPort":1,"containerPort":2}]}]"#;
    fixture.add("c1", networks).unwrap();
    let added = fixture.calls();
    fixture.config["runtimeConfig"] = Value::Null;
    fixture.del("c1").unwrap();
    let removed = fixture.calls();
    for (add, del) in [(0, 2), (1, 1), (2, 0)] {
        assert_eq!(added[add].plugin, removed[del].plugin);
        assert_eq!(
            added[add].stdin.get("runtimeConfig"),
            removed[del].stdin.get("runtimeConfig")
        );
        assert_eq!(added[add].env["CNI_ARGS"], removed[del].env["CNI_ARGS"]);
    }
    assert!(removed[1].stdin["prevResult"].is_object());
}

#[test]
fn del_without_netns_detaches() {
    let fixture = Fixture::new();
    fixture.add("c1", "").unwrap();
    fixture.calls();
    let mut request = request("c1");
    request.netns = None;
    fixture
        .engine
        .del(&request, &fixture.netconf(), None)
        .unwrap();
    assert_eq!(fixture.calls()[0].env["CNI_NETNS"], "");
}

#[test]
fn rules_that_a_foreign_bridge_leaves_without_a_netns_are_removed_by_ours() {
    let fixture = Fixture::new();
    let config = r#"{"cniVersion":"1.0.0","name":"masq","type":"bridge","ipMasq":true,"ipam":{"type":"host-local"}}"#;
    fixture.nad("masq", config);
    fixture.add("c1", "masq").unwrap();
    fixture.calls();
    let mut request = request("c1");
    request.netns = None;
    fixture
        .engine
        .del(&request, &fixture.netconf(), None)
        .unwrap();
    let calls = fixture.calls();
    let bridges: Vec<_> = calls
        .iter()
        .filter(|call| call.plugin == "bridge")
        .collect();
    assert_eq!(bridges.len(), 2);
    assert_eq!(bridges[1].env["CNI_PATH"], "/var/lib/multus/bin");
    assert_eq!(bridges[1].stdin["ipam"], json!({}));
    assert_eq!(bridges[1].stdin["name"], "masq");
    // With a namespace the program itself removes them.
    fixture.add("c2", "masq").unwrap();
    fixture.calls();
    fixture.del("c2").unwrap();
    fixture.check_calls(&["DEL bridge net1", "DEL portmap eth0", "DEL flannel eth0"]);
}

#[test]
fn del_goes_on_after_failures_and_the_next_del_finishes() {
    let fixture = Fixture::new();
    fixture.add("c1", "a,b").unwrap();
    fixture.calls();
    fixture.fail(&["DEL bridge", "DEL flannel"]);
    let error = fixture.del("c1").unwrap_err();
    fixture.check_calls(&[
        "DEL bridge net2",
        "DEL macvlan net1",
        "DEL portmap eth0",
        "DEL flannel eth0",
    ]);
    assert_eq!(error.code, 123);
    assert!(error.msg.starts_with("errors: "), "{}", error.msg);
    assert!(error.msg.contains("network \"b\"") && error.msg.contains("network \"cbr0\""));
    fixture.on_call(|_| Ok(()));
    fixture.del("c1").unwrap();
    fixture.check_calls(&["DEL bridge net2", "DEL portmap eth0", "DEL flannel eth0"]);
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn missing_plugin_fails_del_with_a_hint() {
    let fixture = Fixture::new();
    fixture.add("c1", "a").unwrap();
    fixture.calls();
    fixture.uninstall("macvlan");
    let error = fixture.del("c1").unwrap_err();
    assert!(
        error.msg.contains("network \"neta\"") && error.msg.contains("put the plugin back"),
        "{}",
        error.msg
    );
    fixture.check_calls(&["DEL portmap eth0", "DEL flannel eth0"]);
    fixture.install_all();
    fixture.del("c1").unwrap();
    fixture.check_calls(&["DEL macvlan net1"]);
}

#[test]
fn del_works_from_upstreams_state_file_alone() {
    let fixture = Fixture::new();
    fixture.put("var/lib/cni/multus/c1", UPSTREAM);
    fixture.del("c1").unwrap();
    let calls = fixture.calls();
    let texts: Vec<_> = calls.iter().map(super::fixture::PluginCall::text).collect();
    assert_eq!(
        texts,
        [
            "DEL bridge net2",
            "DEL macvlan stor0",
            "DEL portmap eth0",
            "DEL flannel eth0"
        ]
    );
    assert_eq!(
        calls[0].stdin["cniVersion"], "1.1.0",
        "the version of multus"
    );
    assert_eq!(calls[1].stdin["cniVersion"], "0.4.0", "its own version");
    assert!(calls[1].env["CNI_ARGS"].ends_with(";MAC=02:aa:00:00:00:05;IP=10.20.0.5/24"));
    assert_eq!(
        calls[2].stdin["runtimeConfig"],
        json!({"portMappings":[{"hostPort":8080,"containerPort":80}]}),
        "the runtime's, as upstream's file holds none"
    );
    assert_eq!(calls[3].stdin["delegate"]["mtu"], 9_007_199_254_740_993_u64);
    assert!(fixture.files().is_empty());
}

#[test]
fn del_without_state_detaches_the_pods_present_networks() {
    let fixture = Fixture::new();
    let del = |networks: &str| {
        fixture
            .engine
            .del(&request("c1"), &fixture.netconf(), Some(&pod(networks)))
    };
    del("a").unwrap();
    fixture.check_calls(&["DEL macvlan net1", "DEL portmap eth0", "DEL flannel eth0"]);
    del("nope").unwrap();
    fixture.check_calls(&["DEL portmap eth0", "DEL flannel eth0"]);
    fixture.uninstall("macvlan");
    del("a").unwrap();
    fixture.check_calls(&["DEL portmap eth0", "DEL flannel eth0"]);
    std::fs::remove_file(fixture.dir.path().join(super::fixture::DEFAULT_NETWORK)).unwrap();
    del("a").unwrap();
    fixture.check_calls(&[]);
}

#[test]
fn damaged_state_does_not_block_del() {
    let fixture = Fixture::new();
    fixture.put("var/lib/cni/multus/c1", "[{");
    fixture.del("c1").unwrap();
    fixture.check_calls(&[]);
    assert!(fixture.files().is_empty());

    fixture.add("c1", "a").unwrap();
    fixture.calls();
    fixture.put("var/lib/cni/multus/c1", "");
    fixture.delete_nads();
    fixture.del("c1").unwrap();
    fixture.check_calls(&["DEL macvlan net1", "DEL portmap eth0", "DEL flannel eth0"]);
    assert!(fixture.files().is_empty());
}

#[test]
fn check_skips_networks_before_0_4_0() {
    let fixture = Fixture::new();
    fixture.add("c1", "a,b").unwrap();
    fixture.calls();
    fixture.delete_nads();
    let check = |id: &str| {
        let checked = fixture.engine.check(&request(id), &fixture.netconf());
        checked.map_err(CniError::from)
    };
    check("c1").unwrap();
    fixture.check_calls(&[
        "CHECK flannel eth0",
        "CHECK portmap eth0",
        "CHECK macvlan net1",
    ]);
    fixture.fail(&["CHECK portmap"]);
    let error = check("c1").unwrap_err();
    assert_eq!(error.code, 123);
    assert!(
        error.msg.contains("error checking network \"cbr0\""),
        "{}",
        error.msg
    );
    fixture.check_calls(&["CHECK flannel eth0", "CHECK portmap eth0"]);
    assert_eq!(check("c2").unwrap_err().code, 3);
}

#[test]
fn disable_check_runs_no_plugin() {
    let mut fixture = Fixture::new();
    fixture.config["disableCheck"] = json!(true);
    let check = fixture.engine.check(&request("c2"), &fixture.netconf());
    check.unwrap();
    fixture.check_calls(&[]);
}

#[test]
fn check_of_an_upstream_pod_uses_its_cached_results() {
    let fixture = Fixture::new();
    for name in [
        "c1",
        "results/cbr0-c1-eth0",
        "results/storage-c1-stor0",
        "results/plain-c1-net2",
    ] {
        let path = format!(
            "{}/tests/fixtures/state/v4.3.0/{name}",
            env!("CARGO_MANIFEST_DIR")
        );
        let content = std::fs::read_to_string(path).unwrap();
        fixture.put(&format!("var/lib/cni/multus/{name}"), &content);
    }
    let check = || fixture.engine.check(&request("c1"), &fixture.netconf());
    check().unwrap();
    fixture.check_calls(&[
        "CHECK flannel eth0",
        "CHECK portmap eth0",
        "CHECK macvlan stor0",
        "CHECK bridge net2",
    ]);
    std::fs::remove_file(
        fixture
            .dir
            .path()
            .join("var/lib/cni/multus/results/plain-c1-net2"),
    )
    .unwrap();
    assert!(
        check()
            .unwrap_err()
            .to_string()
            .contains("interface net2 was never attached")
    );
}

#[test]
fn check_fails_after_a_partial_del() {
    let fixture = Fixture::new();
    fixture.add("c1", "a").unwrap();
    fixture.fail(&["DEL flannel"]);
    fixture.del("c1").unwrap_err();
    fixture.calls();
    let error = fixture
        .engine
        .check(&request("c1"), &fixture.netconf())
        .unwrap_err();
    assert!(error.to_string().contains("network \"neta\""), "{error}");
}

#[test]
fn cached_result_that_cannot_be_removed_does_not_fail_del() {
    let fixture = Fixture::new();
    fixture.add("c1", "a").unwrap();
    // A directory in the place of the temporary file cannot be removed as a file.
    fixture.put("var/lib/cni/multus/results/.neta-c1-net1.tmp/x", "");
    fixture.del("c1").unwrap();
    assert!(!fixture.files().contains(&"/c1".to_owned()));
}
