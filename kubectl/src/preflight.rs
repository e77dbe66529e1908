//! `kubectl multus preflight`: reports what would fail or change in a cluster when this release is installed.
//!
//! `gather` reads the cluster into a `snapshot`, `helm` renders the chart with the values; `decide` is a function over both.

mod decide;
mod gather;
mod helm;
mod installation;
mod nodes;
mod pods;
mod schema;
mod snapshot;
mod values;
mod verdict;

pub(crate) use installation::is_multus;

use std::{fmt::Write as _, fs, path::PathBuf};

use anyhow::{Context as _, bail};
use cmdline::counted;
use serde::Serialize;
use serde_json::{Map, Value};

use self::{
    decide::{ExplicitValues, Finding, Outcome, Subject, choose_chart, decide},
    snapshot::ClusterSnapshot,
    verdict::Verdict,
};
use crate::{
    CommandStatus, Output,
    cluster::{self, Cluster},
    manifest,
};

/// The number of names of one finding that are printed.
const NAMES: usize = 3;

/// Arguments of `preflight`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Values of the planned installation, as `helm get values` prints them; may be repeated, and the last file wins
    #[arg(long, value_name = "FILE")]
    values: Vec<PathBuf>,
    /// Read objects from files and directories instead of a cluster; - is stdin
    #[arg(long, short = 'f', value_name = "FILE")]
    filename: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    pods: usize,
    definitions: usize,
    nodes: usize,
    fails: usize,
    changes: usize,
    #[serde(flatten)]
    outcome: Outcome,
    /// Everything that could not be read, with the reasons.
    gaps: Vec<String>,
}

/// Reads the cluster or the files, evaluates them and prints the report.
pub(crate) async fn run(
    args: &Args,
    options: &cluster::Options,
    output: Output,
) -> anyhow::Result<CommandStatus> {
    let explicit = explicit_values(&args.values)?;
    let mut snapshot = if args.filename.is_empty() {
        gather::read(&Cluster::new(options).await?, explicit.is_none()).await?
    } else {
        read_files(&args.filename, options.namespace.as_deref())?
    };
    let (choice, values) = choose_chart(&snapshot, explicit.as_ref());
    let rendering = helm::render(&choice, &values.explicit, &snapshot).await;
    let outcome = decide(&mut snapshot, explicit.as_ref(), rendering);
    let report = report(&snapshot, outcome);
    output.print(&report, || text(&report))?;
    Ok(match report.outcome.verdict {
        None if !report.gaps.is_empty() => CommandStatus::Incomplete,
        None | Some(Verdict::Note) => CommandStatus::Ok,
        Some(Verdict::Changes) => CommandStatus::ChangesFound,
        Some(Verdict::Fails) => CommandStatus::ProblemFound,
    })
}

/// Returns whether the daemons of a cluster give addresses of `multus-ipam`; `None` where that is unknown.
pub(crate) async fn is_ipam_on(cluster: &Cluster) -> Option<bool> {
    installation::is_ipam_on(&gather::installed(cluster).await)
}

/// Reads objects from files, as `kubectl get --output yaml` prints them.
fn read_files(files: &[String], namespace: Option<&str>) -> anyhow::Result<ClusterSnapshot> {
    let mut snapshot = ClusterSnapshot::default();
    for document in manifest::read(files) {
        let location = document.location;
        let added = document
            .content
            .and_then(|content| snapshot.add(&content, namespace.unwrap_or("default")));
        if let Err(reason) = added {
            bail!("{location}: {reason}");
        }
    }
    snapshot.drop_used_templates();
    // A dump that has some definitions has all of them.
    snapshot.known.is_complete = !snapshot.definitions.is_empty();
    Ok(snapshot)
}

/// Reads the files of values and merges each over those before it; `None` without files.
fn explicit_values(files: &[PathBuf]) -> anyhow::Result<Option<ExplicitValues>> {
    let mut all = Value::Object(Map::new());
    for file in files {
        let read = || format!("cannot read {}", file.display());
        let text = fs::read_to_string(file).with_context(read)?;
        let values: Value = serde_yaml::from_str(&text)
            .with_context(|| format!("{} is not valid YAML", file.display()))?;
        match values {
            Value::Object(map) => values::merge(&mut all, &map, false),
            Value::Null => {}
            other => bail!(
                "{} has no values: {other} is not a map of keys; write them as in `config: {{}}`",
                file.display()
            ),
        }
    }
    let Value::Object(values) = all else {
        return Ok(None);
    };
    let files: Vec<_> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    Ok((!files.is_empty()).then_some(ExplicitValues { files, values }))
}

fn report(snapshot: &ClusterSnapshot, outcome: Outcome) -> Report {
    let count = |verdict| {
        let findings = outcome.findings.iter();
        findings.filter(|one| one.verdict == verdict).count()
    };
    Report {
        pods: snapshot.pods.iter().filter(|pod| pod.is_pod()).count(),
        definitions: snapshot.definitions.len(),
        nodes: snapshot.nodes.len(),
        fails: count(Verdict::Fails),
        changes: count(Verdict::Changes),
        gaps: snapshot.unread.clone(),
        outcome,
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    let Outcome {
        chart,
        chart_reason,
        values,
        findings,
        steps,
        verdict,
        ..
    } = &report.outcome;
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "checked  {}, {}, {}",
        counted(report.pods, "pod"),
        counted(report.definitions, "definition"),
        counted(report.nodes, "node")
    );
    let _ = writeln!(text, "chart    {chart}: {chart_reason}");
    let _ = writeln!(text, "values   {values}\n");
    for one in findings {
        let _ = writeln!(
            text,
            "{:<8} {}: {}",
            verdict_word(one.verdict),
            names(one),
            one.text
        );
    }
    for gap in &report.gaps {
        let _ = writeln!(text, "unread   {gap}");
    }
    if !findings.is_empty() || !report.gaps.is_empty() {
        text.push('\n');
    }
    let _ = match verdict {
        None if !report.gaps.is_empty() => writeln!(
            text,
            "nothing that was read fails or changes, but not everything could be read; to install:"
        ),
        None => writeln!(text, "nothing fails and nothing changes; to install:"),
        Some(_) => writeln!(
            text,
            "{} would fail, {} would change; what to do:",
            report.fails, report.changes
        ),
    };
    for (index, step) in steps.iter().enumerate() {
        let _ = writeln!(text, "  {}. {step}", index + 1);
    }
    text
}

fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Note => "note",
        Verdict::Changes => "changes",
        Verdict::Fails => "fails",
    }
}

/// Returns what a finding is about, with its first names.
fn names(finding: &Finding) -> String {
    let subject = match finding.subject {
        Subject::Value => "value",
        Subject::Cluster => "cluster",
        Subject::DaemonSet => "DaemonSet",
        Subject::Node => "node",
        Subject::Definition => "definition",
        Subject::Pod => "pod",
    };
    let shown = finding.names.len().min(NAMES);
    let more = match finding.names.len() - shown {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{subject} {}{more}", finding.names[..shown].join(", "))
}
