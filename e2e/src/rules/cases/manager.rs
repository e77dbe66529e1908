//! The configuration manager: what it makes of the primary, and when.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Case, alone, plain};
use crate::{
    rules::{
        bench::{Bench, Settings},
        definitions,
    },
    scene::{BIN_DIR, CONF_DIR, GENERATED, PRIMARY},
    sh,
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
    alone(
        "manager-first-by-bytes",
        &["mux-7.1-first", "mux-7.1-json"],
        first,
    ),
    alone("manager-earlier-file-later", &["mux-7.1-again"], again),
    alone(
        "manager-waits-for-a-primary",
        &["mux-7.1-wait", "mux-5.2-order"],
        waits,
    ),
    alone("manager-named-master", &["mux-5.4-master"], named),
    alone("manager-old-primary", &["mux-7.2-cni-version"], old_primary),
    alone(
        "manager-old-versions-together",
        &["mux-7.2-cni-version"],
        both_old,
    ),
    alone("manager-override-name", &["mux-7.5-name"], override_name),
    alone(
        "manager-copies-keys",
        &["mux-5.4-copied", "mux-5.4-socket-dir-shim"],
        copies,
    ),
    alone(
        "manager-readiness-file",
        &["mux-5.2-readiness", "mux-7.4-readiness"],
        readiness,
    ),
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

fn becomes(bench: &Bench, key: &str, value: &Value) -> anyhow::Result<()> {
    sh::until(10, "the generated file follows", || {
        let config = bench.config()?;
        ensure!(
            config[key] == *value,
            "{key} is {}, not {value}",
            config[key]
        );
        Ok(())
    })
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
        becomes(bench, "capabilities", &expected)
    })
}

fn capabilities_go(bench: &Bench) -> anyhow::Result<()> {
    let both = json!({"portMappings": true, "bandwidth": true});
    with_primary(bench, &primary(std::slice::from_ref(&both)), || {
        becomes(bench, "capabilities", &both)?;
        bench
            .scene
            .node
            .write(PRIMARY, definitions::primary().to_string())?;
        becomes(bench, "capabilities", &json!({"portMappings": true}))
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
        becomes(bench, "capabilities", &good)
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

/// A daemon of its own beside further files in the configuration directory.
fn beside(
    bench: &Bench,
    files: &[(&str, &str)],
    settings: &Value,
    case: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let node = &bench.scene.node;
    for (name, content) in files {
        node.write(&format!("{CONF_DIR}/{name}"), content)?;
    }
    let outcome = bench.start(settings).and_then(|()| case());
    bench.stop("TERM")?;
    for (name, _) in files {
        fs::remove_file(node.path(&format!("{CONF_DIR}/{name}")))?;
    }
    node.write(PRIMARY, definitions::primary().to_string())?;
    outcome
}

fn list(name: &str, version: &str) -> String {
    json!({"cniVersion": version, "name": name, "plugins": [{"type": "recorder"}]}).to_string()
}

fn settings(keys: &Value) -> Value {
    let mut settings = Settings::Plain.file();
    for (key, value) in keys.as_object().into_iter().flatten() {
        settings[key] = value.clone();
    }
    settings
}

fn first(bench: &Bench) -> anyhow::Result<()> {
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
    beside(bench, &files, &settings(&json!({})), || {
        becomes(
            bench,
            "clusterNetwork",
            &json!(format!("{CONF_DIR}/05-early.conflist")),
        )
    })
}

fn again(bench: &Bench) -> anyhow::Result<()> {
    beside(bench, &[], &settings(&json!({})), || {
        let later = format!("{CONF_DIR}/05-later.conflist");
        bench.scene.node.write(&later, list("later", "1.1.0"))?;
        let outcome = becomes(bench, "clusterNetwork", &json!(later));
        fs::remove_file(bench.scene.node.path(&later))?;
        outcome
    })
}

fn waits(bench: &Bench) -> anyhow::Result<()> {
    let node = &bench.scene.node;
    fs::remove_file(node.path(PRIMARY))?;
    bench.launch(&settings(&json!({})))?;
    let early = sh::until(2, "a configuration", || bench.config());
    node.write(PRIMARY, definitions::primary().to_string())?;
    let outcome = sh::until(20, "the daemon is ready", || bench.is_ready());
    bench.stop("TERM")?;
    outcome?;
    ensure!(
        early.is_err(),
        "there was a configuration without a primary"
    );
    Ok(())
}

fn named(bench: &Bench) -> anyhow::Result<()> {
    let early = list("early", "1.1.0");
    let named = settings(&json!({"multusMasterCNI": "10-primary.conflist"}));
    beside(bench, &[("05-early.conflist", &early)], &named, || {
        becomes(bench, "clusterNetwork", &json!(PRIMARY))
    })
}

fn old_primary(bench: &Bench) -> anyhow::Result<()> {
    bench.scene.node.write(PRIMARY, list("primary", "0.3.1"))?;
    beside(
        bench,
        &[],
        &settings(&json!({"cniVersion": "1.0.0"})),
        || {
            let pod = bench.pod("older-primary", "")?;
            let result = bench.add(&pod)?;
            ensure!(
                result["cniVersion"] == "1.0.0" && result["ips"][0]["version"].is_null(),
                "{result}"
            );
            bench.del(&pod)
        },
    )
}

fn both_old(bench: &Bench) -> anyhow::Result<()> {
    bench.scene.node.write(PRIMARY, list("primary", "0.3.1"))?;
    beside(
        bench,
        &[],
        &settings(&json!({"cniVersion": "0.3.1"})),
        || {
            becomes(bench, "cniVersion", &json!("0.3.1"))?;
            let pod = bench.pod("all-old", "a")?;
            let result = bench.add(&pod)?;
            ensure!(
                result["cniVersion"] == "0.3.1" && result["ips"][0]["version"] == "4",
                "{result}"
            );
            bench.del(&pod)
        },
    )
}

fn override_name(bench: &Bench) -> anyhow::Result<()> {
    beside(
        bench,
        &[],
        &settings(&json!({"overrideNetworkName": true})),
        || becomes(bench, "name", &json!("primary")),
    )
}

fn copies(bench: &Bench) -> anyhow::Result<()> {
    let keys = json!({
        "namespaceIsolation": true, "globalNamespaces": "default,shared", "cniDir": "/var/lib/cni/copied",
        "daemonSocketDir": "/run/copied", "logFile": "/run/multus.log",
    });
    let mut settings = settings(&keys);
    settings["socketDir"] = json!("/run/copied");
    beside(bench, &[], &settings, || {
        for (key, value) in keys.as_object().into_iter().flatten() {
            becomes(bench, key, value)?;
        }
        Ok(())
    })
}

fn readiness(bench: &Bench) -> anyhow::Result<()> {
    let node = &bench.scene.node;
    let indicator = "/run/indicator/ready";
    node.write("/run/indicator/other", b"")?;
    bench.launch(&settings(&json!({"readinessindicatorfile": indicator})))?;
    let early = sh::until(3, "a configuration", || bench.config());
    node.write(indicator, b"")?;
    let ready = sh::until(20, "the daemon is ready", || bench.is_ready());
    fs::remove_file(node.path(indicator))?;
    let gone = sh::until(10, "new pods are stopped", || {
        ensure!(bench.is_ready().is_err(), "it serves");
        Ok(())
    });
    bench.stop("TERM")?;
    fs::remove_dir_all(node.path("/run/indicator"))?;
    ensure!(early.is_err(), "it did not wait");
    ready.and(gone)
}
