//! The shim and a daemon that is none: what it asks, and what it makes of the answers.

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use serde_json::{Value, json};

use super::{Case, alone};
use crate::rules::bench::{Bench, FAKE_DIR, Outcome};

pub(super) const CASES: &[Case] = &[
    alone(
        "forward-request",
        &["mux-3.1-socket-dir", "mux-3.1-untouched", "mux-3.3-request"],
        request,
    ),
    alone(
        "forward-to-a-daemon-without-readyz",
        &["mux-3.2-healthz"],
        healthz,
    ),
    alone("forward-waits-for-the-daemon", &["mux-3.2-wait"], waits),
    alone("forward-empty-answer-to-add", &["mux-3.4-empty"], empty),
    alone(
        "forward-text-error",
        &["mux-3.4-fragment", "mux-2-error"],
        text_error,
    ),
    alone("forward-typed-error", &["mux-3.4-code"], typed_error),
    alone(
        "forward-result-in-version",
        &["mux-3.4-result-version"],
        result_version,
    ),
    alone(
        "forward-result-without-newer-fields",
        &["mux-3.4-result-fields"],
        result_fields,
    ),
    alone("forward-silent-verbs", &["mux-3.4-silent"], silent),
    alone("forward-error-of-del", &["mux-3.4-del-error"], del_error),
    alone(
        "forward-del-without-daemon",
        &["mux-3.2-del-succeeds"],
        del_alone,
    ),
    alone(
        "forward-status-without-daemon",
        &["mux-12.6-down"],
        status_alone,
    ),
    alone("forward-log-file", &["mux-3.1-log-file"], log_file),
];

const RESULT: &str = r#"{"Result":{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mac":"02:00:00:00:00:09","mtu":1400,"sandbox":"/run/netns/none"}],"ips":[{"interface":0,"address":"10.9.0.2/24","gateway":"10.9.0.1"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.9.0.1","mtu":1300}]}}"#;

fn env(verb: &str) -> Vec<(&str, &str)> {
    vec![
        ("CNI_COMMAND", verb),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", "/run/netns/none"),
        ("CNI_IFNAME", "eth0"),
        (
            "CNI_ARGS",
            "K8S_POD_NAMESPACE=default;K8S_POD_NAME=none;K8S_POD_UID=none",
        ),
        ("CNI_PATH", "/opt/cni/bin"),
        ("E2E_EXTRA", "a=b c"),
    ]
}

fn config(version: &str) -> Value {
    json!({"cniVersion": version, "name": "n", "type": "multus-shim", "daemonSocketDir": FAKE_DIR, "cniDir": "/var/lib/cni/fake", "other": {"z": 1, "a": [2]}})
}

fn call(bench: &Bench, verb: &str, version: &str) -> anyhow::Result<Outcome> {
    bench.shim(&env(verb), config(version).to_string().as_bytes())
}

fn request(bench: &Bench) -> anyhow::Result<()> {
    let fake = bench.fake_answering(200, RESULT)?;
    call(bench, "ADD", "1.1.0")?.well()?;
    let requests = fake.requests()?;
    ensure!(requests.len() == 1, "{requests:?}");
    for (key, value) in env("ADD") {
        ensure!(
            requests[0]["env"][key] == value,
            "{key}: {}",
            requests[0]["env"]
        );
    }
    let sent = requests[0]["config"].as_str().context("config is text")?;
    let sent = base64::engine::general_purpose::STANDARD.decode(sent)?;
    ensure!(
        sent == config("1.1.0").to_string().into_bytes(),
        "{}",
        String::from_utf8_lossy(&sent)
    );
    Ok(())
}

fn healthz(bench: &Bench) -> anyhow::Result<()> {
    let _fake = bench.fake(|path, _| match path {
        "/cni" => (200, RESULT),
        "/healthz" => (200, ""),
        _ => (404, ""),
    })?;
    bench
        .spawn(&env("ADD"), config("1.1.0").to_string().as_bytes())?
        .within(10)?
        .well()
        .map(drop)
}

fn waits(bench: &Bench) -> anyhow::Result<()> {
    let fake = bench.fake(|path, number| match (path, number) {
        ("/cni", _) => (200, RESULT),
        (_, 0..3) => (500, "not yet"),
        _ => (200, ""),
    })?;
    for verb in ["ADD", "CHECK", "GC"] {
        bench
            .spawn(&env(verb), config("1.1.0").to_string().as_bytes())?
            .within(10)?
            .well()?;
    }
    ensure!(fake.requests()?.len() == 3, "{:?}", fake.requests()?);
    Ok(())
}

fn empty(bench: &Bench) -> anyhow::Result<()> {
    let _fake = bench.fake(|_, _| (200, ""))?;
    call(bench, "ADD", "1.1.0")?.error().map(drop)
}

fn text_error(bench: &Bench) -> anyhow::Result<()> {
    let _fake = bench.fake_answering(400, "it is out of order\n")?;
    for (verb, word) in [
        ("ADD", "CmdAdd (shim):"),
        ("CHECK", "CmdCheck (shim):"),
        ("GC", "CmdGC (shim):"),
        ("STATUS", "CmdStatus (shim):"),
    ] {
        call(bench, verb, "1.1.0")?.tells(&[
            word,
            "CNI request failed with status 400",
            "it is out of order",
        ])?;
    }
    Ok(())
}

fn typed_error(bench: &Bench) -> anyhow::Result<()> {
    let _fake = bench.fake_answering(400, r#"{"code":11,"msg":"not now","details":"because"}"#)?;
    for verb in ["ADD", "CHECK", "GC", "STATUS"] {
        let outcome = call(bench, verb, "1.1.0")?;
        outcome.has_code(11)?;
        let error = outcome.error()?;
        ensure!(
            error["msg"]
                .as_str()
                .is_some_and(|msg| msg.contains("not now"))
                && error["details"] == "because",
            "{error}"
        );
    }
    Ok(())
}

fn result_version(bench: &Bench) -> anyhow::Result<()> {
    let _fake = bench.fake_answering(200, RESULT)?;
    for version in ["1.1.0", "1.0.0", "0.4.0", "0.3.1", "0.3.0"] {
        let result = call(bench, "ADD", version)?.well()?;
        ensure!(
            result["cniVersion"] == version && result["ips"][0]["address"] == "10.9.0.2/24",
            "{result}"
        );
        let family = &result["ips"][0]["version"];
        ensure!(
            if version < "1" {
                family == "4"
            } else {
                family.is_null()
            },
            "{result}"
        );
    }
    for version in ["0.2.0", "0.1.0"] {
        let result = call(bench, "ADD", version)?.well()?;
        ensure!(
            result["cniVersion"] == version && result["ip4"]["ip"] == "10.9.0.2/24",
            "{result}"
        );
        ensure!(result["ip4"]["gateway"] == "10.9.0.1", "{result}");
    }
    Ok(())
}

fn result_fields(bench: &Bench) -> anyhow::Result<()> {
    let _fake = bench.fake_answering(200, RESULT)?;
    let result = call(bench, "ADD", "1.1.0")?.well()?;
    ensure!(result["interfaces"][0]["mtu"] == 1400, "{result}");
    let result = call(bench, "ADD", "1.0.0")?.well()?;
    ensure!(
        result["interfaces"][0]["mtu"].is_null() && result["routes"][0]["mtu"].is_null(),
        "{result}"
    );
    Ok(())
}

fn silent(bench: &Bench) -> anyhow::Result<()> {
    let _fake = bench.fake(|_, _| (200, ""))?;
    for verb in ["CHECK", "DEL", "GC", "STATUS"] {
        let outcome = call(bench, verb, "1.1.0")?;
        ensure!(
            outcome.code == Some(0) && outcome.stdout.is_empty(),
            "{verb}: {outcome:?}"
        );
    }
    Ok(())
}

fn del_error(bench: &Bench) -> anyhow::Result<()> {
    let _fake = bench.fake_answering(400, "it could not be\n")?;
    call(bench, "DEL", "1.1.0")?.tells(&["it could not be"])
}

fn del_alone(bench: &Bench) -> anyhow::Result<()> {
    let outcome = call(bench, "DEL", "1.1.0")?;
    let _ = std::fs::remove_dir_all(bench.scene.node.path("/var/lib/cni/fake"));
    ensure!(
        outcome.code == Some(0) && outcome.stdout.is_empty(),
        "{outcome:?}"
    );
    Ok(())
}

fn status_alone(bench: &Bench) -> anyhow::Result<()> {
    bench
        .spawn(&env("STATUS"), config("1.1.0").to_string().as_bytes())?
        .within(10)?
        .has_code(50)
}

fn log_file(bench: &Bench) -> anyhow::Result<()> {
    let _fake = bench.fake_answering(400, "it is out of order\n")?;
    let mut config = config("1.1.0");
    config["logFile"] = json!("/run/fake/shim.log");
    config["logLevel"] = json!("debug");
    bench
        .shim(&env("ADD"), config.to_string().as_bytes())?
        .error()?;
    let log =
        std::fs::read_to_string(bench.scene.node.path("/run/fake/shim.log")).context("no log")?;
    ensure!(log.contains("it is out of order"), "{log}");
    Ok(())
}
