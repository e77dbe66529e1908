//! `explain PATH`: says what a release, a directory of archives, or one file of them holds. It reads files and follows the
//! digests inside archives; `verify` also compares them with each other.

mod content;
mod text;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::Serialize;

use self::content::Content;
use crate::{
    release::{self, Release},
    signatures, source,
    tree::Tree,
    ui,
};

#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// A release, a directory with archives, or one file: an archive, a list of images, checksums, or a release.json
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
    #[serde(flatten)]
    content: Content,
}

/// Prints what a path holds.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let path = args.path.as_path();
    let explained = if source::is_release(path) {
        vec![of_release(path)?]
    } else if path.is_dir() {
        of_dir(path)?
    } else {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let bytes = fs::read(path).with_context(|| {
            format!(
                "cannot read {}: name a release, its airgap directory, or a file in it",
                path.display()
            )
        })?;
        let one = of_file(&name.to_string_lossy(), &bytes);
        vec![one.with_context(|| path.display().to_string())?]
    };
    if args.json {
        return ui::json(&explained);
    }
    for one in &explained {
        ui::data(&text::of(&one.name, one.size, &one.content))?;
    }
    Ok(())
}

fn of_file(name: &str, bytes: &[u8]) -> anyhow::Result<Explained> {
    Ok(Explained {
        name: name.to_owned(),
        size: bytes.len() as u64,
        content: Content::of_file(bytes)?,
    })
}

/// Reads the description alone, since a release is large.
fn of_release(dir: &Path) -> anyhow::Result<Explained> {
    let path = dir.join(release::FILE);
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let release =
        Release::parse(&bytes).with_context(|| format!("{} is damaged", path.display()))?;
    Ok(Explained {
        name: dir.display().to_string(),
        size: release.files.iter().map(|file| file.size).sum(),
        content: Content::of_release(&release),
    })
}

fn of_dir(dir: &Path) -> anyhow::Result<Vec<Explained>> {
    let mut files = Tree::read_medium(dir, signatures::MEDIUM_LIMIT)?;
    files
        .0
        .retain(|name, _| !signatures::is_medium_signature(name));
    if !files.0.keys().any(|name| name.starts_with("sha256sum-")) {
        bail!(
            "{} is neither a release nor a directory with its airgap files: there is no {}, and no sha256sum-<architecture>.txt",
            dir.display(),
            release::FILE
        );
    }
    let explained = files.0.iter().map(|(name, file)| {
        of_file(name, &file.bytes).with_context(|| dir.join(name).display().to_string())
    });
    explained.collect()
}

#[cfg(test)]
mod tests;
