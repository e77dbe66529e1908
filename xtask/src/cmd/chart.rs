//! `chart`: checks and packs the one chart under its two names; derives, indexes and merges charts, and makes OCI artifacts of them.

mod derive;
mod index;
mod merge;
mod oci;
mod repository;

pub(crate) use self::merge::{Merge, charts_of};

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use cmdline::counted;

use crate::{
    charts,
    project::{ImageNames, Project},
    ui,
};

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
    /// Check the chart: sound files, no stray files, no difference but the name
    #[command(after_help = "Example:\n  cargo xtask chart check")]
    Check,
    /// Pack both charts and their CRD charts, and write their index
    Package(PackageArgs),
    Derive(derive::Args),
    Index(index::Args),
    Merge(merge::Args),
    Oci(oci::Args),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask chart package --out /tmp/dist\n  cargo xtask chart package --image-prefix rancher/hardened-"
)]
struct PackageArgs {
    /// Directory to write charts/ into
    #[arg(long, default_value = "dist")]
    out: PathBuf,
    #[command(flatten)]
    names: ImageNames,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    match &args.command {
        Command::Check => {
            let compared = charts::check(project.settings())?;
            let files = counted(compared, "file");
            ui::data(&format!("under both names the same: {files}\n"))
        }
        Command::Package(PackageArgs { out, names }) => {
            let project = project.with_images(names);
            let packed = charts::pack(project.settings())?;
            charts::repository(&packed, project.epoch)?.update(out, &["charts/"])?;
            for entry in charts::entries(&packed) {
                ui::data(&format!("{}  {}\n", entry.digest.hex(), entry.path))?;
            }
            Ok(())
        }
        Command::Derive(args) => derive::run(&project, args),
        Command::Index(args) => index::run(&project, args),
        Command::Merge(args) => merge::run(&project, args),
        Command::Oci(args) => oci::run(&project, args),
    }
}

/// Reads a file that the command line names.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
