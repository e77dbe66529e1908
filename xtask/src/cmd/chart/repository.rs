//! A charts repository in a directory, read one archive at a time.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use archive::digest::sha256;
use chart::{
    index::{
        check::{Asset, Repository, Unpacked},
        read::Index,
    },
    package::{CHART_YAML, File, Package},
};

pub(super) const INDEX: &str = "index.yaml";

/// Reads `index.yaml`, `assets/` and `charts/`.
pub(super) fn read(dir: &Path) -> anyhow::Result<Repository> {
    let path = dir.join(INDEX);
    let text = fs::read_to_string(&path).with_context(|| {
        format!(
            "cannot read {}: name the directory of a charts repository",
            path.display()
        )
    })?;
    let index = Index::read(&text).with_context(|| path.display().to_string())?;
    let mut repository = Repository {
        name: dir.display().to_string(),
        index,
        assets: BTreeMap::new(),
        directories: BTreeMap::new(),
    };
    for (path, file) in files(dir, "assets")? {
        if path.strip_suffix(".tgz").is_none() {
            continue;
        }
        let bytes = super::read(&file)?;
        let chart = Package::read(&bytes).map(|package| Unpacked::of(&package));
        let asset = Asset {
            digest: sha256(&bytes),
            chart: chart.map_err(|error| error.to_string()),
        };
        repository.assets.insert(path, asset);
    }
    for (path, files) in unpacked(dir)? {
        let content = Package::from_files(files).map(|package| Unpacked::of(&package));
        let content = content.map_err(|error| error.to_string());
        repository.directories.insert(path, content);
    }
    Ok(repository)
}

/// Returns the files of an unpacked chart: none when it is absent.
pub(super) fn unpacked_files(dir: &Path, chart: &str) -> anyhow::Result<Vec<File>> {
    let below = |(path, file): (String, PathBuf)| {
        let path = path.strip_prefix(chart).unwrap_or(&path);
        Ok(File {
            path: path.trim_start_matches('/').to_owned(),
            mode: 0o644,
            bytes: super::read(&file)?,
        })
    };
    files(dir, chart)?.into_iter().map(below).collect()
}

/// Returns the directories below `charts/` that hold a chart, with its files; a subchart belongs to its chart.
fn unpacked(dir: &Path) -> anyhow::Result<BTreeMap<String, Vec<File>>> {
    let mut charts: Vec<String> = Vec::new();
    for (path, _) in files(dir, "charts")? {
        let Some(found) = path.strip_suffix(CHART_YAML) else {
            continue;
        };
        let is_below = |chart: &String| found.starts_with(chart.as_str());
        if !charts.iter().any(is_below) {
            charts.retain(|chart| !chart.starts_with(found));
            charts.push(found.to_owned());
        }
    }
    let files = |path: String| {
        let path = path.trim_end_matches('/').to_owned();
        let files = unpacked_files(dir, &path)?;
        Ok((path, files))
    };
    charts.into_iter().map(files).collect()
}

/// Returns every file below a directory of the repository, hidden ones too, by its path from the repository's root.
pub(super) fn files(dir: &Path, below: &str) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut open = vec![below.to_owned()];
    while let Some(path) = open.pop() {
        let subdir = dir.join(&path);
        if !subdir.exists() {
            continue;
        }
        let context = || format!("cannot read {}", subdir.display());
        for entry in fs::read_dir(&subdir).with_context(context)? {
            let entry = entry.with_context(context)?;
            let Ok(name) = entry.file_name().into_string() else {
                bail!("the name of {} is not UTF-8", entry.path().display());
            };
            let name = format!("{path}/{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push(name);
            } else if kind.is_file() {
                found.insert(name, entry.path());
            } else {
                bail!(
                    "{} is not a regular file: remove it",
                    entry.path().display()
                );
            }
        }
    }
    Ok(found)
}
