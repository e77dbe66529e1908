//! Chains from folders, and the plugin that does nothing.

use std::{fs, path::PathBuf};

use anyhow::ensure;
use serde_json::{Value, json};

use super::{Case, alone, plain};
use crate::{
    rules::bench::{Bench, Outcome, Pod},
    scene::BIN_DIR,
    sh,
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
    plain("chain-inlined-only", &["mux-14.1-inlined"], inlined),
    plain(
        "chain-auxiliary",
        &["mux-14.2-auxiliary", "mux-10.1-order", "mux-14.3-chained"],
        auxiliary,
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
