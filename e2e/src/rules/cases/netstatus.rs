//! The status annotation.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Case, plain};
use crate::rules::bench::{Bench, Pod, PodForm, STATUS};
use crate::sh;

pub(super) const CASES: &[Case] = &[
    plain(
        "status-annotation-entries",
        &[
            "mux-13-entries",
            "mux-13-keys",
            "mux-13-default",
            "mux-13-dns",
            "mux-10.3-status-name",
        ],
        entries,
    ),
    plain("status-annotation-dns", &["mux-13-dns"], dns),
    plain("status-annotation-gateway", &["mux-13-gateway"], gateway),
    plain(
        "status-annotation-not-default",
        &["mux-13-not-default"],
        not_default,
    ),
    plain(
        "status-annotation-default-route",
        &["mux-13-default-route"],
        default_route,
    ),
    plain(
        "status-annotation-canonical-addresses",
        &["mux-13-canonical"],
        canonical,
    ),
    plain(
        "status-annotation-route-without-gateway",
        &["mux-13-no-gateway"],
        no_gateway,
    ),
    plain("status-annotation-mtu", &["mux-13-mtu"], mtu),
    plain(
        "status-annotation-several-interfaces",
        &["mux-13-interfaces"],
        interfaces,
    ),
    plain(
        "status-annotation-of-oldest-results",
        &["mux-13-oldest"],
        oldest,
    ),
    plain(
        "status-annotation-in-kube-system",
        &["mux-13-system"],
        system,
    ),
    plain(
        "status-annotation-of-a-pod-named-kube-system",
        &["mux-13-system"],
        named_system,
    ),
    plain(
        "status-annotation-beside-those-of-others",
        &["mux-13-patched"],
        beside_others,
    ),
    plain("status-annotation-form", &["mux-13-form"], form),
];

fn entries(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("told", "a,b@ext0")?;
    bench.add(&pod)?;
    let one = |name: &str, interface: &str, address: &str| json!({"name": name, "interface": interface, "ips": [address], "mac": "02:00:00:00:00:01", "dns": {}});
    let mut first = one("primary", "eth0", "10.65.0.2");
    first["default"] = json!(true);
    let expected = [
        first,
        one("default/a", "net1", "10.66.0.2"),
        one("default/b", "ext0", "10.66.0.2"),
    ];
    let mut status = bench.status(&pod)?;
    // Whether it is told that a network is not the default one is another rule.
    for entry in status.iter_mut().filter_map(Value::as_object_mut) {
        if entry["name"] != "primary" && entry.get("default") == Some(&json!(false)) {
            entry.remove("default");
        }
    }
    ensure!(status == expected, "{status:?}");
    Ok(())
}

fn not_default(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("told-which", "a,b")?;
    bench.add(&pod)?;
    let status = bench.status(&pod)?;
    let found: Vec<_> = status.iter().map(|entry| &entry["default"]).collect();
    ensure!(found == [true, false, false], "{status:?}");
    Ok(())
}

fn default_route(bench: &Bench) -> anyhow::Result<()> {
    let result = json!({"cniVersion": "1.0.0", "interfaces": [inside("net1")], "ips": [{"address": "10.9.0.2/24", "interface": 0}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.9.0.1"}]});
    let (_, status) = told(bench, "default-route", &result)?;
    let [gateway, route] = ["gateway", "default-route"].map(|key| &status[0][key]);
    ensure!(
        gateway == route && *route == json!(["10.9.0.1"]),
        "{status:?}"
    );
    Ok(())
}

fn canonical(bench: &Bench) -> anyhow::Result<()> {
    let result = json!({"cniVersion": "1.0.0", "interfaces": [inside("net1")], "ips": [{"address": "fd05:0:0::2/64", "interface": 0}],
        "routes": [{"dst": "::/0", "gw": "FD05:0::1"}]});
    let (_, status) = told(bench, "canonical", &result)?;
    ensure!(
        status[0]["ips"] == json!(["fd05::2"]) && status[0]["gateway"] == json!(["fd05::1"]),
        "{status:?}"
    );
    Ok(())
}

/// Attaches a pod whose network `a` gives that result, and reads the entries of `a`.
fn told(bench: &Bench, name: &str, result: &Value) -> anyhow::Result<(Pod, Vec<Value>)> {
    let pod = bench.pod(name, "a")?;
    bench.answer("a", "ADD", &json!({"result": result}))?;
    bench.add(&pod)?;
    let mut status = bench.status(&pod)?;
    ensure!(status[0]["name"] == "primary", "{status:?}");
    status.remove(0);
    Ok((pod, status))
}

fn inside(name: &str) -> Value {
    json!({"name": name, "mac": "02:00:00:00:00:05", "sandbox": "/run/netns/x"})
}

fn dns(bench: &Bench) -> anyhow::Result<()> {
    let dns = json!({"nameservers": ["10.9.0.53"], "domain": "d.example", "search": ["s.example"], "options": ["ndots:5"]});
    let result =
        json!({"cniVersion": "1.0.0", "interfaces": [inside("net1")], "ips": [], "dns": dns});
    let (_, status) = told(bench, "dns", &result)?;
    ensure!(status[0]["dns"] == dns, "{status:?}");
    Ok(())
}

fn gateway(bench: &Bench) -> anyhow::Result<()> {
    let result = json!({"cniVersion": "1.0.0", "interfaces": [inside("net1")], "ips": [{"address": "10.9.0.2/24", "interface": 0, "gateway": "10.9.0.9"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.9.0.1"}, {"dst": "10.8.0.0/16", "gw": "10.9.0.3"}, {"dst": "::/0", "gw": "fd00::1"}]});
    let (_, status) = told(bench, "gateway", &result)?;
    ensure!(
        status[0]["gateway"] == json!(["10.9.0.1", "fd00::1"]),
        "{status:?}"
    );
    Ok(())
}

fn no_gateway(bench: &Bench) -> anyhow::Result<()> {
    let result = json!({"cniVersion": "1.0.0", "interfaces": [inside("net1")], "ips": [{"address": "10.9.0.2/24", "interface": 0}], "routes": [{"dst": "0.0.0.0/0"}]});
    let (_, status) = told(bench, "no-gateway", &result)?;
    ensure!(status[0]["gateway"].is_null(), "{status:?}");
    Ok(())
}

fn mtu(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("mtu", "newest")?;
    let mut interface = inside("net1");
    interface["mtu"] = json!(9000);
    bench.answer(
        "newest",
        "ADD",
        &json!({"result": {"cniVersion": "1.1.0", "interfaces": [interface], "ips": []}}),
    )?;
    bench.add(&pod)?;
    let status = bench.status(&pod)?;
    ensure!(
        status[1]["mtu"] == 9000 && status[0]["mtu"].is_null(),
        "{status:?}"
    );
    Ok(())
}

fn interfaces(bench: &Bench) -> anyhow::Result<()> {
    let host = json!({"name": "veth7", "mac": "02:00:00:00:00:07"});
    let result = json!({"cniVersion": "1.0.0", "interfaces": [host, inside("net1"), inside("net1b")],
        "ips": [{"address": "10.9.0.2/24", "interface": 1}, {"address": "10.9.1.2/24", "interface": 2}, {"address": "10.9.2.2/24"}]});
    let (_, status) = told(bench, "several", &result)?;
    let short: Vec<_> = status
        .iter()
        .map(|one| json!([one["name"], one["interface"], one["ips"]]))
        .collect();
    let expected = [
        json!(["default/a", "net1", ["10.9.0.2"]]),
        json!(["default/a", "net1b", ["10.9.1.2", "10.9.2.2"]]),
    ];
    ensure!(short == expected, "{short:?}");
    ensure!(
        status.iter().all(|one| one["default"] != true),
        "{status:?}"
    );
    Ok(())
}

fn oldest(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("oldest", "oldest,a")?;
    bench.add(&pod)?;
    let names: Vec<_> = bench
        .status(&pod)?
        .iter()
        .map(|one| one["name"].clone())
        .collect();
    ensure!(
        names == ["primary", "default/oldest", "default/a"],
        "{names:?}"
    );
    Ok(())
}

fn system(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod_of(
        "system-pod",
        &PodForm {
            namespace: "kube-system",
            ..PodForm::default()
        },
    )?;
    bench.add(&pod)?;
    ensure!(bench.status(&pod)?.len() == 1, "{:?}", bench.status(&pod)?);
    Ok(())
}

fn named_system(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("kube-system", "")?;
    bench.add(&pod)?;
    ensure!(bench.status(&pod)?.len() == 1, "{:?}", bench.status(&pod)?);
    Ok(())
}

/// What somebody writes into the pod while it is attached is still there afterwards.
fn beside_others(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("shared-pod", "a")?;
    let gate = "/run/shared-pod-gate";
    bench.answer("a", "ADD", &json!({"wait_for": gate}))?;
    let running = bench.begin("ADD", &pod)?;
    sh::until(20, "the plugin runs", || {
        bench.call(&pod, "ADD", "a").map(drop)
    })?;
    let path = "/api/v1/namespaces/default/pods/shared-pod";
    let theirs = json!({"metadata": {"annotations": {"example.com/theirs": "kept"}, "labels": {"theirs": "too"}}});
    bench.api("PATCH", path, &theirs)?;
    bench.scene.node.write(gate, "")?;
    running.within(20)?.well()?;
    let metadata = bench.api("GET", path, &Value::Null)?.json()?["metadata"].take();
    ensure!(
        metadata["annotations"]["example.com/theirs"] == "kept"
            && metadata["labels"]["theirs"] == "too",
        "{metadata}"
    );
    ensure!(bench.status(&pod)?.len() == 2, "{metadata}");
    Ok(())
}

fn form(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("laid-out", "a")?;
    bench.add(&pod)?;
    let object = bench
        .api(
            "GET",
            "/api/v1/namespaces/default/pods/laid-out",
            &Value::Null,
        )?
        .json()?;
    let text = object["metadata"]["annotations"][STATUS]
        .as_str()
        .context("no status")?;
    ensure!(text.starts_with("[{\n    \"name\": \"primary\",\n    \"interface\": \"eth0\",\n    \"ips\": [\n        \"10.65.0.2\"\n    ]"), "{text}");
    ensure!(
        text.contains("    \"dns\": {}\n},{\n    \"name\": \"default/a\""),
        "{text}"
    );
    Ok(())
}
