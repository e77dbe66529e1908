//! Cases of subject `annotation`: The annotation of networks.

use anyhow::ensure;
use serde_json::json;

use super::cases;
use crate::rules::harness::{Harness, NETWORKS, PodSpec};

cases! { "annotation":
    plain short_form ["annotation.short-form"]
    plain json_form ["annotation.json-form", "annotation.dotted-names"]
    plain empty ["annotation.nothing"]
    plain separators ["annotation.separators"]
    plain bad_names ["annotation.names", "annotation.empty-item"]
    plain bad_interfaces ["annotation.interface-name"]
    plain bad_json ["annotation.no-list", "annotation.invalid-values"]
    plain null_entry ["annotation.null-entry"]
    plain unknown_keys ["annotation.unknown-keys"]
    plain interface_request ["annotation.interface-request"]
    plain same_network_twice ["annotation.same-network-twice"]
    plain limits ["annotation.limits"]
    plain mac_notations ["annotation.mac"]
    plain guid ["annotation.guid"]
    plain short_guid ["annotation.guid-length"]
    plain bandwidth ["annotation.bandwidth"]
    plain port_protocol ["annotation.port-protocol"]
    plain ipam_claim ["annotation.ipam-claim"]
    plain ipam_claim_and_ips ["annotation.ipam-claim-and-ips"]
    plain refused_event ["annotation.refused-event"]
}

/// Fails unless each annotation fails its pod, with that word in the error and before any plugin runs.
fn all_refused(harness: &Harness, name: &str, cases: &[(&str, &str)]) -> anyhow::Result<()> {
    for (number, (networks, word)) in cases.iter().enumerate() {
        let pod = harness.pod(&format!("{name}-{number}"), networks)?;
        harness.ensure_refused(&pod, &[word])?;
    }
    Ok(())
}

fn short_form(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("short", " a , other/far@Ext_0.1,  default / b @ ext1 ")?;
    let found = harness.interfaces(&pod)?;
    let expected = ["primary eth0", "a net1", "far Ext_0.1", "b ext1"];
    ensure!(found == expected, "{found:?}");
    Ok(())
}

fn json_form(harness: &Harness) -> anyhow::Result<()> {
    let networks = r#"[{"name": "a"}, {"name": "far", "namespace": "other", "interface": "Ext_0.1"}, {"name": "with.dots", "namespace": ""}]"#;
    let pod = harness.attach("long", networks)?;
    let found = harness.interfaces(&pod)?;
    let expected = ["primary eth0", "a net1", "far Ext_0.1", "dotted net3"];
    ensure!(found == expected, "{found:?}");
    Ok(())
}

fn empty(harness: &Harness) -> anyhow::Result<()> {
    for (name, networks) in [("nothing-0", ""), ("nothing-1", "[]")] {
        let form = PodSpec::annotated(&[(NETWORKS, networks)]);
        let pod = harness.pod_with(name, &form)?;
        harness.add(&pod)?;
        harness.expect_calls(&pod, &["ADD primary"])?;
    }
    Ok(())
}

fn separators(harness: &Harness) -> anyhow::Result<()> {
    all_refused(
        harness,
        "separated",
        &[
            ("a/b/c", "Invalid network object (failed at '/')"),
            ("a@b@c", "Invalid network object (failed at '@')"),
        ],
    )
}

fn bad_names(harness: &Harness) -> anyhow::Result<()> {
    all_refused(
        harness,
        "misnamed",
        &[
            ("Upper", "Upper"),
            ("under_score", "under_score"),
            ("with.dots", "with.dots"),
            ("-dash", "-dash"),
            ("Far/a", "Far"),
            ("a,,b", ""),
            ("a,", ""),
        ],
    )
}

fn bad_interfaces(harness: &Harness) -> anyhow::Result<()> {
    let words = "Failed to parse interface name";
    all_refused(
        harness,
        "misfaced",
        &[("a@sixteen-letters-", words), ("a@two words", words)],
    )?;
    // In the JSON form the daemon or the CNI library may refuse it.
    let pod = harness.pod(
        "misfaced-json",
        r#"[{"name": "a", "interface": "sixteen-letters-"}]"#,
    )?;
    harness
        .verb("ADD", &pod)?
        .error_contains(&["default/misfaced-json"])
}

fn bad_json(harness: &Harness) -> anyhow::Result<()> {
    all_refused(
        harness,
        "misvalued",
        &[
            (r#"{"name": "a"}"#, ""),
            (r#"[{"name": "a"}"#, ""),
            (r#"[{"name": "a", "ips": ["10.0.0.256"]}]"#, "10.0.0.256"),
            (r#"[{"name": "a", "ips": ["10.0.0.1/33"]}]"#, "10.0.0.1/33"),
            (r#"[{"name": "a", "mac": "02:00"}]"#, "02:00"),
            (r#"[{"name": "a", "infiniband-guid": "xx"}]"#, "xx"),
            (
                r#"[{"name": "a", "default-route": ["nowhere"]}]"#,
                "nowhere",
            ),
        ],
    )
}

fn null_entry(harness: &Harness) -> anyhow::Result<()> {
    all_refused(
        harness,
        "null",
        &[(r#"[{"name": "a"}, null]"#, "default/null-0")],
    )
}

fn short_guid(harness: &Harness) -> anyhow::Result<()> {
    let networks = r#"[{"name": "a", "infiniband-guid": "02:00:00:00:00:01"}]"#;
    all_refused(harness, "guid", &[(networks, "02:00:00:00:00:01")])
}

fn bandwidth(harness: &Harness) -> anyhow::Result<()> {
    let networks =
        r#"[{"name": "capable", "bandwidth": {"ingressRate": 1000, "ingressBurst": 2000}}]"#;
    let pod = harness.attach("limited", networks)?;
    let value = &harness.call(&pod, "ADD", "capable")?.stdin["runtimeConfig"]["bandwidth"];
    let expected =
        json!({"ingressRate": 1000, "ingressBurst": 2000, "egressRate": 0, "egressBurst": 0});
    ensure!(*value == expected, "{value}");
    Ok(())
}

fn limits(harness: &Harness) -> anyhow::Result<()> {
    let bandwidth = |limits: &str| format!(r#"[{{"name": "capable", "bandwidth": {limits}}}]"#);
    let ports = |ports: &str| format!(r#"[{{"name": "capable", "portMappings": [{ports}]}}]"#);
    let refused = [
        (bandwidth("{}"), "rate"),
        (bandwidth(r#"{"ingressRate": 1000}"#), "ingressBurst"),
        (bandwidth(r#"{"egressBurst": 1000}"#), "egressRate"),
        (
            bandwidth(r#"{"ingressRate": 1000, "ingressBurst": 0}"#),
            "ingressBurst",
        ),
        (ports(r#"{"hostPort": 80}"#), "containerPort"),
        (
            ports(r#"{"hostPort": 70000, "containerPort": 80}"#),
            "70000",
        ),
        (
            ports(r#"{"hostPort": 80, "containerPort": 80, "protocol": "icmp"}"#),
            "icmp",
        ),
        (r#"[{"name": "a", "ips": []}]"#.to_owned(), "ips"),
        (
            r#"[{"name": "a", "mac": "02:00:00:00:00:00:00:07"}]"#.to_owned(),
            "6 bytes",
        ),
    ];
    let refused: Vec<_> = refused
        .iter()
        .map(|(text, word)| (&**text, *word))
        .collect();
    all_refused(harness, "limits", &refused)
}

fn port_protocol(harness: &Harness) -> anyhow::Result<()> {
    let networks =
        r#"[{"name": "capable", "portMappings": [{"hostPort": 8080, "containerPort": 80}]}]"#;
    let pod = harness.attach("protocol", networks)?;
    let value = &harness.call(&pod, "ADD", "capable")?.stdin["runtimeConfig"]["portMappings"];
    ensure!(value[0]["protocol"] == "tcp", "{value}");
    Ok(())
}

fn unknown_keys(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod(
        "unknown-keys",
        r#"[{"name": "a", "unknown": {"deep": [1]}}]"#,
    )?;
    harness.add(&pod)?;
    let call = harness.call(&pod, "ADD", "a")?;
    ensure!(
        !call.stdin.to_string().contains("unknown"),
        "{}",
        call.stdin
    );
    Ok(())
}

fn interface_request(harness: &Harness) -> anyhow::Result<()> {
    let networks = r#"[{"name": "a", "interfaceRequest": "old0"}, {"name": "b", "interface": "new0", "interfaceRequest": "old1"}]"#;
    let pod = harness.attach("interface-request", networks)?;
    let found = harness.interfaces(&pod)?;
    ensure!(found == ["primary eth0", "a old0", "b new0"], "{found:?}");
    Ok(())
}

fn ipam_claim(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod(
        "claim",
        r#"[{"name": "a", "ipam-claim-reference": "vm.a"}]"#,
    )?;
    harness.add(&pod)?;
    harness.expect_calls(&pod, &["ADD primary", "ADD a"])?;
    let args = &harness.call(&pod, "ADD", "a")?.stdin["args"]["cni"];
    ensure!(*args == json!({"ipam-claim-reference": "vm.a"}), "{args}");
    Ok(())
}

fn ipam_claim_and_ips(harness: &Harness) -> anyhow::Result<()> {
    let networks =
        r#"[{"name": "capable", "ips": ["10.66.0.7/24"], "ipam-claim-reference": "vm.a"}]"#;
    all_refused(harness, "claimed", &[(networks, "ipam-claim-reference")])
}

fn same_network_twice(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("same", "a,a@again,default/a")?;
    let found = harness.interfaces(&pod)?;
    ensure!(
        found == ["primary eth0", "a net1", "a again", "a net3"],
        "{found:?}"
    );
    harness.del(&pod)?;
    let order = harness.call_order(&pod)?;
    ensure!(
        order[4..] == ["DEL a", "DEL a", "DEL a", "DEL primary"],
        "{order:?}"
    );
    Ok(())
}

/// With colons, hyphens and dots.
fn mac_notations(harness: &Harness) -> anyhow::Result<()> {
    for (number, mac) in ["02:00:00:00:00:07", "02-00-00-00-00-07", "0200.0000.0007"]
        .into_iter()
        .enumerate()
    {
        let networks = json!([{"name": "capable", "mac": mac}]).to_string();
        let pod = harness.attach(&format!("mac-{number}"), &networks)?;
        let call = harness.call(&pod, "ADD", "capable")?;
        ensure!(call.stdin["runtimeConfig"]["mac"] == mac, "{}", call.stdin);
        let args = call.variable("CNI_ARGS");
        ensure!(args.contains(&format!("MAC={mac}")), "{args}");
    }
    for (number, mac) in ["02:00:00:00:07", "02:00:00:00:00:0g"]
        .into_iter()
        .enumerate()
    {
        let networks = json!([{"name": "capable", "mac": mac}]).to_string();
        let pod = harness.pod(&format!("mac-not-{number}"), &networks)?;
        harness.ensure_refused(&pod, &[mac])?;
    }
    Ok(())
}

fn guid(harness: &Harness) -> anyhow::Result<()> {
    let guid = "02:00:00:00:00:00:00:07";
    let networks = json!([{"name": "fabric", "infiniband-guid": guid}]).to_string();
    let pod = harness.attach("guided", &networks)?;
    let call = harness.call(&pod, "ADD", "fabric")?;
    let expected = json!({"infinibandGUID": guid});
    ensure!(call.stdin["runtimeConfig"] == expected, "{}", call.stdin);
    Ok(())
}

fn refused_event(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("refused-event", "a/b/c")?;
    harness.ensure_refused(&pod, &[])?;
    harness.wait_for_event(&pod, "FailedAddNetwork", "failed at '/'")
}
