//! Suite `helmchart`: what `multus-distro` stages is made into releases by K3s' own helm-controller and the jobs that it starts,
//! on a small cluster, and taken away again. What the distros do with staged files before that is in `deploy`.

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
    let before = report.check("every file of both nodes has its hash", || fixture.hashes())?;
    let jobs = fixture.k3s(&mut servers, report)?;
    fixture.k3s_changes(&mut servers, jobs, report)?;
    fixture.k3s_goes(&mut servers, &before, report)?;
    fixture.rke2(&mut servers, report)?;
    fixture.values(report)?;
    fixture.rke2_goes(&mut servers, &before, report)
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
            self.is_deployed("k3s-multus")?;
            self.cluster.apply(&[objects::storage()])?;
            Ok(revision)
        })?;
        report.check("doctor finds nothing wrong on either node", || {
            for member in &self.cluster.members {
                let told = sh::run(self.distro(member).args(["doctor", "--distro=k3s"]))?;
                let lines = told.lines().count();
                ensure!(
                    told.contains("3 of 3 files") && told.contains("the daemon answers"),
                    "it says {told}"
                );
                ensure!(lines <= 24, "no screen has {lines} lines: {told}");
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
                // Both start again, and apply what they have.
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

    /// `helm test` of a release whose daemons are ready.
    fn test_release(&self, name: &str) -> anyhow::Result<()> {
        let mut helm = self.cluster.helm();
        let text = sh::run(helm.args(["test", name, NAMESPACE, "--timeout=120s"]))?;
        let suite = format!("TEST SUITE:     {name}-test");
        ensure!(
            text.contains(&suite) && !text.contains("Failed"),
            "it says {text}"
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
            "staged again, no file is touched, and the distro looks at none",
            || {
                let time = || modified(first, &manifest);
                let before = time()?;
                let written = self.stage(first, "k3s", K3S, "")?;
                ensure!(written.is_empty(), "it wrote {written}");
                ensure!(time()? == before, "the time of change is another one");
                ensure!(servers.scan(self, K3S, &[])?.is_empty());
                Ok(())
            },
        )?;
        report.check("a .skip keeps the distro from reading, and is told", || {
            let skip = format!("{manifest}.skip");
            first.node.write(&skip, "")?;
            let mut doctor = self.distro(first);
            let told = sh::output(doctor.args(["doctor", "--distro=k3s"]), b"")?;
            let told = String::from_utf8_lossy(&told.stderr).into_owned();
            ensure!(told.contains("multus.yaml.skip keeps"), "doctor: {told}");
            let output = sh::output(&mut self.staging(first, "k3s", K3S, "other.invalid"), b"")?;
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(told.contains("multus.yaml.skip keeps"), "it said {told}");
            ensure!(servers.scan(self, K3S, &[])?.is_empty());
            self.stage(first, "k3s", K3S, "")?;
            fs::remove_file(first.node.path(&skip))?;
            // Another time of change, the same content.
            ensure!(servers.scan(self, K3S, &[])?.is_empty());
            Ok(())
        })?;
        report.check("a HelmChartConfig changes values on every node", || {
            let values =
                "config: {daemon_conf: {logLevel: debug}}\nmanifests: {dhcpDaemonSet: true}\n";
            self.cluster.apply(&[config("k3s-multus", values)])?;
            released(&self.cluster, "k3s-multus", revision)?;
            let file = self.daemon_file("k3s-multus")?;
            ensure!(file["logLevel"] == "debug", "the daemon's file is {file}");
            self.is_ready("k3s-multus")?;
            self.pods("configured")
        })?;
        report.check(
            "its dhcp: on both nodes pods have addresses from servers",
            || self.leased(),
        )
    }

    /// Pods of a network whose addresses come from a server, on every node.
    fn leased(&self) -> anyhow::Result<()> {
        let members = &self.cluster.members;
        let mut others = Vec::new();
        for member in members {
            let plugin = dhcp::install_plugin(&member.node, &member.runtime.paths.bin_dir)?;
            others.push((plugin, dhcp::start_server(&member.node)?));
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
        for (member, (plugin, server)) in members.iter().zip(others) {
            dhcp::end_server(&member.node, &server)?;
            if let Some(plugin) = plugin {
                fs::remove_file(plugin)?;
            }
        }
        Ok(())
    }

    fn k3s_goes(
        &self,
        servers: &mut Servers,
        before: &[FileHashes],
        report: &mut Report,
    ) -> Result<(), CheckFailed> {
        report.check(
            "unstage on both servers: jobs uninstall, nodes are clean",
            || {
                for member in &self.cluster.members {
                    let mut command = self.distro(member);
                    let told = sh::output(command.args(["unstage", "--data-dir", K3S]), b"")?;
                    let told = String::from_utf8_lossy(&told.stderr).into_owned();
                    ensure!(told.contains("plan: empty "), "it said {told}");
                }
                // Both have the same words, and the Addon is one.
                ensure!(servers.scan(self, K3S, &[])? == ["applied multus.yaml"]);
                self.is_gone("k3s")?;
                self.each(|member| dhcp::wait_for_no_service(&member.node))
            },
        )?;
        report.check("definitions of networks stay", || self.definitions_stay())?;
        report.check("new pods start on the primary network alone", || {
            self.primary_alone()
        })?;
        report.check(
            "unstage --purge: every file of both nodes is as it was",
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
                self.are_as(before)
            },
        )
    }

    /// Our program on a node.
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

    /// Stages, and gives what was written.
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

    /// A pod with a second network comes and goes on every node.
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

    /// No release, no HelmChart, and nothing of ours on any node.
    fn is_gone(&self, distro: &str) -> anyhow::Result<()> {
        for name in [format!("{distro}-multus"), format!("{distro}-multus-crd")] {
            sh::until(90, &format!("{name} goes"), || {
                let chart = ["helmchart", &name, NAMESPACE, "--ignore-not-found"];
                let left = self.cluster.kubectl(&[&["get"], &chart[..]].concat())?;
                ensure!(left.is_empty(), "{left}");
                let selector = format!("--selector=owner=helm,name={name}");
                let left = self.cluster.get(&["secrets", NAMESPACE, &selector])?;
                ensure!(
                    left["items"].as_array().is_some_and(Vec::is_empty),
                    "its release"
                );
                Ok(())
            })
            .with_context(|| job_log(&self.cluster, &name))?;
        }
        self.is_clean()
    }

    fn definitions_stay(&self) -> anyhow::Result<()> {
        let kind = "network-attachment-definitions.k8s.cni.cncf.io";
        self.cluster.kubectl(&["get", kind, "storage"])?;
        match self.cluster.kubectl(&["get", kind, "none"]) {
            Err(_) => Ok(()),
            Ok(found) => bail!("a definition that nobody made is there: {found}"),
        }
    }
}

/// A HelmChartConfig with these values.
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
