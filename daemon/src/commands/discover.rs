//! `multus-daemon discover`: what was found on this node, from where, and what was rejected.

use std::io::Write;

use node::discover::{Question, discover};

use super::Setting;

/// Prints the report; an error when the directories are not known.
pub async fn run(setting: &Setting, json: bool) -> anyhow::Result<()> {
    let config = setting.config()?;
    let question = Question {
        socket: config.cri_socket.clone(),
        pod_uid: setting.identity.pod_uid.clone(),
        overrides: crate::reconcile::node::overrides(&config),
    };
    let report = discover(&setting.root()?, &question).await;
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
