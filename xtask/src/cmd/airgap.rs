//! `airgap`: the archives that carry images to nodes without a network, and the commands of `multus-airgap` about them.

mod bundle;

use std::path::PathBuf;

use airgap::commands::{explain, push};
use release::source::Source;

/// Make archives that carry images to nodes without a network
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Bundle(bundle::Args),
    /// Say what a release, a directory with archives, or a file in it holds
    #[command(
        after_help = "Examples:\n  cargo xtask airgap explain dist --json\n  cargo xtask airgap explain dist/airgap/multus-airgap-images-arm64.tar"
    )]
    Explain(explain::Args),
    /// Send images, with the lists of what is inside of them, and charts to a registry; a second run sends nothing
    #[command(
        after_help = "Examples:\n  cargo xtask airgap push registry.example:5000\n  cargo xtask airgap push oci://registry.example/mirror --user me --json\n  SSL_CERT_FILE=/etc/ssl/own-ca.pem cargo xtask airgap push registry.example:5000\n  cargo xtask airgap push registry.example/team --charts-to helm/team        charts go to registry.example/helm/team/rke2-multus\n  cargo xtask airgap push registry.example/team --images-only                the project permits images alone\n  cargo xtask airgap push 127.0.0.1:5000 --plain-http --archive multus-airgap-images-amd64.tar"
    )]
    Push(Push),
}

#[derive(Debug, clap::Args)]
struct Push {
    #[command(flatten)]
    options: push::Options,
    /// Release to take from
    #[arg(long, default_value = "dist")]
    dist: PathBuf,
    /// Take the images of one archive instead, and no charts
    #[arg(long, value_name = "FILE", conflicts_with_all = ["charts_to", "images_only"])]
    archive: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::Bundle(args) => bundle::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Push(Push {
            options,
            dist,
            archive,
        }) => {
            let from = match archive {
                Some(archive) => Source::Archive(archive.clone()),
                None => Source::Release(dist.clone()),
            };
            push::run(options, &from)
        }
    }
}
