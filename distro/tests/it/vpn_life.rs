//! `vpn run`, its unit, and the commands around it, with a program in the place of tailscale.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{path, run};

/// A node, and a program that answers as tailscale does on a node that is not logged in.
struct Node {
    dir: tempfile::TempDir,
}

const NOT_LOGGED_IN: &str = r#"echo "$@" >>"$0.calls"
case $1 in
status) echo '{"BackendState": "NeedsLogin", "Version": "1.102.5", "TUN": true, "Self": {"HostName": "a"}}' ;;
debug) echo '{"ControlURL": "", "AdvertiseRoutes": null}' ;;
up) env >"$0.env"; echo 'backend error: invalid authkey' >&2; exit 1 ;;
esac
"#;

impl Node {
    fn new(tailscale: &str) -> Self {
        let node = Self {
            dir: tempfile::tempdir().expect("there is room"),
        };
        fs::create_dir(node.at("bin")).expect("a file of the test");
        node.write("bin/tailscale", &format!("#!/bin/sh\n{tailscale}"), 0o755);
        node.write("auth", "name=tailscale,joinKey=tskey-auth-Abc123\n", 0o600);
        node
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        fs::write(self.at(name), text).expect("a file of the test");
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode))
            .expect("a file of the test");
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_multus-distro"));
        let search = format!("{}:/usr/bin:/bin", self.at("bin").display());
        command
            .args(args)
            .args(["--root", path(self.dir.path())])
            .env("PATH", search);
        command
    }

    fn output(&self, args: &[&str]) -> Output {
        self.command(args)
            .output()
            .expect("the built program starts")
    }

    /// Starts `vpn run`; returns it with its first line.
    fn start(&self) -> (Child, String) {
        let auth = self.at("auth");
        let mut child = self
            .command(&["vpn", "run", "--vpn-auth-file", path(&auth)])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the built program starts");
        let mut line = String::new();
        let stderr = child.stderr.as_mut().expect("it is piped");
        BufReader::new(stderr)
            .read_line(&mut line)
            .expect("a file of the test");
        (child, line)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn refused_key_is_reported_and_left_nowhere() {
    let node = Node::new(NOT_LOGGED_IN);
    let (mut child, line) = node.start();
    assert!(line.contains("invalid authkey: correct the key"), "{line}");
    // Two that keep one VPN would disagree.
    let second = text(&node.output(&["vpn", "down"]).stderr);
    assert!(
        second.contains("systemctl disable --now multus-vpn.service first"),
        "{second}"
    );
    let state = fs::read_to_string(node.at("run/multus-vpn/state.json")).unwrap();
    assert!(state.contains("invalid authkey"), "{state}");
    let status = node.output(&["vpn", "status"]);
    assert_eq!(status.status.code(), Some(1));
    assert!(
        text(&status.stdout).contains("problem        `tailscale up"),
        "{status:?}"
    );
    let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(id, Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "SIGTERM ends it");
    for name in [
        "run/multus-vpn/state.json",
        "var/lib/multus-vpn/record.json",
        "bin/tailscale.calls",
        "bin/tailscale.env",
    ] {
        assert!(
            !fs::read_to_string(node.at(name))
                .unwrap()
                .contains("Abc123"),
            "{name}"
        );
    }
    assert!(!node.at("run/multus-vpn/key").exists());
    let calls = fs::read_to_string(node.at("bin/tailscale.calls")).unwrap();
    assert!(calls.contains("/run/multus-vpn/key"), "{calls}");
    for dir in ["run/multus-vpn", "var/lib/multus-vpn"] {
        let mode = fs::metadata(node.at(dir)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{dir}");
    }
    // The key was refused: a VPN that runs later is its user's, and stays up.
    assert!(node.output(&["vpn", "down"]).status.success());
    let calls = fs::read_to_string(node.at("bin/tailscale.calls")).unwrap();
    assert!(!calls.contains("\ndown "), "{calls}");
    assert!(!node.at("var/lib/multus-vpn").exists() && !node.at("run/multus-vpn").exists());
}

#[test]
fn environment_of_the_program_has_no_settings_of_the_vpn() {
    let node = Node::new(NOT_LOGGED_IN);
    let output = node
        .command(&["vpn", "status"])
        .env("K3S_VPN_AUTH", "name=tailscale,joinKey=tskey-auth-Abc123")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let (mut child, _) = node.start();
    let environment = fs::read_to_string(node.at("bin/tailscale.env")).unwrap();
    let names: Vec<&str> = environment
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    assert!(
        names
            .iter()
            .all(|name| ["PATH", "HOME", "PWD", "_", "SHLVL", "OLDPWD"].contains(name)),
        "{names:?}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn settings_that_cannot_be_read_reach_the_state() {
    let node = Node::new(NOT_LOGGED_IN);
    node.write("auth", "name=tailscale,joinKey=tskey-auth-Abc123\n", 0o644);
    let (mut child, line) = node.start();
    assert!(line.contains("chmod 600"), "{line}");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let state = fs::read_to_string(node.at("run/multus-vpn/state.json")).unwrap();
    assert!(state.contains("chmod 600"), "{state}");
}

#[test]
fn hook_notes_the_subnet_and_always_succeeds() {
    let node = Node::new(NOT_LOGGED_IN);
    let hook = |subnet: &str| {
        let mut command = node.command(&["vpn", "hook"]);
        command.env("SUBNET", subnet).env("IPV6SUBNET", "::/0");
        command.output().unwrap()
    };
    assert!(hook("10.42.1.0/24").status.success());
    let written = fs::read_to_string(node.at("run/multus-vpn/flannel.json")).unwrap();
    let written: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!(written["subnets"], serde_json::json!(["10.42.1.0/24"]));
    let output = hook("nonsense");
    assert!(output.status.success());
    assert!(
        text(&output.stderr).contains("nonsense is not a range of addresses"),
        "{output:?}"
    );
}

#[test]
fn status_of_a_node_without_tailscale_names_what_to_install() {
    let node = Node::new(NOT_LOGGED_IN);
    fs::remove_file(node.at("bin/tailscale")).unwrap();
    let output = node
        .command(&["vpn", "status", "--json"])
        .env("PATH", node.at("bin"))
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["phase"], "notInstalled");
    assert_eq!(report["findings"][0]["isProblem"], true);
    assert!(text(&output.stderr).contains("install it"), "{output:?}");
    // Nothing is left to take down, and the node can leave the VPN.
    fs::create_dir_all(node.at("var/lib/multus-vpn")).unwrap();
    let record = r#"{"schema": 1, "broughtUp": true, "keptSources": true, "acceptedRoutes": true, "routes": {"ours": ["10.42.1.0/24"], "ofUser": []}}"#;
    node.write("var/lib/multus-vpn/record.json", record, 0o600);
    let down = node
        .command(&["vpn", "down"])
        .env("PATH", node.at("bin"))
        .output();
    assert!(down.unwrap().status.success());
    assert!(!node.at("var/lib/multus-vpn").exists());
}

#[test]
fn install_writes_the_unit_of_the_vpn_and_remove_deletes_it() {
    let node = Node::new(NOT_LOGGED_IN);
    fs::create_dir_all(node.at("etc/systemd/system")).unwrap();
    fs::create_dir_all(node.at("opt")).unwrap();
    node.write("opt/multus-distro", "", 0o755);
    node.write("etc/multus-vpn.auth", "name=tailscale", 0o600);
    node.write(
        "etc/systemd/system/k3s-agent.service",
        "[Service]\nExecStart=/usr/local/bin/k3s agent\n",
        0o644,
    );
    let install = |more: &[&str]| {
        let root = path(node.dir.path());
        let output = run(&[
            &["install", "--root", root, "--program", "/opt/multus-distro"],
            more,
        ]
        .concat());
        assert!(output.status.success(), "{output:?}");
        (text(&output.stdout), text(&output.stderr))
    };
    let (unit, drop_in) = (
        Path::new("/etc/systemd/system/multus-vpn.service"),
        Path::new("/etc/systemd/system/k3s-agent.service.d/90-multus.conf"),
    );
    let at = |path: &Path| node.at(super::path(path).trim_start_matches('/'));
    let alone = ["--vpn-cluster-cidr", "10.9.0.0/16"];
    let root = path(node.dir.path());
    let output = run(&[&["install", "--root", root][..], &alone].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let with_vpn = ["--vpn-auth-file", "/etc/multus-vpn.auth"];
    let (written, notes) = install(&with_vpn);
    assert_eq!(
        written,
        format!("{}\n{}\n", unit.display(), drop_in.display())
    );
    assert!(
        notes.contains("systemctl enable --now multus-vpn.service"),
        "{notes}"
    );
    let drop_in_text = fs::read_to_string(at(drop_in)).unwrap();
    assert!(
        drop_in_text
            .contains("run --vpn-auth-file /etc/multus-vpn.auth -- /usr/local/bin/k3s agent"),
        "{drop_in_text}"
    );
    assert!(install(&with_vpn).1.contains("is up to date"));
    // Installed again without the option, as after a change of the unit, the node stays on the VPN.
    let in_drop_in = |expected: &str| {
        let text = fs::read_to_string(at(drop_in)).unwrap();
        assert!(text.contains(expected), "{expected}: {text}");
    };
    install(&["--vpn-cluster-cidr", "10.9.0.0/16,fd09::/56"]);
    let options =
        "--vpn-auth-file /etc/multus-vpn.auth --vpn-cluster-cidr 10.9.0.0/16,fd09::/56 -- ";
    in_drop_in(options);
    assert!(install(&[]).1.contains("is up to date"));
    in_drop_in(options);
    // Multus comes to a node on the VPN when it is asked for, and stays.
    install(&["--multus"]);
    in_drop_in(&format!("run --multus {options}"));
    assert!(install(&with_vpn).1.contains("is up to date"));
    assert!(at(unit).exists());
    let doctor = text_of_doctor(&node);
    assert!(
        doctor.contains("vpn            used; `vpn status` on the node itself"),
        "{doctor}"
    );
    let output = run(&["uninstall", "--root", root]);
    assert!(output.status.success(), "{output:?}");
    let removed = text(&output.stdout);
    assert_eq!(removed.lines().count(), 2, "{removed}");
    assert!(!at(unit).exists() && !at(drop_in).exists());
    assert!(!text_of_doctor(&node).contains("vpn "));
}

fn text_of_doctor(node: &Node) -> String {
    text(&node.output(&["doctor"]).stdout)
}
