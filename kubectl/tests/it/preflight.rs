//! `preflight` with a fake API server, for users with all or few rights, and with files.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    answer, check,
    cluster::{Cluster, forbidden, list},
    has, is_refused, run,
};

const NADS: &str = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
/// A `PATH` without Helm.
const NO_PROGRAMS: &str = "/nowhere";
/// A Helm that refuses thin mode, and else renders a chart with the level of logging that its values have.
const HELM: &str = r#"#!/bin/sh
values=$(cat)
case "$* $values" in
*'"enabled":false'*)
    echo 'Error: execution error at (rke2-multus/templates/check.yaml:12:4): thickPlugin.enabled is false, but thin mode does not exist' >&2
    exit 1 ;;
template\ rke2-multus\ *.tgz\ --namespace\ kube-system\ --values\ -\ --kube-version\ v1.32.3+rke2r1\ *'"logLevel":"debug"'*)
    level=debug ;;
*--api-versions\ admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy*) level=panic ;;
*) level=verbose ;;
esac
printf 'kind: ConfigMap\ndata:\n  daemon-config.json: |\n    {"logLevel":"%s"}\n---\nkind: DaemonSet\n' "$level"
"#;
/// Helm's record of this release, compressed and encoded as by Helm: `{"name":"rke2-multus","config":{"thickPlugin":{"enabled":false}}}`.
const RELEASE: &str = "SDRzSUFBQUFBQUFDQTZ0V3lrdk1UVld5VWlyS1RqWFN6UzNOS1NrdFZ0SlJTczdQUzh0TVY3S3FWaXJKeUV6T0RzZ3BUYy9NQTNGVDh4S1RjbEpUbEt6U0VuT0tVMnRyYXdFeHhZa1pRUUFBQUE9PQ==";

fn pod(name: &str, networks: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name, "annotations": {"k8s.v1.cni.cncf.io/networks": networks}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]}, "status": {"phase": "Running"}})
}

fn storage() -> Value {
    json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "storage", "namespace": "shop"}, "spec": {"config": r#"{"cniVersion":"1.0.0","type":"bridge"}"#}})
}

fn node() -> Value {
    json!({"metadata": {"name": "n1"}, "status": {"nodeInfo": {"architecture": "amd64", "operatingSystem": "linux",
        "kernelVersion": "6.1.0", "containerRuntimeVersion": "containerd://2.0.4", "kubeletVersion": "v1.32.3+rke2r1"}}})
}

fn upstream() -> Value {
    json!({"metadata": {"name": "rke2-multus", "namespace": "kube-system", "labels": {"app": "rke2-multus"},
            "annotations": {"meta.helm.sh/release-name": "rke2-multus", "meta.helm.sh/release-namespace": "kube-system"}},
        "spec": {"template": {"spec": {"containers": [{"name": "m", "image": "rancher/hardened-multus-cni:v4.3.0",
            "command": ["/thin_entrypoint"], "args": ["--multus-conf-file=auto"]}]}}}})
}

/// A cluster with upstream's thin Multus and these pods.
fn cluster(pods: &Value, others: &[(&str, u16, Value)]) -> Cluster {
    let usual = [
        ("/api/v1/pods", 200, list(pods)),
        ("/api/v1/nodes", 200, list(&json!([node()]))),
        (NADS, 200, list(&json!([storage()]))),
        ("/apis/apps/v1/daemonsets", 200, list(&json!([upstream()]))),
        ("/apis/apps/v1/deployments", 200, list(&json!([]))),
        ("/apis/apps/v1/statefulsets", 200, list(&json!([]))),
        ("/apis/batch/v1/cronjobs", 200, list(&json!([]))),
        (SECRETS, 200, list(&json!([]))),
        (
            "/version",
            200,
            json!({"major": "1", "minor": "32", "gitVersion": "v1.32.3+rke2r1", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
        ),
    ];
    Cluster::start(&[&usual[..], others].concat())
}

#[track_caller]
fn preflight(server: &Cluster, args: &[&str]) -> (i32, Value) {
    preflight_with(server, args, NO_PROGRAMS)
}

/// Runs `preflight` with programs of this `PATH`.
#[track_caller]
fn preflight_with(server: &Cluster, args: &[&str], path: &str) -> (i32, Value) {
    let kubeconfig = server.kubeconfig();
    let common = ["preflight", "-o", "json", "--kubeconfig"];
    let output = Command::new(env!("CARGO_BIN_EXE_kubectl-multus"))
        .args(common)
        .arg(kubeconfig)
        .args(args)
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|_| panic!("{output:?}"));
    (output.status.code().unwrap(), report)
}

/// Writes the Helm into a directory of its own.
fn helm() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let helm = dir.path().join("helm");
    fs::write(&helm, HELM).unwrap();
    fs::set_permissions(&helm, fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// Returns a `PATH` that begins with this directory.
fn path_with(dir: &TempDir) -> String {
    format!("{}:{}", dir.path().display(), env::var("PATH").unwrap())
}

#[test]
fn a_valid_cluster_exits_with_0() {
    let server = cluster(&json!([pod("cart", "storage")]), &[]);
    let report = preflight(&server, &[]);
    check(&report, 0, "/verdict", &json!(null));
    check(&report, 0, "/pods", &json!(1));
    check(&report, 0, "/nodes", &json!(1));
    check(&report, 0, "/chart", &json!("rke2-multus"));
    check(&report, 0, "/gaps", &json!([]));
    let text = String::from_utf8(server.run(&["preflight"]).stdout).unwrap();
    let begin = "checked  1 pod, 1 definition, 1 node\n";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains("nothing fails and nothing changes"), "{text}");
    assert!(text.contains("  1. helm upgrade --install "), "{text}");
}

#[test]
fn failures_exit_with_1_and_changes_with_4() {
    let server = cluster(&json!([pod("cart", "storage"), pod("till", "storag")]), &[]);
    let report = preflight(&server, &[]);
    check(&report, 1, "/verdict", &json!("fails"));
    check(&report, 1, "/fails", &json!(1));
    check(&report, 1, "/findings/0/subject", &json!("pod"));
    check(&report, 1, "/findings/0/names", &json!(["shop/till"]));
    let text = &report.1["findings"][0]["text"];
    has(text, r#"did you mean \"storage\"?"#);
    let route = r#"[{"name":"storage","default-route":["10.1.1.1"]}]"#;
    let server = cluster(&json!([pod("cart", route)]), &[]);
    let report = preflight(&server, &[]);
    check(&report, 4, "/verdict", &json!("changes"));
    check(&report, 4, "/changes", &json!(1));
}

#[test]
fn values_of_the_release_are_read_unless_files_are_named() {
    let secret = json!({"metadata": {"name": "sh.helm.release.v1.rke2-multus.v1", "labels": {"version": "1"}}, "data": {"release": RELEASE}});
    let server = cluster(&json!([]), &[(SECRETS, 200, list(&json!([secret])))]);
    let dir = helm();
    let path = path_with(&dir);
    let preflight = |args: &[&str]| preflight_with(&server, args, &path);
    let report = preflight(&[]);
    let refused = json!(["thickPlugin.enabled"]);
    check(&report, 1, "/findings/0/names", &refused);
    let release = json!("those of release kube-system/rke2-multus");
    check(&report, 1, "/values", &release);
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let first = write(
        "first.yaml",
        "{thickPlugin: {enabled: false}, config: {daemon_conf: {logLevel: debug}}}",
    );
    let second = write("second.yaml", "thickPlugin: {enabled: true}");
    let report = preflight(&["--values", &first, "--values", &second]);
    check(&report, 0, "/daemonConfig/logLevel", &json!("debug"));
    let (status, _) = preflight(&["--values", &first]);
    assert_eq!(status, 1);
    let report = preflight_with(&server, &["--values", &second], NO_PROGRAMS);
    check(&report, 3, "/daemonConfig", &json!(null));
    has(&report.1["gaps"], "with helm in the PATH");
    let list = write("list.yaml", "[1]");
    let output = server.run(&["preflight", "--values", &list]);
    is_refused(&output, "not a map of keys");
}

#[test]
fn helm_hears_of_policies_that_the_cluster_has_as_a_beta() {
    let policy = json!({"name": "mutatingadmissionpolicies", "singularName": "", "namespaced": false, "kind": "MutatingAdmissionPolicy", "verbs": []});
    let group = "admissionregistration.k8s.io/v1beta1";
    let kinds = json!({"kind": "APIResourceList", "groupVersion": group, "resources": [policy]});
    let dir = helm();
    for (others, level) in [
        (&[(&*format!("/apis/{group}"), 200, kinds)][..], "panic"),
        (&[], "verbose"),
    ] {
        let server = cluster(&json!([]), others);
        let report = preflight_with(&server, &[], &path_with(&dir));
        check(&report, 0, "/daemonConfig/logLevel", &json!(level));
    }
}

#[test]
fn missing_rights_are_reported() {
    let server = cluster(
        &json!([pod("cart", "storage")]),
        &[
            (NADS, 403, forbidden("network-attachment-definitions")),
            (SECRETS, 403, forbidden("secrets")),
        ],
    );
    let report = preflight(&server, &[]);
    check(&report, 3, "/verdict", &json!(null));
    let (_, report) = report;
    let command = "helm get values --namespace kube-system rke2-multus";
    for gap in ["network-attachment-definitions were not read", command] {
        has(&report["gaps"], gap);
    }
    has(&report["findings"], "it was not validated");
    let server = cluster(&json!([]), &[("/api/v1/pods", 403, forbidden("pods"))]);
    is_refused(&server.run(&["preflight"]), "the right to list pods");
}

#[test]
fn a_missing_crd_is_reported() {
    let missing = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "the server could not find the requested resource", "code": 404});
    let server = cluster(&json!([pod("cart", "storage")]), &[(NADS, 404, missing)]);
    let (status, report) = preflight(&server, &[]);
    assert_eq!(status, 1, "{report}");
    has(&report["findings"], "install rke2-multus-crd first");
}

#[test]
fn files_are_checked_without_a_cluster() {
    let mut broken = pod("cart", "a/b/c");
    broken["kind"] = json!("Pod");
    let mut set = upstream();
    set["kind"] = json!("DaemonSet");
    let dump = list(&json!([broken, set, storage()]));
    let report = answer(&["preflight", "-f", "-"], &dump.to_string());
    check(&report, 1, "/findings/0/names", &json!(["shop/cart"]));
    is_refused(&run(&["preflight", "-f", "-"], "a: ["), "YAML");
}
