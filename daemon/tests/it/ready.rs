//! The way of a start: what has to be well before pods are sent here, and what is written last.

use std::{fs, os::unix::fs::PermissionsExt};

use api::options::{Kind, OPTIONS};
use serde_json::{Value, json};
use testkit::api_server::ApiServer;

use crate::{node::Node, wait_for};

const CONFIGURATION: &str = "etc/cni/net.d/00-multus.conf";

#[test]
fn the_configuration_waits_for_the_watches() {
    let node = Node::with(ApiServer::start_without_lists());
    node.install_primary();
    let daemon = node.start();
    let problem = wait_for("all but watches", || {
        daemon.problem().filter(|problem| {
            problem.starts_with("watches: the API server has not answered yet")
                && !problem.contains("; shim: ")
        })
    });
    assert!(problem.contains("configuration: "), "{problem}");
    assert!(node.path("opt/cni/bin/multus-shim").exists());
    assert!(!node.path(CONFIGURATION).exists());
    node.api.answer_lists();
    let daemon = daemon.ready();
    assert!(node.path(CONFIGURATION).exists(), "{}", daemon.log());
}

#[test]
fn a_normal_start_and_stop_log_no_warning() {
    let node = Node::with(ApiServer::start());
    node.install_primary();
    let random = node.path("proc/sys/kernel/random");
    fs::create_dir_all(&random).unwrap();
    fs::write(random.join("boot_id"), "one\n").unwrap();
    let mut daemon = node.start().ready();
    daemon.terminate();
    daemon.ended();
    let log = daemon.log();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("WARN")).collect();
    assert!(warnings.is_empty(), "{warnings:#?}");
}

#[test]
fn the_configuration_waits_for_a_primary() {
    let node = Node::with(ApiServer::start());
    let daemon = node.start();
    let problem = wait_for("all but a primary", || {
        daemon
            .problem()
            .filter(|problem| problem.starts_with("configuration: no primary"))
    });
    assert!(problem.contains("/etc/cni/net.d"), "{problem}");
    assert!(!node.path(CONFIGURATION).exists());
    node.install_primary();
    let _daemon = daemon.ready();
    let config = node.config();
    assert_eq!(config["type"], "multus-shim");
    assert_eq!(config["cniVersion"], "1.0.0");
    assert_eq!(
        config["clusterNetwork"],
        "/etc/cni/net.d/10-primary.conflist"
    );
}

#[test]
fn what_the_configuration_leads_to_is_there_before_it() {
    let node = Node::new();
    let daemon = node.start();
    wait_for("the configuration", || {
        node.path(CONFIGURATION).exists().then_some(())
    });
    assert_eq!(daemon.send("GET", api::PATH_HEALTHZ, b"").status, 200);
    let shim = fs::read(node.path("opt/cni/bin/multus-shim")).unwrap();
    assert_eq!(shim, b"the shim");
}

#[test]
fn only_root_reaches_the_socket() {
    let node = Node::new();
    let _daemon = node.start().ready();
    let mode = |path: &str| fs::metadata(node.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("run/multus/multus.sock"), 0o600);
    assert_eq!(mode("run/multus"), 0o700);
    assert_eq!(mode(CONFIGURATION), 0o600);
}

#[test]
fn a_socket_directory_of_ours_is_closed_and_one_of_others_left_alone() {
    let node = Node::new();
    let dir = node.path("run/multus");
    let start_with_mode = |mode| {
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        node.start().ready().kill();
        fs::metadata(&dir).unwrap().permissions().mode() & 0o777
    };
    fs::create_dir_all(&dir).unwrap();
    assert_eq!(start_with_mode(0o755), 0o700);
    assert_eq!(
        start_with_mode(0o755),
        0o700,
        "with the names of a killed one"
    );
    fs::write(dir.join("theirs"), "").unwrap();
    assert_eq!(start_with_mode(0o755), 0o755);
}

#[test]
fn a_probe_gets_the_same_answer() {
    let node = Node::with(ApiServer::start());
    let probe = || {
        let output = node.command().args(["status", "--ready"]).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    let (ready, text) = probe();
    assert!(
        !ready && text.contains("has not opened its socket"),
        "{text}"
    );
    let daemon = node.start();
    wait_for("a daemon without a primary", || {
        daemon
            .problem()
            .filter(|problem| problem.starts_with("configuration: no primary"))
    });
    let (ready, text) = probe();
    assert!(
        !ready && text.contains("no primary CNI configuration"),
        "{text}"
    );
    node.install_primary();
    let _daemon = daemon.ready();
    assert_eq!(probe(), (true, "ready\n".to_owned()));
}

/// A value that no key of this type accepts.
fn wrong(kind: Kind) -> Value {
    match kind {
        Kind::String => json!(1),
        _ => json!("neither"),
    }
}

/// Every way in which one key of the daemon's file can be broken.
fn broken_files() -> impl Iterator<Item = String> {
    let keys = OPTIONS.iter().flat_map(|option| {
        [
            json!({option.name: wrong(option.kind)}),
            json!({format!("{}x", option.name): true}),
        ]
    });
    let texts = ["", "{", "[]"].map(str::to_owned);
    keys.map(|file| file.to_string()).chain(texts)
}

#[test]
fn broken_file_leaves_a_running_daemon_ready_and_alive() {
    let node = Node::new();
    let daemon = node.start().ready();
    for file in broken_files() {
        node.write("daemon-config.json", &file);
        for arguments in [&["status"][..], &["status", "--ready"]] {
            let output = node.command().args(arguments).output().unwrap();
            assert!(output.status.success(), "{file}: {output:?}");
        }
    }
    drop(daemon);
}

#[test]
fn probe_of_a_pod_finds_its_daemon_wherever_the_file_says_now() {
    let node = Node::new();
    for (own, later) in [("/run/multus", "/var/later"), ("/var/own", "/run/multus")] {
        node.configure(&json!({"socketDir": own}));
        let mut command = node.command();
        command.env("POD_UID", "uid-1");
        let daemon = node.start_with(command);
        let alive = || {
            let mut probe = node.command();
            probe.env("POD_UID", "uid-1").args(["status", "--wait=60"]);
            let output = probe.output().unwrap();
            assert!(output.status.success(), "{own}: {output:?}");
        };
        alive();
        node.configure(&json!({"socketDir": later}));
        alive();
        drop(daemon);
    }
}

#[test]
fn waiting_probe_succeeds_once_the_daemon_is_ready() {
    let node = Node::with(ApiServer::start());
    let _daemon = node.start();
    let mut probe = node.command();
    probe.args(["status", "--ready", "--wait=60"]);
    let probe = probe.spawn().unwrap();
    node.install_primary();
    let output = probe.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
