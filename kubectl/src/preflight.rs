//! `kubectl multus preflight`: what would fail or change in a cluster when this release is installed.
//!
//! Reading (`gather`) is apart from deciding (`decide`), which is a function over a snapshot and the values.

mod decide;
mod gather;
mod installation;
mod nodes;
mod pods;
mod schema;
mod snapshot;
mod values;

pub(crate) use installation::is_multus;

use std::{fmt::Write as _, fs, path::PathBuf};

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde_json::{Map, Value};

use self::{
    decide::{Finding, Given, Outcome, Subject, Verdict, decide},
    snapshot::Snapshot,
};
use crate::{
    Ending, Output,
    cluster::{self, Cluster},
    lint::counted,
    manifest,
};

/// So many names of one finding are printed.
const NAMES: usize = 3;

/// What to look at, and by which values.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Values of the installation to come, as `helm get values` prints them; may be repeated, and the last file wins
    #[arg(long, value_name = "FILE")]
    values: Vec<PathBuf>,
    /// Look at objects in files and folders instead of a cluster; - is standard input
    #[arg(long, short = 'f', value_name = "FILE")]
    filename: Vec<String>,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    pods: usize,
    definitions: usize,
    nodes: usize,
    fails: usize,
    changes: usize,
    #[serde(flatten)]
    outcome: Outcome,
    /// What could not be read, and why.
    gaps: Vec<String>,
}

/// Reads, decides and prints.
pub(crate) async fn run(
    args: &Args,
    options: &cluster::Options,
    output: Output,
) -> anyhow::Result<Ending> {
    let given = given(&args.values)?;
    let mut snapshot = if args.filename.is_empty() {
        gather::read(&Cluster::new(options).await?, given.is_none()).await?
    } else {
        of_files(&args.filename, options.namespace.as_deref())?
    };
    let outcome = decide(&mut snapshot, given.as_ref());
    let report = report(&snapshot, outcome);
    output.print(&report, || text(&report))?;
    Ok(match report.outcome.verdict {
        None if !report.gaps.is_empty() => Ending::Unknown,
        None | Some(Verdict::Note) => Ending::Well,
        Some(Verdict::Changes) => Ending::Changes,
        Some(Verdict::Fails) => Ending::Wrong,
    })
}

/// Objects of files, as `kubectl get --output yaml` prints them.
fn of_files(files: &[String], namespace: Option<&str>) -> anyhow::Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    for document in manifest::read(files) {
        let place = document.place;
        let added = document
            .content
            .and_then(|content| snapshot.add(&content, namespace.unwrap_or("default")));
        if let Err(reason) = added {
            bail!("{place}: {reason}");
        }
    }
    snapshot.drop_used_templates();
    // Who has written down some definitions has written down all.
    snapshot.known.is_whole = !snapshot.definitions.is_empty();
    Ok(snapshot)
}

/// The files of values, one laid over the other.
fn given(files: &[PathBuf]) -> anyhow::Result<Option<Given>> {
    let mut all = Value::Object(Map::new());
    for file in files {
        let read = || format!("cannot read {}", file.display());
        let text = fs::read_to_string(file).with_context(read)?;
        let values: Value = serde_yaml::from_str(&text)
            .with_context(|| format!("{} is no YAML", file.display()))?;
        match values {
            Value::Object(map) => values::merge(&mut all, &map, false),
            Value::Null => {}
            other => bail!(
                "{} holds no values: {other} is no map of keys; write them as in `config: {{}}`",
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
    Ok((!files.is_empty()).then_some(Given { files, values }))
}

fn report(snapshot: &Snapshot, outcome: Outcome) -> Report {
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
        "looked at {}, {}, {}",
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
            "nothing was found that fails or changes, but not everything could be read; the installation:"
        ),
        None => writeln!(text, "nothing fails and nothing changes; the installation:"),
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

/// What a finding is about, with the first few names.
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
