//! Cases of subject `errors`: Errors.

use std::fs;

use anyhow::{Context as _, ensure};

use super::cases;
use crate::{rules::harness::Harness, single_node::BIN_DIR};

cases! { "errors":
    plain add ["errors.add", "errors.shim"]
    plain code_of_the_plugin ["errors.code"]
    plain typed ["errors.typed"]
    plain text ["errors.text"]
    plain pod_and_cause ["errors.pod-and-cause"]
    plain short ["errors.short", "errors.log"]
}

fn add(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("worded", "b")?;
    harness.set_error("b", "ADD", 7, "no luck at all")?;
    harness.verb("ADD", &pod)?.error_contains(&[
        "CmdAdd (shim):",
        "error configuring pod [default/worded] networking",
        &format!("[default/worded/{}:b]", pod.uid),
        "error adding container to network",
        "no luck at all",
    ])
}

fn code_of_the_plugin(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("coded", "b")?;
    harness.set_error("b", "ADD", 117, "no luck")?;
    let outcome = harness.verb("ADD", &pod)?;
    outcome.has_code(117)?;
    ensure!(
        outcome.error()?["details"] == "by the case",
        "{:?}",
        outcome.error()?
    );
    Ok(())
}

fn typed(harness: &Harness) -> anyhow::Result<()> {
    let config = harness.config_with(&harness.own_default_network("socket-typed", "1.1.0")?)?;
    harness.set_error("socket-typed", "STATUS", 51, "few addresses")?;
    let answer =
        harness.cni_request(&[("CNI_COMMAND", "STATUS"), ("CNI_PATH", BIN_DIR)], &config)?;
    let body = answer.json()?;
    ensure!(
        answer.status == 400 && answer.headers.contains("content-type: application/json"),
        "{answer:?}"
    );
    ensure!(
        body["code"] == 51 && body["details"] == "by the case",
        "{body}"
    );
    ensure!(
        body["msg"]
            .as_str()
            .is_some_and(|msg| msg.contains("few addresses")),
        "{body}"
    );
    Ok(())
}

fn pod_and_cause(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("unlucky", "")?;
    harness.set_error("primary", "ADD", 7, "no luck")?;
    let answer = harness.cni_request(&pod.env("ADD"), &harness.config()?)?;
    let text = answer.text();
    ensure!(answer.status == 400, "{text}");
    for word in ["default/unlucky", &pod.uid, "no luck"] {
        ensure!(text.contains(word), "no {word} in {text}");
    }
    Ok(())
}

/// An implementation may type its errors; those that are text have the form of upstream's.
fn text(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("texted", "")?;
    harness.set_error("primary", "ADD", 7, "no luck")?;
    let answer = harness.cni_request(&pod.env("ADD"), &harness.config()?)?;
    ensure!(answer.status == 400, "{answer:?}");
    if answer.headers.contains("content-type: application/json") {
        let error = answer.json()?;
        ensure!(
            error["code"].is_u64() && error["msg"].is_string(),
            "the error has no code or text: {error}"
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

fn short(harness: &Harness) -> anyhow::Result<()> {
    let name = format!("long-{}", "n".repeat(40));
    let pod = harness.pod(&name, "a")?;
    let cause = format!(
        "the range is used up{}, enlarge it",
        " by many pods".repeat(60)
    );
    harness.set_error("a", "ADD", 7, &cause)?;
    let error = harness.verb("ADD", &pod)?.error()?;
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    let all = format!("{}; {}", text("msg"), text("details"));
    ensure!(
        all.chars().count() < 300 && !all.contains('\n'),
        "{} characters: {all}",
        all.len()
    );
    for word in [&name, "network \"a\"", "the range", "enlarge it"] {
        ensure!(all.contains(word), "no {word} in {all}");
    }
    let id = all
        .split_once("(id ")
        .and_then(|(_, rest)| rest.split_once(')'))
        .context(format!("no id in {all}"))?
        .0;
    let log = fs::read_to_string(harness.daemon_log()?)?;
    let line = log.lines().find(|line| line.contains(id));
    let line = line.with_context(|| format!("the log has no {id}"))?;
    ensure!(
        line.contains(&cause) && line.contains("by the case"),
        "{line}"
    );
    harness.wait_for_event(&pod, "FailedAddNetwork", id)?;
    for event in harness.events(&pod)? {
        let length = event["message"]
            .as_str()
            .map_or(0, |text| text.chars().count());
        ensure!(length < 300, "{event}");
    }
    Ok(())
}
