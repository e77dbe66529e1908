//! Cases of subject `shim`: The shim by itself.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::cases;
use crate::{rules::harness::Harness, sh, single_node::BIN_DIR};

cases! { "shim":
    own_daemon version_flag ["shim.version-flag"]
    own_daemon without_command ["shim.no-command"]
    own_daemon missing_variables ["shim.environment", "shim.error-document"]
    own_daemon bad_container_ids ["shim.container-id"]
    own_daemon bad_interface_names ["shim.interface-name"]
    own_daemon netns_by_verb ["shim.netns"]
    own_daemon invalid_json ["shim.invalid-json"]
    own_daemon bad_network_names ["shim.network-name"]
    own_daemon unknown_version ["shim.unknown-version"]
    own_daemon verbs_by_version ["shim.verb-version"]
    own_daemon version_verb ["shim.version-verb"]
    plain in_the_pods_netns ["shim.own-netns"]
}

/// Variables that the shim accepts.
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

fn with_changes<'a>(changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
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

/// Makes a call that has to fail with that code, and returns its error.
fn refused(
    harness: &Harness,
    env: &[(&str, &str)],
    stdin: &[u8],
    code: u64,
) -> anyhow::Result<Value> {
    let outcome = harness.shim(env, stdin)?;
    outcome
        .has_code(code)
        .with_context(|| format!("{env:?} {}", String::from_utf8_lossy(stdin)))?;
    outcome.error()
}

fn version_flag(harness: &Harness) -> anyhow::Result<()> {
    for flag in ["-v", "--version"] {
        let program = harness.programs.borrow().shim.clone();
        let output = sh::output(harness.node().command(program).arg(flag), b"")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success() && text.starts_with("multus-shim: version:"),
            "{flag}: {text}"
        );
        ensure!(text.lines().count() == 1, "{flag}: {text}");
    }
    Ok(())
}

const NO_VARIABLES: [(&str, &str); 0] = [];

fn without_command(harness: &Harness) -> anyhow::Result<()> {
    let outcome = harness.shim(&NO_VARIABLES, b"")?;
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

fn missing_variables(harness: &Harness) -> anyhow::Result<()> {
    let error = refused(
        harness,
        &[("CNI_COMMAND", "ADD"), ("CNI_IFNAME", "eth0")],
        &config("1.0.0"),
        4,
    )?;
    for name in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_PATH"] {
        ensure!(
            error.to_string().contains(name),
            "the error does not name {name}: {error}"
        );
    }
    ensure!(!error.to_string().contains("CNI_IFNAME"), "{error}");
    refused(harness, &[("CNI_COMMAND", "STATUS")], &config("1.1.0"), 4)?;
    refused(harness, &[("CNI_COMMAND", "JUMP")], &config("1.1.0"), 4).map(drop)
}

fn netns_by_verb(harness: &Harness) -> anyhow::Result<()> {
    for verb in ["ADD", "CHECK"] {
        let error = refused(
            harness,
            &with_changes(&[("CNI_COMMAND", verb), ("CNI_NETNS", "")]),
            &config("1.0.0"),
            4,
        )?;
        ensure!(error.to_string().contains("CNI_NETNS"), "{error}");
    }
    // `DEL` passes this check and fails at the next one, that of the name.
    refused(
        harness,
        &with_changes(&[("CNI_COMMAND", "DEL"), ("CNI_NETNS", "")]),
        b"{\"cniVersion\": \"1.0.0\"}",
        7,
    )
    .map(drop)
}

fn bad_container_ids(harness: &Harness) -> anyhow::Result<()> {
    for id in ["-a", ".a", "../evil", "a/b", "a b", "a:b"] {
        refused(
            harness,
            &with_changes(&[("CNI_CONTAINERID", id)]),
            &config("1.0.0"),
            4,
        )?;
    }
    Ok(())
}

fn bad_interface_names(harness: &Harness) -> anyhow::Result<()> {
    for name in [".", "..", "a/b", "a:b", "a b", "sixteen-letters-"] {
        refused(
            harness,
            &with_changes(&[("CNI_IFNAME", name)]),
            &config("1.0.0"),
            4,
        )?;
    }
    Ok(())
}

fn invalid_json(harness: &Harness) -> anyhow::Result<()> {
    for text in ["", "{", "no json", "{\"name\": \"n\""] {
        refused(harness, &GOOD, text.as_bytes(), 6)?;
    }
    Ok(())
}

fn bad_network_names(harness: &Harness) -> anyhow::Result<()> {
    for name in [json!(""), json!("a/b"), json!("a b"), json!("-a")] {
        let config = json!({"cniVersion": "1.0.0", "name": name, "type": "multus-shim"});
        refused(harness, &GOOD, config.to_string().as_bytes(), 7)?;
    }
    refused(harness, &GOOD, b"{\"cniVersion\": \"1.0.0\"}", 7).map(drop)
}

fn unknown_version(harness: &Harness) -> anyhow::Result<()> {
    for version in ["9.9.9", "0.5.0", "1"] {
        refused(harness, &GOOD, &config(version), 1)?;
    }
    Ok(())
}

fn verbs_by_version(harness: &Harness) -> anyhow::Result<()> {
    for (verb, version) in [
        ("CHECK", "0.3.1"),
        ("GC", "1.0.0"),
        ("STATUS", "1.0.0"),
        ("STATUS", "0.3.1"),
    ] {
        refused(
            harness,
            &with_changes(&[("CNI_COMMAND", verb)]),
            &config(version),
            1,
        )?;
    }
    Ok(())
}

fn version_verb(harness: &Harness) -> anyhow::Result<()> {
    let answer = harness
        .shim(&[("CNI_COMMAND", "VERSION")], b"")?
        .success()?;
    let expected = json!({
        "cniVersion": "1.1.0",
        "supportedVersions": ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"],
    });
    ensure!(answer == expected, "{answer}");
    Ok(())
}

fn in_the_pods_netns(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("inside", "")?;
    // The shim's own namespace is that of the node.
    let env = [("CNI_NETNS", "/proc/self/ns/net"), ("CNI_IFNAME", "own0")];
    harness.verb_env("ADD", &pod, &json!({}), &env)?.has_code(8)
}
