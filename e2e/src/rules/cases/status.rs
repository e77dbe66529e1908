//! Cases of subject `status`: STATUS.

use anyhow::ensure;
use serde_json::json;

use super::cases;
use crate::rules::{harness::Harness, recorder};

cases! { "status":
    plain default_network ["status.default-network"]
    plain fails_with_the_default_network ["status.default-network", "shim.error-document"]
    plain old_default_network ["status.old-version"]
    plain missing_default_network ["status.default-network-missing"]
    plain code ["status.code", "errors.code"]
}

fn default_network(harness: &Harness) -> anyhow::Result<()> {
    let mut keys = harness.own_default_network("status-network", "1.1.0")?;
    keys["defaultNetworks"] = json!(["central"]);
    let answer = harness.node_verb("STATUS", &keys)?.success()?;
    ensure!(answer.is_null(), "{answer}");
    ensure!(
        harness.node_calls("STATUS", "status-network")? == 1
            && harness.node_calls("STATUS", "central")? == 0,
        "{:?}",
        harness.calls_of(recorder::NO_CONTAINER)?
    );
    Ok(())
}

fn fails_with_the_default_network(harness: &Harness) -> anyhow::Result<()> {
    let keys = harness.own_default_network("status-bad", "1.1.0")?;
    harness.set_error("status-bad", "STATUS", 50, "it is down")?;
    harness
        .node_verb("STATUS", &keys)?
        .error_contains(&["it is down"])
}

fn old_default_network(harness: &Harness) -> anyhow::Result<()> {
    let keys = harness.own_default_network("status-old", "1.0.0")?;
    harness.set_error("status-old", "STATUS", 50, "it is down")?;
    harness.node_verb("STATUS", &keys)?.success()?;
    ensure!(
        harness.node_calls("STATUS", "status-old")? == 0,
        "{:?}",
        harness.calls_of(recorder::NO_CONTAINER)?
    );
    Ok(())
}

fn code(harness: &Harness) -> anyhow::Result<()> {
    let keys = harness.own_default_network("status-code", "1.1.0")?;
    harness.set_error("status-code", "STATUS", 51, "few addresses")?;
    let outcome = harness.node_verb("STATUS", &keys)?;
    outcome.has_code(51)?;
    ensure!(
        outcome.error()?["details"] == "by the case",
        "{:?}",
        outcome.error()?
    );
    Ok(())
}

fn missing_default_network(harness: &Harness) -> anyhow::Result<()> {
    let keys = json!({"clusterNetwork": "/etc/cni/rules/nowhere.conflist"});
    harness
        .node_verb("STATUS", &keys)?
        .error_contains(&["nowhere"])
}
