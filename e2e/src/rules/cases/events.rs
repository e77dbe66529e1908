//! Cases of subject `events`: Events.

use anyhow::ensure;
use serde_json::{Value, json};

use super::cases;
use crate::{
    rules::harness::{Harness, Pod},
    sh,
};

cases! { "events":
    plain add ["events.added"]
    plain counted_failure ["events.add-failed", "events.counted"]
    plain that_differ_do_not_pile_up ["events.counted"]
    plain failed_del ["events.del-failed"]
    plain abandoned_network ["events.abandoned"]
}

fn add(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("eventful", "a")?;
    harness.wait_for_event(
        &pod,
        "AddedInterface",
        "Add eth0 [10.65.0.2/24] from primary",
    )?;
    harness.wait_for_event(
        &pod,
        "AddedInterface",
        "Add net1 [10.66.0.2/24] from default/a",
    )
}

/// Waits until the events of a reason were sent that often in all, and returns them.
fn find_events(
    harness: &Harness,
    pod: &Pod,
    reason: &str,
    times: i64,
) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    sh::until(10, "the events", || {
        found = harness.events(pod)?;
        found.retain(|event| event["reason"] == reason);
        let sent: i64 = found
            .iter()
            .filter_map(|event| event["count"].as_i64())
            .sum();
        ensure!(sent == times, "{sent} of {times}: {found:?}");
        Ok(())
    })?;
    Ok(found)
}

fn counted_failure(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("failing-again", "a")?;
    harness.set_error("a", "ADD", 7, "no luck")?;
    for times in 1..=3 {
        harness.verb("ADD", &pod)?.error()?;
        let events = find_events(harness, &pod, "FailedAddNetwork", times)?;
        ensure!(events.len() == 1, "{events:?}");
        let text = events[0]["message"].as_str().unwrap_or_default();
        for word in ["default/failing-again", "\"a\"", "no luck"] {
            ensure!(text.contains(word), "no {word} in {text}");
        }
    }
    Ok(())
}

fn that_differ_do_not_pile_up(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("ever-different", "a")?;
    for times in 1..=12 {
        harness.set_error("a", "ADD", 7, &format!("no luck on day {times}"))?;
        harness.verb("ADD", &pod)?.error()?;
        let events = find_events(harness, &pod, "FailedAddNetwork", times)?;
        ensure!(events.len() <= 8, "{} events", events.len());
        let is_reported = events.iter().any(|event| {
            let text = event["message"].as_str().unwrap_or_default();
            text.contains(&format!("on day {times} "))
        });
        ensure!(is_reported, "no event reports the last failure: {events:?}");
    }
    Ok(())
}

fn failed_del(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("staying", "a")?;
    harness.set_error("a", "DEL", 7, "it sticks")?;
    harness.verb("DEL", &pod)?.error()?;
    harness.wait_for_event(&pod, "FailedDelNetwork", "it sticks")?;
    harness.set_answer("a", "DEL", &Value::Null)?;
    harness.del(&pod)
}

fn abandoned_network(harness: &Harness) -> anyhow::Result<()> {
    // The configuration disables the retry of DEL.
    let pod = harness.attach("abandoned", "a")?;
    harness.set_error("a", "DEL", 7, "it sticks")?;
    harness
        .verb_with("DEL", &pod, &json!({"retryDeleteOnError": false}))?
        .error()?;
    harness.wait_for_event(&pod, "NetworkAbandoned", "it sticks")?;
    // The failed ADD may not have attached the network at all, so DEL tries once.
    let pod = harness.pod("abandoned-early", "b")?;
    harness.set_error("b", "ADD", 7, "no luck")?;
    harness.set_error("b", "DEL", 7, "nothing there")?;
    harness.verb("ADD", &pod)?.error()?;
    harness.del(&pod)?;
    harness.wait_for_event(&pod, "NetworkAbandoned", "nothing there")
}
