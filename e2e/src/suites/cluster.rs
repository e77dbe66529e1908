//! Suite `cluster`: different kinds of nodes without a registry import the archive, real Helm installs the chart with its default values,
//! and pods start and end.

mod broken;
mod certificates;
mod dhcp;
mod kubectl_plugin;
mod labels;
mod moving;
mod plugins;
mod pod_requests;
mod pods;
mod standalone;
mod stream;

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::upgrade::published_release::{CRD_NAME, NAME};
use crate::{
    cluster::{Cluster, MIXED, Member, RKE2_AND_K3S},
    control_plane::Components,
    node::{file_hashes::FileHashes, runtime::NodePlugins},
    pages::Reader,
    programs::{Module, Needs},
    report::{CheckFailed, Checked, Report, say},
    sh::{self, words},
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

/// The namespace of every Multus here.
pub(super) const NAMESPACE_NAME: &str = "kube-system";
pub(super) const NAMESPACE: &str = "--namespace=kube-system";
/// The page with the first network on every kind of cluster.
pub(super) const FIRST_NETWORK: &str = "docs/first-network.md";
/// The shell of the page's pod ignores SIGTERM.
pub(super) const PAGE_VALUES: &[(&str, &str)] = &[(
    "kubectl delete pod cart",
    "kubectl delete pod cart --grace-period=1 --timeout=60s",
)];

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Checked {
    let cluster = report.check(
        "six nodes are Ready: k3s in four ways, rke2 and kubeadm, on containerd 1.6 and 2.x",
        || Cluster::with(env, MIXED, Components::All, NodePlugins::Release),
    )?;
    let reader = report.check("the pages for people are read", || {
        Ok(Reader::new(env, "cluster")?.with_values(PAGE_VALUES))
    })?;
    let mut fixture = ClusterFixture { env, cluster };
    report.check("every node imports the archive", || fixture.import())?;
    report.check("every plugin of every node is that of the release", || {
        fixture.plugins_are_of_the_release()
    })?;
    let before = report.check("the files of every node are hashed", || fixture.hashes())?;
    report.check(
        "docs/first-network.md: Helm installs rke2-multus with default values",
        || fixture.follow_install(&reader, "rke2-install"),
    )?;
    report.check(
        "the daemon is ready on every node, from the imported image",
        || fixture.wait_until_deployed("rke2-multus"),
    )?;
    report.check(
        "docs/first-network.md: a pod has a second interface",
        || fixture.follow(&reader, FIRST_NETWORK, "pod"),
    )?;
    fixture.pods_while_daemons_restart("rke2-multus", report)?;
    let stream = report.check(
        "a rolling update under a stream of pods: every pod gets all its networks",
        || fixture.rolling_update("rke2-multus"),
    )?;
    say(&format!("        {stream}"));
    report.check(
        "an invalid value stops the rolling update, and the former daemons keep serving",
        || fixture.invalid_values("rke2-multus"),
    )?;
    report.check(
        "a distro is upgraded, moved and rolled back under running pods",
        || fixture.distro_changes("rke2-multus"),
    )?;
    fixture.certificates("rke2-multus", report)?;
    fixture.labels("rke2-multus", report)?;
    fixture.pod_requests("rke2-multus", report)?;
    fixture.dhcp("rke2-multus", report)?;
    report.check(
        "docs/first-network.md: RKE2's uninstall leaves the files of every node as they were",
        || {
            fixture.follow(&reader, FIRST_NETWORK, "rke2-uninstall")?;
            fixture.ensure_files_unchanged(&before)
        },
    )?;
    report.check("new pods start with the default network alone", || {
        fixture.default_network_alone()
    })?;

    report.check("docs/first-network.md: Helm installs k3s-multus", || {
        fixture.follow_install(&reader, "k3s-install")
    })?;
    report.check("the daemon of k3s-multus is ready on every node", || {
        fixture.wait_until_deployed("k3s-multus")
    })?;
    report.check(
        "docs/first-network.md: a pod has a second interface there, too",
        || fixture.follow(&reader, FIRST_NETWORK, "pod"),
    )?;
    fixture.pods_start_and_end("k3s-multus", report)?;
    report.check(
        "docs/first-network.md: K3s' uninstall leaves the files as they were, too",
        || {
            fixture.follow(&reader, FIRST_NETWORK, "k3s-uninstall")?;
            fixture.ensure_files_unchanged(&before)
        },
    )?;
    report.check(
        "new pods start with the default network alone again",
        || fixture.default_network_alone(),
    )?;
    fixture.standalone(&before, report)?;
    fixture.manifest(&reader, &before, report)
}

pub(crate) struct ClusterFixture<'a> {
    pub(crate) env: &'a TestEnv,
    pub(crate) cluster: Cluster,
}

impl<'a> ClusterFixture<'a> {
    /// Starts two nodes whose only CNI plugins are those of the release, and installs it by Helm with a value. `prepare` runs before.
    pub(super) fn installed(
        env: &'a TestEnv,
        value: &str,
        prepare: impl FnOnce(&Cluster) -> anyhow::Result<()>,
        report: &mut Report,
    ) -> Result<Self, CheckFailed> {
        let cluster = report.check(
            "two nodes whose only CNI plugins are those of the release are Ready",
            || Cluster::with(env, RKE2_AND_K3S, Components::All, NodePlugins::Release),
        )?;
        let fixture = Self { env, cluster };
        report.check(&format!("Helm installs rke2-multus with {value}"), || {
            let cluster = &fixture.cluster;
            fixture.import()?;
            prepare(cluster)?;
            cluster.install(&env.chart(CRD_NAME)?, CRD_NAME, &[])?;
            cluster.install(&env.chart(NAME)?, NAME, &["--set", value])?;
            fixture.wait_until_ready(NAME)
        })?;
        Ok(fixture)
    }
}

impl ClusterFixture<'_> {
    /// Follows a step of a page, on the node with the control plane.
    pub(super) fn follow(&self, reader: &Reader, page: &str, step: &str) -> anyhow::Result<()> {
        reader.follow(page, step, || {
            let mut shell = self.cluster.server().command("bash");
            shell
                .env("KUBECONFIG", self.cluster.control.admin())
                .env("HOME", &self.cluster.server().dir);
            shell
        })
    }

    /// Follows the page's installation on one kind of cluster, and its wait for the daemons.
    fn follow_install(&self, reader: &Reader, step: &str) -> anyhow::Result<()> {
        self.follow(reader, FIRST_NETWORK, step)?;
        self.follow(reader, FIRST_NETWORK, "ready")
    }

    /// The way of people without Helm: one manifest.
    fn manifest(&self, reader: &Reader, before: &[FileHashes], report: &mut Report) -> Checked {
        report.check(
            "docs/first-network.md: kubectl applies the manifest",
            || {
                self.follow_install(reader, "kubeadm-install")?;
                self.wait_until_deployed("rke2-multus")
            },
        )?;
        report.check(
            "docs/first-network.md: a pod has a second interface",
            || self.follow(reader, FIRST_NETWORK, "pod"),
        )?;
        report.check(
            "docs/first-network.md: kubeadm's uninstall leaves the files as they were",
            || {
                self.follow(reader, FIRST_NETWORK, "kubeadm-uninstall")?;
                self.ensure_files_unchanged(before)?;
                // Definitions stay with the CRD.
                let definition = "network-attachment-definition/first";
                self.cluster.kubectl(&["get", definition]).map(drop)
            },
        )?;
        report.check("every step of the pages was followed", || {
            reader.ensure_all_followed()
        })
    }

    pub(crate) fn import(&self) -> anyhow::Result<()> {
        let archive = self.env.image_archive();
        self.each(|member| member.runtime.import(&member.node, &archive))
    }

    /// Imports the archive on one node.
    pub(super) fn import_on(&self, index: usize) -> anyhow::Result<()> {
        let member = &self.cluster.members[index];
        member
            .runtime
            .import(&member.node, &self.env.image_archive())
    }

    /// Removes our image from one node.
    pub(super) fn remove_image_on(&self, index: usize) -> anyhow::Result<()> {
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

    /// Returns the reference of our image, as in the chart.
    pub(super) fn image(&self) -> anyhow::Result<String> {
        let release: Value = serde_json::from_slice(&self.env.read("release.json")?)?;
        let reference = release["images"][0]["reference"].as_str();
        Ok(reference.context("release.json names no image")?.to_owned())
    }

    fn install(&self, name: &str, chart: &Path, more: &[&str]) -> anyhow::Result<()> {
        self.cluster.install(chart, name, more)
    }

    /// Waits until the daemon is ready on every node; fails when a kubelet pulled an image.
    pub(super) fn wait_until_deployed(&self, name: &str) -> anyhow::Result<()> {
        self.wait_until_ready(name)?;
        self.ensure_not_pulled()
    }

    /// Fails when a kubelet pulled an image.
    pub(super) fn ensure_not_pulled(&self) -> anyhow::Result<()> {
        let events = self.cluster.get(&["events", NAMESPACE])?;
        let events = events["items"].as_array().into_iter().flatten();
        let mut pulls = events.filter(|event| event["reason"] == "Pulling");
        match pulls.next() {
            None => Ok(()),
            Some(event) => bail!("an image was pulled: {}", event["message"]),
        }
    }

    /// Waits until the daemon is ready on every node; fails unless shim and configuration are installed.
    pub(crate) fn wait_until_ready(&self, name: &str) -> anyhow::Result<()> {
        self.wait_until_each_is_ready(name)?;
        self.each(|member| {
            for file in member.runtime.paths.multus_files() {
                ensure!(member.node.path(&file).exists(), "there is no {file}");
            }
            Ok(())
        })
    }

    /// Waits until the daemon is ready on every node.
    pub(super) fn wait_until_each_is_ready(&self, name: &str) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        let nodes = cluster.members.len() as u64;
        let path = format!("/apis/apps/v1/namespaces/kube-system/daemonsets/{name}");
        sh::until(60, "the DaemonSet is ready", || {
            let set = cluster.api.request("GET", &path, &Value::Null)?.json()?;
            let ready = &set["status"]["numberReady"];
            ensure!(
                ready.as_u64() == Some(nodes),
                "{ready} of {nodes} are ready"
            );
            Ok(())
        })
        .with_context(|| self.daemon_logs(name))
    }

    /// Returns the last lines of the daemons' logs.
    fn daemon_logs(&self, name: &str) -> String {
        let logs = self.cluster.kubectl(&words!(
            "logs {NAMESPACE} --selector=app={name} --tail=3 --prefix"
        ));
        logs.unwrap_or_else(|error| error.to_string())
    }

    pub(crate) fn helm_uninstall(&self, name: &str) -> anyhow::Result<()> {
        sh::run(
            self.cluster
                .helm()
                .args(words!("uninstall --wait --namespace kube-system {name}")),
        )
        .map(drop)
    }

    /// Uninstalls the chart; fails unless the files of all nodes become what they were.
    fn uninstall(&self, name: &str, before: &[FileHashes]) -> anyhow::Result<()> {
        self.helm_uninstall(name)?;
        self.ensure_files_unchanged(before)
    }

    /// Waits until the files of all nodes are what they were.
    pub(super) fn ensure_files_unchanged(&self, before: &[FileHashes]) -> anyhow::Result<()> {
        sh::until(60, "the files of the nodes are as before", || {
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

    /// Waits until no file of ours is on any node; fails unless the default network's configuration is there.
    pub(super) fn ensure_removed(&self) -> anyhow::Result<()> {
        self.wait_until_removed()?;
        self.each(|member| {
            let conf_dir = &member.runtime.paths.conf_dir;
            let left = member.node.list(conf_dir)?;
            ensure!(
                left == ["10-primary.conflist"],
                "in {conf_dir} are {left:?}"
            );
            Ok(())
        })
    }

    /// Waits until no file of ours is on any node.
    pub(super) fn wait_until_removed(&self) -> anyhow::Result<()> {
        self.each(|member| {
            sh::until(60, "our files are removed from the node", || {
                for file in member.runtime.paths.multus_files() {
                    ensure!(!member.node.path(&file).exists(), "{file} is still there");
                }
                Ok(())
            })
        })
    }

    /// Hashes the files of every node, except those that runtime, kubelet and plugins write while pods start and end.
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
