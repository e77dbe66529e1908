//! `multus-daemon plugins`: the plugins in the runtime's directory and no multiplexer, and the way from one to the other and back.

use std::{fs, process::Command};

use serde_json::json;
use testkit::api_server::Kind;

use crate::{
    daemon::Daemon,
    lifecycle::{delete_daemon_set, owned_with, put_daemon_set},
    node::NodeFixture,
    wait_for,
};

const CONFIGURATION: &str = "etc/cni/net.d/00-multus.conf";
const RECORD: &str = "var/lib/multus/plugins.json";
const PROGRAM: &str = "multus-cni-plugins";

/// A node that wants two of our plugins, and one that is of no use without a multiplexer.
fn node() -> NodeFixture {
    let node = NodeFixture::new();
    node.configure(&json!({"ownPlugins": {"only": ["macvlan", "multus-ipam", "static"]}}));
    node
}

fn command(node: &NodeFixture) -> Command {
    let mut command = node.command();
    command.arg("plugins");
    command
}

/// Starts a daemon that installs plugins and knows its DaemonSet.
fn start(node: &NodeFixture) -> Daemon {
    owned_with(node, command(node)).by_own_name().ready()
}

/// The names in the runtime's directory.
fn names(node: &NodeFixture) -> Vec<String> {
    let entries = fs::read_dir(node.bin_dir()).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Makes the DaemonSet run the daemon with this argument.
fn run_in_daemon_set(node: &NodeFixture, argument: &str) {
    let containers = json!([{"command": ["/multus-daemon"], "args": [argument]}]);
    node.api.put(
        Kind::DaemonSet,
        json!({
            "metadata": {"namespace": "kube-system", "name": "multus"},
            "spec": {"template": {"spec": {"containers": containers}}},
        }),
    );
}

#[test]
fn free_names_get_plugins_and_nothing_else_is_installed() {
    let node = node();
    run_in_daemon_set(&node, "plugins");
    node.write("opt/cni/bin/static", "theirs");
    let mut daemon = start(&node);
    assert_eq!(names(&node), ["macvlan", PROGRAM, "primary", "static"]);
    let read = |name: &str| fs::read_to_string(node.bin_dir().join(name)).unwrap();
    assert_eq!(
        (read("macvlan"), read("static")),
        ("the plugins".to_owned(), "theirs".to_owned())
    );
    assert!(!node.path(CONFIGURATION).exists());
    assert!(!node.path("var/lib/multus/bin").exists());
    assert!(!node.path("run/multus/multus.sock").exists());

    // A plugin that the node gets later takes its name, and one that it loses leaves it.
    let theirs = node.path("opt/cni/bin/new");
    fs::write(&theirs, "theirs").unwrap();
    fs::rename(theirs, node.bin_dir().join("macvlan")).unwrap();
    node.remove("opt/cni/bin/static");
    wait_for("the free name", || {
        (read_link(&node, "static") == PROGRAM).then_some(())
    });
    assert_eq!(read("macvlan"), "theirs");

    daemon.until_logged("this daemon's DaemonSet stays", 1);
    let paths: Vec<_> = node
        .api
        .requests()
        .into_iter()
        .map(|ask| ask.method_and_path)
        .collect();
    assert!(
        paths.iter().all(|path| path.ends_with("/daemonsets")),
        "{paths:?}"
    );
    daemon.terminate();
    assert!(daemon.ended().success());
    assert_eq!(
        names(&node),
        ["macvlan", PROGRAM, "primary", "static"],
        "a stop removes nothing"
    );
}

fn read_link(node: &NodeFixture, name: &str) -> String {
    let target = fs::read_link(node.bin_dir().join(name)).unwrap_or_default();
    target.display().to_string()
}

#[test]
fn plugins_of_another_installer_are_neither_used_nor_removed() {
    let node = node();
    node.write("opt/cni/bin/multus-cni-plugins", "the plugins");
    let daemon = owned_with(&node, command(&node)).by_own_name();
    let problem = wait_for("the reason", || {
        let problem = daemon.problem()?;
        problem.contains("plugins: ").then_some(problem)
    });
    assert!(
        problem.contains("multus-cni-plugins uninstall"),
        "{problem}"
    );
    assert_eq!(names(&node), [PROGRAM, "primary"]);
    // A directory that lacks no name needs no program.
    for name in ["macvlan", "static"] {
        std::os::unix::fs::symlink(PROGRAM, node.bin_dir().join(name)).unwrap();
    }
    drop(daemon);
    let mut daemon = start(&node);
    delete(&node, &daemon);
    daemon.terminate();
    assert!(daemon.ended().success());
    assert_eq!(names(&node), ["macvlan", PROGRAM, "primary", "static"]);
}

/// Deletes the DaemonSet, which this daemon is about to see for the first time.
fn delete(node: &NodeFixture, daemon: &Daemon) {
    run_in_daemon_set(node, "plugins");
    delete_daemon_set(node, daemon, 1);
}

#[test]
fn uninstallation_removes_the_plugins() {
    for is_refused in [false, true] {
        let node = node();
        run_in_daemon_set(&node, "plugins");
        let mut daemon = start(&node);
        assert_eq!(names(&node).len(), 4);
        if is_refused {
            daemon.until_logged("this daemon's DaemonSet stays", 1);
            node.api.refuse_reads("/daemonsets", 403);
        } else {
            delete_daemon_set(&node, &daemon, 1);
        }
        daemon.terminate();
        assert!(daemon.ended().success());
        assert_eq!(names(&node), ["primary"]);
        assert!(!node.path(RECORD).exists());
    }
}

#[test]
fn update_from_multiplexer_to_plugins_and_back() {
    let node = node();
    put_daemon_set(&node);
    let mut old = owned_with(&node, node.command()).ready().by_own_name();
    old.until_logged("this daemon's DaemonSet stays", 1);
    // The next daemon starts before the former one ends.
    run_in_daemon_set(&node, "plugins");
    let mut plugins = start(&node);
    assert!(
        node.path(CONFIGURATION).exists(),
        "the former daemon still serves"
    );
    old.terminate();
    assert!(old.ended().success());
    assert!(!node.path(CONFIGURATION).exists());
    // The former daemon may have removed them as those of a former installation: the next one puts them back.
    wait_for("the plugins", || {
        (names(&node) == ["macvlan", PROGRAM, "primary", "static"]).then_some(())
    });
    assert!(node.path(RECORD).exists());

    plugins.until_logged("this daemon's DaemonSet stays", 2);
    run_in_daemon_set(&node, "run");
    let new = owned_with(&node, node.command()).ready();
    plugins.terminate();
    assert!(plugins.ended().success());
    assert!(node.path(CONFIGURATION).exists());
    assert_eq!(names(&node), ["multus-shim", "primary"]);
    assert!(node.path("var/lib/multus/bin/macvlan").exists());
    new.kill();
}

#[test]
fn leftovers_of_a_killed_daemon_are_removed() {
    let node = node();
    run_in_daemon_set(&node, "plugins");
    owned_with(&node, node.command()).ready().kill();
    // The configuration of another multiplexer, which has no record, stays.
    node.write("etc/cni/net.d/01-other.conf", r#"{"type": "multus-shim"}"#);
    let plugins = start(&node);
    wait_for("the removal", || (names(&node).len() == 4).then_some(()));
    assert!(!node.path(CONFIGURATION).exists());
    assert!(node.path("etc/cni/net.d/01-other.conf").exists());
    assert_eq!(names(&node), ["macvlan", PROGRAM, "primary", "static"]);
    node.remove("etc/cni/net.d/01-other.conf");
    plugins.kill();
    let daemon = owned_with(&node, node.command()).ready();
    wait_for("the removal", || {
        (names(&node) == ["multus-shim", "primary"]).then_some(())
    });
    daemon.kill();
}
