//! `chart`: the one chart under its two names.

use std::path::PathBuf;

use crate::{charts, project::Project, talk};

/// Check, pack or index the Helm charts
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask chart check\n  cargo xtask chart package --out /tmp/dist\n  cargo xtask chart index"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Pass the gates: sound files, no leftovers, no difference but the name
    #[command(after_help = "Example:\n  cargo xtask chart check")]
    Check,
    /// Pack both charts and their CRD charts, and write their index
    Package(Out),
    /// Print the index of the packed charts
    #[command(after_help = "Example:\n  cargo xtask chart index")]
    Index,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo xtask chart package --out /tmp/dist")]
struct Out {
    /// Folder to write charts/ into
    #[arg(long, default_value = "dist")]
    out: PathBuf,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    match &args.command {
        Command::Check => {
            let compared = charts::check(project.version)?;
            talk::data(&format!("{compared} files are the same under both names\n"))?;
        }
        Command::Package(Out { out }) => {
            let packed = charts::pack(project.version)?;
            charts::repository(&packed, project.epoch).update(out, &["charts/"])?;
            for entry in charts::entries(&packed) {
                talk::data(&format!("{}  {}\n", entry.digest.hex(), entry.path))?;
            }
        }
        Command::Index => {
            let packed = charts::pack(project.version)?;
            talk::data(&charts::index(&packed, project.epoch))?;
        }
    }
    Ok(())
}
