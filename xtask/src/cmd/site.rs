//! `site`: renders the pages for people as a static site.

use std::path::PathBuf;

use anyhow::Context as _;
use cmdline::counted;
use docs::site::Edition;

use crate::{project::Project, tree::Tree, ui};

/// Render README and docs/ as a static site, which needs no server and no network
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask site\n  cargo xtask site --out /srv/www/multus")]
pub(crate) struct Args {
    /// Directory of the site; files in it that are no part of the site stay
    #[arg(long, default_value = "target/site")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let pages = docs::Pages::read(&project.root).context("cannot read the pages")?;
    let edition = Edition {
        version: &project.version,
        commit: &project.commit,
    };
    let files =
        docs::site::files(&pages, edition).context("cannot read the images of the pages")?;
    let mut tree = Tree::default();
    for (path, bytes) in files {
        tree.add(path, bytes);
    }
    tree.update(&args.out, &[])?;
    ui::note(&format!(
        "{} holds {}: open index.html",
        args.out.display(),
        counted(tree.0.len(), "file")
    ));
    Ok(())
}
