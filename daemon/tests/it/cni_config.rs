//! The CNI configuration in the runtime's directory: its sources, conflicts with other programs, and its removal.

use std::fs;

use serde_json::json;

use crate::{daemon::Daemon, node::NodeFixture, wait_for};

const CONFIGURATION: &str = "etc/cni/net.d/00-multus.conf";
const SHIM: &str = "opt/cni/bin/multus-shim";
/// The shim of upstream, recognisable by the build information of Go's linker.
const UPSTREAMS: &[u8] = b"\x7fELF\x02\x01..\xff Go buildinf:\x08\x02..path\tgopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus-shim\n";
const PRIMARY: &str = r#"{"cniVersion":"1.0.0","name":"cbr0","plugins":[{"type":"primary"}]}"#;

fn until_problem(daemon: &Daemon, text: &str) -> String {
    wait_for(text, || {
        daemon.problem().filter(|problem| problem.contains(text))
    })
}

fn uninstall(node: &NodeFixture) -> String {
    let output = node.command().arg("uninstall").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A static configuration as it is mounted into the daemon's own file system.
fn static_config(node: &NodeFixture, name: &str) -> String {
    let config = json!({
        "cniVersion": "1.0.0", "name": "mine", "type": "multus-shim",
        "clusterNetwork": "/etc/cni/net.d/10-primary.conflist", "cniDir": "/var/lib/cni/mine",
    });
    fs::create_dir_all(node.path("mount")).unwrap();
    node.write(&format!("mount/{name}"), &config.to_string());
    node.path("mount").join(name).to_str().unwrap().to_owned()
}

#[test]
fn configuration_follows_the_default_network_and_stays_without_it() {
    let node = NodeFixture::new();
    let daemon = node.start().ready();
    let uses = |file: &str| {
        let path = format!("/etc/cni/net.d/{file}");
        wait_for(file, || {
            (node.config()["clusterNetwork"] == path.as_str()).then_some(())
        });
    };
    uses("10-primary.conflist");
    node.write("etc/cni/net.d/05-first.conflist", PRIMARY);
    uses("05-first.conflist");
    let before = fs::read(node.path(CONFIGURATION)).unwrap();
    node.write("etc/cni/net.d/05-first.conflist", "{\"half");
    until_problem(&daemon, "05-first.conflist can no longer be used");
    assert_eq!(fs::read(node.path(CONFIGURATION)).unwrap(), before);
    node.remove("etc/cni/net.d/05-first.conflist");
    uses("10-primary.conflist");
    let before = fs::read(node.path(CONFIGURATION)).unwrap();
    node.remove("etc/cni/net.d/10-primary.conflist");
    until_problem(&daemon, "no CNI configuration of a default network");
    assert_eq!(fs::read(node.path(CONFIGURATION)).unwrap(), before);
    // A link is noticed as well as a file.
    node.write("primary.conflist", PRIMARY);
    let link = node.path("etc/cni/net.d/20-link.conflist");
    std::os::unix::fs::symlink("/primary.conflist", link).unwrap();
    uses("20-link.conflist");
    let _daemon = daemon.ready();
}

#[test]
fn program_that_keeps_removing_the_configuration_is_named() {
    let node = NodeFixture::new();
    let daemon = node.start().ready();
    let (ours, theirs) = (
        node.path(CONFIGURATION),
        node.path("etc/cni/net.d/00-multus.conf.cilium_bak"),
    );
    let problem = wait_for("the name of the file", || {
        // The configuration may not be restored yet.
        let _ = fs::rename(&ours, &theirs);
        daemon
            .problem()
            .filter(|problem| problem.contains("keeps changing"))
    });
    assert!(
        problem.contains("renamed to 00-multus.conf.cilium_bak"),
        "{problem}"
    );
    wait_for("it to be back", || ours.exists().then_some(()));
}

#[test]
fn daemon_is_not_ready_while_the_default_network_is_not() {
    let node = NodeFixture::new();
    node.configure(&json!({"readinessindicatorfile": "/host/run/primary/ready"}));
    let daemon = node.start();
    until_problem(
        &daemon,
        "still waiting for readinessindicatorfile @ /run/primary/ready",
    );
    assert!(!node.path(CONFIGURATION).exists());
    fs::create_dir_all(node.path("run/primary")).unwrap();
    node.write("run/primary/ready", "");
    let daemon = daemon.ready();
    assert!(node.path(CONFIGURATION).exists());
    node.remove("run/primary/ready");
    until_problem(&daemon, "configuration: have you checked");
    assert!(
        node.path(CONFIGURATION).exists(),
        "no pod may start without multus"
    );
    node.write("run/primary/ready", "");
    // The key has no effect in requests: the daemon itself has waited.
    node.run_pod(None);
    let daemon = daemon.ready();
    daemon.cni(&node.request("ADD", "c1")).result();
}

#[test]
fn static_configuration_is_installed_and_removed() {
    let node = NodeFixture::new();
    let source = static_config(&node, "10-mine.conf");
    node.configure(&json!({"multusConfigFile": source}));
    let mut daemon = node.start().ready();
    let installed = node.path("etc/cni/net.d/10-mine.conf");
    assert_eq!(fs::read(&installed).unwrap(), fs::read(&source).unwrap());
    assert!(!node.path(CONFIGURATION).exists());
    node.run_pod(None);
    let mut request = node.request("ADD", "c1");
    request.config = fs::read(&installed).unwrap();
    daemon.cni(&request).result();
    assert!(
        node.path("var/lib/cni/mine/c1").exists(),
        "its own keys apply"
    );
    daemon.terminate();
    assert!(daemon.ended().success());
    assert!(installed.exists() && node.path(SHIM).exists());
    let removed = uninstall(&node);
    assert!(
        removed.starts_with("removed /etc/cni/net.d/10-mine.conf\n"),
        "{removed}"
    );
    assert!(!installed.exists() && !node.path(SHIM).exists());
}

/// Plugged networks are in the same state directory as the pod's other networks.
#[test]
fn static_configuration_sets_the_state_directory_of_plugged_networks() {
    let node = NodeFixture::new();
    node.install_plugin("zebra");
    let source = static_config(&node, "10-mine.conf");
    node.configure(&json!({"multusConfigFile": source}));
    let daemon = node.start().ready();
    node.run_pod(None);
    let mut request = node.request("ADD", "c1");
    request.config = fs::read(&source).unwrap();
    daemon.cni(&request).result();
    let mut plug = node.request("ADD", "c1");
    plug.env.insert("CNI_IFNAME".to_owned(), "ext0".to_owned());
    let config = json!({"cniVersion": "1.0.0", "name": "stripes", "type": "zebra"});
    plug.config = config.to_string().into_bytes();
    daemon
        .send("POST", api::PATH_DELEGATE, &plug.to_json())
        .result();
    assert!(!node.path("var/lib/cni/multus/c1").exists());
    let state = fs::read_to_string(node.path("var/lib/cni/mine/c1")).unwrap();
    assert!(state.contains("stripes"), "{state}");
    request
        .env
        .insert("CNI_COMMAND".to_owned(), "DEL".to_owned());
    daemon.cni(&request).done();
    let order = node.order();
    assert!(order.contains(&"DEL zebra ext0".to_owned()), "{order:?}");
}

#[test]
fn static_configuration_checks_the_readiness_indicator_at_each_request() {
    let node = NodeFixture::new();
    let source = static_config(&node, "10-mine.conf");
    node.configure(&json!({"multusConfigFile": source, "readinessindicatorfile": "/ready"}));
    node.write("ready", "");
    let daemon = node.start().ready();
    daemon.cni(&node.request("STATUS", "c1")).done();
    node.remove("ready");
    let error = daemon.cni(&node.request("STATUS", "c1")).error();
    assert_eq!(error.code, 50, "{error}");
}

#[test]
fn change_of_the_source_removes_the_other_file() {
    let node = NodeFixture::new();
    node.start().ready().kill();
    assert!(node.path(CONFIGURATION).exists());
    let source = static_config(&node, "10-mine.conf");
    node.configure(&json!({"multusConfigFile": source}));
    node.start().ready().kill();
    let names = || {
        let mut names = fs::read_dir(node.path("etc/cni/net.d")).unwrap();
        names.any(|entry| entry.unwrap().file_name() == "00-multus.conf")
    };
    assert!(!names(), "the runtime would read it first");
    node.configure(&json!({}));
    node.start().ready().kill();
    assert!(names() && !node.path("etc/cni/net.d/10-mine.conf").exists());
}

#[test]
fn invalid_static_configuration_is_not_installed() {
    let node = NodeFixture::new();
    let source = static_config(&node, "10-mine.conf");
    fs::write(&source, "{}").unwrap();
    node.configure(&json!({"multusConfigFile": source}));
    let daemon = node.start();
    let problem = until_problem(&daemon, "multusConfigFile");
    assert!(problem.contains(&source), "{problem}");
    assert!(!node.path("etc/cni/net.d/10-mine.conf").exists());
}

#[test]
fn uninstall_finds_files_by_the_record() {
    let node = NodeFixture::new();
    node.start().ready().kill();
    let removed = {
        // Neither the directory nor a runtime is known now.
        node.write("daemon-config.json", "{}");
        uninstall(&node)
    };
    let shim = node.bin_dir().join("multus-shim").display().to_string();
    let own = ["passthru", api::plugins::PROGRAM];
    let own = own.iter().chain(api::plugins::NAMES);
    let mut expected: Vec<_> = own
        .map(|name| format!("/var/lib/multus/bin/{name}"))
        .collect();
    expected.extend(["/etc/cni/net.d/00-multus.conf".to_owned(), shim]);
    let mut removed: Vec<_> = removed
        .lines()
        .map(|line| line.replace("removed ", ""))
        .collect();
    expected.sort();
    removed.sort();
    assert_eq!(removed, expected);
    assert!(!node.path(CONFIGURATION).exists() && !node.path(SHIM).exists());
    assert!(node.path("etc/cni/net.d/10-primary.conflist").exists());
}

#[test]
fn uninstall_detaches_stale_containers_and_names_networks_that_stay() {
    let node = NodeFixture::new();
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    for container in ["c1", "c2"] {
        daemon.cni(&node.request("ADD", container)).result();
    }
    daemon.kill();
    node.lose_namespace("c1");
    node.take_order();
    let output = node.command().args(["uninstall", "--detach"]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(node.take_order(), ["DEL zebra net1", "DEL primary pod0"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    for text in [
        "pod shop/cart keeps network shop/zebra on net1",
        "delete the pod first",
    ] {
        assert!(stderr.contains(text), "{stderr}");
    }
    let results = node.path("var/lib/cni/results");
    assert_eq!(fs::read_dir(results).unwrap().count(), 1);
    assert!(!node.path(CONFIGURATION).exists() && !node.path(SHIM).exists());
    assert!(node.path("var/lib/cni/multus/c2").exists());
    assert!(!node.path("var/lib/cni/multus/c1").exists());
}

#[test]
fn shim_stays_while_the_configuration_cannot_be_removed() {
    let node = NodeFixture::new();
    node.start().ready().kill();
    node.remove(CONFIGURATION);
    fs::create_dir(node.path(CONFIGURATION)).unwrap();
    let output = node.command().arg("uninstall").output().unwrap();
    assert!(!output.status.success());
    assert!(node.path(SHIM).exists());
}

#[test]
fn shim_of_upstream_is_replaced_before_the_configuration_is_written() {
    let node = NodeFixture::new();
    fs::write(node.path(SHIM), UPSTREAMS).unwrap();
    // The configuration of upstream's daemon.
    let theirs = r#"{"cniVersion":"0.3.1","name":"multus-cni-network","clusterNetwork":"/host/etc/cni/net.d/10-primary.conflist","type":"multus-shim"}"#;
    node.write(CONFIGURATION, theirs);
    let daemon = node.start().ready();
    assert_eq!(fs::read(node.path(SHIM)).unwrap(), b"the shim");
    assert_eq!(node.config()["cniVersion"], "1.0.0");
    // The runtime may still use the configuration that it has read before.
    node.run_pod(None);
    let mut request = node.request("ADD", "c1");
    request.config = theirs.as_bytes().to_vec();
    daemon.cni(&request).result();
    assert_eq!(node.state().0, ["c1"]);
    assert!(daemon.log().contains("in place of upstream's"));
    // Upstream's installer runs once more.
    fs::write(node.path(SHIM), UPSTREAMS).unwrap();
    wait_for("our shim", || {
        (fs::read(node.path(SHIM)).unwrap() == b"the shim").then_some(())
    });
}

#[test]
fn shim_of_another_program_stays_and_is_reported() {
    let node = NodeFixture::new();
    fs::write(node.path(SHIM), "of somebody else").unwrap();
    let daemon = node.start();
    until_problem(
        &daemon,
        "multus-shim is a file that was not installed by multus-rs",
    );
    assert_eq!(fs::read(node.path(SHIM)).unwrap(), b"of somebody else");
    assert!(!node.path(CONFIGURATION).exists());
}

#[test]
fn keys_without_effect_are_logged_at_the_start() {
    let node = NodeFixture::new();
    node.configure(
        &json!({"enablePprof": true, "forceCNIVersion": true, "logFile": "/var/log/multus.log"}),
    );
    let daemon = node.start().ready();
    for key in ["enablePprof", "forceCNIVersion"] {
        let sentence = format!("key \"{key}\" has no effect on the daemon");
        assert_eq!(daemon.log().matches(&sentence).count(), 1, "{key}");
    }
    assert_eq!(
        node.config()["logFile"],
        "/var/log/multus.log",
        "the shim gets it"
    );
}

#[test]
fn missing_credentials_are_waited_for() {
    let node = NodeFixture::new();
    let kubeconfig = fs::read_to_string(node.path("kubeconfig")).unwrap();
    node.remove("kubeconfig");
    let daemon = node.start();
    until_problem(&daemon, "no access to the API server");
    daemon.cni(&node.request("DEL", "c1")).done();
    node.write("kubeconfig", &kubeconfig);
    node.run_pod(None);
    daemon.ready().cni(&node.request("ADD", "c1")).result();
}
