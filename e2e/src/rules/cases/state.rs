//! Cases of subject `state`: State.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use serde_json::{Value, json};

use super::cases;
use crate::rules::{
    definitions::recorder,
    harness::{Harness, Pod, WITH_A, WITH_A_AND_B},
};

cases! { "state":
    plain file ["state.file"]
    plain format ["state.format"]
    plain requests ["state.requests"]
    plain upstream_state ["state.upstream"]
    plain upstream_lists ["state.upstream-list"]
    plain upstream_without_version ["state.no-version"]
    plain missing_with_pod ["state.missing"]
    plain missing_without_pod ["state.missing-without-pod"]
    plain corrupt ["state.corrupt"]
    plain corrupt_with_pod ["state.corrupt-with-pod"]
    plain empty_list ["state.empty-list"]
    plain truncated ["state.truncated"]
}

fn file(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("placed", "")?;
    let mode = |path| anyhow::Ok(fs::metadata(path)?.permissions().mode() & 0o777);
    let file = harness.state_file(&pod);
    let (file, dir) = (
        mode(file.clone())?,
        mode(file.parent().context("a file has a directory")?.to_owned())?,
    );
    ensure!(
        (dir, file) == (0o700, 0o600),
        "directory {dir:o}, file {file:o}"
    );
    harness.del(&pod)?;
    ensure!(!harness.state_file(&pod).exists(), "the state is left");
    Ok(())
}

fn format(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("formed", "a,list")?;
    let state = harness.state(&pod)?;
    let names: Vec<_> = state
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| one["Name"].as_str().unwrap_or_default().to_owned())
        .collect();
    // Upstream gives the default network the name of its configuration, others that of their definition.
    ensure!(
        names.len() == 3 && names[1..] == ["default/a", "default/list"],
        "{names:?}"
    );
    ensure!(
        state[0]["ConfList"]["name"] == "primary"
            && state[0]["ConfList"]["plugins"][0]["type"] == "recorder",
        "{state}"
    );
    ensure!(
        state[1]["Conf"]["name"] == "a" && state[1]["Conf"]["type"] == "recorder",
        "{state}"
    );
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(state[1]["Bytes"].as_str().unwrap_or_default())?;
    let config: Value = serde_json::from_slice(&bytes)?;
    ensure!(
        config["type"] == "recorder" && config["name"] == "a",
        "{config}"
    );
    for key in ["IsFilterV4Gateway", "IsFilterV6Gateway"] {
        ensure!(state[1][key] == false, "{state}");
    }
    Ok(())
}

fn requests(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("requesting", r#"[{"name": "a", "interface": "ext0", "ips": ["10.66.0.7/24"], "mac": "02:00:00:00:00:07"}]"#)?;
    let one = &harness.state(&pod)?[1];
    ensure!(
        one["ifnameRequest"] == "ext0"
            && one["ipRequest"] == json!(["10.66.0.7/24"])
            && one["macRequest"] == "02:00:00:00:00:07",
        "{one}"
    );
    Ok(())
}

fn bytes(value: &Value) -> String {
    base64::engine::general_purpose::STANDARD.encode(value.to_string())
}

/// Makes a pod that the API server does not have, with this state.
fn inherited(harness: &Harness, name: &str, state: &str) -> anyhow::Result<Pod> {
    let pod = harness.sandbox("default", name, "0000")?;
    harness
        .node()
        .write(&format!("/var/lib/cni/multus/{}", pod.id), state)?;
    Ok(pod)
}

/// Returns a network with a single plugin, as upstream writes it.
fn single(name: &str, keys: &Value) -> Value {
    let config = recorder(name, &json!({"from": "state"}));
    let mut one = json!({
        "Conf": {"cniVersion": "1.0.0", "name": name, "type": "recorder", "ipam": {}, "dns": {}}, "ConfList": {},
        "Name": format!("default/{name}"), "IsFilterV4Gateway": false, "IsFilterV6Gateway": false, "Bytes": bytes(&config),
    });
    for (key, value) in keys.as_object().into_iter().flatten() {
        one[key] = value.clone();
    }
    one
}

fn upstream_state(harness: &Harness) -> anyhow::Result<()> {
    let state = json!([
        single("main", &json!({})),
        single("kept", &json!({"ifnameRequest": "ext0"})),
        single("last", &json!({}))
    ]);
    let pod = inherited(harness, "inherited", &state.to_string())?;
    harness.del(&pod)?;
    harness.expect_calls(&pod, &["DEL last", "DEL kept", "DEL main"])?;
    let calls = harness.calls(&pod)?;
    let names: Vec<_> = calls
        .iter()
        .map(|call| call.variable("CNI_IFNAME"))
        .collect();
    ensure!(names == ["net2", "ext0", "eth0"], "{names:?}");
    ensure!(
        calls.iter().all(|call| call.stdin["from"] == "state"),
        "{calls:?}"
    );
    ensure!(!harness.state_file(&pod).exists(), "the state is left");
    Ok(())
}

fn upstream_lists(harness: &Harness) -> anyhow::Result<()> {
    let list = json!({"cniVersion": "1.0.0", "name": "main", "plugins": [{"type": "recorder", "from": "list"}]});
    let plugin = json!({"type": "recorder", "from": "list"});
    let state = json!([{
        "Conf": {"ipam": {}, "dns": {}}, "ConfList": {"cniVersion": "1.0.0", "name": "main", "plugins": [{"type": "recorder", "ipam": {}, "dns": {}}]},
        "CNINetworkConfigList": {"Name": "main", "CNIVersion": "1.0.0", "DisableCheck": false, "DisableGC": false, "LoadOnlyInlinedPlugins": false,
            "Plugins": [{"Network": {"type": "recorder", "ipam": {}, "dns": {}}, "Bytes": bytes(&plugin)}], "Bytes": bytes(&list)},
        "Name": "main", "IsFilterV4Gateway": false, "IsFilterV6Gateway": false,
        // v4.3.0 loses keys here that only the plugin knows.
        "Bytes": bytes(&json!({"cniVersion": "1.0.0", "name": "main", "plugins": [{"type": "recorder", "ipam": {}, "dns": {}}]})),
    }]);
    let pod = inherited(harness, "inherited-list", &state.to_string())?;
    harness.del(&pod)?;
    harness.expect_calls(&pod, &["DEL main"])?;
    let call = harness.call(&pod, "DEL", "main")?;
    ensure!(call.stdin["from"] == "list", "{}", call.stdin);
    Ok(())
}

fn missing_with_pod(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("rebuilt", "a,b")?;
    fs::remove_file(harness.state_file(&pod))?;
    harness.del(&pod)?;
    harness.expect_calls(&pod, &WITH_A_AND_B)
}

fn missing_without_pod(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.sandbox("default", "never-was", "0000")?;
    harness.del(&pod)?;
    harness.expect_calls(&pod, &[])
}

fn corrupt(harness: &Harness) -> anyhow::Result<()> {
    for (number, text) in ["", "{", "[{\"Conf\":", "{\"a\": 1}", "\u{0}\u{0}"]
        .into_iter()
        .enumerate()
    {
        let pod = inherited(harness, &format!("corrupt-{number}"), text)?;
        harness.del(&pod)?;
    }
    Ok(())
}

fn corrupt_with_pod(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("corrupt-known", "a")?;
    fs::write(harness.state_file(&pod), "[{\"Conf\":")?;
    harness.del(&pod)?;
    harness.expect_calls(&pod, &WITH_A)
}

fn empty_list(harness: &Harness) -> anyhow::Result<()> {
    let pod = inherited(harness, "empty-list", "[]")?;
    harness
        .cni_request(&pod.env("DEL"), &harness.config()?)?
        .well()
        .map(drop)
}

/// As after a power cut, when the pod no longer exists.
fn truncated(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("cut-off", "a@ext0,b")?;
    let bytes = fs::read(harness.state_file(&pod))?;
    fs::write(harness.state_file(&pod), &bytes[..bytes.len() / 2])?;
    harness.delete_pod(&pod)?;
    harness.wait_for_watch()?;
    harness.del(&pod)?;
    harness.expect_calls(&pod, &WITH_A_AND_B)?;
    let call = harness.call(&pod, "DEL", "a")?;
    ensure!(call.variable("CNI_IFNAME") == "ext0", "{call:?}");
    ensure!(!harness.state_file(&pod).exists(), "the state is left");
    Ok(())
}

fn upstream_without_version(harness: &Harness) -> anyhow::Result<()> {
    let list = json!({"name": "main", "plugins": [{"type": "recorder", "from": "list"}]});
    let state = json!([{
        "Conf": {"ipam": {}, "dns": {}}, "ConfList": {"name": "main", "plugins": [{"type": "recorder", "ipam": {}, "dns": {}}]},
        "Name": "main", "IsFilterV4Gateway": false, "IsFilterV6Gateway": false, "Bytes": bytes(&list),
    }]);
    let pod = inherited(harness, "versionless-list", &state.to_string())?;
    let version = harness.config()?["cniVersion"].clone();
    harness.del(&pod)?;
    let call = harness.call(&pod, "DEL", "main")?;
    ensure!(call.stdin["cniVersion"] == version, "{}", call.stdin);
    Ok(())
}
