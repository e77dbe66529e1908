//! One pod with every kind of failure.

use ipam::claim::ClaimError;
use plan::{NETWORKS_ANNOTATION, network_status};
use serde_json::{Value, json};

use super::*;
use crate::pod_snapshot::tests::{NOW, PodFixture, answer, attachment};

/// Checks the cause, and parts of the explanation and of the hint.
#[track_caller]
fn check(fixture: &PodFixture, cause: impl Into<Cause>, parts: &[&str]) {
    let snapshot = fixture.snapshot();
    let diagnostics = validate::pod(&snapshot.pod_state.pod, &snapshot.netconf, &snapshot.known);
    let diagnosis = diagnose(&snapshot, &diagnostics);
    assert_eq!(diagnosis.cause, cause.into(), "{diagnosis:?}");
    let text = format!("{} / {}", diagnosis.explanation, diagnosis.hint);
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text:?}");
    }
}

/// A pod that waits for a defined network, on a node whose daemon serves pods.
fn fixture() -> PodFixture {
    let mut fixture = PodFixture::pod("storage");
    fixture.define("storage", r#"{"cniVersion":"1.0.0","type":"bridge"}"#);
    fixture.answer = Some(answer());
    fixture
}

fn running() -> PodFixture {
    let mut fixture = fixture();
    fixture.pod["status"]["phase"] = json!("Running");
    fixture
}

fn set_status(fixture: &mut PodFixture, networks: &[&str]) {
    let networks: Vec<_> = networks.iter().map(|name| json!({"name": name})).collect();
    let text = Value::from(networks).to_string();
    fixture.pod["metadata"]["annotations"][network_status::ANNOTATION] = json!(text);
}

fn option(fixture: &mut PodFixture, key: &str, value: Value) {
    let answer = fixture.answer.as_mut().unwrap();
    answer["options"][key] = value;
}

fn annotate(fixture: &mut PodFixture, key: &str, value: &str) {
    fixture.pod["metadata"]["annotations"] = json!({key: value});
}

#[test]
fn a_pod_with_all_its_networks_is_healthy() {
    let mut fixture = running();
    set_status(&mut fixture, &["cbr0", "shop/storage"]);
    check(&fixture, Cause::Healthy, &["all networks"]);
    fixture.pod["status"]["containerStatuses"] =
        json!([{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]);
    check(&fixture, Cause::Healthy, &["ImagePullBackOff"]);
    fixture.nads.clear();
    check(
        &fixture,
        Cause::Healthy,
        &["another pod like it would fail", "(storage)"],
    );
}

#[test]
fn networks_without_an_interface_are_found_in_the_daemons_state() {
    let mut fixture = running();
    set_status(&mut fixture, &["cbr0"]);
    check(&fixture, Cause::AnnotatedLater, &["shop/storage"]);
    fixture.answer.as_mut().unwrap()["containers"] = json!([{"containerID": "c", "uid": "u-1", "attachments": [attachment("shop/storage", "net1", "attached")]}]);
    check(&fixture, Cause::Healthy, &[]);
}

#[test]
fn a_pod_without_an_annotation_requests_nothing() {
    let mut fixture = running();
    annotate(&mut fixture, "x", "y");
    check(&fixture, Cause::NothingRequested, &["default one"]);
}

#[test]
fn annotations_without_effect_are_the_cause() {
    let mut fixture = running();
    annotate(&mut fixture, "k8s.v1.cni.cncf.io/network", "storage");
    check(
        &fixture,
        Cause::AnnotationIgnored,
        &["did you mean k8s.v1.cni.cncf.io/networks"],
    );
    let mut fixture = running();
    fixture.pod["spec"]["hostNetwork"] = json!(true);
    check(&fixture, Cause::HostNetwork, &["hostNetwork", "remove"]);
}

#[test]
fn errors_of_the_daemons_rules_are_found_without_any_event() {
    let mut missing = fixture();
    missing.nads.clear();
    check(
        &missing,
        FailureCause::DefinitionMissing,
        &["(storage)", "create it"],
    );

    let mut broken = fixture();
    broken.define("storage", "{");
    check(
        &broken,
        FailureCause::DefinitionInvalid,
        &["shop/storage", "JSON"],
    );

    let mut invalid = fixture();
    annotate(&mut invalid, NETWORKS_ANNOTATION, "a/b/c");
    check(
        &invalid,
        FailureCause::AnnotationInvalid,
        &["Invalid network object"],
    );

    let mut unserved = fixture();
    annotate(
        &mut unserved,
        NETWORKS_ANNOTATION,
        r#"[{"name":"storage","bandwidth":{"ingressRate":1,"ingressBurst":1}}]"#,
    );
    check(&unserved, Cause::BeingAttached, &[]);
    option(&mut unserved, "unservedRequests", json!("error"));
    check(
        &unserved,
        FailureCause::RequestUnsupported,
        &["bandwidth", "add the capability"],
    );
    for action in ["event", "silent"] {
        option(&mut unserved, "unservedRequests", json!(action));
        check(&unserved, Cause::BeingAttached, &[]);
    }

    let mut conflict = fixture();
    annotate(&mut conflict, NETWORKS_ANNOTATION, "storage@x,storage@x");
    check(&conflict, FailureCause::NetworksConflict, &["interface x"]);

    let mut forbidden = fixture();
    option(&mut forbidden, "allowedPlugins", json!(["macvlan"]));
    check(
        &forbidden,
        FailureCause::PluginNotAllowed,
        &["bridge", "allowedPlugins"],
    );
}

#[test]
fn isolation_is_the_cause_when_the_daemon_enforces_it() {
    let mut fixture = fixture();
    annotate(&mut fixture, NETWORKS_ANNOTATION, "other/storage");
    check(&fixture, FailureCause::DefinitionMissing, &["(other)"]);
    option(&mut fixture, "namespaceIsolation", json!(true));
    check(
        &fixture,
        FailureCause::NamespaceIsolation,
        &["globalNamespaces"],
    );
}

#[test]
fn a_network_with_a_resource_needs_a_requested_device() {
    let mut fixture = fixture();
    fixture.nads[0]["metadata"]["annotations"] =
        json!({"k8s.v1.cni.cncf.io/resourceName": "x/fast"});
    check(&fixture, FailureCause::DeviceMissing, &["x/fast"]);
}

#[test]
fn without_a_node_the_schedulers_reason_is_the_cause() {
    let mut fixture = fixture();
    fixture.pod["spec"]["nodeName"] = json!("");
    fixture.pod["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient x/fast"}]);
    check(
        &fixture,
        Cause::NotScheduled,
        &["Insufficient x/fast", "scheduler"],
    );
    fixture.nads.clear();
    check(
        &fixture,
        Cause::NotScheduled,
        &["it will fail", "(storage)"],
    );
    fixture.pod["status"]["conditions"] = json!([]);
    check(&fixture, Cause::NotScheduled, &["has not decided yet"]);
}

#[test]
fn a_daemon_that_does_not_serve_pods_is_the_cause() {
    let mut fixture = fixture();
    fixture.answer.as_mut().unwrap()["problem"] = json!("discovery: no runtime answers");
    check(
        &fixture,
        FailureCause::DaemonNotReady,
        &["no runtime answers", "doctor"],
    );
    fixture.no_daemon();
    check(
        &fixture,
        Cause::DaemonMissing,
        &["no Multus daemon", "DaemonSet"],
    );
    fixture.stopped_daemon("CrashLoopBackOff");
    check(
        &fixture,
        FailureCause::DaemonNotReady,
        &["CrashLoopBackOff"],
    );
}

#[test]
fn foreign_errors_are_recognised_by_their_texts() {
    let sandbox = "Failed to create pod sandbox: rpc error: plugin type=\"multus-shim\" failed (add): CmdAdd (shim): CNI request failed with status 400: ERRORED: error configuring pod [shop/cart] networking: [shop/cart:storage]: error adding container to network \"storage\": ";
    for (text, cause, hint) in [
        (
            "failed to find plugin \"sriov\" in path [/opt/cni/bin]",
            FailureCause::PluginMissing,
            "unless cniplugins leaves it out",
        ),
        (
            "failed to allocate for range 0: no IP addresses available in range set: 10.20.0.1-10.20.0.254",
            FailureCause::AddressesExhausted,
            "enlarge",
        ),
        (
            "network shop/storage: 10.30.0.0/28 has no free address: 13 in use",
            FailureCause::AddressesExhausted,
            "kubectl multus ipam",
        ),
        (
            "network lan: 10.30.0.9 is in use by pod shop/web-0 on node b",
            FailureCause::AddressTaken,
            "choose another",
        ),
        (
            "10.31.0.9 is not an address that the network gives from 10.30.0.0/25: choose another one",
            FailureCause::AddressOutOfRange,
            "choose an address",
        ),
        (
            "cannot reach the API server: connection refused",
            FailureCause::DaemonNotReady,
            "log",
        ),
        (
            "failed to lookup master \"eth7\": Link not found",
            FailureCause::MasterMissing,
            "ip link",
        ),
        (
            "error dialing DHCP daemon: dial unix /run/cni/dhcp.sock: connect: no such file or directory",
            FailureCause::DhcpUnreachable,
            "dhcpDaemonSet",
        ),
        (
            "validateIfName: interface name net1 already exists",
            FailureCause::NetworksConflict,
            "net1",
        ),
        ("the moon is full", FailureCause::PluginFailed, "log"),
    ] {
        let mut fixture = fixture();
        fixture.event(
            "FailedCreatePodSandBox",
            &format!("{sandbox}{text}"),
            true,
            NOW - 5,
        );
        check(&fixture, cause, &[text, hint]);
        fixture.refused();
        check(&fixture, cause, &[text, hint]);
    }
}

#[test]
fn errors_of_claims_are_recognised() {
    let name = || "shop/web".to_owned();
    for error in [
        ClaimError::Missing(name()),
        ClaimError::Deleted(name()),
        ClaimError::Network {
            name: name(),
            network: "lan".to_owned(),
            asked: "wan".to_owned(),
        },
        ClaimError::Address {
            name: name(),
            text: "x".to_owned(),
        },
        ClaimError::Unreadable(name()),
        ClaimError::InUse {
            name: name(),
            pods: "pod shop/a".to_owned(),
        },
        ClaimError::WithAddresses,
    ] {
        let cause = FailureCause::from_foreign_text(&error.to_string());
        assert_eq!(cause, FailureCause::ClaimUnusable, "{error}");
    }
}

#[test]
fn failures_of_daemon_and_shim_name_their_cause() {
    for (text, cause, hint) in [
        (
            "plugin \"sriov\" is in none of /opt/cni/bin, /var/lib/multus/bin",
            FailureCause::PluginMissing,
            "/var/lib/multus/bin",
        ),
        (
            "/opt/cni/bin/slow did not end within 90 s",
            FailureCause::PluginSlow,
            "waits",
        ),
        (
            "multus daemon at /run/multus/multus.sock: no answer within 5 s",
            FailureCause::DaemonNotReady,
            "doctor",
        ),
        (
            "cannot find a network-attachment-definition (x) in namespace (shop)",
            FailureCause::DefinitionMissing,
            "shop",
        ),
        (
            "network shop/storage: no plugin serves the request for ips: add the capability, drop the request, or set unservedRequests to event",
            FailureCause::RequestUnsupported,
            "\"capabilities\": {\"ips\": true}",
        ),
    ] {
        let mut fixture = fixture();
        // The runtime quotes text and details of the answer.
        let event = format!(
            "plugin type=\"multus-shim\" failed (add): {text}; {}",
            cause.details()
        );
        failure(&mut fixture, &event);
        check(&fixture, cause, &[hint]);
        let diagnosis = diagnose(&fixture.snapshot(), &[]);
        assert!(!diagnosis.explanation.contains("cause="), "{diagnosis:?}");
        // Details of a plugin have no room for it: the daemon's event with the same id has it.
        let mut fixture = self::fixture();
        fixture.event(
            "FailedAddNetwork",
            &format!("{text} (id 0a0b0c0d)"),
            true,
            NOW - 9,
        );
        fixture.caused_by(cause);
        failure(
            &mut fixture,
            &format!("x: {text} (id 0a0b0c0d); by a plugin"),
        );
        check(&fixture, cause, &[hint]);
    }
}

/// The match over all causes has no arm for others, so this is about those without a hint: their texts end with one.
#[test]
fn every_cause_is_explained() {
    for cause in FailureCause::ALL {
        let mut failed = fixture();
        failed.event("FailedAddNetwork", "what failed; what helps", true, NOW - 5);
        failed.caused_by(cause);
        let diagnosis = diagnose(&failed.snapshot(), &[]);
        assert_eq!(diagnosis.cause, Cause::Failure(cause), "{diagnosis:?}");
        let helps = "what helps";
        assert!(diagnosis.explanation.ends_with(helps) || !diagnosis.hint.is_empty());
        assert_eq!(serde_json::to_value(diagnosis.cause).unwrap(), cause.word());
    }
}

#[test]
fn the_newest_failure_counts_and_the_daemon_comes_before_events() {
    let mut fixture = fixture();
    fixture.event(
        "FailedAddNetwork",
        "no IP addresses available",
        true,
        NOW - 50,
    );
    fixture.event(
        "FailedCreatePodSandBox",
        "failed to find plugin \"a\"",
        true,
        NOW - 5,
    );
    check(&fixture, FailureCause::PluginMissing, &[]);
    fixture.answer.as_mut().unwrap()["failures"] = json!([
        {"id": "0a0b", "pod": "shop/cart", "verb": "ADD", "code": 7, "msg": "old", "at": 1, "count": 1},
        {"id": "0c0d", "pod": "shop/cart", "verb": "ADD", "code": 999, "msg": "no luck", "details": "Link not found", "cause": "master-missing", "at": 2, "count": 1},
    ]);
    check(
        &fixture,
        FailureCause::MasterMissing,
        &["no luck; Link not found (id 0c0d)"],
    );
}

#[test]
fn failures_before_a_success_are_ignored() {
    let mut fixture = running();
    set_status(&mut fixture, &["cbr0"]);
    fixture.event(
        "FailedAddNetwork",
        "no IP addresses available",
        true,
        NOW - 50,
    );
    check(&fixture, FailureCause::AddressesExhausted, &[]);
    fixture.event("AddedInterface", "Add eth0 [] from cbr0", false, NOW - 20);
    check(
        &fixture,
        Cause::AnnotatedLater,
        &["dynamicNetworksController"],
    );
    option(&mut fixture, "dynamicNetworks", json!(true));
    check(&fixture, Cause::BeingAttached, &["in a moment"]);
}

#[test]
fn a_running_pod_without_any_status_was_started_past_multus() {
    check(
        &running(),
        Cause::RuntimeBypass,
        &["shop/storage", "delete the pod"],
    );
    let mut fixture = running();
    fixture.refused();
    check(&fixture, Cause::RuntimeBypass, &[]);
}

#[test]
fn pods_that_start_or_end_need_no_action_unless_a_delete_fails() {
    check(&fixture(), Cause::BeingAttached, &["in a moment"]);
    let mut fixture = fixture();
    fixture.pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    check(&fixture, Cause::Ended, &["deleted"]);
    fixture.event(
        "FailedKillPod",
        "plugin type=\"bridge\" failed: no such device",
        true,
        NOW,
    );
    check(&fixture, FailureCause::MasterMissing, &["no such device"]);
    let mut fixture = running();
    fixture.pod["status"]["phase"] = json!("Succeeded");
    check(&fixture, Cause::Ended, &["Succeeded"]);
}

fn failure(fixture: &mut PodFixture, text: &str) {
    fixture.event("FailedCreatePodSandBox", text, true, NOW - 5);
}

#[test]
fn a_taken_address_names_its_holder() {
    let mut taken = fixture();
    taken.define("storage", r#"{"cniVersion":"1.0.0","type":"bridge","capabilities":{"ips":true},"ipam":{"type":"host-local","subnet":"10.40.0.0/24"}}"#);
    annotate(
        &mut taken,
        NETWORKS_ANNOTATION,
        r#"[{"name":"storage","ips":["10.40.0.77/24"]}]"#,
    );
    failure(
        &mut taken,
        "error adding container to network \"storage\": failed to allocate for range 0: requested IP address 10.40.0.77 is not available in range set 10.40.0.1-10.40.0.254",
    );
    check(
        &taken,
        FailureCause::AddressTaken,
        &["10.40.0.77", "another pod holds it"],
    );
    let status = r#"[{"name":"shop/storage","interface":"net1","ips":["10.40.0.77"]}]"#;
    taken.neighbours.push(json!({
        "metadata": {"namespace": "default", "name": "g-json", "annotations": {network_status::ANNOTATION: status}},
        "spec": {"nodeName": "node-a"}, "status": {"phase": "Running"}}));
    check(
        &taken,
        FailureCause::AddressTaken,
        &[
            "address 10.40.0.77 of network shop/storage is held by pod default/g-json",
            "choose another address",
        ],
    );
}

#[test]
fn an_address_outside_the_range_is_the_cause() {
    let mut outside = fixture();
    outside.define("storage", r#"{"cniVersion":"1.0.0","type":"bridge","capabilities":{"ips":true},"ipam":{"type":"host-local","subnet":"10.40.0.0/24"}}"#);
    annotate(
        &mut outside,
        NETWORKS_ANNOTATION,
        r#"[{"name":"storage","ips":["10.41.0.77/24"]}]"#,
    );
    check(
        &outside,
        FailureCause::AddressOutOfRange,
        &["10.41.0.77/24", "10.40.0.1 to 10.40.0.254"],
    );
}

#[test]
fn the_explanation_leaves_out_the_calls_around_the_error() {
    let mut lost = fixture();
    failure(
        &mut lost,
        "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \"0a0b\": plugin type=\"multus-shim\" name=\"multus-cni-network\" failed (add): CmdAdd (shim): CNI request failed with status 400: ERRORED: error configuring pod [shop/cart] networking: [shop/cart/u-1:storage]: error adding container to network \"storage\": failed to lookup master \"eth7\": Link not found",
    );
    let snapshot = lost.snapshot();
    let diagnosis = diagnose(&snapshot, &[]);
    assert_eq!(
        diagnosis.cause,
        Cause::Failure(FailureCause::MasterMissing),
        "{diagnosis:?}"
    );
    assert_eq!(
        diagnosis.explanation,
        "failed to lookup master \"eth7\": Link not found: master eth7 is not on node node-a"
    );
    for text in [
        "",
        "x",
        "error adding container to network ",
        "plain words: more",
    ] {
        assert_eq!(innermost(text), text);
    }
}

#[test]
fn a_master_that_the_failure_does_not_name_is_taken_from_the_definition() {
    let mut lost = fixture();
    lost.define(
        "storage",
        r#"{"cniVersion":"1.0.0","type":"macvlan","master":"eth7"}"#,
    );
    failure(
        &mut lost,
        "error adding container to network \"storage\": Link not found",
    );
    let text = "Link not found: master eth7 of network shop/storage is not on node node-a";
    check(&lost, FailureCause::MasterMissing, &[text, "ip link"]);
    // With several definitions it is the one of the network that failed.
    annotate(&mut lost, NETWORKS_ANNOTATION, "storage,fast");
    lost.define(
        "fast",
        r#"{"cniVersion":"1.0.0","type":"host-device","device":"eth8"}"#,
    );
    check(&lost, FailureCause::MasterMissing, &[text]);
}

#[test]
fn master_without_ethernet_has_a_hint() {
    for text in [
        "failed to create macvlan: invalid argument",
        "failed to create ipvlan: invalid argument; tailscale0 is no Ethernet interface",
        "failed to create macvlan: invalid argument; its master has to be an Ethernet interface",
    ] {
        let mut refused = fixture();
        failure(&mut refused, text);
        check(
            &refused,
            FailureCause::MasterUnsuitable,
            &[text, "link/ether"],
        );
    }
}

#[test]
fn causes_of_addresses_and_capabilities_have_a_hint() {
    for (text, cause, hint) in [
        (
            "IPAM plugin returned missing IP config",
            FailureCause::AddressMissing,
            "write \"addresses\" into the definition's ipam",
        ),
        (
            "failed to allocate for range 0: requested address 10.9.9.9 failed to allocate all requested IPs: 10.9.9.9",
            FailureCause::AddressOutOfRange,
            "choose an address of the definition's ipam",
        ),
        (
            "invalid CIDR address: 10.1.2",
            FailureCause::AddressesInvalid,
            "kubectl multus lint",
        ),
        (
            "failed to lookup master \"eth7\": Link not found",
            FailureCause::MasterMissing,
            "name an interface",
        ),
    ] {
        let mut fixture = fixture();
        failure(&mut fixture, text);
        check(&fixture, cause, &[hint]);
    }
}

const OURS: &str = "multusrs/multus:v5.0.0";

fn daemon_set(ready: u64) -> Value {
    json!({"metadata": {"namespace": "kube-system", "name": "rke2-multus"},
        "status": {"numberReady": ready, "desiredNumberScheduled": 2},
        "spec": {"template": {"spec": {"containers": [{"image": OURS, "command": ["/usr/src/multus-cni/bin/multus-daemon"]}]}}}})
}

fn unready() -> Value {
    json!({"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "False",
        "message": "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"}]}})
}

#[test]
fn unready_daemons_explain_why_no_node_is_ready() {
    let mut waiting = fixture();
    waiting.pod["spec"]["nodeName"] = json!("");
    waiting.pod["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False",
        "message": "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }."}]);
    waiting.nodes = vec![unready()];
    waiting.daemon_sets = Some(vec![daemon_set(1)]);
    check(
        &waiting,
        FailureCause::DaemonNotReady,
        &[
            "network of n1 is not ready",
            "1 of 2 daemons of DaemonSet kube-system/rke2-multus",
            "doctor",
        ],
    );
    waiting.daemon_sets = Some(vec![daemon_set(2)]);
    check(
        &waiting,
        FailureCause::NodeNetworkNotReady,
        &[
            "cni plugin not initialized",
            "all Multus daemons are ready",
            "default network",
        ],
    );
    waiting.nodes.clear();
    check(&waiting, Cause::NotScheduled, &["untolerated taint"]);
}

#[test]
fn a_missing_shim_is_a_fault_of_the_daemon() {
    let mut fixture = fixture();
    failure(
        &mut fixture,
        "failed to find plugin \"multus-shim\" in path [/opt/cni/bin]",
    );
    check(
        &fixture,
        FailureCause::DaemonNotReady,
        &["multus-shim", "doctor"],
    );
    failure(&mut fixture, "cni plugin not initialized");
    check(
        &fixture,
        FailureCause::NodeNetworkNotReady,
        &["default network"],
    );
}

#[test]
fn without_a_daemon_set_multus_is_not_installed() {
    let mut fixture = fixture();
    fixture.no_daemon();
    fixture.daemon_sets = Some(vec![json!({})]);
    let hint = "multus-daemon uninstall --detach";
    check(
        &fixture,
        Cause::NotInstalled,
        &["no DaemonSet", hint, "install the chart again"],
    );
    fixture.daemon_sets = Some(vec![daemon_set(0)]);
    check(&fixture, Cause::DaemonMissing, &["DaemonSet"]);
    fixture.daemon_sets = None;
    check(&fixture, Cause::DaemonMissing, &["DaemonSet"]);

    let mut left = running();
    set_status(&mut left, &["cbr0", "shop/storage"]);
    left.no_daemon();
    left.daemon_sets = Some(Vec::new());
    check(
        &left,
        Cause::Healthy,
        &["all networks", "no longer installed", hint],
    );
    left.pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    left.event(
        "FailedKillPod",
        "failed to find plugin \"multus-shim\" in path [/opt/cni/bin]",
        true,
        NOW,
    );
    check(&left, Cause::NotInstalled, &["multus-shim", hint]);
}

#[test]
fn a_summary_has_each_part_once() {
    for (text, expected) in [
        (
            "multus daemon at /run/multus/multus.sock: No such file or directory (os error 2): No such file or directory (os error 2)",
            "multus daemon at /run/multus/multus.sock: No such file or directory (os error 2)",
        ),
        (
            "cannot open /a: No such file (os error 2); cannot open /b: gone (os error 2)",
            "cannot open /a: No such file (os error 2); cannot open /b: gone",
        ),
        (
            "a (os error 2) b (os error 13)",
            "a (os error 2) b (os error 13)",
        ),
        ("plain", "plain"),
        ("", ""),
    ] {
        assert_eq!(summary(text), expected);
    }
}
