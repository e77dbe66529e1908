//! What is not taken, or taken with a word about it: nodes within the node, stale files, runtimes that are down or silent.

use std::path::Path;

use node::dirs::Source;

use crate::{
    found::{K3S, K3S_SOCKET, SOCKET, USUAL, dirs, is_told},
    node::{HASH_A, HASH_B, Node, cniconfig},
};

#[tokio::test]
async fn a_node_within_the_node_is_named_and_not_taken() {
    let (node, inner) = (Node::new(), Node::new());
    node.write(
        "/proc/4711/cmdline",
        "/usr/bin/containerd\0-a\0/run/inner.sock",
    );
    node.link(inner.root.name(), "/proc/4711/root");
    inner.runtime(
        "/run/inner.sock",
        Some(&[cniconfig(&[USUAL.0], USUAL.1)]),
        "",
    );
    let report = node.discover().await;
    assert!(report.dirs.is_none() && report.runtime.is_none());
    assert!(
        is_told(
            &report,
            "/proc/4711: this containerd is in a file tree of its own"
        ),
        "{report}"
    );
    assert!(is_told(&report, "--root /proc/4711/root"), "{report}");
}

#[tokio::test]
async fn a_runtime_that_means_other_directories_is_no_answer() {
    let (node, inner) = (Node::new(), Node::new());
    node.plugins(USUAL.0);
    node.primary(USUAL.1);
    inner.plugins(USUAL.0);
    inner.primary(USUAL.1);
    let info = [cniconfig(&[USUAL.0], USUAL.1)];
    node.runtime(SOCKET, Some(&info), "");
    node.link(
        inner.root.name(),
        format!("/proc/{}/root", std::process::id()),
    );
    let report = node.discover().await;
    assert!(report.dirs.is_none(), "{report}");
    let problem = report.problem.unwrap();
    assert!(problem.contains("/opt/cni/bin of containerd"), "{problem}");
    assert!(
        problem.contains(&format!("/proc/{}/root", std::process::id())),
        "{problem}"
    );
}

#[tokio::test]
async fn a_stale_file_is_told_and_not_believed() {
    let node = Node::new();
    node.k3s_release(K3S, HASH_B);
    let bin = format!("{K3S}/data/{HASH_B}/bin");
    let conf = format!("{K3S}/agent/etc/cni/net.d");
    node.primary(&conf);
    let main = format!("{K3S}/agent/etc/containerd/config.toml");
    let stale = format!("{K3S}/data/{HASH_A}/bin");
    node.write(
        &main,
        format!("version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dir = '{stale}'\nconf_dir = '{conf}'\n"),
    );
    let info = [cniconfig(&[&bin], &conf)];
    node.runtime(
        K3S_SOCKET,
        Some(&info),
        &format!("containerd --config={main}"),
    );
    let report = node.discover().await;
    assert_eq!(
        dirs(&report),
        (bin.as_str(), conf.as_str(), Source::CniConfig)
    );
    assert_eq!(report.notes.len(), 1, "{report}");
    assert!(
        report.notes[0].contains(&stale) && report.notes[0].contains("restart"),
        "{report}"
    );
}

#[tokio::test]
async fn what_an_operator_should_know_is_noted() {
    let node = Node::new();
    node.primary(USUAL.1);
    let state = serde_json::json!({"PluginDirs": ["/gone"], "PluginConfDir": USUAL.1, "PluginMaxConfNum": 0});
    let config =
        serde_json::json!({"containerd": {"runtimes": {"kata": {"cniConfDir": "/etc/kata"}}}});
    let info = [
        ("cniconfig", state.to_string()),
        ("config", config.to_string()),
    ];
    node.runtime(SOCKET, Some(&info), "");
    let report = node.discover().await;
    assert_eq!(dirs(&report).0, "/gone");
    for part in [
        "handler kata take their network from /etc/kata",
        "loads 0 configurations",
        "/gone is not there",
    ] {
        assert!(is_told(&report, part), "{part}: {report}");
    }
}

#[tokio::test]
async fn a_runtime_that_is_down_is_no_answer_but_its_files_are_shown() {
    let node = Node::new();
    let main = format!("{K3S}/agent/etc/containerd/config.toml");
    node.write(
        &main,
        "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dir = '/b'\nconf_dir = '/c'\n",
    );
    node.write("/etc/containerd/config.toml", "broken = [");
    let report = node.discover().await;
    assert!(report.dirs.is_none());
    let problem = report.problem.as_ref().unwrap();
    assert!(
        problem.contains(K3S_SOCKET) && problem.contains("start it"),
        "{problem}"
    );
    assert_eq!(report.evidence[0].told.bin_dirs, [Path::new("/b")]);
    assert!(
        is_told(&report, "/etc/containerd/config.toml is not TOML: line 1"),
        "{report}"
    );
    assert!(is_told(&report, "/run/crio/crio.sock"), "{report}");

    // It comes up, as after a boot, and is found.
    node.plugins("/b");
    node.primary("/c");
    node.runtime(K3S_SOCKET, Some(&[cniconfig(&["/b"], "/c")]), "");
    assert_eq!(dirs(&node.discover().await).0, "/b");
}

#[tokio::test]
async fn nothing_told_is_a_problem_and_never_a_default() {
    let node = Node::new();
    node.plugins(USUAL.0);
    node.primary(USUAL.1);
    node.runtime(K3S_SOCKET, None, "k3s server");
    let report = node.discover().await;
    assert!(report.dirs.is_none(), "{report}");
    let problem = report.problem.as_ref().unwrap();
    assert!(problem.contains("config.cni_conf.shimDir"), "{problem}");
    assert!(
        is_told(&report, "there is no file at any usual place"),
        "{report}"
    );
}
