//! `version [--json]`: prints the version, and as JSON what is embedded.

use super::print;
use crate::{assets, trusted_key};

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
    let mut json =
        serde_json::json!({"version": version, "charts": charts, "images": assets::IMAGES});
    if let Some(key) = trusted_key::built_in_id()? {
        json["trustedKey"] = serde_json::json!(key);
    }
    print(&format!("{json:#}\n"))
}
