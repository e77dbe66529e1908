//! Cases of subject `metrics`: Metrics.

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::cases;
use crate::{
    rules::harness::{DaemonSetup, Harness},
    sh,
};

cases! { "metrics":
    own_daemon endpoint ["metrics.endpoint"]
    own_daemon requests ["metrics.requests"]
}

const PORT: u16 = 9464;

/// A request: method, path, the label of its handler, the answer's status, and how often it is sent.
type Sent = (&'static str, &'static str, &'static str, u16, u64);

/// Runs a case on a daemon with `metricsPort`.
fn with_metrics(
    harness: &Harness,
    case: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    harness.start_daemon(&DaemonSetup::Plain.file_with(&json!({"metricsPort": PORT})))?;
    let outcome = case();
    harness.stop_daemon("TERM")?;
    outcome
}

/// Reads `/metrics` at an address of the node.
fn read(harness: &Harness, address: &str) -> anyhow::Result<String> {
    let server = format!("--server=http://{address}:{PORT}");
    harness
        .node()
        .run(&["kubectl", &server, "get", "--raw=/metrics"])
}

fn endpoint(harness: &Harness) -> anyhow::Result<()> {
    with_metrics(harness, || {
        for address in ["127.0.0.1", &harness.node().address()] {
            let text = read(harness, address)?;
            let kind = "# TYPE multus_server_request_total counter";
            ensure!(text.lines().any(|line| line == kind), "{address}: {text}");
        }
        Ok(())
    })
}

/// Returns the sum of the counters that have these labels.
fn counted(text: &str, labels: &[String]) -> anyhow::Result<u64> {
    let values = text.lines().filter_map(|line| {
        let (own, count) = line
            .strip_prefix("multus_server_request_total{")?
            .split_once("} ")?;
        let matches = labels.iter().all(|label| own.contains(label.as_str()));
        matches.then_some(count)
    });
    values
        .map(|count| {
            count
                .trim()
                .parse::<u64>()
                .context("the counter is not a whole number")
        })
        .sum()
}

fn requests(harness: &Harness) -> anyhow::Result<()> {
    with_metrics(harness, || {
        let before = read(harness, "127.0.0.1")?;
        let sent: [Sent; 3] = [
            ("PUT", "/healthz", "/healthz", 405, 2),
            ("POST", "/cni", "/cni", 400, 3),
            ("GET", "/nowhere", "NotFound", 404, 1),
        ];
        for (method, path, _, status, times) in sent {
            for _ in 0..times {
                let answer = harness.daemon_request(method, path, b"{}")?;
                ensure!(
                    answer.status == status,
                    "{method} {path}: {}",
                    answer.status
                );
            }
        }
        // Scrapes may share what was read within a second.
        sh::until(10, "the requests are counted", || {
            let after = read(harness, "127.0.0.1")?;
            check_counted(&before, &after, &sent)
        })
    })
}

/// Fails unless the scrapes differ by exactly these requests.
fn check_counted(before: &str, after: &str, sent: &[Sent]) -> anyhow::Result<()> {
    for &(method, _, handler, status, times) in sent {
        let labels = [
            format!("handler=\"{handler}\""),
            format!("code=\"{status}\""),
            format!("method=\"{}\"", method.to_lowercase()),
        ];
        let count = counted(after, &labels)? - counted(before, &labels)?;
        ensure!(
            count == times,
            "{labels:?}: {count} more instead of {times}"
        );
    }
    Ok(())
}
