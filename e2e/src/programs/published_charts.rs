//! The published charts that users have installed, as downloaded by `cargo xtask download`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};

use crate::{
    sh,
    test_env::{self, TestEnv, sha256},
};

const LOCKS: &[&str] = &[
    include_str!("../../published.lock"),
    include_str!("../../published-older.lock"),
];

pub(crate) const OLD: &str = "rke2-multus-v4.3.008.tgz";
pub(crate) const NEW: &str = "rke2-multus-v4.3.017.tgz";
pub(crate) const NEW_CRD: &str = "rke2-multus-crd-4.3.017.tgz";

/// Returns the path of an archive, after checking its digest against the lock.
pub(crate) fn archive(name: &str) -> anyhow::Result<PathBuf> {
    let home = test_env::home()?;
    let target = home
        .parent()
        .context("the directory of runs has a parent")?;
    let path = target.join("download").join(name);
    let bytes = fs::read(&path).with_context(|| {
        format!(
            "{} is missing: download it with --install or `cargo xtask download`",
            path.display()
        )
    })?;
    let mut lines = LOCKS
        .iter()
        .flat_map(|lock| lock.lines())
        .filter(|line| line.ends_with(&format!("/{name}")));
    let line = lines
        .next()
        .with_context(|| format!("{name} is not in the lock"))?;
    ensure!(
        line.starts_with(&sha256(&bytes)),
        "{} has another digest than the lock: `cargo xtask download` fetches it again",
        path.display()
    );
    Ok(path)
}

/// Unpacks an archive; returns the chart's directory.
pub(crate) fn unpacked(env: &TestEnv, archive: &Path) -> anyhow::Result<PathBuf> {
    let to = env
        .dir
        .join("unpacked")
        .join(archive.file_stem().context("an archive has a name")?);
    fs::create_dir_all(&to)?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--gzip", "--strip-components=1", "--file"]);
    sh::run(tar.arg(archive).current_dir(&to))?;
    Ok(to)
}

/// Makes a chart as published up to v4.2.409, whose CRD Helm deletes when the next chart lacks it; a later one had `keep`.
pub(crate) fn deletable(env: &TestEnv, name: &str) -> anyhow::Result<PathBuf> {
    let chart = unpacked(env, &archive(OLD)?)?;
    let edit = |file: &str, from: &str, to: &str| -> anyhow::Result<()> {
        let path = chart.join(file);
        let text = fs::read_to_string(&path)?;
        ensure!(text.contains(from), "{} has no {from:?}", path.display());
        Ok(fs::write(path, text.replace(from, to))?)
    };
    let crd = "templates/customResourceDefinition.yaml";
    edit(
        crd,
        "helm.sh/resource-policy: keep",
        "example.com/kept: \"no\"",
    )?;
    edit(
        "Chart.yaml",
        "\nname: rke2-multus\n",
        &format!("\nname: {name}\n"),
    )?;
    Ok(chart)
}
