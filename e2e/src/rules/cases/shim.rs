//! The shim by itself: what it refuses and answers without any daemon.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Case, alone, plain};
use crate::{rules::bench::Bench, sh, single_node::BIN_DIR};

pub(super) const CASES: &[Case] = &[
    alone("shim-version-flag", &["mux-2-version-flag"], version_flag),
    alone("shim-without-command", &["mux-2-no-command"], no_command),
    alone(
        "shim-missing-variables",
        &["mux-2-env", "mux-2-error"],
        missing_variables,
    ),
    alone("shim-del-needs-no-netns", &["mux-2-netns"], netns_by_verb),
    alone(
        "shim-bad-container-ids",
        &["mux-2-container-id"],
        container_ids,
    ),
    alone("shim-bad-interface-names", &["mux-2-ifname"], ifnames),
    alone("shim-stdin-no-json", &["mux-2-stdin"], stdin),
    alone("shim-bad-names", &["mux-2-name"], names),
    alone(
        "shim-unknown-version",
        &["mux-2-cni-version"],
        unknown_version,
    ),
    alone(
        "shim-verbs-by-version",
        &["mux-2-verb-version"],
        verbs_by_version,
    ),
    alone("shim-version-verb", &["mux-2-version"], version),
    plain("shim-in-the-pods-netns", &["mux-2-own-netns"], own_netns),
];

/// Variables that pass every check.
const GOOD: [(&str, &str); 6] = [
    ("CNI_COMMAND", "ADD"),
    ("CNI_CONTAINERID", "c1"),
    ("CNI_NETNS", "/run/netns/none"),
    ("CNI_IFNAME", "eth0"),
    (
        "CNI_ARGS",
        "K8S_POD_NAMESPACE=default;K8S_POD_NAME=none;K8S_POD_UID=none",
    ),
    ("CNI_PATH", BIN_DIR),
];

fn changed<'a>(changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut env: Vec<(&str, &str)> = GOOD.to_vec();
    for (key, value) in changes {
        env.retain(|(known, _)| known != key);
        env.push((key, value));
    }
    env
}

fn config(version: &str) -> Vec<u8> {
    json!({"cniVersion": version, "name": "n", "type": "multus-shim"})
        .to_string()
        .into_bytes()
}

/// One call whose refusal has that code.
fn refused(bench: &Bench, env: &[(&str, &str)], stdin: &[u8], code: u64) -> anyhow::Result<Value> {
    let outcome = bench.shim(env, stdin)?;
    outcome
        .has_code(code)
        .with_context(|| format!("{env:?} {}", String::from_utf8_lossy(stdin)))?;
    outcome.error()
}

fn version_flag(bench: &Bench) -> anyhow::Result<()> {
    for flag in ["-v", "--version"] {
        let program = bench.programs.borrow().shim.clone();
        let output = sh::output(bench.scene.node.command(program).arg(flag), b"")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success() && text.starts_with("multus-shim: version:"),
            "{flag}: {text}"
        );
        ensure!(text.lines().count() == 1, "{flag}: {text}");
    }
    Ok(())
}

/// No variables.
const NOTHING: [(&str, &str); 0] = [];

fn no_command(bench: &Bench) -> anyhow::Result<()> {
    let outcome = bench.shim(&NOTHING, b"")?;
    ensure!(
        outcome.code == Some(0) && outcome.stdout.is_empty(),
        "{outcome:?}"
    );
    ensure!(
        outcome.stderr.contains("0.4.0") && outcome.stderr.contains("1.1.0"),
        "{outcome:?}"
    );
    Ok(())
}

fn missing_variables(bench: &Bench) -> anyhow::Result<()> {
    let error = refused(
        bench,
        &[("CNI_COMMAND", "ADD"), ("CNI_IFNAME", "eth0")],
        &config("1.0.0"),
        4,
    )?;
    for name in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_PATH"] {
        ensure!(
            error.to_string().contains(name),
            "{name} is not named: {error}"
        );
    }
    ensure!(!error.to_string().contains("CNI_IFNAME"), "{error}");
    refused(bench, &[("CNI_COMMAND", "STATUS")], &config("1.1.0"), 4)?;
    refused(bench, &[("CNI_COMMAND", "JUMP")], &config("1.1.0"), 4).map(drop)
}

fn netns_by_verb(bench: &Bench) -> anyhow::Result<()> {
    for verb in ["ADD", "CHECK"] {
        let error = refused(
            bench,
            &changed(&[("CNI_COMMAND", verb), ("CNI_NETNS", "")]),
            &config("1.0.0"),
            4,
        )?;
        ensure!(error.to_string().contains("CNI_NETNS"), "{error}");
    }
    // DEL comes as far as the name, which is looked at later.
    refused(
        bench,
        &changed(&[("CNI_COMMAND", "DEL"), ("CNI_NETNS", "")]),
        b"{\"cniVersion\": \"1.0.0\"}",
        7,
    )
    .map(drop)
}

fn container_ids(bench: &Bench) -> anyhow::Result<()> {
    for id in ["-a", ".a", "../evil", "a/b", "a b", "a:b"] {
        refused(
            bench,
            &changed(&[("CNI_CONTAINERID", id)]),
            &config("1.0.0"),
            4,
        )?;
    }
    Ok(())
}

fn ifnames(bench: &Bench) -> anyhow::Result<()> {
    for name in [".", "..", "a/b", "a:b", "a b", "sixteen-letters-"] {
        refused(
            bench,
            &changed(&[("CNI_IFNAME", name)]),
            &config("1.0.0"),
            4,
        )?;
    }
    Ok(())
}

fn stdin(bench: &Bench) -> anyhow::Result<()> {
    for text in ["", "{", "no json", "{\"name\": \"n\""] {
        refused(bench, &GOOD, text.as_bytes(), 6)?;
    }
    Ok(())
}

fn names(bench: &Bench) -> anyhow::Result<()> {
    for name in [json!(""), json!("a/b"), json!("a b"), json!("-a")] {
        let config = json!({"cniVersion": "1.0.0", "name": name, "type": "multus-shim"});
        refused(bench, &GOOD, config.to_string().as_bytes(), 7)?;
    }
    refused(bench, &GOOD, b"{\"cniVersion\": \"1.0.0\"}", 7).map(drop)
}

fn unknown_version(bench: &Bench) -> anyhow::Result<()> {
    for version in ["9.9.9", "0.5.0", "1"] {
        refused(bench, &GOOD, &config(version), 1)?;
    }
    Ok(())
}

fn verbs_by_version(bench: &Bench) -> anyhow::Result<()> {
    for (verb, version) in [
        ("CHECK", "0.3.1"),
        ("GC", "1.0.0"),
        ("STATUS", "1.0.0"),
        ("STATUS", "0.3.1"),
    ] {
        refused(
            bench,
            &changed(&[("CNI_COMMAND", verb)]),
            &config(version),
            1,
        )?;
    }
    Ok(())
}

fn version(bench: &Bench) -> anyhow::Result<()> {
    let answer = bench.shim(&[("CNI_COMMAND", "VERSION")], b"")?.well()?;
    let expected = json!({
        "cniVersion": "1.1.0",
        "supportedVersions": ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"],
    });
    ensure!(answer == expected, "{answer}");
    Ok(())
}

fn own_netns(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("inside", "")?;
    // The shim's own namespace is that of the node.
    let env = [("CNI_NETNS", "/proc/self/ns/net"), ("CNI_IFNAME", "own0")];
    bench.verb_env("ADD", &pod, &json!({}), &env)?.has_code(8)
}
