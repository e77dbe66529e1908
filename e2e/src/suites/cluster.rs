//! Suite `cluster`: a cluster of unlike nodes without any registry imports the archive, real Helm installs the chart with
//! its default values, and pods come and go.

mod broken;
mod certificates;
mod kubectl_plugin;
mod moving;
mod pod_requests;
mod pods;
mod rolling;

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::{
    cluster::{Cluster, MIXED, Member},
    node::file_hashes::FileHashes,
    programs::{Module, Needs},
    report::{CheckFailed, Report, say},
    sh,
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: super::cri::NEEDS.debian,
    modules: &[
        Module::Plugins,
        Module::Containerd,
        Module::DraDriver,
        Module::Helm,
        Module::Kubernetes,
    ],
};

/// Data directory of the first node.
const K3S_DATA: &str = "/var/lib/rancher/k3s";
pub(super) const NAMESPACE: &str = "--namespace=kube-system";

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Result<(), CheckFailed> {
    let cluster = report.check(
        "six nodes are Ready: k3s in four ways, rke2 and kubeadm, on containerd 1.6 and 2.x",
        || Cluster::start(env, MIXED),
    )?;
    let mut fixture = ClusterFixture { env, cluster };
    report.check("every node imports the archive", || fixture.import())?;
    let before = report.check("every file of every node has its hash", || fixture.hashes())?;
    report.check("Helm installs rke2-multus with default values", || {
        fixture.install("rke2-multus-crd", &env.chart("rke2-multus-crd")?, &[])?;
        fixture.install("rke2-multus", &env.chart("rke2-multus")?, &[])
    })?;
    report.check(
        "the daemon is ready on every node, from the imported image",
        || fixture.is_deployed("rke2-multus"),
    )?;
    fixture.pods_are_disturbed("rke2-multus", report)?;
    let stream = report.check(
        "a rolling update under a stream of pods: all come whole",
        || fixture.rolling_update("rke2-multus"),
    )?;
    say(&format!("        {stream}"));
    report.check(
        "a value that daemons cannot use stops the update, and all of them serve on",
        || fixture.broken_values("rke2-multus"),
    )?;
    report.check(
        "a distro is upgraded, moved and rolled back under its pods",
        || fixture.changes("rke2-multus"),
    )?;
    fixture.certificates("rke2-multus", report)?;
    fixture.pods_ask("rke2-multus", report)?;
    report.check(
        "helm uninstall leaves every file of every node as it was",
        || fixture.uninstall("rke2-multus", &before),
    )?;
    report.check("new pods start on the primary network alone", || {
        fixture.primary_alone()
    })?;

    report.check(
        "multus-distro stages k3s-multus, and Helm installs what lies there",
        || {
            fixture.helm_uninstall("rke2-multus-crd")?;
            fixture.install_staged()
        },
    )?;
    report.check("the daemon of k3s-multus is ready on every node", || {
        fixture.is_deployed("k3s-multus")
    })?;
    fixture.pods_come_and_go("k3s-multus", report)?;
    report.check(
        "helm uninstall of k3s-multus leaves every file as it was, too",
        || {
            fixture.unstage()?;
            fixture.uninstall("k3s-multus", &before)
        },
    )?;
    report.check(
        "new pods start on the primary network alone once more",
        || fixture.primary_alone(),
    )
}

pub(crate) struct ClusterFixture<'a> {
    pub(crate) env: &'a TestEnv,
    pub(crate) cluster: Cluster,
}

impl ClusterFixture<'_> {
    pub(crate) fn import(&self) -> anyhow::Result<()> {
        let archive = self.env.image_archive()?;
        self.each(|member| member.runtime.import(&member.node, &archive))
    }

    /// Imports the archive on one node.
    pub(super) fn import_on(&self, index: usize) -> anyhow::Result<()> {
        let member = &self.cluster.members[index];
        member
            .runtime
            .import(&member.node, &self.env.image_archive()?)
    }

    /// Removes our image from one node.
    pub(super) fn forget_on(&self, index: usize) -> anyhow::Result<()> {
        let member = &self.cluster.members[index];
        let image = self.image()?;
        sh::run(
            member
                .runtime
                .ctr(&member.node)
                .args(["images", "remove", &image]),
        )
        .map(drop)
    }

    /// Our image, as the chart names it.
    pub(super) fn image(&self) -> anyhow::Result<String> {
        let release: Value = serde_json::from_slice(&self.env.read("release.json")?)?;
        let reference = release["images"][0]["reference"].as_str();
        Ok(reference.context("release.json names no image")?.to_owned())
    }

    fn install(&self, name: &str, chart: &Path, more: &[&str]) -> anyhow::Result<()> {
        self.cluster.install(chart, name, more)
    }

    /// As a server of K3s finds them: charts and the manifest that names them.
    fn install_staged(&self) -> anyhow::Result<()> {
        let (server, data) = (self.cluster.server(), K3S_DATA);
        let program = self.env.program("multus-distro");
        sh::run(server.command(program).args([
            "stage",
            "--multus",
            "--distro=k3s",
            "--data-dir",
            data,
        ]))?;
        let manifest =
            std::fs::read_to_string(server.path(&format!("{data}/server/manifests/multus.yaml")))?;
        let mut installed = Vec::new();
        for document in manifest.split("\n---\n") {
            let value = |key: &str| {
                let line = document
                    .lines()
                    .find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(':'));
                line.map(|value| value.trim().trim_matches('"').to_owned())
            };
            let (Some(name), Some(url)) = (value("name"), value("chart")) else {
                bail!("a document of the manifest has no name or no chart: {document}");
            };
            ensure!(
                value("targetNamespace").as_deref() == Some("kube-system"),
                "{document}"
            );
            let file = url
                .split_once("/static/")
                .context("the chart is served by the distro")?
                .1;
            let chart = format!("{data}/server/static/{file}");
            ensure!(
                server.path(&chart).exists(),
                "the manifest names {chart}, which is not there"
            );
            let mut more = Vec::new();
            if value("takeOwnership").as_deref() == Some("true") {
                more.push("--take-ownership");
            }
            self.install(&name, Path::new(&chart), &more)?;
            installed.push(name);
        }
        ensure!(
            installed == ["k3s-multus-crd", "k3s-multus"],
            "installed {installed:?}"
        );
        Ok(())
    }

    /// Takes away what was staged.
    fn unstage(&self) -> anyhow::Result<()> {
        let program = self.env.program("multus-distro");
        let words = ["unstage", "--purge", "--data-dir", K3S_DATA];
        sh::run(self.cluster.server().command(program).args(words)).map(drop)
    }

    /// Ready on every node, and no image was asked of a registry.
    pub(super) fn is_deployed(&self, name: &str) -> anyhow::Result<()> {
        self.is_ready(name)?;
        let events = self.cluster.get(&["events", NAMESPACE])?;
        let events = events["items"].as_array().into_iter().flatten();
        let mut pulls = events.filter(|event| event["reason"] == "Pulling");
        match pulls.next() {
            None => Ok(()),
            Some(event) => bail!("an image was pulled: {}", event["message"]),
        }
    }

    /// Ready on every node, with all that belongs there.
    pub(crate) fn is_ready(&self, name: &str) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        let nodes = cluster.members.len();
        let path = format!("/apis/apps/v1/namespaces/kube-system/daemonsets/{name}");
        sh::until(60, "the DaemonSet is ready", || {
            let set = cluster.api.request("GET", &path, &Value::Null)?.json()?;
            let ready = &set["status"]["numberReady"];
            ensure!(
                ready.as_u64() == Some(nodes as u64),
                "{ready} of {nodes} are ready"
            );
            Ok(())
        })
        .with_context(|| self.complaints(name))?;
        self.each(|member| {
            let paths = &member.runtime.paths;
            for file in [
                format!("{}/multus-shim", paths.bin_dir),
                format!("{}/00-multus.conf", paths.conf_dir),
            ] {
                ensure!(member.node.path(&file).exists(), "there is no {file}");
            }
            Ok(())
        })
    }

    /// What the daemons last said.
    fn complaints(&self, name: &str) -> String {
        let logs = self.cluster.kubectl(&[
            "logs",
            NAMESPACE,
            &format!("--selector=app={name}"),
            "--tail=3",
            "--prefix",
        ]);
        logs.unwrap_or_else(|error| error.to_string())
    }

    pub(crate) fn helm_uninstall(&self, name: &str) -> anyhow::Result<()> {
        sh::run(self.cluster.helm().args([
            "uninstall",
            "--wait",
            "--namespace",
            "kube-system",
            name,
        ]))
        .map(drop)
    }

    /// Removes the chart; what it had put on nodes goes, what was there stays.
    fn uninstall(&self, name: &str, before: &[FileHashes]) -> anyhow::Result<()> {
        self.helm_uninstall(name)?;
        self.are_as(before)
    }

    /// Every file of every node is as it was.
    pub(super) fn are_as(&self, before: &[FileHashes]) -> anyhow::Result<()> {
        sh::until(60, "the nodes are as they were", || {
            for (member, (now, before)) in self
                .cluster
                .members
                .iter()
                .zip(self.hashes()?.iter().zip(before))
            {
                now.ensure_equal(before)
                    .with_context(|| member.node.name.clone())?;
            }
            Ok(())
        })
    }

    /// Nothing of ours is on any node, and what was there is.
    pub(super) fn is_clean(&self) -> anyhow::Result<()> {
        self.each(|member| {
            let paths = &member.runtime.paths;
            let ours = [
                format!("{}/multus-shim", paths.bin_dir),
                format!("{}/00-multus.conf", paths.conf_dir),
            ];
            sh::until(60, "the node is clean", || {
                for file in &ours {
                    ensure!(
                        !member.node.path(file).exists(),
                        "{file} is still on {}",
                        member.node.name
                    );
                }
                Ok(())
            })?;
            let left = member.node.list(&paths.conf_dir)?;
            ensure!(
                left == ["10-primary.conflist"],
                "in {} are {left:?}",
                paths.conf_dir
            );
            Ok(())
        })
    }

    /// Every file of every node, but what runtime, kubelet and other plugins write while pods come and go.
    pub(super) fn hashes(&self) -> anyhow::Result<Vec<FileHashes>> {
        let members = self.cluster.members.iter();
        members
            .map(|member| {
                let others = [
                    &member.runtime.paths.root,
                    "/var/lib/cni/networks",
                    "/var/lib/cni/results",
                    "/var/lib/kubelet",
                    "/var/log/containers",
                    "/var/log/pods",
                ];
                FileHashes::of(&member.node, &others)
            })
            .collect()
    }

    pub(super) fn each(&self, act: impl Fn(&Member) -> anyhow::Result<()>) -> anyhow::Result<()> {
        for member in &self.cluster.members {
            act(member)
                .with_context(|| format!("{} ({:?})", member.node.name, member.runtime.layout))?;
        }
        Ok(())
    }
}
