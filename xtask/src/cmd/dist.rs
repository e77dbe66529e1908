//! `dist`: a whole release in one folder, made beside its place, verified there, and only then put in place.

mod workshop;

use std::{
    collections::BTreeMap,
    fs, io,
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

use self::workshop::Workshop;
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
    sets::Places,
    shipped, talk,
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
    "completions",
    "man",
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
    refuse_foreign(&out)?;
    tree::repair(&out)?;
    let key = key(project, &arches)?;
    if is_current(project, &out, key) {
        talk::say(&format!("{} is up to date", out.display()));
        return Ok(());
    }
    // Before the long work, so that a place that cannot be written to is told at once.
    let workshop = Workshop::beside(&out)?;
    let release = assemble(project, &arches, install)?;
    put(&release, &workshop, &out)?;
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
    let layout = images::layout(project, &programs, &Places::default())?;
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
    let mut tree = charts::repository(charts, origin.epoch)?;
    tree.extend(build::tree(programs));
    tree.extend(images::tree(layout));
    tree.extend(generate::tree(&origin.version, charts)?);
    tree.extend(airgap::tree(layout, &origin.architectures)?);
    tree.extend(shipped::tree());
    let followed = archive::verify::images(layout, &::airgap::check::unpack)?;
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
    release.budgets_hold()?;
    let description = release.to_bytes()?;
    let mut sums = vec![(release::FILE, sha256(&description))];
    for file in &release.files {
        sums.push((&file.path, Digest::from_hex(&file.sha256)?));
    }
    tree.add(release::FILE, description);
    tree.add(release::SUMS, lists::sums(sums));
    Ok(())
}

/// Writes beside the place, verifies what was written, and swaps; a failure leaves the former release.
fn put(release: &Tree, workshop: &Workshop, out: &Path) -> anyhow::Result<()> {
    let new = workshop.dir.join("release");
    release.write_new(&new)?;
    talk::step("verify", || verify::folder(&new).map(drop))?;
    tree::replace(&new, out)
}

/// A folder that holds anything else than a release or parts of one is somebody's, not ours to replace.
fn refuse_foreign(out: &Path) -> anyhow::Result<()> {
    let entries = match fs::read_dir(out) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot use --out {}", out.display()));
        }
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
        let file = dir.path().join("thesis.tex");
        fs::write(&file, "").unwrap();
        let error = refuse_foreign(dir.path()).unwrap_err().to_string();
        assert!(error.contains("holds `thesis.tex`"), "{error}");
        refuse_foreign(&dir.path().join("absent")).unwrap();
        refuse_foreign(&file).unwrap_err();
    }

    #[test]
    fn what_cannot_be_shipped_leaves_the_former_release() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("dist");
        fs::create_dir(&out).unwrap();
        fs::write(out.join(release::FILE), "former").unwrap();
        // The first cannot be written, the second is no release.
        for path in ["n".repeat(300), release::SUMS.to_owned()] {
            let mut tree = Tree::default();
            tree.add("a", "1");
            tree.add(path, "2");
            let workshop = Workshop::beside(&out).unwrap();
            put(&tree, &workshop, &out).unwrap_err();
        }
        let former = fs::read_to_string(out.join(release::FILE)).unwrap();
        assert_eq!(former, "former");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_over_its_budget_is_no_release() {
        let make = |size: usize| {
            let origin = Origin {
                version: "5.0.0".to_owned(),
                commit: String::new(),
                epoch: 0,
                toolchain: String::new(),
                architectures: vec![Arch::Arm],
            };
            let mut tree = Tree::default();
            let name = "airgap/multus-airgap-images-arm.tar.zst";
            tree.add(name, vec![0; size]);
            let outcome = describe(origin, &mut tree, &[], Vec::new());
            (outcome.map_err(|error| error.to_string()), tree)
        };
        let (outcome, tree) = make(3_000_000);
        assert_eq!(outcome, Ok(()));
        let release = Release::parse(tree.get(release::FILE).unwrap()).unwrap();
        assert_eq!(release.budgets[0].limit, 3_000_000);
        let (outcome, tree) = make(3_000_001);
        let expected =
            "airgap/multus-airgap-images-arm.tar.zst has 3000001 bytes, its budget is 3000000";
        assert_eq!(outcome, Err(expected.to_owned()));
        assert_eq!(tree.0.len(), 1);
    }
}
