//! `airgap verify DIR`: as `verify` of `multus-airgap`.

use airgap::commands::verify;

/// Check a directory of archives offline, down to the content of every layer
///
/// It also takes a release, which is judged by its own release.json alone; `cargo xtask verify` compares it with the checkout.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask airgap verify dist/airgap\n  cargo xtask airgap verify /media/usb --json"
)]
pub(super) struct Args {
    #[command(flatten)]
    args: verify::Args,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    verify::run(&args.args)
}
