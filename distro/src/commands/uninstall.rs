//! `uninstall`: deletes the drop-in that `install` wrote, unstages on servers, and ends the use of the VPN.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use cmdline::{BadUsage, absolute};
use node::{examination::is_served, install, root::Root, runtime::HINT};

use super::{
    install::{note_next_step, vpn_unit, without_unit},
    note, print,
    vpn::down::{End, down},
};
use crate::{
    node_vpn::files::VpnFiles,
    plan::Distro,
    service::{self, Service},
    stage, unit,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro uninstall\n  multus-distro uninstall --unit k3s-agent.service\n\nThe servers uninstall the charts at their next start; network definitions stay. A node on a VPN stays logged in.\nAfter the uninstall script of the distro it also removes what the daemon had installed."
)]
pub(crate) struct Args {
    /// The unit, where this node has several, or one of another name
    #[arg(long)]
    pub(super) unit: Option<String>,
    /// The distro, where this node has both
    #[arg(long, value_enum)]
    pub(super) distro: Option<Distro>,
    /// Remove staged files, too, that were edited since
    #[arg(long)]
    pub(super) force: bool,
    /// The directory that stands for the node's root
    #[arg(long, default_value = "/", value_parser = absolute)]
    pub(super) root: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let root = Root::open(&args.root)?;
    let found = service::find_to_remove(&root, args.distro, args.unit.as_deref())
        .map_err(|error| BadUsage(format!("{error:#}")))?;
    match found {
        Some(service) => uninstall(args, &root, &service),
        None => uninstall_without_unit(args, &root),
    }
}

/// Ends the use of the VPN, if there is one, and removes its unit.
fn remove_vpn(args: &Args, root: &Root) -> anyhow::Result<()> {
    if !VpnFiles::new(root).is_used() {
        return Ok(());
    }
    // In another file tree there is no VPN to take down.
    if args.root == Path::new("/") {
        // The VPN may be the only way to an edge node, so it stays up.
        down(root, End::Routes)?;
    } else {
        VpnFiles::new(root).remove()?;
    }
    let path = vpn_unit();
    if root.remove(&path)? {
        print(&format!("{}\n", path.display()))?;
        note("next: systemctl daemon-reload");
    }
    Ok(())
}

fn uninstall(args: &Args, root: &Root, service: &Service) -> anyhow::Result<()> {
    if service.drop_in.is_none() {
        remove_vpn(args, root)?;
        note(&format!(
            "{} does not have a drop-in of multus-distro",
            service.name
        ));
        return Ok(());
    }
    // Whatever keeps Multus staged is found before anything is taken away: without its VPN the unit would not start.
    let staged = match unit::role(&service.command)? {
        "server" => {
            let data_dir = service.settings(root, args.distro)?.data_dir;
            let plan = stage::plan_unstage(root, &data_dir, args.force, false)?;
            Some((data_dir, plan))
        }
        _ => None,
    };
    remove_vpn(args, root)?;
    if let Some((data_dir, plan)) = &staged {
        for step in plan {
            note(&format!("plan: {}", step.describe(data_dir)));
        }
        let outcome = stage::unstage(root, data_dir, plan)?;
        outcome.notes.iter().for_each(|text| note(text));
        for path in outcome.written {
            print(&format!("{}\n", path.display()))?;
        }
    }
    remove_drop_in(root, &service.drop_in_path())?;
    remove_hint(root)?;
    note_next_step(service);
    Ok(())
}

/// Removes the hint, which no daemon reads without Multus.
fn remove_hint(root: &Root) -> anyhow::Result<()> {
    root.remove(HINT)?;
    if let Some(dir) = Path::new(HINT).parent() {
        let _ = root.remove_dir(dir);
    }
    Ok(())
}

fn remove_drop_in(root: &Root, path: &Path) -> anyhow::Result<()> {
    root.remove(path)?;
    // Fails, as it should, while the directory holds other drop-ins.
    if let Some(parent) = path.parent() {
        let _ = root.remove_dir(parent);
    }
    print(&format!("{}\n", path.display()))
}

/// Removes what is left of an installation whose distro is gone, as after `k3s-uninstall.sh`, which leaves drop-ins and ends every daemon
/// before it can remove its files.
fn uninstall_without_unit(args: &Args, root: &Root) -> anyhow::Result<()> {
    let drop_ins = service::own_drop_ins(root);
    let uses_vpn = VpnFiles::new(root).is_used();
    remove_vpn(args, root)?;
    drop_ins
        .iter()
        .try_for_each(|path| remove_drop_in(root, path))?;
    // The daemon of a cluster that something else started needs its files.
    let installed = if is_served(root, Path::new(api::DEFAULT_SOCKET_DIR)) {
        Vec::new()
    } else {
        install::remove_everything(root)?
    };
    for path in &installed {
        print(&format!("{path}\n"))?;
    }
    ensure!(
        uses_vpn || !drop_ins.is_empty() || !installed.is_empty(),
        without_unit(root)
    );
    remove_hint(root)?;
    if uses_vpn || !drop_ins.is_empty() {
        note("next: systemctl daemon-reload");
    }
    Ok(())
}
