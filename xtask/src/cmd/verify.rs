//! `verify DIR`: follows every digest of a release, from its files alone.

use std::path::PathBuf;

use crate::{talk, verify};

/// Check a release offline, down to the content of every layer
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask verify dist\n  cargo xtask verify dist --json")]
pub(crate) struct Args {
    /// Folder of the release
    dir: PathBuf,
    /// Print the release's description as JSON when all is well
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let release = verify::folder(&args.dir)?;
    if args.json {
        talk::data(&String::from_utf8(release.to_bytes()?)?)?;
    } else {
        talk::data(&format!(
            "{}: release {} of {} files for {} is sound\n",
            args.dir.display(),
            release.version,
            release.files.len() + 2,
            release.architectures.join(", ")
        ))?;
    }
    Ok(())
}
