//! Pods with and without an answer of their node's daemon.

use plan::network_status;
use serde_json::{Value, json};

use super::*;
use crate::pod_snapshot::tests::{NOW, PodFixture, answer, attachment};

const STATUS: &str = r#"[
    {"name": "cbr0", "interface": "eth0", "ips": ["10.42.0.5"], "mac": "02:00:00:00:00:01", "default": true, "dns": {}, "gateway": ["10.42.0.1"]},
    {"name": "shop/storage", "interface": "net1", "ips": ["10.20.0.5", "fd00::5"], "mac": "02:00:00:00:00:02", "dns": {}}
]"#;

fn fixture(networks: &str) -> PodFixture {
    let mut fixture = PodFixture::pod(networks);
    fixture.pod["metadata"]["annotations"][network_status::ANNOTATION] = json!(STATUS);
    fixture.pod["status"] = json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z"});
    fixture
}

fn full_answer() -> Value {
    let mut answer = answer();
    answer["containers"] = json!([
        {"containerID": "old", "uid": "another", "attachments": [attachment("shop/gone", "net7", "attached")]},
        {"containerID": "c", "uid": "u-1", "attachments": [
            {"network": "cbr0", "interface": "eth0", "plugins": ["flannel", "portmap"], "progress": "attached",
             "addresses": ["10.42.0.5/24"], "since": NOW - 7200},
            {"network": "shop/storage", "interface": "net1", "plugins": ["bridge"], "progress": "attached",
             "addresses": ["10.20.0.5/24"], "claim": "cart.storage.net1", "since": NOW - 90},
        ]},
    ]);
    answer
}

#[track_caller]
fn check(fixture: &PodFixture, expected: &str) -> Report {
    let report = report(&fixture.snapshot(), NOW);
    assert_eq!(text(&report), expected);
    report
}

#[test]
fn plugins_and_times_come_from_the_daemons_answer() {
    let mut fixture = fixture("storage");
    fixture.answer = Some(full_answer());
    let report = check(
        &fixture,
        "shop/cart on node-a, Running\n\n\
         NETWORK        INTERFACE   ADDRESSES                                     MAC                 PLUGIN            AGE\n\
         cbr0 *         eth0        10.42.0.5                                     02:00:00:00:00:01   flannel+portmap   120m\n\
         shop/storage   net1        10.20.0.5,fd00::5 (claim cart.storage.net1)   02:00:00:00:00:02   bridge            90s\n",
    );
    assert_eq!(report.networks[0].gateways, ["10.42.0.1"]);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["networks"][1]["since"], NOW - 90);
    assert_eq!(json["missing"], json!([]));
}

#[test]
fn without_an_answer_plugins_and_times_come_from_definitions_and_events() {
    let mut fixture = fixture("storage");
    fixture.define(
        "storage",
        r#"{"cniVersion":"1.0.0","plugins":[{"type":"bridge"},{"type":"tuning"}]}"#,
    );
    fixture.event(
        "AddedInterface",
        "Add net1 [10.20.0.5/24] from shop/storage",
        false,
        NOW - 130,
    );
    fixture.event(
        "AddedInterface",
        "Add net1 [10.20.0.5/24] from shop/storage2",
        false,
        NOW - 10,
    );
    check(
        &fixture,
        "shop/cart on node-a, Running\n\n\
         NETWORK        INTERFACE   ADDRESSES           MAC                 PLUGIN          AGE\n\
         cbr0 *         eth0        10.42.0.5           02:00:00:00:00:01   -               <2h\n\
         shop/storage   net1        10.20.0.5,fd00::5   02:00:00:00:00:02   bridge+tuning   2m10s\n\n\
         note: the node's daemon was not queried: forbidden\n"
            .replace("<2h", &format!("<{}", age(NOW - 1_767_225_600)))
            .as_str(),
    );
}

#[test]
fn missing_and_failed_networks_are_reported() {
    let mut fixture = fixture("storage,storage,wire");
    let mut answer = full_answer();
    let attachments = answer["containers"][1]["attachments"]
        .as_array_mut()
        .unwrap();
    attachments.push(attachment("shop/wire", "net2", "failed"));
    fixture.answer = Some(answer);
    let report = report(&fixture.snapshot(), NOW);
    assert_eq!(report.missing, ["shop/storage", "shop/wire"]);
    assert_eq!(report.networks[2].note, Some("failed"));
    let text = text(&report);
    assert!(text.contains("shop/wire (failed)"), "{text}");
    assert!(
        text.contains("not attached: shop/wire; `kubectl multus why shop/cart` says why"),
        "{text}"
    );
}

#[test]
fn an_attached_network_without_an_interface_is_not_missing() {
    let mut fixture = fixture("storage,tune");
    let mut answer = full_answer();
    let attachments = answer["containers"][1]["attachments"]
        .as_array_mut()
        .unwrap();
    attachments.push(attachment("shop/tune", "net2", "attached"));
    fixture.answer = Some(answer);
    let report = report(&fixture.snapshot(), NOW);
    assert_eq!((report.missing.len(), report.networks.len()), (0, 3));
    assert_eq!(report.networks[2].note, None);
}

#[test]
fn a_pod_without_a_node_misses_all_its_networks() {
    let mut fixture = PodFixture::pod("storage");
    fixture.pod["spec"]["nodeName"] = json!("");
    fixture.pod["status"]["phase"] = json!("Pending");
    check(
        &fixture,
        "shop/cart no node yet, Pending\n\nno networks are known of this pod\n\n\
         not attached: shop/storage; `kubectl multus why shop/cart` says why\n",
    );
}

#[test]
fn a_broken_annotation_is_a_problem() {
    let mut broken = fixture("a/b/c");
    broken.answer = Some(full_answer());
    let report = report(&broken.snapshot(), NOW);
    let problem = report.problem.unwrap();
    assert!(problem.contains("Invalid network object"), "{problem}");
}

#[test]
fn no_networks_and_no_daemon_is_a_problem() {
    let mut waiting = PodFixture::pod("");
    waiting.no_daemon();
    let found = report(&waiting.snapshot(), NOW);
    assert_eq!(
        found.problem.as_deref(),
        Some("there is no Multus daemon on the pod's node")
    );
    assert!(text(&found).contains("problem: there is no Multus daemon"));
    waiting.stopped_daemon("CrashLoopBackOff");
    let found = report(&waiting.snapshot(), NOW);
    assert!(found.problem.unwrap().contains("CrashLoopBackOff"));
    waiting.answer = Some(answer());
    assert_eq!(report(&waiting.snapshot(), NOW).problem, None);
    let mut attached = fixture("storage");
    attached.no_daemon();
    assert_eq!(report(&attached.snapshot(), NOW).problem, None);
}
