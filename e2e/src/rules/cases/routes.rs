//! Cases of subject `routes`: Default routes.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::cases;
use crate::rules::harness::{Harness, Pod};

cases! { "routes":
    plain unchanged ["routes.unchanged"]
    plain one_family ["routes.gateway", "routes.other-interfaces", "routes.other-family"]
    plain both_families ["routes.gateway", "routes.other-interfaces"]
    plain network_per_family ["routes.gateway", "routes.other-family", "routes.network-per-family"]
    plain two_gateways ["routes.two-gateways"]
    plain empty_list ["routes.empty-list", "routes.reported"]
    plain empty_list_without_route ["routes.empty-list"]
    plain empty_list_and_another ["routes.empty-list-and-another"]
    plain as_reported ["routes.reported"]
    plain then_check ["routes.reported"]
    plain in_results_of_all_versions ["routes.result-versions"]
    plain other_than_default ["routes.other-routes"]
    plain that_cannot_be_set ["routes.rollback"]
}

/// The default network, with a default route of each address family.
const ROUTED: &str = "/etc/cni/rules/routed.conflist";

/// `gateway interface` of its default routes.
const ROUTES_OF_DEFAULT_NETWORK: [&str; 2] = ["10.70.0.1 eth0", "fd70::1 eth0"];

/// Attaches a pod whose default network is a real bridge.
fn attach(harness: &Harness, name: &str, networks: &str) -> anyhow::Result<(Pod, Value)> {
    let (pod, keys) = prepare(harness, name, networks)?;
    let result = harness.add_with(&pod, &keys)?;
    Ok((pod, result))
}

fn prepare(harness: &Harness, name: &str, networks: &str) -> anyhow::Result<(Pod, Value)> {
    let ipam = json!({"type": "static",
        "addresses": [{"address": "10.70.0.2/24", "gateway": "10.70.0.1"}, {"address": "fd70::2/64", "gateway": "fd70::1"}],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}, {"dst": "10.70.99.0/24", "gw": "10.70.0.9"}]});
    let list = json!({"cniVersion": "1.0.0", "name": "routed", "plugins": [{"type": "bridge", "bridge": "e2e-br70", "ipam": ipam}]});
    harness.node().write(ROUTED, list.to_string())?;
    Ok((
        harness.pod(name, networks)?,
        json!({"clusterNetwork": ROUTED}),
    ))
}

fn ensure_routes(harness: &Harness, pod: &Pod, expected: [&str; 2]) -> anyhow::Result<()> {
    let found = harness.default_routes(pod)?;
    ensure!(
        found == expected,
        "default routes are {found:?}, not {expected:?}"
    );
    Ok(())
}

fn unchanged(harness: &Harness) -> anyhow::Result<()> {
    let (pod, result) = attach(harness, "routes-untouched", "lan")?;
    ensure_routes(harness, &pod, ROUTES_OF_DEFAULT_NETWORK)?;
    ensure!(
        result["routes"].as_array().map(Vec::len) == Some(3),
        "{result}"
    );
    harness.del(&pod)
}

/// Fails unless a pod with these networks has these default routes.
fn check(harness: &Harness, name: &str, networks: &str, expected: [&str; 2]) -> anyhow::Result<()> {
    let (pod, _) = attach(harness, name, networks)?;
    ensure_routes(harness, &pod, expected)?;
    harness.del(&pod)
}

fn one_family(harness: &Harness) -> anyhow::Result<()> {
    let networks = r#"[{"name": "lan-routed"}, {"name": "lan", "default-route": ["10.71.0.1"]}]"#;
    let expected = ["10.71.0.1 net2", "fd70::1 eth0"];
    check(harness, "routes-v4", networks, expected)?;
    let networks = r#"[{"name": "lan", "default-route": ["fd71::1"]}]"#;
    let expected = ["10.70.0.1 eth0", "fd71::1 net1"];
    check(harness, "routes-v6", networks, expected)
}

fn both_families(harness: &Harness) -> anyhow::Result<()> {
    let networks = r#"[{"name": "lan", "default-route": ["10.71.0.1", "fd71::1"]}]"#;
    let (pod, _) = attach(harness, "routes-both", networks)?;
    ensure_routes(harness, &pod, ["10.71.0.1 net1", "fd71::1 net1"])?;
    // Only default routes are removed.
    let all = harness.routes(&pod, "-4")?;
    ensure!(
        all.contains("10.70.99.0/24 via 10.70.0.9 dev eth0"),
        "{all}"
    );
    harness.del(&pod)
}

fn network_per_family(harness: &Harness) -> anyhow::Result<()> {
    let networks = r#"[{"name": "lan", "default-route": ["10.71.0.1"]}, {"name": "lan-routed", "default-route": ["fd72::1"]}]"#;
    let expected = ["10.71.0.1 net1", "fd72::1 net2"];
    check(harness, "routes-each", networks, expected)
}

/// Returns the gateways of a result's default routes.
fn default_gateways(result: &Value) -> Vec<String> {
    let routes = result["routes"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    routes
        .filter(|route| ["0.0.0.0/0", "::/0"].contains(&text(&route["dst"]).as_str()))
        .map(|route| text(&route["gw"]))
        .collect()
}

fn as_reported(harness: &Harness) -> anyhow::Result<()> {
    let networks = r#"[{"name": "lan", "default-route": ["10.71.0.1"]}, {"name": "lan-routed"}]"#;
    let (pod, result) = attach(harness, "routes-reported", networks)?;
    ensure_routes(harness, &pod, ["10.71.0.1 net1", "fd70::1 eth0"])?;
    // The runtime's result, the results that are cached for CHECK and DEL, and the status annotation.
    ensure!(
        default_gateways(&result).len() == 1,
        "the runtime's result is {result}"
    );
    for (network, ifname, expected) in [
        ("routed", "eth0", vec![default_gateways(&result)[0].clone()]),
        ("lan", "net1", vec!["10.71.0.1".to_owned()]),
        ("lan-routed", "net2", Vec::new()),
    ] {
        let cached = default_gateways(&harness.cached_result(&pod, network, ifname)?["result"]);
        ensure!(cached == expected, "{network}: {cached:?} is cached");
    }
    let status = harness.network_status(&pod)?;
    ensure!(
        status[1]["gateway"] == json!(["10.71.0.1"]) && status[2]["gateway"].is_null(),
        "{status:?}"
    );
    let state = harness.state(&pod)?;
    ensure!(state[1]["default-route"] == json!(["10.71.0.1"]), "{state}");
    for index in [0, 2] {
        ensure!(state[index]["IsFilterV4Gateway"] == true, "{state}");
    }
    harness.del(&pod)
}

fn empty_list(harness: &Harness) -> anyhow::Result<()> {
    let networks = r#"[{"name": "lan"}, {"name": "lan-routed", "default-route": []}]"#;
    let (pod, result) = attach(harness, "routes-kept", networks)?;
    ensure_routes(harness, &pod, ["10.72.0.1 net2", "fd70::1 eth0"])?;
    ensure!(default_gateways(&result).len() == 1, "{result}");
    let status = harness.network_status(&pod)?;
    let entry = status.last().context("no status")?;
    ensure!(entry["gateway"] == json!(["10.72.0.1"]), "{status:?}");
    harness.del(&pod)
}

fn empty_list_without_route(harness: &Harness) -> anyhow::Result<()> {
    let networks = r#"[{"name": "lan", "default-route": []}]"#;
    let (pod, keys) = prepare(harness, "routes-none", networks)?;
    harness.verb_with("ADD", &pod, &keys)?.error_contains(&[
        "default/routes-none",
        "default/lan",
        "name a gateway",
    ])?;
    ensure!(!harness.state_file(&pod).exists(), "the state is left");
    Ok(())
}

fn two_gateways(harness: &Harness) -> anyhow::Result<()> {
    let words = ["multus does not support ECMP for default-route"];
    for (name, networks) in [
        (
            "routes-ecmp",
            r#"[{"name": "lan", "default-route": ["10.71.0.1", "10.71.0.3"]}]"#,
        ),
        (
            "routes-ecmp-2",
            r#"[{"name": "lan", "default-route": ["10.71.0.1"]}, {"name": "a", "default-route": ["10.66.0.1"]}]"#,
        ),
    ] {
        let pod = harness.pod(name, networks)?;
        harness.ensure_refused(&pod, &words)?;
    }
    Ok(())
}

fn that_cannot_be_set(harness: &Harness) -> anyhow::Result<()> {
    let networks = r#"[{"name": "lan", "default-route": ["10.99.0.1"]}]"#;
    let (pod, keys) = prepare(harness, "routes-far", networks)?;
    harness.verb_with("ADD", &pod, &keys)?.error_contains(&[
        "default/routes-far",
        "10.99.0.1",
        "unreachable",
    ])?;
    ensure!(!harness.state_file(&pod).exists(), "the state is left");
    let inside = harness.addresses_in(&pod)?;
    ensure!(
        !inside.contains_key("net1") && !inside.contains_key("eth0"),
        "{inside:?}"
    );
    Ok(())
}

fn then_check(harness: &Harness) -> anyhow::Result<()> {
    let networks = r#"[{"name": "lan", "default-route": ["10.71.0.1", "fd71::1"]}]"#;
    let (pod, keys) = prepare(harness, "routes-checked", networks)?;
    harness.add_with(&pod, &keys)?;
    // Plugins compare the routes of the cached result with the kernel's.
    harness.verb_with("CHECK", &pod, &keys)?.success()?;
    harness.del(&pod)
}

/// Results of every version have the default route that was set. The default network has none, so that it is the only one.
fn in_results_of_all_versions(harness: &Harness) -> anyhow::Result<()> {
    for (name, version) in [
        ("lan-v02", "0.2.0"),
        ("lan-v03", "0.3.1"),
        ("lan-v04", "0.4.0"),
        ("lan-v11", "1.1.0"),
    ] {
        let networks = json!([{"name": name, "default-route": ["10.73.0.1"]}]).to_string();
        let (_, keys) = prepare(harness, &format!("{name}-prepared"), "")?;
        let ipam = json!({"type": "static", "addresses": [{"address": "10.70.0.2/24"}]});
        let list = json!({"cniVersion": "1.0.0", "name": "routed", "plugins": [{"type": "bridge", "bridge": "e2e-br70", "ipam": ipam}]});
        harness.node().write(ROUTED, list.to_string())?;
        let pod = harness.attach_with(&format!("routes-of-{name}"), &networks, &keys)?;
        let routes = harness.routes(&pod, "-4")?;
        ensure!(
            routes.contains("default via 10.73.0.1 dev net1"),
            "{version}: {routes}"
        );
        let cached = harness.cached_result(&pod, name, "net1")?["result"].clone();
        ensure!(
            cached["cniVersion"] == version && cached.to_string().contains("10.73.0.1"),
            "{cached}"
        );
        harness.del(&pod)?;
    }
    Ok(())
}

fn other_than_default(harness: &Harness) -> anyhow::Result<()> {
    let networks = r#"[{"name": "lan", "default-route": ["10.71.0.1", "fd71::1"]}]"#;
    let (pod, _) = attach(harness, "routes-kept-apart", networks)?;
    let cached = harness.cached_result(&pod, "routed", "eth0")?["result"].clone();
    ensure!(
        cached["routes"] == json!([{"dst": "10.70.99.0/24", "gw": "10.70.0.9"}]),
        "{cached}"
    );
    harness.del(&pod)
}

fn empty_list_and_another(harness: &Harness) -> anyhow::Result<()> {
    let networks = r#"[{"name": "lan", "default-route": ["10.71.0.1"]}, {"name": "lan-routed", "default-route": []}]"#;
    let pod = harness.pod("routes-empty-and-another", networks)?;
    harness.ensure_refused(
        &pod,
        &["default-route", "default/lan", "default/lan-routed"],
    )
}
