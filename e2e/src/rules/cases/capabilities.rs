//! Cases of subject `capabilities`: Capabilities.

use anyhow::ensure;
use serde_json::{Value, json};

use super::cases;
use crate::rules::harness::{Harness, WITH_A};

cases! { "capabilities":
    plain from_runtime ["capabilities.of-runtime", "capabilities.filtered"]
    plain from_annotation ["capabilities.of-annotation", "capabilities.filtered", "capabilities.default-network"]
    plain by_plugin ["capabilities.filtered"]
    plain host_ports ["capabilities.host-ports"]
    plain host_ports_for_all ["capabilities.host-ports-for-all"]
    plain cni_args ["capabilities.cni-args"]
    plain on_del ["capabilities.del"]
    plain unsupported ["capabilities.unsupported"]
    plain address_not_assigned ["capabilities.address-not-assigned"]
    plain addresses_from_args ["capabilities.address-args"]
    plain unsupported_event ["capabilities.unsupported-event"]
    plain unsupported_silent ["capabilities.unsupported-silent"]
}

const REQUESTS: &str = r#"[{"name": "capable", "ips": ["10.66.0.7/24"], "mac": "02:00:00:00:00:07",
    "bandwidth": {"ingressRate": 1000, "ingressBurst": 2000, "egressRate": 3000, "egressBurst": 4000},
    "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}], "deviceID": "0000:00:01.0"}, {"name": "a", "mac": "02:00:00:00:00:08"}]"#;

fn from_runtime(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("runtimed", "")?;
    let ports = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    harness.add_with(
        &pod,
        &json!({"runtimeConfig": {"portMappings": ports, "bandwidth": {"ingressRate": 1}}}),
    )?;
    let call = harness.call(&pod, "ADD", "primary")?;
    ensure!(
        call.stdin["runtimeConfig"] == json!({"portMappings": ports}),
        "{}",
        call.stdin
    );
    Ok(())
}

fn from_annotation(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("annotated", REQUESTS)?;
    let runtime_config = &harness.call(&pod, "ADD", "capable")?.stdin["runtimeConfig"];
    ensure!(
        runtime_config["ips"] == json!(["10.66.0.7/24"])
            && runtime_config["mac"] == "02:00:00:00:00:07",
        "{runtime_config}"
    );
    ensure!(
        runtime_config["bandwidth"]["ingressRate"] == 1000
            && runtime_config["bandwidth"]["egressBurst"] == 4000,
        "{runtime_config}"
    );
    ensure!(
        runtime_config["portMappings"][0]["hostPort"] == 8080,
        "{runtime_config}"
    );
    ensure!(
        runtime_config["deviceID"] == "0000:00:01.0",
        "{runtime_config}"
    );
    for network in ["primary", "a"] {
        let call = harness.call(&pod, "ADD", network)?;
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

fn by_plugin(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod(
        "by-plugin",
        r#"[{"name": "list", "mac": "02:00:00:00:00:07", "ips": ["10.66.0.7/24"]}]"#,
    )?;
    harness.add(&pod)?;
    let runtime_config: Vec<Value> = harness
        .calls(&pod)?
        .into_iter()
        .filter(|call| call.network() == "list")
        .map(|call| call.stdin["runtimeConfig"].clone())
        .collect();
    ensure!(
        runtime_config == [Value::Null, json!({"mac": "02:00:00:00:00:07"})],
        "{runtime_config:?}"
    );
    Ok(())
}

fn host_ports(harness: &Harness) -> anyhow::Result<()> {
    let keys =
        json!({"runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80}]}});
    let pod = harness.attach_with("ported", "capable", &keys)?;
    let call = harness.call(&pod, "ADD", "capable")?;
    ensure!(
        call.stdin["runtimeConfig"]["portMappings"].is_null(),
        "{}",
        call.stdin
    );
    Ok(())
}

fn on_del(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("torn-ports", REQUESTS)?;
    harness.delete_pod(&pod)?;
    harness.wait_for_watch()?;
    harness.del(&pod)?;
    let (add, del) = (
        harness.call(&pod, "ADD", "capable")?,
        harness.call(&pod, "DEL", "capable")?,
    );
    ensure!(
        add.stdin["runtimeConfig"] == del.stdin["runtimeConfig"],
        "{} and {}",
        add.stdin,
        del.stdin
    );
    Ok(())
}

fn cni_args(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod(
        "cni-args",
        r#"[{"name": "list", "cni-args": {"tier": "gold", "deep": {"a": 1}}}, {"name": "a"}]"#,
    )?;
    harness.add(&pod)?;
    for call in harness.calls(&pod)? {
        let expected = if call.network() == "list" {
            json!({"tier": "gold", "deep": {"a": 1}})
        } else {
            Value::Null
        };
        ensure!(call.stdin["args"]["cni"] == expected, "{}", call.stdin);
    }
    Ok(())
}

const WITH_BANDWIDTH: &str = r#"[{"name": "a", "bandwidth": {"ingressRate": 1, "ingressBurst": 1, "egressRate": 1, "egressBurst": 1}}]"#;

const WITH_ADDRESSES: &str =
    r#"[{"name": "a", "ips": ["10.66.0.7/24"], "mac": "02:00:00:00:00:07"}]"#;

fn unsupported(harness: &Harness) -> anyhow::Result<()> {
    for (name, networks, capability) in [
        ("incapable-0", WITH_BANDWIDTH, "bandwidth"),
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
        let pod = harness.pod(name, networks)?;
        let keys = json!({"unservedRequests": "error"});
        harness.ensure_refused_with(
            &pod,
            &keys,
            &[&format!("default/{name}"), "default/a", capability],
        )?;
        harness.wait_for_event(&pod, "FailedAddNetwork", capability)?;
    }
    Ok(())
}

/// Makes the recorder assign other addresses than the requested ones.
fn assign_other_addresses(harness: &Harness) -> anyhow::Result<()> {
    let interface = json!({"name": "net1", "mac": "02:00:00:00:00:09", "sandbox": "/run/netns/x"});
    let result = json!({"cniVersion": "1.0.0", "interfaces": [interface], "ips": [{"address": "10.66.0.9/24", "interface": 0}]});
    harness.set_answer("a", "ADD", &json!({"result": result}))
}

fn address_not_assigned(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("not-assigned", WITH_ADDRESSES)?;
    assign_other_addresses(harness)?;
    harness
        .verb_with("ADD", &pod, &json!({"unservedRequests": "error"}))?
        .error_contains(&["default/not-assigned", "default/a", "ips, mac"])?;
    harness.expect_calls(&pod, &WITH_A)?;
    ensure!(!harness.state_file(&pod).exists(), "its state is left");
    Ok(())
}

fn addresses_from_args(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach_with(
        "in-args",
        WITH_ADDRESSES,
        &json!({"unservedRequests": "error"}),
    )?;
    let status = harness.network_status(&pod)?;
    ensure!(
        status[1]["ips"] == json!(["10.66.0.7"]) && status[1]["mac"] == "02:00:00:00:00:07",
        "{status:?}"
    );
    Ok(())
}

fn unsupported_event(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("warned-limit", WITH_BANDWIDTH)?;
    harness.wait_for_event(&pod, "CapabilityNotServed", "bandwidth")?;
    let pod = harness.pod("warned-address", WITH_ADDRESSES)?;
    assign_other_addresses(harness)?;
    harness.add(&pod)?;
    harness.wait_for_event(&pod, "CapabilityNotServed", "ips, mac")
}

fn unsupported_silent(harness: &Harness) -> anyhow::Result<()> {
    let keys = json!({"unservedRequests": "silent"});
    for (name, networks) in [
        ("silent-limit", WITH_BANDWIDTH),
        ("silent-address", WITH_ADDRESSES),
    ] {
        let pod = harness.pod(name, networks)?;
        assign_other_addresses(harness)?;
        harness.add_with(&pod, &keys)?;
        harness.expect_calls(&pod, &["ADD primary", "ADD a"])?;
        // This is the last event of the pod.
        harness.wait_for_event(&pod, "AddedInterface", "from default/a")?;
        let events = harness.events(&pod)?;
        let warnings = events.iter().filter(|event| event["type"] == "Warning");
        ensure!(warnings.count() == 0, "{events:?}");
    }
    Ok(())
}

fn host_ports_for_all(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("ported-all", "capable")?;
    let ports = json!([{"hostPort": 8080, "containerPort": 80}]);
    let keys = json!({"runtimeConfigForAll": true, "runtimeConfig": {"portMappings": ports}});
    harness.add_with(&pod, &keys)?;
    for network in ["primary", "capable"] {
        let runtime_config = &harness.call(&pod, "ADD", network)?.stdin["runtimeConfig"];
        ensure!(
            runtime_config["portMappings"][0]["hostPort"] == 8080,
            "{network}: {runtime_config}"
        );
    }
    Ok(())
}
