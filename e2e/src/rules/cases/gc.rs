//! Cases of subject `gc`: GC.

use anyhow::ensure;
use serde_json::json;

use super::cases;
use crate::rules::{harness::Harness, recorder};

cases! { "gc":
    plain detaches_stale_containers ["gc.stale"]
    plain keeps_listed_containers ["gc.listed"]
    plain without_results ["gc.no-results"]
    plain default_network ["gc.default-network"]
    plain valid_attachments ["gc.valid-attachments", "gc.other-networks"]
}

fn detaches_stale_containers(harness: &Harness) -> anyhow::Result<()> {
    let (kept, lost) = (harness.pod("kept", "a")?, harness.pod("lost", "a,list")?);
    harness.add(&kept)?;
    harness.add(&lost)?;
    let valid = json!([{"containerID": kept.id, "ifname": "eth0"}]);
    harness
        .node_verb("GC", &json!({"cni.dev/valid-attachments": valid}))?
        .success()?;
    harness.expect_calls(
        &lost,
        &[
            "ADD primary",
            "ADD a",
            "ADD list",
            "ADD list",
            "DEL list",
            "DEL list",
            "DEL a",
            "DEL primary",
        ],
    )?;
    ensure!(!harness.state_file(&lost).exists(), "the state is left");
    harness.expect_calls(&kept, &["ADD primary", "ADD a"])
}

fn keeps_listed_containers(harness: &Harness) -> anyhow::Result<()> {
    let pods = [harness.pod("listed-1", "a")?, harness.pod("listed-2", "")?];
    let mut valid = Vec::new();
    for pod in &pods {
        harness.add(pod)?;
        valid.push(json!({"containerID": pod.id, "ifname": "eth0"}));
    }
    let answer = harness
        .node_verb("GC", &json!({"cni.dev/valid-attachments": valid}))?
        .success()?;
    ensure!(answer.is_null(), "{answer}");
    for pod in &pods {
        ensure!(
            harness
                .call_order(pod)?
                .iter()
                .all(|call| call.starts_with("ADD"))
                && harness.state_file(pod).exists(),
            "{:?}",
            harness.call_order(pod)?
        );
        harness.del(pod)?;
    }
    Ok(())
}

fn without_results(harness: &Harness) -> anyhow::Result<()> {
    let dir = "/var/lib/cni/fresh";
    let outcome = harness.node_verb(
        "GC",
        &json!({"cniDir": dir, "cni.dev/valid-attachments": []}),
    )?;
    let _ = std::fs::remove_dir_all(harness.node().path(dir));
    outcome.success().map(drop)
}

fn default_network(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("gc-listed", "")?;
    let keys = harness.own_default_network("gc-default", "1.1.0")?;
    harness.add_with(&pod, &keys)?;
    let mut config = keys.clone();
    config["cni.dev/valid-attachments"] = json!([{"containerID": pod.id, "ifname": "eth0"}]);
    harness.node_verb("GC", &config)?.success()?;
    ensure!(
        harness.node_calls("GC", "gc-default")? == 1,
        "{:?}",
        harness.calls_of(recorder::NO_CONTAINER)?
    );
    Ok(())
}

fn valid_attachments(harness: &Harness) -> anyhow::Result<()> {
    let (listed, lost) = (
        harness.pod("gc-valid", "newest,a")?,
        harness.pod("gc-stale", "newest")?,
    );
    let keys = harness.own_default_network("gc-network", "1.1.0")?;
    harness.add_with(&listed, &keys)?;
    harness.add_with(&lost, &keys)?;
    let mut config = keys;
    config["cni.dev/valid-attachments"] = json!([{"containerID": listed.id, "ifname": "eth0"}]);
    harness.node_verb("GC", &config)?.success()?;
    for (network, ifname) in [("gc-network", "eth0"), ("newest", "net1")] {
        let calls = harness.calls_of(recorder::NO_CONTAINER)?;
        let gc_calls = calls.iter().filter(|call| call.verb == "GC");
        let listed_attachments: Vec<_> = gc_calls
            .filter(|call| call.network() == network)
            .map(|call| call.stdin["cni.dev/valid-attachments"].clone())
            .collect();
        let expected = json!([{"containerID": listed.id, "ifname": ifname}]);
        ensure!(
            listed_attachments == [expected],
            "{network}: {listed_attachments:?}"
        );
    }
    Ok(())
}
