//! `vpn down`: the end of the VPN's use. It undoes what `vpn run` did, and nothing that the user did.

use std::{
    collections::BTreeSet,
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use cmdline::{BadUsage, absolute};
use node::root::Root;
use vpn::{
    life::Life,
    peers,
    provider::{Guide, ProviderError},
    state::Record,
};

use super::{note, run::Kernel};
use crate::node_vpn::files::VpnFiles;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  systemctl disable --now multus-vpn.service\n  multus-distro vpn down\n  multus-distro vpn down --logout\n\n`multus-distro uninstall` does this, too, and leaves the VPN up."
)]
pub(crate) struct Args {
    /// Log this node out, too, whoever logged it in: as at the end of a node that does not come back
    #[arg(long)]
    logout: bool,
    /// Take the VPN down even where this very session came over it, and would be cut
    #[arg(long)]
    cut_session: bool,
    /// The directory that stands for the node's root
    #[arg(long, default_value = "/", value_parser = absolute)]
    root: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let root = Root::open(&args.root)?;
    let peer = session_peer(Path::new("/proc"), std::process::id());
    let files = VpnFiles::new(&root);
    let record = files.record()?;
    let guide = record.selection.guide();
    ensure!(
        !args.logout || !guide.log_out.is_empty(),
        BadUsage(format!(
            "this node's VPN is an interface of yours, without a login ({}): leave --logout out",
            guide.program
        ))
    );
    let is_of_vpn = |peer: &IpAddr| guide.covers(*peer);
    let was_ours = record.brought_up;
    if let Some(peer) = peer.filter(is_of_vpn)
        && (was_ours || args.logout)
        && !args.cut_session
    {
        bail!(
            "this session came over the VPN, from {peer}: it would be cut, and the node may have no other way in; come by another one, repeat it with --cut-session, or withdraw all but the VPN itself with `multus-distro uninstall`"
        );
    }
    down(&root, if args.logout { End::Login } else { End::Vpn })
}

/// What ends besides the routes of this node's pods and the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing.
    Routes,
    /// The VPN, if `vpn run` brought it up.
    Vpn,
    /// The node's login, and with it the VPN.
    Login,
}

/// Withdraws the routes of this node's pods, deletes the rules, and ends what is named.
pub(crate) fn down(root: &Root, end: End) -> anyhow::Result<()> {
    let files = VpnFiles::new(root);
    files.make_dirs()?;
    // Otherwise it would bring the VPN up again.
    let _lock = files.lock()?;
    undo(root, files.record()?, end)?;
    files.remove()
}

/// Undoes what the record says, and deletes the rules.
pub(super) fn undo(root: &Root, record: Record, end: End) -> anyhow::Result<()> {
    let was_ours = record.brought_up;
    let selection = record.selection.clone();
    let run_dir = VpnFiles::new(root).run_dir();
    let provider = selection.on_this_node(&run_dir);
    let status = provider.status();
    let ranges = status
        .as_ref()
        .ok()
        .and_then(|status| peers::return_of(selection.guide(), &status.phase, &record.assigned));
    // With its program the VPN is gone, too.
    let is_gone = matches!(status, Err(ProviderError::NotInstalled(_)));
    // On the way to another VPN, or at an uninstallation, the operator has often stopped this one already.
    let is_stopped = end == End::Routes && status.is_err();
    if is_stopped && !is_gone {
        note(&format!(
            "{} does not run: what it was told to do with routes stays in its own settings",
            selection.guide().daemon
        ));
    } else if !is_gone {
        Life::new(provider, VpnFiles::new(root), record)
            .end(end != End::Routes)
            .map_err(|error| anyhow!(error))
            .context("cannot end the use of the VPN")?;
        if end == End::Login {
            let provider = selection.on_this_node(&run_dir);
            provider.logout().context("cannot log this node out")?;
        }
    }
    let mut kernel = Kernel::open().context("cannot read the routes of this node")?;
    kernel
        .change_rules(&BTreeSet::new())
        .context("cannot delete the rules of the LAN")?;
    kernel
        .change_routes(None, &[])
        .context("cannot delete the routes to other nodes' pods")?;
    kernel
        .change_barriers(&[])
        .context("cannot delete the routes that keep packets for pods here")?;
    if let Some(line) = ranges {
        note(&line);
    }
    let Guide { down, log_out, .. } = selection.guide();
    note(&match (was_ours, end) {
        (_, End::Login) => "the VPN is down, and this node is logged out".to_owned(),
        (true, End::Vpn) => {
            format!("the VPN is down; this node stays logged in: {log_out} ends that")
        }
        (true, End::Routes) => {
            format!("the VPN stays up and this node logged in: {down} and {log_out} end that")
        }
        (false, _) => "the VPN was up before, and stays up".to_owned(),
    });
    Ok(())
}

/// Returns the address that an SSH session of this process or of those above it came from. `sudo` takes the variable away from its children,
/// so those of the parent processes are read too.
fn session_peer(proc: &Path, process: u32) -> Option<IpAddr> {
    let mut process = process;
    while process > 1 {
        let of = proc.join(process.to_string());
        let variables = fs::read(of.join("environ")).unwrap_or_default();
        let found = variables
            .split(|byte| *byte == 0)
            .filter_map(|variable| std::str::from_utf8(variable).ok())
            .find_map(|variable| variable.strip_prefix("SSH_CONNECTION="))
            .and_then(|connection| connection.split(' ').next()?.parse().ok());
        if found.is_some() {
            return found;
        }
        // The name before it may have spaces and parentheses.
        let stat = fs::read_to_string(of.join("stat")).ok()?;
        process = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_is_found_above_a_process_that_lost_the_variable() {
        let dir = tempfile::tempdir().unwrap();
        for (process, parent, environ) in [
            (
                7,
                1,
                "HOME=/\0SSH_CONNECTION=100.64.0.9 50000 100.64.0.1 22\0",
            ),
            (8, 7, "SUDO_USER=me\0"),
            (9, 1, ""),
        ] {
            let of = dir.path().join(process.to_string());
            fs::create_dir(&of).unwrap();
            fs::write(of.join("environ"), environ).unwrap();
            let stat = format!("{process} (a) b (c)) S {parent} 0 0");
            fs::write(of.join("stat"), stat).unwrap();
        }
        let peer = |process| session_peer(dir.path(), process);
        assert_eq!(peer(8), "100.64.0.9".parse().ok());
        assert_eq!((peer(9), peer(10)), (None, None));
    }
}
