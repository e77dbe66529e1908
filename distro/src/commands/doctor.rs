//! `doctor [--json]`: where this node's runtime has its CNI directories, found as the daemon finds them.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use node::{
    discover::{Question, discover},
    root::Root,
};

use super::print;
use crate::usage::absolute;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro doctor\n  multus-distro doctor --root /proc/4711/root --json"
)]
pub(crate) struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
    /// The directory that stands for the node's root
    #[arg(long, default_value = "/", value_parser = absolute)]
    root: PathBuf,
    /// The runtime's socket, where several runtimes run pods
    #[arg(long, value_parser = absolute)]
    cri_socket: Option<PathBuf>,
}

/// Prints the report; an error when the directories are not known.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // Its words end with those of the system, which need no repetition.
    let root = Root::open(&args.root)
        .map_err(|error| anyhow!("{error}: name the node's root with --root"))?;
    let question = Question {
        socket: args.cri_socket.clone(),
        ..Question::default()
    };
    let threads = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let report = threads.block_on(discover(&root, &question));
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?;
    } else {
        print(&report.to_string())?;
    }
    report
        .problem
        .map_or(Ok(()), |problem| Err(anyhow!(problem)))
}
