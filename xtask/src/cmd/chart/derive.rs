//! `chart derive`: makes a chart from the archive of a published chart.

use std::path::PathBuf;

use anyhow::Context as _;
use archive::digest::sha256;
use chart::derive::{self, DeriveOptions};

use crate::{cmd::download, project::Project, tree::Tree, ui};

/// Make a chart from a published one: another name and version, fewer subcharts, all other files unchanged
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask chart derive --from rke2-multus-v4.3.017.tgz --name k3s-multus --version 4.3.17+upv4.3.017 --drop rke2-whereabouts\n  cargo xtask chart derive --lock e2e/published.lock --from rke2-multus-v4.3.017.tgz --name k3s-multus --version 4.3.17+upv4.3.017 --drop rke2-whereabouts --out target"
)]
pub(super) struct Args {
    /// Archive of the published chart
    #[arg(long, value_name = "TGZ")]
    from: PathBuf,
    /// Lock file that names the archive: it is downloaded first
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// Name of the new chart
    #[arg(long)]
    name: String,
    /// Version of the new chart; end it in `+up` and the published version, which tells where it comes from
    #[arg(long)]
    version: String,
    /// Subchart to leave out, with its values and the dependency on it; may be repeated
    #[arg(long, value_name = "SUBCHART")]
    drop: Vec<String>,
    /// Directory to write `<name>-<version>.tgz` into
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

pub(super) fn run(project: &Project, args: &Args) -> anyhow::Result<()> {
    let from = match &args.lock {
        Some(lock) => download::locked(lock, &args.from, &project.download_dir())?,
        None => args.from.clone(),
    };
    let options = DeriveOptions {
        name: args.name.clone(),
        version: args.version.clone(),
        drop: args.drop.clone(),
    };
    let derived = derive::derive(&super::read(&from)?, &options)
        .with_context(|| format!("cannot derive a chart from {}", from.display()))?;
    let digest = sha256(&derived.tgz);
    let mut tree = Tree::default();
    tree.add(&derived.file_name, derived.tgz);
    tree.update(&args.out, &[])?;
    for change in &derived.changes {
        ui::note(change);
    }
    for path in &derived.mentions {
        ui::note(&format!(
            "{path} still mentions {}: read it before you publish",
            args.drop.join(" or ")
        ));
    }
    ui::data(&format!("{}  {}\n", digest.hex(), derived.file_name))
}
