//! The order of a start: the gates before pods are sent to the daemon, the configuration as the last step, and probes.

use std::{fs, os::unix::fs::PermissionsExt};

use api::options::{Kind, OPTIONS};
use serde_json::{Value, json};
use testkit::api_server::ApiServer;

use crate::{node::NodeFixture, wait_for};

const CONFIGURATION: &str = "etc/cni/net.d/00-multus.conf";

#[test]
fn configuration_waits_for_the_watches() {
    let node = NodeFixture::with(ApiServer::start_without_lists());
    node.install_primary();
    let daemon = node.start();
    let problem = wait_for("all gates but watches", || {
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
fn normal_start_and_stop_log_no_warning() {
    let node = NodeFixture::with(ApiServer::start());
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
fn configuration_waits_for_a_default_network() {
    let node = NodeFixture::with(ApiServer::start());
    let daemon = node.start();
    let problem = wait_for("all gates but the configuration", || {
        daemon.problem().filter(|problem| {
            problem.starts_with("configuration: no CNI configuration of a default network")
        })
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
fn shim_and_socket_exist_before_the_configuration() {
    let node = NodeFixture::new();
    let daemon = node.start();
    wait_for("the configuration", || {
        node.path(CONFIGURATION).exists().then_some(())
    });
    assert_eq!(daemon.send("GET", api::PATH_HEALTHZ, b"").status, 200);
    for copy in ["opt/cni/bin/multus-shim", "var/lib/multus/bin/passthru"] {
        assert_eq!(fs::read(node.path(copy)).unwrap(), b"the shim");
    }
    let passthru = fs::metadata(node.path("var/lib/multus/bin/passthru"));
    assert_eq!(passthru.unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn own_plugins_are_installed_as_the_file_says_and_others_stay() {
    let node = NodeFixture::new();
    let dir = node.path("var/lib/multus/bin");
    let names = || {
        let mut names: Vec<_> = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("static"), "theirs").unwrap();
    node.start().ready().kill();
    let all = api::plugins::NAMES.iter().copied();
    let mut expected: Vec<_> = all.chain(["multus-cni-plugins", "passthru"]).collect();
    expected.sort_unstable();
    assert_eq!(names(), expected);
    assert_eq!(
        fs::read_to_string(dir.join("macvlan")).unwrap(),
        "the plugins"
    );
    assert_eq!(fs::read_to_string(dir.join("static")).unwrap(), "theirs");

    node.configure(&json!({"ownPlugins": {"only": ["macvlan"]}}));
    node.start().ready().kill();
    assert_eq!(
        names(),
        ["macvlan", "multus-cni-plugins", "passthru", "static"]
    );

    node.configure(&json!({"ownPlugins": {"install": false}}));
    node.start().ready().kill();
    assert_eq!(names(), ["passthru", "static"]);
}

#[test]
fn only_root_can_open_socket_and_configuration() {
    let node = NodeFixture::new();
    let _daemon = node.start().ready();
    let mode = |path: &str| fs::metadata(node.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("run/multus/multus.sock"), 0o600);
    assert_eq!(mode("run/multus"), 0o700);
    assert_eq!(mode(CONFIGURATION), 0o600);
}

#[test]
fn mode_of_the_socket_directory_is_changed_only_if_it_is_ours() {
    let node = NodeFixture::new();
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
        "with the sockets of a killed daemon"
    );
    fs::write(dir.join("theirs"), "").unwrap();
    assert_eq!(start_with_mode(0o755), 0o755);
}

#[test]
fn probe_reports_readiness() {
    let node = NodeFixture::with(ApiServer::start());
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
    wait_for("a daemon without a default network", || {
        daemon.problem().filter(|problem| {
            problem.starts_with("configuration: no CNI configuration of a default network")
        })
    });
    let (ready, text) = probe();
    assert!(
        !ready && text.contains("no CNI configuration of a default network"),
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

/// Files with one broken key each, and files that cannot be parsed.
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
    let node = NodeFixture::new();
    let daemon = node.start().ready();
    for file in broken_files() {
        node.write("daemon-config.json", &file);
        for args in [&["status"][..], &["status", "--ready"]] {
            let output = node.command().args(args).output().unwrap();
            assert!(output.status.success(), "{file}: {output:?}");
        }
    }
    drop(daemon);
}

#[test]
fn probe_finds_its_daemon_after_a_change_of_the_file() {
    let node = NodeFixture::new();
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
    let node = NodeFixture::with(ApiServer::start());
    let _daemon = node.start();
    let mut probe = node.command();
    probe.args(["status", "--ready", "--wait=60"]);
    let probe = probe.spawn().unwrap();
    node.install_primary();
    let output = probe.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
