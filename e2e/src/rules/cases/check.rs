//! Cases of subject `check`: CHECK.

use anyhow::ensure;
use serde_json::json;

use super::cases;
use crate::rules::harness::Harness;

cases! { "check":
    plain intact_pod ["check.success", "forward.empty-output"]
    plain every_network ["check.every-network"]
    plain with_cached_results ["check.cached-result"]
    plain fails_with_a_network ["check.failure"]
}

fn intact_pod(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("checked", "a")?;
    let result = harness.add(&pod)?;
    let answer = harness
        .verb_with("CHECK", &pod, &json!({"prevResult": result}))?
        .success()?;
    ensure!(answer.is_null(), "{answer}");
    Ok(())
}

fn every_network(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("checked-all", "a,list,old")?;
    let result = harness.add(&pod)?;
    harness
        .verb_with("CHECK", &pod, &json!({"prevResult": result}))?
        .success()?;
    let checks: Vec<_> = harness
        .call_order(&pod)?
        .into_iter()
        .filter(|call| call.starts_with("CHECK"))
        .collect();
    // CNI 0.3.1, the version of the last network, has no CHECK.
    ensure!(
        checks == ["CHECK primary", "CHECK a", "CHECK list", "CHECK list"],
        "{checks:?}"
    );
    Ok(())
}

fn fails_with_a_network(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("checked-bad", "a")?;
    let result = harness.add(&pod)?;
    harness.set_error("a", "CHECK", 7, "it is not there")?;
    harness
        .verb_with("CHECK", &pod, &json!({"prevResult": result}))?
        .error_contains(&["it is not there"])
}

/// With `delegates`, since upstream checks no other networks.
fn with_cached_results(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("checked-with", "")?;
    let one = json!({"cniVersion": "1.0.0", "name": "checked-one", "type": "recorder"});
    let keys = json!({"clusterNetwork": null, "delegates": [one]});
    let result = harness.add_with(&pod, &keys)?;
    let mut config = keys;
    config["prevResult"] = result;
    harness.verb_with("CHECK", &pod, &config)?.success()?;
    let call = harness.call(&pod, "CHECK", "checked-one")?;
    ensure!(
        call.stdin["prevResult"]["ips"][0]["address"] == "10.66.0.2/24",
        "{}",
        call.stdin
    );
    Ok(())
}
