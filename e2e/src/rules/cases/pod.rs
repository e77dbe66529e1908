//! Cases of subject `pod`: Pods and the API server.

use std::fs;

use anyhow::ensure;
use serde_json::json;

use super::cases;
use crate::{
    control_plane::{
        Components,
        tcp_proxy::{self, Condition, TcpProxy},
    },
    rules::harness::{DaemonSetup, Harness, Pod, PodSpec, WITH_A},
    sh,
};

cases! { "pod":
    plain another_node ["pod.not-in-watch", "pod.own-node"]
    own_daemon before_its_watch ["pod.late-watch"]
    plain with_another_uid ["pod.other-uid"]
    plain static_pod ["pod.static"]
    plain del_with_another_uid ["pod.other-uid-del"]
    plain missing ["pod.missing"]
    plain missing_in_time ["pod.missing-in-time"]
    plain deleted_during_add ["status-annotation.pod-deleted"]
    own_daemon add_without_api_server ["pod.api-server-down", "status-annotation.retried"]
    own_daemon del_without_api_server ["del.without-pod"]
}

fn other_uid(pod: &Pod, uid: &str) -> String {
    pod.args().replace(&pod.uid, uid).replace(
        &format!("INFRA_CONTAINER_ID={}-{uid}", pod.name),
        &format!("INFRA_CONTAINER_ID={}", pod.id),
    )
}

fn another_node(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod_with(
        "foreign",
        &PodSpec {
            node: "elsewhere",
            ..PodSpec::default()
        },
    )?;
    harness.add(&pod)?;
    harness.expect_calls(&pod, &["ADD primary"])
}

fn with_another_uid(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("another-uid", "")?;
    let outcome = harness.verb_env(
        "ADD",
        &pod,
        &json!({}),
        &[("CNI_ARGS", &other_uid(&pod, "other-uid"))],
    )?;
    outcome.error_contains(&["expected pod UID", "other-uid", &pod.uid])?;
    harness.expect_calls(&pod, &[])
}

fn static_pod(harness: &Harness) -> anyhow::Result<()> {
    let form = PodSpec::annotated(&[
        ("kubernetes.io/config.source", "file"),
        ("kubernetes.io/config.mirror", "a8712c00"),
    ]);
    let pod = harness.pod_with("static", &form)?;
    harness
        .verb_env(
            "ADD",
            &pod,
            &json!({}),
            &[("CNI_ARGS", &other_uid(&pod, "file-uid"))],
        )?
        .success()?;
    harness.expect_calls(&pod, &["ADD primary"])?;
    ensure!(harness.network_status(&pod)?.len() == 1, "no status");
    Ok(())
}

fn del_with_another_uid(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("another-uid-del", "a")?;
    harness
        .verb_env(
            "DEL",
            &pod,
            &json!({}),
            &[("CNI_ARGS", &other_uid(&pod, "other-uid"))],
        )?
        .success()?;
    harness.expect_calls(&pod, &WITH_A)
}

fn missing(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.sandbox("default", "missing", "0000")?;
    harness.verb("ADD", &pod)?.has_code(11)?;
    harness.expect_calls(&pod, &[])
}

fn missing_in_time(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.sandbox("default", "missing-in-time", "0000")?;
    // Any answer will do.
    harness.spawn_verb("ADD", &pod)?.within(10)?;
    harness.expect_calls(&pod, &[])
}

/// Stops the API server for a case, and starts it again afterwards.
fn while_down(harness: &Harness, case: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    harness.control_plane().stop_server(harness.node())?;
    let outcome = case();
    harness
        .control_plane()
        .start_server(harness.node(), Components::ApiServer)?;
    harness.stop_daemon("TERM")?;
    outcome
}

fn add_without_api_server(harness: &Harness) -> anyhow::Result<()> {
    harness.start_daemon(&DaemonSetup::Plain.file())?;
    let pod = harness.pod("unwritten", "a")?;
    harness.wait_for_watch()?;
    while_down(harness, || harness.add(&pod).map(drop))?;
    let networks = harness.network_status(&pod)?;
    ensure!(networks.len() == 2, "{networks:?}");
    harness.del(&pod).map(drop)
}

fn del_without_api_server(harness: &Harness) -> anyhow::Result<()> {
    harness.start_daemon(&DaemonSetup::Plain.file())?;
    let pod = harness.attach("unread", "a")?;
    while_down(harness, || {
        harness.del(&pod)?;
        harness.expect_calls(&pod, &WITH_A)
    })
}

/// Gives the daemon an account that may watch pods but not get a single one, so that only the watch can deliver a pod.
fn use_watch_only_account(harness: &Harness) -> anyhow::Result<()> {
    let group = "rbac.authorization.k8s.io";
    let may = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let role = json!({"metadata": {"name": "watcher"}, "rules": [
        may("", &["pods"], &["list", "watch"]),
        may("", &["pods/status"], &["patch", "update"]),
        may("k8s.cni.cncf.io", &["network-attachment-definitions"], &["list", "watch"]),
    ]});
    let binding = json!({
        "metadata": {"name": "watcher"}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "watcher"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "system:kube-proxy"}],
    });
    for (kind, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        harness.api("POST", &format!("/apis/{group}/v1/{kind}"), &object)?;
    }
    harness.set_account_token("proxy")
}

fn before_its_watch(harness: &Harness) -> anyhow::Result<()> {
    use_watch_only_account(harness)?;
    let outcome = behind_its_watch(harness);
    harness.set_account_token("admin")?;
    harness.stop_daemon("TERM")?;
    outcome
}

fn behind_its_watch(harness: &Harness) -> anyhow::Result<()> {
    let proxy = TcpProxy::start(harness.node())?;
    harness.launch_daemon_behind(tcp_proxy::PORT, &DaemonSetup::Plain.file())?;
    sh::until(60, "the daemon is ready", || harness.ensure_ready())?;
    // The watch works when it has delivered a pod.
    let first = harness.pod("in-time", "")?;
    harness.spawn_verb("ADD", &first)?.within(20)?;
    harness.call(&first, "ADD", "primary")?;
    proxy.set(Condition::Silent);
    let pod = harness.pod("early", "")?;
    let adding = harness.spawn_verb("ADD", &pod)?;
    let called = || harness.call(&pod, "ADD", "primary");
    let early = sh::until(1, "a call", called);
    proxy.set(Condition::Open);
    // The call may still fail: upstream gets the pod before it writes the status annotation, which this account may not.
    adding.within(20)?;
    ensure!(early.is_err(), "the watch was not late");
    called().map(drop)
}

fn deleted_during_add(harness: &Harness) -> anyhow::Result<()> {
    let (node, go) = (harness.node(), "/run/deleted");
    let pod = harness.pod("leaving", "a")?;
    harness.set_answer("a", "ADD", &json!({"wait_for": go}))?;
    let adding = harness.spawn_verb("ADD", &pod)?;
    let deleted = sh::until(10, "the plugin is called", || {
        harness.call(&pod, "ADD", "a")
    })
    .and_then(|_| harness.delete_pod(&pod))
    .and_then(|()| harness.wait_for_watch());
    node.write(go, b"")?;
    let outcome = adding.within(20);
    fs::remove_file(node.path(go))?;
    deleted?;
    outcome?.success()?;
    harness.del(&pod)?;
    harness.expect_calls(&pod, &WITH_A)
}
