//! `generate`: makes the files that a distro compiles in or deploys from the packed charts.

use std::path::PathBuf;

use anyhow::Context as _;
use chart::{BuildSettings, Distro, index::Packed};

use crate::{
    charts,
    project::{ImageNames, Project},
    tree::Tree,
};

/// Write Go bindata, a Go embed tree and HelmChart manifests from the charts
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask generate\n  cargo xtask generate --out /tmp/dist")]
pub(crate) struct Args {
    /// Directory to write bindata/ and manifests/ into
    #[arg(long, default_value = "dist")]
    out: PathBuf,
    #[command(flatten)]
    names: ImageNames,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?.with_images(&args.names);
    let packed = charts::pack(project.settings())?;
    tree(&project.settings(), &packed)?.update(&args.out, &["bindata/", "manifests/"])
}

/// Returns everything below `bindata/` and `manifests/`.
pub(crate) fn tree(settings: &BuildSettings<'_>, charts: &[Packed]) -> anyhow::Result<Tree> {
    let mut tree = charts::manifests(settings)?;
    let k3s = tree
        .get(&charts::manifest_path(Distro::K3s))
        .context("K3s has a manifest")?
        .to_vec();
    tree.extend(charts::bindata(charts, &k3s));
    Ok(tree)
}
