//! What the runtime and the annotation ask for, and which plugins get it.

use anyhow::ensure;
use serde_json::{Value, json};

use super::{Case, plain};
use crate::rules::bench::Bench;

pub(super) const CASES: &[Case] = &[
    plain(
        "capabilities-of-the-runtime",
        &["mux-11.3-master", "mux-11.3-filtered"],
        of_runtime,
    ),
    plain(
        "capabilities-of-the-annotation",
        &[
            "mux-11.3-annotation",
            "mux-11.3-filtered",
            "mux-11.3-not-master",
        ],
        of_annotation,
    ),
    plain("capabilities-by-plugin", &["mux-11.3-filtered"], by_plugin),
    plain(
        "capabilities-host-ports-stay-with-the-master",
        &["mux-11.3-host-ports"],
        host_ports,
    ),
    plain("capabilities-on-del", &["mux-12.1-runtime-config"], on_del),
    plain("capabilities-cni-args", &["mux-11.3-cni-args"], cni_args),
];

const ASKED: &str = r#"[{"name": "capable", "ips": ["10.66.0.7/24"], "mac": "02:00:00:00:00:07",
    "bandwidth": {"ingressRate": 1000, "ingressBurst": 2000, "egressRate": 3000, "egressBurst": 4000},
    "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}], "deviceID": "0000:00:01.0"}, {"name": "a", "mac": "02:00:00:00:00:08"}]"#;

fn of_runtime(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("runtimed", "")?;
    let ports = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    bench.add_with(
        &pod,
        &json!({"runtimeConfig": {"portMappings": ports, "bandwidth": {"ingressRate": 1}}}),
    )?;
    let call = bench.call(&pod, "ADD", "primary")?;
    ensure!(
        call.stdin["runtimeConfig"] == json!({"portMappings": ports}),
        "{}",
        call.stdin
    );
    Ok(())
}

fn of_annotation(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("annotated", ASKED)?;
    bench.add(&pod)?;
    let given = &bench.call(&pod, "ADD", "capable")?.stdin["runtimeConfig"];
    ensure!(
        given["ips"] == json!(["10.66.0.7/24"]) && given["mac"] == "02:00:00:00:00:07",
        "{given}"
    );
    ensure!(
        given["bandwidth"]["ingressRate"] == 1000 && given["bandwidth"]["egressBurst"] == 4000,
        "{given}"
    );
    ensure!(given["portMappings"][0]["hostPort"] == 8080, "{given}");
    ensure!(given["deviceID"] == "0000:00:01.0", "{given}");
    for network in ["primary", "a"] {
        let call = bench.call(&pod, "ADD", network)?;
        ensure!(
            call.stdin["runtimeConfig"]
                .as_object()
                .is_none_or(serde_json::Map::is_empty),
            "{}",
            call.stdin
        );
    }
    Ok(())
}

fn by_plugin(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod(
        "by-plugin",
        r#"[{"name": "list", "mac": "02:00:00:00:00:07", "ips": ["10.66.0.7/24"]}]"#,
    )?;
    bench.add(&pod)?;
    let given: Vec<Value> = bench
        .calls(&pod)?
        .into_iter()
        .filter(|call| call.network() == "list")
        .map(|call| call.stdin["runtimeConfig"].clone())
        .collect();
    ensure!(
        given == [Value::Null, json!({"mac": "02:00:00:00:00:07"})],
        "{given:?}"
    );
    Ok(())
}

fn host_ports(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("ported", "capable")?;
    bench.add_with(
        &pod,
        &json!({"runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80}]}}),
    )?;
    let call = bench.call(&pod, "ADD", "capable")?;
    ensure!(
        call.stdin["runtimeConfig"]["portMappings"].is_null(),
        "{}",
        call.stdin
    );
    Ok(())
}

fn on_del(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("torn-ports", ASKED)?;
    bench.add(&pod)?;
    bench.delete(&pod)?;
    bench.settle()?;
    bench.del(&pod)?;
    let (add, del) = (
        bench.call(&pod, "ADD", "capable")?,
        bench.call(&pod, "DEL", "capable")?,
    );
    ensure!(
        add.stdin["runtimeConfig"] == del.stdin["runtimeConfig"],
        "{} and {}",
        add.stdin,
        del.stdin
    );
    Ok(())
}

fn cni_args(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod(
        "cni-args",
        r#"[{"name": "list", "cni-args": {"tier": "gold", "deep": {"a": 1}}}, {"name": "a"}]"#,
    )?;
    bench.add(&pod)?;
    for call in bench.calls(&pod)? {
        let expected = if call.network() == "list" {
            json!({"tier": "gold", "deep": {"a": 1}})
        } else {
            Value::Null
        };
        ensure!(call.stdin["args"]["cni"] == expected, "{}", call.stdin);
    }
    Ok(())
}
