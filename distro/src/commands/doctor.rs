//! `doctor [--json]`: what is wrong on this node and how to fix it, on one screen.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use cmdline::absolute;
use node::{
    discover::{DiscoverOptions, Report, discover},
    root::Root,
};
use serde::Serialize;

use super::print;
use crate::{
    doctor::{Examination, examine},
    plan::Distro,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro doctor\n  multus-distro doctor --all\n  multus-distro doctor --root /proc/4711/root --json"
)]
pub(crate) struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Also who told of directories, and what was not taken
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
    /// The distro's data directory, where it is not the usual one
    #[arg(long, value_parser = absolute)]
    data_dir: Option<PathBuf>,
}

/// What is printed as JSON: the report of discovery, and the rest beside it.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    report: &'a Report,
    node: &'a Examination,
}

/// Prints the examination; an error when something is wrong.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // Its words end with those of the system, which need no repetition.
    let root = Root::open(&args.root)
        .map_err(|error| anyhow!("{error}: name the node's root with --root"))?;
    let question = DiscoverOptions {
        socket: args.cri_socket.clone(),
        ..DiscoverOptions::default()
    };
    let threads = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let report = threads.block_on(discover(&root, &question));
    let node = examine(&root, &report, args.distro, args.data_dir.as_deref());
    if args.json {
        let told = Told {
            report: &report,
            node: &node,
        };
        print(&format!("{}\n", serde_json::to_string_pretty(&told)?))?;
    } else {
        print(&shown(&report.to_string(), args.all))?;
        print(&node.to_string())?;
    }
    let of_runtime = report.problem.iter();
    let problems: Vec<&String> = of_runtime.chain(&node.problems).collect();
    match problems[..] {
        [] => Ok(()),
        [problem] => bail!("{problem}"),
        [first, ..] => bail!("{} problems, the first: {first}", problems.len()),
    }
}

/// The report, or what of it fits on a screen.
fn shown(report: &str, all: bool) -> String {
    let is_long = |line: &&str| {
        ["told ", "rejected "]
            .iter()
            .any(|word| line.starts_with(word))
    };
    let lines = report.split_inclusive('\n');
    lines.filter(|line| all || !is_long(line)).collect()
}
