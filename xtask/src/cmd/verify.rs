//! `verify DIR`: follows every digest of a release, from its files alone.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::{talk, tree::Tree, verify};

/// Check a release offline, down to the content of every layer, or say where two differ
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask verify dist\n  cargo xtask verify dist --json\n  cargo xtask verify --explain dist /tmp/other-dist"
)]
pub(crate) struct Args {
    /// Folder of the release
    #[arg(required_unless_present = "explain")]
    dir: Option<PathBuf>,
    /// Name the first byte in which two releases differ, and where it stands
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "dir")]
    explain: Vec<PathBuf>,
    /// Print the release's description as JSON when all is well
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let [one, other] = &args.explain[..] {
        return explain(one, other);
    }
    let dir = args.dir.as_ref().context("name the folder of a release")?;
    let release = verify::folder(dir)?;
    if args.json {
        return talk::data(&String::from_utf8(release.to_bytes()?)?);
    }
    talk::data(&format!(
        "{}: release {} of {} files for {} is sound\n",
        dir.display(),
        release.version,
        release.files.len() + 2,
        release.architectures.join(", ")
    ))
}

/// Says where two releases differ, which is a failure; that they do not is none.
fn explain(one: &Path, other: &Path) -> anyhow::Result<()> {
    match verify::difference(&Tree::read(one)?, &Tree::read(other)?) {
        Some(difference) => bail!(
            "{} and {} differ first in {difference}",
            one.display(),
            other.display()
        ),
        None => talk::data("the same, byte by byte\n"),
    }
}
