//! The way with a network: Helm installs the charts from the publisher's registry, and the nodes pull the image from there.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Value, json};

use super::{
    CHART, ClusterFixture, ensure_image,
    releases::{Releases, SignedRelease},
};
use crate::{
    checkout,
    node::{Node, network::address},
    registry::{self, PASSWORD, Registry, USER},
    report::{Checked, Report},
    sh,
};

/// The number of the machine with the registry.
const MACHINE: u8 = 8;
/// The path of everything in the registry.
const PATH: &str = "team";
/// The Secret with the login.
const SECRET: &str = "publisher";

pub(super) struct RegistryInstall<'a> {
    fixture: &'a ClusterFixture<'a>,
    releases: &'a Releases,
    machine: Node,
    registry: Registry,
    /// Helm's file with logins.
    logins: PathBuf,
}

impl<'a> RegistryInstall<'a> {
    /// Starts the registry, publishes both releases, and gives the nodes the registry's address and the cluster its login.
    pub(super) fn publish(
        fixture: &'a ClusterFixture<'a>,
        releases: &'a Releases,
    ) -> anyhow::Result<Self> {
        let machine = fixture.cluster.machine(fixture.env, MACHINE)?;
        let registry = Registry::start(&machine, &format!("{}:5000", address(MACHINE)))?;
        let install = Self {
            fixture,
            releases,
            registry,
            logins: machine.dir.join("helm-logins.json"),
            machine,
        };
        let mut refused = install.publication(&releases.first, &releases.other_key)?;
        let refusal = sh::output(&mut refused, b"")?;
        let stderr = String::from_utf8_lossy(&refusal.stderr);
        ensure!(
            !refusal.status.success() && stderr.contains("it is not by this key"),
            "{stderr}"
        );
        let uploads = install.registry.logged_requests(&["PUT /v2/"])?;
        ensure!(uploads == 0, "{uploads} uploads reached the registry");
        for release in [&releases.first, &releases.next] {
            let mut publish = install.publication(release, &releases.key)?;
            let published: Value = serde_json::from_str(&sh::run(&mut publish)?)?;
            ensure!(published["version"] == release.version, "{published}");
        }
        install.log_in()?;
        Ok(install)
    }

    fn publication(&self, release: &SignedRelease, key: &PathBuf) -> anyhow::Result<Command> {
        let host = &self.registry.host;
        let mut command = self.machine.command(checkout::xtask()?);
        command
            .args(["release", "publish", "--allow-dirty", "--json", "--dist"])
            .arg(&release.dist)
            .args(["--registry", &format!("{host}/{PATH}"), "--plain-http"])
            .arg(format!("--user={host}={USER}"))
            .arg("--key")
            .arg(key)
            .env("DOCKER_CONFIG", self.machine.dir.join("no-logins"))
            .env("MULTUS_REGISTRY_PASSWORD", PASSWORD);
        self.releases.checkout.of(&mut command);
        Ok(command)
    }

    /// Logs Helm in, makes the Secret for the kubelets, and tells the nodes that the registry speaks plain HTTP.
    fn log_in(&self) -> anyhow::Result<()> {
        let host = &self.registry.host;
        let mut helm = self.fixture.cluster.helm();
        helm.args(["registry", "login", host, "--plain-http"])
            .args(["--username", USER, "--password-stdin"])
            .arg("--registry-config")
            .arg(&self.logins);
        sh::feed(&mut helm, PASSWORD.as_bytes())?;
        let logins = json!({"auths": {host: {"auth": registry::login()}}}).to_string();
        self.fixture.cluster.apply(&[json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": "kube-system"},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": BASE64.encode(logins)},
        })])?;
        self.fixture.each(|member| {
            let path = format!("{}/{host}/hosts.toml", member.runtime.paths.registries());
            member.node.write(
                &path,
                format!("server = \"http://{host}\"\n[host.\"http://{host}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"),
            )
        })
    }

    pub(super) fn run(&self, report: &mut Report) -> Checked {
        let (fixture, Releases { first, next, .. }) = (self.fixture, self.releases);
        report.check(
            "Helm verifies the charts in the registry and installs them, and each node pulls the image from there",
            || {
                self.helm("install", first)?;
                self.ensure_deployed(first)
            },
        )?;
        let old = report.check("a pod on each node has two interfaces", || {
            fixture.start_pods("first")
        })?;
        report.check(
            "helm upgrade to the successor: the nodes pull its image, and running pods keep their networks",
            || {
                self.helm("upgrade", next)?;
                self.ensure_deployed(next)?;
                fixture.ensure_run_on(&old)
            },
        )?;
        report.check(
            "new pods have two interfaces, and old and new ones leave nothing",
            || {
                let new = fixture.start_pods("next")?;
                fixture.delete_all(&[&old, &new])
            },
        )
    }

    /// Installs or upgrades both charts from the registry, verified with the publisher's key.
    fn helm(&self, verb: &str, release: &SignedRelease) -> anyhow::Result<()> {
        let host = &self.registry.host;
        for name in [format!("{CHART}-crd"), CHART.to_owned()] {
            let mut helm = self.fixture.cluster.helm();
            helm.args([verb, "--namespace", "kube-system", &name])
                .arg(format!("oci://{host}/{PATH}/charts/{name}"))
                .args(["--version", &release.version, "--plain-http", "--verify"])
                .arg("--keyring")
                .arg(release.keyring())
                .arg("--registry-config")
                .arg(&self.logins);
            if name == CHART {
                helm.arg(format!("--set=global.systemDefaultRegistry={host}/{PATH}"))
                    .arg(format!("--set=imagePullSecrets[0].name={SECRET}"));
            }
            sh::run(&mut helm).with_context(|| name.clone())?;
        }
        Ok(())
    }

    /// Waits until every daemon is of the release; fails unless each node has its image from the registry.
    fn ensure_deployed(&self, release: &SignedRelease) -> anyhow::Result<()> {
        let path = release.path_of_image();
        let image = format!("{}/{PATH}/{path}", self.registry.host);
        self.fixture.wait_until_updated(&image)?;
        let (repository, tag) = path.rsplit_once(':').context("the image has a tag")?;
        let manifest = format!("/v2/{PATH}/{repository}/manifests/{tag}");
        self.fixture.each(|member| {
            let words = [&*member.node.address(), "containerd/", &manifest];
            let asked = self.registry.logged_requests(&words)?;
            ensure!(asked > 0, "the node did not ask the registry for {tag}");
            ensure_image(member, &image, &release.digest)
        })
    }

    /// Ends the registry, and removes all images of the release from the nodes.
    pub(super) fn end(&self) -> anyhow::Result<()> {
        self.registry.end(&self.machine)?;
        self.fixture.each(|member| {
            let ctr = |args: &[&str]| {
                let mut ctr = member.runtime.ctr(&member.node);
                sh::run(ctr.arg("images").args(args))
            };
            let list = ctr(&["list"])?;
            let rows: Vec<Vec<&str>> = list
                .lines()
                .map(|line| line.split_whitespace().collect())
                .collect();
            let ours = rows.iter().filter(|row| row[0].contains("multusrs/"));
            let digests: Vec<&str> = ours.filter_map(|row| row.get(2).copied()).collect();
            ensure!(!digests.is_empty(), "the node has no image of ours: {list}");
            for row in &rows {
                if row.get(2).is_some_and(|digest| digests.contains(digest)) {
                    ctr(&["remove", "--sync", row[0]])?;
                }
            }
            let left = ctr(&["list", "--quiet"])?;
            ensure!(!left.contains("multusrs/"), "{left}");
            for digest in digests {
                let mut content = member.runtime.ctr(&member.node);
                let content = sh::run(content.args(["content", "list", "--quiet"]))?;
                ensure!(!content.contains(digest), "{digest} is still in the store");
            }
            Ok(())
        })
    }
}
