//! `bench`: compares the release with upstream's programs and with the floor, every row with its target. It is the suite `bench` of e2e.

use std::{env, path::PathBuf};

use crate::{
    cmd::{
        download,
        e2e::{self, options::BenchOptions},
    },
    project::Project,
};

/// Measure the release next to upstream's programs and the floor; needs root
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask bench --peer ../multus/bin --json bench.json\n  cargo xtask bench --cluster --peer ../multus/bin\n  cargo xtask bench --cni-plugins\n  cargo xtask bench --short\n\ndocs/contributing/performance.md says what each row means. On a machine that does something else, only ratios count."
)]
pub(crate) struct Args {
    /// Release to measure; made unless set
    #[arg(long)]
    dist: Option<PathBuf>,
    /// Directory of upstream's programs to compare with
    #[arg(long, value_name = "DIR")]
    peer: Option<PathBuf>,
    /// Install whatever is missing
    #[arg(long)]
    install: bool,
    #[command(flatten)]
    options: BenchOptions,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    // On a real node the peer is installed by the published chart.
    if args.install && args.options.cluster && args.peer.is_some() {
        download::all(&project)?;
    }
    let mut words: Vec<_> = env::args_os().skip(1).collect();
    if args.dist.is_none() {
        let dist = e2e::dist_of(&project, None, args.install)?;
        words.extend(["--dist".into(), dist.into()]);
    }
    e2e::start(&project, &words)
}
