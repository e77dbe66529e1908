//! The HelmChart that K3s' documentation shows, with upstream's chart: `preflight` says how it installs ours in place, and that is done.

use anyhow::{Context as _, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::{fs, path::Path};

use crate::{
    cluster::k3s_server::{job_log, released},
    control_plane::objects,
    kubectl_plugin::KubectlPlugin,
    node::{file_hashes::FileHashes, inspect::nothing_left},
    programs::published_charts::{self, OLD},
    report::{CheckFailed, Report},
    sh,
    suites::cluster::{ClusterFixture, NAMESPACE},
};

const CHART: &str = "rke2-multus";
const CRD_CHART: &str = "rke2-multus-crd";
const NAME: &str = "multus";
const POD: &str = "documented";

impl ClusterFixture<'_> {
    pub(super) fn documented(
        &self,
        before: &[FileHashes],
        report: &mut Report,
    ) -> Result<(), CheckFailed> {
        report.check(
            "the HelmChart of K3s' documentation installs ours in place, as preflight says, and upstream's again",
            || {
                self.cluster.apply(&[documented_chart("labelled")?])?;
                let theirs = released(&self.cluster, NAME, 0)?;
                self.follow_preflight()?;
                let ours = released(&self.cluster, NAME, theirs)?;
                self.label("e2e=labelled")?;
                let set = format!("daemonset/{NAME}");
                let wait = ["rollout", "status", &set, NAMESPACE, "--timeout=120s"];
                self.cluster.kubectl(&wait)?;
                let node = &self.cluster.members[0].node;
                let pod = objects::pod(POD, &node.name, Some("storage"));
                self.cluster.apply(&[pod])?;
                self.cluster.ensure_interfaces(POD, &["eth0", "net1"])?;
                self.cluster.delete(&[POD.to_owned()])?;
                nothing_left(node)?;
                self.cluster.apply(&[documented_chart("nowhere")?])?;
                released(&self.cluster, NAME, ours)?;
                self.label("e2e-")
            },
        )?;
        report.check(
            "without that HelmChart, definitions stay and the files of both nodes are as they were",
            || {
                let chart = ["delete", "helmchart", NAME, NAMESPACE, "--timeout=90s"];
                self.cluster
                    .kubectl(&chart)
                    .with_context(|| job_log(&self.cluster, NAME))?;
                self.definitions_stay()?;
                sh::run(
                    self.cluster
                        .helm()
                        .args(["uninstall", CRD_CHART, NAMESPACE]),
                )?;
                self.ensure_removed()?;
                self.ensure_files_unchanged(before)
            },
        )
    }

    fn label(&self, label: &str) -> anyhow::Result<()> {
        let node = &self.cluster.members[0].node.name;
        self.cluster
            .kubectl(&["label", "node", node, label])
            .map(drop)
    }

    fn follow_preflight(&self) -> anyhow::Result<()> {
        let kubeconfig = self.cluster.control.admin();
        let plugin = KubectlPlugin {
            env: self.env,
            node: self.cluster.server(),
            kubeconfig: &kubeconfig,
        };
        let (status, answer) = plugin.json(&["preflight"], "")?;
        ensure!(status == 4 && answer["gaps"] == json!([]), "{answer}");
        let steps = answer["steps"].as_array().context("preflight has steps")?;
        let steps: Vec<_> = steps.iter().filter_map(Value::as_str).collect();
        let [crd, main] = &steps[..] else {
            anyhow::bail!("the steps are {steps:#?}");
        };
        let place = format!("in HelmChart kube-system/{NAME}: replace `chart`");
        ensure!(main.starts_with(&place), "{main}");
        let archive = self.env.chart(CRD_CHART)?;
        let mut shell = self.cluster.server().command("bash");
        shell.env("KUBECONFIG", kubeconfig);
        let dir = archive.parent().context("a chart is in a directory")?;
        let step = format!("cd '{}'; {crd}", dir.display());
        sh::run(shell.args(["-o", "errexit", "-c", &step]))?;
        let patch = json!({"spec": {"chart": null, "repo": null, "version": null,
            "chartContent": content(&self.env.chart(CHART)?)?, "takeOwnership": true}});
        let patch = format!("--patch={patch}");
        self.cluster
            .kubectl(&[
                "patch",
                "helmchart",
                NAME,
                NAMESPACE,
                "--type=merge",
                &patch,
            ])
            .map(drop)
    }
}

/// Returns the HelmChart of the documentation, for the node with K3s' directories.
fn documented_chart(place: &str) -> anyhow::Result<Value> {
    // Upstream's pods run nowhere: no node has their image.
    let values = format!(
        "config:\n  fullnameOverride: multus\n  cni_conf:\n    confDir: /var/lib/rancher/k3s/agent/etc/cni/net.d\n    \
         binDir: /var/lib/rancher/k3s/data/cni/\n    kubeconfig: /var/lib/rancher/k3s/agent/etc/cni/net.d/multus.d/multus.kubeconfig\n    \
         multusAutoconfigDir: /var/lib/rancher/k3s/agent/etc/cni/net.d\n\
         labels: {{nodeSelector: {{e2e: {place}}}}}\n"
    );
    Ok(json!({
        "apiVersion": "helm.cattle.io/v1", "kind": "HelmChart",
        "metadata": {"name": NAME, "namespace": "kube-system"},
        "spec": {"chartContent": content(&published_charts::archive(OLD)?)?, "targetNamespace": "kube-system",
            "takeOwnership": true, "valuesContent": values},
    }))
}

fn content(archive: &Path) -> anyhow::Result<String> {
    Ok(STANDARD.encode(fs::read(archive)?))
}
