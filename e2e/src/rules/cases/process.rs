//! The daemon's life: arguments, start, signals, restarts, and what happens without it.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Case, alone};
use crate::{
    rules::bench::{Bench, Settings, WITH_A},
    sh,
    single_node::{CONF_DIR, GENERATED},
};

pub(super) const CASES: &[Case] = &[
    alone(
        "process-version-flag",
        &["mux-5.1-version-flag"],
        version_flag,
    ),
    alone(
        "process-without-file",
        &["mux-5.2-no-file", "mux-5.1-config-flag"],
        no_file,
    ),
    alone(
        "process-in-cluster",
        &["mux-8-in-cluster", "mux-5.1-config-flag"],
        in_cluster,
    ),
    alone("process-configuration-last", &["mux-5.2-order"], order),
    alone("process-ends-on-signals", &["mux-5.3-term"], signals),
    alone("process-keeps-its-configuration", &["mux-5.3-keep"], keeps),
    alone("process-drains", &["mux-5.3-drain"], drains),
    alone("process-restart-after-kill", &["mux-5.3-restart"], restart),
    alone(
        "process-socket-elsewhere",
        &[
            "mux-5.4-socket-dir",
            "mux-5.4-socket-dir-shim",
            "mux-3.1-socket-dir",
        ],
        socket_dir,
    ),
    alone("process-config-dir", &["mux-5.4-config-dir"], config_dir),
    alone("process-ready-made-file", &["mux-5.2-user-file"], user_file),
    alone(
        "process-ready-made-file-and-readiness",
        &["mux-6-readiness", "mux-6-readiness-del"],
        user_file_readiness,
    ),
    alone(
        "process-del-without-daemon",
        &["mux-3.2-del", "mux-3.2-del-succeeds"],
        del_later,
    ),
];

fn version_flag(bench: &Bench) -> anyhow::Result<()> {
    let program = bench.programs.borrow().daemon.clone();
    let output = sh::output(bench.scene.node.command(program).arg("-version"), b"")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        text.starts_with("multus-daemon: ") && text.lines().count() == 1,
        "{text}"
    );
    Ok(())
}

fn no_file(bench: &Bench) -> anyhow::Result<()> {
    let program = bench.programs.borrow().daemon.clone();
    bench
        .scene
        .node
        .write("/run/broken.json", "{\"cniVersion\":")?;
    for file in ["/run/nowhere.json", "/run/broken.json"] {
        let mut command = bench.scene.node.command("timeout");
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

fn in_cluster(bench: &Bench) -> anyhow::Result<()> {
    bench.start(&Settings::Plain.file())?;
    let pod = bench.pod("in-cluster", "a")?;
    bench.add(&pod)?;
    let status = bench.status(&pod)?;
    bench.del(&pod)?;
    bench.stop("TERM")?;
    ensure!(status.len() == 2, "{status:?}");
    Ok(())
}

fn order(bench: &Bench) -> anyhow::Result<()> {
    bench.launch(&Settings::Plain.file())?;
    let path = bench.scene.node.path(GENERATED);
    let end = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while !path.exists() {
        ensure!(std::time::Instant::now() < end, "there is no {GENERATED}");
        std::thread::yield_now();
    }
    let answer = bench.daemon_says("GET", "/healthz", b"");
    bench.stop("TERM")?;
    answer?.well().map(drop)
}

fn signals(bench: &Bench) -> anyhow::Result<()> {
    for signal in ["TERM", "INT"] {
        bench.start(&Settings::Plain.file())?;
        let start = std::time::Instant::now();
        bench.stop(signal)?;
        ensure!(
            start.elapsed().as_secs() < 20,
            "{signal} took {:?}",
            start.elapsed()
        );
    }
    Ok(())
}

fn keeps(bench: &Bench) -> anyhow::Result<()> {
    bench.start(&Settings::Plain.file())?;
    let before = fs::read(bench.scene.node.path(GENERATED))?;
    bench.stop("TERM")?;
    let after = fs::read(bench.scene.node.path(GENERATED)).context("it went")?;
    ensure!(before == after, "it changed");
    Ok(())
}

fn drains(bench: &Bench) -> anyhow::Result<()> {
    bench.start(&Settings::Plain.file())?;
    let pod = bench.pod("in-flight", "a")?;
    bench.answer("a", "ADD", &json!({"wait_for": "/run/go"}))?;
    let running = bench.begin("ADD", &pod)?;
    let seen = sh::until(10, "the plugin is called", || bench.call(&pod, "ADD", "a"));
    bench.signal("TERM")?;
    // One says that it heard, another ends at once, a third keeps serving meanwhile: that is not the point.
    let _ = sh::until(2, "the daemon heard", || {
        let answer = bench.daemon_says("GET", "/readyz", b"")?;
        ensure!(answer.status == 500, "it is ready");
        Ok(())
    });
    bench.scene.node.write("/run/go", b"")?;
    let outcome = running.within(20);
    fs::remove_file(bench.scene.node.path("/run/go"))?;
    bench.stop("TERM")?;
    seen?;
    outcome?.well().map(drop)
}

fn restart(bench: &Bench) -> anyhow::Result<()> {
    for signal in ["TERM", "KILL"] {
        bench.start(&Settings::Plain.file())?;
        let pod = bench.pod(&format!("survivor-{}", signal.to_lowercase()), "a")?;
        bench.add(&pod)?;
        bench.stop(signal)?;
        bench.start(&Settings::Plain.file())?;
        bench.del(&pod)?;
        bench.called(&pod, &WITH_A)?;
    }
    bench.stop("TERM")
}

fn socket_dir(bench: &Bench) -> anyhow::Result<()> {
    let dir = "/run/elsewhere/";
    bench.start(&Settings::Plain.file_with(&json!({"socketDir": dir, "daemonSocketDir": dir})))?;
    let pod = bench.pod("elsewhere-asked", "")?;
    let outcome = bench.add(&pod).and_then(|_| bench.del(&pod));
    bench.stop("TERM")?;
    outcome
}

fn config_dir(bench: &Bench) -> anyhow::Result<()> {
    let dir = "/etc/cni/elsewhere.d";
    let node = &bench.scene.node;
    fs::create_dir_all(node.path(dir))?;
    bench.launch(&Settings::Plain.file_with(&json!({"cniConfigDir": dir})))?;
    let written = sh::until(20, "the configuration", || {
        Ok(fs::read(node.path(&format!("{dir}/00-multus.conf")))?)
    });
    let here = node.path(GENERATED).exists();
    bench.stop("TERM")?;
    fs::remove_dir_all(node.path(dir))?;
    let config: Value = serde_json::from_slice(&written?)?;
    ensure!(config["type"] == "multus-shim" && !here, "{config}");
    Ok(())
}

/// A daemon with a ready-made configuration.
fn with_user_file(
    bench: &Bench,
    keys: &Value,
    case: impl FnOnce(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let node = &bench.scene.node;
    let own = "/etc/cni/rules/00-own.conf";
    let mut config = json!({"cniVersion": "1.1.0", "name": "own", "type": "multus-shim", "clusterNetwork": format!("{CONF_DIR}/10-primary.conflist")});
    for (key, value) in keys.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    let text = config.to_string();
    node.write(own, &text)?;
    bench.launch(&Settings::Plain.file_with(&json!({"multusConfigFile": own})))?;
    let copied = format!("{CONF_DIR}/00-own.conf");
    let outcome = sh::until(10, "the copy, and a daemon", || {
        ensure!(
            fs::read_to_string(node.path(&copied))? == text,
            "the copy differs"
        );
        bench.daemon_says("GET", "/healthz", b"")?.well()
    })
    .and_then(|_| case(&text));
    bench.stop("TERM")?;
    let _ = fs::remove_file(node.path(&copied));
    outcome
}

fn user_file(bench: &Bench) -> anyhow::Result<()> {
    with_user_file(bench, &json!({}), |config| {
        let pod = bench.pod("ready-made", "a")?;
        bench.shim(&pod.env("ADD"), config.as_bytes())?.well()?;
        bench.called(&pod, &["ADD primary", "ADD a"])
    })
}

fn user_file_readiness(bench: &Bench) -> anyhow::Result<()> {
    let node = &bench.scene.node;
    with_user_file(
        bench,
        &json!({"readinessindicatorfile": "/run/indicated"}),
        |config| {
            let pod = bench.pod("indicated", "")?;
            let call = |verb: &str| bench.spawn(&pod.env(verb), config.as_bytes());
            call("DEL")?.within(10)?.well()?;
            // The pod is known, so what ADD waits for is the file alone.
            let adding = call("ADD")?;
            let early = sh::until(2, "a call", || bench.call(&pod, "ADD", "primary"));
            node.write("/run/indicated", b"")?;
            let outcome = adding.within(20);
            fs::remove_file(node.path("/run/indicated"))?;
            ensure!(early.is_err(), "ADD did not wait");
            outcome?.well().map(drop)
        },
    )
}

fn del_later(bench: &Bench) -> anyhow::Result<()> {
    bench.start(&Settings::Plain.file())?;
    let pod = bench.pod("left-behind", "a")?;
    bench.add(&pod)?;
    let config = bench.config()?;
    bench.stop("KILL")?;
    bench
        .spawn(&pod.env("DEL"), config.to_string().as_bytes())?
        .within(20)?
        .well()?;
    bench.start(&Settings::Plain.file())?;
    let outcome = sh::until(10, "the deletion is made up for", || {
        bench.called(&pod, &WITH_A)
    });
    bench.stop("TERM")?;
    outcome
}
