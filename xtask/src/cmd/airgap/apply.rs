//! `airgap apply`: as that of `multus-airgap`.

use airgap::commands::apply;

/// Rebuild archives, lists and checksums of a release from a former one and deltas
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  cargo xtask airgap apply --base /media/old/airgap /media/delta --out airgap\n  multus-distro images install airgap"
)]
pub(super) struct Args {
    #[command(flatten)]
    args: apply::Args,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    apply::run(&args.args)
}
