//! Default routes, read inside the pod: real bridges, so that the kernel has the last word.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Case, plain};
use crate::rules::bench::{Bench, Pod};

pub(super) const CASES: &[Case] = &[
    plain("routes-left-alone", &["mux-11.5-untouched"], untouched),
    plain(
        "routes-of-one-family",
        &["mux-11.5-gateway", "mux-11.5-others", "mux-11.5-family"],
        one_family,
    ),
    plain(
        "routes-of-both-families",
        &["mux-11.5-gateway", "mux-11.5-others"],
        both_families,
    ),
    plain(
        "routes-of-a-network-each",
        &["mux-11.5-gateway", "mux-11.5-family", "mux-11.5-shared"],
        a_network_each,
    ),
    plain(
        "routes-of-an-empty-list-beside-another",
        &["mux-11.5-empty-alone"],
        empty_beside,
    ),
    plain("routes-told-as-they-are", &["mux-11.5-told"], told),
    plain(
        "routes-of-an-empty-list",
        &["mux-11.5-empty", "mux-11.5-told"],
        empty_list,
    ),
    plain(
        "routes-of-an-empty-list-without-any",
        &["mux-11.5-empty"],
        nothing_to_keep,
    ),
    plain("routes-of-two-gateways", &["mux-11.5-ecmp"], ecmp),
    plain(
        "routes-that-cannot-be-set",
        &["mux-11.5-undone"],
        unreachable,
    ),
    plain(
        "routes-in-results-of-all-versions",
        &["mux-11.5-versions"],
        versions,
    ),
    plain("routes-that-are-no-default", &["mux-11.5-kept"], kept),
    plain("routes-then-check", &["mux-11.5-told"], then_check),
];

/// A primary with a default route of each family.
const PRIMARY: &str = "/etc/cni/rules/routed.conflist";
const OF_PRIMARY: [&str; 2] = ["10.70.0.1 eth0", "fd70::1 eth0"];

/// Attaches a pod whose primary is a real bridge.
fn attach(bench: &Bench, name: &str, networks: &str) -> anyhow::Result<(Pod, Value)> {
    let (pod, keys) = prepare(bench, name, networks)?;
    let result = bench.add_with(&pod, &keys)?;
    Ok((pod, result))
}

fn prepare(bench: &Bench, name: &str, networks: &str) -> anyhow::Result<(Pod, Value)> {
    let ipam = json!({"type": "static",
        "addresses": [{"address": "10.70.0.2/24", "gateway": "10.70.0.1"}, {"address": "fd70::2/64", "gateway": "fd70::1"}],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}, {"dst": "10.70.99.0/24", "gw": "10.70.0.9"}]});
    let list = json!({"cniVersion": "1.0.0", "name": "routed", "plugins": [{"type": "bridge", "bridge": "e2e-br70", "ipam": ipam}]});
    bench.scene.node.write(PRIMARY, list.to_string())?;
    Ok((
        bench.pod(name, networks)?,
        json!({"clusterNetwork": PRIMARY}),
    ))
}

fn ensure_routes(bench: &Bench, pod: &Pod, expected: [&str; 2]) -> anyhow::Result<()> {
    let found = bench.default_routes(pod)?;
    ensure!(
        found == expected,
        "default routes are {found:?}, not {expected:?}"
    );
    Ok(())
}

fn untouched(bench: &Bench) -> anyhow::Result<()> {
    let (pod, result) = attach(bench, "routes-untouched", "lan")?;
    ensure_routes(bench, &pod, OF_PRIMARY)?;
    ensure!(
        result["routes"].as_array().map(Vec::len) == Some(3),
        "{result}"
    );
    bench.del(&pod)
}

fn one_family(bench: &Bench) -> anyhow::Result<()> {
    let asked = r#"[{"name": "lan-routed"}, {"name": "lan", "default-route": ["10.71.0.1"]}]"#;
    let (pod, _) = attach(bench, "routes-v4", asked)?;
    ensure_routes(bench, &pod, ["10.71.0.1 net2", "fd70::1 eth0"])?;
    bench.del(&pod)?;
    let asked = r#"[{"name": "lan", "default-route": ["fd71::1"]}]"#;
    let (pod, _) = attach(bench, "routes-v6", asked)?;
    ensure_routes(bench, &pod, ["10.70.0.1 eth0", "fd71::1 net1"])?;
    bench.del(&pod)
}

fn both_families(bench: &Bench) -> anyhow::Result<()> {
    let asked = r#"[{"name": "lan", "default-route": ["10.71.0.1", "fd71::1"]}]"#;
    let (pod, _) = attach(bench, "routes-both", asked)?;
    ensure_routes(bench, &pod, ["10.71.0.1 net1", "fd71::1 net1"])?;
    // Only default routes go.
    let all = bench.routes(&pod, "-4")?;
    ensure!(
        all.contains("10.70.99.0/24 via 10.70.0.9 dev eth0"),
        "{all}"
    );
    bench.del(&pod)
}

fn a_network_each(bench: &Bench) -> anyhow::Result<()> {
    let asked = r#"[{"name": "lan", "default-route": ["10.71.0.1"]}, {"name": "lan-routed", "default-route": ["fd72::1"]}]"#;
    let (pod, _) = attach(bench, "routes-each", asked)?;
    ensure_routes(bench, &pod, ["10.71.0.1 net1", "fd72::1 net2"])?;
    bench.del(&pod)
}

/// Default routes of a result.
fn defaults(result: &Value) -> Vec<String> {
    let routes = result["routes"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    routes
        .filter(|route| ["0.0.0.0/0", "::/0"].contains(&text(&route["dst"]).as_str()))
        .map(|route| text(&route["gw"]))
        .collect()
}

fn told(bench: &Bench) -> anyhow::Result<()> {
    let asked = r#"[{"name": "lan", "default-route": ["10.71.0.1"]}, {"name": "lan-routed"}]"#;
    let (pod, result) = attach(bench, "routes-told", asked)?;
    ensure_routes(bench, &pod, ["10.71.0.1 net1", "fd70::1 eth0"])?;
    // What the runtime hears, what is cached for CHECK and DEL, and what the status tells.
    ensure!(
        defaults(&result).len() == 1,
        "the runtime hears of {result}"
    );
    for (network, ifname, expected) in [
        ("routed", "eth0", vec![defaults(&result)[0].clone()]),
        ("lan", "net1", vec!["10.71.0.1".to_owned()]),
        ("lan-routed", "net2", Vec::new()),
    ] {
        let cached = defaults(&bench.cached(&pod, network, ifname)?["result"]);
        ensure!(cached == expected, "{network}: {cached:?} is cached");
    }
    let status = bench.status(&pod)?;
    ensure!(
        status[1]["gateway"] == json!(["10.71.0.1"]) && status[2]["gateway"].is_null(),
        "{status:?}"
    );
    let state = bench.state(&pod)?;
    ensure!(state[1]["default-route"] == json!(["10.71.0.1"]), "{state}");
    for index in [0, 2] {
        ensure!(state[index]["IsFilterV4Gateway"] == true, "{state}");
    }
    bench.del(&pod)
}

fn empty_list(bench: &Bench) -> anyhow::Result<()> {
    let asked = r#"[{"name": "lan"}, {"name": "lan-routed", "default-route": []}]"#;
    let (pod, result) = attach(bench, "routes-kept", asked)?;
    ensure_routes(bench, &pod, ["10.72.0.1 net2", "fd70::1 eth0"])?;
    ensure!(defaults(&result).len() == 1, "{result}");
    let status = bench.status(&pod)?;
    let of = status.last().context("no status")?;
    ensure!(of["gateway"] == json!(["10.72.0.1"]), "{status:?}");
    bench.del(&pod)
}

fn nothing_to_keep(bench: &Bench) -> anyhow::Result<()> {
    let asked = r#"[{"name": "lan", "default-route": []}]"#;
    let (pod, keys) = prepare(bench, "routes-none", asked)?;
    bench.verb_with("ADD", &pod, &keys)?.tells(&[
        "default/routes-none",
        "default/lan",
        "name a gateway",
    ])?;
    ensure!(!bench.state_file(&pod).exists(), "its state is left");
    Ok(())
}

fn ecmp(bench: &Bench) -> anyhow::Result<()> {
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
        let pod = bench.pod(name, networks)?;
        bench.verb("ADD", &pod)?.tells(&words)?;
        bench.called(&pod, &[])?;
    }
    Ok(())
}

fn unreachable(bench: &Bench) -> anyhow::Result<()> {
    let asked = r#"[{"name": "lan", "default-route": ["10.99.0.1"]}]"#;
    let (pod, keys) = prepare(bench, "routes-far", asked)?;
    bench.verb_with("ADD", &pod, &keys)?.tells(&[
        "default/routes-far",
        "10.99.0.1",
        "unreachable",
    ])?;
    ensure!(!bench.state_file(&pod).exists(), "its state is left");
    let inside = bench.inside(&pod)?;
    ensure!(
        !inside.contains_key("net1") && !inside.contains_key("eth0"),
        "{inside:?}"
    );
    Ok(())
}

fn then_check(bench: &Bench) -> anyhow::Result<()> {
    let asked = r#"[{"name": "lan", "default-route": ["10.71.0.1", "fd71::1"]}]"#;
    let (pod, keys) = prepare(bench, "routes-checked", asked)?;
    bench.add_with(&pod, &keys)?;
    // Plugins compare the routes of the cached result with the kernel's.
    bench.verb_with("CHECK", &pod, &keys)?.well()?;
    bench.del(&pod)
}

/// Results of every form tell the default route that was set; the primary has none, so that nobody else's is in the way.
fn versions(bench: &Bench) -> anyhow::Result<()> {
    for (name, version) in [
        ("lan-v02", "0.2.0"),
        ("lan-v03", "0.3.1"),
        ("lan-v04", "0.4.0"),
        ("lan-v11", "1.1.0"),
    ] {
        let asked = json!([{"name": name, "default-route": ["10.73.0.1"]}]).to_string();
        let (_, keys) = prepare(bench, &format!("{name}-prepared"), "")?;
        let ipam = json!({"type": "static", "addresses": [{"address": "10.70.0.2/24"}]});
        let list = json!({"cniVersion": "1.0.0", "name": "routed", "plugins": [{"type": "bridge", "bridge": "e2e-br70", "ipam": ipam}]});
        bench.scene.node.write(PRIMARY, list.to_string())?;
        let pod = bench.pod(&format!("routes-of-{name}"), &asked)?;
        bench.add_with(&pod, &keys)?;
        let routes = bench.routes(&pod, "-4")?;
        ensure!(
            routes.contains("default via 10.73.0.1 dev net1"),
            "{version}: {routes}"
        );
        let cached = bench.cached(&pod, name, "net1")?["result"].clone();
        ensure!(
            cached["cniVersion"] == version && cached.to_string().contains("10.73.0.1"),
            "{cached}"
        );
        bench.del(&pod)?;
    }
    Ok(())
}

/// Whatever default routes go, other routes stay in the cached results, with a gateway of their own and without.
fn kept(bench: &Bench) -> anyhow::Result<()> {
    let asked = r#"[{"name": "lan", "default-route": ["10.71.0.1", "fd71::1"]}]"#;
    let (pod, _) = attach(bench, "routes-kept-apart", asked)?;
    let cached = bench.cached(&pod, "routed", "eth0")?["result"].clone();
    ensure!(
        cached["routes"] == json!([{"dst": "10.70.99.0/24", "gw": "10.70.0.9"}]),
        "{cached}"
    );
    bench.del(&pod)
}

fn empty_beside(bench: &Bench) -> anyhow::Result<()> {
    let asked = r#"[{"name": "lan", "default-route": ["10.71.0.1"]}, {"name": "lan-routed", "default-route": []}]"#;
    let pod = bench.pod("routes-empty-beside", asked)?;
    bench
        .verb("ADD", &pod)?
        .tells(&["default-route", "default/lan", "default/lan-routed"])?;
    bench.called(&pod, &[])
}
