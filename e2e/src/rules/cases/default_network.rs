//! Cases of subject `default-network`: The annotation of the default network.

use anyhow::ensure;
use serde_json::json;

use super::cases;
use crate::rules::harness::{DEFAULT_NETWORK, Harness, NETWORKS, Pod, PodSpec};

cases! { "default-network":
    plain replaced ["default-network.replaced"]
    plain namespaces ["default-network.namespace", "default-network.interface-and-status"]
    plain interface ["default-network.requested-interface"]
    plain isolated ["default-network.isolation"]
    plain several ["default-network.several"]
    plain empty ["default-network.empty"]
    plain empty_list ["default-network.empty-list"]
}

fn replaced(harness: &Harness) -> anyhow::Result<()> {
    let pod = with_default(harness, "own-default", "central")?;
    harness.add(&pod)?;
    harness.expect_calls(&pod, &["ADD central", "ADD a"])?;
    let call = harness.call(&pod, "ADD", "central")?;
    ensure!(call.variable("CNI_IFNAME") == "eth0", "{call:?}");
    let status = harness.network_status(&pod)?;
    ensure!(
        status[0]["name"] == "kube-system/central" && status[0]["default"] == true,
        "{status:?}"
    );
    harness.del(&pod)?;
    harness.expect_calls(&pod, &["ADD central", "ADD a", "DEL a", "DEL central"])
}

fn with_default(harness: &Harness, name: &str, network: &str) -> anyhow::Result<Pod> {
    let form = PodSpec::annotated(&[(DEFAULT_NETWORK, network), (NETWORKS, "a")]);
    harness.pod_with(name, &form)
}

fn namespaces(harness: &Harness) -> anyhow::Result<()> {
    for (name, network, called) in [
        ("default-of-multus", "central", "central"),
        ("default-of-another", "other/far", "far"),
        (
            "default-json",
            r#"[{"name": "far", "namespace": "other"}]"#,
            "far",
        ),
    ] {
        let pod = with_default(harness, name, network)?;
        harness.add(&pod)?;
        let found = harness.interfaces(&pod)?;
        ensure!(
            found == [format!("{called} eth0"), "a net1".to_owned()],
            "{found:?}"
        );
        ensure!(
            harness.network_status(&pod)?[0]["default"] == true,
            "{name}"
        );
    }
    Ok(())
}

fn interface(harness: &Harness) -> anyhow::Result<()> {
    let pod = with_default(harness, "default-named", "central@main0")?;
    harness.add(&pod)?;
    let found = harness.interfaces(&pod)?;
    ensure!(found == ["central main0", "a net1"], "{found:?}");
    harness.del(&pod)?;
    let found = harness.interfaces(&pod)?;
    ensure!(found[2..] == ["a net1", "central main0"], "{found:?}");
    Ok(())
}

fn refused_default(harness: &Harness, name: &str, network: &str, word: &str) -> anyhow::Result<()> {
    let pod = with_default(harness, name, network)?;
    harness.ensure_refused(&pod, &[word])
}

fn several(harness: &Harness) -> anyhow::Result<()> {
    let words = "more than one default network is specified";
    refused_default(harness, "default-many", "central,also-central", words)
}

fn empty(harness: &Harness) -> anyhow::Result<()> {
    refused_default(harness, "default-empty", "", "default/default-empty")
}

fn empty_list(harness: &Harness) -> anyhow::Result<()> {
    refused_default(
        harness,
        "default-none",
        "[]",
        "no default network is specified",
    )
}

fn isolated(harness: &Harness) -> anyhow::Result<()> {
    let keys = json!({"namespaceIsolation": true});
    let pod = with_default(harness, "default-isolated", "other/far")?;
    harness.ensure_refused_with(&pod, &keys, &["annotation violates permission"])?;
    let pod = with_default(harness, "default-central", "central")?;
    harness.add_with(&pod, &keys)?;
    harness.expect_calls(&pod, &["ADD central", "ADD a"])
}
