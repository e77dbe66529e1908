//! `airgap bundle`: archives, lists and checksums, cut from the OCI layout.

use std::path::PathBuf;

use airgap::{bundle, lists, zstd};
use anyhow::Context as _;
use archive::{digest::sha256, gzip, layout::Layout};

use crate::{
    arch::{Arch, Arches},
    talk,
    tree::Tree,
};

/// Make what carries images to nodes without a network
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Bundle(Bundle),
}

/// Write one archive per architecture, image lists and checksums
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask airgap bundle\n  cargo xtask airgap bundle --arch arm64 --out /tmp/dist"
)]
struct Bundle {
    #[command(flatten)]
    arches: Arches,
    /// Folder with oci/ to read and airgap/ to write
    #[arg(long, default_value = "dist")]
    out: PathBuf,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Command::Bundle(args) = &args.command;
    let arches = args.arches.list();
    let names: Vec<_> = arches.iter().map(|arch| arch.name()).collect();
    let dir = args.out.join("oci");
    let unusable = || {
        format!(
            "cannot take images from {}, make them with `cargo xtask images --arch {} --out {}`",
            dir.display(),
            names.join(","),
            args.out.display()
        )
    };
    let layout = Layout::read(&dir).with_context(unusable)?;
    let tree = talk::step("airgap", || tree(&layout, &arches)).with_context(unusable)?;
    tree.update(&args.out, &["airgap/"])
}

/// The name of an architecture's archive, without what says how it is compressed.
pub(crate) fn archive_name(arch: &str) -> String {
    format!("multus-airgap-images-{arch}.tar")
}

/// Everything below `airgap/`.
pub(crate) fn tree(layout: &Layout, arches: &[Arch]) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    tree.add("airgap/multus-images.txt", lists::references(layout));
    for arch in arches.iter().map(|arch| arch.name()) {
        let files = archives(layout, arch)?;
        let sums = files
            .iter()
            .map(|(name, bytes)| (name.as_str(), sha256(bytes)));
        tree.add(format!("airgap/sha256sum-{arch}.txt"), lists::sums(sums));
        for (name, bytes) in files {
            tree.add(format!("airgap/{name}"), bytes);
        }
    }
    Ok(tree)
}

fn archives(layout: &Layout, arch: &str) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let part = bundle::slice(layout, arch)?;
    let tar = bundle::archive(&part)?;
    let name = archive_name(arch);
    let packed = zstd::compress(&tar, zstd::ARCHIVE).context("cannot compress the archive")?;
    Ok(vec![
        (format!("{name}.zst"), packed),
        (format!("{name}.gz"), gzip::compress(&tar)),
        (
            format!("multus-images.linux-{arch}.txt"),
            lists::references(&part).into_bytes(),
        ),
    ])
}
