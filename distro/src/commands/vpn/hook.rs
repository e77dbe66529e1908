//! `vpn hook`: notes what flannel says of the subnets of pods, for `vpn run`. flannel calls it and waits for it, and ends when it fails at
//! its start.

use std::{
    io::{self, Read as _},
    path::PathBuf,
};

use anyhow::Context as _;
use cmdline::absolute;
use node::root::Root;
use vpn::flannel::Note;

use super::{note, print};
use crate::node_vpn::files::VpnFiles;

/// More than a node publishes of itself.
const MAX: u64 = 1024;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  multus-distro vpn hook\n\nflannel calls it with SUBNET, IPV6SUBNET and PUBLIC_IP in the environment."
)]
pub(crate) struct Args {
    /// Print this node's public key, which flannel publishes
    #[arg(long)]
    identity: bool,
    /// Note the subnet of another node; what that one published is on stdin
    #[arg(long, conflicts_with = "identity")]
    add: bool,
    /// Forget the subnet of another node
    #[arg(long, conflicts_with_all = ["identity", "add"])]
    remove: bool,
    /// The directory that stands for the node's root
    #[arg(long, default_value = "/", value_parser = absolute)]
    root: PathBuf,
}

/// Succeeds always: without the note some pods are not reached, and without flannel this node has none.
pub(crate) fn run(args: &Args) {
    if args.identity {
        // flannel publishes both outputs, and others do without the key.
        if let Ok(Some(key)) = identity(args) {
            let _ = print(&format!("{key}\n"));
        }
    } else if let Err(error) = write(args) {
        note(&format!("cannot note a subnet of pods: {error:#}"));
    }
}

fn identity(args: &Args) -> anyhow::Result<Option<String>> {
    let root = Root::open(&args.root)?;
    let state = VpnFiles::new(&root).state()?;
    Ok(state.and_then(|state| state.key))
}

fn write(args: &Args) -> anyhow::Result<()> {
    let root = Root::open(&args.root)?;
    let files = VpnFiles::new(&root);
    files.make_dirs()?;
    let variable = |name: &str| std::env::var(name).ok();
    let changed = if args.add || args.remove {
        let former = files.note()?;
        let mut changed = former.context("flannel has not announced this node's own subnet")?;
        if args.add {
            let mut published = String::new();
            io::stdin().take(MAX).read_to_string(&mut published)?;
            changed.add(variable, &published)?;
        } else {
            changed.remove(variable)?;
        }
        changed
    } else {
        // A start writes the note anew, also in place of one that another version wrote.
        let former = files.note().unwrap_or_default();
        let remembered = files.record()?.others;
        Note::start(variable, &files.networks()?, former, &remembered)?
    };
    files.write_note(&changed)
}
