//! What is found on each kind of node, from where, and what is rejected and why.

use std::{
    fs,
    path::{Path, PathBuf},
};

use node::{
    dirs::{Overrides, Source},
    discover::{Question, Report, discover},
};
use testkit::cri::RuntimeInfo;

use crate::node::{HASH_A, HASH_B, Node, POD, cniconfig, config};

pub(crate) const K3S: &str = "/var/lib/rancher/k3s";
pub(crate) const K3S_SOCKET: &str = "/run/k3s/containerd/containerd.sock";
pub(crate) const SOCKET: &str = "/run/containerd/containerd.sock";
pub(crate) const USUAL: (&str, &str) = ("/opt/cni/bin", "/etc/cni/net.d");

/// Where the shim goes, where configurations are, and from where it is known.
pub(crate) fn dirs(report: &Report) -> (&str, &str, Source) {
    let dirs = report.dirs.as_ref().unwrap_or_else(|| panic!("{report}"));
    (
        dirs.install_dir.to_str().unwrap(),
        dirs.conf_dir.to_str().unwrap(),
        dirs.source,
    )
}

pub(crate) fn is_told(report: &Report, part: &str) -> bool {
    report.to_string().contains(part)
}

/// A node of one kind whose runtime tells everything; nothing is to be noted.
async fn check(node: &Node, socket: &str, (bins, conf): (&[&str], &str), expected: &str) {
    node.primary(conf);
    let info = [cniconfig(bins, conf), config(bins, conf, true)];
    node.runtime(socket, Some(&info), "");
    let report = node.discover().await;
    assert_eq!(dirs(&report), (expected, conf, Source::CniConfig));
    assert_eq!(report.notes, [] as [&str; 0]);
    assert_eq!(report.runtime.unwrap().socket, Path::new(socket));
}

#[tokio::test]
async fn k3s_before_its_stable_directory() {
    let node = Node::new();
    node.k3s_release(K3S, HASH_A);
    let bin = format!("{K3S}/data/{HASH_A}/bin");
    let conf = format!("{K3S}/agent/etc/cni/net.d");
    check(&node, K3S_SOCKET, (&[&bin], &conf), &bin).await;
}

#[tokio::test]
async fn k3s_with_its_stable_directory() {
    let node = Node::new();
    node.k3s_release(K3S, HASH_A);
    node.k3s_links(K3S, HASH_A);
    let bin = format!("{K3S}/data/cni");
    let conf = format!("{K3S}/agent/etc/cni/net.d");
    check(&node, K3S_SOCKET, (&[&bin], &conf), &bin).await;
}

#[tokio::test]
async fn k3s_with_another_data_directory_and_assets_in_the_default_one() {
    let node = Node::new();
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
        let node = Node::new();
        // K3s has its own plugins all the same, and they are not what its runtime uses.
        node.k3s_release(data, HASH_A);
        node.k3s_links(data, HASH_A);
        node.plugins(USUAL.0);
        check(&node, K3S_SOCKET, (&[USUAL.0], USUAL.1), USUAL.0).await;
    }
}

#[tokio::test]
async fn a_node_rolled_back() {
    let node = Node::new();
    node.k3s_release(K3S, HASH_A);
    node.k3s_release(K3S, HASH_B);
    // Both still name the newer release, as nothing was extracted on the way back.
    node.k3s_links(K3S, HASH_B);
    node.link(HASH_B, format!("{K3S}/data/current"));
    node.link(HASH_A, format!("{K3S}/data/previous"));
    let bin = format!("{K3S}/data/{HASH_A}/bin");
    let conf = format!("{K3S}/agent/etc/cni/net.d");
    check(&node, K3S_SOCKET, (&[&bin], &conf), &bin).await;
}

#[tokio::test]
async fn two_plugin_directories() {
    let node = Node::new();
    node.k3s_release(K3S, HASH_A);
    node.dir("/var/lib/product/cni/bin");
    let hash = format!("{K3S}/data/{HASH_A}/bin");
    let own = "/var/lib/product/cni/bin";
    check(&node, SOCKET, (&[&hash, own], USUAL.1), own).await;
}

#[tokio::test]
async fn plain_containerd_of_both_generations() {
    for is_new in [false, true] {
        let node = Node::new();
        node.plugins(USUAL.0);
        node.primary(USUAL.1);
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
async fn a_runtime_that_refuses_is_read_by_its_files() {
    let node = Node::new();
    node.plugins("/drop/bin");
    node.primary("/main/conf");
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
    // Of another release, at another usual place, and not this runtime's.
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
    assert!(is_told(&report, "refused Status: not here"), "{report}");
}

#[tokio::test]
async fn without_a_command_line_the_file_of_the_same_socket_is_a_guess() {
    let node = Node::new();
    node.plugins("/k3s/bin");
    node.primary("/k3s/conf");
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
    // K3s hides its arguments, and it may be what serves the socket.
    node.runtime(K3S_SOCKET, None, "/usr/local/bin/k3s\0server");
    let report = node.discover().await;
    assert_eq!(dirs(&report), ("/k3s/bin", "/k3s/conf", Source::Guess));
}

#[tokio::test]
async fn a_hint_says_where_to_look_and_never_what_is_there() {
    let node = Node::new();
    node.plugins("/h/bin");
    node.primary("/h/conf");
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
async fn crio_tells_by_its_files() {
    let node = Node::new();
    node.plugins("/usr/libexec/cni");
    node.primary("/etc/cni/net.d");
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
async fn of_two_runtimes_the_one_that_runs_us() {
    let node = Node::new();
    node.plugins(USUAL.0);
    node.primary(USUAL.1);
    let answer = |bin: &str| {
        let (key, text) = cniconfig(&[bin], USUAL.1);
        Some([(key.to_owned(), text)].into())
    };
    let runtime = |pods: &[&'static str], bin: &str| RuntimeInfo {
        name: "containerd",
        version: "v2.4.2",
        pods: pods.to_vec(),
        status: answer(bin),
    };
    node.serve(K3S_SOCKET, "", runtime(&["another"], "/k3s"));
    node.serve(SOCKET, "", runtime(&[POD], USUAL.0));
    let report = node.discover().await;
    assert_eq!(dirs(&report).0, USUAL.0);
    assert!(
        is_told(
            &report,
            "k3s/containerd/containerd.sock: it does not run this pod"
        ),
        "{report}"
    );

    // Before installation there is no pod of ours: who runs pods comes first, and that others do, too, is said.
    let report = discover(&node.root, &Question::default()).await;
    assert_eq!(dirs(&report).0, "/k3s");
    assert!(
        is_told(&report, "it runs pods, too: name the socket"),
        "{report}"
    );
    let empty = Node::new();
    empty.serve(K3S_SOCKET, "", runtime(&[], "/k3s"));
    empty.serve(SOCKET, "", runtime(&["one"], USUAL.0));
    let report = discover(&empty.root, &Question::default()).await;
    assert_eq!(dirs(&report).0, USUAL.0);
    assert!(is_told(&report, "it answers, but runs no pods"), "{report}");
}

#[tokio::test]
async fn a_socket_at_no_usual_place_is_found_by_its_process() {
    let node = Node::new();
    node.plugins(USUAL.0);
    node.primary(USUAL.1);
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

fn overriding(shim: &str) -> Question {
    Question {
        pod_uid: Some(POD.to_owned()),
        overrides: Overrides {
            shim_dir: Some(shim.into()),
            conf_dir: None,
        },
        ..Question::default()
    }
}

#[tokio::test]
async fn override_names_one_of_the_directories_of_the_runtime() {
    let node = Node::new();
    node.plugins("/given");
    node.primary(USUAL.1);
    let reported = [cniconfig(&[USUAL.0, "/given"], USUAL.1)];
    node.runtime(SOCKET, Some(&reported), "");
    let report = discover(&node.root, &overriding("/given")).await;
    assert_eq!(dirs(&report), ("/given", USUAL.1, Source::CniConfig));
    let noted = |note: &String| {
        note.starts_with(
            "config.cni_conf.shimDir (shimDir in config.daemon_conf) is set: /given is used",
        )
    };
    assert!(report.notes.iter().any(noted), "{report}");
}

#[tokio::test]
async fn override_that_contradicts_the_runtime_gives_no_directories() {
    let node = Node::new();
    node.plugins("/given");
    node.primary(USUAL.1);
    node.runtime(SOCKET, Some(&[cniconfig(&[USUAL.0], USUAL.1)]), "");
    let report = discover(&node.root, &overriding("/given")).await;
    assert_eq!(report.dirs, None);
    let problem = report.problem.unwrap();
    assert!(
        problem.starts_with(
            "config.cni_conf.shimDir (shimDir in config.daemon_conf) is /given, but the runtime itself looks for plugins in"
        ),
        "{problem}"
    );
}

#[tokio::test]
async fn the_report_is_json_with_everything_in_it() {
    let node = Node::new();
    node.plugins(USUAL.0);
    node.primary(USUAL.1);
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
