//! `ci`: everything that a change must pass, cheapest first.

use crate::{
    cmd::{e2e, lint, reproduce, test},
    project::Project,
};

/// Run what CI runs: test, lint, every e2e level, and the release once more elsewhere
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo xtask ci --install")]
pub(crate) struct Args {
    /// Get whatever is missing
    #[arg(long)]
    install: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    test::run(&test::Args {})?;
    lint::run(&lint::Args {
        install: args.install,
    })?;
    let project = Project::open()?;
    let dist = e2e::current_dist(&project, args.install)?;
    for level in [
        e2e::Level::Chart,
        e2e::Level::Airgap,
        e2e::Level::Netns,
        e2e::Level::Rules,
        e2e::Level::Faults,
        e2e::Level::Discover,
        e2e::Level::Cri,
        e2e::Level::Helmchart,
        e2e::Level::Cluster,
    ] {
        e2e::one(&project, level, &dist, args.install, &[])?;
    }
    reproduce::against(&project, &e2e::arches()?, &dist)
}
