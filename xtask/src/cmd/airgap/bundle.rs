//! `airgap bundle`: archives, lists and checksums made from the OCI layout; with `--base`, deltas to a former release.

use std::path::{Path, PathBuf};

use airgap::{bundle, delta, lists, medium, pack, zstd};
use anyhow::{Context as _, ensure};
use archive::{digest::sha256, layout::Layout};
use serde_json::{Value, json};

use crate::{
    arch::{Arch, Arches},
    tree::Tree,
    ui,
};

/// Write one archive per architecture, image lists and checksums, or deltas to a former release
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask airgap bundle\n  cargo xtask airgap bundle --arch arm64 --out /tmp/dist\n  cargo xtask airgap bundle --base dist-5.0.0 --delta /tmp/delta --json"
)]
pub(super) struct Args {
    #[command(flatten)]
    arches: Arches,
    /// Directory with oci/ to read and airgap/ to write
    #[arg(long, default_value = "dist")]
    out: PathBuf,
    /// Former release: write only deltas to it, and leave airgap/ alone
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,
    /// Directory for the deltas
    #[arg(long, value_name = "DIR", default_value = "delta", requires = "base")]
    delta: PathBuf,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let arches = args.arches.list();
    let layout = read(&args.out, &arches)?;
    let (tree, dir) = if let Some(base) = &args.base {
        let base = read(base, &arches)?;
        let tree = ui::step("delta", || deltas(&base, &layout, &arches))?;
        tree.update(&args.delta, &[])?;
        (tree, &args.delta)
    } else {
        let tree = ui::step("airgap", || tree(&layout, &arches))?;
        tree.update(&args.out, &["airgap/"])?;
        (tree, &args.out)
    };
    if args.json {
        let files = tree.0.iter().map(|(path, file)| {
            json!({"path": dir.join(path), "size": file.bytes.len(), "sha256": sha256(&file.bytes).hex()})
        });
        ui::json(&files.collect::<Value>())?;
    }
    Ok(())
}

fn read(out: &Path, arches: &[Arch]) -> anyhow::Result<Layout> {
    let names: Vec<_> = arches.iter().map(|arch| arch.name()).collect();
    let dir = out.join("oci");
    Layout::read(&dir).with_context(|| {
        format!(
            "cannot read images from {}, make them with `cargo xtask images --arch {} --out {}`",
            dir.display(),
            names.join(","),
            out.display()
        )
    })
}

/// Returns everything below `airgap/`.
pub(crate) fn tree(layout: &Layout, arches: &[Arch]) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    let all_digests = lists::digests(layout);
    for arch in arches.iter().map(|arch| arch.name()) {
        let part = bundle::slice(layout, arch)?;
        let archive = delta::archive(&part)?;
        for (name, bytes) in medium::files(arch, &part, archive, &all_digests) {
            tree.add(format!("airgap/{name}"), bytes);
        }
    }
    Ok(tree)
}

fn deltas(base: &Layout, new: &Layout, arches: &[Arch]) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    for arch in arches.iter().map(|arch| arch.name()) {
        let slice = |layout: &Layout| bundle::slice(layout, arch);
        let (old, new) = (slice(base)?, slice(new)?);
        ensure!(
            old != new,
            "nothing is new for {arch}: --base is this release"
        );
        let entries = delta::make(&old, &new)?;
        let (bytes, packed) = pack::bytes(&entries, zstd::ARCHIVE)?;
        let name = format!("multus-airgap-delta-{arch}.tar.zst");
        ui::note(&format!("{name}: {} bytes", bytes.len()));
        let sums = lists::sums([(name.as_str(), packed.digest)]);
        tree.add(format!("sha256sum-{arch}.txt"), sums);
        tree.add(name, bytes);
    }
    Ok(tree)
}
