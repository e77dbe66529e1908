//! One pod in many kinds of trouble.

use plan::{NETWORKS_ANNOTATION, network_status};
use serde_json::{Value, json};

use super::*;
use crate::scene::tests::{Given, NOW, answer, attachment};

/// The cause, and words of what is told and of the cure.
#[track_caller]
fn check(given: &Given, cause: Cause, words: &[&str]) {
    let scene = given.scene();
    let remarks = judge::pod(&scene.facts.pod, &scene.netconf, &scene.known);
    let verdict = decide(&scene, &remarks);
    assert_eq!(verdict.cause, cause, "{verdict:?}");
    let told = format!("{} / {}", verdict.what, verdict.cure);
    for word in words {
        assert!(told.contains(word), "no {word:?} in {told:?}");
    }
}

/// A pod that waits for a network which is defined, on a node whose daemon is well.
fn given() -> Given {
    let mut given = Given::pod("storage");
    given.define("storage", r#"{"cniVersion":"1.0.0","type":"bridge"}"#);
    given.asked = Some(answer());
    given
}

fn running() -> Given {
    let mut given = given();
    given.pod["status"]["phase"] = json!("Running");
    given
}

fn told(given: &mut Given, networks: &[&str]) {
    let networks: Vec<_> = networks.iter().map(|name| json!({"name": name})).collect();
    let text = Value::from(networks).to_string();
    given.pod["metadata"]["annotations"][network_status::ANNOTATION] = json!(text);
}

fn option(given: &mut Given, key: &str, value: Value) {
    let answer = given.asked.as_mut().unwrap();
    answer["options"][key] = value;
}

fn annotate(given: &mut Given, key: &str, value: &str) {
    given.pod["metadata"]["annotations"] = json!({key: value});
}

#[test]
fn a_pod_that_has_everything_is_well() {
    let mut given = running();
    told(&mut given, &["cbr0", "shop/storage"]);
    check(&given, Cause::Well, &["all networks"]);
    given.pod["status"]["containerStatuses"] =
        json!([{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]);
    check(&given, Cause::Well, &["ImagePullBackOff"]);
    given.nads.clear();
    check(
        &given,
        Cause::Well,
        &["another pod like it would fail", "(storage)"],
    );
}

#[test]
fn what_has_no_interface_is_known_from_the_daemon() {
    let mut given = running();
    told(&mut given, &["cbr0"]);
    check(&given, Cause::AnnotatedLater, &["shop/storage"]);
    given.asked.as_mut().unwrap()["containers"] = json!([{"containerID": "c", "uid": "u-1", "attachments": [attachment("shop/storage", "net1", "attached")]}]);
    check(&given, Cause::Well, &[]);
}

#[test]
fn a_pod_that_asks_for_nothing_gets_nothing() {
    let mut given = running();
    annotate(&mut given, "x", "y");
    check(&given, Cause::NothingAsked, &["default one"]);
}

#[test]
fn annotations_that_nobody_reads() {
    let mut given = running();
    annotate(&mut given, "k8s.v1.cni.cncf.io/network", "storage");
    check(
        &given,
        Cause::AnnotationMisspelt,
        &["did you mean k8s.v1.cni.cncf.io/networks"],
    );
    let mut given = running();
    given.pod["spec"]["hostNetwork"] = json!(true);
    check(&given, Cause::HostNetwork, &["hostNetwork", "remove"]);
}

#[test]
fn what_the_daemon_would_refuse_is_the_cause_before_anything_was_told() {
    let mut missing = given();
    missing.nads.clear();
    check(
        &missing,
        Cause::DefinitionMissing,
        &["(storage)", "create it"],
    );

    let mut broken = given();
    broken.define("storage", "{");
    check(&broken, Cause::DefinitionBroken, &["shop/storage", "JSON"]);

    let mut invalid = given();
    annotate(&mut invalid, NETWORKS_ANNOTATION, "a/b/c");
    check(
        &invalid,
        Cause::AnnotationInvalid,
        &["Invalid network object"],
    );

    let mut unserved = given();
    annotate(
        &mut unserved,
        NETWORKS_ANNOTATION,
        r#"[{"name":"storage","bandwidth":{"ingressRate":1,"ingressBurst":1}}]"#,
    );
    check(&unserved, Cause::BeingAttached, &[]);
    option(&mut unserved, "unservedRequests", json!("error"));
    check(
        &unserved,
        Cause::RequestUnserved,
        &["bandwidth", "add the capability"],
    );
    for word in ["event", "silent"] {
        option(&mut unserved, "unservedRequests", json!(word));
        check(&unserved, Cause::BeingAttached, &[]);
    }

    let mut conflict = given();
    annotate(&mut conflict, NETWORKS_ANNOTATION, "storage@x,storage@x");
    check(&conflict, Cause::NetworksConflict, &["interface x"]);

    let mut forbidden = given();
    option(&mut forbidden, "allowedPlugins", json!(["macvlan"]));
    check(
        &forbidden,
        Cause::PluginNotAllowed,
        &["bridge", "allowedPlugins"],
    );
}

#[test]
fn isolation_is_told_where_the_daemon_has_it() {
    let mut given = given();
    annotate(&mut given, NETWORKS_ANNOTATION, "other/storage");
    check(&given, Cause::DefinitionMissing, &["(other)"]);
    option(&mut given, "namespaceIsolation", json!(true));
    check(&given, Cause::NamespaceIsolation, &["globalNamespaces"]);
}

#[test]
fn a_network_that_wants_a_device_wants_it_requested() {
    let mut given = given();
    given.nads[0]["metadata"]["annotations"] = json!({"k8s.v1.cni.cncf.io/resourceName": "x/fast"});
    check(&given, Cause::DeviceMissing, &["x/fast"]);
}

#[test]
fn without_a_node_the_scheduler_is_asked() {
    let mut given = given();
    given.pod["spec"]["nodeName"] = json!("");
    given.pod["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient x/fast"}]);
    check(
        &given,
        Cause::NotScheduled,
        &["Insufficient x/fast", "scheduler"],
    );
    given.nads.clear();
    check(&given, Cause::NotScheduled, &["it will fail", "(storage)"]);
    given.pod["status"]["conditions"] = json!([]);
    check(&given, Cause::NotScheduled, &["has not decided yet"]);
}

#[test]
fn a_node_whose_daemon_serves_nobody() {
    let mut given = given();
    given.asked.as_mut().unwrap()["problem"] = json!("discovery: no runtime answers");
    check(
        &given,
        Cause::DaemonNotReady,
        &["no runtime answers", "doctor"],
    );
    given.no_daemon();
    check(
        &given,
        Cause::DaemonMissing,
        &["no Multus daemon", "DaemonSet"],
    );
    given.stopped_daemon("CrashLoopBackOff");
    check(&given, Cause::DaemonNotReady, &["CrashLoopBackOff"]);
}

#[test]
fn texts_of_failures_tell_their_cause() {
    let sandbox = "Failed to create pod sandbox: rpc error: plugin type=\"multus-shim\" failed (add): CmdAdd (shim): CNI request failed with status 400: ERRORED: error configuring pod [shop/cart] networking: [shop/cart:storage]: error adding container to network \"storage\": ";
    for (words, cause, cure) in [
        (
            "plugin \"sriov\" is in none of /opt/cni/bin, /var/lib/multus/bin",
            Cause::PluginMissing,
            "/var/lib/multus/bin",
        ),
        (
            "failed to find plugin \"sriov\" in path [/opt/cni/bin]",
            Cause::PluginMissing,
            "another type",
        ),
        (
            "failed to allocate for range 0: no IP addresses available in range set: 10.20.0.1-10.20.0.254",
            Cause::AddressesExhausted,
            "enlarge",
        ),
        (
            "failed to lookup master \"eth7\": Link not found",
            Cause::MasterMissing,
            "ip link",
        ),
        (
            "error dialing DHCP daemon: dial unix /run/cni/dhcp.sock: connect: no such file or directory",
            Cause::DhcpUnreachable,
            "dhcpDaemonSet",
        ),
        (
            "/opt/cni/bin/slow did not end within 90 s",
            Cause::PluginSlow,
            "waits",
        ),
        (
            "multus daemon at /run/multus/multus.sock: no answer within 5 s",
            Cause::DaemonNotReady,
            "doctor",
        ),
        (
            "cannot find a network-attachment-definition (x) in namespace (shop)",
            Cause::DefinitionMissing,
            "shop",
        ),
        (
            "validateIfName: interface name net1 already exists",
            Cause::NetworksConflict,
            "net1",
        ),
        ("the moon is full", Cause::PluginFailed, "log"),
    ] {
        let mut given = given();
        given.event(
            "FailedCreatePodSandBox",
            &format!("{sandbox}{words}"),
            true,
            NOW - 5,
        );
        check(&given, cause, &[words, cure]);
        given.refused();
        check(&given, cause, &[words, cure]);
    }
}

#[test]
fn the_newest_failure_counts_and_the_daemons_words_before_the_events() {
    let mut given = given();
    given.event(
        "FailedAddNetwork",
        "no IP addresses available",
        true,
        NOW - 50,
    );
    given.event(
        "FailedCreatePodSandBox",
        "failed to find plugin \"a\"",
        true,
        NOW - 5,
    );
    check(&given, Cause::PluginMissing, &[]);
    given.asked.as_mut().unwrap()["failures"] = json!([
        {"id": "0a0b", "pod": "shop/cart", "verb": "ADD", "code": 7, "msg": "old", "at": 1, "count": 1},
        {"id": "0c0d", "pod": "shop/cart", "verb": "ADD", "code": 999, "msg": "no luck", "details": "Link not found", "at": 2, "count": 1},
    ]);
    check(
        &given,
        Cause::MasterMissing,
        &["no luck; Link not found (id 0c0d)"],
    );
}

#[test]
fn failures_before_a_success_are_of_the_past() {
    let mut given = running();
    told(&mut given, &["cbr0"]);
    given.event(
        "FailedAddNetwork",
        "no IP addresses available",
        true,
        NOW - 50,
    );
    check(&given, Cause::AddressesExhausted, &[]);
    given.event("AddedInterface", "Add eth0 [] from cbr0", false, NOW - 20);
    check(
        &given,
        Cause::AnnotatedLater,
        &["dynamicNetworksController"],
    );
    option(&mut given, "dynamicNetworks", json!(true));
    check(&given, Cause::BeingAttached, &["in a moment"]);
}

#[test]
fn a_pod_whose_runtime_never_asked() {
    check(
        &running(),
        Cause::RuntimeBypass,
        &["shop/storage", "delete the pod"],
    );
    let mut given = running();
    given.refused();
    check(&given, Cause::RuntimeBypass, &[]);
}

#[test]
fn a_pod_that_is_being_made_or_unmade() {
    check(&given(), Cause::BeingAttached, &["in a moment"]);
    let mut given = given();
    given.pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    check(&given, Cause::Ended, &["deleted"]);
    given.event(
        "FailedKillPod",
        "plugin type=\"bridge\" failed: no such device",
        true,
        NOW,
    );
    check(&given, Cause::MasterMissing, &["no such device"]);
    let mut given = running();
    given.pod["status"]["phase"] = json!("Succeeded");
    check(&given, Cause::Ended, &["Succeeded"]);
}

fn failure(given: &mut Given, text: &str) {
    given.event("FailedCreatePodSandBox", text, true, NOW - 5);
}

#[test]
fn a_taken_address_names_its_holder() {
    let mut taken = given();
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
        Cause::AddressTaken,
        &["10.40.0.77", "another pod, or left"],
    );
    let status = r#"[{"name":"shop/storage","interface":"net1","ips":["10.40.0.77"]}]"#;
    taken.neighbours.push(json!({
        "metadata": {"namespace": "default", "name": "g-json", "annotations": {network_status::ANNOTATION: status}},
        "spec": {"nodeName": "node-a"}, "status": {"phase": "Running"}}));
    check(
        &taken,
        Cause::AddressTaken,
        &[
            "address 10.40.0.77 of network shop/storage is held by pod default/g-json",
            "choose another address",
        ],
    );
}

#[test]
fn an_address_outside_the_range_is_the_cause() {
    let mut outside = given();
    outside.define("storage", r#"{"cniVersion":"1.0.0","type":"bridge","capabilities":{"ips":true},"ipam":{"type":"host-local","subnet":"10.40.0.0/24"}}"#);
    annotate(
        &mut outside,
        NETWORKS_ANNOTATION,
        r#"[{"name":"storage","ips":["10.41.0.77/24"]}]"#,
    );
    check(
        &outside,
        Cause::AddressOutside,
        &["10.41.0.77/24", "10.40.0.1 to 10.40.0.254"],
    );
}

#[test]
fn the_cause_comes_without_the_calls_around_it() {
    let mut lost = given();
    failure(
        &mut lost,
        "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \"0a0b\": plugin type=\"multus-shim\" name=\"multus-cni-network\" failed (add): CmdAdd (shim): CNI request failed with status 400: ERRORED: error configuring pod [shop/cart] networking: [shop/cart/u-1:storage]: error adding container to network \"storage\": failed to lookup master \"eth7\": Link not found",
    );
    let scene = lost.scene();
    let verdict = decide(&scene, &[]);
    assert_eq!(verdict.cause, Cause::MasterMissing, "{verdict:?}");
    assert_eq!(
        verdict.what,
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
fn unusable_addresses_of_a_definition_have_a_cause() {
    for text in [
        "invalid CIDR address: 10.1.2",
        "Network has host bits set. For a subnet mask of length 24 the network address is 10.1.2.0",
        "no IP ranges specified",
    ] {
        assert_eq!(of_text(text), Cause::AddressesInvalid, "{text}");
    }
}

#[test]
fn a_master_that_the_failure_does_not_name_is_that_of_the_definition() {
    let mut lost = given();
    lost.define(
        "storage",
        r#"{"cniVersion":"1.0.0","type":"macvlan","master":"eth7"}"#,
    );
    failure(
        &mut lost,
        "error adding container to network \"storage\": Link not found",
    );
    let words = "Link not found: master eth7 of network shop/storage is not on node node-a";
    check(&lost, Cause::MasterMissing, &[words, "ip link"]);
    // Of several, the one whose network failed.
    annotate(&mut lost, NETWORKS_ANNOTATION, "storage,fast");
    lost.define(
        "fast",
        r#"{"cniVersion":"1.0.0","type":"host-device","device":"eth8"}"#,
    );
    check(&lost, Cause::MasterMissing, &[words]);
}

#[test]
fn every_cause_of_addresses_and_capabilities_has_a_cure() {
    for (text, cause, cure) in [
        (
            "IPAM plugin returned missing IP config",
            Cause::AddressMissing,
            "write \"addresses\" into the definition's ipam",
        ),
        (
            "failed to allocate for range 0: requested address 10.9.9.9 failed to allocate all requested IPs: 10.9.9.9",
            Cause::AddressOutside,
            "choose an address of the definition's ipam",
        ),
        (
            "invalid CIDR address: 10.1.2",
            Cause::AddressesInvalid,
            "kubectl multus lint",
        ),
        (
            "network shop/storage: no plugin serves the request for ips: add the capability, drop the request, or set unservedRequests to event",
            Cause::RequestUnserved,
            "\"capabilities\": {\"ips\": true}",
        ),
        (
            "failed to lookup master \"eth7\": Link not found",
            Cause::MasterMissing,
            "name an interface",
        ),
    ] {
        let mut given = given();
        failure(&mut given, text);
        check(&given, cause, &[cure]);
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
fn a_scheduler_that_waits_for_our_daemons_says_so() {
    let mut waiting = given();
    waiting.pod["spec"]["nodeName"] = json!("");
    waiting.pod["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False",
        "message": "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }."}]);
    waiting.nodes = vec![unready()];
    waiting.daemon_sets = Some(vec![daemon_set(1)]);
    check(
        &waiting,
        Cause::DaemonNotReady,
        &[
            "network of n1 is not ready",
            "1 of 2 daemons of DaemonSet kube-system/rke2-multus",
            "doctor",
        ],
    );
    waiting.daemon_sets = Some(vec![daemon_set(2)]);
    check(
        &waiting,
        Cause::NodeNetworkNotReady,
        &[
            "cni plugin not initialized",
            "all daemons of Multus are ready",
            "primary CNI",
        ],
    );
    waiting.nodes.clear();
    check(&waiting, Cause::NotScheduled, &["untolerated taint"]);
}

#[test]
fn failures_to_reach_the_shim_are_ours() {
    let mut given = given();
    failure(
        &mut given,
        "failed to find plugin \"multus-shim\" in path [/opt/cni/bin]",
    );
    check(&given, Cause::DaemonNotReady, &["multus-shim", "doctor"]);
    failure(&mut given, "cni plugin not initialized");
    check(&given, Cause::NodeNetworkNotReady, &["primary CNI"]);
}

#[test]
fn after_an_uninstall_there_is_no_daemon_set_to_look_at() {
    let mut given = given();
    given.no_daemon();
    given.daemon_sets = Some(vec![json!({})]);
    let cure = "multus-daemon uninstall --detach";
    check(
        &given,
        Cause::NotInstalled,
        &["no DaemonSet", cure, "install the chart again"],
    );
    given.daemon_sets = Some(vec![daemon_set(0)]);
    check(&given, Cause::DaemonMissing, &["DaemonSet"]);
    given.daemon_sets = None;
    check(&given, Cause::DaemonMissing, &["DaemonSet"]);

    let mut left = running();
    told(&mut left, &["cbr0", "shop/storage"]);
    left.no_daemon();
    left.daemon_sets = Some(Vec::new());
    check(
        &left,
        Cause::Well,
        &["all networks", "not installed any more", cure],
    );
    left.pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    left.event(
        "FailedKillPod",
        "failed to find plugin \"multus-shim\" in path [/opt/cni/bin]",
        true,
        NOW,
    );
    check(&left, Cause::NotInstalled, &["multus-shim", cure]);
}

#[test]
fn a_summary_says_each_part_once() {
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
