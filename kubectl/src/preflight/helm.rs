//! Renders the chart with the Helm of this workstation: it decides which values the chart refuses, and which configuration the daemons get.
//! `helm template` reads no cluster.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use chart::Chart;
use serde::Deserialize as _;
use serde_json::{Map, Value};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
    time::timeout,
};

use super::{
    installation::Choice,
    snapshot::{BETA_POLICY, ClusterSnapshot},
};

/// The time for Helm, which needs a second.
const PATIENCE: Duration = Duration::from_secs(30);
/// The version of Kubernetes where it is not known: the oldest that has all that values need.
const KUBERNETES: &str = "v1.36.0";
/// The most output that is read of Helm; a rendered chart has 40 kB.
const MOST: u64 = 8 << 20;

/// The result of Helm.
#[derive(Debug)]
pub(super) enum Rendering {
    /// The daemon's configuration file, which is empty when the values leave it out.
    Accepted(Map<String, Value>),
    /// The error of the chart.
    Refused(String),
    /// Why there is no result.
    Unknown(String),
}

/// Renders the chart with these values, for the Kubernetes of this cluster.
pub(super) async fn render(
    choice: &Choice,
    values: &Map<String, Value>,
    cluster: &ClusterSnapshot,
) -> Rendering {
    let output = timeout(PATIENCE, run(choice, values, cluster)).await;
    match output {
        Ok(Ok(rendering)) => rendering,
        Ok(Err(error)) => Rendering::Unknown(cmdline::error_line(error.as_ref())),
        Err(_) => Rendering::Unknown(format!("helm did not end in {} s", PATIENCE.as_secs())),
    }
}

async fn run(
    choice: &Choice,
    values: &Map<String, Value>,
    cluster: &ClusterSnapshot,
) -> anyhow::Result<Rendering> {
    let dir = tempfile::tempdir().context("cannot write the chart for helm")?;
    let archive = dir.path().join("chart.tgz");
    let packed = chart::pack::pack(Chart::Main, choice.chart, chart::VERSION)?;
    std::fs::write(&archive, packed).context("cannot write the chart for helm")?;
    let mut command = Command::new("helm");
    command.args(["template", &choice.release]).arg(&archive);
    command.args(["--namespace", &choice.namespace, "--values", "-"]);
    command.args(["--kube-version", cluster.version().unwrap_or(KUBERNETES)]);
    if cluster.has_beta_policies {
        command.args(["--api-versions", &BETA_POLICY.join("/")]);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot run helm")?;
    let mut stdin = child.stdin.take().context("helm has no stdin")?;
    let stdout = child.stdout.take().context("helm has no stdout")?;
    let stderr = child.stderr.take().context("helm has no stderr")?;
    let values = serde_json::to_vec(values)?;
    let write = async {
        // A Helm that fails may not read its values.
        let _ = stdin.write_all(&values).await;
        drop(stdin);
    };
    let ((), stdout, stderr) = tokio::join!(write, read(stdout), read(stderr));
    let (stdout, stderr) = (stdout?, stderr?);
    if !child.wait().await?.success() {
        return Ok(Rendering::Refused(error_of_chart(&stderr)));
    }
    for document in serde_yaml::Deserializer::from_str(&stdout) {
        let object = Value::deserialize(document).context("helm prints no objects")?;
        if let Some(text) = object["data"]["daemon-config.json"].as_str() {
            let config = serde_json::from_str(text).context("helm prints no configuration")?;
            return Ok(Rendering::Accepted(config));
        }
    }
    Ok(Rendering::Accepted(Map::new()))
}

async fn read(from: impl AsyncRead + Unpin) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut from = from.take(MOST);
    from.read_to_string(&mut text).await?;
    ensure!(from.limit() > 0, "helm prints more than {MOST} bytes");
    Ok(text)
}

/// Returns the message of a template's `fail`, without Helm's words about its place.
fn error_of_chart(stderr: &str) -> String {
    let (place, after) = ("execution error at (", "): ");
    let failed = stderr.split_once(place);
    let text = failed.and_then(|(_, rest)| Some(rest.split_once(after)?.1));
    let first_line = |text: &str| text.trim().lines().next().unwrap_or_default().to_owned();
    text.map_or_else(
        || format!("chart cannot be rendered: {}", first_line(stderr)),
        first_line,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_template_is_found_in_the_errors_of_helm() {
        for (stderr, expected) in [
            (
                "Error: execution error at (m/templates/check.yaml:12:4): image.tag is x (a tag): correct it\n\nUse --debug flag to render out invalid YAML\n",
                "image.tag is x (a tag): correct it",
            ),
            (
                "Error: parse error at (m/templates/a.yaml:1): unclosed action\n",
                "chart cannot be rendered: Error: parse error at (m/templates/a.yaml:1): unclosed action",
            ),
        ] {
            assert_eq!(error_of_chart(stderr), expected);
        }
    }
}
