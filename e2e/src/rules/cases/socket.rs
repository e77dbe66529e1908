//! The daemon's interface on its socket, without any shim.

use std::{
    io::{Read as _, Write as _},
    os::unix::{fs::MetadataExt as _, net::UnixStream},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{Case, alone, plain};
use crate::{
    rules::bench::{Bench, Pod, Settings, WITH_A},
    single_node::BIN_DIR,
};

pub(super) const CASES: &[Case] = &[
    plain(
        "socket-modes",
        &["mux-4-socket-mode", "mux-4-directory-mode"],
        modes,
    ),
    plain(
        "socket-methods",
        &["mux-4-methods", "mux-4-healthz", "mux-4-not-found"],
        methods,
    ),
    plain("socket-readyz", &["mux-4-readyz"], readyz),
    plain("socket-closes", &["mux-4-close"], closes),
    plain(
        "socket-add-and-del",
        &[
            "mux-4-cni",
            "mux-4.1-request",
            "mux-4.2-result",
            "mux-4.2-empty",
        ],
        add_and_del,
    ),
    plain(
        "socket-interface-attributes",
        &["mux-4.1-interface-attributes"],
        attributes,
    ),
    plain("socket-commands", &["mux-4.3-command"], commands),
    plain(
        "socket-status-and-gc-without-pod",
        &["mux-4.3-no-pod", "mux-4.2-empty"],
        no_pod,
    ),
    plain(
        "socket-add-without-args",
        &["mux-4.3-keys", "mux-4.3-pod-name"],
        no_args,
    ),
    plain("socket-del-without-netns", &["mux-4.3-netns"], no_netns),
    plain("socket-default-interface", &["mux-4.3-ifname"], no_ifname),
    plain(
        "socket-container-id-that-leads-out",
        &["mux-4.3-container-id"],
        evil_id,
    ),
    plain(
        "socket-args-that-end-in-a-semicolon",
        &["mux-4.3-args"],
        tolerant_args,
    ),
    plain("socket-add-without-uid", &["mux-4.3-no-uid"], no_uid),
    plain(
        "socket-del-without-uid-and-pod",
        &["mux-4.3-no-uid-del"],
        no_uid_del,
    ),
    alone(
        "socket-directory-keeps-foreign-files",
        &["mux-4-directory-kept"],
        foreign_files,
    ),
];

fn modes(bench: &Bench) -> anyhow::Result<()> {
    let mode =
        |path: &str| anyhow::Ok(std::fs::metadata(bench.scene.node.path(path))?.mode() & 0o7777);
    let (dir, socket) = (mode("/run/multus")?, mode("/run/multus/multus.sock")?);
    ensure!(
        (dir, socket) == (0o700, 0o600),
        "directory {dir:o}, socket {socket:o}"
    );
    Ok(())
}

fn methods(bench: &Bench) -> anyhow::Result<()> {
    for (method, path, status) in [
        ("GET", "/healthz", 200),
        ("POST", "/healthz", 200),
        ("PUT", "/healthz", 405),
        ("GET", "/cni", 405),
        ("DELETE", "/cni", 405),
        ("GET", "/delegate", 405),
        ("GET", "/", 404),
        ("POST", "/other", 404),
    ] {
        let answer = bench.daemon_says(method, path, b"")?;
        ensure!(
            answer.status == status,
            "{method} {path}: {}",
            answer.status
        );
        let text = answer.text();
        match status {
            405 => ensure!(
                text.contains("Method not allowed"),
                "{method} {path}: {text}"
            ),
            _ => ensure!(text.is_empty(), "{method} {path}: {text}"),
        }
    }
    Ok(())
}

fn readyz(bench: &Bench) -> anyhow::Result<()> {
    for (method, status) in [("GET", 200), ("POST", 200), ("PUT", 405)] {
        let answer = bench.daemon_says(method, "/readyz", b"")?;
        ensure!(answer.status == status, "{method}: {}", answer.status);
    }
    Ok(())
}

/// The variables of a call; an empty value stands for an absent variable.
fn env(pod: &Pod, verb: &str, changes: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut env = pod.env(verb);
    for (key, value) in changes {
        env.retain(|(known, _)| known != key);
        if !value.is_empty() {
            env.push(((*key).to_owned(), (*value).to_owned()));
        }
    }
    env
}

fn add_and_del(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("on-socket", "a")?;
    let config = bench.config_with(&json!({"cniVersion": "0.4.0"}))?;
    let answer = bench
        .request(&env(&pod, "ADD", &[]), &config)?
        .well()?
        .json()?;
    let result = &answer["Result"];
    ensure!(result["cniVersion"] == "1.1.0", "{answer}");
    ensure!(result["ips"][0]["address"] == "10.65.0.2/24", "{answer}");
    let answer = bench.request(&env(&pod, "DEL", &[]), &config)?.well()?;
    ensure!(
        answer.status == 200 && answer.body.is_empty(),
        "{}",
        answer.text()
    );
    bench.called(&pod, &WITH_A)
}

fn closes(bench: &Bench) -> anyhow::Result<()> {
    let mut stream = UnixStream::connect(bench.scene.node.path("/run/multus/multus.sock"))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: dummy\r\n\r\n")?;
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .context("it stays open")?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

fn attributes(bench: &Bench) -> anyhow::Result<()> {
    use base64::Engine as _;
    let pod = bench.pod("attributed", "capable")?;
    let env: serde_json::Map<_, _> = env(&pod, "ADD", &[])
        .into_iter()
        .map(|(key, value)| (key, json!(value)))
        .collect();
    let config = base64::engine::general_purpose::STANDARD.encode(bench.config()?.to_string());
    let body = json!({"env": env, "config": config, "interfaceAttributes": {"ips": ["10.9.9.9/24"], "mac": "02:00:00:00:00:07"}});
    bench
        .daemon_says("POST", "/cni", body.to_string().as_bytes())?
        .well()?;
    let call = bench.call(&pod, "ADD", "capable")?;
    ensure!(!call.variable("CNI_ARGS").contains("10.9.9.9"), "{call:?}");
    Ok(())
}

fn commands(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("commanded", "")?;
    for (verb, words) in [
        ("", "unexpected or missing CNI_COMMAND"),
        ("JUMP", "unknown cmd type: JUMP"),
    ] {
        let answer = bench.request(
            &env(&pod, "ADD", &[("CNI_COMMAND", verb)]),
            &bench.config()?,
        )?;
        ensure!(
            answer.status == 400 && answer.text().contains(words),
            "{verb}: {}",
            answer.text()
        );
    }
    Ok(())
}

fn no_pod(bench: &Bench) -> anyhow::Result<()> {
    // A directory of results must be there for one of the implementations.
    let pod = bench.pod("resulting", "")?;
    bench.add(&pod)?;
    for verb in ["STATUS", "GC"] {
        // Of its own, since answers to STATUS may be kept for a while.
        let mut config = bench.config_with(&bench.own_primary("socket-well", "1.1.0")?)?;
        config["cni.dev/valid-attachments"] = json!([{"containerID": pod.id, "ifname": "eth0"}]);
        let answer = bench
            .request(&[("CNI_COMMAND", verb), ("CNI_PATH", BIN_DIR)], &config)?
            .well()?;
        ensure!(answer.body.is_empty(), "{verb}: {}", answer.text());
    }
    Ok(())
}

fn no_args(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("argless", "")?;
    for args in [
        "",
        "IgnoreUnknown=1",
        "K8S_POD_NAME=argless",
        "K8S_POD_NAMESPACE=default",
    ] {
        let answer = bench.request(&env(&pod, "ADD", &[("CNI_ARGS", args)]), &bench.config()?)?;
        ensure!(answer.status == 400, "{args}: {}", answer.text());
    }
    bench.called(&pod, &[])
}

fn no_netns(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("netnsless", "")?;
    bench.add(&pod)?;
    bench
        .request(&env(&pod, "DEL", &[("CNI_NETNS", "")]), &bench.config()?)?
        .well()?;
    bench.called(&pod, &["ADD primary", "DEL primary"])
}

fn no_ifname(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("ifnameless", "")?;
    bench
        .request(&env(&pod, "ADD", &[("CNI_IFNAME", "")]), &bench.config()?)?
        .well()?;
    let call = bench.call(&pod, "ADD", "primary")?;
    ensure!(call.variable("CNI_IFNAME") == "eth0", "{call:?}");
    Ok(())
}

fn evil_id(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("evil", "")?;
    let node = &bench.scene.node;
    let (evil, victim) = ("/var/lib/cni/evil", "/var/lib/cni/victim");
    node.write(victim, "[]")?;
    let outcome = (|| {
        let added = bench.request(
            &env(&pod, "ADD", &[("CNI_CONTAINERID", "../evil")]),
            &bench.config()?,
        )?;
        ensure!(added.status == 400, "ADD: {}", added.text());
        ensure!(!node.path(evil).exists(), "{evil} was written");
        // Whether this succeeds is not the point: the connection may even be closed.
        let _ = bench.request(
            &env(&pod, "DEL", &[("CNI_CONTAINERID", "../victim")]),
            &bench.config()?,
        );
        ensure!(node.path(victim).exists(), "{victim} was removed");
        Ok(())
    })();
    for file in [evil, victim] {
        let _ = std::fs::remove_file(node.path(file));
    }
    outcome
}

fn tolerant_args(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("tolerant", "")?;
    let args = format!("{};FOO=a=b;", pod.args());
    bench
        .request(&env(&pod, "ADD", &[("CNI_ARGS", &args)]), &bench.config()?)?
        .well()?;
    bench.called(&pod, &["ADD primary"])
}

/// `CNI_ARGS` without the pod's uid.
fn without_uid(pod: &Pod) -> String {
    pod.args()
        .split(";K8S_POD_UID")
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn no_uid(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("uidless", "")?;
    // One implementation looks only once, so the pod must be known.
    bench.settle()?;
    bench
        .request(
            &env(&pod, "ADD", &[("CNI_ARGS", &without_uid(&pod))]),
            &bench.config()?,
        )?
        .well()?;
    bench.called(&pod, &["ADD primary"])
}

fn no_uid_del(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("uidless-end", "")?;
    bench.add(&pod)?;
    bench.delete(&pod)?;
    bench.settle()?;
    bench
        .request(
            &env(&pod, "DEL", &[("CNI_ARGS", &without_uid(&pod))]),
            &bench.config()?,
        )?
        .well()?;
    bench.called(&pod, &["ADD primary", "DEL primary"])
}

fn foreign_files(bench: &Bench) -> anyhow::Result<()> {
    bench.scene.node.write("/run/multus/foreign", "mine")?;
    bench.start(&Settings::Plain.file())?;
    let stays = bench.scene.node.path("/run/multus/foreign").exists();
    bench.stop("TERM")?;
    ensure!(stays, "a foreign file was removed");
    Ok(())
}
