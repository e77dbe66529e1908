//! The NOTES of an installation, and evictions that a disruption budget refuses: both need a real API server.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{render::NAMESPACE, server::Server};
use crate::{
    control_plane::objects,
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

const MAIN: &str = "rke2-multus";
const CRD: &str = "rke2-multus-crd";

pub(super) fn run(env: &TestEnv, server: &Server, report: &mut Report) -> Checked {
    report.check(
        "NOTES describe the outcome of values, and warn of those without effect",
        || notes(env, server),
    )?;
    report.check(
        "a disruption budget prevents the eviction of daemons",
        || eviction(env, server),
    )
}

/// Values, with texts of the lines that they add to the NOTES.
const WORDS: &[(&[&str], &[&str])] = &[
    (
        &["--set=manifests.daemonSet=false"],
        &["No daemon is started"],
    ),
    (
        &["--set=perNodeCertificate.enabled=true"],
        &["rke2-multus-approver approves them"],
    ),
    (
        &[
            "--set=perNodeCertificate.enabled=true",
            "--set=perNodeCertificate.approver.enabled=false",
        ],
        &["approve them by other means"],
    ),
    (
        &["--set=definitionValidation.enabled=true"],
        &["could use is Deny"],
    ),
    (
        &["--set=cniplugins.standalone=true"],
        &[
            "No daemon serves pods, since cniplugins.standalone is on",
            "removes the plugins from the nodes",
        ],
    ),
    (
        &["--set=architectures={arm64}"],
        &["Each node of architecture arm64 gets a daemon"],
    ),
    (
        &["--set=config.cni_conf.confDir=/etc/x"],
        &["confDir sets /etc/x on every node"],
    ),
    (
        &["--set=config.cni_conf.binDir=/host/opt/x"],
        &["binDir is /host/opt/x; it names a path on the node, so /opt/x is used"],
    ),
    (
        &["--set=config.cni_conf.shimDir=/host/opt/x"],
        &[
            "shimDir is /host/opt/x; it names a path on the node, so /opt/x is used",
            "shimDir sets /opt/x on every node",
        ],
    ),
    (
        &["--set=config.daemon_conf.cniConfigDir=/host/etc/x"],
        &[
            "daemon_conf.cniConfigDir is /host/etc/x",
            "cniConfigDir sets /etc/x on every node",
        ],
    ),
    (
        &["--set=config.cni_conf.kubeconfig=/x"],
        &["no effect in this one: config.cni_conf.kubeconfig."],
    ),
    (
        &["--set=cniplugins.image.tag=v1"],
        &["no effect in this one: cniplugins.image."],
    ),
    (
        &["--set=dynamicNetworksController.sockets.multus=/x"],
        &["no effect in this one: dynamicNetworksController.sockets."],
    ),
    (
        &[
            "--set=manifests.customResourceDefinition=true",
            "--set=rke2-whereabouts.resources.a=b",
        ],
        &["no effect in this one: manifests.customResourceDefinition, rke2-whereabouts.resources."],
    ),
];

fn notes(env: &TestEnv, server: &Server) -> anyhow::Result<()> {
    let chart = env.chart(MAIN)?;
    let said = |values: &[&str]| {
        let text = server.release(
            "install",
            MAIN,
            &chart,
            &[&["--dry-run=server"], values].concat(),
        )?;
        let (_, notes) = text
            .split_once("\nNOTES:\n")
            .context("there are no NOTES")?;
        anyhow::Ok(notes.lines().map(str::to_owned).collect::<BTreeSet<_>>())
    };
    let missing = "this cluster has no NetworkAttachmentDefinition yet: install rke2-multus-crd";
    let before = said(&[])?;
    ensure!(
        before.iter().any(|line| line.contains(missing)),
        "{before:?}"
    );
    let missing = "this cluster has no AddressBlock yet: install rke2-multus-crd of this version";
    let addresses: Vec<_> = said(&["--set=ipam.enabled=true"])?
        .difference(&before)
        .cloned()
        .collect();
    ensure!(
        addresses.len() == 1 && addresses[0].contains(missing),
        "{addresses:?}"
    );
    server.release("install", CRD, &env.chart(CRD)?, &[])?;
    let plain = sh::until(30, "Helm finds the CRD", || {
        let plain = said(&[])?;
        ensure!(
            !plain.iter().any(|line| line.contains("WARNING")),
            "{plain:?}"
        );
        Ok(plain)
    })?;
    for (values, words) in WORDS {
        let more: Vec<_> = said(values)?.difference(&plain).cloned().collect();
        ensure!(more.len() == words.len(), "{values:?} add {more:?}");
        for word in *words {
            ensure!(
                more.iter().any(|line| line.contains(word)),
                "{values:?}: no `{word}` in {more:?}"
            );
        }
    }
    Ok(())
}

/// Starts the controller of disruption budgets, and evicts pods without and with a budget.
fn eviction(env: &TestEnv, server: &Server) -> anyhow::Result<()> {
    server
        .node
        .serve("disruption", "kube-controller-manager", |command| {
            command
                .args(
                    "--controllers=disruption-controller --leader-elect=false --kubeconfig"
                        .split(' '),
                )
                .arg(server.control.admin())
        })?;
    let api = &server.api;
    let evict = |name: &str| {
        let place = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction");
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}});
        api.request("POST", &place, &body).map(drop)
    };
    for name in ["first", "second"] {
        let mut pod = objects::pod(name, "n1", None);
        pod["metadata"]["namespace"] = json!(NAMESPACE);
        pod["metadata"]["labels"] = json!({"app": MAIN});
        server.control.apply(&server.node, &[pod])?;
        let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let place = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/status");
        api.request("PATCH", &place, &ready)?;
    }
    evict("first").context("without a budget")?;
    let on = "--set=podDisruptionBudget.enabled=true";
    server.release("install", MAIN, &env.chart(MAIN)?, &[on])?;
    // The condition that alerts use: fewer pods are healthy than desired, or the controller cannot tell.
    sh::until(30, "the controller has counted the pods", || {
        let status = &server.existing("PodDisruptionBudget/rke2-multus")?["status"];
        ensure!(
            status["currentHealthy"] == 1 && status["desiredHealthy"] == 1,
            "{status}"
        );
        let reason = &status["conditions"][0]["reason"];
        ensure!(reason == "InsufficientPods", "{status}");
        Ok(())
    })?;
    let error = evict("second")
        .err()
        .context("a pod is evicted in spite of the budget")?;
    ensure!(error.to_string().contains("429"), "{error:#}");
    api.request(
        "DELETE",
        &format!("/api/v1/namespaces/{NAMESPACE}/pods/second"),
        &Value::Null,
    )?;
    for name in [MAIN, CRD] {
        server.helm(&["uninstall", name])?;
    }
    server.kubectl(&["delete", "crd", "--all"]).map(drop)
}
