//! `/delegate`: one network at a time for pods that run, as upstream's controller of dynamic networks asks for them.

use anyhow::ensure;
use serde_json::{Value, json};

use super::{Case, plain};
use crate::{
    http::HttpResponse,
    rules::{
        bench::{Bench, Pod},
        definitions::recorder,
    },
};

pub(super) const CASES: &[Case] = &[
    plain(
        "delegate-add",
        &["mux-4.5-add", "mux-4.5-status", "mux-4.5-event"],
        add,
    ),
    plain("delegate-attributes", &["mux-4.5-attributes"], attributes),
    plain("delegate-list", &["mux-4.5-list"], list),
    plain("delegate-own-configuration", &["mux-4.5-own"], own),
    plain("delegate-unknown-pod", &["mux-4.5-pod"], unknown),
    plain("delegate-name-taken", &["mux-4.5-taken"], taken),
    plain("delegate-that-fails", &["mux-4.5-undone"], undone),
    plain("delegate-del", &["mux-4.5-del", "mux-4.5-del-fails"], del),
    plain("delegate-check", &["mux-4.5-check"], check),
    plain(
        "delegate-check-of-a-list",
        &["mux-4.5-check-list"],
        check_list,
    ),
    plain("delegate-status", &["mux-4.5-plugin-status"], status),
    plain("delegate-other-verbs", &["mux-4.5-verbs"], others),
    plain("delegate-goes-with-its-pod", &["mux-4.5-with-pod"], goes),
];

/// A pod that runs, with its default network alone.
fn running(bench: &Bench, name: &str) -> anyhow::Result<Pod> {
    let pod = bench.pod(name, "")?;
    bench.add(&pod)?;
    Ok(pod)
}

/// The calls of plugins since the pod's ADD.
fn since(bench: &Bench, pod: &Pod, expected: &[&str]) -> anyhow::Result<()> {
    let all: Vec<_> = ["ADD primary"].iter().chain(expected).copied().collect();
    bench.called(pod, &all)
}

fn ask(bench: &Bench, verb: &str, pod: &Pod, config: &Value) -> anyhow::Result<HttpResponse> {
    asked(bench, verb, pod, config, &Value::Null)
}

fn asked(
    bench: &Bench,
    verb: &str,
    pod: &Pod,
    config: &Value,
    attributes: &Value,
) -> anyhow::Result<HttpResponse> {
    let mut env = pod.env(verb);
    for (key, value) in &mut env {
        if key == "CNI_IFNAME" {
            "given0".clone_into(value);
        }
    }
    bench.ask("/delegate", &env, config, attributes)
}

fn refused(answer: &HttpResponse, word: &str) -> anyhow::Result<()> {
    let text = answer.text();
    ensure!(
        answer.status == 400 && text.contains(word),
        "{} {text}",
        answer.status
    );
    Ok(())
}

fn given(keys: &Value) -> Value {
    recorder("given", keys)
}

fn given_list() -> Value {
    json!({"cniVersion": "1.0.0", "name": "given", "plugins": [{"type": "recorder", "place": "one"}, {"type": "recorder", "place": "two"}]})
}

fn add(bench: &Bench) -> anyhow::Result<()> {
    let pod = running(bench, "plugged")?;
    let before = bench.status(&pod)?;
    let answer = ask(bench, "ADD", &pod, &given(&json!({"from": "request"})))?.well()?;
    let result = &answer.json()?["Result"];
    ensure!(
        result["cniVersion"] == "1.1.0" && result["interfaces"][0]["name"] == "given0",
        "{result}"
    );
    since(bench, &pod, &["ADD given"])?;
    let call = bench.call(&pod, "ADD", "given")?;
    ensure!(call.variable("CNI_IFNAME") == "given0", "{call:?}");
    ensure!(call.stdin["from"] == "request", "{}", call.stdin);
    let args = call.variable("CNI_ARGS");
    ensure!(args.contains("K8S_POD_NAME=plugged"), "{args}");
    let after = bench.status(&pod)?;
    ensure!(before == after, "the status became {after:?}");
    bench.event(
        &pod,
        "AddedInterface",
        "Add given0 [10.66.0.2/24] from given",
    )
}

fn attributes(bench: &Bench) -> anyhow::Result<()> {
    let pod = running(bench, "plugged-as-asked")?;
    let wishes =
        json!({"ips": ["10.66.0.7/24"], "mac": "02:00:00:00:00:07", "cni-args": {"tier": "gold"}});
    let config = given(&json!({"capabilities": {"ips": true, "mac": true}}));
    asked(bench, "ADD", &pod, &config, &wishes)?.well()?;
    let call = bench.call(&pod, "ADD", "given")?;
    let expected = json!({"ips": ["10.66.0.7/24"], "mac": "02:00:00:00:00:07"});
    ensure!(call.stdin["runtimeConfig"] == expected, "{}", call.stdin);
    ensure!(
        call.stdin["args"]["cni"] == wishes["cni-args"],
        "{}",
        call.stdin
    );
    let args = call.variable("CNI_ARGS");
    ensure!(
        args.contains("IP=10.66.0.7/24") && args.contains("MAC=02:00:00:00:00:07"),
        "{args}"
    );
    Ok(())
}

fn list(bench: &Bench) -> anyhow::Result<()> {
    let pod = running(bench, "plugged-list")?;
    ask(bench, "ADD", &pod, &given_list())?.well()?;
    ask(bench, "DEL", &pod, &given_list())?.well()?;
    let calls = bench.calls(&pod)?;
    let places: Vec<_> = calls[1..]
        .iter()
        .map(|call| {
            format!(
                "{} {}",
                call.verb,
                call.stdin["place"].as_str().unwrap_or_default()
            )
        })
        .collect();
    ensure!(
        places == ["ADD one", "ADD two", "DEL two", "DEL one"],
        "{places:?}"
    );
    Ok(())
}

/// The daemon's file says 1.1.0.
fn own(bench: &Bench) -> anyhow::Result<()> {
    let pod = running(bench, "plugged-old")?;
    let config = given(&json!({"cniVersion": "0.4.0"}));
    ask(bench, "ADD", &pod, &config)?.well()?;
    let call = bench.call(&pod, "ADD", "given")?;
    ensure!(call.stdin == config, "{}", call.stdin);
    Ok(())
}

fn unknown(bench: &Bench) -> anyhow::Result<()> {
    let stranger = bench.sandbox("default", "plugged-nowhere", "0000")?;
    let mut another = running(bench, "plugged-before")?;
    "0000".clone_into(&mut another.uid);
    for (pod, verb, calls) in [(&stranger, "ADD", 0), (&another, "DEL", 1)] {
        refused(&ask(bench, verb, pod, &given(&json!({})))?, &pod.name)?;
        let order = bench.order(pod)?;
        ensure!(order.len() == calls, "{order:?}");
    }
    Ok(())
}

fn taken(bench: &Bench) -> anyhow::Result<()> {
    let pod = running(bench, "plugged-twice")?;
    let netns = pod.netns_name();
    bench.scene.node.run(&[
        "ip", "-n", &netns, "link", "add", "given0", "type", "veth", "peer", "name", "given1",
    ])?;
    let answer = ask(bench, "ADD", &pod, &given(&json!({})))?;
    refused(&answer, "interface name given0 already exists")?;
    since(bench, &pod, &[])
}

fn undone(bench: &Bench) -> anyhow::Result<()> {
    let pod = running(bench, "plugged-in-vain")?;
    bench.fails("given", "ADD", 7, "no luck")?;
    refused(&ask(bench, "ADD", &pod, &given(&json!({})))?, "no luck")?;
    since(bench, &pod, &["ADD given", "DEL given"])?;
    bench.del(&pod)?;
    bench.called(
        &pod,
        &["ADD primary", "ADD given", "DEL given", "DEL primary"],
    )
}

fn del(bench: &Bench) -> anyhow::Result<()> {
    let pod = running(bench, "plugged-and-out")?;
    let config = given(&json!({"from": "request"}));
    ask(bench, "ADD", &pod, &config)?.well()?;
    bench.fails("given", "DEL", 7, "it sticks")?;
    refused(&ask(bench, "DEL", &pod, &config)?, "it sticks")?;
    bench.answer("given", "DEL", &Value::Null)?;
    let answer = ask(bench, "DEL", &pod, &config)?.well()?;
    ensure!(answer.body.is_empty(), "{}", answer.text());
    since(bench, &pod, &["ADD given", "DEL given", "DEL given"])?;
    let calls = bench.calls(&pod)?;
    let call = &calls[2];
    ensure!(
        call.variable("CNI_IFNAME") == "given0"
            && call.stdin["from"] == "request"
            && call.stdin["prevResult"]["ips"][0]["address"] == "10.66.0.2/24",
        "{call:?}"
    );
    Ok(())
}

fn check(bench: &Bench) -> anyhow::Result<()> {
    let pod = running(bench, "plugged-checked")?;
    let config = given(&json!({}));
    ask(bench, "ADD", &pod, &config)?.well()?;
    ask(bench, "CHECK", &pod, &config)?.well()?;
    bench.fails("given", "CHECK", 7, "it is not there")?;
    refused(&ask(bench, "CHECK", &pod, &config)?, "it is not there")?;
    since(bench, &pod, &["ADD given", "CHECK given", "CHECK given"])
}

fn check_list(bench: &Bench) -> anyhow::Result<()> {
    let pod = running(bench, "plugged-checked-list")?;
    ask(bench, "ADD", &pod, &given_list())?.well()?;
    ask(bench, "CHECK", &pod, &given_list())?.well()?;
    let calls = ["ADD given", "ADD given", "CHECK given", "CHECK given"];
    since(bench, &pod, &calls)
}

fn status(bench: &Bench) -> anyhow::Result<()> {
    let pod = running(bench, "plugged-status")?;
    let config = recorder("given-status", &json!({"cniVersion": "1.1.0"}));
    ask(bench, "STATUS", &pod, &config)?.well()?;
    bench.fails("given-status", "STATUS", 50, "it is down")?;
    refused(&ask(bench, "STATUS", &pod, &config)?, "it is down")
}

fn others(bench: &Bench) -> anyhow::Result<()> {
    let pod = running(bench, "plugged-otherwise")?;
    refused(&ask(bench, "GC", &pod, &given(&json!({})))?, "GC")?;
    let answer = bench.daemon_says("GET", "/delegate", b"")?;
    ensure!(answer.status == 405, "{answer:?}");
    since(bench, &pod, &[])
}

fn goes(bench: &Bench) -> anyhow::Result<()> {
    let pod = running(bench, "plugged-and-gone")?;
    let config = given(&json!({"from": "request"}));
    ask(bench, "ADD", &pod, &config)?.well()?;
    bench.del(&pod)?;
    since(bench, &pod, &["ADD given", "DEL given", "DEL primary"])?;
    let call = bench.call(&pod, "DEL", "given")?;
    ensure!(
        call.variable("CNI_IFNAME") == "given0" && call.stdin["from"] == "request",
        "{call:?}"
    );
    Ok(())
}
