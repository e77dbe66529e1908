//! `vpn hook`: notes what flannel says of the subnets of pods, for `vpn run`. flannel calls it and waits for it, and ends when it fails at
//! its start.

use std::{
    io::{self, Read as _},
    path::PathBuf,
};

use anyhow::Context as _;
use cmdline::absolute;
use node::root::Root;
use vpn::flannel::{Note, Published};

use super::{note, print};
use crate::{
    node_vpn::{curl::curl, files::VpnFiles, own_subnet},
    settings::variable,
};

/// More than a node publishes of itself.
const MAX: u64 = 1024;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  multus-distro vpn hook\n\nflannel calls it with SUBNET, IPV6SUBNET and PUBLIC_IP in the environment."
)]
pub(crate) struct Args {
    /// Print what flannel publishes: this node's public key
    #[arg(long)]
    identity: bool,
    /// With it the IPv6 subnet of this node's pods, by the kubelet's kubeconfig
    #[arg(long, value_name = "FILE", requires = "identity")]
    kubeconfig: Option<PathBuf>,
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
        // flannel publishes both outputs, so no error is printed, and others name what is missing.
        if let Ok(published) = identity(args) {
            let _ = print(&format!("{published}\n"));
        }
    } else if let Err(error) = write(args) {
        note(&format!("cannot note a subnet of pods: {error:#}"));
    }
}

fn identity(args: &Args) -> anyhow::Result<Published> {
    let root = Root::open(&args.root)?;
    let state = VpnFiles::new(&root).state().ok().flatten();
    let ipv6 = args.kubeconfig.as_ref().and_then(|file| {
        let node = variable("NODE_NAME").unwrap_or_default();
        own_subnet::ask(&root, file, &node, curl).ok().flatten()
    });
    Ok(Published {
        key: state.and_then(|state| state.key),
        ipv6,
    })
}

fn write(args: &Args) -> anyhow::Result<()> {
    let root = Root::open(&args.root)?;
    let files = VpnFiles::new(&root);
    files.make_dirs()?;
    let changed = if args.add || args.remove {
        let former = files.note()?;
        let mut changed = former.context("flannel has not announced this node's own subnet")?;
        let mut published = String::new();
        io::stdin().take(MAX).read_to_string(&mut published)?;
        if args.add {
            changed.add(variable, &published)?;
        } else {
            changed.remove(variable, &published)?;
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
