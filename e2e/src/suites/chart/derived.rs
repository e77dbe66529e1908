//! Charts that are derived from the published ones, and merged repositories, with real Helm.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};

use super::render;
use crate::{
    checkout,
    file_server::FileServer,
    programs::published_charts::{self, NEW, NEW_CRD, OLD},
    sh,
    test_env::TestEnv,
};

/// The dependency that the derived chart drops.
const DROPPED: &str = "rke2-whereabouts";
const VERSION: &str = "4.3.17+upv4.3.017";

fn xtask(args: &[&str]) -> anyhow::Result<String> {
    sh::run(Command::new(checkout::xtask()?).args(args))
}

fn derive(env: &TestEnv, from: &str, drop: &[&str]) -> anyhow::Result<PathBuf> {
    let from = published_charts::archive(from)?;
    let out = env.dir.join("derived");
    let drop: Vec<_> = drop.iter().flat_map(|name| ["--drop", name]).collect();
    let (from, to) = (from.display().to_string(), out.display().to_string());
    let args = [
        "chart",
        "derive",
        "--from",
        &from,
        "--name",
        "k3s-multus",
        "--version",
        VERSION,
        "--out",
        &to,
    ];
    xtask(&[&args, &drop[..]].concat())?;
    Ok(out.join(format!("k3s-multus-{VERSION}.tgz")))
}

/// Returns the paths in the chart's directory with their texts, in the archive's order.
fn files(archive: &Path, name: &str) -> anyhow::Result<Vec<(String, String)>> {
    let tar = |args: &[&str]| sh::run(Command::new("tar").args(args).arg("--file").arg(archive));
    let listed = tar(&["--list", "--gzip"])?;
    let prefix = format!("{name}/");
    let file = |path: &str| {
        let below = path
            .strip_prefix(&prefix)
            .with_context(|| format!("{path} is outside the chart's directory"))?;
        let mut command = Command::new("tar");
        command.args(["--extract", "--gzip", "--to-stdout", "--file"]);
        let text = sh::run(command.arg(archive).arg(path))?;
        Ok((below.to_owned(), text))
    };
    listed.lines().map(file).collect()
}

/// Derives K3s' chart from both published ones: only the requested changes are in its files and in the rendered objects.
pub(super) fn compare(env: &TestEnv) -> anyhow::Result<()> {
    for (from, own) in [
        (OLD, ["Chart.yaml", "values.yaml"].as_slice()),
        (NEW, &["Chart.yaml", "values.yaml", "requirements.yaml"]),
    ] {
        let made = derive(env, from, &[DROPPED])?;
        let bytes = fs::read(&made)?;
        ensure!(
            bytes == fs::read(derive(env, from, &[DROPPED])?)?,
            "{from}: a second run gives different bytes"
        );
        let (before, after) = (
            files(&published_charts::archive(from)?, "rke2-multus")?,
            files(&made, "k3s-multus")?,
        );
        let untouched = |files: &[(String, String)]| {
            let stays = |path: &str| !own.contains(&path) && !path.starts_with("charts/");
            files
                .iter()
                .filter(|(path, _)| stays(path))
                .cloned()
                .collect::<Vec<_>>()
        };
        ensure!(
            untouched(&before) == untouched(&after),
            "{from}: a file that must not change has changed"
        );
        ensure!(untouched(&after).len() > 9, "{from}: {after:?}");
        ensure!(
            !after
                .iter()
                .any(|(path, text)| path.starts_with("charts/") || text.contains(DROPPED)),
            "{from}: {DROPPED} is still there"
        );
        for (path, text) in after
            .iter()
            .filter(|(path, _)| own.contains(&path.as_str()))
        {
            let former = before
                .iter()
                .find(|(found, _)| found == path)
                .context("the published chart has the file")?;
            let mut former = former.1.lines();
            let is_new =
                |line: &str| line == "name: k3s-multus" || line == format!("version: {VERSION}");
            for line in text.lines().filter(|line| !is_new(line)) {
                ensure!(
                    former.any(|found| found == line),
                    "{from}: {path} has a new line {line}"
                );
            }
        }
        for thick in ["false", "true"] {
            let value = format!("--set=thickPlugin.enabled={thick}");
            let theirs = render::text(
                env,
                "k3s-multus",
                &published_charts::archive(from)?,
                &[&value],
            )?;
            let old = from
                .trim_start_matches("rke2-multus-")
                .trim_end_matches(".tgz");
            let expected = theirs
                .replace("rke2-multus", "k3s-multus")
                .replace(old, VERSION);
            let found = render::text(env, "k3s-multus", &made, &[&value])?;
            // The checksums cover texts that contain the names of objects.
            let without_sums = |text: &str| {
                text.lines()
                    .filter(|line| !line.contains("checksum/"))
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            ensure!(
                without_sums(&found) == without_sums(&expected),
                "{from}: Helm renders different objects with {value}"
            );
        }
    }
    Ok(())
}

/// Merges published and new charts into a repository: real Helm finds every version, and its own index has the same digests.
pub(super) fn repository(env: &TestEnv) -> anyhow::Result<()> {
    let repository = env.dir.join("repository");
    let place = repository.display().to_string();
    let args = ["chart", "merge", "--into", &place, "--layout"];
    fs::create_dir_all(&repository)?;
    let merge = |charts: &[PathBuf]| {
        let charts: Vec<_> = charts
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let charts: Vec<_> = charts.iter().map(String::as_str).collect();
        xtask(&[&args, &["rke2"][..], &charts].concat())
    };
    let ours = [env.chart("rke2-multus")?, env.chart("rke2-multus-crd")?];
    let old = [
        published_charts::archive(OLD)?,
        published_charts::archive(NEW)?,
        published_charts::archive(NEW_CRD)?,
    ];
    merge(&old)?;
    let published = repository.with_extension("published.yaml");
    fs::copy(repository.join("index.yaml"), &published)?;
    merge(&ours)?;
    let derived = derive(env, NEW, &[DROPPED])?;
    merge(std::slice::from_ref(&derived))?;
    let published = published.display().to_string();
    xtask(&["chart", "index", "--check", &place, "--against", &published])?;
    let again = merge(&[&ours[..], &old].concat())?;
    ensure!(again.is_empty(), "a second merge adds {again}");

    let server = FileServer::serve(&repository)?;
    let home = env.dir.join("helm");
    let helm = |args: &[&str]| {
        let mut command = Command::new(env.bin.join("helm"));
        sh::run(command.env("HOME", &home).args(args))
    };
    helm(&["repo", "add", "merged", &server.url])?;
    let version = env.version()?;
    let pulled = env.dir.join("from-repository");
    fs::create_dir_all(&pulled)?;
    let to = pulled.display().to_string();
    for (name, wanted, archive) in [
        ("rke2-multus", "v4.3.008", &old[0]),
        ("rke2-multus", "v4.3.017", &old[1]),
        ("rke2-multus-crd", "4.3.017", &old[2]),
        ("rke2-multus", "", &ours[0]),
        ("rke2-multus-crd", "", &ours[1]),
        ("k3s-multus", VERSION, &derived),
    ] {
        let chart = format!("merged/{name}");
        // Without a version Helm pulls the newest.
        let wanted: &[&str] = if wanted.is_empty() {
            &[]
        } else {
            &["--version", wanted]
        };
        helm(&[&["pull", &chart, "--destination", &to], wanted].concat())?;
        let file = archive.file_name().context("an archive has a name")?;
        ensure!(
            fs::read(pulled.join(file))? == fs::read(archive)?,
            "{chart} {wanted:?} has different bytes"
        );
    }
    let shown = helm(&["search", "repo", "merged/", "--versions"])?;
    let rows = shown.lines().count();
    ensure!(rows == 7 && shown.contains(&version), "{shown}");

    let index = |text: String| {
        let mut digests: Vec<_> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("digest: "))
            .map(str::to_owned)
            .collect();
        digests.sort();
        digests
    };
    let found = index(fs::read_to_string(repository.join("index.yaml"))?);
    helm(&["repo", "index", &format!("{place}/assets")])?;
    let theirs = index(fs::read_to_string(repository.join("assets/index.yaml"))?);
    ensure!(
        found == theirs && found.len() == 6,
        "the index has {found:?}, Helm's own {theirs:?}"
    );
    Ok(())
}
