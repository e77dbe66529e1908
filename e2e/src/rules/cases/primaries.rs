//! The configuration manager at its start: which primary it takes, and what its own settings change.

use std::fs;

use anyhow::ensure;
use serde_json::{Value, json};

use super::{Case, alone};
use crate::{
    rules::{
        bench::{Bench, Settings},
        definitions,
    },
    sh,
    single_node::{CONF_DIR, PRIMARY},
};

pub(super) const CASES: &[Case] = &[
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
    alone(
        "manager-force-version",
        &["mux-5.4-force-version"],
        force_version,
    ),
    alone("manager-override-name", &["mux-7.5-name"], override_name),
    alone(
        "manager-override-name-without-any",
        &["mux-7.5-no-name"],
        override_without_name,
    ),
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
    beside(bench, &files, &Settings::Plain.file(), || {
        bench.becomes(
            "clusterNetwork",
            &json!(format!("{CONF_DIR}/05-early.conflist")),
        )
    })
}

fn again(bench: &Bench) -> anyhow::Result<()> {
    beside(bench, &[], &Settings::Plain.file(), || {
        let later = format!("{CONF_DIR}/05-later.conflist");
        bench.scene.node.write(&later, list("later", "1.1.0"))?;
        let outcome = bench.becomes("clusterNetwork", &json!(later));
        fs::remove_file(bench.scene.node.path(&later))?;
        outcome
    })
}

fn waits(bench: &Bench) -> anyhow::Result<()> {
    let node = &bench.scene.node;
    fs::remove_file(node.path(PRIMARY))?;
    bench.launch(&Settings::Plain.file())?;
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
    let named = Settings::Plain.file_with(&json!({"multusMasterCNI": "10-primary.conflist"}));
    beside(bench, &[("05-early.conflist", &early)], &named, || {
        bench.becomes("clusterNetwork", &json!(PRIMARY))
    })
}

fn old_primary(bench: &Bench) -> anyhow::Result<()> {
    bench.scene.node.write(PRIMARY, list("primary", "0.3.1"))?;
    beside(
        bench,
        &[],
        &Settings::Plain.file_with(&json!({"cniVersion": "1.0.0"})),
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
        &Settings::Plain.file_with(&json!({"cniVersion": "0.3.1"})),
        || {
            bench.becomes("cniVersion", &json!("0.3.1"))?;
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
        &Settings::Plain.file_with(&json!({"overrideNetworkName": true})),
        || bench.becomes("name", &json!("primary")),
    )
}

fn override_without_name(bench: &Bench) -> anyhow::Result<()> {
    let node = &bench.scene.node;
    let nameless = json!({"cniVersion": "1.1.0", "plugins": [{"type": "recorder"}]});
    node.write(PRIMARY, nameless.to_string())?;
    bench.launch(&Settings::Plain.file_with(&json!({"overrideNetworkName": true})))?;
    let written = sh::until(5, "a configuration", || bench.config());
    bench.stop("TERM")?;
    node.write(PRIMARY, definitions::primary().to_string())?;
    ensure!(written.is_err(), "there is one: {written:?}");
    Ok(())
}

fn force_version(bench: &Bench) -> anyhow::Result<()> {
    let primary = list("primary", "0.4.0");
    bench.scene.node.write(PRIMARY, &primary)?;
    let forced = json!({"cniVersion": "1.0.0", "forceCNIVersion": true});
    beside(bench, &[], &Settings::Plain.file_with(&forced), || {
        let pod = bench.pod("unforced", "")?;
        let result = bench.add(&pod)?;
        ensure!(result["cniVersion"] == "1.0.0", "{result}");
        bench.del(&pod)?;
        let now = fs::read_to_string(bench.scene.node.path(PRIMARY))?;
        ensure!(now == primary, "somebody else's file became {now}");
        Ok(())
    })
}

fn copies(bench: &Bench) -> anyhow::Result<()> {
    let keys = json!({
        "namespaceIsolation": true, "globalNamespaces": "default,shared", "cniDir": "/var/lib/cni/copied",
        "daemonSocketDir": "/run/copied", "logFile": "/run/multus.log",
    });
    let mut settings = Settings::Plain.file_with(&keys);
    settings["socketDir"] = json!("/run/copied");
    beside(bench, &[], &settings, || {
        for (key, value) in keys.as_object().into_iter().flatten() {
            bench.becomes(key, value)?;
        }
        Ok(())
    })
}

fn readiness(bench: &Bench) -> anyhow::Result<()> {
    let node = &bench.scene.node;
    let indicator = "/run/indicator/ready";
    node.write("/run/indicator/other", b"")?;
    bench.launch(&Settings::Plain.file_with(&json!({"readinessindicatorfile": indicator})))?;
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
