//! Cases of subject `delegate`: Networks of running pods.

use anyhow::ensure;
use serde_json::{Value, json};

use super::cases;
use crate::{
    http::HttpResponse,
    rules::{
        definitions::recorder,
        harness::{Harness, Pod},
    },
};

cases! { "delegate":
    plain add ["delegate.add", "delegate.status-annotation", "delegate.event"]
    plain interface_attributes ["delegate.interface-attributes"]
    plain list ["delegate.list"]
    plain configuration ["delegate.configuration"]
    plain unknown_pod ["delegate.unknown-pod"]
    plain interface_exists ["delegate.interface-exists"]
    plain rollback ["delegate.rollback"]
    plain del ["delegate.del", "delegate.del-error"]
    plain check ["delegate.check"]
    plain check_of_a_list ["delegate.check-list"]
    plain status ["delegate.status"]
    plain other_verbs ["delegate.other-verbs"]
    plain del_with_its_pod ["delegate.del-with-pod"]
}

/// Fails unless these are the calls of plugins since the pod's `ADD`.
fn expect_calls_since_add(harness: &Harness, pod: &Pod, expected: &[&str]) -> anyhow::Result<()> {
    let all: Vec<_> = ["ADD primary"].iter().chain(expected).copied().collect();
    harness.expect_calls(pod, &all)
}

fn post(harness: &Harness, verb: &str, pod: &Pod, config: &Value) -> anyhow::Result<HttpResponse> {
    post_with(harness, verb, pod, config, &Value::Null)
}

fn post_with(
    harness: &Harness,
    verb: &str,
    pod: &Pod,
    config: &Value,
    attributes: &Value,
) -> anyhow::Result<HttpResponse> {
    let mut env = pod.env(verb);
    for (key, value) in &mut env {
        if key == "CNI_IFNAME" {
            "extra0".clone_into(value);
        }
    }
    harness.post("/delegate", &env, config, attributes)
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

fn extra(keys: &Value) -> Value {
    recorder("extra", keys)
}

fn extra_list() -> Value {
    json!({"cniVersion": "1.0.0", "name": "extra", "plugins": [{"type": "recorder", "place": "one"}, {"type": "recorder", "place": "two"}]})
}

fn add(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("plugged", "")?;
    let before = harness.network_status(&pod)?;
    let answer = post(harness, "ADD", &pod, &extra(&json!({"from": "request"})))?.well()?;
    let result = &answer.json()?["Result"];
    ensure!(
        result["cniVersion"] == "1.1.0" && result["interfaces"][0]["name"] == "extra0",
        "{result}"
    );
    expect_calls_since_add(harness, &pod, &["ADD extra"])?;
    let call = harness.call(&pod, "ADD", "extra")?;
    ensure!(call.variable("CNI_IFNAME") == "extra0", "{call:?}");
    ensure!(call.stdin["from"] == "request", "{}", call.stdin);
    let args = call.variable("CNI_ARGS");
    ensure!(args.contains("K8S_POD_NAME=plugged"), "{args}");
    let after = harness.network_status(&pod)?;
    ensure!(before == after, "the status annotation became {after:?}");
    harness.wait_for_event(
        &pod,
        "AddedInterface",
        "Add extra0 [10.66.0.2/24] from extra",
    )
}

fn interface_attributes(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("plugged-attributes", "")?;
    let attributes =
        json!({"ips": ["10.66.0.7/24"], "mac": "02:00:00:00:00:07", "cni-args": {"tier": "gold"}});
    let config = extra(&json!({"capabilities": {"ips": true, "mac": true}}));
    post_with(harness, "ADD", &pod, &config, &attributes)?.well()?;
    let call = harness.call(&pod, "ADD", "extra")?;
    let expected = json!({"ips": ["10.66.0.7/24"], "mac": "02:00:00:00:00:07"});
    ensure!(call.stdin["runtimeConfig"] == expected, "{}", call.stdin);
    ensure!(
        call.stdin["args"]["cni"] == attributes["cni-args"],
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

fn list(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("plugged-list", "")?;
    post(harness, "ADD", &pod, &extra_list())?.well()?;
    post(harness, "DEL", &pod, &extra_list())?.well()?;
    let calls = harness.calls(&pod)?;
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

/// The `cniVersion` of the daemon's file is 1.1.0.
fn configuration(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("plugged-old", "")?;
    let config = extra(&json!({"cniVersion": "0.4.0"}));
    post(harness, "ADD", &pod, &config)?.well()?;
    let call = harness.call(&pod, "ADD", "extra")?;
    ensure!(call.stdin == config, "{}", call.stdin);
    Ok(())
}

fn unknown_pod(harness: &Harness) -> anyhow::Result<()> {
    let unknown = harness.sandbox("default", "plugged-nowhere", "0000")?;
    let mut another = harness.attach("plugged-before", "")?;
    "0000".clone_into(&mut another.uid);
    for (pod, verb, calls) in [(&unknown, "ADD", 0), (&another, "DEL", 1)] {
        refused(&post(harness, verb, pod, &extra(&json!({})))?, &pod.name)?;
        let order = harness.call_order(pod)?;
        ensure!(order.len() == calls, "{order:?}");
    }
    Ok(())
}

fn interface_exists(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("plugged-twice", "")?;
    let netns = &pod.netns_name;
    harness.node().run(&[
        "ip", "-n", netns, "link", "add", "extra0", "type", "veth", "peer", "name", "extra1",
    ])?;
    let answer = post(harness, "ADD", &pod, &extra(&json!({})))?;
    refused(&answer, "interface name extra0 already exists")?;
    expect_calls_since_add(harness, &pod, &[])
}

fn rollback(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("plugged-rollback", "")?;
    harness.set_error("extra", "ADD", 7, "no luck")?;
    refused(&post(harness, "ADD", &pod, &extra(&json!({})))?, "no luck")?;
    expect_calls_since_add(harness, &pod, &["ADD extra", "DEL extra"])?;
    harness.del(&pod)?;
    harness.expect_calls(
        &pod,
        &["ADD primary", "ADD extra", "DEL extra", "DEL primary"],
    )
}

fn del(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("plugged-and-out", "")?;
    let config = extra(&json!({"from": "request"}));
    post(harness, "ADD", &pod, &config)?.well()?;
    harness.set_error("extra", "DEL", 7, "it sticks")?;
    refused(&post(harness, "DEL", &pod, &config)?, "it sticks")?;
    harness.set_answer("extra", "DEL", &Value::Null)?;
    let answer = post(harness, "DEL", &pod, &config)?.well()?;
    ensure!(answer.body.is_empty(), "{}", answer.text());
    expect_calls_since_add(harness, &pod, &["ADD extra", "DEL extra", "DEL extra"])?;
    let calls = harness.calls(&pod)?;
    let call = &calls[2];
    ensure!(
        call.variable("CNI_IFNAME") == "extra0"
            && call.stdin["from"] == "request"
            && call.stdin["prevResult"]["ips"][0]["address"] == "10.66.0.2/24",
        "{call:?}"
    );
    Ok(())
}

fn check(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("plugged-checked", "")?;
    let config = extra(&json!({}));
    post(harness, "ADD", &pod, &config)?.well()?;
    post(harness, "CHECK", &pod, &config)?.well()?;
    harness.set_error("extra", "CHECK", 7, "it is not there")?;
    refused(&post(harness, "CHECK", &pod, &config)?, "it is not there")?;
    expect_calls_since_add(harness, &pod, &["ADD extra", "CHECK extra", "CHECK extra"])
}

fn check_of_a_list(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("plugged-checked-list", "")?;
    post(harness, "ADD", &pod, &extra_list())?.well()?;
    post(harness, "CHECK", &pod, &extra_list())?.well()?;
    let calls = ["ADD extra", "ADD extra", "CHECK extra", "CHECK extra"];
    expect_calls_since_add(harness, &pod, &calls)
}

fn status(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("plugged-status", "")?;
    let config = recorder("extra-status", &json!({"cniVersion": "1.1.0"}));
    post(harness, "STATUS", &pod, &config)?.well()?;
    harness.set_error("extra-status", "STATUS", 50, "it is down")?;
    refused(&post(harness, "STATUS", &pod, &config)?, "it is down")
}

fn other_verbs(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("plugged-otherwise", "")?;
    refused(&post(harness, "GC", &pod, &extra(&json!({})))?, "GC")?;
    let answer = harness.daemon_request("GET", "/delegate", b"")?;
    ensure!(answer.status == 405, "{answer:?}");
    expect_calls_since_add(harness, &pod, &[])
}

fn del_with_its_pod(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("plugged-del-with-pod", "")?;
    let config = extra(&json!({"from": "request"}));
    post(harness, "ADD", &pod, &config)?.well()?;
    harness.del(&pod)?;
    expect_calls_since_add(harness, &pod, &["ADD extra", "DEL extra", "DEL primary"])?;
    let call = harness.call(&pod, "DEL", "extra")?;
    ensure!(
        call.variable("CNI_IFNAME") == "extra0" && call.stdin["from"] == "request",
        "{call:?}"
    );
    Ok(())
}
