//! Publication: a release, its successor and a backport go to a registry, to a charts repository and into directories for a forge. The two
//! later ones are rehearsals, with the programs of the first, in a clone whose version is cut as that of a real release.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::fixture::{AirgapFixture, PASSWORD, REGISTRY, USER, text};
use crate::{
    checkout::{self, Checkout},
    file_server::FileServer,
    report::{Checked, Report},
    sh,
    test_env::{TestEnv, arch},
};

/// The path of everything in the registry.
const PATH: &str = "published";
const IMAGE: &str = "multusrs/multus";
const CHART: &str = "rke2-multus";

/// The clone, and the places that get releases.
struct Trial<'a> {
    env: &'a TestEnv,
    fixture: &'a AirgapFixture,
    dir: PathBuf,
    clone: Checkout,
    first: String,
}

pub(super) fn run(env: &TestEnv, fixture: &AirgapFixture, report: &mut Report) -> Checked {
    let trial = report.check(
        "a release is published to a registry, a charts repository and as files, and again without a change",
        || Trial::start(env, fixture),
    )?;
    let (next, backport) = report.check("versions are cut in a clone", || trial.versions())?;
    report.check(
        "the successor is published next to the first release, and is the latest",
        || trial.succeed(&next),
    )?;
    report.check("a backport moves its own line alone", || {
        trial.succeed_in_line(&backport)
    })?;
    report.check(
        "other bytes under a published name are refused before anything is written",
        || trial.refuses(&next),
    )?;
    report.check(
        "Helm pulls every version from the registry and from the repository, and without one the newest",
        || trial.pulls(&next, &backport),
    )
}

impl<'a> Trial<'a> {
    fn start(env: &'a TestEnv, fixture: &'a AirgapFixture) -> anyhow::Result<Self> {
        let dir = env.dir.join("publication");
        fs::create_dir_all(&dir)?;
        let trial = Self {
            env,
            fixture,
            clone: Checkout::copy(dir.join("clone"))?,
            dir,
            first: env.version()?,
        };
        fs::create_dir_all(trial.charts())?;
        let published = trial.publish(&env.dist, "files-first")?;
        ensure!(published["version"] == *trial.first, "{published}");
        let charts = published["charts"].as_array().map(Vec::len);
        ensure!(charts == Some(6), "{published}");
        let line = line_of(&trial.first);
        // A prerelease gets no other tag.
        let moving = [line.as_str(), "latest"].into_iter();
        for tag in moving.filter(|_| trial.is_stable()) {
            ensure!(
                trial.digest(tag)? == trial.digest(&format!("v{}", trial.first))?,
                "{tag} is not the first release"
            );
        }
        let index = fs::read(trial.charts().join("index.yaml"))?;
        let again = trial.publish(&env.dist, "files-first")?;
        let changes = (&again["sent"], again["moved"].as_array().map(Vec::len));
        ensure!(changes == (&Value::from(0), Some(0)), "{again}");
        ensure!(
            again["charts"].as_array().is_some_and(Vec::is_empty),
            "{again}"
        );
        ensure!(
            index == fs::read(trial.charts().join("index.yaml"))?,
            "the index changed"
        );
        trial.files()?;
        Ok(trial)
    }

    fn is_stable(&self) -> bool {
        !self.first.contains('-')
    }

    /// Checks the files as their users do: by the checksums, and the archive by the release in it.
    fn files(&self) -> anyhow::Result<()> {
        let files = self.dir.join("files-first");
        let mut sums = Command::new("sha256sum");
        sh::run(
            sums.args(["--check", "--quiet", "SHA256SUMS"])
                .current_dir(&files),
        )?;
        let name = format!("multus-rs-v{}", self.first);
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--file"])
            .arg(files.join(format!("{name}.tar")));
        sh::run(tar.current_dir(&self.dir))?;
        let program = files.join(format!("multus-airgap-{}", arch()));
        let mut verify = Command::new(program);
        verify.arg("verify").arg(self.dir.join(name));
        sh::run(verify.arg("--allow-dirty")).map(drop)
    }

    fn charts(&self) -> PathBuf {
        self.dir.join("charts")
    }

    /// Publishes a release everywhere; the files go into a directory of this name.
    fn publish(&self, dist: &Path, files: &str) -> anyhow::Result<Value> {
        let answer = sh::run(&mut self.publication(dist, files)?)?;
        serde_json::from_str(&answer).context(answer)
    }

    fn publication(&self, dist: &Path, files: &str) -> anyhow::Result<Command> {
        let registry = format!("{REGISTRY}/{PATH}");
        let (charts, files) = (self.charts(), self.dir.join(files));
        let args = [
            "release",
            "publish",
            "--dist",
            text(dist)?,
            "--registry",
            &registry,
            "--charts",
            text(&charts)?,
            "--files",
            text(&files)?,
            "--allow-dirty",
            "--json",
        ];
        let mut command = self.fixture.xtask_command(&args, true);
        self.clone.of(&mut command);
        Ok(command)
    }

    /// Cuts a version in the clone, and makes its release.
    fn release(&self, version: &str) -> anyhow::Result<PathBuf> {
        self.clone.cut(version)?;
        let out = self.dir.join(version);
        self.clone.rehearse(&self.env.dist, &out)?;
        Ok(out)
    }

    /// Returns the next versions, and makes the branch of the second one.
    fn versions(&self) -> anyhow::Result<(String, String)> {
        let [major, minor, patch] = checkout::numbers(&self.first)?;
        let next = format!("{major}.{}.0", minor + 1);
        let backport = format!("{major}.{minor}.{}", patch + 1);
        let line = format!("release-{major}.{minor}");
        self.clone.change("both")?;
        self.clone.git(&["branch", &line])?;
        Ok((next, backport))
    }

    fn succeed(&self, next: &str) -> anyhow::Result<()> {
        let dist = self.release(next)?;
        let published = self.publish(&dist, "files-next")?;
        ensure!(published["latest"] == true, "{published}");
        ensure!(
            self.digest("latest")? == self.digest(&format!("v{next}"))?,
            "latest is not {next}"
        );
        let notes = fs::read_to_string(self.dir.join("files-next/RELEASE-NOTES.md"))?;
        ensure!(notes.contains(&format!("- Change for {next}.")), "{notes}");
        let release = ["release", "publish", "--dist", text(&dist)?];
        let mut dirty = self.clone.xtask(&release);
        dirty.args(["--files", "files"]);
        self.fixture.ensure_fails(&mut dirty, "uncommitted changes")
    }

    fn succeed_in_line(&self, backport: &str) -> anyhow::Result<()> {
        let before = self.digest("latest")?;
        let line = line_of(backport);
        let branch = line.replacen('v', "release-", 1);
        self.clone.git(&["switch", "--quiet", &branch])?;
        let dist = self.release(backport)?;
        let published = self.publish(&dist, "files-backport")?;
        ensure!(published["latest"] == false, "{published}");
        ensure!(
            self.digest("latest")? == before,
            "the backport moved latest"
        );
        ensure!(
            self.digest(&line)? == self.digest(&format!("v{backport}"))?,
            "{line} is not {backport}"
        );
        Ok(())
    }

    /// Puts other bytes under names of the successor, each in a place of its own.
    fn refuses(&self, next: &str) -> anyhow::Result<()> {
        // The notes are those of the branch.
        self.clone.git(&["switch", "--quiet", "main"])?;
        let dist = self.dir.join(next);
        let login = format!("{USER}:{PASSWORD}");
        let image = |tag: &str| format!("docker://{REGISTRY}/taken/{IMAGE}:{tag}");
        let from = format!("docker://{REGISTRY}/{PATH}/{IMAGE}:v{}", self.first);
        let to = image(&format!("v{next}"));
        self.fixture.skopeo(&[
            "copy",
            "--all",
            "--src-tls-verify=false",
            "--dest-tls-verify=false",
            "--src-creds",
            &login,
            "--dest-creds",
            &login,
            &from,
            &to,
        ])?;
        let uploads = || self.fixture.logged_requests(&["PUT /v2/"]);
        let before = uploads()?;
        let taken = format!("{REGISTRY}/taken");
        let new = self.dir.join("files-refused");
        let args = [
            "release",
            "publish",
            "--dist",
            text(&dist)?,
            "--allow-dirty",
            "--registry",
            &taken,
            "--files",
            text(&new)?,
        ];
        let mut command = self.fixture.xtask_command(&args, true);
        self.fixture
            .ensure_fails(&mut command, "give the release a new version")?;
        ensure!(
            uploads()? == before && !new.exists(),
            "something was written"
        );

        let asset = self
            .dir
            .join("files-next")
            .join(format!("{CHART}-{next}.tgz"));
        let bytes = fs::read(&asset)?;
        fs::write(&asset, [&bytes[..], b"x"].concat())?;
        let mut command = self.publication(&dist, "files-next")?;
        self.fixture
            .ensure_fails(&mut command, "is there with other bytes")?;
        fs::write(&asset, bytes)?;

        let published = self
            .charts()
            .join(format!("assets/{CHART}/{CHART}-{next}.tgz"));
        let bytes = fs::read(&published)?;
        fs::write(&published, fs::read(self.env.chart(CHART)?)?)?;
        let mut command = self.publication(&dist, "files-next")?;
        self.fixture
            .ensure_fails(&mut command, "is published with other bytes")?;
        fs::write(&published, bytes)?;
        sh::run(&mut self.publication(&dist, "files-next")?)?;
        ensure!(
            uploads()? == before,
            "a repeated publication sends something"
        );
        Ok(())
    }

    fn pulls(&self, next: &str, backport: &str) -> anyhow::Result<()> {
        let to = self.dir.join("pulled");
        let logins = self.fixture.node.dir.join("helm-logins.json");
        let registry = |args: &[&str]| {
            let mut command = self.fixture.node.command(self.env.bin.join("helm"));
            sh::run(command.arg("--registry-config").arg(&logins).args(args))
        };
        let place = format!("oci://{REGISTRY}/{PATH}/charts/{CHART}");
        let server = FileServer::serve(&self.charts())?;
        let home = self.dir.join("helm");
        let repository = |args: &[&str]| {
            let mut command = Command::new(self.env.bin.join("helm"));
            sh::run(command.env("HOME", &home).args(args))
        };
        repository(&["repo", "add", "ours", &server.url])?;
        let releases = [
            (self.first.as_str(), self.env.dist.clone()),
            (next, self.dir.join(next)),
            (backport, self.dir.join(backport)),
        ];
        let pulled = |from: &str, version: &str| -> anyhow::Result<Vec<u8>> {
            let _ = fs::remove_dir_all(&to);
            fs::create_dir_all(&to)?;
            let wanted = if version.is_empty() {
                vec![]
            } else {
                vec!["--version", version]
            };
            let args = [&["pull", from, "--destination", text(&to)?], &wanted[..]].concat();
            if from.starts_with("oci://") {
                registry(&[&args[..], &["--plain-http"]].concat())?;
            } else {
                repository(&args)?;
            }
            let entry = fs::read_dir(&to)?.next().context("Helm pulled nothing")??;
            Ok(fs::read(entry.path())?)
        };
        for from in [place.as_str(), "ours/rke2-multus"] {
            for (version, dist) in &releases {
                let path = format!("charts/assets/{CHART}/{CHART}-{version}.tgz");
                let expected = fs::read(dist.join(path))?;
                ensure!(
                    pulled(from, version)? == expected,
                    "{from} {version} has other bytes"
                );
                if *version == next {
                    ensure!(
                        pulled(from, "")? == expected,
                        "the newest of {from} is not {next}"
                    );
                }
            }
        }
        let found = repository(&["search", "repo", "ours/rke2-multus", "--versions"])?;
        let rows: Vec<_> = found
            .lines()
            .filter(|line| {
                line.starts_with("ours/rke2-multus ") || line.starts_with("ours/rke2-multus\t")
            })
            .collect();
        ensure!(
            rows.len() == 2 + usize::from(self.is_stable())
                && rows[0].contains(next)
                && rows[1].contains(backport),
            "{found}"
        );
        let charts = self.charts();
        let args = ["chart", "index", "--check", text(&charts)?];
        sh::run(&mut self.clone.xtask(&args)).map(drop)
    }

    /// Returns the digest that a tag of the image has in the registry.
    fn digest(&self, tag: &str) -> anyhow::Result<String> {
        let fixture = self.fixture;
        let repository = format!("{PATH}/{IMAGE}");
        fixture.registry.digest(&fixture.node, &repository, tag)
    }
}

/// Returns the tag of a version's line.
fn line_of(version: &str) -> String {
    let line = version.rsplit_once('.').map_or(version, |(line, _)| line);
    format!("v{line}")
}
