//! Cases of subject `config`: Keys of the configuration of Multus.

use std::fs;

use anyhow::ensure;
use serde_json::{Value, json};

use super::cases;
use crate::{
    rules::{
        definitions::recorder,
        harness::{Harness, PodSpec},
    },
    single_node::BIN_DIR,
};

cases! { "config":
    overlaid overlay_wins_over_the_request ["config.overlay"]
    overlaid overlay_unknown_keys ["config.overlay-unknown-keys"]
    overlaid overlay_default_networks ["config.overlay", "config.default-networks", "config.multus-namespace"]
    overlaid overlay_system_namespaces ["config.system-namespaces"]
    plain keys_of_any_case ["config.any-case"]
    plain without_network ["config.no-network"]
    plain delegates ["config.delegates"]
    plain delegates_and_cluster_network ["config.delegates-ignored"]
    plain delegate_without_type ["config.delegate-type"]
    plain default_networks ["config.default-networks", "config.multus-namespace", "add.order"]
    plain system_namespaces ["config.system-namespaces"]
    plain cni_dir ["config.cni-dir"]
    plain bin_dir_before_path ["config.bin-dir", "plugin.path"]
    plain unreadable_prev_result ["config.prev-result"]
    plain readiness_file_in_auto_mode ["config.readiness-indicator-auto"]
}

fn delegates(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("delegated", "a")?;
    let keys = json!({"clusterNetwork": null, "delegates": [recorder("first", &json!({})), recorder("second", &json!({}))]});
    harness.add_with(&pod, &keys)?;
    harness.expect_calls(&pod, &["ADD first", "ADD second", "ADD a"])?;
    let names: Vec<_> = harness
        .calls(&pod)?
        .iter()
        .map(|call| call.variable("CNI_IFNAME").to_owned())
        .collect();
    ensure!(names == ["eth0", "net1", "net2"], "{names:?}");
    harness.verb_with("DEL", &pod, &keys)?.success()?;
    harness.expect_calls(
        &pod,
        &[
            "ADD first",
            "ADD second",
            "ADD a",
            "DEL a",
            "DEL second",
            "DEL first",
        ],
    )
}

fn delegates_and_cluster_network(harness: &Harness) -> anyhow::Result<()> {
    let keys = json!({"delegates": [recorder("first", &json!({}))]});
    let pod = harness.attach_with("undelegated", "", &keys)?;
    harness.expect_calls(&pod, &["ADD primary"])
}

fn default_networks(harness: &Harness) -> anyhow::Result<()> {
    let keys = json!({"defaultNetworks": ["central", "also-central"]});
    let pod = harness.attach_with("defaulted", "a", &keys)?;
    harness.expect_calls(
        &pod,
        &["ADD primary", "ADD central", "ADD also-central", "ADD a"],
    )?;
    let keys = json!({"defaultNetworks": ["common"], "multusNamespace": "shared"});
    let pod = harness.attach_with("defaulted-elsewhere", "a", &keys)?;
    harness.expect_calls(&pod, &["ADD primary", "ADD common", "ADD a"])
}

fn system_namespaces(harness: &Harness) -> anyhow::Result<()> {
    let quiet = |name| harness.pod_with(name, &PodSpec::in_namespace("quiet"));
    let keys = json!({"defaultNetworks": ["central"], "systemNamespaces": ["quiet", "other"]});
    let pod = quiet("of-the-system")?;
    harness.add_with(&pod, &keys)?;
    harness.expect_calls(&pod, &["ADD primary"])?;
    let pod = quiet("of-no-system")?;
    harness.add_with(&pod, &json!({"defaultNetworks": ["central"]}))?;
    harness.expect_calls(&pod, &["ADD primary", "ADD central"])?;
    let pod = harness.pod_with("in-kube-system", &PodSpec::in_namespace("kube-system"))?;
    harness.add_with(&pod, &json!({"defaultNetworks": ["central"]}))?;
    harness.expect_calls(&pod, &["ADD primary"])
}

fn without_network(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("nothing", "")?;
    let outcome = harness.verb_with("ADD", &pod, &json!({"clusterNetwork": null}))?;
    outcome.error_contains(&["LoadNetConf: at least one delegate/clusterNetwork must be specified"])
}

fn delegate_without_type(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("typeless", "")?;
    let broken = [
        json!({"name": "x"}),
        json!({"name": "x", "plugins": [{"other": 1}]}),
    ];
    for delegate in broken {
        let keys = json!({"clusterNetwork": null, "delegates": [delegate]});
        harness.verb_with("ADD", &pod, &keys)?.error()?;
    }
    harness.expect_calls(&pod, &[])
}

fn cni_dir(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("elsewhere-kept", "")?;
    let dir = "/var/lib/cni/elsewhere";
    let keys = json!({"cniDir": dir});
    harness.add_with(&pod, &keys)?;
    let (state, results) = (
        harness.node().path(&format!("{dir}/{}", pod.id)),
        harness.node().list(&format!("{dir}/results"))?,
    );
    let existed = state.exists();
    harness.verb_with("DEL", &pod, &keys)?.success()?;
    let was_removed = !state.exists();
    fs::remove_dir_all(harness.node().path(dir))?;
    ensure!(
        existed && was_removed && results.len() == 1,
        "state existed: {existed}, removed: {was_removed}, results: {results:?}"
    );
    harness.expect_calls(&pod, &["ADD primary", "DEL primary"])
}

fn bin_dir_before_path(harness: &Harness) -> anyhow::Result<()> {
    let node = harness.node();
    let other = "/opt/cni/other";
    node.write(&format!("{other}/recorder"), b"")?;
    fs::copy(
        node.path(&format!("{BIN_DIR}/recorder")),
        node.path(&format!("{other}/recorder")),
    )?;
    let pod = harness.pod("pathed", "")?;
    let outcome = harness.verb_env("ADD", &pod, &json!({}), &[("CNI_PATH", other)]);
    fs::remove_dir_all(node.path(other))?;
    outcome?.success()?;
    let call = harness.call(&pod, "ADD", "primary")?;
    ensure!(
        call.program == format!("{BIN_DIR}/recorder"),
        "{}",
        call.program
    );
    ensure!(
        call.variable("CNI_PATH").split(':').next() == Some(BIN_DIR),
        "{}",
        call.variable("CNI_PATH")
    );
    Ok(())
}

fn keys_of_any_case(harness: &Harness) -> anyhow::Result<()> {
    let keys = json!({"clusterNetwork": null, "Delegates": [recorder("cased", &json!({}))]});
    let pod = harness.attach_with("cased", "", &keys)?;
    harness.expect_calls(&pod, &["ADD cased"])
}

fn unreadable_prev_result(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("preceded", "")?;
    let keys = json!({"prevResult": {"cniVersion": "1.1.0", "ips": "none"}});
    harness.ensure_refused_with(&pod, &keys, &[])
}

fn readiness_file_in_auto_mode(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("impatient", "")?;
    let keys = json!({"readinessindicatorfile": "/run/never"});
    harness
        .spawn_verb_with("ADD", &pod, &keys)?
        .within(10)?
        .success()
        .map(drop)
}

fn overlay_wins_over_the_request(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("overlaid", "other/far")?;
    let keys = json!({"namespaceIsolation": false, "globalNamespaces": "other"});
    harness.ensure_refused_with(
        &pod,
        &keys,
        &["namespace isolation enabled, annotation violates permission"],
    )
}

fn overlay_unknown_keys(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("overlaid-unknown", "a")?;
    // The key must not reach the plugins.
    let found: Vec<Value> = harness
        .calls(&pod)?
        .into_iter()
        .map(|call| call.stdin)
        .filter(|stdin| !stdin["unknownKey"].is_null())
        .collect();
    ensure!(found.is_empty(), "{found:?}");
    Ok(())
}

fn overlay_default_networks(harness: &Harness) -> anyhow::Result<()> {
    let keys = json!({"defaultNetworks": ["central"], "multusNamespace": "kube-system"});
    let pod = harness.attach_with("overlaid-networks", "shared/common", &keys)?;
    harness.expect_calls(&pod, &["ADD primary", "ADD everyone", "ADD common"])
}

fn overlay_system_namespaces(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod_with("overlaid-quiet", &PodSpec::in_namespace("quiet"))?;
    harness.add(&pod)?;
    harness.expect_calls(&pod, &["ADD primary"])?;
    // The daemon's list replaces the default, which has `kube-system`.
    let pod = harness.pod_with("overlaid-loud", &PodSpec::in_namespace("kube-system"))?;
    harness.add(&pod)?;
    harness.expect_calls(&pod, &["ADD primary", "ADD everyone"])
}
