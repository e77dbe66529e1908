//! Rejections and notes of discovery: nodes within the node, stale files, runtimes that do not run or do not report.

use std::path::Path;

use node::dirs::Source;

use crate::{
    found::{K3S, K3S_SOCKET, SOCKET, USUAL, dirs, has_text},
    node::{HASH_A, HASH_B, NodeFixture, cniconfig},
};

#[tokio::test]
async fn node_within_the_node_is_rejected() {
    let (node, inner) = (NodeFixture::new(), NodeFixture::new());
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
        has_text(
            &report,
            "/proc/4711: this containerd runs in a file tree of its own"
        ),
        "{report}"
    );
    assert!(has_text(&report, "--root /proc/4711/root"), "{report}");
}

#[tokio::test]
async fn runtime_with_a_file_tree_of_its_own_is_a_problem() {
    let (node, inner) = (NodeFixture::new(), NodeFixture::new());
    node.plugins(USUAL.0);
    node.default_network(USUAL.1);
    inner.plugins(USUAL.0);
    inner.default_network(USUAL.1);
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
async fn stale_file_is_noted_and_not_used() {
    let node = NodeFixture::new();
    node.k3s_release(K3S, HASH_B);
    let bin = format!("{K3S}/data/{HASH_B}/bin");
    let conf = format!("{K3S}/agent/etc/cni/net.d");
    node.default_network(&conf);
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
async fn handlers_configurations_and_missing_directories_are_noted() {
    let node = NodeFixture::new();
    node.default_network(USUAL.1);
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
        "/gone does not exist",
    ] {
        assert!(has_text(&report, part), "{part}: {report}");
    }
}

#[tokio::test]
async fn files_of_a_stopped_runtime_are_shown_and_not_used() {
    let node = NodeFixture::new();
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
    assert_eq!(report.evidence[0].reported.bin_dirs, [Path::new("/b")]);
    assert!(
        has_text(&report, "/etc/containerd/config.toml is not TOML: line 1"),
        "{report}"
    );
    assert!(has_text(&report, "/run/crio/crio.sock"), "{report}");

    // It is found once it has started, as after a boot.
    node.plugins("/b");
    node.default_network("/c");
    node.runtime(K3S_SOCKET, Some(&[cniconfig(&["/b"], "/c")]), "");
    assert_eq!(dirs(&node.discover().await).0, "/b");
}

#[tokio::test]
async fn missing_directories_are_a_problem_and_never_a_default() {
    let node = NodeFixture::new();
    node.plugins(USUAL.0);
    node.default_network(USUAL.1);
    node.runtime(K3S_SOCKET, None, "k3s server");
    let report = node.discover().await;
    assert!(report.dirs.is_none(), "{report}");
    let problem = report.problem.as_ref().unwrap();
    assert!(problem.contains("config.cni_conf.shimDir"), "{problem}");
    assert!(
        has_text(&report, "there is no file at a default path"),
        "{report}"
    );
}
