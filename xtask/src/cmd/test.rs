//! `test`: runs the tests that need nothing but cargo.

use xshell::cmd;

use crate::project::Project;

/// Run unit, golden and socket tests; no network, no root
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo xtask test")]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> anyhow::Result<()> {
    let shell = Project::open()?.shell()?;
    cmd!(shell, "cargo test --locked --workspace")
        .quiet()
        .run()?;
    Ok(())
}
