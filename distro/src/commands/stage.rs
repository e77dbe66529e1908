//! `stage` and `unstage`: put charts and manifests next to the distro's own, and remove them.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use cmdline::{BadUsage, absolute};
use node::root::Root;

use super::{note, print};
use crate::{
    config,
    manifest::is_disabled,
    plan::{self, Distro, Server},
    program, stage,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro stage --multus --distro k3s --data-dir /var/lib/rancher/k3s\n  multus-distro stage --multus --distro rke2 --data-dir /var/lib/rancher/rke2\n\nOn a cluster of several servers, stage on each of them."
)]
pub(crate) struct StageArgs {
    /// Stage Multus; without it what was staged earlier is removed
    #[arg(long)]
    multus: bool,
    /// The distro's data directory, as in /var/lib/rancher/k3s
    #[arg(long, value_parser = absolute)]
    data_dir: PathBuf,
    /// The distro
    #[arg(long, value_enum)]
    distro: Distro,
    /// Registry that is put before every image; RKE2 puts its own there
    #[arg(long, default_value = "", value_parser = plan::registry)]
    system_default_registry: String,
    /// The server runs no agent, as in its configuration file: the jobs that install the charts run on other nodes
    #[arg(long)]
    disable_agent: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro unstage --data-dir /var/lib/rancher/k3s --dry-run\n  multus-distro unstage --data-dir /var/lib/rancher/k3s\n\nThe distro uninstalls the charts; network definitions stay. On a cluster of several servers, unstage on each of them."
)]
pub(crate) struct UnstageArgs {
    /// The distro's data directory
    #[arg(long, value_parser = absolute)]
    data_dir: PathBuf,
    /// Also remove files that were edited since
    #[arg(long)]
    force: bool,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Delete the manifests themselves, after the distro has removed everything, or to keep Multus in the cluster
    #[arg(long)]
    purge: bool,
}

pub(crate) fn run(args: &StageArgs) -> anyhow::Result<()> {
    if !args.multus {
        return unstage(&args.data_dir, false, false, false);
    }
    let root = Root::open("/")?;
    let settings = config::read(&root, &config::default_file(args.distro.as_str()))?;
    ensure_not_disabled(args.distro, &settings.values("disable"))?;
    let server = Server {
        registry: &args.system_default_registry,
        runs_agent: !args.disable_agent && program::runs_agent(&[], &settings),
    };
    let files = plan::files(args.distro, server)?;
    report(&stage::stage(&root, &args.data_dir, &files)?)
}

pub(crate) fn run_unstage(args: &UnstageArgs) -> anyhow::Result<()> {
    unstage(&args.data_dir, args.force, args.purge, args.dry_run)
}

/// Fails where the distro would remove what is staged.
pub(crate) fn ensure_not_disabled(distro: Distro, disabled: &[String]) -> anyhow::Result<()> {
    for name in plan::manifests(distro) {
        let file = format!("{name}.yaml");
        ensure!(
            !is_disabled(&file, disabled),
            BadUsage(format!(
                "{} is configured to disable {name}: take it out of its disable list, or leave out --multus",
                distro.as_str()
            ))
        );
    }
    Ok(())
}

/// Succeeds when nothing is staged, and notes it, since the directory may be the wrong one.
fn unstage(data_dir: &Path, force: bool, purge: bool, dry_run: bool) -> anyhow::Result<()> {
    let root = Root::open("/")?;
    let plan = stage::plan_unstage(&root, data_dir, force, purge)?;
    if plan.is_empty() {
        note(&format!("nothing is staged below {}", data_dir.display()));
    }
    for step in &plan {
        note(&format!("plan: {}", step.describe(data_dir)));
    }
    if dry_run {
        return Ok(());
    }
    report(&stage::unstage(&root, data_dir, &plan)?)
}

fn report(outcome: &stage::Outcome) -> anyhow::Result<()> {
    outcome.notes.iter().for_each(|text| note(text));
    outcome
        .written
        .iter()
        .try_for_each(|path| print(&format!("{}\n", path.display())))
}
