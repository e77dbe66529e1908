//! `airgap apply`: rebuilds a full archive from a former one and a delta, bit by bit the same.

use std::path::{Path, PathBuf};

use airgap::{check, delta};
use anyhow::{Context as _, bail};
use archive::{layout::Layout, tar::Entry};

use crate::{tree::Tree, ui};

/// Rebuild a full archive from a former one and a delta
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  cargo xtask airgap apply --base old/multus-airgap-images-amd64.tar.zst multus-airgap-delta-amd64.tar.zst --out multus-airgap-images-amd64.tar.zst"
)]
pub(super) struct Args {
    /// Delta to the former release
    delta: PathBuf,
    /// Archive of the former release, in either form
    #[arg(long, value_name = "FILE")]
    base: PathBuf,
    /// File to write, whose name ends in .tar.zst or .tar.gz
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let name = args.out.to_string_lossy().into_owned();
    let is_zst = name.ends_with(".tar.zst");
    if !is_zst && !name.ends_with(".tar.gz") {
        bail!("--out is {name}: end its name in .tar.zst or .tar.gz");
    }
    let base = Layout::from_entries(entries(&args.base)?)
        .with_context(|| args.base.display().to_string())?;
    let patch = entries(&args.delta)?;
    let archive = ui::step("apply", || Ok(delta::apply(&base, &patch)?))
        .with_context(|| args.delta.display().to_string())?;
    let (bytes, digest) = if is_zst {
        (archive.zst, archive.full.zst)
    } else {
        (archive.gz, archive.full.gz)
    };
    let mut tree = Tree::default();
    let file = args.out.file_name().context("--out names no file")?;
    tree.add(file.to_string_lossy(), bytes);
    let dir = args.out.parent().unwrap_or(Path::new("."));
    tree.update(dir, &[])?;
    ui::data(&format!("{}  {name}\n", digest.hex()))
}

fn entries(path: &Path) -> anyhow::Result<Vec<Entry>> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    Ok(check::read(&name, &bytes)?)
}
