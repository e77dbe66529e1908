//! `generate`: makes the files that a distro compiles in or deploys from the packed charts.

use std::path::PathBuf;

use crate::{
    charts,
    project::{ImageNames, Project},
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
    let tree = charts::generated(&project.settings(), &packed)?;
    tree.update(&args.out, &["bindata/", "manifests/"])
}
