//! Cases of subject `rollback`: Rollback.

use anyhow::ensure;
use serde_json::json;

use super::cases;
use crate::rules::harness::{Harness, WITH_A_AND_B};

cases! { "rollback":
    plain in_reverse ["rollback.reverse-order"]
    plain default_network ["rollback.reverse-order"]
    plain within_a_list ["rollback.reverse-order"]
    plain crashed_plugin ["rollback.reverse-order", "shim.error-document"]
    plain real_networks ["rollback.reverse-order"]
    plain keeps_the_first_error ["rollback.first-error"]
    plain leaves_no_state ["rollback.state"]
    plain then_del ["del.twice"]
}

fn in_reverse(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("reversed", "a,b,c")?;
    harness.set_error("b", "ADD", 7, "no luck")?;
    harness.verb("ADD", &pod)?.error()?;
    harness.expect_calls(&pod, &WITH_A_AND_B)
}

fn default_network(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("reversed-default", "a")?;
    harness.set_error("primary", "ADD", 7, "no luck")?;
    harness.verb("ADD", &pod)?.error()?;
    harness.expect_calls(&pod, &["ADD primary", "DEL primary"])
}

fn keeps_the_first_error(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("first-error", "a,b")?;
    harness.set_error("b", "ADD", 7, "the first")?;
    harness.set_error("a", "DEL", 8, "the second")?;
    let outcome = harness.verb("ADD", &pod)?;
    outcome.error_contains(&["the first"])?;
    harness.expect_calls(&pod, &WITH_A_AND_B)
}

fn leaves_no_state(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("stateless", "b")?;
    harness.set_error("b", "ADD", 7, "no luck")?;
    harness.verb("ADD", &pod)?.error()?;
    ensure!(!harness.state_file(&pod).exists(), "the state is left");
    Ok(())
}

fn within_a_list(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("list-reversed", "list")?;
    harness.set_answer("list", "ADD", &json!({"print": "no json"}))?;
    harness.verb("ADD", &pod)?.error()?;
    // The list is undone from its end, with the plugin that was never called.
    let order = harness.call_order(&pod)?;
    ensure!(
        order[..2] == ["ADD primary", "ADD list"]
            && order[2] == "DEL list"
            && order.last().is_some_and(|last| last == "DEL primary"),
        "{order:?}"
    );
    Ok(())
}

fn crashed_plugin(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("crashed", "a,b")?;
    harness.set_answer("b", "ADD", &json!({"crash": true}))?;
    harness.verb("ADD", &pod)?.error()?;
    harness.expect_calls(&pod, &WITH_A_AND_B)
}

fn real_networks(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("real-reversed", "storage,b")?;
    harness.set_error("b", "ADD", 7, "no luck")?;
    harness.verb("ADD", &pod)?.error()?;
    let inside = harness.addresses_in(&pod)?;
    ensure!(inside.is_empty(), "{inside:?}");
    let leases = harness.node().list("/var/lib/cni/networks/storage")?;
    let left: Vec<_> = leases
        .iter()
        .filter(|name| name.starts_with("10."))
        .collect();
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

fn then_del(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("undone", "b")?;
    harness.set_error("b", "ADD", 7, "no luck")?;
    harness.verb("ADD", &pod)?.error()?;
    harness.del(&pod)?;
    harness.delete_netns(&pod)?;
    harness
        .verb_env("DEL", &pod, &json!({}), &[("CNI_NETNS", "")])?
        .success()?;
    ensure!(!harness.state_file(&pod).exists(), "the state is left");
    Ok(())
}
