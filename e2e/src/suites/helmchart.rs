//! Suite `helmchart`: K3s' own helm-controller and its jobs install the files that `multus-distro` stages on a small cluster, and
//! uninstall them. Module `cluster::k3s_server` does what the distros do with staged files before that.

mod documented;
mod jobs;
mod rke2;
mod values;

use std::{fs, time::SystemTime};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use self::jobs::{K3S, Servers};
use super::cluster::{ClusterFixture, NAMESPACE};
use crate::{
    cluster::{
        Cluster, Member,
        k3s_server::{job_log, released},
    },
    control_plane::objects,
    node::{
        dhcp,
        file_hashes::FileHashes,
        inspect::nothing_left,
        layout::{ContainerdVersion, Layout},
    },
    programs::{Module, Needs},
    report::{CheckFailed, Report},
    sh,
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: super::cri::NEEDS.debian,
    modules: &[
        Module::Plugins,
        Module::Containerd,
        Module::Helm,
        Module::HelmController,
        Module::Kubernetes,
    ],
};

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Result<(), CheckFailed> {
    let nodes = [
        (Layout::K3s, ContainerdVersion::V2),
        (Layout::Rke2, ContainerdVersion::V1),
    ];
    let cluster = report.check("two nodes are Ready: k3s and rke2", || {
        Cluster::start(env, &nodes)
    })?;
    let fixture = ClusterFixture { env, cluster };
    let mut servers = report.check("K3s' helm-controller knows HelmCharts", || {
        fixture.import()?;
        Servers::start(&fixture)
    })?;
    let before = report.check("the files of both nodes are hashed", || fixture.hashes())?;
    let jobs = fixture.k3s(&mut servers, report)?;
    fixture.k3s_changes(&mut servers, jobs, report)?;
    fixture.k3s_uninstall(&mut servers, &before, report)?;
    fixture.documented(&before, report)?;
    fixture.rke2(&mut servers, report)?;
    fixture.values(report)?;
    fixture.rke2_uninstall(&mut servers, &before, report)
}

impl ClusterFixture<'_> {
    fn k3s(&self, servers: &mut Servers, report: &mut Report) -> Result<u64, CheckFailed> {
        report.check("multus-distro stages on two servers of K3s", || {
            for member in &self.cluster.members {
                let written = self.stage(member, "k3s", K3S, "")?;
                ensure!(written.lines().count() == 3, "it wrote {written}");
            }
            ensure!(servers.scan(self, K3S, &[])? == ["applied multus.yaml"; 2]);
            Ok(())
        })?;
        let revision = report.check("jobs install the charts from the server's files", || {
            released(&self.cluster, "k3s-multus-crd", 0)?;
            let revision = released(&self.cluster, "k3s-multus", 0)?;
            self.wait_until_deployed("k3s-multus")?;
            self.cluster.apply(&[objects::storage()])?;
            Ok(revision)
        })?;
        report.check("doctor finds nothing wrong on either node", || {
            for member in &self.cluster.members {
                let output = sh::run(self.distro(member).args(["doctor", "--distro=k3s"]))?;
                let lines = output.lines().count();
                ensure!(
                    output.contains("3 of 3 files") && output.contains("the daemon answers"),
                    "it prints {output}"
                );
                ensure!(
                    lines <= 24,
                    "{lines} lines are more than a screen: {output}"
                );
            }
            Ok(())
        })?;
        report.check("pods get their networks on both nodes", || {
            self.pods("first")
        })?;
        report.check("helm test passes, and leaves nothing", || {
            self.test_release("k3s-multus")
        })?;
        report.check(
            "a second server with the same files changes nothing",
            || {
                let generation = || {
                    let chart = self.cluster.get(&["helmchart", "k3s-multus", NAMESPACE])?;
                    Ok::<_, anyhow::Error>(chart["metadata"]["generation"].clone())
                };
                let before = generation()?;
                // After a restart both servers apply all their manifests.
                servers.restart();
                ensure!(servers.scan(self, K3S, &[])? == ["applied multus.yaml"; 2]);
                let now = generation()?;
                ensure!(now == before, "generation {before} became {now}");
                let now = released(&self.cluster, "k3s-multus", 0)?;
                ensure!(now == revision, "revision {revision} became {now}");
                Ok(())
            },
        )?;
        Ok(revision)
    }

    /// Runs `helm test` of a release whose daemons are ready.
    fn test_release(&self, name: &str) -> anyhow::Result<()> {
        let mut helm = self.cluster.helm();
        let text = sh::run(helm.args(["test", name, NAMESPACE, "--timeout=120s"]))?;
        let suite = format!("TEST SUITE:     {name}-test");
        ensure!(
            text.contains(&suite) && !text.contains("Failed"),
            "it prints {text}"
        );
        let selector = "--selector=app.kubernetes.io/component=test";
        let kinds = "pods,serviceaccounts,roles,rolebindings";
        let left = self
            .cluster
            .kubectl(&["get", kinds, NAMESPACE, selector, "--output=name"])?;
        ensure!(left.trim().is_empty(), "{left}");
        Ok(())
    }

    fn k3s_changes(
        &self,
        servers: &mut Servers,
        revision: u64,
        report: &mut Report,
    ) -> Result<(), CheckFailed> {
        let manifest = format!("{K3S}/server/manifests/multus.yaml");
        let first = &self.cluster.members[0];
        report.check(
            "staging again touches no file, so the distro applies none",
            || {
                let time = || modified(first, &manifest);
                let before = time()?;
                let written = self.stage(first, "k3s", K3S, "")?;
                ensure!(written.is_empty(), "it wrote {written}");
                ensure!(time()? == before, "the modification time has changed");
                ensure!(servers.scan(self, K3S, &[])?.is_empty());
                Ok(())
            },
        )?;
        report.check(
            "a .skip file stops the distro, with a warning of ours",
            || {
                let skip = format!("{manifest}.skip");
                first.node.write(&skip, "")?;
                let mut doctor = self.distro(first);
                let output = sh::output(doctor.args(["doctor", "--distro=k3s"]), b"")?;
                let output = String::from_utf8_lossy(&output.stderr).into_owned();
                ensure!(
                    output.contains("multus.yaml.skip keeps"),
                    "doctor: {output}"
                );
                let output =
                    sh::output(&mut self.staging(first, "k3s", K3S, "other.invalid"), b"")?;
                let output = String::from_utf8_lossy(&output.stderr).into_owned();
                ensure!(output.contains("multus.yaml.skip keeps"), "stage: {output}");
                ensure!(servers.scan(self, K3S, &[])?.is_empty());
                self.stage(first, "k3s", K3S, "")?;
                fs::remove_file(first.node.path(&skip))?;
                // The modification time has changed, the content has not.
                ensure!(servers.scan(self, K3S, &[])?.is_empty());
                Ok(())
            },
        )?;
        report.check("a HelmChartConfig changes values on every node", || {
            let values =
                "config: {daemon_conf: {logLevel: debug}}\nmanifests: {dhcpDaemonSet: true}\n";
            self.cluster.apply(&[config("k3s-multus", values)])?;
            released(&self.cluster, "k3s-multus", revision)?;
            let file = self.daemon_file("k3s-multus")?;
            ensure!(file["logLevel"] == "debug", "the daemon's file is {file}");
            self.wait_until_ready("k3s-multus")?;
            self.pods("configured")
        })?;
        report.check(
            "with dhcp on, pods of both nodes get addresses from DHCP servers",
            || self.leased(),
        )
    }

    /// Checks a pod with an address from a DHCP server on every node.
    fn leased(&self) -> anyhow::Result<()> {
        let members = &self.cluster.members;
        let mut servers = Vec::new();
        for member in members {
            servers.push(dhcp::start_server(&member.node)?);
        }
        self.each(|member| dhcp::wait_for_service(&member.node))?;
        let names = self.names("leased");
        let mut objects = vec![objects::leased()];
        for (member, name) in members.iter().zip(&names) {
            objects.push(objects::pod(name, &member.node.name, Some("leased")));
        }
        self.cluster.apply(&objects)?;
        for name in &names {
            let inside = self.cluster.ensure_interfaces(name, &["eth0", "net1"])?;
            let address = inside["net1"].first().context("net1 has no address")?;
            ensure!(address.starts_with(dhcp::PREFIX), "{name} has {address}");
        }
        self.cluster.delete(&names)?;
        self.each(|member| nothing_left(&member.node))?;
        for (member, server) in members.iter().zip(servers) {
            dhcp::end_server(&member.node, &server)?;
        }
        Ok(())
    }

    fn k3s_uninstall(
        &self,
        servers: &mut Servers,
        before: &[FileHashes],
        report: &mut Report,
    ) -> Result<(), CheckFailed> {
        report.check(
            "unstage on both servers: jobs uninstall the charts, and the nodes are clean",
            || {
                for member in &self.cluster.members {
                    let mut command = self.distro(member);
                    let output = sh::output(command.args(["unstage", "--data-dir", K3S]), b"")?;
                    let output = String::from_utf8_lossy(&output.stderr).into_owned();
                    ensure!(output.contains("plan: empty "), "it prints {output}");
                }
                // Both servers have the same manifest, and the cluster has one Addon for it.
                ensure!(servers.scan(self, K3S, &[])? == ["applied multus.yaml"]);
                self.wait_until_uninstalled("k3s")?;
                self.each(|member| dhcp::wait_for_no_service(&member.node))
            },
        )?;
        report.check("network definitions stay", || self.definitions_stay())?;
        report.check("new pods start with the default network alone", || {
            self.default_network_alone()
        })?;
        report.check(
            "unstage --purge leaves the files of both nodes as they were",
            || {
                for member in &self.cluster.members {
                    sh::run(
                        self.distro(member)
                            .args(["unstage", "--purge", "--data-dir", K3S]),
                    )?;
                    let left = member.node.list(&format!("{K3S}/server/manifests"))?;
                    let record = member
                        .node
                        .path(&format!("{K3S}/server/.multus-distro.json"));
                    ensure!(left.is_empty() && !record.exists(), "there are {left:?}");
                }
                self.ensure_files_unchanged(before)
            },
        )
    }

    /// Returns a command of multus-distro on a node.
    fn distro(&self, member: &Member) -> std::process::Command {
        member.node.command(self.env.program("multus-distro"))
    }

    fn staging(
        &self,
        member: &Member,
        distro: &str,
        dir: &str,
        registry: &str,
    ) -> std::process::Command {
        let mut command = self.distro(member);
        command.args(["stage", "--multus", "--distro", distro, "--data-dir", dir]);
        command.args(["--system-default-registry", registry]);
        command
    }

    /// Stages on a node; returns the list of written files.
    fn stage(
        &self,
        member: &Member,
        distro: &str,
        dir: &str,
        registry: &str,
    ) -> anyhow::Result<String> {
        sh::run(&mut self.staging(member, distro, dir, registry))
    }

    fn daemon_file(&self, name: &str) -> anyhow::Result<Value> {
        let map = self
            .cluster
            .get(&["configmap", &format!("{name}-config"), NAMESPACE])?;
        let text = map["data"]["daemon-config.json"].as_str();
        serde_json::from_str(text.context("there is no daemon-config.json")?)
            .context("daemon-config.json")
    }

    /// Starts and deletes a pod with a second network on every node.
    fn pods(&self, kind: &str) -> anyhow::Result<()> {
        let names = self.names(kind);
        let members = self.cluster.members.iter().zip(&names);
        let pods =
            members.map(|(member, name)| objects::pod(name, &member.node.name, Some("storage")));
        self.cluster.apply(&pods.collect::<Vec<_>>())?;
        for name in &names {
            self.cluster.ensure_interfaces(name, &["eth0", "net1"])?;
        }
        self.cluster.delete(&names)?;
        self.each(|member| nothing_left(&member.node))
    }

    /// Waits until there is no release, no HelmChart, and no file of ours on any node.
    fn wait_until_uninstalled(&self, distro: &str) -> anyhow::Result<()> {
        for name in [format!("{distro}-multus"), format!("{distro}-multus-crd")] {
            sh::until(90, &format!("{name} is uninstalled"), || {
                let chart = ["helmchart", &name, NAMESPACE, "--ignore-not-found"];
                let left = self.cluster.kubectl(&[&["get"], &chart[..]].concat())?;
                ensure!(left.is_empty(), "{left}");
                let selector = format!("--selector=owner=helm,name={name}");
                let left = self.cluster.get(&["secrets", NAMESPACE, &selector])?;
                ensure!(
                    left["items"].as_array().is_some_and(Vec::is_empty),
                    "its release is still there"
                );
                Ok(())
            })
            .with_context(|| job_log(&self.cluster, &name))?;
        }
        self.ensure_removed()
    }

    fn definitions_stay(&self) -> anyhow::Result<()> {
        let kind = "network-attachment-definitions.k8s.cni.cncf.io";
        self.cluster.kubectl(&["get", kind, "storage"])?;
        match self.cluster.kubectl(&["get", kind, "none"]) {
            Err(_) => Ok(()),
            Ok(found) => bail!("there is a definition that was never created: {found}"),
        }
    }
}

/// Returns a HelmChartConfig with these values.
fn config(chart: &str, values: &str) -> Value {
    json!({
        "apiVersion": "helm.cattle.io/v1", "kind": "HelmChartConfig",
        "metadata": {"name": chart, "namespace": "kube-system"},
        "spec": {"valuesContent": values},
    })
}

fn modified(member: &Member, path: &str) -> anyhow::Result<SystemTime> {
    Ok(fs::metadata(member.node.path(path))?.modified()?)
}
