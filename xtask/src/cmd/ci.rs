//! `ci`: everything that a change must pass, cheapest first.

mod beside;

use std::{path::Path, process};

use anyhow::Context as _;

use self::beside::Beside;
use crate::{
    cmd::{e2e, lint, test},
    project::Project,
    talk,
};

/// Run what CI runs: test, lint, every e2e level, and beside them the release once more elsewhere
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
    let again = again(&project, &dist)?;
    for level in [
        e2e::Level::Service,
        e2e::Level::Chart,
        e2e::Level::Airgap,
        e2e::Level::Netns,
        e2e::Level::Rules,
        e2e::Level::Faults,
        e2e::Level::Discover,
        e2e::Level::Cri,
        e2e::Level::Devices,
        e2e::Level::Helmchart,
        e2e::Level::Cluster,
    ] {
        e2e::one(&project, level, &dist, args.install, &[])?;
    }
    talk::say("reproduce");
    talk::say(again.end().context("reproduce")?.trim());
    Ok(())
}

/// Levels wait for programs more than they work; a second release is made meanwhile.
fn again(project: &Project, dist: &Path) -> anyhow::Result<Beside> {
    let arches = e2e::arches()?.list();
    let arch = arches.first().context("this machine has an architecture")?;
    let dist = dist.to_str().context("the release's path is no text")?;
    Beside::start(
        &project.memory().join("reproduce.log"),
        // Its file may have been built anew since it was started.
        &Path::new("/proc")
            .join(process::id().to_string())
            .join("exe"),
        &["reproduce", "--arch", arch.name(), "--first", dist],
    )
}
