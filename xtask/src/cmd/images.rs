//! `images`: makes an OCI layout from the definitions in `images/` and the built programs, without a container engine.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use archive::layout::Layout;
use release::image::{Definition, Release};

use crate::{
    arch::{Arch, Arches},
    programs::Binaries,
    project::{ImageNames, Project},
    sbom::Inventory,
    toolchain,
    tree::Tree,
    ui,
};

/// Write an OCI layout with a multi-arch index per image
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask build && cargo xtask images\n  cargo xtask images --arch amd64 --out /tmp/dist"
)]
pub(crate) struct Args {
    #[command(flatten)]
    arches: Arches,
    /// Directory with bin/<arch>/ to read and oci/ to write
    #[arg(long, default_value = "dist")]
    out: PathBuf,
    #[command(flatten)]
    names: ImageNames,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?.with_images(&args.names);
    let binaries = built(&args.out, &args.arches.list())?;
    toolchain::fetch_crates(&project, &[])?;
    let inventory = inventory(&project)?;
    let layout = layout(&project, &binaries, &inventory)?;
    let mut tree = Tree::default();
    tree.extend_below("oci/", layout.files().into_iter().collect());
    tree.update(&args.out, &["oci/"])?;
    for image in &layout.images {
        ui::json(image)?;
    }
    Ok(())
}

/// Reads the programs that `build` wrote.
pub(crate) fn built(out: &Path, arches: &[Arch]) -> anyhow::Result<BTreeMap<Arch, Binaries>> {
    let mut all = BTreeMap::new();
    for &arch in arches {
        let dir = out.join("bin").join(arch.name());
        if !dir.is_dir() {
            bail!(
                "{} is missing; make it with: cargo xtask build --arch {} --out {}",
                dir.display(),
                arch.name(),
                out.display()
            );
        }
        let files = Tree::read(&dir)?.0.into_iter();
        all.insert(arch, files.map(|(name, file)| (name, file.bytes)).collect());
    }
    Ok(all)
}

/// Returns the layout of the images that `images/` defines.
pub(crate) fn layout(
    project: &Project,
    binaries: &BTreeMap<Arch, Binaries>,
    inventory: &Inventory,
) -> anyhow::Result<Layout> {
    let release = Release {
        version: project.version.clone(),
        created: api::time::rfc3339(project.epoch),
        documents: inventory.licences(),
    };
    let platforms: Vec<_> = binaries
        .iter()
        .map(|(arch, programs)| (arch.platform(), programs.clone()))
        .collect();
    let mut layout = Layout::default();
    for (name, definition) in definitions(project)? {
        ui::step(&format!("image {name}"), || {
            definition
                .add_to(&mut layout, &release, &platforms)
                .with_context(|| format!("cannot make the image {name}"))
        })?;
    }
    Ok(layout)
}

/// Returns the crates of every program and image, and their licences, without a network.
pub(crate) fn inventory(project: &Project) -> anyhow::Result<Inventory> {
    Inventory::of(project, definitions(project)?)
}

/// Reads the definitions in `images/`, by the names of their directories, with the names of this build.
fn definitions(project: &Project) -> anyhow::Result<BTreeMap<String, Definition>> {
    let dir = project.root.join("images");
    let context = || format!("cannot read {}", dir.display());
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&dir).with_context(context)? {
        let entry = entry.with_context(context)?;
        let path = entry.path().join("image.json");
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let definition = Definition::parse(&bytes).with_context(|| path.display().to_string())?;
        let definition = definition.named(&project.images);
        found.insert(entry.file_name().to_string_lossy().into_owned(), definition);
    }
    Ok(found)
}
