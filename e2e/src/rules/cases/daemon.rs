//! Cases of subject `daemon`: The daemon's process.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::cases;
use crate::{
    rules::harness::{DaemonSetup, Harness, WITH_A},
    sh,
    single_node::{CONF_DIR, GENERATED},
};

cases! { "daemon":
    own_daemon version_flag ["daemon.version-flag"]
    own_daemon invalid_config ["daemon.invalid-config", "daemon.config-flag"]
    own_daemon in_cluster ["daemon.service-account", "daemon.config-flag"]
    own_daemon socket_dir ["daemon.socket-dir", "manager.socket-dir", "forward.socket-dir"]
    own_daemon config_last ["daemon.config-last"]
    own_daemon static_config ["daemon.static-config"]
    own_daemon static_config_waits_for_readiness ["config.readiness-indicator", "config.readiness-indicator-del"]
    own_daemon ends_on_signals ["daemon.signals"]
    own_daemon keeps_its_config ["daemon.keeps-config"]
    own_daemon drains ["daemon.drain"]
    own_daemon restart_after_kill ["daemon.restart"]
    own_daemon replays_del ["del.without-daemon", "del.without-daemon-succeeds"]
}

fn version_flag(harness: &Harness) -> anyhow::Result<()> {
    let program = harness.programs.borrow().daemon.clone();
    let output = sh::output(harness.node().command(program).arg("-version"), b"")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        text.starts_with("multus-daemon") && text.lines().count() == 1,
        "{text}"
    );
    Ok(())
}

fn invalid_config(harness: &Harness) -> anyhow::Result<()> {
    let program = harness.programs.borrow().daemon.clone();
    harness
        .node()
        .write("/run/broken.json", "{\"cniVersion\":")?;
    for file in ["/run/nowhere.json", "/run/broken.json"] {
        let mut command = harness.node().command("timeout");
        command
            .arg("20")
            .arg(&program)
            .args(["-config", file])
            .env("MULTUS_NODE_NAME", "n1");
        let output = sh::output(&mut command, b"")?;
        ensure!(
            output
                .status
                .code()
                .is_some_and(|code| code != 0 && code != 124),
            "{file}: {}",
            output.status
        );
    }
    Ok(())
}

fn in_cluster(harness: &Harness) -> anyhow::Result<()> {
    harness.start_daemon(&DaemonSetup::Plain.file())?;
    let pod = harness.attach("in-cluster", "a")?;
    let status = harness.network_status(&pod)?;
    harness.del(&pod)?;
    harness.stop_daemon("TERM")?;
    ensure!(status.len() == 2, "{status:?}");
    Ok(())
}

fn config_last(harness: &Harness) -> anyhow::Result<()> {
    harness.launch_daemon(&DaemonSetup::Plain.file())?;
    let path = harness.node().path(GENERATED);
    let end = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while !path.exists() {
        ensure!(std::time::Instant::now() < end, "there is no {GENERATED}");
        std::thread::yield_now();
    }
    let answer = harness.daemon_request("GET", "/healthz", b"");
    harness.stop_daemon("TERM")?;
    answer?.well().map(drop)
}

fn ends_on_signals(harness: &Harness) -> anyhow::Result<()> {
    for signal in ["TERM", "INT"] {
        harness.start_daemon(&DaemonSetup::Plain.file())?;
        let start = std::time::Instant::now();
        harness.stop_daemon(signal)?;
        ensure!(
            start.elapsed().as_secs() < 20,
            "{signal} took {:?}",
            start.elapsed()
        );
    }
    Ok(())
}

fn keeps_its_config(harness: &Harness) -> anyhow::Result<()> {
    harness.start_daemon(&DaemonSetup::Plain.file())?;
    let before = fs::read(harness.node().path(GENERATED))?;
    harness.stop_daemon("TERM")?;
    let after =
        fs::read(harness.node().path(GENERATED)).context("the CNI configuration was removed")?;
    ensure!(before == after, "the CNI configuration changed");
    Ok(())
}

fn drains(harness: &Harness) -> anyhow::Result<()> {
    harness.start_daemon(&DaemonSetup::Plain.file())?;
    let pod = harness.pod("in-flight", "a")?;
    harness.set_answer("a", "ADD", &json!({"wait_for": "/run/go"}))?;
    let running = harness.spawn_verb("ADD", &pod)?;
    let seen = sh::until(10, "the plugin is called", || {
        harness.call(&pod, "ADD", "a")
    });
    harness.signal_daemon("TERM")?;
    // Implementations may report that they end, end at once or keep serving: each is fine.
    let _ = sh::until(2, "the daemon reports its end", || {
        let answer = harness.daemon_request("GET", "/readyz", b"")?;
        ensure!(answer.status == 500, "the daemon is ready");
        Ok(())
    });
    harness.node().write("/run/go", b"")?;
    let outcome = running.within(20);
    fs::remove_file(harness.node().path("/run/go"))?;
    harness.stop_daemon("TERM")?;
    seen?;
    outcome?.success().map(drop)
}

fn restart_after_kill(harness: &Harness) -> anyhow::Result<()> {
    for signal in ["TERM", "KILL"] {
        harness.start_daemon(&DaemonSetup::Plain.file())?;
        let pod = harness.pod(&format!("survivor-{}", signal.to_lowercase()), "a")?;
        harness.add(&pod)?;
        harness.stop_daemon(signal)?;
        harness.start_daemon(&DaemonSetup::Plain.file())?;
        harness.del(&pod)?;
        harness.expect_calls(&pod, &WITH_A)?;
    }
    harness.stop_daemon("TERM")
}

fn socket_dir(harness: &Harness) -> anyhow::Result<()> {
    let dir = "/run/elsewhere/";
    harness.start_daemon(
        &DaemonSetup::Plain.file_with(&json!({"socketDir": dir, "daemonSocketDir": dir})),
    )?;
    let pod = harness.pod("other-socket", "")?;
    let outcome = harness.add(&pod).and_then(|_| harness.del(&pod));
    harness.stop_daemon("TERM")?;
    outcome
}

/// Runs a case on a daemon with a static CNI configuration.
fn with_static_config(
    harness: &Harness,
    keys: &Value,
    case: impl FnOnce(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let node = harness.node();
    let own = "/etc/cni/rules/00-static.conf";
    let mut config = json!({"cniVersion": "1.1.0", "name": "own", "type": "multus-shim", "clusterNetwork": format!("{CONF_DIR}/10-primary.conflist")});
    for (key, value) in keys.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    let text = config.to_string();
    node.write(own, &text)?;
    harness.launch_daemon(&DaemonSetup::Plain.file_with(&json!({"multusConfigFile": own})))?;
    let copied = format!("{CONF_DIR}/00-static.conf");
    let outcome = sh::until(10, "the file is copied and the daemon serves", || {
        ensure!(
            fs::read_to_string(node.path(&copied))? == text,
            "the copy differs"
        );
        harness.daemon_request("GET", "/healthz", b"")?.well()
    })
    .and_then(|_| case(&text));
    harness.stop_daemon("TERM")?;
    let _ = fs::remove_file(node.path(&copied));
    outcome
}

fn static_config(harness: &Harness) -> anyhow::Result<()> {
    with_static_config(harness, &json!({}), |config| {
        let pod = harness.pod("static-config", "a")?;
        harness
            .shim(&pod.env("ADD"), config.as_bytes())?
            .success()?;
        harness.expect_calls(&pod, &["ADD primary", "ADD a"])
    })
}

fn static_config_waits_for_readiness(harness: &Harness) -> anyhow::Result<()> {
    let node = harness.node();
    with_static_config(
        harness,
        &json!({"readinessindicatorfile": "/run/indicated"}),
        |config| {
            let pod = harness.pod("indicated", "")?;
            let call = |verb: &str| harness.spawn_shim(&pod.env(verb), config.as_bytes());
            call("DEL")?.within(10)?.success()?;
            // The daemon has the pod, so `ADD` waits for the file alone.
            let adding = call("ADD")?;
            let early = sh::until(2, "a call", || harness.call(&pod, "ADD", "primary"));
            node.write("/run/indicated", b"")?;
            let outcome = adding.within(20);
            fs::remove_file(node.path("/run/indicated"))?;
            ensure!(early.is_err(), "ADD did not wait");
            outcome?.success().map(drop)
        },
    )
}

fn replays_del(harness: &Harness) -> anyhow::Result<()> {
    harness.start_daemon(&DaemonSetup::Plain.file())?;
    let pod = harness.attach("left-behind", "a")?;
    let config = harness.config()?;
    harness.stop_daemon("KILL")?;
    harness
        .spawn_shim(&pod.env("DEL"), config.to_string().as_bytes())?
        .within(20)?
        .success()?;
    harness.start_daemon(&DaemonSetup::Plain.file())?;
    let outcome = sh::until(10, "the journaled DEL is replayed", || {
        harness.expect_calls(&pod, &WITH_A)
    });
    harness.stop_daemon("TERM")?;
    outcome
}
