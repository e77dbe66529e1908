//! `doctor [--json]`: what is wrong on this node and how to fix it, on one screen.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use cmdline::absolute;
use node::{
    discover::{DiscoverOptions, discover},
    examination::Outcome,
    root::Root,
};

use super::print;
use crate::{doctor::examine, plan::Distro};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro doctor\n  multus-distro doctor --all\n  multus-distro doctor --root /proc/4711/root --json"
)]
pub(crate) struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Also every source that names a directory, and what was rejected
    #[arg(long)]
    all: bool,
    /// The directory that stands for the node's root
    #[arg(long, default_value = "/", value_parser = absolute)]
    root: PathBuf,
    /// The runtime's socket, where several runtimes run pods
    #[arg(long, value_parser = absolute)]
    cri_socket: Option<PathBuf>,
    /// The distro, where this node has both
    #[arg(long, value_enum)]
    distro: Option<Distro>,
    /// The distro's data directory, where it is not the default one
    #[arg(long, value_parser = absolute)]
    data_dir: Option<PathBuf>,
}

/// Prints the examination; fails when something is wrong.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // The error already ends with the system's text, so its source is not repeated.
    let root = Root::open(&args.root)
        .map_err(|error| anyhow!("{error}: name the node's root with --root"))?;
    let question = DiscoverOptions {
        socket: args.cri_socket.clone(),
        ..DiscoverOptions::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let report = runtime.block_on(discover(&root, &question));
    let node = examine(&root, &report, args.distro, args.data_dir.as_deref());
    let outcome = Outcome {
        report: &report,
        node: &node,
    };
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&outcome)?))?;
    } else {
        print(&outcome.text(args.all))?;
    }
    match outcome.problem() {
        None => Ok(()),
        Some(problem) => bail!(problem),
    }
}
