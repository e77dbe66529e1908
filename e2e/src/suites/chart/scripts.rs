//! The packages tree, made into charts by the scripts of k3s-charts themselves, at the version that it pins.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::exported::{check_same, export, files};
use crate::{
    checkout,
    file_server::FileServer,
    programs::published_charts::{self, NEW, unpacked},
    report::{CheckFailed, Report},
    sh,
    test_env::TestEnv,
};

const NAME: &str = "k3s-multus";
/// The repository's own settings, in `configuration.yaml`.
const CONFIGURATION: &str = "helmRepo:\n  cname: charts.k3s.io\n";

pub(super) fn run(env: &TestEnv, report: &mut Report) -> Result<(), CheckFailed> {
    report.check(
        "the scripts make the release's charts of the packages tree",
        || {
            let repository = Repository::new(env, "whole", &[])?;
            repository.run("charts")?;
            repository.has_the_charts(env, "")
        },
    )?;
    report.check(
        "the scripts make the release's charts of changes to a published one",
        || {
            let base = published_charts::archive(NEW)?;
            let dir = base.parent().context("an archive is in a directory")?;
            let server = FileServer::serve(dir)?;
            let url = format!("{}/{NEW}", server.url);
            let base = base.display().to_string();
            let repository = Repository::new(env, "changes", &["--base", &base, "--url", &url])?;
            repository.run("prepare")?;
            // Writes the changes again, as a developer does who changed the chart.
            repository.run("patch")?;
            repository.run("clean")?;
            repository.run("charts")?;
            repository.has_the_charts(env, "+upv4.3.017")
        },
    )
}

/// A charts repository with our package.
struct Repository<'a> {
    scripts: &'a Path,
    dir: PathBuf,
}

impl<'a> Repository<'a> {
    fn new(env: &'a TestEnv, name: &str, more: &[&str]) -> anyhow::Result<Self> {
        let dir = env.dir.join(name);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("configuration.yaml"), CONFIGURATION)?;
        export("k3s-charts", &dir, &[], more)?;
        checkout::init(&dir)?;
        let scripts = &env.bin;
        Ok(Self { scripts, dir })
    }

    /// Runs one target of the repository's Makefile.
    fn run(&self, target: &str) -> anyhow::Result<()> {
        let mut scripts = Command::new(self.scripts.join("charts-build-scripts"));
        let scripts = scripts.arg(target).env("PACKAGE", NAME);
        // Helm's library has its cache there.
        let scripts = scripts.env("HOME", &self.dir).current_dir(&self.dir);
        sh::run(scripts).map(drop)
    }

    /// Compares what the scripts made with the charts of the release.
    fn has_the_charts(&self, env: &TestEnv, build: &str) -> anyhow::Result<()> {
        let released = env.version()?;
        let version = format!("{}{build}", numbered(&released)?);
        for name in [NAME.to_owned(), format!("{NAME}-crd")] {
            let made = self.dir.join(format!("assets/{name}/{name}-{version}.tgz"));
            let (mut made, mut expected) = (
                files(&unpacked(env, &made)?)?,
                files(&unpacked(env, &env.chart(&name)?)?)?,
            );
            let description = Path::new("Chart.yaml");
            let mut of_made = yaml(made.remove(description))?;
            let of_release = yaml(expected.remove(description))?;
            ensure!(of_made["version"] == version.as_str(), "{of_made}");
            of_made["version"] = released.as_str().into();
            ensure!(of_made == of_release, "{of_made} and {of_release}");
            check_same(&made, &expected).with_context(|| name.clone())?;
        }
        Ok(())
    }
}

/// Returns the version X.Y.(100·Z + 1), which the scripts make of the first package of a release X.Y.Z.
fn numbered(version: &str) -> anyhow::Result<String> {
    let (line, patch) = version.rsplit_once('.').context("a version has parts")?;
    let patch: u64 = patch.parse()?;
    Ok(format!("{line}.{}", 100 * patch + 1))
}

fn yaml(bytes: Option<Vec<u8>>) -> anyhow::Result<Value> {
    let bytes = bytes.context("a chart has a Chart.yaml")?;
    Ok(serde_yaml::from_slice(&bytes)?)
}
