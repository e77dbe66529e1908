//! The status annotation of networks with several interfaces or none, and of pods that come to nothing.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Case, plain};
use crate::rules::bench::{Bench, Pod, STATUS};

pub(super) const CASES: &[Case] = &[
    plain("status-annotation-of-one-interface", &["mux-13-one"], one),
    plain(
        "status-annotation-of-none-inside",
        &["mux-13-no-sandbox"],
        none_inside,
    ),
    plain(
        "status-annotation-default-of-several",
        &["mux-13-default-of-several"],
        default,
    ),
    plain("status-annotation-repeated", &["mux-13-repeated"], repeated),
    plain("status-annotation-of-nothing", &["mux-13-nothing"], nothing),
    plain("status-annotation-of-a-failure", &["mux-13-failed"], failed),
    plain("status-annotation-at-del", &["mux-13-del"], at_del),
];

fn inside(name: &str, mac: &str) -> Value {
    json!({"name": name, "mac": mac, "sandbox": "/run/netns/x"})
}

fn outside(name: &str) -> Value {
    json!({"name": name, "mac": "02:00:00:00:00:07"})
}

fn result(interfaces: &[Value], ips: &Value) -> Value {
    json!({"result": {"cniVersion": "1.0.0", "interfaces": interfaces, "ips": ips,
        "dns": {"nameservers": ["10.9.0.53"]}, "routes": [{"dst": "0.0.0.0/0", "gw": "10.9.0.1"}]}})
}

/// Attaches a pod whose network gives that, and reads that network's entries.
fn told(bench: &Bench, name: &str, network: &str, answer: &Value) -> anyhow::Result<Vec<Value>> {
    let pod = bench.pod(name, if network == "primary" { "" } else { network })?;
    bench.answer(network, "ADD", answer)?;
    bench.add(&pod)?;
    let mut status = bench.status(&pod)?;
    status.retain(|entry| {
        let name = entry["name"].as_str().unwrap_or_default();
        name.trim_start_matches("default/") == network
    });
    Ok(status)
}

/// The annotation as it is, if it is there.
fn annotation(bench: &Bench, pod: &Pod) -> anyhow::Result<Value> {
    let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
    let object = bench.api("GET", &path, &Value::Null)?.json()?;
    Ok(object["metadata"]["annotations"][STATUS].clone())
}

fn one(bench: &Bench) -> anyhow::Result<()> {
    let ips = json!([{"address": "10.9.0.2/24"}, {"address": "fd09::2/64", "interface": 0}]);
    let answer = result(&[inside("net1", "02:00:00:00:00:05")], &ips);
    let status = told(bench, "one-interface", "a", &answer)?;
    let short: Vec<_> = status
        .iter()
        .map(|one| json!([one["interface"], one["mac"], one["ips"]]))
        .collect();
    let expected = json!(["net1", "02:00:00:00:00:05", ["10.9.0.2", "fd09::2"]]);
    ensure!(short == [expected], "{short:?}");
    Ok(())
}

fn none_inside(bench: &Bench) -> anyhow::Result<()> {
    let ips = json!([{"address": "10.9.0.2/24", "interface": 0}]);
    let answer = result(&[outside("veth7"), outside("br7")], &ips);
    let status = told(bench, "none-inside", "a", &answer)?;
    ensure!(status.is_empty(), "{status:?}");
    Ok(())
}

fn default(bench: &Bench) -> anyhow::Result<()> {
    let interfaces = [
        outside("veth7"),
        inside("eth0", "02:00:00:00:00:05"),
        inside("eth1", "02:00:00:00:00:06"),
    ];
    let with_gateway = json!([
        {"address": "10.9.0.2/24", "interface": 1}, {"address": "10.9.1.2/24", "interface": 2, "gateway": "10.9.1.1"},
    ]);
    let without = json!([{"address": "10.9.0.2/24", "interface": 1}, {"address": "10.9.1.2/24", "interface": 2}]);
    for (name, ips, expected) in [
        ("default-with-gateway", with_gateway, "eth1"),
        ("default-without", without, "eth0"),
    ] {
        let status = told(bench, name, "primary", &result(&interfaces, &ips))?;
        let defaults: Vec<_> = status
            .iter()
            .filter(|one| one["default"] == true)
            .map(|one| one["interface"].clone())
            .collect();
        ensure!(status.len() == 2 && defaults == [expected], "{status:?}");
    }
    Ok(())
}

fn repeated(bench: &Bench) -> anyhow::Result<()> {
    let interfaces = [
        inside("net1", "02:00:00:00:00:05"),
        inside("net1b", "02:00:00:00:00:06"),
    ];
    let ips = json!([{"address": "10.9.0.2/24", "interface": 0}, {"address": "10.9.1.2/24", "interface": 1}]);
    let status = told(bench, "repeated", "a", &result(&interfaces, &ips))?;
    ensure!(status.len() == 2, "{status:?}");
    for entry in &status {
        ensure!(
            entry["gateway"] == json!(["10.9.0.1"])
                && entry["dns"] == json!({"nameservers": ["10.9.0.53"]}),
            "{entry}"
        );
    }
    Ok(())
}

fn nothing(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("nothing-to-tell", "")?;
    let result = json!({"cniVersion": "1.0.0"});
    bench.answer("primary", "ADD", &json!({"result": result}))?;
    bench.add(&pod)?;
    let status = bench.status(&pod)?;
    let expected = json!({"name": "primary", "interface": "eth0", "default": true, "dns": {}});
    ensure!(status == [expected], "{status:?}");
    Ok(())
}

fn failed(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("failed-untold", "a")?;
    bench.fails("a", "ADD", 7, "no luck")?;
    bench.verb("ADD", &pod)?.error()?;
    let told = annotation(bench, &pod)?;
    ensure!(told.is_null(), "{told}");
    Ok(())
}

fn at_del(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("gone-and-told", "a")?;
    bench.add(&pod)?;
    let before = annotation(bench, &pod)?;
    bench.del(&pod)?;
    let after = annotation(bench, &pod)?;
    before.as_str().context("no status")?;
    ensure!(before == after, "{before} became {after}");
    Ok(())
}
