//! `version [--json]`: prints the version, and as JSON what is embedded.

use api::version;

use super::{PREFIX, print};
use crate::{assets, trusted_key};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  multus-distro version --json")]
pub(crate) struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if !args.json {
        return print(&(version::line(PREFIX) + "\n"));
    }
    let charts: Vec<&str> = assets::charts().iter().map(|chart| chart.file).collect();
    let mut json = serde_json::json!({"version": version::VERSION, "charts": charts, "images": assets::IMAGES});
    if let Some(build) = version::build() {
        json["commit"] = build.commit.into();
        json["date"] = build.date.into();
    }
    if let Some(key) = trusted_key::built_in_id()? {
        json["trustedKey"] = serde_json::json!(key);
    }
    print(&format!("{json:#}\n"))
}
