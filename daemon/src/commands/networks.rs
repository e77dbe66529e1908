//! `multus-daemon networks [--json]`: asks the running daemon which definitions of the cluster this node can serve.

use std::{io::Write, time::Duration};

use anyhow::Context as _;
use api::network_report::{Network, NetworksReport};

use super::{CommandContext, status::query_within};

/// More than the daemon takes for an answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Prints each definition with the verdict on it.
pub fn run(context: &CommandContext, json: bool) -> anyhow::Result<()> {
    let (status, body) = query_within(context, api::PATH_NETWORKS, PATIENCE)?;
    let body = body.trim();
    anyhow::ensure!(
        status != 404,
        "the running daemon is older than this program and does not know its networks: wait for its update"
    );
    anyhow::ensure!(status == 200, "{body}");
    let text = if json {
        format!("{body}\n")
    } else {
        let report: NetworksReport =
            serde_json::from_str(body).context("the daemon's response is not a report")?;
        cmdline::plain(&text(&report.networks), &['\n']).into_owned()
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Renders a line for each definition.
fn text(networks: &[Network]) -> String {
    if networks.is_empty() {
        return "the cluster has no NetworkAttachmentDefinition\n".to_owned();
    }
    let widths = networks.iter().map(|one| one.network.chars().count());
    let width = widths.max().unwrap_or_default();
    let lines = networks.iter().map(|one| {
        let (name, verdict) = (&one.network, &one.verdict);
        let line = format!("{name:width$}  {:<7}  {}", verdict.word(), verdict.reason());
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use api::network_report::Verdict;

    use super::*;

    #[test]
    fn verdicts_are_aligned() {
        let network = |name: &str, verdict| Network {
            network: name.to_owned(),
            verdict,
        };
        let networks = [
            network("shop/lan", Verdict::Cannot("no link".to_owned())),
            network("shop/storage", Verdict::Serves),
        ];
        let expected = "shop/lan      cannot   no link\nshop/storage  serves\n";
        assert_eq!(text(&networks), expected);
    }
}
