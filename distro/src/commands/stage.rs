//! `stage` and `unstage`: charts and manifest beside the distro's own.

use std::path::{Path, PathBuf};

use super::print;
use crate::{
    plan::{self, Distro},
    say, stage,
    usage::absolute,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro stage --multus --distro k3s --data-dir /var/lib/rancher/k3s\n  multus-distro stage --multus --distro rke2 --data-dir /var/lib/rancher/rke2 --system-default-registry reg.example:5000"
)]
pub(crate) struct Args {
    /// Bring Multus; without it what was staged earlier is removed
    #[arg(long)]
    multus: bool,
    /// The distro's data directory, as in /var/lib/rancher/k3s
    #[arg(long, value_parser = absolute)]
    data_dir: PathBuf,
    /// The distro
    #[arg(long, value_enum)]
    distro: Distro,
    /// Registry that is put before every image
    #[arg(long, default_value = "")]
    system_default_registry: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  multus-distro unstage --data-dir /var/lib/rancher/k3s")]
pub(crate) struct Undo {
    /// The distro's data directory
    #[arg(long, value_parser = absolute)]
    data_dir: PathBuf,
    /// Remove files that were edited since, too
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if !args.multus {
        return take_away(&args.data_dir, false);
    }
    let files = plan::files(args.distro, &args.system_default_registry)?;
    list(&stage::stage(&args.data_dir, &files)?)
}

pub(crate) fn undo(args: &Undo) -> anyhow::Result<()> {
    take_away(&args.data_dir, args.force)
}

/// Nothing to remove is what was asked for, but may be a wrong directory.
fn take_away(data_dir: &Path, force: bool) -> anyhow::Result<()> {
    let removed = stage::unstage(data_dir, force)?;
    if removed.is_empty() {
        say(&format!("nothing is staged below {}", data_dir.display()));
    }
    list(&removed)
}

fn list(paths: &[PathBuf]) -> anyhow::Result<()> {
    paths
        .iter()
        .try_for_each(|path| print(&format!("{}\n", path.display())))
}
