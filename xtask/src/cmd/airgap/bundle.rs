//! `airgap bundle`: archives, lists and checksums made from the OCI layout.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use archive::{digest::sha256, layout::Layout};
use release::{
    medium::{self, ProgramsByArch},
    source::{self, Source},
};
use serde_json::{Value, json};

use crate::{
    arch::{Arch, Arches},
    tree::Tree,
    ui,
};

/// Write one archive per architecture, image lists and checksums
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask airgap bundle\n  cargo xtask airgap bundle --arch arm64 --out /tmp/dist --json"
)]
pub(super) struct Args {
    #[command(flatten)]
    arches: Arches,
    /// Directory with oci/ to read and airgap/ to write
    #[arg(long, default_value = "dist")]
    out: PathBuf,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let arches = args.arches.list();
    let layout = read(&args.out, &arches)?;
    let programs = programs(&args.out, &arches);
    let medium = ui::step("airgap", || medium::tree(&layout, &arches, &programs))?;
    let mut tree = Tree::default();
    tree.extend_below("airgap/", medium);
    tree.update(&args.out, &["airgap/"])?;
    if args.json {
        let files = tree.0.iter().map(|(path, file)| {
            json!({"path": args.out.join(path), "size": file.bytes.len(), "sha256": sha256(&file.bytes).hex()})
        });
        ui::json(&files.collect::<Value>())?;
    }
    Ok(())
}

fn read(out: &Path, arches: &[Arch]) -> anyhow::Result<Layout> {
    let dir = out.join("oci");
    Layout::read(&dir).with_context(|| {
        let names: Vec<_> = arches.iter().map(|arch| arch.name()).collect();
        format!(
            "cannot read images from {}, make them with `cargo xtask images --arch {} --out {}`",
            dir.display(),
            names.join(","),
            out.display()
        )
    })
}

/// Returns the programs for operators in a release, and says which are missing.
fn programs(out: &Path, arches: &[Arch]) -> ProgramsByArch {
    let found = Source::Release(out.to_owned()).programs();
    for arch in arches.iter().map(|arch| arch.name()) {
        if !found.contains_key(arch) {
            ui::note(&format!(
                "{} has no bin/{arch}/{}, so it is left out of airgap/: make it with `cargo xtask build`",
                out.display(),
                source::PROGRAM
            ));
        }
    }
    found
}
