//! The configuration manager: what it makes of the primary, and when.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Case, plain};
use crate::{
    rules::{
        bench::{Bench, Settings},
        definitions,
    },
    sh,
    single_node::{BIN_DIR, CONF_DIR, GENERATED, PRIMARY},
};

pub(super) const CASES: &[Case] = &[
    plain(
        "manager-keys",
        &[
            "mux-7.3-keys",
            "mux-7.3-blanked",
            "mux-7.2-cluster-network",
            "mux-5.4-name",
            "mux-5.4-copied",
        ],
        keys,
    ),
    plain("manager-mode", &["mux-7.3-mode"], mode),
    plain(
        "manager-capabilities",
        &["mux-7.2-capabilities", "mux-7.4-follow"],
        capabilities,
    ),
    plain(
        "manager-capabilities-that-go",
        &["mux-7.2-capabilities-go"],
        capabilities_go,
    ),
    plain(
        "manager-follows-a-renamed-file",
        &["mux-7.4-replaced"],
        renamed,
    ),
    plain(
        "manager-keeps-the-last-good",
        &["mux-7.4-last-good"],
        last_good,
    ),
    plain("manager-restores", &["mux-7.4-restore"], restores),
    plain("manager-other-files", &["mux-7.4-others"], others),
];

fn keys(bench: &Bench) -> anyhow::Result<()> {
    let config = bench.config()?;
    let expected = [
        ("cniVersion", json!("1.1.0")),
        ("name", json!("multus-cni-network")),
        ("type", json!("multus-shim")),
        ("clusterNetwork", json!(PRIMARY)),
        ("capabilities", json!({"portMappings": true})),
        ("binDir", json!(BIN_DIR)),
    ];
    for (key, value) in expected {
        ensure!(config[key] == value, "{key} is {} in {config}", config[key]);
    }
    for key in [
        "readinessindicatorfile",
        "cniConfigDir",
        "multusConfigFile",
        "multusAutoconfigDir",
        "multusMasterCNI",
        "forceCNIVersion",
        "plugins",
    ] {
        ensure!(config[key].is_null(), "{key} is in {config}");
    }
    Ok(())
}

fn mode(bench: &Bench) -> anyhow::Result<()> {
    let mode = fs::metadata(bench.scene.node.path(GENERATED))?
        .permissions()
        .mode()
        & 0o777;
    ensure!(mode == 0o600, "{mode:o}");
    Ok(())
}

/// Puts another primary in place; the usual one and a fresh daemon follow, as one implementation never forgets what it saw.
fn with_primary(
    bench: &Bench,
    primary: &str,
    case: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    bench.scene.node.write(PRIMARY, primary)?;
    let outcome = case();
    bench
        .scene
        .node
        .write(PRIMARY, definitions::primary().to_string())?;
    bench.start(&Settings::Plain.file())?;
    outcome
}

fn primary(capabilities: &[Value]) -> String {
    let plugins: Vec<_> = capabilities
        .iter()
        .map(|capabilities| json!({"type": "recorder", "capabilities": capabilities}))
        .collect();
    json!({"cniVersion": "1.1.0", "name": "primary", "plugins": plugins}).to_string()
}

fn capabilities(bench: &Bench) -> anyhow::Result<()> {
    let plugins = [
        json!({"portMappings": true, "off": false}),
        json!({"bandwidth": true}),
    ];
    let expected = json!({"portMappings": true, "bandwidth": true});
    with_primary(bench, &primary(&plugins), || {
        bench.becomes("capabilities", &expected)
    })
}

fn capabilities_go(bench: &Bench) -> anyhow::Result<()> {
    let both = json!({"portMappings": true, "bandwidth": true});
    with_primary(bench, &primary(std::slice::from_ref(&both)), || {
        bench.becomes("capabilities", &both)?;
        bench
            .scene
            .node
            .write(PRIMARY, definitions::primary().to_string())?;
        bench.becomes("capabilities", &json!({"portMappings": true}))
    })
}

fn renamed(bench: &Bench) -> anyhow::Result<()> {
    let node = &bench.scene.node;
    let text = primary(&[json!({"portMappings": true, "mac": true})]);
    node.write(&format!("{CONF_DIR}/.new"), &text)?;
    fs::rename(node.path(&format!("{CONF_DIR}/.new")), node.path(PRIMARY))?;
    let outcome = sh::until(10, "the generated file follows", || {
        ensure!(
            bench.config()?["capabilities"]["mac"] == true,
            "{}",
            bench.config()?
        );
        Ok(())
    });
    node.write(PRIMARY, definitions::primary().to_string())?;
    bench.start(&Settings::Plain.file())?;
    outcome
}

fn last_good(bench: &Bench) -> anyhow::Result<()> {
    let broken = ["", "{\"cniVersion\": \"1.1.0\", \"plug", "[]"];
    with_primary(bench, broken[0], || {
        for text in broken {
            bench.scene.node.write(PRIMARY, text)?;
            // It is noticed, or it is not: either way the file stays whole.
            let _ = sh::until(1, "it is noticed", || {
                ensure!(bench.is_ready().is_err(), "it serves");
                Ok(())
            });
            bench
                .config()
                .with_context(|| format!("with the primary {text:?}"))?;
        }
        // What comes after is seen after: those before were looked at.
        let good = json!({"portMappings": true, "ips": true});
        bench
            .scene
            .node
            .write(PRIMARY, primary(std::slice::from_ref(&good)))?;
        bench.becomes("capabilities", &good)
    })
}

fn restores(bench: &Bench) -> anyhow::Result<()> {
    let node = &bench.scene.node;
    let path = node.path(GENERATED);
    let back = |what: &str| sh::until(10, what, || bench.config().map(drop));
    fs::remove_file(&path)?;
    let deleted = back("it is back after it was deleted");
    let renamed = if path.exists() {
        fs::rename(&path, node.path(&format!("{GENERATED}.bak")))?;
        let renamed = back("it is back after it was renamed");
        fs::remove_file(node.path(&format!("{GENERATED}.bak")))?;
        renamed
    } else {
        Ok(())
    };
    bench.start(&Settings::Plain.file())?;
    deleted.and(renamed)
}

fn others(bench: &Bench) -> anyhow::Result<()> {
    let node = &bench.scene.node;
    let before = fs::read(node.path(GENERATED))?;
    let other = format!("{CONF_DIR}/20-other.conflist");
    node.write(
        &other,
        definitions::primary()
            .to_string()
            .replace("primary", "other"),
    )?;
    fs::remove_file(node.path(&other))?;
    let pod = bench.pod("unmoved", "")?;
    bench.add(&pod)?;
    bench.called(&pod, &["ADD primary"])?;
    ensure!(
        fs::read(node.path(GENERATED))? == before,
        "the generated file changed"
    );
    Ok(())
}
