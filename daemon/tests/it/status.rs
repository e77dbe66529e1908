//! `multus-daemon status` and the metrics on the socket.

use std::fs;

use serde_json::{Value, json};

use crate::{node::NodeFixture, wait_for};

#[test]
fn status_command_and_metrics_show_served_verbs() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    let status = |args: &[&str]| {
        let output = node.command().arg("status").args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    daemon.cni(&node.request("ADD", "c1")).result();
    node.api.wait_for_patches(1);
    wait_for("the metric of the patch", || {
        let text = String::from_utf8(daemon.send("GET", api::PATH_METRICS, b"").body).unwrap();
        text.contains("resource=\"pods/status\",code=\"200\"} 1\n")
            .then_some(())
    });
    let text = String::from_utf8(daemon.send("GET", api::PATH_METRICS, b"").body).unwrap();
    for line in [
        "multus_ready 1\n",
        "multus_state_containers 1\n",
        "multus_journal_pending 0\n",
        "multus_cni_duration_seconds_count{command=\"ADD\",outcome=\"done\"} 1\n",
        "multus_delegate_duration_seconds_count{plugin=\"primary\",command=\"ADD\",outcome=\"done\"} 1\n",
        "multus_api_requests_total{verb=\"patch\",resource=\"pods/status\",code=\"200\"} 1\n",
        "multus_api_requests_total{verb=\"watch\",resource=\"network-attachment-definitions\",code=\"200\"}",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    let json: Value = serde_json::from_str(&status(&["--json"])).unwrap();
    assert_eq!(json["containers"], 1);
    assert_eq!(json["verbs"][0]["command"], "ADD");
    assert_eq!(json["problem"], Value::Null);
    let text = status(&[]);
    assert!(text.starts_with("running\nversion "), "{text}");
    for line in [
        "pods are served\n",
        "ADD done: 1, p50 ",
        "primary ADD done: 1",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert_eq!(status(&["--ready"]), "ready\n");
    assert_eq!(daemon.send("POST", api::PATH_STATUS, b"").status, 405);
}

#[test]
fn doctor_names_what_new_pods_lack() {
    let node = NodeFixture::new();
    // All directories are set, so no runtime is asked for them.
    node.configure(&json!({"shimDir": "/opt/cni/bin"}));
    let doctor = |args: &[&str]| {
        let output = node.command().arg("doctor").args(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let daemon = node.start().ready();
    let (status, text, error) = doctor(&[]);
    assert_eq!(status, Some(0), "{text}{error}");
    let expected = "multus         00-multus.conf is in use, the daemon answers\n";
    assert!(text.contains(expected), "{text}");
    // A daemon that runs would put the shim back.
    daemon.kill();
    node.remove("opt/cni/bin/multus-shim");
    fs::create_dir_all(node.path("etc/systemd/system")).unwrap();
    node.write("etc/systemd/system/multus-vpn.service", "");
    let (status, text, error) = doctor(&["--json"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(
        error.contains("2 problems, the first: 00-multus.conf names multus-shim"),
        "{error}"
    );
    let json: Value = serde_json::from_str(&text).unwrap();
    let problems = json["node"]["problems"].as_array().unwrap();
    let last = problems[1].as_str().unwrap();
    assert!(
        last.contains("no daemon answers at /run/multus/multus.sock"),
        "{last}"
    );
    assert_eq!(json["node"]["facts"][0][0], "vpn");
    assert!(json["dirs"].is_object(), "{json}");
}

#[test]
fn metric_of_plugins_grows_by_their_cpu_time() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let plugin = node.bin_dir().join("primary");
    let script = fs::read_to_string(&plugin).unwrap();
    let (first, rest) = script.split_once('\n').unwrap();
    // The kernel measures in hundredths of a second.
    let burn = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";
    fs::write(&plugin, format!("{first}\n{burn}\n{rest}")).unwrap();
    let daemon = node.start().ready();
    let cpu = || -> f64 {
        let text = String::from_utf8(daemon.send("GET", api::PATH_METRICS, b"").body).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("multus_plugin_cpu_seconds_total "));
        line.unwrap().parse().unwrap()
    };
    let before = cpu();
    daemon.cni(&node.request("ADD", "c1")).result();
    let after_add = cpu();
    assert!(before < after_add, "{before} {after_add}");
    daemon.cni(&node.request("DEL", "c1")).done();
    let after_del = cpu();
    assert!(after_add < after_del, "{after_add} {after_del}");
}
