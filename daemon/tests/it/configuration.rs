//! The configuration in the runtime's directory over a daemon's life: where it comes from, who else touches it, and what becomes of it.

use std::fs;

use serde_json::json;

use crate::{daemon::Daemon, node::Node, wait_for};

const CONFIGURATION: &str = "etc/cni/net.d/00-multus.conf";
const SHIM: &str = "opt/cni/bin/multus-shim";
/// As Go's linker leaves it.
const UPSTREAMS: &[u8] = b"\x7fELF\x02\x01..\xff Go buildinf:\x08\x02..path\tgopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus-shim\n";
const PRIMARY: &str = r#"{"cniVersion":"1.0.0","name":"cbr0","plugins":[{"type":"primary"}]}"#;

fn waits_for(daemon: &Daemon, part: &str) -> String {
    wait_for(part, || {
        daemon.problem().filter(|problem| problem.contains(part))
    })
}

fn uninstall(node: &Node) -> String {
    let output = node.command().arg("uninstall").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A ready-made file as it is mounted into the daemon's own file system.
fn ready_made(node: &Node, name: &str) -> String {
    let config = json!({
        "cniVersion": "1.0.0", "name": "mine", "type": "multus-shim",
        "clusterNetwork": "/etc/cni/net.d/10-primary.conflist", "cniDir": "/var/lib/cni/mine",
    });
    fs::create_dir_all(node.path("mount")).unwrap();
    node.write(&format!("mount/{name}"), &config.to_string());
    node.path("mount").join(name).to_str().unwrap().to_owned()
}

#[test]
fn it_follows_the_primary_and_stays_without_it() {
    let node = Node::new();
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
    waits_for(&daemon, "05-first.conflist can no longer be used");
    assert_eq!(fs::read(node.path(CONFIGURATION)).unwrap(), before);
    node.remove("etc/cni/net.d/05-first.conflist");
    uses("10-primary.conflist");
    let before = fs::read(node.path(CONFIGURATION)).unwrap();
    node.remove("etc/cni/net.d/10-primary.conflist");
    waits_for(&daemon, "no CNI configuration of a default network");
    assert_eq!(fs::read(node.path(CONFIGURATION)).unwrap(), before);
    // A link is heard of as well as a file.
    node.write("primary.conflist", PRIMARY);
    let link = node.path("etc/cni/net.d/20-link.conflist");
    std::os::unix::fs::symlink("/primary.conflist", link).unwrap();
    uses("20-link.conflist");
    let _daemon = daemon.ready();
}

#[test]
fn who_takes_it_away_again_and_again_is_named() {
    let node = Node::new();
    let daemon = node.start().ready();
    let (ours, theirs) = (
        node.path(CONFIGURATION),
        node.path("etc/cni/net.d/00-multus.conf.cilium_bak"),
    );
    let problem = wait_for("the name of the rival", || {
        // It may not be back yet.
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
fn a_primary_that_is_not_ready_any_more_makes_the_daemon_so() {
    let node = Node::new();
    node.configure(&json!({"readinessindicatorfile": "/host/run/primary/ready"}));
    let daemon = node.start();
    waits_for(
        &daemon,
        "still waiting for readinessindicatorfile @ /run/primary/ready",
    );
    assert!(!node.path(CONFIGURATION).exists());
    fs::create_dir_all(node.path("run/primary")).unwrap();
    node.write("run/primary/ready", "");
    let daemon = daemon.ready();
    assert!(node.path(CONFIGURATION).exists());
    node.remove("run/primary/ready");
    waits_for(&daemon, "configuration: have you checked");
    assert!(
        node.path(CONFIGURATION).exists(),
        "no pod is to come up without us"
    );
    node.write("run/primary/ready", "");
    // In requests the key means nothing: the daemon itself has waited.
    node.run_pod(None);
    let daemon = daemon.ready();
    daemon.cni(&node.request("ADD", "c1")).result();
}

#[test]
fn a_ready_made_file_is_served_until_the_end_and_goes_with_the_daemon() {
    let node = Node::new();
    let source = ready_made(&node, "10-mine.conf");
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
        "its own keys count"
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

/// Its directory of state is where the pod's other networks are, and those that are plugged.
#[test]
fn a_ready_made_file_says_where_plugged_networks_are_kept() {
    let node = Node::new();
    node.install_plugin("zebra");
    let source = ready_made(&node, "10-mine.conf");
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
fn a_ready_made_file_waits_for_the_indicator_with_each_request() {
    let node = Node::new();
    let source = ready_made(&node, "10-mine.conf");
    node.configure(&json!({"multusConfigFile": source, "readinessindicatorfile": "/ready"}));
    node.write("ready", "");
    let daemon = node.start().ready();
    daemon.cni(&node.request("STATUS", "c1")).done();
    node.remove("ready");
    let error = daemon.cni(&node.request("STATUS", "c1")).error();
    assert_eq!(error.code, 50, "{error}");
}

#[test]
fn one_source_is_exchanged_for_the_other() {
    let node = Node::new();
    node.start().ready().kill();
    assert!(node.path(CONFIGURATION).exists());
    let source = ready_made(&node, "10-mine.conf");
    node.configure(&json!({"multusConfigFile": source}));
    node.start().ready().kill();
    let names = || {
        let mut names = fs::read_dir(node.path("etc/cni/net.d")).unwrap();
        names.any(|entry| entry.unwrap().file_name() == "00-multus.conf")
    };
    assert!(!names(), "it would come first");
    node.configure(&json!({}));
    node.start().ready().kill();
    assert!(names() && !node.path("etc/cni/net.d/10-mine.conf").exists());
}

#[test]
fn a_ready_made_file_that_is_none_is_not_installed() {
    let node = Node::new();
    let source = ready_made(&node, "10-mine.conf");
    fs::write(&source, "{}").unwrap();
    node.configure(&json!({"multusConfigFile": source}));
    let daemon = node.start();
    let problem = waits_for(&daemon, "multusConfigFile");
    assert!(problem.contains(&source), "{problem}");
    assert!(!node.path("etc/cni/net.d/10-mine.conf").exists());
}

#[test]
fn uninstall_needs_no_directory_for_what_is_on_record() {
    let node = Node::new();
    node.start().ready().kill();
    let removed = {
        // Neither its directory nor a runtime is known any more.
        node.write("daemon-config.json", "{}");
        uninstall(&node)
    };
    assert_eq!(
        removed,
        format!(
            "removed /etc/cni/net.d/00-multus.conf\nremoved /var/lib/multus/bin/passthru\nremoved {}\n",
            node.bin_dir().join("multus-shim").display()
        )
    );
    assert!(!node.path(CONFIGURATION).exists() && !node.path(SHIM).exists());
    assert!(node.path("etc/cni/net.d/10-primary.conflist").exists());
}

#[test]
fn uninstall_can_detach_what_is_gone_and_names_what_stays() {
    let node = Node::new();
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
    let said = String::from_utf8(output.stderr).unwrap();
    for words in [
        "pod shop/cart keeps network shop/zebra on net1",
        "delete the pod first",
    ] {
        assert!(said.contains(words), "{said}");
    }
    let results = node.path("var/lib/cni/results");
    assert_eq!(fs::read_dir(results).unwrap().count(), 1);
    assert!(!node.path(CONFIGURATION).exists() && !node.path(SHIM).exists());
    assert!(node.path("var/lib/cni/multus/c2").exists());
    assert!(!node.path("var/lib/cni/multus/c1").exists());
}

#[test]
fn what_keeps_the_configuration_keeps_the_shim() {
    let node = Node::new();
    node.start().ready().kill();
    node.remove(CONFIGURATION);
    fs::create_dir(node.path(CONFIGURATION)).unwrap();
    let output = node.command().arg("uninstall").output().unwrap();
    assert!(!output.status.success());
    assert!(node.path(SHIM).exists());
}

#[test]
fn upstreams_shim_gives_way_before_the_configuration_is_written() {
    let node = Node::new();
    fs::write(node.path(SHIM), UPSTREAMS).unwrap();
    // What its daemon left.
    let theirs = r#"{"cniVersion":"0.3.1","name":"multus-cni-network","clusterNetwork":"/host/etc/cni/net.d/10-primary.conflist","type":"multus-shim"}"#;
    node.write(CONFIGURATION, theirs);
    let daemon = node.start().ready();
    assert_eq!(fs::read(node.path(SHIM)).unwrap(), b"the shim");
    assert_eq!(node.config()["cniVersion"], "1.0.0");
    // The runtime may go on with what it has read before.
    node.run_pod(None);
    let mut request = node.request("ADD", "c1");
    request.config = theirs.as_bytes().to_vec();
    daemon.cni(&request).result();
    assert_eq!(node.state().0, ["c1"]);
    assert!(daemon.log().contains("in place of upstream's"));
    // Its installer comes once more.
    fs::write(node.path(SHIM), UPSTREAMS).unwrap();
    wait_for("our shim", || {
        (fs::read(node.path(SHIM)).unwrap() == b"the shim").then_some(())
    });
}

#[test]
fn any_other_shim_stays_and_is_named() {
    let node = Node::new();
    fs::write(node.path(SHIM), "of somebody else").unwrap();
    let daemon = node.start();
    waits_for(
        &daemon,
        "multus-shim is a file that was not installed by multus-rs",
    );
    assert_eq!(fs::read(node.path(SHIM)).unwrap(), b"of somebody else");
    assert!(!node.path(CONFIGURATION).exists());
}

#[test]
fn keys_without_effect_are_told_at_the_start() {
    let node = Node::new();
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
        "the shim has it"
    );
}

#[test]
fn credentials_that_come_late_are_waited_for() {
    let node = Node::new();
    let kubeconfig = fs::read_to_string(node.path("kubeconfig")).unwrap();
    node.remove("kubeconfig");
    let daemon = node.start();
    waits_for(&daemon, "no access to the API server");
    daemon.cni(&node.request("DEL", "c1")).done();
    node.write("kubeconfig", &kubeconfig);
    node.run_pod(None);
    daemon.ready().cni(&node.request("ADD", "c1")).result();
}
