//! `ci`: everything that a change must pass, cheapest first. The e2e levels join as they land.

use crate::cmd::{lint, test};

/// Run what CI runs: test, then lint
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
    Ok(())
}
