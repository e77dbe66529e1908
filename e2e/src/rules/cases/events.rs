//! What people are told: events that are counted, errors that are short, and a log that has the rest.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Case, plain};
use crate::{
    rules::bench::{Bench, Pod},
    sh,
};

pub(super) const CASES: &[Case] = &[
    plain(
        "events-of-a-failure-counted",
        &["mux-11.7-failed", "mux-11.7-counted"],
        failure,
    ),
    plain("events-of-success-counted", &["mux-11.7-counted"], success),
    plain(
        "events-that-differ-do-not-pile-up",
        &["mux-11.7-counted"],
        many,
    ),
    plain("events-of-a-failed-del", &["mux-11.7-del"], failed_del),
    plain(
        "events-of-what-is-given-up",
        &["mux-11.7-given-up"],
        given_up,
    ),
    plain("errors-short", &["mux-11.6-short", "mux-11.6-log"], short),
];

/// The events of one reason, once they were sent so often in all.
fn of_reason(bench: &Bench, pod: &Pod, reason: &str, times: i64) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    sh::until(10, "the events", || {
        found = bench.events(pod)?;
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

fn failure(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("failing-again", "a")?;
    bench.fails("a", "ADD", 7, "no luck")?;
    for times in 1..=3 {
        bench.verb("ADD", &pod)?.error()?;
        let events = of_reason(bench, &pod, "FailedAddNetwork", times)?;
        ensure!(events.len() == 1, "{events:?}");
        let text = events[0]["message"].as_str().unwrap_or_default();
        for word in ["default/failing-again", "\"a\"", "no luck"] {
            ensure!(text.contains(word), "no {word} in {text}");
        }
    }
    Ok(())
}

fn success(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("again-and-again", "a")?;
    for times in 1..=3 {
        bench.add(&pod)?;
        let events = of_reason(bench, &pod, "AddedInterface", 2 * times)?;
        ensure!(events.len() == 2, "{events:?}");
        bench.del(&pod)?;
    }
    Ok(())
}

fn many(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("ever-different", "a")?;
    for times in 1..=12 {
        bench.fails("a", "ADD", 7, &format!("no luck on day {times}"))?;
        bench.verb("ADD", &pod)?.error()?;
        let events = of_reason(bench, &pod, "FailedAddNetwork", times)?;
        ensure!(events.len() <= 8, "{} events", events.len());
        let is_told = events.iter().any(|event| {
            let text = event["message"].as_str().unwrap_or_default();
            text.contains(&format!("on day {times} "))
        });
        ensure!(is_told, "the last failure is not told: {events:?}");
    }
    Ok(())
}

fn failed_del(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("staying", "a")?;
    bench.add(&pod)?;
    bench.fails("a", "DEL", 7, "it sticks")?;
    bench.verb("DEL", &pod)?.error()?;
    bench.event(&pod, "FailedDelNetwork", "it sticks")?;
    bench.answer("a", "DEL", &Value::Null)?;
    bench.del(&pod)
}

fn given_up(bench: &Bench) -> anyhow::Result<()> {
    // A DEL that is not tried again by the cluster owner's wish.
    let pod = bench.pod("forsaken", "a")?;
    bench.add(&pod)?;
    bench.fails("a", "DEL", 7, "it sticks")?;
    bench
        .verb_with("DEL", &pod, &json!({"retryDeleteOnError": false}))?
        .error()?;
    bench.event(&pod, "NetworkGivenUp", "it sticks")?;
    // What an ADD that failed may not even have begun.
    let pod = bench.pod("forsaken-early", "b")?;
    bench.fails("b", "ADD", 7, "no luck")?;
    bench.fails("b", "DEL", 7, "nothing there")?;
    bench.verb("ADD", &pod)?.error()?;
    bench.del(&pod)?;
    bench.event(&pod, "NetworkGivenUp", "nothing there")
}

fn short(bench: &Bench) -> anyhow::Result<()> {
    let name = format!("long-{}", "n".repeat(40));
    let pod = bench.pod(&name, "a")?;
    let cause = format!(
        "the range is used up{}, enlarge it",
        " by many pods".repeat(60)
    );
    bench.fails("a", "ADD", 7, &cause)?;
    let error = bench.verb("ADD", &pod)?.error()?;
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    let all = format!("{}; {}", text("msg"), text("details"));
    ensure!(
        all.chars().count() < 300 && !all.contains('\n'),
        "{} characters: {all}",
        all.len()
    );
    for word in [&name, "network \"a\"", "the range", "enlarge it"] {
        ensure!(all.contains(word), "no {word} in {all}");
    }
    let id = all
        .split_once("(id ")
        .and_then(|(_, rest)| rest.split_once(')'))
        .context(format!("no id in {all}"))?
        .0;
    let log = fs::read_to_string(bench.log()?)?;
    let line = log.lines().find(|line| line.contains(id));
    let line = line.with_context(|| format!("the log has no {id}"))?;
    ensure!(line.contains(&cause) && line.contains("told to"), "{line}");
    bench.event(&pod, "FailedAddNetwork", id)?;
    for event in bench.events(&pod)? {
        let length = event["message"]
            .as_str()
            .map_or(0, |text| text.chars().count());
        ensure!(length < 300, "{event}");
    }
    Ok(())
}
