//! `site`: renders the pages for people as a static site.

use std::path::PathBuf;

use anyhow::Context as _;
use cmdline::counted;
use xshell::{Shell, cmd};

use crate::{project::Project, tree::Tree, ui};

/// Render README and docs/ as a static site, which needs no server and no network
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask site\n  cargo xtask site --out /srv/www/multus")]
pub(crate) struct Args {
    /// Directory of the site; files in it that are not part of the site stay
    #[arg(long, default_value = "target/site")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let (shell, made) = (Shell::new()?, tempfile::tempdir()?);
    let (manifest, dir) = (project.root.join("Cargo.toml"), made.path());
    let commit = &project.commit;
    cmd!(
        shell,
        "cargo run --quiet --locked --manifest-path {manifest} --package site -- {dir} {commit}"
    )
    .quiet()
    .run()
    .context("cannot render the pages")?;
    let tree = Tree::read(dir)?;
    tree.update(&args.out, &[])?;
    ui::note(&format!(
        "{} holds {}: open index.html",
        args.out.display(),
        counted(tree.0.len(), "file")
    ));
    Ok(())
}
