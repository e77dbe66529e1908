//! `release`: from unreleased changes to a published version, in steps that each check what they need and say what comes next.

mod bump;
mod check;
mod publish;
mod rehearse;

/// Cut a version, check it, rehearse it, and publish it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Bump(bump::Args),
    Check(check::Args),
    Rehearse(rehearse::Args),
    Publish(publish::Args),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::Bump(args) => bump::run(args),
        Command::Check(args) => check::run(args),
        Command::Rehearse(args) => rehearse::run(args),
        Command::Publish(args) => publish::run(args),
    }
}
