//! `multus-daemon discover`: prints the runtime and directories that were found on this node, their sources, and rejected candidates.

use std::io::Write;

use node::discover::{DiscoverOptions, discover};

use super::CommandContext;

/// Prints the report; fails when the directories are unknown.
pub async fn run(context: &CommandContext, json: bool) -> anyhow::Result<()> {
    let config = context.config()?;
    let question = DiscoverOptions {
        socket: config.cri_socket.clone(),
        pod_uid: context.identity.pod_uid.clone(),
        overrides: crate::reconcile::node::overrides(&config),
    };
    let report = discover(&context.root()?, &question).await;
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
