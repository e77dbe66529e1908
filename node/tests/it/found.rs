//! Discovery on each kind of node: the directories, their source, and rejections with their reasons.

use std::{
    fs,
    path::{Path, PathBuf},
};

use node::{
    dirs::{Overrides, Source},
    discover::{DiscoverOptions, Report, discover},
};
use testkit::cri::RuntimeInfo;

use crate::node::{HASH_A, HASH_B, NodeFixture, POD, cniconfig, config};

pub(crate) const K3S: &str = "/var/lib/rancher/k3s";
pub(crate) const K3S_SOCKET: &str = "/run/k3s/containerd/containerd.sock";
pub(crate) const SOCKET: &str = "/run/containerd/containerd.sock";
pub(crate) const USUAL: (&str, &str) = ("/opt/cni/bin", "/etc/cni/net.d");

/// The directories of shim and configurations, and their source.
pub(crate) fn dirs(report: &Report) -> (&str, &str, Source) {
    let dirs = report.dirs.as_ref().unwrap_or_else(|| panic!("{report}"));
    (
        dirs.install_dir.to_str().unwrap(),
        dirs.conf_dir.to_str().unwrap(),
        dirs.source,
    )
}

pub(crate) fn has_text(report: &Report, part: &str) -> bool {
    report.to_string().contains(part)
}

/// Checks a node whose runtime reports everything, so that there are no notes.
async fn check(node: &NodeFixture, socket: &str, (bins, conf): (&[&str], &str), expected: &str) {
    node.default_network(conf);
    let info = [cniconfig(bins, conf), config(bins, conf, true)];
    node.runtime(socket, Some(&info), "");
    let report = node.discover().await;
    assert_eq!(dirs(&report), (expected, conf, Source::CniConfig));
    assert_eq!(report.notes, [] as [&str; 0]);
    assert_eq!(report.runtime.unwrap().socket, Path::new(socket));
}

#[tokio::test]
async fn k3s_without_its_stable_plugin_directory() {
    let node = NodeFixture::new();
    node.k3s_release(K3S, HASH_A);
    let bin = format!("{K3S}/data/{HASH_A}/bin");
    let conf = format!("{K3S}/agent/etc/cni/net.d");
    check(&node, K3S_SOCKET, (&[&bin], &conf), &bin).await;
}

#[tokio::test]
async fn k3s_with_its_stable_plugin_directory() {
    let node = NodeFixture::new();
    node.k3s_release(K3S, HASH_A);
    node.k3s_links(K3S, HASH_A);
    let bin = format!("{K3S}/data/cni");
    let conf = format!("{K3S}/agent/etc/cni/net.d");
    check(&node, K3S_SOCKET, (&[&bin], &conf), &bin).await;
}

#[tokio::test]
async fn k3s_with_another_data_directory_and_assets_in_the_default_one() {
    let node = NodeFixture::new();
    node.k3s_release(K3S, HASH_A);
    node.k3s_links(K3S, HASH_A);
    let bin = format!("{K3S}/data/cni");
    check(
        &node,
        K3S_SOCKET,
        (&[&bin], "/data/k3s/agent/etc/cni/net.d"),
        &bin,
    )
    .await;
}

#[tokio::test]
async fn k3s_without_flannel_and_rke2() {
    for data in [K3S, "/var/lib/rancher/rke2"] {
        let node = NodeFixture::new();
        // K3s extracts its own plugins all the same, but its runtime does not use them.
        node.k3s_release(data, HASH_A);
        node.k3s_links(data, HASH_A);
        node.plugins(USUAL.0);
        check(&node, K3S_SOCKET, (&[USUAL.0], USUAL.1), USUAL.0).await;
    }
}

#[tokio::test]
async fn k3s_after_a_rollback() {
    let node = NodeFixture::new();
    node.k3s_release(K3S, HASH_A);
    node.k3s_release(K3S, HASH_B);
    // The links still name the newer release, as a rollback extracts nothing.
    node.k3s_links(K3S, HASH_B);
    node.link(HASH_B, format!("{K3S}/data/current"));
    node.link(HASH_A, format!("{K3S}/data/previous"));
    let bin = format!("{K3S}/data/{HASH_A}/bin");
    let conf = format!("{K3S}/agent/etc/cni/net.d");
    check(&node, K3S_SOCKET, (&[&bin], &conf), &bin).await;
}

#[tokio::test]
async fn two_plugin_directories() {
    let node = NodeFixture::new();
    node.k3s_release(K3S, HASH_A);
    node.dir("/var/lib/product/cni/bin");
    let hash = format!("{K3S}/data/{HASH_A}/bin");
    let own = "/var/lib/product/cni/bin";
    check(&node, SOCKET, (&[&hash, own], USUAL.1), own).await;
}

#[tokio::test]
async fn plain_containerd_1_x_and_2_x() {
    for is_new in [false, true] {
        let node = NodeFixture::new();
        node.plugins(USUAL.0);
        node.default_network(USUAL.1);
        let version = if is_new { "v2.4.2" } else { "1.6.20~ds1" };
        let (key, text) = config(&[USUAL.0], USUAL.1, is_new);
        let runtime = RuntimeInfo {
            name: "containerd",
            version,
            pods: vec![POD],
            status: Some([(key.to_owned(), text)].into()),
        };
        node.serve(SOCKET, "", runtime);
        let report = node.discover().await;
        assert_eq!(dirs(&report), (USUAL.0, USUAL.1, Source::Config));
        let expected = if is_new { "1.1.0" } else { "1.0.0" };
        assert_eq!(report.cni_version, Some(expected));
    }
}

#[tokio::test]
async fn files_replace_a_refused_status() {
    let node = NodeFixture::new();
    node.plugins("/drop/bin");
    node.default_network("/main/conf");
    let main = format!("{K3S}/agent/etc/containerd/config.toml");
    let table = "[plugins.'io.containerd.cri.v1.runtime'.cni]";
    let imports = format!("imports = [\"{K3S}/agent/etc/containerd/config-v3.toml.d/*.toml\"]");
    node.write(
        &main,
        format!(
            "version = 3\n{imports}\n{table}\nbin_dirs = ['/main/bin']\nconf_dir = '/main/conf'\n"
        ),
    );
    let drop_in = format!("{K3S}/agent/etc/containerd/config-v3.toml.d/10-own.toml");
    node.write(
        &drop_in,
        format!("version = 3\n{table}\nbin_dirs = ['/drop/bin']\n"),
    );
    // A file at another default path, which this runtime does not read.
    node.write(
        "/etc/containerd/config.toml",
        format!("version = 3\n{table}\nbin_dirs = ['/wrong']\n"),
    );
    node.runtime(
        K3S_SOCKET,
        None,
        &format!("/x/bin/containerd -c {main} -a {K3S_SOCKET}"),
    );
    let report = node.discover().await;
    assert_eq!(dirs(&report), ("/drop/bin", "/main/conf", Source::File));
    let from = &report.evidence[0].from;
    assert!(from.contains(&PathBuf::from(&main)) && from.contains(&PathBuf::from(&drop_in)));
    assert!(has_text(&report, "refused Status: not here"), "{report}");
}

#[tokio::test]
async fn file_with_the_same_socket_is_a_guess_without_a_command_line() {
    let node = NodeFixture::new();
    node.plugins("/k3s/bin");
    node.default_network("/k3s/conf");
    let text = |bin: &str, conf: &str| {
        format!(
            "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dir = '{bin}'\nconf_dir = '{conf}'\n"
        )
    };
    node.write("/etc/rancher/k3s/config.yaml", "data-dir: /data/k3s\n");
    node.write(
        "/data/k3s/agent/etc/containerd/config.toml",
        text("/k3s/bin", "/k3s/conf"),
    );
    node.write(
        "/etc/containerd/config.toml",
        text("/plain/bin", "/plain/conf"),
    );
    // K3s hides its arguments, and may serve the socket itself.
    node.runtime(K3S_SOCKET, None, "/usr/local/bin/k3s\0server");
    let report = node.discover().await;
    assert_eq!(dirs(&report), ("/k3s/bin", "/k3s/conf", Source::Guess));
}

#[tokio::test]
async fn hint_names_the_socket_and_the_file_to_try() {
    let node = NodeFixture::new();
    node.plugins("/h/bin");
    node.default_network("/h/conf");
    let table = "[plugins.'io.containerd.cri.v1.runtime'.cni]";
    node.write(
        "/h/config.toml",
        format!("version = 3\n{table}\nbin_dirs = ['/h/bin']\nconf_dir = '/h/conf'\n"),
    );
    let hint = serde_json::json!({"schema": 1, "distro": "k3s", "dataDir": "/h", "criSocket": "/run/h.sock",
        "containerdConfig": "/h/config.toml", "startedAt": 1, "pid": std::process::id()});
    node.write("/run/multus-distro/node.json", hint.to_string());
    node.runtime("/run/h.sock", None, "k3s server");
    let report = node.discover().await;
    assert_eq!(dirs(&report), ("/h/bin", "/h/conf", Source::Guess));
    assert_eq!(report.runtime.unwrap().socket, Path::new("/run/h.sock"));
}

#[tokio::test]
async fn crio_directories_come_from_its_files() {
    let node = NodeFixture::new();
    node.plugins("/usr/libexec/cni");
    node.default_network("/etc/cni/net.d");
    node.write(
        "/etc/crio/crio.conf.d/10-dirs.conf",
        "[crio.network]\nplugin_dirs = ['/usr/libexec/cni/']\n",
    );
    let runtime = RuntimeInfo {
        name: "cri-o",
        version: "1.33.0",
        pods: vec![POD],
        status: Some(
            [(
                "config".to_owned(),
                r#"{"sandboxImage":"pause"}"#.to_owned(),
            )]
            .into(),
        ),
    };
    node.serve("/run/crio/crio.sock", "/usr/bin/crio", runtime);
    node.link("../run", "/var/run");
    let report = node.discover().await;
    assert_eq!(dirs(&report), ("/usr/libexec/cni", USUAL.1, Source::File));
    assert_eq!(report.cni_version, None);
}

#[tokio::test]
async fn runtime_that_runs_the_own_pod_is_taken() {
    let node = NodeFixture::new();
    node.plugins(USUAL.0);
    node.default_network(USUAL.1);
    let status = |bin: &str| {
        let (key, text) = cniconfig(&[bin], USUAL.1);
        Some([(key.to_owned(), text)].into())
    };
    let runtime = |pods: &[&'static str], bin: &str| RuntimeInfo {
        name: "containerd",
        version: "v2.4.2",
        pods: pods.to_vec(),
        status: status(bin),
    };
    node.serve(K3S_SOCKET, "", runtime(&["another"], "/k3s"));
    node.serve(SOCKET, "", runtime(&[POD], USUAL.0));
    let report = node.discover().await;
    assert_eq!(dirs(&report).0, USUAL.0);
    assert!(
        has_text(
            &report,
            "k3s/containerd/containerd.sock: it does not run this pod"
        ),
        "{report}"
    );

    // Before an installation there is no own pod: the first runtime that runs pods is taken, and others that do are named.
    let report = discover(&node.root, &DiscoverOptions::default()).await;
    assert_eq!(dirs(&report).0, "/k3s");
    assert!(
        has_text(&report, "it also runs pods: name the right socket"),
        "{report}"
    );
    let empty = NodeFixture::new();
    empty.serve(K3S_SOCKET, "", runtime(&[], "/k3s"));
    empty.serve(SOCKET, "", runtime(&["one"], USUAL.0));
    let report = discover(&empty.root, &DiscoverOptions::default()).await;
    assert_eq!(dirs(&report).0, USUAL.0);
    assert!(
        has_text(&report, "it answers, but runs no pods"),
        "{report}"
    );
}

#[tokio::test]
async fn unusual_socket_is_found_by_its_process() {
    let node = NodeFixture::new();
    node.plugins(USUAL.0);
    node.default_network(USUAL.1);
    node.write(
        "/snap/containerd.toml",
        "version = 2\n[grpc]\naddress = '/snap/run/containerd.sock'\n",
    );
    let info = [cniconfig(&[USUAL.0], USUAL.1)];
    node.runtime(
        "/snap/run/containerd.sock",
        Some(&info),
        "/snap/bin/containerd --config /snap/containerd.toml",
    );
    let report = node.discover().await;
    assert_eq!(
        report.runtime.as_ref().unwrap().socket,
        Path::new("/snap/run/containerd.sock")
    );
    assert_eq!(dirs(&report).2, Source::CniConfig);
}

fn overriding(shim: &str) -> DiscoverOptions {
    DiscoverOptions {
        pod_uid: Some(POD.to_owned()),
        overrides: Overrides {
            shim_dir: Some(shim.into()),
            conf_dir: None,
        },
        ..DiscoverOptions::default()
    }
}

#[tokio::test]
async fn override_names_one_of_the_directories_of_the_runtime() {
    let node = NodeFixture::new();
    node.plugins("/explicit");
    node.default_network(USUAL.1);
    let reported = [cniconfig(&[USUAL.0, "/explicit"], USUAL.1)];
    node.runtime(SOCKET, Some(&reported), "");
    let report = discover(&node.root, &overriding("/explicit")).await;
    assert_eq!(dirs(&report), ("/explicit", USUAL.1, Source::CniConfig));
    let noted = |note: &String| {
        note.starts_with(
            "config.cni_conf.shimDir (shimDir in config.daemon_conf) is set: /explicit is used",
        )
    };
    assert!(report.notes.iter().any(noted), "{report}");
}

#[tokio::test]
async fn override_that_contradicts_the_runtime_gives_no_directories() {
    let node = NodeFixture::new();
    node.plugins("/explicit");
    node.default_network(USUAL.1);
    node.runtime(SOCKET, Some(&[cniconfig(&[USUAL.0], USUAL.1)]), "");
    let report = discover(&node.root, &overriding("/explicit")).await;
    assert_eq!(report.dirs, None);
    let problem = report.problem.unwrap();
    assert!(
        problem.starts_with(
            "config.cni_conf.shimDir (shimDir in config.daemon_conf) is /explicit, but the runtime itself looks for plugins in"
        ),
        "{problem}"
    );
}

#[tokio::test]
async fn report_as_json_is_complete() {
    let node = NodeFixture::new();
    node.plugins(USUAL.0);
    node.default_network(USUAL.1);
    node.runtime(SOCKET, Some(&[cniconfig(&[USUAL.0], USUAL.1)]), "");
    let json = serde_json::to_value(node.discover().await).unwrap();
    assert_eq!(json["dirs"]["installDir"], USUAL.0);
    assert_eq!(json["dirs"]["source"], "cniConfig");
    assert_eq!(json["evidence"][0]["from"][0], SOCKET);
    assert_eq!(json["evidence"][0]["binDirs"][0], USUAL.0);
    assert_eq!(json["rejected"][0]["place"], K3S_SOCKET);
    assert_eq!(json["problem"], serde_json::Value::Null);
    fs::remove_file(node.path(SOCKET)).unwrap();
    let json = serde_json::to_value(node.discover().await).unwrap();
    assert!(json["problem"].is_string() && json["dirs"].is_null());
}
