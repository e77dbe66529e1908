//! What the daemon answers when something is wrong.

use anyhow::{Context as _, ensure};

use super::{Case, plain};
use crate::{rules::bench::Bench, single_node::BIN_DIR};

pub(super) const CASES: &[Case] = &[
    plain("errors-typed", &["mux-4-typed-error"], typed),
    plain("errors-words", &["mux-4-error-words"], words),
    plain("errors-of-text", &["mux-4-errored"], text),
];

fn typed(bench: &Bench) -> anyhow::Result<()> {
    let config = bench.config_with(&bench.own_primary("socket-typed", "1.1.0")?)?;
    bench.fails("socket-typed", "STATUS", 51, "few addresses")?;
    let answer = bench.request(&[("CNI_COMMAND", "STATUS"), ("CNI_PATH", BIN_DIR)], &config)?;
    let body = answer.json()?;
    ensure!(
        answer.status == 400 && answer.headers.contains("content-type: application/json"),
        "{answer:?}"
    );
    ensure!(body["code"] == 51 && body["details"] == "told to", "{body}");
    ensure!(
        body["msg"]
            .as_str()
            .is_some_and(|msg| msg.contains("few addresses")),
        "{body}"
    );
    Ok(())
}

fn words(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("unlucky", "")?;
    bench.fails("primary", "ADD", 7, "no luck")?;
    let answer = bench.request(&pod.env("ADD"), &bench.config()?)?;
    let text = answer.text();
    ensure!(answer.status == 400, "{text}");
    for word in ["default/unlucky", &pod.uid, "no luck"] {
        ensure!(text.contains(word), "no {word} in {text}");
    }
    Ok(())
}

/// Whether errors are text or typed is one implementation's choice, what a text looks like is not.
fn text(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("texted", "")?;
    bench.fails("primary", "ADD", 7, "no luck")?;
    let answer = bench.request(&pod.env("ADD"), &bench.config()?)?;
    ensure!(answer.status == 400, "{answer:?}");
    if answer.headers.contains("content-type: application/json") {
        let error = answer.json()?;
        ensure!(
            error["code"].is_u64() && error["msg"].is_string(),
            "it is no typed error: {error}"
        );
        return Ok(());
    }
    let text = answer.text();
    let (before, after) = text
        .split_once(" ERRORED: ")
        .with_context(|| format!("no ERRORED: {text}"))?;
    for word in [
        format!("ContainerID:{:?}", pod.id),
        format!("Netns:{:?}", pod.netns()),
        "IfName:\"eth0\"".to_owned(),
    ] {
        ensure!(before.contains(&word), "no {word} before ERRORED: {text}");
    }
    ensure!(after.contains("no luck"), "{text}");
    Ok(())
}
