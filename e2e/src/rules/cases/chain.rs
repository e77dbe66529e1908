//! Cases of subject `chain`: Chains of plugins from directories.

use std::{fs, path::PathBuf};

use anyhow::ensure;
use serde_json::{Value, json};

use super::cases;
use crate::rules::harness::{Harness, Pod};

cases! { "chain":
    plain directory ["chain.directory", "chain.read-at-add"]
    plain inlined_only ["chain.inlined-only"]
    plain directory_only ["chain.directory-only"]
    plain other_files ["chain.files"]
    plain without_type ["chain.type"]
    plain bad_name ["chain.name"]
    plain without_plugins ["chain.no-plugins"]
    plain del_with_every_key ["state.lossless"]
    plain auxiliary ["chain.auxiliary", "add.order", "passthru.chained"]
    plain auxiliary_version ["chain.auxiliary-version"]
    plain auxiliary_without_files ["chain.auxiliary-empty"]
    plain auxiliary_broken_file ["chain.auxiliary-broken"]
    plain auxiliary_without_path ["chain.auxiliary-path"]
}

const DIR: &str = "/etc/cni/chains";

/// A default network with directories for further plugins, removed on drop.
struct Chain<'a>(&'a Harness);

impl<'a> Chain<'a> {
    fn new(harness: &'a Harness, keys: &Value) -> anyhow::Result<(Self, Value)> {
        let mut list = json!({"cniVersion": "1.0.0", "name": "chained", "plugins": [{"type": "recorder", "place": "inline"}]});
        for (key, value) in keys.as_object().into_iter().flatten() {
            list[key] = value.clone();
        }
        let path = format!("{DIR}/10-chained.conflist");
        harness.node().write(&path, list.to_string())?;
        Ok((Self(harness), json!({"clusterNetwork": path})))
    }

    fn file(&self, name: &str, place: &str) -> anyhow::Result<PathBuf> {
        let path = format!("{DIR}/{name}");
        self.0.node().write(
            &path,
            json!({"type": "recorder", "place": place}).to_string(),
        )?;
        Ok(self.0.node().path(&path))
    }
}

impl Drop for Chain<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.node().path(DIR));
    }
}

fn calls_by_place(harness: &Harness, pod: &Pod) -> anyhow::Result<Vec<String>> {
    let calls = harness.calls(pod)?;
    Ok(calls
        .iter()
        .map(|call| {
            format!(
                "{} {} {}",
                call.verb,
                call.network(),
                call.stdin["place"].as_str().unwrap_or_default()
            )
        })
        .collect())
}

/// Attaches a pod, and fails unless these are the calls of plugins, with their places in the chain.
fn add_calls(
    harness: &Harness,
    name: &str,
    keys: &Value,
    expected: &[&str],
) -> anyhow::Result<Pod> {
    let pod = harness.attach_with(name, "", keys)?;
    let order = calls_by_place(harness, &pod)?;
    ensure!(order == expected, "{order:?}");
    Ok(pod)
}

fn directory(harness: &Harness) -> anyhow::Result<()> {
    let (chain, keys) = Chain::new(harness, &json!({}))?;
    chain.file("chained/20-two.conf", "two")?;
    let first = chain.file("chained/10-one.conf", "one")?;
    let calls = ["ADD chained inline", "ADD chained one", "ADD chained two"];
    let pod = add_calls(harness, "chained", &keys, &calls)?;
    fs::remove_file(first)?;
    add_calls(harness, "chained-later", &keys, &[calls[0], calls[2]])?;
    harness.verb_with("DEL", &pod, &keys)?.success()?;
    let order = harness.call_order(&pod)?;
    ensure!(
        order[3..] == ["DEL chained", "DEL chained", "DEL chained"],
        "{order:?}"
    );
    Ok(())
}

fn del_with_every_key(harness: &Harness) -> anyhow::Result<()> {
    let (chain, keys) = Chain::new(harness, &json!({}))?;
    chain.file("chained/10-one.conf", "one")?;
    let pod = harness.attach_with("lossless", "", &keys)?;
    harness.verb_with("DEL", &pod, &keys)?.success()?;
    let order = calls_by_place(harness, &pod)?;
    ensure!(
        order[2..] == ["DEL chained one", "DEL chained inline"],
        "{order:?}"
    );
    Ok(())
}

fn inlined_only(harness: &Harness) -> anyhow::Result<()> {
    let (chain, keys) = Chain::new(harness, &json!({"loadOnlyInlinedPlugins": true}))?;
    chain.file("chained/10-one.conf", "one")?;
    add_calls(harness, "inlined", &keys, &["ADD chained inline"]).map(drop)
}

fn auxiliary(harness: &Harness) -> anyhow::Result<()> {
    let (chain, mut keys) = Chain::new(harness, &json!({}))?;
    chain.file("helpers/10-one.conf", "one")?;
    chain.file("helpers/20-two.conf", "two")?;
    keys["auxiliaryCNIChainName"] = json!("helpers");
    let pod = harness.attach_with("helped", "a", &keys)?;
    let order = calls_by_place(harness, &pod)?;
    ensure!(
        order
            == [
                "ADD chained inline",
                "ADD a ",
                "ADD helpers one",
                "ADD helpers two"
            ],
        "{order:?}"
    );
    let calls = harness.calls(&pod)?;
    ensure!(calls[3].variable("CNI_IFNAME") == "net2", "{:?}", calls[3]);
    harness.verb_with("DEL", &pod, &keys)?.success()?;
    let order = harness.call_order(&pod)?;
    ensure!(
        order[4..] == ["DEL helpers", "DEL helpers", "DEL a", "DEL chained"],
        "{order:?}"
    );
    Ok(())
}

fn auxiliary_without_files(harness: &Harness) -> anyhow::Result<()> {
    let (_chain, mut keys) = Chain::new(harness, &json!({}))?;
    keys["auxiliaryCNIChainName"] = json!("helpers");
    let pod = harness.attach_with("helpless", "", &keys)?;
    let status = harness.network_status(&pod)?;
    ensure!(status.len() == 1, "{status:?}");
    harness.expect_calls(&pod, &["ADD chained"])
}

fn auxiliary_without_path(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("helped-by-name", "")?;
    let keys = json!({"clusterNetwork": "central", "auxiliaryCNIChainName": "helpers"});
    harness.ensure_refused_with(&pod, &keys, &[])
}

fn other_files(harness: &Harness) -> anyhow::Result<()> {
    let (chain, keys) = Chain::new(harness, &json!({}))?;
    chain.file("chained/10-one.conf", "one")?;
    chain.file("chained/20-two.json", "two")?;
    chain.file("chained/30-three.conf.bak", "three")?;
    chain.file("chained/40-deep/40-four.conf", "four")?;
    add_calls(
        harness,
        "chained-files",
        &keys,
        &["ADD chained inline", "ADD chained one"],
    )
    .map(drop)
}

fn refused(harness: &Harness, name: &str, keys: &Value, word: &str) -> anyhow::Result<()> {
    let pod = harness.pod(name, "")?;
    harness.ensure_refused_with(&pod, keys, &[word])
}

fn without_type(harness: &Harness) -> anyhow::Result<()> {
    let (chain, keys) = Chain::new(harness, &json!({}))?;
    let path = chain.file("chained/10-one.conf", "one")?;
    fs::write(path, r#"{"place": "one"}"#)?;
    refused(harness, "chained-typeless", &keys, "10-chained.conflist")
}

fn bad_name(harness: &Harness) -> anyhow::Result<()> {
    let (_chain, keys) = Chain::new(harness, &json!({"name": "../chains"}))?;
    refused(harness, "chained-badly", &keys, "10-chained.conflist")
}

fn without_plugins(harness: &Harness) -> anyhow::Result<()> {
    let (_chain, keys) = Chain::new(harness, &json!({"plugins": []}))?;
    refused(harness, "chained-to-nothing", &keys, "10-chained.conflist")
}

fn directory_only(harness: &Harness) -> anyhow::Result<()> {
    let (chain, keys) = Chain::new(harness, &json!({}))?;
    chain.file("chained/10-one.conf", "one")?;
    let list = json!({"cniVersion": "1.0.0", "name": "chained"}).to_string();
    let path = format!("{DIR}/10-chained.conflist");
    harness.node().write(&path, list)?;
    add_calls(harness, "chained-alone", &keys, &["ADD chained one"]).map(drop)
}

fn auxiliary_version(harness: &Harness) -> anyhow::Result<()> {
    let (chain, mut keys) = Chain::new(harness, &json!({}))?;
    chain.file("helpers/10-one.conf", "one")?;
    keys["auxiliaryCNIChainName"] = json!("helpers");
    let pod = harness.attach_with("helped-by-version", "", &keys)?;
    let call = harness.call(&pod, "ADD", "helpers")?;
    // `passthru`, the plugin before it, returned an empty result.
    let result = &call.stdin["prevResult"];
    ensure!(
        call.stdin["cniVersion"] == harness.config()?["cniVersion"] && result.is_object(),
        "{}",
        call.stdin
    );
    for key in ["interfaces", "ips", "routes"] {
        ensure!(result[key].as_array().is_none_or(Vec::is_empty), "{result}");
    }
    Ok(())
}

fn auxiliary_broken_file(harness: &Harness) -> anyhow::Result<()> {
    let (chain, mut keys) = Chain::new(harness, &json!({}))?;
    let path = chain.file("helpers/10-one.conf", "one")?;
    fs::write(path, "{")?;
    keys["auxiliaryCNIChainName"] = json!("helpers");
    refused(harness, "helped-badly", &keys, "10-one.conf")
}
