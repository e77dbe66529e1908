//! DEL.

use std::fs;

use anyhow::ensure;
use serde_json::{Value, json};

use super::{Case, plain};
use crate::{
    http::HttpResponse,
    rules::{
        bench::{Bench, Pod, WITH_A, WITH_A_AND_B},
        definitions::recorder,
    },
};

pub(super) const CASES: &[Case] = &[
    plain(
        "del-in-reverse",
        &["mux-12.2-reverse", "mux-12.3-removed"],
        reverse,
    ),
    plain("del-goes-on-after-a-failure", &["mux-12.2-all"], goes_on),
    plain("del-without-pod", &["mux-12.2-alone"], no_pod),
    plain("del-without-netns", &["mux-12.2-no-netns"], no_netns),
    plain(
        "del-with-cached-result",
        &["mux-12.2-prev-result"],
        prev_result,
    ),
    plain(
        "del-by-the-configuration-of-add",
        &["mux-12.2-changed"],
        changed,
    ),
    plain("del-reports-all-errors", &["mux-12.2-report"], report),
    plain("del-keeps-state-for-another-try", &["mux-12.3-kept"], kept),
    plain("del-that-is-not-tried-again", &["mux-12.3-wish"], wish),
    plain(
        "del-with-a-broken-cached-result",
        &["mux-12.2-cache"],
        broken_cache,
    ),
    plain("del-twice", &["mux-12.4-twice"], twice),
    plain("del-twice-without-pod", &["mux-12.4-twice"], twice_alone),
];

fn on_socket(bench: &Bench, pod: &Pod) -> anyhow::Result<HttpResponse> {
    bench.request(&pod.env("DEL"), &bench.config()?)
}

fn reverse(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("taken-down", "a@ext0,b,list")?;
    bench.add(&pod)?;
    bench.del(&pod)?;
    let calls = bench.calls(&pod)?;
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
    ensure!(!bench.state_file(&pod).exists(), "its state is left");
    Ok(())
}

fn goes_on(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("stubborn", "a,b")?;
    bench.add(&pod)?;
    bench.fails("a", "DEL", 7, "it stays")?;
    // What the runtime is told is another matter.
    bench.verb("DEL", &pod)?;
    bench.called(&pod, &WITH_A_AND_B)
}

fn no_pod(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("orphaned", "a")?;
    bench.add(&pod)?;
    bench.delete(&pod)?;
    bench.settle()?;
    bench.del(&pod)?;
    bench.called(&pod, &WITH_A)
}

fn no_netns(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("without-netns", "a")?;
    bench.add(&pod)?;
    bench.end_netns(&pod)?;
    bench
        .verb_env("DEL", &pod, &json!({}), &[("CNI_NETNS", "")])?
        .well()?;
    bench.called(&pod, &WITH_A)?;
    let call = bench.call(&pod, "DEL", "a")?;
    ensure!(call.variable("CNI_NETNS").is_empty(), "{call:?}");
    Ok(())
}

fn prev_result(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("remembered", "a,list")?;
    bench.add(&pod)?;
    bench.del(&pod)?;
    for call in bench.calls(&pod)?.iter().filter(|call| call.verb == "DEL") {
        ensure!(
            call.stdin["prevResult"]["ips"][0]["address"].is_string(),
            "{}",
            call.stdin
        );
    }
    Ok(())
}

fn changed(bench: &Bench) -> anyhow::Result<()> {
    let path = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions/c";
    let set = |config: &Value| {
        bench
            .api(
                "PATCH",
                path,
                &json!({"spec": {"config": config.to_string()}}),
            )
            .map(drop)
    };
    let pod = bench.pod("unchanged", "c")?;
    bench.add(&pod)?;
    set(&recorder("c", &json!({"changed": true})))?;
    let outcome = bench.settle().and_then(|()| bench.del(&pod));
    set(&recorder("c", &json!({})))?;
    outcome?;
    let call = bench.call(&pod, "DEL", "c")?;
    ensure!(call.stdin["changed"].is_null(), "{}", call.stdin);
    Ok(())
}

fn report(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("complaining", "a,b")?;
    bench.add(&pod)?;
    bench.fails("a", "DEL", 7, "a stays")?;
    bench.fails("b", "DEL", 7, "b stays")?;
    let answer = on_socket(bench, &pod)?;
    let text = answer.text();
    ensure!(
        answer.status == 400 && text.contains("a stays") && text.contains("b stays"),
        "{} {text}",
        answer.status
    );
    Ok(())
}

fn kept(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("tried-again", "a,b")?;
    bench.add(&pod)?;
    bench.delete(&pod)?;
    bench.settle()?;
    bench.fails("a", "DEL", 7, "not yet")?;
    ensure!(on_socket(bench, &pod)?.status == 400, "it did not fail");
    ensure!(bench.state_file(&pod).exists(), "the state is gone");
    bench.answer("a", "DEL", &Value::Null)?;
    on_socket(bench, &pod)?.well()?;
    let again = bench
        .order(&pod)?
        .iter()
        .filter(|call| *call == "DEL a")
        .count();
    ensure!(
        again == 2 && !bench.state_file(&pod).exists(),
        "{again} tries"
    );
    Ok(())
}

fn twice(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("twice-gone", "a")?;
    bench.add(&pod)?;
    bench.del(&pod)?;
    bench.del(&pod)?;
    ensure!(!bench.state_file(&pod).exists(), "its state is left");
    Ok(())
}

fn twice_alone(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("twice-alone", "a")?;
    bench.add(&pod)?;
    bench.del(&pod)?;
    bench.delete(&pod)?;
    bench.settle()?;
    let calls = bench.order(&pod)?.len();
    bench.del(&pod)?;
    ensure!(
        bench.order(&pod)?.len() == calls,
        "{:?}",
        bench.order(&pod)?
    );
    let state = fs::exists(bench.state_file(&pod))?;
    ensure!(!state, "its state is left");
    Ok(())
}

/// With `retryDeleteOnError` the state stays, as with upstream; without it, it goes although a network did not.
fn wish(bench: &Bench) -> anyhow::Result<()> {
    for (name, again) in [("tried-again-as-wanted", true), ("tried-once", false)] {
        let pod = bench.pod(name, "a")?;
        bench.add(&pod)?;
        bench.fails("a", "DEL", 7, "not yet")?;
        let config = bench.config_with(&json!({"retryDeleteOnError": again}))?;
        let answer = bench.request(&pod.env("DEL"), &config)?;
        ensure!(answer.status == 400, "{name}: it did not fail");
        ensure!(
            bench.state_file(&pod).exists() == again,
            "{name}: the state is not as wanted"
        );
        bench.answer("a", "DEL", &Value::Null)?;
        bench.del(&pod)?;
        ensure!(
            !bench.state_file(&pod).exists(),
            "{name}: its state is left"
        );
    }
    Ok(())
}

/// What cannot be read of a list's last result does not keep it from going.
fn broken_cache(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("forgotten", "list")?;
    bench.add(&pod)?;
    let file = format!("/var/lib/cni/multus/results/list-{}-net1", pod.id);
    bench.scene.node.write(&file, "{\"kind\":")?;
    bench.del(&pod)?;
    let deleted = bench.order(&pod)?;
    let deleted = deleted.iter().filter(|call| *call == "DEL list").count();
    ensure!(deleted == 2, "{deleted} plugins were told");
    let left = bench.scene.node.path(&file).exists();
    ensure!(!left, "what cannot be read is left");
    Ok(())
}
