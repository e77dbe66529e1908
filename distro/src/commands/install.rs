//! `install`: writes a systemd drop-in that starts the distro through this program; `--remove` deletes it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use cmdline::{BadUsage, absolute};
use node::{root::Root, runtime::HINT};

use super::{note, print};
use crate::{
    config,
    plan::Distro,
    program,
    service::{self, Service},
    stage, unit,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro install\n  multus-distro install --unit k3s-agent.service\n  multus-distro install --remove\n\nRun it again when the unit changes, as an installation script of the distro does; doctor reports it."
)]
pub(crate) struct Args {
    /// The unit, where this node has several, or one of another name
    #[arg(long)]
    unit: Option<String>,
    /// The distro, where this node has both
    #[arg(long, value_enum)]
    distro: Option<Distro>,
    /// Delete the drop-in, and unstage
    #[arg(long)]
    remove: bool,
    /// This program's path on the node; its present path unless set
    #[arg(long, value_parser = absolute)]
    program: Option<PathBuf>,
    /// The directory that stands for the node's root
    #[arg(long, default_value = "/", value_parser = absolute)]
    root: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let root = Root::open(&args.root)?;
    let service = service::find(&root, args.distro, args.unit.as_deref())
        .map_err(|error| BadUsage(format!("{error:#}")))?
        .context("no unit of K3s or RKE2 is installed: install the distro first, or name its unit with --unit")?;
    if args.remove {
        return remove(args, &root, &service);
    }
    let program = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("cannot find this program's own path")?,
    };
    let text = unit::drop_in(&program, &service.command)
        .with_context(|| format!("cannot make a drop-in for {}", service.name))?;
    let path = service.drop_in_path();
    if service.drop_in.as_deref() == Some(&text) {
        note(&format!("{} is up to date", path.display()));
        return Ok(());
    }
    let parent = path.parent().context("a drop-in is in a directory")?;
    root.make_dirs(parent, 0o755)?;
    root.write_atomic(&path, text.as_bytes(), 0o644)?;
    print(&format!("{}\n", path.display()))?;
    note_next_step(&service);
    Ok(())
}

fn remove(args: &Args, root: &Root, service: &Service) -> anyhow::Result<()> {
    if service.drop_in.is_none() {
        note(&format!("{} has no drop-in of multus-distro", service.name));
        return Ok(());
    }
    if unit::role(&service.command)? == "server" {
        let settings = |file: &Path| config::read(root, file);
        let variable = |name: &str| service.variable(name);
        let program = program::read(&service.args(), variable, settings, args.distro)?;
        let data_dir = &program.data_dir;
        let plan = stage::plan_unstage(root, data_dir, false, false)?;
        for step in &plan {
            note(&format!("plan: {}", step.describe(data_dir)));
        }
        let outcome = stage::unstage(root, data_dir, &plan)?;
        outcome.notes.iter().for_each(|text| note(text));
        for path in outcome.written {
            print(&format!("{}\n", path.display()))?;
        }
    }
    let path = service.drop_in_path();
    root.remove(&path)?;
    // No daemon reads the hint without Multus.
    root.remove(HINT)?;
    // Fails, as it should, while the directory holds other drop-ins.
    if let Some(parent) = path.parent() {
        let _ = root.remove_dir(parent);
    }
    print(&format!("{}\n", path.display()))?;
    note_next_step(service);
    Ok(())
}

fn note_next_step(service: &Service) {
    note(&format!(
        "next: systemctl daemon-reload && systemctl restart {}",
        service.name
    ));
}
