//! `vpn hook`: notes this node's pod subnet, for `vpn run` to advertise. flannel calls it, waits for it, and ends when it fails.

use std::path::PathBuf;

use cmdline::absolute;
use node::root::Root;
use vpn::flannel::Note;

use super::note;
use crate::node_vpn::files::VpnFiles;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  multus-distro vpn hook\n\nflannel calls it with SUBNET and IPV6SUBNET in the environment."
)]
pub(crate) struct Args {
    /// The directory that stands for the node's root
    #[arg(long, default_value = "/", value_parser = absolute)]
    root: PathBuf,
}

/// Succeeds always: without the note the pods of this node are not reached, and without flannel it has none.
pub(crate) fn run(args: &Args) {
    if let Err(error) = write(args) {
        note(&format!(
            "cannot note the subnet of this node's pods: {error:#}"
        ));
    }
}

fn write(args: &Args) -> anyhow::Result<()> {
    let root = Root::open(&args.root)?;
    let files = VpnFiles::new(&root);
    files.make_dirs()?;
    let variable = |name: &str| std::env::var(name).ok();
    files.write_note(&Note::read(variable, &files.networks()?)?)
}
