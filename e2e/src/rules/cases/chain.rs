//! Chains from folders, and the plugin that does nothing.

use std::{fs, path::PathBuf};

use anyhow::ensure;
use serde_json::{Value, json};

use super::{Case, alone, plain};
use crate::{
    rules::bench::{Bench, Outcome, Pod},
    sh,
    single_node::BIN_DIR,
};

pub(super) const CASES: &[Case] = &[
    plain(
        "chain-of-the-primary",
        &["mux-14.1-chain", "mux-14.1-fresh"],
        subdirectory,
    ),
    plain(
        "chain-torn-down-with-every-key",
        &["mux-12.1-lossless"],
        lossless,
    ),
    plain("chain-of-other-files", &["mux-14.1-files"], other_files),
    plain("chain-without-type", &["mux-14.1-type"], no_type),
    plain("chain-of-a-bad-name", &["mux-14.1-name"], bad_name),
    plain("chain-of-nothing", &["mux-14.1-nothing"], of_nothing),
    plain(
        "chain-of-the-folder-alone",
        &["mux-14.1-alone"],
        folder_alone,
    ),
    plain("chain-inlined-only", &["mux-14.1-inlined"], inlined),
    plain(
        "chain-auxiliary",
        &["mux-14.2-auxiliary", "mux-10.1-order", "mux-14.3-chained"],
        auxiliary,
    ),
    plain(
        "chain-auxiliary-version",
        &["mux-14.2-version"],
        auxiliary_version,
    ),
    plain(
        "chain-auxiliary-broken",
        &["mux-14.2-broken"],
        auxiliary_broken,
    ),
    plain(
        "chain-auxiliary-without-files",
        &["mux-14.2-empty"],
        auxiliary_empty,
    ),
    plain(
        "chain-auxiliary-without-path",
        &["mux-14.2-path"],
        auxiliary_no_path,
    ),
    alone(
        "passthru-add",
        &["mux-14.3-add", "mux-14.3-versions"],
        passthru_add,
    ),
    alone("passthru-other-verbs", &["mux-14.3-del"], passthru_others),
];

const DIR: &str = "/etc/cni/chains";

/// A primary of its own, and a folder for plugins; removed with this.
struct Chain<'a>(&'a Bench);

impl<'a> Chain<'a> {
    fn new(bench: &'a Bench, keys: &Value) -> anyhow::Result<(Self, Value)> {
        let mut list = json!({"cniVersion": "1.0.0", "name": "chained", "plugins": [{"type": "recorder", "place": "inline"}]});
        for (key, value) in keys.as_object().into_iter().flatten() {
            list[key] = value.clone();
        }
        let path = format!("{DIR}/10-chained.conflist");
        bench.scene.node.write(&path, list.to_string())?;
        Ok((Self(bench), json!({"clusterNetwork": path})))
    }

    fn file(&self, name: &str, place: &str) -> anyhow::Result<PathBuf> {
        let path = format!("{DIR}/{name}");
        self.0.scene.node.write(
            &path,
            json!({"type": "recorder", "place": place}).to_string(),
        )?;
        Ok(self.0.scene.node.path(&path))
    }
}

impl Drop for Chain<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.scene.node.path(DIR));
    }
}

fn places(bench: &Bench, pod: &Pod) -> anyhow::Result<Vec<String>> {
    let calls = bench.calls(pod)?;
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

fn subdirectory(bench: &Bench) -> anyhow::Result<()> {
    let (chain, keys) = Chain::new(bench, &json!({}))?;
    chain.file("chained/20-two.conf", "two")?;
    let first = chain.file("chained/10-one.conf", "one")?;
    let pod = bench.pod("chained", "")?;
    bench.add_with(&pod, &keys)?;
    let order = places(bench, &pod)?;
    ensure!(
        order == ["ADD chained inline", "ADD chained one", "ADD chained two"],
        "{order:?}"
    );
    fs::remove_file(first)?;
    let later = bench.pod("chained-later", "")?;
    bench.add_with(&later, &keys)?;
    let order = places(bench, &later)?;
    ensure!(
        order == ["ADD chained inline", "ADD chained two"],
        "{order:?}"
    );
    bench.verb_with("DEL", &pod, &keys)?.well()?;
    let order = bench.order(&pod)?;
    ensure!(
        order[3..] == ["DEL chained", "DEL chained", "DEL chained"],
        "{order:?}"
    );
    Ok(())
}

fn lossless(bench: &Bench) -> anyhow::Result<()> {
    let (chain, keys) = Chain::new(bench, &json!({}))?;
    chain.file("chained/10-one.conf", "one")?;
    let pod = bench.pod("lossless", "")?;
    bench.add_with(&pod, &keys)?;
    bench.verb_with("DEL", &pod, &keys)?.well()?;
    let order = places(bench, &pod)?;
    ensure!(
        order[2..] == ["DEL chained one", "DEL chained inline"],
        "{order:?}"
    );
    Ok(())
}

fn inlined(bench: &Bench) -> anyhow::Result<()> {
    let (chain, keys) = Chain::new(bench, &json!({"loadOnlyInlinedPlugins": true}))?;
    chain.file("chained/10-one.conf", "one")?;
    let pod = bench.pod("inlined", "")?;
    bench.add_with(&pod, &keys)?;
    let order = places(bench, &pod)?;
    ensure!(order == ["ADD chained inline"], "{order:?}");
    Ok(())
}

fn auxiliary(bench: &Bench) -> anyhow::Result<()> {
    let (chain, mut keys) = Chain::new(bench, &json!({}))?;
    chain.file("helpers/10-one.conf", "one")?;
    chain.file("helpers/20-two.conf", "two")?;
    keys["auxiliaryCNIChainName"] = json!("helpers");
    let pod = bench.pod("helped", "a")?;
    bench.add_with(&pod, &keys)?;
    let order = places(bench, &pod)?;
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
    let calls = bench.calls(&pod)?;
    ensure!(calls[3].variable("CNI_IFNAME") == "net2", "{:?}", calls[3]);
    bench.verb_with("DEL", &pod, &keys)?.well()?;
    let order = bench.order(&pod)?;
    ensure!(
        order[4..] == ["DEL helpers", "DEL helpers", "DEL a", "DEL chained"],
        "{order:?}"
    );
    Ok(())
}

fn auxiliary_empty(bench: &Bench) -> anyhow::Result<()> {
    let (_chain, mut keys) = Chain::new(bench, &json!({}))?;
    keys["auxiliaryCNIChainName"] = json!("helpers");
    let pod = bench.pod("helpless", "")?;
    bench.add_with(&pod, &keys)?;
    let status = bench.status(&pod)?;
    ensure!(status.len() == 1, "{status:?}");
    bench.called(&pod, &["ADD chained"])
}

fn auxiliary_no_path(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("helped-by-name", "")?;
    bench
        .verb_with(
            "ADD",
            &pod,
            &json!({"clusterNetwork": "central", "auxiliaryCNIChainName": "helpers"}),
        )?
        .error()?;
    bench.called(&pod, &[])
}

fn passthru(bench: &Bench, verb: &str, version: &str) -> anyhow::Result<Outcome> {
    let mut command = bench.scene.node.command(format!("{BIN_DIR}/passthru"));
    command.envs([
        ("CNI_COMMAND", verb),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", "/run/netns/none"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", BIN_DIR),
    ]);
    let config = json!({"cniVersion": version, "name": "n", "type": "passthru"});
    Ok(sh::output(&mut command, config.to_string().as_bytes())?.into())
}

fn passthru_add(bench: &Bench) -> anyhow::Result<()> {
    for version in ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let result = passthru(bench, "ADD", version)?.well()?;
        ensure!(result["cniVersion"] == version, "{result}");
        for key in ["interfaces", "ips", "routes"] {
            ensure!(result[key].as_array().is_none_or(Vec::is_empty), "{result}");
        }
    }
    for version in ["0.1.0", "0.2.0", "9.9.9"] {
        passthru(bench, "ADD", version)?.has_code(1)?;
    }
    Ok(())
}

fn passthru_others(bench: &Bench) -> anyhow::Result<()> {
    for verb in ["DEL", "CHECK"] {
        let outcome = passthru(bench, verb, "1.0.0")?;
        ensure!(
            outcome.code == Some(0) && outcome.stdout.is_empty(),
            "{verb}: {outcome:?}"
        );
    }
    Ok(())
}

fn other_files(bench: &Bench) -> anyhow::Result<()> {
    let (chain, keys) = Chain::new(bench, &json!({}))?;
    chain.file("chained/10-one.conf", "one")?;
    chain.file("chained/20-two.json", "two")?;
    chain.file("chained/30-three.conf.bak", "three")?;
    chain.file("chained/40-deep/40-four.conf", "four")?;
    let pod = bench.pod("chained-files", "")?;
    bench.add_with(&pod, &keys)?;
    let order = places(bench, &pod)?;
    ensure!(
        order == ["ADD chained inline", "ADD chained one"],
        "{order:?}"
    );
    Ok(())
}

fn refused(bench: &Bench, name: &str, keys: &Value, word: &str) -> anyhow::Result<()> {
    let pod = bench.pod(name, "")?;
    bench.verb_with("ADD", &pod, keys)?.tells(&[word])?;
    bench.called(&pod, &[])
}

fn no_type(bench: &Bench) -> anyhow::Result<()> {
    let (chain, keys) = Chain::new(bench, &json!({}))?;
    let path = chain.file("chained/10-one.conf", "one")?;
    fs::write(path, r#"{"place": "one"}"#)?;
    refused(bench, "chained-typeless", &keys, "10-chained.conflist")
}

fn bad_name(bench: &Bench) -> anyhow::Result<()> {
    let (_chain, keys) = Chain::new(bench, &json!({"name": "../chains"}))?;
    refused(bench, "chained-badly", &keys, "10-chained.conflist")
}

fn of_nothing(bench: &Bench) -> anyhow::Result<()> {
    let (_chain, keys) = Chain::new(bench, &json!({"plugins": []}))?;
    refused(bench, "chained-to-nothing", &keys, "10-chained.conflist")
}

fn folder_alone(bench: &Bench) -> anyhow::Result<()> {
    let (chain, keys) = Chain::new(bench, &json!({}))?;
    chain.file("chained/10-one.conf", "one")?;
    let list = json!({"cniVersion": "1.0.0", "name": "chained"}).to_string();
    let path = format!("{DIR}/10-chained.conflist");
    bench.scene.node.write(&path, list)?;
    let pod = bench.pod("chained-alone", "")?;
    bench.add_with(&pod, &keys)?;
    let order = places(bench, &pod)?;
    ensure!(order == ["ADD chained one"], "{order:?}");
    Ok(())
}

fn auxiliary_version(bench: &Bench) -> anyhow::Result<()> {
    let (chain, mut keys) = Chain::new(bench, &json!({}))?;
    chain.file("helpers/10-one.conf", "one")?;
    keys["auxiliaryCNIChainName"] = json!("helpers");
    let pod = bench.pod("helped-by-version", "")?;
    bench.add_with(&pod, &keys)?;
    let call = bench.call(&pod, "ADD", "helpers")?;
    // The one before it gave a result that holds nothing.
    let result = &call.stdin["prevResult"];
    ensure!(
        call.stdin["cniVersion"] == bench.config()?["cniVersion"] && result.is_object(),
        "{}",
        call.stdin
    );
    for key in ["interfaces", "ips", "routes"] {
        ensure!(result[key].as_array().is_none_or(Vec::is_empty), "{result}");
    }
    Ok(())
}

fn auxiliary_broken(bench: &Bench) -> anyhow::Result<()> {
    let (chain, mut keys) = Chain::new(bench, &json!({}))?;
    let path = chain.file("helpers/10-one.conf", "one")?;
    fs::write(path, "{")?;
    keys["auxiliaryCNIChainName"] = json!("helpers");
    refused(bench, "helped-badly", &keys, "10-one.conf")
}
