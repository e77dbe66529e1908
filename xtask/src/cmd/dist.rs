//! `dist`: a whole release in one folder, made beside its place, verified there, and only then put in place.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use ::airgap::lists;
use anyhow::{Context as _, bail};
use archive::{
    digest::{Digest, sha256},
    layout::Layout,
    verify::Image,
};
use chart::index::Packed;
use serde::{Deserialize, Serialize};

use crate::{
    arch::{Arch, Arches},
    charts,
    cmd::{
        airgap,
        build::{self, Binaries},
        generate, images,
    },
    project::{PACKING, PROGRAMS, Project},
    release::{self, ChartEntry, Origin, Release},
    talk,
    tree::{self, Tree},
    verify,
};

/// Make the whole release and verify it
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask dist --install\n  cargo xtask dist --arch amd64 --out /tmp/dist"
)]
pub(crate) struct Args {
    #[command(flatten)]
    arches: Arches,
    /// Folder of the release
    #[arg(long, default_value = "dist")]
    out: PathBuf,
    /// Get missing Rust targets and, as root on Debian, C compilers
    #[arg(long)]
    install: bool,
}

/// What may stand in a folder that a release replaces.
const OURS: &[&str] = &[
    "airgap",
    "bin",
    "bindata",
    "charts",
    "manifests",
    "oci",
    release::FILE,
    release::SUMS,
];

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    make(&Project::open()?, &args.arches, &args.out, args.install)
}

/// Makes a release in `out`, unless it is there already.
pub(crate) fn make(
    project: &Project,
    arches: &Arches,
    out: &Path,
    install: bool,
) -> anyhow::Result<()> {
    let out = std::path::absolute(out)?;
    let arches = arches.list();
    tree::repair(&out)?;
    refuse_foreign(&out)?;
    let key = key(project, &arches)?;
    if is_current(project, &out, key) {
        talk::say(&format!("{} is up to date", out.display()));
        return Ok(());
    }
    let release = assemble(project, &arches, install)?;
    put(&release, &out)?;
    remember(project, &out, key, &release)?;
    talk::say(&format!(
        "{} holds {} files for {}",
        out.display(),
        release.0.len(),
        arches
            .iter()
            .map(|arch| arch.name())
            .collect::<Vec<_>>()
            .join(", ")
    ));
    Ok(())
}

/// Everything in order: chart → programs → images → generate → airgap.
fn assemble(project: &Project, arches: &[Arch], install: bool) -> anyhow::Result<Tree> {
    let charts = talk::step("charts", || charts::pack(project.version))?;
    let programs = build::all(project, arches, install)?;
    let layout = images::layout(project, &programs)?;
    let origin = Origin {
        version: project.version.to_owned(),
        commit: project.commit.clone(),
        epoch: project.epoch,
        toolchain: project.toolchain.clone(),
        architectures: arches.to_vec(),
    };
    talk::step("generate and airgap", || {
        compose(origin, &charts, &programs, &layout)
    })
}

/// All files of a release from its parts.
pub(crate) fn compose(
    origin: Origin,
    charts: &[Packed],
    programs: &BTreeMap<Arch, Binaries>,
    layout: &Layout,
) -> anyhow::Result<Tree> {
    let mut tree = charts::repository(charts, origin.epoch);
    tree.extend(build::tree(programs));
    tree.extend(images::tree(layout));
    tree.extend(generate::tree(&origin.version, charts)?);
    tree.extend(airgap::tree(layout, &origin.architectures)?);
    let followed = archive::verify::images(layout, &verify::unpack)?;
    describe(origin, &mut tree, &followed, charts::entries(charts))?;
    Ok(tree)
}

/// Adds the two files that describe all others.
pub(crate) fn describe(
    origin: Origin,
    tree: &mut Tree,
    images: &[Image],
    charts: Vec<ChartEntry>,
) -> anyhow::Result<()> {
    let release = Release::of(origin, tree, images, charts);
    tree.add(release::FILE, release.to_bytes()?);
    let files = tree.0.iter().filter(|(path, _)| *path != release::SUMS);
    let sums = files.map(|(path, file)| (path.as_str(), sha256(&file.bytes)));
    let sums = lists::sums(sums);
    tree.add(release::SUMS, sums);
    Ok(())
}

/// Writes beside the place, verifies what was written, and swaps; a failure leaves the former release.
fn put(release: &Tree, out: &Path) -> anyhow::Result<()> {
    let parent = out
        .parent()
        .context("a release needs a folder of its own")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let staging = tempfile::Builder::new()
        .prefix(".dist-")
        .tempdir_in(parent)
        .with_context(|| format!("cannot write in {}", parent.display()))?;
    let new = staging.path().join("new");
    release.write_new(&new)?;
    talk::step("verify", || verify::folder(&new).map(drop))?;
    tree::replace(&new, out)
}

/// A folder that holds anything else than a release or parts of one is somebody's, not ours to replace.
fn refuse_foreign(out: &Path) -> anyhow::Result<()> {
    let Ok(entries) = fs::read_dir(out) else {
        return Ok(());
    };
    for entry in entries {
        let name = entry?.file_name();
        if !OURS.iter().any(|ours| name == *ours) {
            bail!(
                "{} holds `{}`, which is no part of a release; give --out a new folder",
                out.display(),
                name.display()
            );
        }
    }
    Ok(())
}

/// What the last run read and made.
#[derive(Serialize, Deserialize)]
struct Memory {
    key: Digest,
    sums: Digest,
}

fn key(project: &Project, arches: &[Arch]) -> anyhow::Result<Digest> {
    let folders = [PROGRAMS, PACKING].concat();
    let epoch = project.epoch.to_string();
    let mut more = vec![project.commit.as_str(), &epoch];
    more.extend(arches.iter().map(|arch| arch.name()));
    project.key(&folders, &more)
}

fn memory_name(out: &Path) -> String {
    let place = sha256(out.as_os_str().as_encoded_bytes()).hex();
    format!("dist-{}.json", &place[..16])
}

/// Whether the folder still is, to the byte, what the last run with the same sources wrote.
fn is_current(project: &Project, out: &Path, key: Digest) -> bool {
    let Ok(bytes) = fs::read(project.memory().join(memory_name(out))) else {
        return false;
    };
    let Ok(memory) = serde_json::from_slice::<Memory>(&bytes) else {
        return false;
    };
    let Ok(tree) = Tree::read(out) else {
        return false;
    };
    let sums = tree.get(release::SUMS).unwrap_or_default();
    memory.key == key && memory.sums == sha256(sums) && verify::sums_hold(&tree).is_ok()
}

fn remember(project: &Project, out: &Path, key: Digest, release: &Tree) -> anyhow::Result<()> {
    let memory = Memory {
        key,
        sums: sha256(release.get(release::SUMS).unwrap_or_default()),
    };
    let mut tree = Tree::default();
    tree.add(memory_name(out), serde_json::to_vec(&memory)?);
    tree.update(&project.memory(), &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_somebody_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("bin")).unwrap();
        refuse_foreign(dir.path()).unwrap();
        fs::write(dir.path().join("thesis.tex"), "").unwrap();
        let error = refuse_foreign(dir.path()).unwrap_err().to_string();
        assert!(error.contains("holds `thesis.tex`"), "{error}");
        refuse_foreign(&dir.path().join("absent")).unwrap();
    }
}
