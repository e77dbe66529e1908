//! `multus-daemon discover`: prints the runtime and directories that were found on this node, their sources, and rejected candidates.

use std::io::Write;

use node::discover::{DiscoverOptions, discover};
use plan::daemon_config::Config;

use super::CommandContext;

/// Prints the report; fails when the directories are unknown.
pub async fn run(context: &CommandContext, json: bool) -> anyhow::Result<()> {
    let options = options(context, &context.config()?);
    let report = discover(&context.root()?, &options).await;
    let text = if json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        report.to_string()
    };
    std::io::stdout().write_all(text.as_bytes())?;
    match report.problem {
        None => Ok(()),
        Some(problem) => anyhow::bail!(problem),
    }
}

/// Returns the parameters of a discovery: as the daemon's file has them, for the daemon of this pod.
pub(super) fn options(context: &CommandContext, config: &Config) -> DiscoverOptions {
    DiscoverOptions {
        socket: config.cri_socket.clone(),
        pod_uid: context.identity.pod_uid.clone(),
        overrides: crate::reconcile::node::overrides(config),
    }
}
