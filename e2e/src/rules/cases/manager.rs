//! Cases of subject `manager`: The generated CNI configuration.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::cases;
use crate::{
    rules::{
        definitions,
        harness::{DaemonSetup, Harness},
    },
    sh,
    single_node::{BIN_DIR, CONF_DIR, GENERATED, PRIMARY},
};

cases! { "manager":
    own_daemon first_file ["manager.first-file", "manager.json-files"]
    own_daemon earlier_file_later ["manager.earlier-file"]
    own_daemon waits_for_a_default_network ["manager.wait", "daemon.config-last"]
    own_daemon named_file ["manager.named-file"]
    own_daemon old_default_network ["manager.old-default-network"]
    own_daemon old_versions_together ["manager.old-default-network"]
    own_daemon force_version ["manager.force-version"]
    plain capabilities ["manager.capabilities", "manager.changed-file"]
    plain capabilities_removed ["manager.capabilities-removed"]
    plain keys ["manager.keys", "manager.daemon-keys", "manager.cluster-network", "manager.name", "manager.copied-keys"]
    own_daemon override_name ["manager.override-name"]
    own_daemon override_name_missing ["manager.override-name-missing"]
    own_daemon copies_keys ["manager.copied-keys", "manager.socket-dir"]
    own_daemon config_dir ["manager.config-dir"]
    plain mode ["manager.mode"]
    plain follows_a_renamed_file ["manager.renamed-file"]
    plain keeps_the_last_good_file ["manager.last-good"]
    plain restores_its_file ["manager.restored"]
    plain other_files ["manager.other-files"]
    own_daemon readiness_file ["manager.readiness-indicator", "manager.readiness-indicator-removed"]
}

/// Runs a case on a daemon of its own, with further files in the CNI configuration directory.
fn with_own_daemon(
    harness: &Harness,
    files: &[(&str, &str)],
    settings: &Value,
    case: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let node = harness.node();
    for (name, content) in files {
        node.write(&format!("{CONF_DIR}/{name}"), content)?;
    }
    let outcome = harness.start_daemon(settings).and_then(|()| case());
    harness.stop_daemon("TERM")?;
    for (name, _) in files {
        fs::remove_file(node.path(&format!("{CONF_DIR}/{name}")))?;
    }
    node.write(PRIMARY, definitions::default_network().to_string())?;
    outcome
}

/// Runs a case on a daemon of its own with these keys in its configuration.
fn with_keys(
    harness: &Harness,
    keys: &Value,
    case: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    with_own_daemon(harness, &[], &DaemonSetup::Plain.file_with(keys), case)
}

fn list(name: &str, version: &str) -> String {
    json!({"cniVersion": version, "name": name, "plugins": [{"type": "recorder"}]}).to_string()
}

fn first_file(harness: &Harness) -> anyhow::Result<()> {
    let (early, json_file, own) = (
        list("early", "1.1.0"),
        list("json", "1.1.0"),
        list("own", "1.1.0"),
    );
    let files = [
        ("05-early.conflist", early.as_str()),
        ("01-first.json", &json_file),
        ("00-multus-old.conf", &own),
        ("02-notes.txt", "notes"),
    ];
    with_own_daemon(harness, &files, &DaemonSetup::Plain.file(), || {
        harness.wait_for_config_key(
            "clusterNetwork",
            &json!(format!("{CONF_DIR}/05-early.conflist")),
        )
    })
}

fn earlier_file_later(harness: &Harness) -> anyhow::Result<()> {
    with_keys(harness, &json!({}), || {
        let later = format!("{CONF_DIR}/05-later.conflist");
        harness.node().write(&later, list("later", "1.1.0"))?;
        let outcome = harness.wait_for_config_key("clusterNetwork", &json!(later));
        fs::remove_file(harness.node().path(&later))?;
        outcome
    })
}

fn waits_for_a_default_network(harness: &Harness) -> anyhow::Result<()> {
    let node = harness.node();
    fs::remove_file(node.path(PRIMARY))?;
    harness.launch_daemon(&DaemonSetup::Plain.file())?;
    let early = sh::until(2, "a configuration", || harness.config());
    node.write(PRIMARY, definitions::default_network().to_string())?;
    let outcome = sh::until(20, "the daemon is ready", || harness.ensure_ready());
    harness.stop_daemon("TERM")?;
    outcome?;
    ensure!(
        early.is_err(),
        "there was a configuration without a default network"
    );
    Ok(())
}

fn named_file(harness: &Harness) -> anyhow::Result<()> {
    let early = list("early", "1.1.0");
    let named = DaemonSetup::Plain.file_with(&json!({"multusMasterCNI": "10-primary.conflist"}));
    with_own_daemon(harness, &[("05-early.conflist", &early)], &named, || {
        harness.wait_for_config_key("clusterNetwork", &json!(PRIMARY))
    })
}

fn old_default_network(harness: &Harness) -> anyhow::Result<()> {
    harness.node().write(PRIMARY, list("primary", "0.3.1"))?;
    with_keys(harness, &json!({"cniVersion": "1.0.0"}), || {
        let pod = harness.pod("older-default", "")?;
        let result = harness.add(&pod)?;
        ensure!(
            result["cniVersion"] == "1.0.0" && result["ips"][0]["version"].is_null(),
            "{result}"
        );
        harness.del(&pod)
    })
}

fn old_versions_together(harness: &Harness) -> anyhow::Result<()> {
    harness.node().write(PRIMARY, list("primary", "0.3.1"))?;
    with_keys(harness, &json!({"cniVersion": "0.3.1"}), || {
        harness.wait_for_config_key("cniVersion", &json!("0.3.1"))?;
        let pod = harness.pod("all-old", "a")?;
        let result = harness.add(&pod)?;
        ensure!(
            result["cniVersion"] == "0.3.1" && result["ips"][0]["version"] == "4",
            "{result}"
        );
        harness.del(&pod)
    })
}

fn override_name(harness: &Harness) -> anyhow::Result<()> {
    with_keys(harness, &json!({"overrideNetworkName": true}), || {
        harness.wait_for_config_key("name", &json!("primary"))
    })
}

fn override_name_missing(harness: &Harness) -> anyhow::Result<()> {
    let node = harness.node();
    let nameless = json!({"cniVersion": "1.1.0", "plugins": [{"type": "recorder"}]});
    node.write(PRIMARY, nameless.to_string())?;
    harness.launch_daemon(&DaemonSetup::Plain.file_with(&json!({"overrideNetworkName": true})))?;
    let written = sh::until(5, "a configuration", || harness.config());
    harness.stop_daemon("TERM")?;
    node.write(PRIMARY, definitions::default_network().to_string())?;
    ensure!(
        written.is_err(),
        "a configuration was generated: {written:?}"
    );
    Ok(())
}

fn force_version(harness: &Harness) -> anyhow::Result<()> {
    let config = list("primary", "0.4.0");
    harness.node().write(PRIMARY, &config)?;
    let forced = json!({"cniVersion": "1.0.0", "forceCNIVersion": true});
    with_keys(harness, &forced, || {
        let pod = harness.pod("unforced", "")?;
        let result = harness.add(&pod)?;
        ensure!(result["cniVersion"] == "1.0.0", "{result}");
        harness.del(&pod)?;
        let now = fs::read_to_string(harness.node().path(PRIMARY))?;
        ensure!(now == config, "the default network's file became {now}");
        Ok(())
    })
}

fn copies_keys(harness: &Harness) -> anyhow::Result<()> {
    let keys = json!({
        "namespaceIsolation": true, "globalNamespaces": "default,shared", "cniDir": "/var/lib/cni/copied",
        "daemonSocketDir": "/run/copied", "logFile": "/run/multus.log",
    });
    let mut settings = DaemonSetup::Plain.file_with(&keys);
    settings["socketDir"] = json!("/run/copied");
    with_own_daemon(harness, &[], &settings, || {
        for (key, value) in keys.as_object().into_iter().flatten() {
            harness.wait_for_config_key(key, value)?;
        }
        Ok(())
    })
}

fn readiness_file(harness: &Harness) -> anyhow::Result<()> {
    let node = harness.node();
    let indicator = "/run/indicator/ready";
    node.write("/run/indicator/other", b"")?;
    harness.launch_daemon(
        &DaemonSetup::Plain.file_with(&json!({"readinessindicatorfile": indicator})),
    )?;
    let early = sh::until(3, "a configuration", || harness.config());
    node.write(indicator, b"")?;
    let ready = sh::until(20, "the daemon is ready", || harness.ensure_ready());
    fs::remove_file(node.path(indicator))?;
    let not_ready = sh::until(10, "the daemon is not ready", || {
        ensure!(harness.ensure_ready().is_err(), "the daemon is ready");
        Ok(())
    });
    harness.stop_daemon("TERM")?;
    fs::remove_dir_all(node.path("/run/indicator"))?;
    ensure!(early.is_err(), "the daemon did not wait for the file");
    ready.and(not_ready)
}

fn keys(harness: &Harness) -> anyhow::Result<()> {
    let config = harness.config()?;
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

fn mode(harness: &Harness) -> anyhow::Result<()> {
    let mode = fs::metadata(harness.node().path(GENERATED))?
        .permissions()
        .mode()
        & 0o777;
    ensure!(mode == 0o600, "{mode:o}");
    Ok(())
}

/// Runs a case with another default network. A new daemon follows with the usual one, since upstream never forgets capabilities.
fn with_default_network(
    harness: &Harness,
    config: &str,
    case: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    harness.node().write(PRIMARY, config)?;
    let outcome = case();
    harness
        .node()
        .write(PRIMARY, definitions::default_network().to_string())?;
    harness.start_daemon(&DaemonSetup::Plain.file())?;
    outcome
}

fn default_network(capabilities: &[Value]) -> String {
    let plugins: Vec<_> = capabilities
        .iter()
        .map(|capabilities| json!({"type": "recorder", "capabilities": capabilities}))
        .collect();
    json!({"cniVersion": "1.1.0", "name": "primary", "plugins": plugins}).to_string()
}

fn capabilities(harness: &Harness) -> anyhow::Result<()> {
    let plugins = [
        json!({"portMappings": true, "off": false}),
        json!({"bandwidth": true}),
    ];
    let expected = json!({"portMappings": true, "bandwidth": true});
    with_default_network(harness, &default_network(&plugins), || {
        harness.wait_for_config_key("capabilities", &expected)
    })
}

fn capabilities_removed(harness: &Harness) -> anyhow::Result<()> {
    let both = json!({"portMappings": true, "bandwidth": true});
    with_default_network(
        harness,
        &default_network(std::slice::from_ref(&both)),
        || {
            harness.wait_for_config_key("capabilities", &both)?;
            harness
                .node()
                .write(PRIMARY, definitions::default_network().to_string())?;
            harness.wait_for_config_key("capabilities", &json!({"portMappings": true}))
        },
    )
}

fn follows_a_renamed_file(harness: &Harness) -> anyhow::Result<()> {
    let node = harness.node();
    let text = default_network(&[json!({"portMappings": true, "mac": true})]);
    node.write(&format!("{CONF_DIR}/.new"), &text)?;
    fs::rename(node.path(&format!("{CONF_DIR}/.new")), node.path(PRIMARY))?;
    let outcome = sh::until(10, "the generated file changes", || {
        ensure!(
            harness.config()?["capabilities"]["mac"] == true,
            "{}",
            harness.config()?
        );
        Ok(())
    });
    node.write(PRIMARY, definitions::default_network().to_string())?;
    harness.start_daemon(&DaemonSetup::Plain.file())?;
    outcome
}

fn keeps_the_last_good_file(harness: &Harness) -> anyhow::Result<()> {
    let broken = ["", "{\"cniVersion\": \"1.1.0\", \"plug", "[]"];
    with_default_network(harness, broken[0], || {
        for text in broken {
            harness.node().write(PRIMARY, text)?;
            // Whether or not the daemon reports the broken file, the generated file must stay complete.
            let _ = sh::until(1, "the daemon is not ready", || {
                ensure!(harness.ensure_ready().is_err(), "the daemon is ready");
                Ok(())
            });
            harness
                .config()
                .with_context(|| format!("with the default network {text:?}"))?;
        }
        // When the daemon follows this file, it has seen those before.
        let good = json!({"portMappings": true, "ips": true});
        harness
            .node()
            .write(PRIMARY, default_network(std::slice::from_ref(&good)))?;
        harness.wait_for_config_key("capabilities", &good)
    })
}

fn restores_its_file(harness: &Harness) -> anyhow::Result<()> {
    let node = harness.node();
    let path = node.path(GENERATED);
    let back = |what: &str| sh::until(10, what, || harness.config().map(drop));
    fs::remove_file(&path)?;
    let deleted = back("the generated file is back after it was deleted");
    let renamed = if path.exists() {
        fs::rename(&path, node.path(&format!("{GENERATED}.bak")))?;
        let renamed = back("the generated file is back after it was renamed");
        fs::remove_file(node.path(&format!("{GENERATED}.bak")))?;
        renamed
    } else {
        Ok(())
    };
    harness.start_daemon(&DaemonSetup::Plain.file())?;
    deleted.and(renamed)
}

fn other_files(harness: &Harness) -> anyhow::Result<()> {
    let node = harness.node();
    let before = fs::read(node.path(GENERATED))?;
    let other = format!("{CONF_DIR}/20-other.conflist");
    node.write(
        &other,
        definitions::default_network()
            .to_string()
            .replace("primary", "other"),
    )?;
    fs::remove_file(node.path(&other))?;
    let pod = harness.attach("unmoved", "")?;
    harness.expect_calls(&pod, &["ADD primary"])?;
    ensure!(
        fs::read(node.path(GENERATED))? == before,
        "the generated file changed"
    );
    Ok(())
}

fn config_dir(harness: &Harness) -> anyhow::Result<()> {
    let dir = "/etc/cni/elsewhere.d";
    let node = harness.node();
    fs::create_dir_all(node.path(dir))?;
    harness.launch_daemon(&DaemonSetup::Plain.file_with(&json!({"cniConfigDir": dir})))?;
    let written = sh::until(20, "the configuration", || {
        Ok(fs::read(node.path(&format!("{dir}/00-multus.conf")))?)
    });
    let here = node.path(GENERATED).exists();
    harness.stop_daemon("TERM")?;
    fs::remove_dir_all(node.path(dir))?;
    let config: Value = serde_json::from_slice(&written?)?;
    ensure!(config["type"] == "multus-shim" && !here, "{config}");
    Ok(())
}
