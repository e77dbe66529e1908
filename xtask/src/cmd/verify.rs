//! `verify DIR`: verifies a release from its files alone, by following every digest.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::release_pages;
use crate::{
    difference,
    project::Project,
    release::{self, Release},
    tree::Tree,
    ui,
    verify::{self, Standard},
};

/// Check a release offline, down to the content of every layer and the mode of every file, or print where two differ
///
/// A release of this checkout's commit is compared with what the checkout derives; any other is judged by its own release.json.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask verify dist\n  cargo xtask verify dist --json\n  cargo xtask verify --explain dist /tmp/other-dist"
)]
pub(crate) struct Args {
    /// Directory of the release
    #[arg(required_unless_present = "explain")]
    dir: Option<PathBuf>,
    /// Name the first byte in which two releases differ, and its file
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "dir")]
    explain: Vec<PathBuf>,
    /// Print the release's description as JSON when it is sound
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let [one, other] = &args.explain[..] {
        return explain(one, other);
    }
    let dir = args
        .dir
        .as_ref()
        .context("name the directory of a release")?;
    let pages = release_pages();
    let release = verify::dir(dir, |release| standard(release, &pages))?;
    if args.json {
        return ui::data(&String::from_utf8(release.to_bytes()?)?);
    }
    ui::data(&format!(
        "{}: release {} of {} files for {} is sound\n",
        dir.display(),
        release.version,
        release.files.len() + 2,
        release.architectures.join(", ")
    ))
}

/// Returns what a release is held to: the files of this checkout when its commit made the release, else the release's own words.
fn standard<'a>(release: &Release, pages: &'a Tree) -> Standard<'a> {
    // Without git nothing is known of the checkout, which is then no measure of another release.
    let Ok(project) = Project::open() else {
        return Standard::OwnWords;
    };
    if release.commit == project.commit {
        return Standard::Checkout(pages);
    }
    ui::note(&format!(
        "the release is of commit {}, this checkout of {}: it is judged by its own {}",
        release.commit,
        project.commit,
        release::FILE
    ));
    Standard::OwnWords
}

/// Fails with the first difference of two releases, if there is one.
fn explain(one: &Path, other: &Path) -> anyhow::Result<()> {
    match difference::first(&Tree::read(one)?, &Tree::read(other)?) {
        Some(difference) => bail!(
            "{} and {} differ first in {difference}",
            one.display(),
            other.display()
        ),
        None => ui::data("the same, byte by byte\n"),
    }
}
