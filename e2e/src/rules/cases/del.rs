//! Cases of subject `del`: DEL.

use std::fs;

use anyhow::ensure;
use serde_json::{Value, json};

use super::cases;
use crate::{
    http::HttpResponse,
    rules::{
        definitions::recorder,
        harness::{Harness, Pod, WITH_A, WITH_A_AND_B},
    },
};

cases! { "del":
    plain in_reverse ["del.reverse-order", "del.state-removed"]
    plain by_the_configuration_of_add ["del.configuration-of-add"]
    plain with_cached_result ["del.cached-result"]
    plain with_a_broken_cached_result ["del.broken-cached-result"]
    plain without_pod ["del.without-pod"]
    plain without_netns ["del.without-netns"]
    plain continues_after_a_failure ["del.continues"]
    plain reports_all_errors ["del.all-errors"]
    plain keeps_state_for_a_retry ["del.state-kept"]
    plain retry_disabled ["del.retry"]
    plain twice ["del.twice"]
    plain twice_without_pod ["del.twice"]
}

fn on_socket(harness: &Harness, pod: &Pod) -> anyhow::Result<HttpResponse> {
    harness.cni_request(&pod.env("DEL"), &harness.config()?)
}

fn in_reverse(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("taken-down", "a@ext0,b,list")?;
    harness.del(&pod)?;
    let calls = harness.calls(&pod)?;
    let names = |verb| {
        calls
            .iter()
            .filter(|call| call.verb == verb)
            .map(|call| {
                (
                    call.network().to_owned(),
                    call.variable("CNI_IFNAME").to_owned(),
                )
            })
            .collect::<Vec<_>>()
    };
    let mut added = names("ADD");
    added.reverse();
    ensure!(names("DEL") == added, "{:?} and {added:?}", names("DEL"));
    ensure!(!harness.state_file(&pod).exists(), "the state is left");
    Ok(())
}

fn continues_after_a_failure(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("stubborn", "a,b")?;
    harness.set_error("a", "DEL", 7, "it stays")?;
    // Another rule is about the answer.
    harness.verb("DEL", &pod)?;
    harness.expect_calls(&pod, &WITH_A_AND_B)
}

fn without_pod(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("orphaned", "a")?;
    harness.delete_pod(&pod)?;
    harness.wait_for_watch()?;
    harness.del(&pod)?;
    harness.expect_calls(&pod, &WITH_A)
}

fn without_netns(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("without-netns", "a")?;
    harness.delete_netns(&pod)?;
    harness
        .verb_env("DEL", &pod, &json!({}), &[("CNI_NETNS", "")])?
        .success()?;
    harness.expect_calls(&pod, &WITH_A)?;
    let call = harness.call(&pod, "DEL", "a")?;
    ensure!(call.variable("CNI_NETNS").is_empty(), "{call:?}");
    Ok(())
}

fn with_cached_result(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("remembered", "a,list")?;
    harness.del(&pod)?;
    for call in harness
        .calls(&pod)?
        .iter()
        .filter(|call| call.verb == "DEL")
    {
        ensure!(
            call.stdin["prevResult"]["ips"][0]["address"].is_string(),
            "{}",
            call.stdin
        );
    }
    Ok(())
}

fn by_the_configuration_of_add(harness: &Harness) -> anyhow::Result<()> {
    let path = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions/c";
    let set = |config: &Value| {
        harness
            .api(
                "PATCH",
                path,
                &json!({"spec": {"config": config.to_string()}}),
            )
            .map(drop)
    };
    let pod = harness.attach("unchanged", "c")?;
    set(&recorder("c", &json!({"changed": true})))?;
    let outcome = harness.wait_for_watch().and_then(|()| harness.del(&pod));
    set(&recorder("c", &json!({})))?;
    outcome?;
    let call = harness.call(&pod, "DEL", "c")?;
    ensure!(call.stdin["changed"].is_null(), "{}", call.stdin);
    Ok(())
}

fn reports_all_errors(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("complaining", "a,b")?;
    harness.set_error("a", "DEL", 7, "a stays")?;
    harness.set_error("b", "DEL", 7, "b stays")?;
    let answer = on_socket(harness, &pod)?;
    let text = answer.text();
    ensure!(
        answer.status == 400 && text.contains("a stays") && text.contains("b stays"),
        "{} {text}",
        answer.status
    );
    Ok(())
}

fn keeps_state_for_a_retry(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("tried-again", "a,b")?;
    harness.delete_pod(&pod)?;
    harness.wait_for_watch()?;
    harness.set_error("a", "DEL", 7, "not yet")?;
    ensure!(on_socket(harness, &pod)?.status == 400, "DEL did not fail");
    ensure!(harness.state_file(&pod).exists(), "the state was removed");
    harness.set_answer("a", "DEL", &Value::Null)?;
    on_socket(harness, &pod)?.well()?;
    let again = harness
        .call_order(&pod)?
        .iter()
        .filter(|call| *call == "DEL a")
        .count();
    ensure!(
        again == 2 && !harness.state_file(&pod).exists(),
        "{again} attempts"
    );
    Ok(())
}

fn twice(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("twice-gone", "a")?;
    harness.del(&pod)?;
    harness.del(&pod)?;
    ensure!(!harness.state_file(&pod).exists(), "the state is left");
    Ok(())
}

fn twice_without_pod(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("twice-alone", "a")?;
    harness.del(&pod)?;
    harness.delete_pod(&pod)?;
    harness.wait_for_watch()?;
    let calls = harness.call_order(&pod)?.len();
    harness.del(&pod)?;
    ensure!(
        harness.call_order(&pod)?.len() == calls,
        "{:?}",
        harness.call_order(&pod)?
    );
    let state = fs::exists(harness.state_file(&pod))?;
    ensure!(!state, "the state is left");
    Ok(())
}

/// With `retryDeleteOnError` set to `false` the state is removed although a network stays attached.
fn retry_disabled(harness: &Harness) -> anyhow::Result<()> {
    for (name, again) in [("retry-enabled", true), ("retry-disabled", false)] {
        let pod = harness.attach(name, "a")?;
        harness.set_error("a", "DEL", 7, "not yet")?;
        let config = harness.config_with(&json!({"retryDeleteOnError": again}))?;
        let answer = harness.cni_request(&pod.env("DEL"), &config)?;
        ensure!(answer.status == 400, "{name}: it did not fail");
        ensure!(
            harness.state_file(&pod).exists() == again,
            "{name}: the state was kept or removed against the configuration"
        );
        harness.set_answer("a", "DEL", &Value::Null)?;
        harness.del(&pod)?;
        ensure!(
            !harness.state_file(&pod).exists(),
            "{name}: the state is left"
        );
    }
    Ok(())
}

fn with_a_broken_cached_result(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("forgotten", "list")?;
    let file = format!("/var/lib/cni/multus/results/list-{}-net1", pod.id);
    harness.node().write(&file, "{\"kind\":")?;
    harness.del(&pod)?;
    let deleted = harness.call_order(&pod)?;
    let deleted = deleted.iter().filter(|call| *call == "DEL list").count();
    ensure!(deleted == 2, "{deleted} calls of DEL");
    let left = harness.node().path(&file).exists();
    ensure!(!left, "the broken cached result is left");
    Ok(())
}
