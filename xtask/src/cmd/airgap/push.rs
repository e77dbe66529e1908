//! `airgap push`: as that of `multus-airgap`, from `dist/` unless another release or an archive is named.

use std::path::PathBuf;

use airgap::{commands::push, source::Source};

/// Send images, with the lists of what is inside of them, and charts to a registry; a second run sends nothing
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask airgap push registry.example:5000\n  cargo xtask airgap push oci://registry.example/mirror --user me --json\n  SSL_CERT_FILE=/etc/ssl/own-ca.pem cargo xtask airgap push registry.example:5000\n  cargo xtask airgap push registry.example/team --charts-to helm/team        charts go to registry.example/helm/team/rke2-multus\n  cargo xtask airgap push registry.example/team --images-only                the project permits images alone\n  cargo xtask airgap push 127.0.0.1:5000 --plain-http --archive multus-airgap-images-amd64.tar"
)]
pub(super) struct Args {
    #[command(flatten)]
    options: push::Options,
    /// Release to take from
    #[arg(long, default_value = "dist")]
    dist: PathBuf,
    /// Take the images of one archive instead, and no charts
    #[arg(long, value_name = "FILE", conflicts_with_all = ["charts_to", "images_only"])]
    archive: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let from = match &args.archive {
        Some(archive) => Source::Archive(archive.clone()),
        None => Source::Release(args.dist.clone()),
    };
    push::run(&args.options, &from)
}
