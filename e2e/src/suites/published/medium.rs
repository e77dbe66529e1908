//! The way without a network: a machine with a copy of `airgap/`, the publisher's public key and busybox checks the medium, later
//! the successor's, and fills a site's registry. One node pulls through that registry, the other one imports the archive.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{
    CHART, ClusterFixture, ensure_image,
    releases::{Releases, SignedRelease},
};
use crate::{
    cluster::Member,
    node::{Node, network::address},
    registry::{PASSWORD, Registry, USER},
    report::{Checked, Report},
    sh,
    test_env::arch,
};

/// The numbers of the operator's machine and of the one with the site's registry.
const OPERATOR: u8 = 7;
const SITE: u8 = 9;
/// The applets of busybox on the operator's machine.
const APPLETS: [&str; 6] = ["chmod", "cp", "env", "ls", "sh", "sha256sum"];
/// Everything on the operator's machine; the program comes from the medium.
const ROOT: [&str; 7] = [
    "bin",
    "medium",
    "multus-airgap",
    "next",
    "other.pub",
    "release.pub",
    "tmp",
];
/// The program as the operator starts it.
const PROGRAM: &str = "/multus-airgap";
const KEY: [&str; 2] = ["--key", "/release.pub"];
/// The data directory of the node without a registry.
const RKE2_DATA: &str = "/var/lib/rancher/rke2";

pub(super) struct MediumInstall<'a> {
    fixture: &'a ClusterFixture<'a>,
    releases: &'a Releases,
    operator: Node,
    /// The root directory of the operator's machine.
    root: PathBuf,
    _site: Node,
    registry: Registry,
}

impl<'a> MediumInstall<'a> {
    pub(super) fn prepare(
        fixture: &'a ClusterFixture<'a>,
        releases: &'a Releases,
    ) -> anyhow::Result<Self> {
        let machine = |number| fixture.cluster.machine(fixture.env, number);
        let site = machine(SITE)?;
        let registry = Registry::start(&site, &format!("{}:5000", address(SITE)))?;
        let install = Self {
            fixture,
            releases,
            operator: machine(OPERATOR)?,
            root: fixture.env.dir.join("operator"),
            _site: site,
            registry,
        };
        install.fill_root()?;
        install.ensure_bare()?;
        install.mirror()?;
        Ok(install)
    }

    /// Copies the media of both releases, keys and busybox.
    fn fill_root(&self) -> anyhow::Result<()> {
        let Releases {
            first,
            next,
            key,
            other_key,
            ..
        } = self.releases;
        for dir in ["bin", "tmp"] {
            fs::create_dir_all(self.root.join(dir))?;
        }
        fs::copy("/bin/busybox", self.root.join("bin/busybox"))?;
        for applet in APPLETS {
            symlink("busybox", self.root.join("bin").join(applet))?;
        }
        fs::copy(key, self.root.join("release.pub"))?;
        fs::copy(other_key, self.root.join("other.pub"))?;
        for (release, name) in [(first, "medium"), (next, "next")] {
            sh::copy_directory(release.dist.join("airgap"), self.root.join(name))?;
        }
        self.run_bare(&["cp", &format!("/medium/multus-airgap-{}", arch()), PROGRAM])?;
        self.run_bare(&["chmod", "+x", PROGRAM]).map(drop)
    }

    /// Fails when the machine has anything that the medium does not bring.
    fn ensure_bare(&self) -> anyhow::Result<()> {
        let found = self.run_bare(&["ls", "/"])?;
        let found: Vec<_> = found.lines().collect();
        ensure!(found == ROOT, "the machine has {found:?}");
        let search = "for name in cargo rustc rustup git make cc python3 helm kubectl docker podman skopeo zstd; do ! command -v $name || exit 1; done";
        self.run_bare(&["sh", "-c", search])
            .context("the machine has a program that the medium does not bring")
            .map(drop)
    }

    /// Makes the site's registry a mirror of docker.io for the first node, as `registries.yaml` does.
    fn mirror(&self) -> anyhow::Result<()> {
        let member = self.k3s();
        let file = mirror_file(member);
        member.node.write(&file, self.registry.mirror())
    }

    fn k3s(&self) -> &Member {
        &self.fixture.cluster.members[0]
    }

    fn rke2(&self) -> &Member {
        &self.fixture.cluster.members[1]
    }

    /// Returns a command whose root directory is that of the operator's machine, and which has no variables of this one.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.operator.command("chroot");
        command
            .arg(&self.root)
            .args(["/bin/env", "PATH=/bin", "HOME=/tmp"])
            .args(args)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("MULTUS_REGISTRY_PASSWORD", PASSWORD);
        command
    }

    fn run_bare(&self, args: &[&str]) -> anyhow::Result<String> {
        sh::run(&mut self.command(args))
    }

    /// Runs the program of the medium.
    fn airgap(&self, args: &[&str]) -> anyhow::Result<String> {
        self.run_bare(&[&[PROGRAM], args].concat())
    }

    /// Runs it with a key that must be refused.
    fn ensure_refused(&self, args: &[&str]) -> anyhow::Result<()> {
        let args = [&[PROGRAM], args, &["--key", "/other.pub"]].concat();
        let output = sh::output(&mut self.command(&args), b"")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && stderr.contains("it is not by this key"),
            "{stderr}"
        );
        Ok(())
    }

    pub(super) fn run(&self, report: &mut Report) -> Checked {
        let (fixture, Releases { first, next, .. }) = (self.fixture, self.releases);
        report.check(
            "there the medium is verified with the publisher's key, and refused with another one",
            || self.verify("/medium"),
        )?;
        report.check("the medium fills the site's registry", || {
            self.push("/medium", first)
        })?;
        report.check(
            "multus-distro installs the images that the key signed and has the charts: the daemon is ready on both nodes",
            || {
                self.install_images()?;
                self.import(first)?;
                self.helm("install", &self.carried_charts()?, None)?;
                self.ensure_deployed(first)
            },
        )?;
        let old = report.check("a pod on each node has two interfaces, again", || {
            fixture.start_pods("carried")
        })?;
        report.check(
            "there the successor's medium is verified with the key, and refused with another one",
            || self.verify("/next"),
        )?;
        report.check(
            "the successor reaches both nodes, helm upgrade installs its verified charts, and running pods keep their networks",
            || {
                self.push("/next", next)?;
                self.copy_archive()?;
                self.import(next)?;
                let charts = charts().map(|name| next.chart(&name));
                self.helm("upgrade", &charts, Some(&next.keyring()))?;
                self.ensure_deployed(next)?;
                fixture.ensure_run_on(&old)
            },
        )?;
        report.check(
            "new pods have two interfaces, and old and new ones leave nothing, again",
            || {
                let new = fixture.start_pods("carried-next")?;
                fixture.delete_all(&[&old, &new])
            },
        )
    }

    /// Checks a directory with busybox alone.
    fn ensure_sums(&self, dir: &str) -> anyhow::Result<()> {
        let check = format!("cd {dir} && sha256sum -c sha256sum-{}.txt", arch());
        self.run_bare(&["sh", "-c", &check]).map(drop)
    }

    /// Pushes a directory to the site's registry; a second push sends nothing.
    fn push(&self, dir: &str, release: &SignedRelease) -> anyhow::Result<()> {
        let host = &self.registry.host;
        let user = format!("--user={host}={USER}");
        let push = || -> anyhow::Result<Value> {
            let said = self.airgap(&["push", dir, host, "--plain-http", &user, "--json"])?;
            Ok(serde_json::from_str(&said)?)
        };
        let (sent, again) = (push()?, push()?);
        ensure!(sent["sent"] != 0 && again["sent"] == 0, "{sent}, {again}");
        let path = release.path_of_image();
        let (repository, tag) = path.rsplit_once(':').context("the image has a tag")?;
        let digest = self.registry.digest(&self.operator, repository, tag)?;
        ensure!(digest == release.digest, "{path} is {digest}");
        Ok(())
    }

    /// Runs `multus-distro` of the release on the node without a registry.
    fn install_images(&self) -> anyhow::Result<()> {
        let node = &self.rke2().node;
        let medium = self.root.join("medium");
        let command = |key: &Path| {
            let mut command = node.command(self.fixture.env.program("multus-distro"));
            command.args(["images", "install"]).arg(&medium);
            command.args(["--distro=rke2", "--data-dir", RKE2_DATA, "--key"]);
            command.arg(key);
            command
        };
        let refused = sh::run(&mut command(&self.releases.other_key));
        ensure!(refused.is_err(), "images of another key were installed");
        sh::run(&mut command(&self.releases.key)).map(drop)
    }

    /// Puts the archive of the successor where the agent imports from, in place of the former one.
    fn copy_archive(&self) -> anyhow::Result<()> {
        let from = self.root.join("next").join(archive());
        let to = self.rke2().node.path(&installed());
        fs::copy(from, &to)
            .with_context(|| to.display().to_string())
            .map(drop)
    }

    /// Imports the installed archive as the agent does.
    fn import(&self, release: &SignedRelease) -> anyhow::Result<()> {
        let member = self.rke2();
        member
            .runtime
            .import(&member.node, Path::new(&installed()))?;
        let mut ctr = member.runtime.ctr(&member.node);
        let found = sh::run(ctr.args(["images", "list", "--quiet"]))?;
        ensure!(found.lines().any(|name| name == release.image), "{found}");
        Ok(())
    }

    /// Writes the charts that `multus-distro` carries into files.
    fn carried_charts(&self) -> anyhow::Result<[PathBuf; 2]> {
        let node = self.fixture.cluster.server();
        let files = charts().map(|name| self.fixture.env.dir.join(format!("carried-{name}.tgz")));
        for (name, file) in charts().iter().zip(&files) {
            let mut get = node.command(self.fixture.env.program("multus-distro"));
            sh::run(get.args(["chart", "get", name, "--out"]).arg(file))?;
        }
        Ok(files)
    }

    /// Installs or upgrades both charts from files; with a keyring, only those that the publisher signed.
    fn helm(&self, verb: &str, files: &[PathBuf; 2], keyring: Option<&Path>) -> anyhow::Result<()> {
        for (name, file) in charts().iter().zip(files) {
            let mut helm = self.fixture.cluster.helm();
            helm.args([verb, "--namespace", "kube-system", name]);
            helm.arg(file);
            if let Some(keyring) = keyring {
                helm.args(["--verify", "--keyring"]).arg(keyring);
            }
            sh::run(&mut helm).with_context(|| name.clone())?;
        }
        Ok(())
    }

    /// Waits until every daemon is of the release: on the one node pulled through the mirror, on the other one imported.
    fn ensure_deployed(&self, release: &SignedRelease) -> anyhow::Result<()> {
        let fixture = self.fixture;
        // The charts leave docker.io out of it.
        let path = release.path_of_image();
        fixture.wait_until_updated(path)?;
        ensure_image(self.k3s(), &release.image, &release.digest)?;
        let (repository, tag) = path.rsplit_once(':').context("the image has a tag")?;
        let manifest = format!("/v2/{repository}/manifests/{tag}");
        let words = [&*self.k3s().node.address(), "containerd/", &manifest];
        let asked = self.registry.logged_requests(&words)?;
        ensure!(
            asked > 0,
            "the node did not ask the site's registry for {tag}"
        );
        let on_k3s = fixture.is_pulled(self.k3s(), path)?;
        let on_rke2 = fixture.is_pulled(self.rke2(), path)?;
        ensure!(
            on_k3s && !on_rke2,
            "{path} was pulled by k3s: {on_k3s}, by rke2: {on_rke2}"
        );
        Ok(())
    }

    /// Checks that a directory is the publisher's.
    fn verify(&self, dir: &str) -> anyhow::Result<()> {
        let verify = ["verify", dir];
        self.ensure_refused(&verify)?;
        let said = self.airgap(&[&verify[..], &KEY].concat())?;
        let line = format!("sha256sum-{}.txt: signed by the owner of --key", arch());
        ensure!(said.contains(&line), "{said}");
        self.ensure_sums(dir)
    }

    /// Removes from the nodes what the operator put there.
    pub(super) fn clear(&self) -> anyhow::Result<()> {
        let (k3s, rke2) = (self.k3s(), self.rke2());
        fs::remove_file(k3s.node.path(&mirror_file(k3s)))?;
        fs::remove_file(rke2.node.path(&installed()))?;
        Ok(())
    }
}

/// Returns the charts in the order of their installation.
fn charts() -> [String; 2] {
    [format!("{CHART}-crd"), CHART.to_owned()]
}

fn archive() -> String {
    format!("multus-airgap-images-{}.tar", arch())
}

/// Returns the path of the archive on a node that imports it.
fn installed() -> String {
    format!("{RKE2_DATA}/agent/images/{}", archive())
}

fn mirror_file(member: &Member) -> String {
    format!("{}/docker.io/hosts.toml", member.runtime.paths.registries())
}
