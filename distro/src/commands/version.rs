//! `version [--json]`: prints the version, and as JSON what is embedded.

use super::print;
use crate::assets;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  multus-distro version --json")]
pub(crate) struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    if !args.json {
        return print(&format!("multus-distro {version}\n"));
    }
    let charts: Vec<&str> = assets::charts().iter().map(|chart| chart.file).collect();
    let json = serde_json::json!({"version": version, "charts": charts, "images": assets::IMAGES});
    print(&format!("{json:#}\n"))
}
