//! Pods as the API server has them, or has them not.

use std::fs;

use anyhow::ensure;
use serde_json::json;

use super::{Case, alone, plain};
use crate::{
    control_plane::{
        Components,
        tcp_proxy::{self, Condition, TcpProxy},
    },
    rules::bench::{Bench, Pod, PodForm, Settings, WITH_A},
    sh,
};

pub(super) const CASES: &[Case] = &[
    plain(
        "access-pod-of-another-node",
        &["mux-8.1-foreign", "mux-8-own-pods"],
        foreign,
    ),
    plain("access-another-incarnation", &["mux-8.2-uid"], incarnation),
    plain("access-static-pod", &["mux-8.2-static"], static_pod),
    plain(
        "access-del-of-another-incarnation",
        &["mux-8.2-uid-del"],
        incarnation_del,
    ),
    plain("access-pod-that-is-gone", &["mux-8.3-no-pod"], gone),
    plain(
        "access-pod-that-is-gone-in-time",
        &["mux-8.3-bounded"],
        gone_in_time,
    ),
    alone(
        "access-api-server-down",
        &["mux-8.1-down", "mux-11.6-status"],
        down,
    ),
    alone(
        "access-del-with-api-server-down",
        &["mux-12.2-alone"],
        down_del,
    ),
    alone("access-pod-before-its-watch", &["mux-8.1-late"], late),
    plain(
        "access-pod-that-goes-meanwhile",
        &["mux-13-gone"],
        goes_meanwhile,
    ),
];

fn other_uid(pod: &Pod, uid: &str) -> String {
    pod.args().replace(&pod.uid, uid).replace(
        &format!("INFRA_CONTAINER_ID={}-{uid}", pod.name),
        &format!("INFRA_CONTAINER_ID={}", pod.id),
    )
}

fn foreign(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod_of(
        "foreign",
        &PodForm {
            node: "elsewhere",
            ..PodForm::default()
        },
    )?;
    bench.add(&pod)?;
    bench.called(&pod, &["ADD primary"])
}

fn incarnation(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("incarnate", "")?;
    let outcome = bench.verb_env(
        "ADD",
        &pod,
        &json!({}),
        &[("CNI_ARGS", &other_uid(&pod, "other-uid"))],
    )?;
    outcome.tells(&["expected pod UID", "other-uid", &pod.uid])?;
    bench.called(&pod, &[])
}

fn static_pod(bench: &Bench) -> anyhow::Result<()> {
    let form = PodForm {
        annotations: vec![("kubernetes.io/config.source", "file".to_owned())],
        ..PodForm::default()
    };
    let pod = bench.pod_of("static", &form)?;
    bench
        .verb_env(
            "ADD",
            &pod,
            &json!({}),
            &[("CNI_ARGS", &other_uid(&pod, "file-uid"))],
        )?
        .well()?;
    bench.called(&pod, &["ADD primary"])?;
    ensure!(bench.status(&pod)?.len() == 1, "no status");
    Ok(())
}

fn incarnation_del(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("incarnate-del", "a")?;
    bench.add(&pod)?;
    bench
        .verb_env(
            "DEL",
            &pod,
            &json!({}),
            &[("CNI_ARGS", &other_uid(&pod, "other-uid"))],
        )?
        .well()?;
    bench.called(&pod, &WITH_A)
}

fn gone(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.sandbox("default", "gone", "0000")?;
    bench.verb("ADD", &pod)?.has_code(11)?;
    bench.called(&pod, &[])
}

fn gone_in_time(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.sandbox("default", "gone-in-time", "0000")?;
    // Whatever the answer is.
    bench.begin("ADD", &pod)?.within(10)?;
    bench.called(&pod, &[])
}

/// Runs a case while the API server is down; it is up again afterwards.
fn while_down(bench: &Bench, case: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    bench.scene.control.stop_server(&bench.scene.node)?;
    let outcome = case();
    bench
        .scene
        .control
        .start_server(&bench.scene.node, Components::ApiServer)?;
    bench.stop("TERM")?;
    outcome
}

fn down(bench: &Bench) -> anyhow::Result<()> {
    bench.start(&Settings::Plain.file())?;
    let pod = bench.pod("unwritten", "a")?;
    bench.settle()?;
    while_down(bench, || {
        bench.verb("ADD", &pod)?.error()?;
        bench.called(&pod, &WITH_A)?;
        ensure!(!bench.state_file(&pod).exists(), "its state is left");
        Ok(())
    })
}

fn down_del(bench: &Bench) -> anyhow::Result<()> {
    bench.start(&Settings::Plain.file())?;
    let pod = bench.pod("unread", "a")?;
    bench.add(&pod)?;
    while_down(bench, || {
        bench.del(&pod)?;
        bench.called(&pod, &WITH_A)
    })
}

/// An account that may watch pods and not ask for one: who waits for the watch learns of a pod, and nobody else.
fn watcher(bench: &Bench) -> anyhow::Result<()> {
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
        bench.api("POST", &format!("/apis/{group}/v1/{kind}"), &object)?;
    }
    bench.account("proxy")
}

fn late(bench: &Bench) -> anyhow::Result<()> {
    watcher(bench)?;
    let outcome = behind_its_watch(bench);
    bench.account("admin")?;
    bench.stop("TERM")?;
    outcome
}

fn behind_its_watch(bench: &Bench) -> anyhow::Result<()> {
    let proxy = TcpProxy::start(&bench.scene.node)?;
    bench.launch_behind(tcp_proxy::PORT, &Settings::Plain.file())?;
    sh::until(60, "the daemon is ready", || bench.is_ready())?;
    // Its watch is under way when it knows of a pod.
    let first = bench.pod("in-time", "")?;
    bench.begin("ADD", &first)?.within(20)?;
    bench.call(&first, "ADD", "primary")?;
    proxy.set(Condition::Silent);
    let pod = bench.pod("early", "")?;
    let adding = bench.begin("ADD", &pod)?;
    let called = || bench.call(&pod, "ADD", "primary");
    let early = sh::until(1, "a call", called);
    proxy.set(Condition::Open);
    // Its answer is another matter: one implementation asks for the pod after all, to tell it of its networks.
    adding.within(20)?;
    ensure!(early.is_err(), "the watch was not late");
    called().map(drop)
}

fn goes_meanwhile(bench: &Bench) -> anyhow::Result<()> {
    let (node, go) = (&bench.scene.node, "/run/gone");
    let pod = bench.pod("leaving", "a")?;
    bench.answer("a", "ADD", &json!({"wait_for": go}))?;
    let adding = bench.begin("ADD", &pod)?;
    let gone = sh::until(10, "the plugin is called", || bench.call(&pod, "ADD", "a"))
        .and_then(|_| bench.delete(&pod))
        .and_then(|()| bench.settle());
    node.write(go, b"")?;
    let outcome = adding.within(20);
    fs::remove_file(node.path(go))?;
    gone?;
    outcome?.well()?;
    bench.del(&pod)?;
    bench.called(&pod, &WITH_A)
}
