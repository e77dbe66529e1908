//! Cases of subject `plugin`: Calls of plugins.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::cases;
use crate::{rules::harness::Harness, sh, single_node::BIN_DIR};

cases! { "plugin":
    plain args ["plugin.args", "plugin.environment"]
    plain addresses_in_args ["plugin.address-args"]
    plain other_args ["plugin.other-args"]
    plain result_cache ["plugin.result-cache"]
    plain being_replaced ["plugin.busy"]
    plain missing ["plugin.missing"]
}

fn args(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("argued", "a")?;
    harness.del(&pod)?;
    for call in harness.calls(&pod)? {
        let args = call.variable("CNI_ARGS");
        let expected = pod.args().replace("IgnoreUnknown=1", "IgnoreUnknown=true");
        ensure!(
            args.starts_with(&expected),
            "{args} does not begin with {expected}"
        );
        for (key, value) in [
            ("CNI_CONTAINERID", pod.id.as_str()),
            ("CNI_NETNS", &pod.netns()),
        ] {
            ensure!(
                call.variable(key) == value,
                "{key} is {}",
                call.variable(key)
            );
        }
    }
    Ok(())
}

fn addresses_in_args(harness: &Harness) -> anyhow::Result<()> {
    let networks =
        r#"[{"name": "a", "ips": ["10.66.0.7/24", "fd00::7/64"], "mac": "02:00:00:00:00:07"}]"#;
    let pod = harness.attach("addressed", networks)?;
    let call = harness.call(&pod, "ADD", "a")?;
    let args: Vec<_> = call.variable("CNI_ARGS").split(';').collect();
    for expected in ["IP=10.66.0.7/24,fd00::7/64", "MAC=02:00:00:00:00:07"] {
        ensure!(args.contains(&expected), "no {expected} in {args:?}");
    }
    let call = harness.call(&pod, "ADD", "primary")?;
    ensure!(!call.variable("CNI_ARGS").contains("MAC="), "{call:?}");
    Ok(())
}

fn other_args(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("argued-more", "")?;
    let args = format!("{};VENDOR=x", pod.args());
    harness
        .verb_env("ADD", &pod, &json!({}), &[("CNI_ARGS", &args)])?
        .success()?;
    let call = harness.call(&pod, "ADD", "primary")?;
    ensure!(
        call.variable("CNI_ARGS")
            .split(';')
            .any(|item| item == "VENDOR=x"),
        "{}",
        call.variable("CNI_ARGS")
    );
    Ok(())
}

fn result_cache(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("cached", "a")?;
    let file = |network: &str, ifname: &str| {
        harness.node().path(&format!(
            "/var/lib/cni/multus/results/{network}-{}-{ifname}",
            pod.id
        ))
    };
    for (network, ifname) in [("primary", "eth0"), ("a", "net1")] {
        let file = file(network, ifname);
        let mode = fs::metadata(&file)
            .with_context(|| format!("no {}", file.display()))?
            .permissions()
            .mode()
            & 0o777;
        let cached: Value = serde_json::from_slice(&fs::read(&file)?)?;
        ensure!(mode == 0o600, "mode {mode:o}");
        ensure!(
            cached["kind"] == "cniCacheV1" && cached["containerId"] == pod.id.as_str(),
            "{cached}"
        );
        ensure!(
            cached["ifName"] == ifname && cached["networkName"] == network,
            "{cached}"
        );
        ensure!(
            cached["result"]["ips"].is_array() && cached["config"].is_string(),
            "{cached}"
        );
    }
    harness.del(&pod)?;
    ensure!(
        !file("primary", "eth0").exists() && !file("a", "net1").exists(),
        "results are left"
    );
    Ok(())
}

fn missing(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("plugin-missing", "a,absent-plugin")?;
    harness.ensure_refused(&pod, &["e2e-no-such-plugin"])
}

fn being_replaced(harness: &Harness) -> anyhow::Result<()> {
    let plugin = harness.node().path(&format!("{BIN_DIR}/recorder-other"));
    let pod = harness.pod("busy", "list")?;
    let writer = fs::File::options().write(true).open(&plugin)?;
    let running = harness.spawn_verb("ADD", &pod)?;
    // The list's first plugin was called, so the busy one is next.
    let called = sh::until(10, "the list's first plugin is called", || {
        harness.call(&pod, "ADD", "list")
    });
    drop(writer);
    let outcome = running.within(20)?;
    called?;
    outcome.success().map(drop)
}
