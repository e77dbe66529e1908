//! What a pod asks of its networks and none of their plugins can give.

use anyhow::ensure;
use serde_json::json;

use super::{Case, plain};
use crate::rules::bench::{Bench, WITH_A};

pub(super) const CASES: &[Case] = &[
    plain(
        "capabilities-that-nobody-has",
        &["mux-11.3-unknown"],
        unknown,
    ),
    plain(
        "capabilities-addresses-not-given",
        &["mux-11.3-not-given"],
        not_given,
    ),
    plain(
        "capabilities-addresses-from-args",
        &["mux-11.3-in-args"],
        in_args,
    ),
    plain("capabilities-lacking-and-told", &["mux-11.3-told"], told),
    plain(
        "capabilities-lacking-in-silence",
        &["mux-11.3-silent"],
        silent,
    ),
    plain(
        "capabilities-of-the-runtime-for-all",
        &["mux-11.3-all"],
        for_all,
    ),
];

const LIMITED: &str = r#"[{"name": "a", "bandwidth": {"ingressRate": 1, "ingressBurst": 1, "egressRate": 1, "egressBurst": 1}}]"#;
const ADDRESSED: &str = r#"[{"name": "a", "ips": ["10.66.0.7/24"], "mac": "02:00:00:00:00:07"}]"#;

fn unknown(bench: &Bench) -> anyhow::Result<()> {
    for (name, networks, asked) in [
        ("incapable-0", LIMITED, "bandwidth"),
        (
            "incapable-1",
            r#"[{"name": "a", "portMappings": [{"hostPort": 80, "containerPort": 80}]}]"#,
            "portMappings",
        ),
        (
            "incapable-2",
            r#"[{"name": "a", "infiniband-guid": "02:00:00:00:00:00:00:07"}]"#,
            "infinibandGUID",
        ),
        (
            "incapable-3",
            r#"[{"name": "a", "deviceID": "0000:00:01.0"}]"#,
            "deviceID",
        ),
    ] {
        let pod = bench.pod(name, networks)?;
        bench
            .verb_with("ADD", &pod, &json!({"unservedRequests": "error"}))?
            .tells(&[&format!("default/{name}"), "default/a", asked])?;
        bench.called(&pod, &[])?;
        bench.event(&pod, "FailedAddNetwork", asked)?;
    }
    Ok(())
}

/// The recorder gives an address of its own choice.
fn choose(bench: &Bench) -> anyhow::Result<()> {
    let interface = json!({"name": "net1", "mac": "02:00:00:00:00:09", "sandbox": "/run/netns/x"});
    let result = json!({"cniVersion": "1.0.0", "interfaces": [interface], "ips": [{"address": "10.66.0.9/24", "interface": 0}]});
    bench.answer("a", "ADD", &json!({"result": result}))
}

fn not_given(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("not-given", ADDRESSED)?;
    choose(bench)?;
    bench
        .verb_with("ADD", &pod, &json!({"unservedRequests": "error"}))?
        .tells(&["default/not-given", "default/a", "ips, mac"])?;
    bench.called(&pod, &WITH_A)?;
    ensure!(!bench.state_file(&pod).exists(), "its state is left");
    Ok(())
}

fn in_args(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("in-args", ADDRESSED)?;
    bench.add_with(&pod, &json!({"unservedRequests": "error"}))?;
    let status = bench.status(&pod)?;
    ensure!(
        status[1]["ips"] == json!(["10.66.0.7"]) && status[1]["mac"] == "02:00:00:00:00:07",
        "{status:?}"
    );
    Ok(())
}

fn told(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("told-limit", LIMITED)?;
    bench.add(&pod)?;
    bench.event(&pod, "CapabilityNotServed", "bandwidth")?;
    let pod = bench.pod("told-address", ADDRESSED)?;
    choose(bench)?;
    bench.add(&pod)?;
    bench.event(&pod, "CapabilityNotServed", "ips, mac")
}

fn silent(bench: &Bench) -> anyhow::Result<()> {
    let keys = json!({"unservedRequests": "silent"});
    for (name, networks) in [("silent-limit", LIMITED), ("silent-address", ADDRESSED)] {
        let pod = bench.pod(name, networks)?;
        choose(bench)?;
        bench.add_with(&pod, &keys)?;
        bench.called(&pod, &["ADD primary", "ADD a"])?;
        // It comes after all others of the pod.
        bench.event(&pod, "AddedInterface", "from default/a")?;
        let events = bench.events(&pod)?;
        let warnings = events.iter().filter(|event| event["type"] == "Warning");
        ensure!(warnings.count() == 0, "{events:?}");
    }
    Ok(())
}

fn for_all(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("ported-all", "capable")?;
    let ports = json!([{"hostPort": 8080, "containerPort": 80}]);
    let keys = json!({"runtimeConfigForAll": true, "runtimeConfig": {"portMappings": ports}});
    bench.add_with(&pod, &keys)?;
    for network in ["primary", "capable"] {
        let given = &bench.call(&pod, "ADD", network)?.stdin["runtimeConfig"];
        ensure!(
            given["portMappings"][0]["hostPort"] == 8080,
            "{network}: {given}"
        );
    }
    Ok(())
}
