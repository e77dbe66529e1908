//! A charts repository in a folder, read one archive at a time.

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
            "cannot read {}: name the folder of a charts repository",
            path.display()
        )
    })?;
    let index = Index::read(&text).with_context(|| path.display().to_string())?;
    let mut repository = Repository {
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
    for (folder, files) in unpacked(dir)? {
        let content = Package::from_files(files).map(|package| Unpacked::of(&package));
        let content = content.map_err(|error| error.to_string());
        repository.directories.insert(folder, content);
    }
    Ok(repository)
}

/// The files of an unpacked chart, which may be absent.
pub(super) fn folder(dir: &Path, folder: &str) -> anyhow::Result<Vec<File>> {
    let below = |(path, file): (String, PathBuf)| {
        let path = path.strip_prefix(folder).unwrap_or(&path);
        Ok(File {
            path: path.trim_start_matches('/').to_owned(),
            mode: 0o644,
            bytes: super::read(&file)?,
        })
    };
    files(dir, folder)?.into_iter().map(below).collect()
}

/// Folders below `charts/` that hold a chart, with its files; subcharts are a part of theirs.
fn unpacked(dir: &Path) -> anyhow::Result<BTreeMap<String, Vec<File>>> {
    let mut folders: Vec<String> = Vec::new();
    for (path, _) in files(dir, "charts")? {
        let Some(found) = path.strip_suffix(CHART_YAML) else {
            continue;
        };
        let is_below = |folder: &String| found.starts_with(folder.as_str());
        if !folders.iter().any(is_below) {
            folders.retain(|folder| !folder.starts_with(found));
            folders.push(found.to_owned());
        }
    }
    let files = |path: String| {
        let path = path.trim_end_matches('/').to_owned();
        let files = folder(dir, &path)?;
        Ok((path, files))
    };
    folders.into_iter().map(files).collect()
}

/// Every file below a folder of the repository, by its path from the root; hidden ones count.
fn files(dir: &Path, below: &str) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut open = vec![below.to_owned()];
    while let Some(path) = open.pop() {
        let folder = dir.join(&path);
        if !folder.exists() {
            continue;
        }
        let context = || format!("cannot read {}", folder.display());
        for entry in fs::read_dir(&folder).with_context(context)? {
            let entry = entry.with_context(context)?;
            let Ok(name) = entry.file_name().into_string() else {
                bail!("{} has a name that is no text", entry.path().display());
            };
            let name = format!("{path}/{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push(name);
            } else if kind.is_file() {
                found.insert(name, entry.path());
            } else {
                bail!("{} is no plain file: remove it", entry.path().display());
            }
        }
    }
    Ok(found)
}
