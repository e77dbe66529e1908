//! `stage` and `unstage`: charts and manifest beside the distro's own.

use std::path::PathBuf;

use super::print;
use crate::{
    plan::{self, Distro},
    stage,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Bring Multus; without it what was staged earlier is removed
    #[arg(long)]
    multus: bool,
    /// The distro's data directory, as in /var/lib/rancher/k3s
    #[arg(long)]
    data_dir: PathBuf,
    /// The distro
    #[arg(long, value_enum)]
    distro: Distro,
    /// Registry that is put before every image
    #[arg(long, default_value = "")]
    system_default_registry: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Undo {
    /// The distro's data directory
    #[arg(long)]
    data_dir: PathBuf,
    /// Remove files that were edited since, too
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let paths = if args.multus {
        stage::stage(
            &args.data_dir,
            &plan::files(args.distro, &args.system_default_registry)?,
        )?
    } else {
        stage::unstage(&args.data_dir, false)?
    };
    list(&paths)
}

pub(crate) fn undo(args: &Undo) -> anyhow::Result<()> {
    list(&stage::unstage(&args.data_dir, args.force)?)
}

fn list(paths: &[PathBuf]) -> anyhow::Result<()> {
    paths
        .iter()
        .try_for_each(|path| print(&format!("{}\n", path.display())))
}
