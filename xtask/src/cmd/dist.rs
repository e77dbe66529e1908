//! `dist`: makes a complete release in a staging directory, verifies it there, and only then puts it in its place.

mod staging_dir;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use archive::{
    digest::{Digest, sha256},
    layout::Layout,
};
use chart::index::Packed;
use cmdline::counted;
use release::{
    compose::{self, Parts},
    parts,
    signatures::{self, Trust},
    verify::{self, Standard},
    workstation::Plugins,
};
use serde::{Deserialize, Serialize};

use self::staging_dir::StagingDir;
use crate::{
    arch::{Arch, Arches},
    budgets, charts,
    cmd::{
        build::{self, workstations::Workstations},
        checkout, images,
    },
    description::{self, Origin},
    pages,
    programs::Binaries,
    project::{ImageNames, PACKING, PROGRAMS, Project},
    sbom::{self, Inventory},
    toolchain,
    tree::{self, Tree},
    ui,
};

/// Make the complete release and verify it
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask dist --install\n  cargo xtask dist --arch amd64 --out /tmp/dist\n  cargo xtask dist --workstations --install          with kubectl-multus for macOS and Windows\n  cargo xtask dist --image-prefix registry.example/team/hardened-\n  MULTUS_TRUSTED_KEY=release.pub cargo xtask dist       nodes install images that this key signed, and no others"
)]
pub(crate) struct Args {
    #[command(flatten)]
    arches: Arches,
    /// Directory of the release
    #[arg(long, default_value = "dist")]
    out: PathBuf,
    #[command(flatten)]
    workstations: Workstations,
    /// Install what is missing: Rust targets, the sources of Rust's standard library, and the C compiler
    #[arg(long)]
    install: bool,
    #[command(flatten)]
    names: ImageNames,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    make(
        &Project::open()?.with_images(&args.names),
        &args.arches,
        args.workstations,
        &args.out,
        args.install,
    )
}

/// Makes a release in `out`, unless the one there is current.
pub(crate) fn make(
    project: &Project,
    arches: &Arches,
    workstations: Workstations,
    out: &Path,
    install: bool,
) -> anyhow::Result<()> {
    let out = std::path::absolute(out)?;
    let arches = arches.list();
    refuse_foreign(&out)?;
    tree::repair(&out)?;
    let before = key(project, &arches, workstations)?;
    if before.is_some_and(|key| is_current(project, &out, key)) {
        ui::note(&format!("{} is up to date", out.display()));
        return Ok(());
    }
    // Made before the long work, so that a path that cannot be written to is reported at once.
    let staging = StagingDir::next_to(&out)?;
    let release = assemble(project, &arches, workstations, install)?;
    put(&release, &staging, &out)?;
    if let Some(key) = key(project, &arches, workstations)? {
        write_cache(project, &out, key, &release)?;
    }
    ui::note(&format!(
        "{} holds {} for {}",
        out.display(),
        counted(release.0.len(), "file"),
        arches
            .iter()
            .map(|arch| arch.name())
            .collect::<Vec<_>>()
            .join(", ")
    ));
    if arches.len() < Arch::ALL.len() {
        ui::note(
            "its charts select nodes of all architectures: set their value `architectures` if a cluster has nodes of another one",
        );
    }
    if project.is_dirty() {
        ui::note(
            "made from uncommitted changes, so that `cargo xtask verify` refuses it without --allow-dirty",
        );
    }
    Ok(())
}

/// Makes all parts in order: what is fetched → chart → programs → images → generate → airgap → lists of what is inside.
fn assemble(
    project: &Project,
    arches: &[Arch],
    workstations: Workstations,
    install: bool,
) -> anyhow::Result<Tree> {
    // What needs a network, and what fails soon, comes before the long work.
    ui::step("fetch", || {
        build::fetch(project, arches, workstations, install)
    })?;
    let charts = ui::step("charts", || charts::pack(project.settings()))?;
    let inventory = ui::step("crates and licences", || images::inventory(project))?;
    let (programs, build) = build::all(project, arches)?;
    let plugins = workstations.build(project)?;
    let layout = images::layout(project, &programs, &inventory)?;
    let origin = Origin {
        version: project.version.clone(),
        commit: project.commit.clone(),
        epoch: project.epoch,
        toolchain: project.toolchain.clone(),
        trusted_key: project.trusted_key.as_ref().map(|key| key.id),
        build: Some(build),
        architectures: arches.to_vec(),
        image_prefix: project.images.clone(),
    };
    ui::step("generate and airgap", || {
        compose(origin, &charts, (&programs, &plugins), &layout, &inventory)
    })
}

/// Returns all files of a release of this checkout; the second part of the programs are those for workstations.
pub(crate) fn compose(
    origin: Origin,
    charts: &[Packed],
    (programs, plugins): (&BTreeMap<Arch, Binaries>, &Plugins),
    layout: &Layout,
    inventory: &Inventory,
) -> anyhow::Result<Tree> {
    compose::compose(Parts {
        origin,
        charts,
        programs,
        plugins,
        layout,
        licences: inventory.licences(),
        pages: pages::tree(),
        sbom: &|release| sbom::documents(inventory, release),
        budgets: budgets::of,
    })
}

/// Writes the release into the staging directory, verifies it, and swaps; a failure leaves the former release.
fn put(release: &Tree, staging: &StagingDir, out: &Path) -> anyhow::Result<()> {
    let new = staging.dir.join("release");
    release.write_new(&new)?;
    let checkout = checkout();
    ui::step("verify", || {
        verify::dir(&new, &Trust::default(), |_| Standard::Checkout(&checkout)).map(drop)
    })?;
    tree::replace(&new, out)
}

/// Fails when the directory holds anything but a release or parts of one, which must not be replaced.
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
        if !name.to_str().is_some_and(parts::is_top_level) {
            bail!(
                "{} holds `{}`, which is not part of a release; give --out a new directory",
                out.display(),
                name.display()
            );
        }
    }
    Ok(())
}

/// The key of the last run's inputs, and the digest of its checksums.
#[derive(Serialize, Deserialize)]
struct CacheEntry {
    key: Digest,
    sums: Digest,
}

/// Returns a hash over everything that the release follows from, or `None` when a tool is not installed.
fn key(
    project: &Project,
    arches: &[Arch],
    workstations: Workstations,
) -> anyhow::Result<Option<Digest>> {
    let dirs = [PROGRAMS, PACKING].concat();
    let epoch = project.epoch.to_string();
    let Some(build) = toolchain::record(project, arches)? else {
        return Ok(None);
    };
    let build = serde_json::to_string(&build)?;
    let images = project.images.to_string();
    let trusted_key = project.trusted_key.as_ref().map(|key| key.id.hex());
    let mut more = vec![project.commit.as_str(), &epoch, &build, &images];
    more.extend(trusted_key.as_deref());
    more.extend(arches.iter().map(|arch| arch.name()));
    more.extend(
        workstations
            .list()
            .iter()
            .map(|workstation| workstation.name()),
    );
    project.key(&dirs, &more).map(Some)
}

fn cache_name(out: &Path) -> String {
    let path = sha256(out.as_os_str().as_encoded_bytes()).hex();
    format!("dist-{}.json", &path[..16])
}

/// Returns whether the directory still is, with every byte and mode, what the last run with the same sources wrote.
fn is_current(project: &Project, out: &Path, key: Digest) -> bool {
    let Ok(bytes) = fs::read(project.cache_dir().join(cache_name(out))) else {
        return false;
    };
    let Ok(entry) = serde_json::from_slice::<CacheEntry>(&bytes) else {
        return false;
    };
    let Ok(mut tree) = Tree::read(out) else {
        return false;
    };
    // A release may be signed since.
    signatures::take(&mut tree);
    let sums = tree.get(description::SUMS).unwrap_or_default();
    entry.key == key && entry.sums == sha256(sums) && verify::check_described(&tree).is_ok()
}

fn write_cache(project: &Project, out: &Path, key: Digest, release: &Tree) -> anyhow::Result<()> {
    let entry = CacheEntry {
        key,
        sums: sha256(release.get(description::SUMS).unwrap_or_default()),
    };
    let mut tree = Tree::default();
    tree.add(cache_name(out), serde_json::to_vec(&entry)?);
    tree.update(&project.cache_dir(), &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_with_other_files_is_left_alone() {
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
    fn failure_leaves_the_former_release() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("dist");
        fs::create_dir(&out).unwrap();
        fs::write(out.join(description::FILE), "former").unwrap();
        // The first cannot be written, the second is not a release.
        for path in ["n".repeat(300), description::SUMS.to_owned()] {
            let mut tree = Tree::default();
            tree.add("a", "1");
            tree.add(path, "2");
            let staging = StagingDir::next_to(&out).unwrap();
            put(&tree, &staging, &out).unwrap_err();
        }
        let former = fs::read_to_string(out.join(description::FILE)).unwrap();
        assert_eq!(former, "former");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
