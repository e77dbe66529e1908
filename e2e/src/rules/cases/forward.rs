//! Cases of subject `forward`: From the shim to the daemon.

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use serde_json::{Value, json};

use super::cases;
use crate::{
    rules::harness::{FAKE_DAEMON_DIR, Harness},
    sandbox::Answer,
};

cases! { "forward":
    own_daemon request ["forward.socket-dir", "forward.unknown-keys", "forward.request"]
    own_daemon log_file ["forward.log-file"]
    own_daemon waits_for_the_daemon ["forward.wait"]
    own_daemon to_a_daemon_without_readyz ["forward.no-readyz"]
    own_daemon empty_output ["forward.empty-output"]
    own_daemon result_version ["forward.result-version"]
    own_daemon result_fields ["forward.result-fields"]
    own_daemon empty_answer_to_add ["forward.empty-answer"]
    own_daemon text_error ["errors.shim", "shim.error-document"]
    own_daemon typed_error ["errors.code"]
    own_daemon error_of_del ["forward.del-error"]
    own_daemon del_without_daemon ["del.without-daemon-succeeds"]
    own_daemon status_without_daemon ["status.without-daemon"]
}

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
    ]
}

fn config(version: &str) -> Value {
    json!({"cniVersion": version, "name": "n", "type": "multus-shim", "daemonSocketDir": FAKE_DAEMON_DIR, "cniDir": "/var/lib/cni/fake", "other": {"z": 1, "a": [2]}})
}

fn call(harness: &Harness, verb: &str, version: &str) -> anyhow::Result<Answer> {
    harness.shim(&env(verb), config(version).to_string().as_bytes())
}

fn request(harness: &Harness) -> anyhow::Result<()> {
    let fake = harness.fake_daemon_answering(200, RESULT)?;
    call(harness, "ADD", "1.1.0")?.success()?;
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

fn to_a_daemon_without_readyz(harness: &Harness) -> anyhow::Result<()> {
    let _fake = harness.fake_daemon(|path, _| match path {
        "/cni" => (200, RESULT),
        "/healthz" => (200, ""),
        _ => (404, ""),
    })?;
    harness
        .spawn_shim(&env("ADD"), config("1.1.0").to_string().as_bytes())?
        .within(10)?
        .success()
        .map(drop)
}

fn waits_for_the_daemon(harness: &Harness) -> anyhow::Result<()> {
    let fake = harness.fake_daemon(|path, number| match (path, number) {
        ("/cni", _) => (200, RESULT),
        (_, 0..3) => (500, "not yet"),
        _ => (200, ""),
    })?;
    for verb in ["ADD", "CHECK", "GC"] {
        harness
            .spawn_shim(&env(verb), config("1.1.0").to_string().as_bytes())?
            .within(10)?
            .success()?;
    }
    ensure!(fake.requests()?.len() == 3, "{:?}", fake.requests()?);
    Ok(())
}

fn empty_answer_to_add(harness: &Harness) -> anyhow::Result<()> {
    let _fake = harness.fake_daemon(|_, _| (200, ""))?;
    call(harness, "ADD", "1.1.0")?.error().map(drop)
}

fn text_error(harness: &Harness) -> anyhow::Result<()> {
    let _fake = harness.fake_daemon_answering(400, "it is out of order\n")?;
    for (verb, word) in [
        ("ADD", "CmdAdd (shim):"),
        ("CHECK", "CmdCheck (shim):"),
        ("GC", "CmdGC (shim):"),
        ("STATUS", "CmdStatus (shim):"),
    ] {
        call(harness, verb, "1.1.0")?.error_contains(&[
            word,
            "CNI request failed with status 400",
            "it is out of order",
        ])?;
    }
    Ok(())
}

fn typed_error(harness: &Harness) -> anyhow::Result<()> {
    let _fake =
        harness.fake_daemon_answering(400, r#"{"code":11,"msg":"not now","details":"because"}"#)?;
    for verb in ["ADD", "CHECK", "GC", "STATUS"] {
        let outcome = call(harness, verb, "1.1.0")?;
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

fn result_version(harness: &Harness) -> anyhow::Result<()> {
    let _fake = harness.fake_daemon_answering(200, RESULT)?;
    for version in ["1.1.0", "1.0.0", "0.4.0", "0.3.1", "0.3.0"] {
        let result = call(harness, "ADD", version)?.success()?;
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
        let result = call(harness, "ADD", version)?.success()?;
        ensure!(
            result["cniVersion"] == version && result["ip4"]["ip"] == "10.9.0.2/24",
            "{result}"
        );
        ensure!(result["ip4"]["gateway"] == "10.9.0.1", "{result}");
    }
    Ok(())
}

fn result_fields(harness: &Harness) -> anyhow::Result<()> {
    let _fake = harness.fake_daemon_answering(200, RESULT)?;
    let result = call(harness, "ADD", "1.1.0")?.success()?;
    ensure!(result["interfaces"][0]["mtu"] == 1400, "{result}");
    let result = call(harness, "ADD", "1.0.0")?.success()?;
    ensure!(
        result["interfaces"][0]["mtu"].is_null() && result["routes"][0]["mtu"].is_null(),
        "{result}"
    );
    Ok(())
}

fn empty_output(harness: &Harness) -> anyhow::Result<()> {
    let _fake = harness.fake_daemon(|_, _| (200, ""))?;
    for verb in ["CHECK", "DEL", "GC", "STATUS"] {
        let outcome = call(harness, verb, "1.1.0")?;
        ensure!(
            outcome.code == Some(0) && outcome.stdout.is_empty(),
            "{verb}: {outcome:?}"
        );
    }
    Ok(())
}

fn error_of_del(harness: &Harness) -> anyhow::Result<()> {
    let _fake = harness.fake_daemon_answering(400, "it could not be\n")?;
    call(harness, "DEL", "1.1.0")?.error_contains(&["it could not be"])
}

fn del_without_daemon(harness: &Harness) -> anyhow::Result<()> {
    let outcome = call(harness, "DEL", "1.1.0")?;
    let _ = std::fs::remove_dir_all(harness.node().path("/var/lib/cni/fake"));
    ensure!(
        outcome.code == Some(0) && outcome.stdout.is_empty(),
        "{outcome:?}"
    );
    Ok(())
}

fn status_without_daemon(harness: &Harness) -> anyhow::Result<()> {
    let status = || {
        harness
            .spawn_shim(&env("STATUS"), config("1.1.0").to_string().as_bytes())?
            .within(10)
    };
    let fake = harness.fake_daemon_answering(200, "")?;
    status()?.success()?;
    drop(fake);
    status()?.success()?;
    // The shim sees that the socket was removed a moment ago.
    let directory = ["touch", "--date=1 minute ago", FAKE_DAEMON_DIR];
    harness.node().run(&directory)?;
    status()?.has_code(50)
}

fn log_file(harness: &Harness) -> anyhow::Result<()> {
    let _fake = harness.fake_daemon_answering(400, "it is out of order\n")?;
    let mut config = config("1.1.0");
    config["logFile"] = json!("/run/fake/shim.log");
    config["logLevel"] = json!("debug");
    harness
        .shim(&env("ADD"), config.to_string().as_bytes())?
        .error()?;
    let log =
        std::fs::read_to_string(harness.node().path("/run/fake/shim.log")).context("no log")?;
    ensure!(log.contains("it is out of order"), "{log}");
    Ok(())
}
