//! `airgap`: the image sets, the archives that carry them to nodes without a network, and the push into registries.

mod bundle;
mod explain;
mod pull;
mod push;
mod render;
mod update;
mod verify;

pub(crate) use self::bundle::tree;

/// Make archives that carry images to nodes without a network
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Update(update::Args),
    Pull(pull::Args),
    Bundle(bundle::Args),
    Verify(verify::Args),
    Explain(explain::Args),
    Push(push::Args),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::Update(args) => update::run(args),
        Command::Pull(args) => pull::run(args),
        Command::Bundle(args) => bundle::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Push(args) => push::run(args),
    }
}
