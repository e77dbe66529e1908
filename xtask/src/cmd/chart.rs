//! `chart`: the one chart under its two names, and what becomes of charts: derived, indexed, merged, as OCI artifacts.

mod derive;
mod index;
mod merge;
mod oci;
mod repository;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::{charts, project::Project, talk};

/// Check, pack, derive, index or merge Helm charts
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask chart check\n  cargo xtask chart package --out /tmp/dist\n  cargo xtask chart index --check"
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
    Derive(derive::Args),
    Index(index::Args),
    Merge(merge::Args),
    Oci(oci::Args),
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
            talk::data(&format!("{compared} files are the same under both names\n"))
        }
        Command::Package(Out { out }) => {
            let packed = charts::pack(project.version)?;
            charts::repository(&packed, project.epoch)?.update(out, &["charts/"])?;
            for entry in charts::entries(&packed) {
                talk::data(&format!("{}  {}\n", entry.digest.hex(), entry.path))?;
            }
            Ok(())
        }
        Command::Derive(args) => derive::run(&project, args),
        Command::Index(args) => index::run(&project, args),
        Command::Merge(args) => merge::run(&project, args),
        Command::Oci(args) => oci::run(&project, args),
    }
}

/// A file that the command line names.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
