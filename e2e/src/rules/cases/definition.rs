//! Cases of subject `definition`: Network definitions.

use anyhow::ensure;
use serde_json::{Value, json};

use super::cases;
use crate::{
    control_plane::objects,
    rules::{
        definitions::recorder,
        harness::{DaemonSetup, Harness, Pod, WITH_A},
    },
    sh,
};

cases! { "definition":
    plain list ["definition.list", "plugin.list-keys"]
    plain numbers ["definition.numbers"]
    plain without_name ["definition.name", "definition.unchanged"]
    plain without_version ["definition.no-version"]
    plain not_found ["definition.not-found", "events.not-found"]
    plain invalid ["definition.invalid", "definition.no-type"]
    plain without_plugins ["definition.no-plugins"]
    plain created_and_deleted ["definition.changes", "del.without-pod"]
    own_daemon deleted_without_daemon ["del.after-restart"]
    plain on_disk ["definition.on-disk", "config.conf-dir"]
    plain on_disk_missing ["definition.on-disk-missing"]
    plain on_disk_order ["definition.on-disk-order"]
    plain on_disk_broken_file ["definition.on-disk-broken"]
    plain on_disk_other_files ["definition.on-disk-extensions"]
}

fn without_name(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("nameless", "nameless")?;
    let call = harness.call(&pod, "ADD", "nameless")?;
    ensure!(
        call.stdin["zeta"] == 1 && call.stdin["alpha"] == json!({"deep": [1, 2]}),
        "{}",
        call.stdin
    );
    ensure!(call.stdin["cniVersion"] == "1.0.0", "{}", call.stdin);
    harness.del(&pod)?;
    let call = harness.call(&pod, "DEL", "nameless")?;
    ensure!(
        call.stdin["zeta"] == 1 && call.stdin["alpha"] == json!({"deep": [1, 2]}),
        "{}",
        call.stdin
    );
    Ok(())
}

fn numbers(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("exact", "exact")?;
    harness.del(&pod)?;
    for verb in ["ADD", "DEL"] {
        let call = harness.call(&pod, verb, "exact")?;
        ensure!(
            call.stdin["big"].as_u64() == Some(9_007_199_254_740_993),
            "{verb}: {}",
            call.stdin["big"]
        );
        ensure!(
            call.stdin["text"] == "<&>",
            "{verb}: {}",
            call.stdin["text"]
        );
    }
    Ok(())
}

fn on_disk(harness: &Harness) -> anyhow::Result<()> {
    let _files = harness.conf_files(&[("50-any.conf", single("on-disk", "file"))])?;
    let pod = harness.attach("empty", "on-disk")?;
    let call = harness.call(&pod, "ADD", "on-disk")?;
    ensure!(call.stdin["from"] == "file", "{}", call.stdin);
    let status = harness.network_status(&pod)?;
    ensure!(status[1]["name"] == "default/on-disk", "{status:?}");
    Ok(())
}

fn on_disk_missing(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("empty-missing", "nowhere-on-disk")?;
    harness.ensure_refused(&pod, &[])
}

fn invalid(harness: &Harness) -> anyhow::Result<()> {
    for network in ["no-json", "no-object", "no-type"] {
        let pod = harness.pod(&format!("invalid-{network}"), network)?;
        harness.ensure_refused(&pod, &[])?;
    }
    Ok(())
}

fn without_plugins(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("pluginless", "no-plugins")?;
    harness.verb("ADD", &pod)?.error_contains(&["no-plugins"])
}

fn list(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("listed", "list")?;
    harness.del(&pod)?;
    let calls: Vec<_> = harness
        .calls(&pod)?
        .into_iter()
        .filter(|call| call.network() == "list")
        .collect();
    let order: Vec<_> = calls
        .iter()
        .map(|call| {
            (
                call.verb.as_str(),
                call.stdin["type"].as_str().unwrap_or_default(),
            )
        })
        .collect();
    let expected = [
        ("ADD", "recorder"),
        ("ADD", "recorder-other"),
        ("DEL", "recorder-other"),
        ("DEL", "recorder"),
    ];
    ensure!(order == expected, "{order:?}");
    ensure!(
        calls.iter().all(|call| call.stdin["cniVersion"] == "1.0.0"),
        "{calls:?}"
    );
    ensure!(
        calls[0].stdin["prevResult"].is_null() && calls[0].stdin["first"] == true,
        "{}",
        calls[0].stdin
    );
    ensure!(
        calls[1].stdin["prevResult"]["ips"][0]["address"] == "10.66.0.2/24",
        "{}",
        calls[1].stdin
    );
    Ok(())
}

fn not_found(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("missing", "unknown-network")?;
    harness.ensure_refused(
        &pod,
        &["cannot find a network-attachment-definition (unknown-network) in namespace (default)"],
    )?;
    harness.wait_for_event(
        &pod,
        "NoNetworkFound",
        "cannot find a network-attachment-definition (unknown-network) in namespace (default)",
    )
}

/// Returns the text of a configuration with a single plugin and its origin.
fn single(name: &str, from: &str) -> String {
    recorder(name, &json!({"from": from})).to_string()
}

fn list_from(name: &str, from: &str) -> String {
    json!({"cniVersion": "1.0.0", "name": name, "plugins": [{"type": "recorder", "from": from}]})
        .to_string()
}

/// Attaches a pod with the network `on-disk` and returns the origin of its configuration.
fn origin(harness: &Harness, name: &str) -> anyhow::Result<Value> {
    let pod = harness.attach(name, "on-disk")?;
    Ok(harness.call(&pod, "ADD", "on-disk")?.stdin["from"].clone())
}

fn on_disk_order(harness: &Harness) -> anyhow::Result<()> {
    let (conf, conflist) = (single("on-disk", "conf"), list_from("on-disk", "list"));
    let other = single("another", "another");
    for (name, files, expected) in [
        (
            "disk-0",
            [("10-a.conf", &conf), ("20-b.conflist", &conflist)],
            "conf",
        ),
        (
            "disk-1",
            [("10-a.conflist", &conflist), ("20-b.conf", &conf)],
            "list",
        ),
        (
            "disk-2",
            [("10-a.json", &conf), ("9-b.conflist", &conflist)],
            "conf",
        ),
        (
            "disk-3",
            [("10-a.conf", &other), ("20-b.conflist", &conflist)],
            "list",
        ),
    ] {
        let _files = harness.conf_files(&files)?;
        let from = origin(harness, name)?;
        ensure!(from == expected, "{name}: {from}");
    }
    Ok(())
}

fn on_disk_broken_file(harness: &Harness) -> anyhow::Result<()> {
    let conf = single("on-disk", "conf");
    {
        let _files = harness.conf_files(&[("10-a.conf", "{"), ("20-b.conf", conf.as_str())])?;
        let pod = harness.pod("disk-broken", "on-disk")?;
        harness.ensure_refused(&pod, &["10-a.conf"])?;
    }
    // A broken file that comes later is not read.
    let _files = harness.conf_files(&[("20-b.conf", conf.as_str()), ("30-c.conf", "{")])?;
    origin(harness, "disk-broken-later").map(drop)
}

fn on_disk_other_files(harness: &Harness) -> anyhow::Result<()> {
    let (conf, backup) = (single("on-disk", "conf"), single("on-disk", "backup"));
    let files = [
        ("10-a.conf.bak", backup.as_str()),
        ("11-README", "read me"),
        ("20-b.conf", conf.as_str()),
    ];
    let _files = harness.conf_files(&files)?;
    let from = origin(harness, "disk-others")?;
    ensure!(from == "conf", "{from}");
    Ok(())
}

fn without_version(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("versionless", "versionless")?;
    let call = harness.call(&pod, "ADD", "versionless")?;
    let version = call.stdin["cniVersion"].as_str().unwrap_or_default();
    ensure!(version.is_empty(), "{}", call.stdin);
    Ok(())
}

const DEFINITIONS: &str =
    "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions";

/// Creates a definition that did not exist when the daemon started.
fn define(harness: &Harness, name: &str) -> anyhow::Result<()> {
    let network = objects::network(name, &recorder(name, &json!({})));
    harness.api("POST", DEFINITIONS, &network)?.json().map(drop)
}

fn undefine(harness: &Harness, name: &str) -> anyhow::Result<()> {
    let path = format!("{DEFINITIONS}/{name}");
    harness.api("DELETE", &path, &Value::Null).map(drop)
}

/// Attaches the pod as soon as the daemon knows the definition.
fn attach(harness: &Harness, pod: &Pod) -> anyhow::Result<()> {
    sh::until(10, "the daemon knows the definition", || {
        harness.add(pod).map(drop)
    })
}

fn created_and_deleted(harness: &Harness) -> anyhow::Result<()> {
    define(harness, "short-lived")?;
    let pod = harness.pod("guest", "short-lived")?;
    attach(harness, &pod)?;
    undefine(harness, "short-lived")?;
    let late = harness.pod("too-late", "short-lived")?;
    sh::until(10, "the daemon no longer knows the definition", || {
        let outcome = harness.verb("ADD", &late)?;
        if outcome.code == Some(0) {
            harness.del(&late)?;
        }
        outcome.error_contains(&["cannot find a network-attachment-definition (short-lived)"])
    })?;
    harness.del(&pod)?;
    let order = harness.call_order(&pod)?;
    ensure!(
        order.ends_with(&["DEL short-lived".into(), "DEL primary".into()]),
        "{order:?}"
    );
    Ok(())
}

fn deleted_without_daemon(harness: &Harness) -> anyhow::Result<()> {
    let file = DaemonSetup::Plain.file();
    harness.start_daemon(&file)?;
    define(harness, "left-alone")?;
    let networks = r#"[{"name": "left-alone", "cni-args": {"tier": "gold"}}]"#;
    let pod = harness.pod("survivor", networks)?;
    attach(harness, &pod)?;
    harness.stop_daemon("KILL")?;
    undefine(harness, "left-alone")?;
    harness.delete_pod(&pod)?;
    harness.start_daemon(&file)?;
    harness.del(&pod)?;
    let calls = harness.calls(&pod)?;
    let of = |verb: &str| {
        let mut calls = calls.iter().rev();
        calls
            .find(|call| call.verb == verb && call.network() == "left-alone")
            .cloned()
    };
    let (Some(add), Some(del)) = (of("ADD"), of("DEL")) else {
        anyhow::bail!("not attached and detached: {calls:?}");
    };
    ensure!(
        add.stdin["args"] == del.stdin["args"],
        "{} and {}",
        add.stdin,
        del.stdin
    );
    ensure!(!harness.state_file(&pod).exists(), "the state is left");
    ensure!(
        harness.call_order(&pod)?.len() == WITH_A.len(),
        "{:?}",
        harness.call_order(&pod)?
    );
    Ok(())
}
