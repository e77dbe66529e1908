//! `stage` and `unstage`: charts and manifest beside the distro's own.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use cmdline::absolute;
use node::root::Root;

use super::print;
use crate::{
    config,
    manifest::is_disabled,
    plan::{self, Distro},
    say, stage,
    usage::BadUsage,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro stage --multus --distro k3s --data-dir /var/lib/rancher/k3s\n  multus-distro stage --multus --distro rke2 --data-dir /var/lib/rancher/rke2\n\nOn a cluster of several servers, stage on each of them."
)]
pub(crate) struct Args {
    /// Bring Multus; without it what was staged earlier is taken away
    #[arg(long)]
    multus: bool,
    /// The distro's data directory, as in /var/lib/rancher/k3s
    #[arg(long, value_parser = absolute)]
    data_dir: PathBuf,
    /// The distro
    #[arg(long, value_enum)]
    distro: Distro,
    /// Registry that is put before every image; RKE2 puts its own there
    #[arg(long, default_value = "")]
    system_default_registry: String,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro unstage --data-dir /var/lib/rancher/k3s --dry-run\n  multus-distro unstage --data-dir /var/lib/rancher/k3s\n\nThe distro uninstalls the charts; definitions of networks stay. On a cluster of several servers, unstage on each of them."
)]
pub(crate) struct Undo {
    /// The distro's data directory
    #[arg(long, value_parser = absolute)]
    data_dir: PathBuf,
    /// Files that were edited since, too
    #[arg(long)]
    force: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Delete the manifests themselves, once the distro has taken everything away, or to leave it in the cluster
    #[arg(long)]
    purge: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if !args.multus {
        return take_away(&args.data_dir, false, false, false);
    }
    let settings = config::read(
        &Root::open("/")?,
        &config::default_file(args.distro.as_str()),
    )?;
    is_not_disabled(args.distro, &settings.words("disable"))?;
    let files = plan::files(args.distro, &args.system_default_registry)?;
    tell(&stage::stage(&args.data_dir, &files)?)
}

pub(crate) fn undo(args: &Undo) -> anyhow::Result<()> {
    take_away(&args.data_dir, args.force, args.purge, args.dry_run)
}

/// Fails where the distro would remove what is staged.
pub(crate) fn is_not_disabled(distro: Distro, words: &[String]) -> anyhow::Result<()> {
    for name in plan::manifests(distro) {
        let file = format!("{name}.yaml");
        ensure!(
            !is_disabled(&file, words),
            BadUsage(format!(
                "{} is told to disable {name}: take it out of its disable list, or leave out --multus",
                distro.as_str()
            ))
        );
    }
    Ok(())
}

/// Nothing to remove is what was asked for, but may be a wrong directory.
fn take_away(data_dir: &Path, force: bool, purge: bool, dry_run: bool) -> anyhow::Result<()> {
    let plan = stage::plan_off(data_dir, force, purge)?;
    if plan.is_empty() {
        say(&format!("nothing is staged below {}", data_dir.display()));
    }
    for undo in &plan {
        say(&format!("plan: {}", undo.describe(data_dir)));
    }
    if dry_run {
        return Ok(());
    }
    tell(&stage::take_away(data_dir, &plan)?)
}

fn tell(done: &stage::Done) -> anyhow::Result<()> {
    done.notes.iter().for_each(|note| say(note));
    done.written
        .iter()
        .try_for_each(|path| print(&format!("{}\n", path.display())))
}
