//! `kubectl multus why`: diagnoses what keeps a pod from its networks, and says what helps.

mod cause;
mod diagnose;

use std::fmt::Write as _;

use serde::Serialize;

use self::{
    cause::Cause,
    diagnose::{Diagnosis, diagnose, failure_text, summary},
};
use crate::{
    CommandStatus, Output,
    diagnostic::{Diagnostic, Severity},
    node_daemon::DaemonReply,
    pod_snapshot::PodSnapshot,
    table::age,
    validate,
};

/// The number of events that are reported, the newest ones.
const EVENTS: usize = 6;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    pod: String,
    node: String,
    phase: String,
    /// True when there is nothing to do.
    is_healthy: bool,
    cause: Cause,
    /// A sentence that names the cause.
    explanation: String,
    /// A sentence that says what helps; empty when there is nothing to do or `explanation` says it already.
    hint: String,
    /// The daemon's rules, applied to the pod as it is now.
    findings: Vec<Finding>,
    /// Events and failures of the daemon, the oldest first.
    log: Vec<LogEntry>,
    /// The state of the node's daemon, as a sentence.
    daemon: String,
    /// Everything that could not be queried or read, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Finding {
    severity: Severity,
    text: String,
}

#[derive(Debug, Serialize)]
struct LogEntry {
    age: String,
    /// `event` or `daemon`.
    source: &'static str,
    reason: String,
    count: u64,
    message: String,
}

/// Diagnoses the pod and prints the cause together with everything that led to it.
pub(crate) fn run(
    snapshot: &PodSnapshot,
    output: Output,
    now: u64,
) -> anyhow::Result<CommandStatus> {
    let diagnostics = validate::pod(&snapshot.pod_state.pod, &snapshot.netconf, &snapshot.known);
    let diagnosis = diagnose(snapshot, &diagnostics);
    let report = report(snapshot, &diagnostics, diagnosis, now);
    output.print(&report, || text(&report))?;
    Ok(CommandStatus::of(report.is_healthy))
}

fn report(
    snapshot: &PodSnapshot,
    diagnostics: &[Diagnostic],
    diagnosis: Diagnosis,
    now: u64,
) -> Report {
    let pod_state = &snapshot.pod_state;
    let findings = diagnostics.iter().map(|diagnostic| Finding {
        severity: diagnostic.severity(),
        text: diagnostic.to_string(),
    });
    Report {
        pod: pod_state.name(),
        node: pod_state.node.clone(),
        phase: pod_state.phase.clone(),
        is_healthy: diagnosis.cause.is_healthy(),
        cause: diagnosis.cause,
        explanation: diagnosis.explanation,
        hint: diagnosis.hint,
        findings: findings.collect(),
        log: log(snapshot, now),
        daemon: daemon(&snapshot.reply),
        gaps: snapshot.gaps(),
    }
}

fn log(snapshot: &PodSnapshot, now: u64) -> Vec<LogEntry> {
    let ago = |at: u64| age(now.saturating_sub(at));
    let first = snapshot.events.len().saturating_sub(EVENTS);
    let events = snapshot.events[first..].iter().map(|event| {
        let entry = LogEntry {
            age: ago(event.at),
            source: "event",
            reason: event.reason.clone(),
            count: event.count,
            message: event.message.clone(),
        };
        (event.at, entry)
    });
    let failures = snapshot
        .reply
        .answer()
        .map(|answer| answer.failures.as_slice());
    let failures = failures.unwrap_or_default().iter().map(|failure| {
        let entry = LogEntry {
            age: ago(failure.at),
            source: "daemon",
            reason: failure.verb.clone(),
            count: u64::from(failure.count),
            message: failure_text(&failure.msg, &failure.details, &failure.id),
        };
        (failure.at, entry)
    });
    let mut all: Vec<_> = events.chain(failures).collect();
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, entry)| entry).collect()
}

fn daemon(reply: &DaemonReply) -> String {
    match reply {
        DaemonReply::NoNode => "not queried: the pod is not scheduled".to_owned(),
        DaemonReply::NoDaemon => "there is no daemon on the node".to_owned(),
        DaemonReply::NotRunning { daemon, reason } => format!("{daemon} does not run: {reason}"),
        DaemonReply::Unavailable(reason) => format!("not queried: {reason}"),
        DaemonReply::Answered { daemon, answer } => match &answer.problem {
            Some(problem) => format!("{daemon} does not serve pods: {problem}"),
            None => format!("{daemon} serves pods (version {})", answer.version),
        },
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    let node = match report.node.as_str() {
        "" => "no node yet",
        node => node,
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{:<8} {}",
        if report.is_healthy { "ok" } else { "cause" },
        report.explanation
    );
    if !report.hint.is_empty() {
        let _ = writeln!(text, "hint     {}", report.hint);
    }
    let _ = writeln!(text, "\npod      {}, {}", report.pod, report.phase);
    let _ = writeln!(text, "node     {node}");
    let _ = writeln!(text, "daemon   {}", report.daemon);
    for finding in &report.findings {
        if finding.text != report.explanation {
            let _ = writeln!(text, "{:<8} {}", finding.severity, finding.text);
        }
    }
    for entry in &report.log {
        let times = match entry.count {
            0 | 1 => String::new(),
            count => format!(" x{count}"),
        };
        let _ = writeln!(
            text,
            "{:<8} {}{times}, {} ago: {}",
            entry.source,
            entry.reason,
            entry.age,
            without_cause(&entry.message, &report.explanation)
        );
    }
    for gap in &report.gaps {
        let _ = writeln!(text, "note     {gap}");
    }
    text
}

/// Returns a message without the names of the calls around it, or a reference to the cause when it says the same.
fn without_cause(message: &str, cause: &str) -> String {
    let message = summary(message);
    let is_cause = !cause.is_empty() && message.contains(cause) || {
        let (text, _) = message.rsplit_once(" (id ").unwrap_or((&message, ""));
        !text.is_empty() && cause.contains(text)
    };
    if is_cause {
        "the cause above".to_owned()
    } else {
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_snapshot::tests::{NOW, PodFixture, answer};

    #[test]
    fn the_cause_is_printed_first_and_only_once() {
        let mut fixture = PodFixture::pod("storage");
        fixture.define("storage", r#"{"cniVersion":"1.0.0","type":"bridge"}"#);
        fixture.answer = Some(answer());
        let sandbox = "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \"0a0b\": plugin type=\"multus-shim\" name=\"multus-cni-network\" failed (add): CmdAdd (shim): CNI request failed with status 400: ERRORED: error configuring pod [shop/cart] networking: [shop/cart/u-1:storage]: error adding container to network \"storage\": ";
        fixture.event("Scheduled", "assigned shop/cart to node-a", false, NOW - 9);
        let failure = "no IP addresses available in range set";
        fixture.event(
            "FailedCreatePodSandBox",
            &format!("{sandbox}{failure} (id 0a0b)"),
            true,
            NOW - 5,
        );
        let snapshot = fixture.snapshot();
        let diagnosis = diagnose(&snapshot, &[]);
        let text = text(&report(&snapshot, &[], diagnosis, NOW));
        let first = format!("cause    {failure} (id 0a0b)\nhint     enlarge");
        assert!(text.starts_with(&first), "{text}");
        assert_eq!(text.matches(failure).count(), 1, "{text}");
        assert!(
            text.contains("event    FailedCreatePodSandBox, 5s ago: the cause above\n"),
            "{text}"
        );
        assert!(
            text.contains("Scheduled, 9s ago: assigned shop/cart to node-a\n"),
            "{text}"
        );
        assert!(!text.contains("rpc error"), "{text}");
    }
}
