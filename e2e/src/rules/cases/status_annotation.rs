//! Cases of subject `status-annotation`: The status annotation.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::cases;
use crate::{
    rules::harness::{Harness, Pod, PodSpec, STATUS},
    sh,
};

cases! { "status-annotation":
    plain entries [
        "status-annotation.entries",
        "status-annotation.keys",
        "status-annotation.default",
        "status-annotation.dns",
        "status-annotation.definition-name",
    ]
    plain canonical_addresses ["status-annotation.canonical-addresses"]
    plain dns ["status-annotation.dns"]
    plain mtu ["status-annotation.mtu"]
    plain not_default ["status-annotation.not-default"]
    plain gateway ["status-annotation.gateway"]
    plain default_route ["status-annotation.default-route"]
    plain route_without_gateway ["status-annotation.no-gateway"]
    plain one_interface ["status-annotation.one-interface"]
    plain several_interfaces ["status-annotation.several-interfaces"]
    plain repeated_keys ["status-annotation.repeated-keys"]
    plain host_interfaces ["status-annotation.host-interfaces"]
    plain default_of_several ["status-annotation.default-of-several"]
    plain empty_result ["status-annotation.empty-result"]
    plain old_results ["status-annotation.old-results"]
    plain form ["status-annotation.form"]
    plain in_kube_system ["status-annotation.system-pods"]
    plain pod_named_kube_system ["status-annotation.system-pods"]
    plain keeps_other_changes ["status-annotation.patched"]
    plain failed_pod ["status-annotation.failed-pod"]
    plain at_del ["status-annotation.at-del"]
}

fn entries(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("entries", "a,b@ext0")?;
    let one = |name: &str, interface: &str, address: &str| json!({"name": name, "interface": interface, "ips": [address], "mac": "02:00:00:00:00:01", "dns": {}});
    let mut first = one("primary", "eth0", "10.65.0.2");
    first["default"] = json!(true);
    let expected = [
        first,
        one("default/a", "net1", "10.66.0.2"),
        one("default/b", "ext0", "10.66.0.2"),
    ];
    let mut status = harness.network_status(&pod)?;
    // Another rule requires `default` of other networks.
    for entry in status.iter_mut().filter_map(Value::as_object_mut) {
        if entry["name"] != "primary" && entry.get("default") == Some(&json!(false)) {
            entry.remove("default");
        }
    }
    ensure!(status == expected, "{status:?}");
    Ok(())
}

fn not_default(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("default-keys", "a,b")?;
    let status = harness.network_status(&pod)?;
    let found: Vec<_> = status.iter().map(|entry| &entry["default"]).collect();
    ensure!(found == [true, false, false], "{status:?}");
    Ok(())
}

fn default_route(harness: &Harness) -> anyhow::Result<()> {
    let keys = json!({"ips": [{"address": "10.9.0.2/24", "interface": 0}], "routes": [{"dst": "0.0.0.0/0", "gw": "10.9.0.1"}]});
    let entry = entry_of_net1(harness, "default-route", keys)?;
    let [gateway, route] = ["gateway", "default-route"].map(|key| &entry[key]);
    ensure!(gateway == route && *route == json!(["10.9.0.1"]), "{entry}");
    Ok(())
}

fn canonical_addresses(harness: &Harness) -> anyhow::Result<()> {
    let keys = json!({"ips": [{"address": "fd05:0:0::2/64", "interface": 0}], "routes": [{"dst": "::/0", "gw": "FD05:0::1"}]});
    let entry = entry_of_net1(harness, "canonical", keys)?;
    let expected = [json!(["fd05::2"]), json!(["fd05::1"])];
    ensure!(
        ["ips", "gateway"].map(|key| entry[key].clone()) == expected,
        "{entry}"
    );
    Ok(())
}

fn dns(harness: &Harness) -> anyhow::Result<()> {
    let dns = json!({"nameservers": ["10.9.0.53"], "domain": "d.example", "search": ["s.example"], "options": ["ndots:5"]});
    let entry = entry_of_net1(harness, "dns", json!({"ips": [], "dns": dns}))?;
    ensure!(entry["dns"] == dns, "{entry}");
    Ok(())
}

fn gateway(harness: &Harness) -> anyhow::Result<()> {
    let keys = json!({"ips": [{"address": "10.9.0.2/24", "interface": 0, "gateway": "10.9.0.9"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.9.0.1"}, {"dst": "10.8.0.0/16", "gw": "10.9.0.3"}, {"dst": "::/0", "gw": "fd00::1"}]});
    let entry = entry_of_net1(harness, "gateway", keys)?;
    ensure!(
        entry["gateway"] == json!(["10.9.0.1", "fd00::1"]),
        "{entry}"
    );
    Ok(())
}

fn route_without_gateway(harness: &Harness) -> anyhow::Result<()> {
    let keys = json!({"ips": [{"address": "10.9.0.2/24", "interface": 0}], "routes": [{"dst": "0.0.0.0/0"}]});
    let entry = entry_of_net1(harness, "no-gateway", keys)?;
    ensure!(entry["gateway"].is_null(), "{entry}");
    Ok(())
}

/// Attaches a pod whose network `a` returns a result with one interface and these keys, and reads the only entry of `a`.
fn entry_of_net1(harness: &Harness, name: &str, keys: Value) -> anyhow::Result<Value> {
    let mut result = keys;
    result["cniVersion"] = json!("1.0.0");
    result["interfaces"] = json!([pod_interface("net1", "02:00:00:00:00:05")]);
    let mut entries = entries_of(harness, name, "a", &json!({"result": result}))?;
    ensure!(entries.len() == 1, "{entries:?}");
    Ok(entries.remove(0))
}

fn mtu(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("mtu", "newest")?;
    let mut interface = pod_interface("net1", "02:00:00:00:00:05");
    interface["mtu"] = json!(9000);
    let result = json!({"cniVersion": "1.1.0", "interfaces": [interface], "ips": []});
    harness.set_answer("newest", "ADD", &json!({"result": result}))?;
    harness.add(&pod)?;
    let status = harness.network_status(&pod)?;
    ensure!(
        status[1]["mtu"] == 9000 && status[0]["mtu"].is_null(),
        "{status:?}"
    );
    Ok(())
}

fn several_interfaces(harness: &Harness) -> anyhow::Result<()> {
    let host = json!({"name": "veth7", "mac": "02:00:00:00:00:07"});
    let result = json!({"cniVersion": "1.0.0", "interfaces": [host, pod_interface("net1", "02:00:00:00:00:05"), pod_interface("net1b", "02:00:00:00:00:05")],
        "ips": [{"address": "10.9.0.2/24", "interface": 1}, {"address": "10.9.1.2/24", "interface": 2}, {"address": "10.9.2.2/24"}]});
    let status = entries_of(harness, "several", "a", &json!({"result": result}))?;
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

fn old_results(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("oldest", "oldest,a")?;
    let names: Vec<_> = harness
        .network_status(&pod)?
        .iter()
        .map(|one| one["name"].clone())
        .collect();
    ensure!(
        names == ["primary", "default/oldest", "default/a"],
        "{names:?}"
    );
    Ok(())
}

fn in_kube_system(harness: &Harness) -> anyhow::Result<()> {
    let spec = PodSpec::in_namespace("kube-system");
    has_one_entry(harness, &harness.pod_with("system-pod", &spec)?)
}

fn pod_named_kube_system(harness: &Harness) -> anyhow::Result<()> {
    has_one_entry(harness, &harness.pod("kube-system", "")?)
}

fn has_one_entry(harness: &Harness, pod: &Pod) -> anyhow::Result<()> {
    harness.add(pod)?;
    let status = harness.network_status(pod)?;
    ensure!(status.len() == 1, "{status:?}");
    Ok(())
}

fn keeps_other_changes(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("shared-pod", "a")?;
    let gate = "/run/shared-pod-gate";
    harness.set_answer("a", "ADD", &json!({"wait_for": gate}))?;
    let running = harness.spawn_verb("ADD", &pod)?;
    sh::until(20, "the plugin runs", || {
        harness.call(&pod, "ADD", "a").map(drop)
    })?;
    let path = "/api/v1/namespaces/default/pods/shared-pod";
    let theirs = json!({"metadata": {"annotations": {"example.com/theirs": "kept"}, "labels": {"theirs": "too"}}});
    harness.api("PATCH", path, &theirs)?;
    harness.node().write(gate, "")?;
    running.within(20)?.success()?;
    let metadata = harness.api("GET", path, &Value::Null)?.json()?["metadata"].take();
    ensure!(
        metadata["annotations"]["example.com/theirs"] == "kept"
            && metadata["labels"]["theirs"] == "too",
        "{metadata}"
    );
    ensure!(harness.network_status(&pod)?.len() == 2, "{metadata}");
    Ok(())
}

fn form(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("laid-out", "a")?;
    harness.network_status(&pod)?;
    let text = annotation(harness, &pod)?;
    let text = text.as_str().context("no status")?;
    let first = "[{\n    \"name\": \"primary\",\n    \"interface\": \"eth0\",\n    \"ips\": [\n        \"10.65.0.2\"\n    ]";
    let second = "    \"dns\": {}\n},{\n    \"name\": \"default/a\"";
    ensure!(text.starts_with(first) && text.contains(second), "{text}");
    Ok(())
}

fn pod_interface(name: &str, mac: &str) -> Value {
    json!({"name": name, "mac": mac, "sandbox": "/run/netns/x"})
}

fn host_interface(name: &str) -> Value {
    json!({"name": name, "mac": "02:00:00:00:00:07"})
}

fn result(interfaces: &[Value], ips: &Value) -> Value {
    json!({"result": {"cniVersion": "1.0.0", "interfaces": interfaces, "ips": ips,
        "dns": {"nameservers": ["10.9.0.53"]}, "routes": [{"dst": "0.0.0.0/0", "gw": "10.9.0.1"}]}})
}

/// Attaches a pod whose network gives that answer, and reads the entries of that network.
fn entries_of(
    harness: &Harness,
    name: &str,
    network: &str,
    answer: &Value,
) -> anyhow::Result<Vec<Value>> {
    let pod = harness.pod(name, if network == "primary" { "" } else { network })?;
    harness.set_answer(network, "ADD", answer)?;
    harness.add(&pod)?;
    let mut status = harness.network_status(&pod)?;
    status.retain(|entry| {
        let name = entry["name"].as_str().unwrap_or_default();
        name.trim_start_matches("default/") == network
    });
    Ok(status)
}

/// Returns the text of the annotation, or null.
fn annotation(harness: &Harness, pod: &Pod) -> anyhow::Result<Value> {
    let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
    let object = harness.api("GET", &path, &Value::Null)?.json()?;
    Ok(object["metadata"]["annotations"][STATUS].clone())
}

fn one_interface(harness: &Harness) -> anyhow::Result<()> {
    let ips = json!([{"address": "10.9.0.2/24"}, {"address": "fd09::2/64", "interface": 0}]);
    let answer = result(&[pod_interface("net1", "02:00:00:00:00:05")], &ips);
    let status = entries_of(harness, "one-interface", "a", &answer)?;
    let short: Vec<_> = status
        .iter()
        .map(|one| json!([one["interface"], one["mac"], one["ips"]]))
        .collect();
    let expected = json!(["net1", "02:00:00:00:00:05", ["10.9.0.2", "fd09::2"]]);
    ensure!(short == [expected], "{short:?}");
    Ok(())
}

fn host_interfaces(harness: &Harness) -> anyhow::Result<()> {
    let ips = json!([{"address": "10.9.0.2/24", "interface": 0}]);
    let answer = result(&[host_interface("veth7"), host_interface("br7")], &ips);
    let status = entries_of(harness, "none-inside", "a", &answer)?;
    ensure!(status.is_empty(), "{status:?}");
    Ok(())
}

fn default_of_several(harness: &Harness) -> anyhow::Result<()> {
    let interfaces = [
        host_interface("veth7"),
        pod_interface("eth0", "02:00:00:00:00:05"),
        pod_interface("eth1", "02:00:00:00:00:06"),
    ];
    let with_gateway = json!([
        {"address": "10.9.0.2/24", "interface": 1}, {"address": "10.9.1.2/24", "interface": 2, "gateway": "10.9.1.1"},
    ]);
    let without = json!([{"address": "10.9.0.2/24", "interface": 1}, {"address": "10.9.1.2/24", "interface": 2}]);
    for (name, ips, expected) in [
        ("default-with-gateway", with_gateway, "eth1"),
        ("default-without", without, "eth0"),
    ] {
        let status = entries_of(harness, name, "primary", &result(&interfaces, &ips))?;
        let defaults: Vec<_> = status
            .iter()
            .filter(|one| one["default"] == true)
            .map(|one| one["interface"].clone())
            .collect();
        ensure!(status.len() == 2 && defaults == [expected], "{status:?}");
    }
    Ok(())
}

fn repeated_keys(harness: &Harness) -> anyhow::Result<()> {
    let interfaces = [
        pod_interface("net1", "02:00:00:00:00:05"),
        pod_interface("net1b", "02:00:00:00:00:06"),
    ];
    let ips = json!([{"address": "10.9.0.2/24", "interface": 0}, {"address": "10.9.1.2/24", "interface": 1}]);
    let status = entries_of(harness, "repeated", "a", &result(&interfaces, &ips))?;
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

fn empty_result(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("empty-status", "")?;
    let result = json!({"cniVersion": "1.0.0"});
    harness.set_answer("primary", "ADD", &json!({"result": result}))?;
    harness.add(&pod)?;
    let status = harness.network_status(&pod)?;
    let expected = json!({"name": "primary", "interface": "eth0", "default": true, "dns": {}});
    ensure!(status == [expected], "{status:?}");
    Ok(())
}

fn failed_pod(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("status-of-failed", "a")?;
    harness.set_error("a", "ADD", 7, "no luck")?;
    harness.verb("ADD", &pod)?.error()?;
    let text = annotation(harness, &pod)?;
    ensure!(text.is_null(), "{text}");
    Ok(())
}

fn at_del(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("status-at-del", "a")?;
    harness.network_status(&pod)?;
    let before = annotation(harness, &pod)?;
    harness.del(&pod)?;
    let after = annotation(harness, &pod)?;
    before.as_str().context("no status")?;
    ensure!(before == after, "{before} became {after}");
    Ok(())
}
