//! `vpn down`: the end of the VPN's use. It undoes what `vpn run` did, and nothing that the user did.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::{Context as _, anyhow};
use cmdline::absolute;
use node::root::Root;
use vpn::{
    life::Life,
    provider::{Provider as _, ProviderError},
    tailscale::{SystemRunner, Tailscale},
};

use super::{note, run::change_rules};
use crate::node_vpn::files::VpnFiles;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  systemctl disable --now multus-vpn.service\n  multus-distro vpn down\n\n`multus-distro install --remove` does this, too."
)]
pub(crate) struct Args {
    /// The directory that stands for the node's root
    #[arg(long, default_value = "/", value_parser = absolute)]
    root: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    down(&Root::open(&args.root)?)
}

/// Withdraws the routes of this node's pods, deletes the rules, and takes the VPN down if `vpn run` brought it up.
pub(crate) fn down(root: &Root) -> anyhow::Result<()> {
    let files = VpnFiles::new(root);
    files.make_dirs()?;
    // Otherwise it would bring the VPN up again.
    let _lock = files.lock()?;
    let record = files.record()?;
    let was_ours = record.brought_up;
    let provider = Tailscale::new(SystemRunner, files.run_dir());
    // With its program the VPN is gone, too.
    if !matches!(provider.status(), Err(ProviderError::NotInstalled(_))) {
        Life::new(provider, VpnFiles::new(root), record)
            .end()
            .map_err(|error| anyhow!(error))
            .context("cannot end the use of the VPN")?;
    }
    change_rules(&BTreeSet::new()).context("cannot delete the rules of the LAN")?;
    files.remove()?;
    note(if was_ours {
        "the VPN is down; this node stays logged in: tailscale logout ends that"
    } else {
        "the VPN was up before, and stays up"
    });
    Ok(())
}
