//! Cases of subject `socket`: The daemon's socket.

use std::{
    io::{Read as _, Write as _},
    os::unix::{fs::MetadataExt as _, net::UnixStream},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::cases;
use crate::{
    http::HttpResponse,
    rules::harness::{DaemonSetup, Harness, Pod, WITH_A},
    single_node::BIN_DIR,
};

cases! { "socket":
    plain modes ["socket.mode", "socket.directory-mode"]
    own_daemon directory_keeps_foreign_files ["socket.foreign-files"]
    own_daemon connection_limit ["socket.connection-limit"]
    plain closes_connections ["socket.close"]
    plain methods ["socket.methods", "socket.healthz", "socket.not-found"]
    plain readyz ["socket.readyz"]
    plain add_and_del ["socket.cni", "socket.request", "socket.result", "socket.empty-answer"]
    plain interface_attributes ["socket.interface-attributes"]
    plain unknown_commands ["socket.command"]
    plain status_and_gc_without_container ["socket.no-container", "socket.empty-answer"]
    plain add_without_args ["socket.missing-args", "socket.pod-name"]
    plain args_syntax ["socket.args-syntax"]
    plain add_without_uid ["socket.no-uid"]
    plain del_without_uid_and_pod ["socket.no-uid-del"]
    plain del_without_netns ["socket.no-netns-del"]
    plain default_interface ["socket.no-interface"]
    plain container_id_that_leads_out ["socket.container-id"]
}

fn modes(harness: &Harness) -> anyhow::Result<()> {
    let mode =
        |path: &str| anyhow::Ok(std::fs::metadata(harness.node().path(path))?.mode() & 0o7777);
    let (dir, socket) = (mode("/run/multus")?, mode("/run/multus/multus.sock")?);
    ensure!(
        (dir, socket) == (0o700, 0o600),
        "directory {dir:o}, socket {socket:o}"
    );
    Ok(())
}

fn methods(harness: &Harness) -> anyhow::Result<()> {
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
        let answer = harness.daemon_request(method, path, b"")?;
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

fn readyz(harness: &Harness) -> anyhow::Result<()> {
    for (method, status) in [("GET", 200), ("POST", 200), ("PUT", 405)] {
        let answer = harness.daemon_request(method, "/readyz", b"")?;
        ensure!(answer.status == status, "{method}: {}", answer.status);
    }
    Ok(())
}

/// Returns the variables of a call with changes; an empty value removes a variable.
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

/// Sends a verb for the pod with changed variables, as a shim does.
fn send(
    harness: &Harness,
    pod: &Pod,
    verb: &str,
    changes: &[(&str, &str)],
) -> anyhow::Result<HttpResponse> {
    harness.cni_request(&env(pod, verb, changes), &harness.config()?)
}

fn add_and_del(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("on-socket", "a")?;
    let config = harness.config_with(&json!({"cniVersion": "0.4.0"}))?;
    let answer = harness
        .cni_request(&env(&pod, "ADD", &[]), &config)?
        .well()?
        .json()?;
    let result = &answer["Result"];
    ensure!(result["cniVersion"] == "1.1.0", "{answer}");
    ensure!(result["ips"][0]["address"] == "10.65.0.2/24", "{answer}");
    let answer = harness
        .cni_request(&env(&pod, "DEL", &[]), &config)?
        .well()?;
    ensure!(
        answer.status == 200 && answer.body.is_empty(),
        "{}",
        answer.text()
    );
    harness.expect_calls(&pod, &WITH_A)
}

fn closes_connections(harness: &Harness) -> anyhow::Result<()> {
    let mut stream = UnixStream::connect(harness.node().path("/run/multus/multus.sock"))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: dummy\r\n\r\n")?;
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .context("the connection stays open")?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

fn interface_attributes(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("attributed", "capable")?;
    let attributes = json!({"ips": ["10.9.9.9/24"], "mac": "02:00:00:00:00:07"});
    harness
        .post(
            "/cni",
            &env(&pod, "ADD", &[]),
            &harness.config()?,
            &attributes,
        )?
        .well()?;
    let call = harness.call(&pod, "ADD", "capable")?;
    ensure!(!call.variable("CNI_ARGS").contains("10.9.9.9"), "{call:?}");
    Ok(())
}

fn unknown_commands(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("commanded", "")?;
    for (verb, words) in [
        ("", "unexpected or missing CNI_COMMAND"),
        ("JUMP", "unknown cmd type: JUMP"),
    ] {
        let answer = send(harness, &pod, "ADD", &[("CNI_COMMAND", verb)])?;
        ensure!(
            answer.status == 400 && answer.text().contains(words),
            "{verb}: {}",
            answer.text()
        );
    }
    Ok(())
}

fn status_and_gc_without_container(harness: &Harness) -> anyhow::Result<()> {
    // Upstream's `GC` fails without cached results.
    let pod = harness.attach("resulting", "")?;
    for verb in ["STATUS", "GC"] {
        // A network of its own, since a daemon may cache answers to `STATUS`.
        let mut config =
            harness.config_with(&harness.own_default_network("socket-network", "1.1.0")?)?;
        config["cni.dev/valid-attachments"] = json!([{"containerID": pod.id, "ifname": "eth0"}]);
        let answer = harness
            .cni_request(&[("CNI_COMMAND", verb), ("CNI_PATH", BIN_DIR)], &config)?
            .well()?;
        ensure!(answer.body.is_empty(), "{verb}: {}", answer.text());
    }
    Ok(())
}

fn add_without_args(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("argless", "")?;
    for args in [
        "",
        "IgnoreUnknown=1",
        "K8S_POD_NAME=argless",
        "K8S_POD_NAMESPACE=default",
    ] {
        let answer = send(harness, &pod, "ADD", &[("CNI_ARGS", args)])?;
        ensure!(answer.status == 400, "{args}: {}", answer.text());
    }
    harness.expect_calls(&pod, &[])
}

fn del_without_netns(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("netnsless", "")?;
    send(harness, &pod, "DEL", &[("CNI_NETNS", "")])?.well()?;
    harness.expect_calls(&pod, &["ADD primary", "DEL primary"])
}

fn default_interface(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("ifnameless", "")?;
    send(harness, &pod, "ADD", &[("CNI_IFNAME", "")])?.well()?;
    let call = harness.call(&pod, "ADD", "primary")?;
    ensure!(call.variable("CNI_IFNAME") == "eth0", "{call:?}");
    Ok(())
}

fn container_id_that_leads_out(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("evil", "")?;
    let node = harness.node();
    let (outside, victim) = ("/var/lib/cni/evil", "/var/lib/cni/victim");
    node.write(victim, "[]")?;
    let outcome = (|| {
        let added = send(harness, &pod, "ADD", &[("CNI_CONTAINERID", "../evil")])?;
        ensure!(added.status == 400, "ADD: {}", added.text());
        ensure!(!node.path(outside).exists(), "{outside} was written");
        // Only the file matters: the request may succeed or fail.
        let _ = send(harness, &pod, "DEL", &[("CNI_CONTAINERID", "../victim")]);
        ensure!(node.path(victim).exists(), "{victim} was removed");
        Ok(())
    })();
    for file in [outside, victim] {
        let _ = std::fs::remove_file(node.path(file));
    }
    outcome
}

fn args_syntax(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("tolerant", "")?;
    let args = format!("{};FOO=a=b;", pod.args());
    send(harness, &pod, "ADD", &[("CNI_ARGS", &args)])?.well()?;
    harness.expect_calls(&pod, &["ADD primary"])
}

/// Returns `CNI_ARGS` without the pod's UID.
fn without_uid(pod: &Pod) -> String {
    pod.args()
        .split(";K8S_POD_UID")
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn add_without_uid(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("uidless", "")?;
    // Upstream looks the pod up only once.
    harness.wait_for_watch()?;
    send(harness, &pod, "ADD", &[("CNI_ARGS", &without_uid(&pod))])?.well()?;
    harness.expect_calls(&pod, &["ADD primary"])
}

fn del_without_uid_and_pod(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("uidless-end", "")?;
    harness.delete_pod(&pod)?;
    harness.wait_for_watch()?;
    send(harness, &pod, "DEL", &[("CNI_ARGS", &without_uid(&pod))])?.well()?;
    harness.expect_calls(&pod, &["ADD primary", "DEL primary"])
}

fn directory_keeps_foreign_files(harness: &Harness) -> anyhow::Result<()> {
    harness.node().write("/run/multus/foreign", "mine")?;
    harness.start_daemon(&DaemonSetup::Plain.file())?;
    let stays = harness.node().path("/run/multus/foreign").exists();
    harness.stop_daemon("TERM")?;
    ensure!(stays, "the foreign file was removed");
    Ok(())
}

fn connection_limit(harness: &Harness) -> anyhow::Result<()> {
    harness.start_daemon(&DaemonSetup::Plain.file_with(&json!({"connectionLimit": 2})))?;
    let outcome = third_connection_waits(harness);
    harness.stop_daemon("TERM")?;
    outcome
}

fn third_connection_waits(harness: &Harness) -> anyhow::Result<()> {
    let socket = harness.node().path("/run/multus/multus.sock");
    let connect = || UnixStream::connect(&socket).context("cannot connect");
    // The kernel queues them in this order.
    let (first, second, mut third) = (connect()?, connect()?, connect()?);
    third.write_all(b"GET /healthz HTTP/1.1\r\nHost: dummy\r\n\r\n")?;
    third.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut answer = vec![0; 1];
    let early = third.read(&mut answer);
    ensure!(early.is_err(), "a third connection was served: {early:?}");
    drop((first, second));
    third.set_read_timeout(Some(Duration::from_secs(5)))?;
    answer.clear();
    third
        .read_to_end(&mut answer)
        .context("the third connection is not served")?;
    let answer = String::from_utf8_lossy(&answer);
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}
