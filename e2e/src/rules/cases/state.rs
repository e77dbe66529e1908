//! State files, ours and upstream's.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use serde_json::{Value, json};

use super::{Case, plain};
use crate::rules::{
    bench::{Bench, Pod, WITH_A, WITH_A_AND_B},
    definitions::recorder,
};

pub(super) const CASES: &[Case] = &[
    plain("state-place-and-mode", &["mux-12.1-place"], place),
    plain("state-form", &["mux-12.1-form"], form),
    plain("state-keeps-requests", &["mux-12.1-requests"], requests),
    plain("state-of-upstream", &["mux-12.1-upstream"], upstream),
    plain(
        "state-of-upstream-with-lists",
        &["mux-12.1-upstream-list"],
        upstream_list,
    ),
    plain("state-missing-with-pod", &["mux-12.2-rebuilt"], rebuilt),
    plain("state-missing-without-pod", &["mux-12.2-nothing"], nothing),
    plain(
        "state-corrupt-is-no-obstacle",
        &["mux-12.2-corrupt"],
        corrupt,
    ),
    plain(
        "state-corrupt-and-the-pod-known",
        &["mux-12.2-corrupt-pod"],
        corrupt_pod,
    ),
    plain("state-cut-off", &["mux-12.1-damaged"], cut_off),
    plain(
        "state-of-upstream-without-version",
        &["mux-12.2-version"],
        versionless,
    ),
    plain("state-empty-list", &["mux-12.2-empty-list"], empty),
];

fn place(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("placed", "")?;
    bench.add(&pod)?;
    let mode = |path| anyhow::Ok(fs::metadata(path)?.permissions().mode() & 0o777);
    let file = bench.state_file(&pod);
    let (file, dir) = (
        mode(file.clone())?,
        mode(file.parent().context("a file lies in a folder")?.to_owned())?,
    );
    ensure!(
        (dir, file) == (0o700, 0o600),
        "directory {dir:o}, file {file:o}"
    );
    bench.del(&pod)?;
    ensure!(!bench.state_file(&pod).exists(), "it is left");
    Ok(())
}

fn form(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("formed", "a,list")?;
    bench.add(&pod)?;
    let state = bench.state(&pod)?;
    let names: Vec<_> = state
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| one["Name"].as_str().unwrap_or_default().to_owned())
        .collect();
    // Upstream calls the primary by its own name, definitions by theirs.
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

fn requests(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("requesting", r#"[{"name": "a", "interface": "ext0", "ips": ["10.66.0.7/24"], "mac": "02:00:00:00:00:07"}]"#)?;
    bench.add(&pod)?;
    let one = &bench.state(&pod)?[1];
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

/// A pod that the API server does not know, with state that somebody else wrote.
fn inherited(bench: &Bench, name: &str, state: &str) -> anyhow::Result<Pod> {
    let pod = bench.sandbox("default", name, "0000")?;
    bench
        .scene
        .node
        .write(&format!("/var/lib/cni/multus/{}", pod.id), state)?;
    Ok(pod)
}

/// One network as upstream writes it.
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

fn upstream(bench: &Bench) -> anyhow::Result<()> {
    let state = json!([
        single("main", &json!({})),
        single("kept", &json!({"ifnameRequest": "ext0"})),
        single("last", &json!({}))
    ]);
    let pod = inherited(bench, "inherited", &state.to_string())?;
    bench.del(&pod)?;
    bench.called(&pod, &["DEL last", "DEL kept", "DEL main"])?;
    let calls = bench.calls(&pod)?;
    let names: Vec<_> = calls
        .iter()
        .map(|call| call.variable("CNI_IFNAME"))
        .collect();
    ensure!(names == ["net2", "ext0", "eth0"], "{names:?}");
    ensure!(
        calls.iter().all(|call| call.stdin["from"] == "state"),
        "{calls:?}"
    );
    ensure!(!bench.state_file(&pod).exists(), "the state is left");
    Ok(())
}

fn upstream_list(bench: &Bench) -> anyhow::Result<()> {
    let list = json!({"cniVersion": "1.0.0", "name": "main", "plugins": [{"type": "recorder", "from": "list"}]});
    let plugin = json!({"type": "recorder", "from": "list"});
    let state = json!([{
        "Conf": {"ipam": {}, "dns": {}}, "ConfList": {"cniVersion": "1.0.0", "name": "main", "plugins": [{"type": "recorder", "ipam": {}, "dns": {}}]},
        "CNINetworkConfigList": {"Name": "main", "CNIVersion": "1.0.0", "DisableCheck": false, "DisableGC": false, "LoadOnlyInlinedPlugins": false,
            "Plugins": [{"Network": {"type": "recorder", "ipam": {}, "dns": {}}, "Bytes": bytes(&plugin)}], "Bytes": bytes(&list)},
        "Name": "main", "IsFilterV4Gateway": false, "IsFilterV6Gateway": false,
        // As v4.3.0 writes them: what only the plugin knows is lost here.
        "Bytes": bytes(&json!({"cniVersion": "1.0.0", "name": "main", "plugins": [{"type": "recorder", "ipam": {}, "dns": {}}]})),
    }]);
    let pod = inherited(bench, "inherited-list", &state.to_string())?;
    bench.del(&pod)?;
    bench.called(&pod, &["DEL main"])?;
    let call = bench.call(&pod, "DEL", "main")?;
    ensure!(call.stdin["from"] == "list", "{}", call.stdin);
    Ok(())
}

fn rebuilt(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("rebuilt", "a,b")?;
    bench.add(&pod)?;
    fs::remove_file(bench.state_file(&pod))?;
    bench.del(&pod)?;
    bench.called(&pod, &WITH_A_AND_B)
}

fn nothing(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.sandbox("default", "never-was", "0000")?;
    bench.del(&pod)?;
    bench.called(&pod, &[])
}

fn corrupt(bench: &Bench) -> anyhow::Result<()> {
    for (number, text) in ["", "{", "[{\"Conf\":", "{\"a\": 1}", "\u{0}\u{0}"]
        .into_iter()
        .enumerate()
    {
        let pod = inherited(bench, &format!("corrupt-{number}"), text)?;
        bench.del(&pod)?;
    }
    Ok(())
}

fn corrupt_pod(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("corrupt-known", "a")?;
    bench.add(&pod)?;
    fs::write(bench.state_file(&pod), "[{\"Conf\":")?;
    bench.del(&pod)?;
    bench.called(&pod, &WITH_A)
}

fn empty(bench: &Bench) -> anyhow::Result<()> {
    let pod = inherited(bench, "empty-list", "[]")?;
    bench
        .request(&pod.env("DEL"), &bench.config()?)?
        .well()
        .map(drop)
}

/// As after a loss of power, with nobody left to ask.
fn cut_off(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("cut-off", "a@ext0,b")?;
    bench.add(&pod)?;
    let bytes = fs::read(bench.state_file(&pod))?;
    fs::write(bench.state_file(&pod), &bytes[..bytes.len() / 2])?;
    bench.delete(&pod)?;
    bench.settle()?;
    bench.del(&pod)?;
    bench.called(&pod, &WITH_A_AND_B)?;
    let call = bench.call(&pod, "DEL", "a")?;
    ensure!(call.variable("CNI_IFNAME") == "ext0", "{call:?}");
    ensure!(!bench.state_file(&pod).exists(), "its state is left");
    Ok(())
}

/// A list without a version is of that of the configuration.
fn versionless(bench: &Bench) -> anyhow::Result<()> {
    let list = json!({"name": "main", "plugins": [{"type": "recorder", "from": "list"}]});
    let state = json!([{
        "Conf": {"ipam": {}, "dns": {}}, "ConfList": {"name": "main", "plugins": [{"type": "recorder", "ipam": {}, "dns": {}}]},
        "Name": "main", "IsFilterV4Gateway": false, "IsFilterV6Gateway": false, "Bytes": bytes(&list),
    }]);
    let pod = inherited(bench, "versionless-list", &state.to_string())?;
    let version = bench.config()?["cniVersion"].clone();
    bench.del(&pod)?;
    let call = bench.call(&pod, "DEL", "main")?;
    ensure!(call.stdin["cniVersion"] == version, "{}", call.stdin);
    Ok(())
}
