//! Pods as the API server has them, or has them not.

use anyhow::ensure;
use serde_json::json;

use super::{Case, alone, plain};
use crate::{
    control::Extent,
    rules::bench::{Bench, Pod, PodForm, Settings, WITH_A},
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
        .start_server(&bench.scene.node, Extent::Server)?;
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
