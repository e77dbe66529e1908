//! `install`: a systemd drop-in that starts the distro through this program, and none any more with `--remove`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use cmdline::absolute;
use node::{root::Root, runtime::HINT};

use super::{print, server::forget_hint};
use crate::{
    config,
    plan::Distro,
    program, say,
    service::{self, Service},
    stage,
    unit::{self, words},
    usage::BadUsage,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro install\n  multus-distro install --unit k3s-agent.service\n  multus-distro install --remove\n\nRun it again when the unit changes, as an installation script of the distro does; doctor tells."
)]
pub(crate) struct Args {
    /// The unit, where this node has several, or one of another name
    #[arg(long)]
    unit: Option<String>,
    /// The distro, where this node has both
    #[arg(long, value_enum)]
    distro: Option<Distro>,
    /// Take the drop-in away, and with it what is staged
    #[arg(long)]
    remove: bool,
    /// This program's place on the node; where it is now, without it
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
        None => std::env::current_exe().context("where this program is cannot be seen")?,
    };
    let text = unit::drop_in(&program, &service.command)
        .with_context(|| format!("{} cannot be changed", service.name))?;
    let place = service.place();
    if service.drop_in.as_deref() == Some(&text) {
        say(&format!("{} is as it should be", place.display()));
        return Ok(());
    }
    let parent = place.parent().context("a drop-in lies in a directory")?;
    root.make_dirs(parent, 0o755)?;
    root.write_atomic(&place, text.as_bytes(), 0o644)?;
    print(&format!("{}\n", place.display()))?;
    next(&service);
    Ok(())
}

fn remove(args: &Args, root: &Root, service: &Service) -> anyhow::Result<()> {
    if service.drop_in.is_none() {
        say(&format!("{} has no drop-in of ours", service.name));
        return Ok(());
    }
    if unit::role(&service.command)? == "server" {
        let words = words(&service.command);
        let settings = |file: &Path| config::read(root, file);
        let program = program::read(&words, |_| None, settings, args.distro)?;
        let data_dir = below(&args.root, &program.data_dir);
        let plan = stage::plan_off(&data_dir, false, false)?;
        for undo in &plan {
            say(&format!("plan: {}", undo.describe(&data_dir)));
        }
        let done = stage::take_away(&data_dir, &plan)?;
        done.notes.iter().for_each(|note| say(note));
        for path in done.written {
            print(&format!("{}\n", path.display()))?;
        }
    }
    let place = below(&args.root, &service.place());
    match fs::remove_file(&place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", place.display()));
        }
        _ => {}
    }
    forget_hint(&below(&args.root, Path::new(HINT)))?;
    // Nobody else's file keeps it from going.
    if let Some(parent) = place.parent() {
        let _ = fs::remove_dir(parent);
    }
    print(&format!("{}\n", service.place().display()))?;
    next(service);
    Ok(())
}

fn next(service: &Service) {
    say(&format!(
        "next: systemctl daemon-reload && systemctl restart {}",
        service.name
    ));
}

/// A path of the node as this process reaches it.
pub(crate) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}
