//! `explain PATH`: says what a release, a directory of archives, or one file of them holds, and what it is for. It reads files and
//! follows the digests inside archives; `verify` also compares them with each other.

mod content;
mod text;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use archive::lists;

use release::{
    description::{self, Release},
    parts::{self, Part},
    signatures, source,
    tree::Tree,
};
use serde::Serialize;

use self::content::Content;
use crate::ui;

#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// A release, a directory with archives, or any file of them
    path: PathBuf,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// One file, or all files of a directory.
#[derive(Debug, Serialize)]
struct Explained {
    name: String,
    size: u64,
    /// The row of the table of parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<&'static Part>,
    #[serde(flatten)]
    content: Content,
}

/// Prints what a path holds.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let path = args.path.as_path();
    let explained = if source::is_release(path) {
        vec![explain_release(path)?]
    } else if path.is_dir() {
        explain_dir(path)?
    } else {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy();
        let bytes = fs::read(path).with_context(|| {
            format!(
                "cannot read {}: name a release, its airgap directory, or a file in it",
                path.display()
            )
        })?;
        let one = explain_file(&name, &bytes, part_of(path, &name));
        vec![one.with_context(|| path.display().to_string())?]
    };
    if args.json {
        return ui::json(&explained);
    }
    for one in &explained {
        ui::data(&text::of(one))?;
    }
    Ok(())
}

/// Returns the row of a file: by its path in the release that has it, or by its name.
fn part_of(path: &Path, name: &str) -> Option<&'static Part> {
    let path = std::path::absolute(path).ok()?;
    let release = path.ancestors().skip(1).find(|dir| source::is_release(dir));
    match release.and_then(|dir| path.strip_prefix(dir).ok()) {
        Some(inside) => parts::of(inside.to_str()?),
        None => parts::named(name),
    }
}

fn explain_file(
    name: &str,
    bytes: &[u8],
    part: Option<&'static Part>,
) -> anyhow::Result<Explained> {
    Ok(Explained {
        name: name.to_owned(),
        size: bytes.len() as u64,
        part,
        content: Content::from_file(bytes, part)?,
    })
}

/// Reads the description alone, since a release is large.
fn explain_release(dir: &Path) -> anyhow::Result<Explained> {
    let path = dir.join(description::FILE);
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let release =
        Release::parse(&bytes).with_context(|| format!("{} is damaged", path.display()))?;
    Ok(Explained {
        name: dir.display().to_string(),
        size: release.files.iter().map(|file| file.size).sum(),
        part: None,
        content: Content::from_release(&release),
    })
}

fn explain_dir(dir: &Path) -> anyhow::Result<Vec<Explained>> {
    let mut files = Tree::read_medium(dir, signatures::MEDIUM_LIMIT)?;
    files
        .0
        .retain(|name, _| !signatures::is_medium_signature(name));
    let mut names = files.0.keys();
    if !names.any(|name| lists::architecture_of_sums(name).is_some()) {
        bail!(
            "{} is neither a release nor a directory with its airgap files: there is no {}, and no sha256sum-<architecture>.txt",
            dir.display(),
            description::FILE
        );
    }
    let explained = files.0.iter().map(|(name, file)| {
        let part = parts::of(&format!("airgap/{name}"));
        explain_file(name, &file.bytes, part).with_context(|| dir.join(name).display().to_string())
    });
    explained.collect()
}

#[cfg(test)]
mod tests;
