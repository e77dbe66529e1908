//! `kubectl multus why`: diagnoses what keeps a pod from its networks, and says what helps.

mod cause;
mod diagnose;

pub(crate) use self::cause::Cause;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;

use self::diagnose::{diagnose, failure_text, summary};
use crate::{
    CommandStatus, Output, PodArgs,
    cluster::{Cluster, Options},
    diagnostic::Severity,
    networks,
    node_daemon::{AllReplies, DaemonReply, not_listed, query_all},
    pod_snapshot::PodSnapshot,
    pod_state::requested,
    table::age,
    validate,
};

/// The number of events that are reported, the newest ones.
const EVENTS: usize = 6;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pod: String,
    node: String,
    phase: String,
    /// True when there is nothing to do.
    pub(crate) is_healthy: bool,
    pub(crate) cause: Cause,
    /// A sentence that names the cause.
    pub(crate) explanation: String,
    /// A sentence that says what helps; empty when there is nothing to do or `explanation` says it already.
    pub(crate) hint: String,
    /// The daemon's rules, applied to the pod as it is now.
    findings: Vec<Finding>,
    /// Events and failures of the daemon, the oldest first.
    pub(crate) log: Vec<LogEntry>,
    /// The state of the node's daemon, as a sentence.
    daemon: String,
    /// The other nodes that can serve all networks of the pod, where the cause is what its node lacks; all such nodes of a pod that waits for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_nodes: Option<Vec<String>>,
    /// Everything that could not be queried or read, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<String>,
}

impl Report {
    /// Returns all sentences, which may quote what the pod and its definitions say.
    pub(crate) fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        let findings = self.findings.iter_mut().map(|one| &mut one.text);
        let log = self.log.iter_mut().map(|one| &mut one.message);
        let own = [&mut self.explanation, &mut self.hint, &mut self.daemon];
        let gaps = self.gaps.iter_mut();
        own.into_iter().chain(findings).chain(log).chain(gaps)
    }

    /// Adds what the daemons of all nodes say about the pod's networks.
    fn add_nodes(&mut self, networks: &[String], replies: AllReplies) {
        let mut nodes = networks::serving(&replies, networks);
        nodes.retain(|node| *node != self.node);
        self.other_nodes = Some(nodes);
        self.gaps.extend(replies.gaps);
    }
}

#[derive(Debug, Serialize)]
struct Finding {
    severity: Severity,
    text: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct LogEntry {
    pub(crate) age: String,
    /// `event` or `daemon`.
    pub(crate) source: &'static str,
    pub(crate) reason: String,
    pub(crate) count: u64,
    pub(crate) message: String,
}

/// Diagnoses the pod and prints the cause together with everything that led to it.
pub(crate) async fn run(
    args: &PodArgs,
    options: &Options,
    output: Output,
    now: u64,
) -> anyhow::Result<CommandStatus> {
    let snapshot = &args.read(options).await?;
    let mut report = examine(snapshot, now);
    let networks = requested(&snapshot.pod_state.pod, &snapshot.netconf);
    if report.cause.is_of_node() && !networks.is_empty() {
        let cluster = Cluster::new(options).await?;
        match query_all(&cluster, None, args.daemon_namespace.as_deref()).await {
            Ok(replies) => report.add_nodes(&networks, replies),
            Err(reason) => {
                let gap = format!("other nodes were not queried: {}", not_listed(&reason));
                report.gaps.push(gap);
            }
        }
    }
    output.print(&report, || text(&report))?;
    Ok(CommandStatus::of(report.is_healthy))
}

/// Diagnoses a pod without what other nodes can serve.
pub(crate) fn examine(snapshot: &PodSnapshot, now: u64) -> Report {
    let diagnostics = validate::pod(&snapshot.pod_state.pod, &snapshot.netconf, &snapshot.known);
    let diagnosis = diagnose(snapshot, &diagnostics);
    let pod_state = &snapshot.pod_state;
    let findings = diagnostics.iter().map(|diagnostic| Finding {
        severity: diagnostic.severity(),
        text: diagnostic.to_string(),
    });
    // A pod that has a node needs no scheduler any more.
    let faults = if pod_state.node.is_empty() {
        validate::scheduling_faults(&pod_state.pod, &snapshot.netconf, &snapshot.known)
    } else {
        BTreeSet::new()
    };
    let findings = findings.chain(faults.into_iter().map(|(network, fault)| Finding {
        severity: Severity::Warning,
        text: format!("network {network}: {fault}"),
    }));
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
        other_nodes: None,
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
        DaemonReply::Answered { daemon, answer } => match &answer.problem {
            Some(problem) => format!("{daemon} does not serve pods: {problem}"),
            None => format!("{daemon} serves pods (version {})", answer.version),
        },
        other => other.without_answer().unwrap_or_default(),
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
    let (label, other) = match report.node.as_str() {
        "" => ("nodes", ""),
        _ => ("others", "other "),
    };
    let _ = match report.other_nodes.as_deref() {
        None => Ok(()),
        Some([]) => writeln!(
            text,
            "{label:<8} no {other}node that answered can serve all its networks"
        ),
        Some(nodes) => {
            let nodes = nodes.join(", ");
            writeln!(text, "{label:<8} all its networks can be served by {nodes}")
        }
    };
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
pub(crate) fn without_cause(message: &str, cause: &str) -> String {
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
        let text = text(&examine(&snapshot, NOW));
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

    #[test]
    fn networks_that_choose_no_node_are_named_while_the_pod_has_none() {
        let long = format!("lan-{}", "a".repeat(60));
        let mut fixture = PodFixture::pod(&format!("odd,{long},odd"));
        for name in ["odd", &long] {
            fixture.define(name, r#"{"cniVersion":"1.0.0","type":"bridge"}"#);
        }
        fixture.nads[0]["metadata"]["annotations"] =
            serde_json::json!({plan::SELECTOR_ANNOTATION: "disk"});
        let findings = |fixture: &PodFixture| text(&examine(&fixture.snapshot(), NOW));
        let with_node = findings(&fixture);
        assert!(!with_node.contains("nodeSelector"), "{with_node}");
        fixture.pod["spec"]["nodeName"] = serde_json::json!("");
        let without = findings(&fixture);
        let odd = "network shop/odd: the annotation k8s.v1.cni.cncf.io/nodeSelector is \"disk\", so pods do not get it: write one label as key=value";
        assert_eq!(without.matches(odd).count(), 1, "{without}");
        let long = format!(
            "network shop/{long}: no node has a label or resource for this network: namespace and name have 68 characters"
        );
        assert!(without.contains(&long), "{without}");
    }

    #[test]
    fn nodes_that_would_do_are_named() {
        let fixture = PodFixture::pod("storage");
        let snapshot = fixture.snapshot();
        let networks = requested(&snapshot.pod_state.pod, &snapshot.netconf);
        let answer = serde_json::json!({"schema": 1, "version": "5.0.0", "networks": [{"network": "shop/storage", "state": "serves"}]});
        let replies = |nodes: &[&str]| AllReplies {
            answers: nodes
                .iter()
                .map(|node| {
                    (
                        (*node).to_owned(),
                        serde_json::from_value(answer.clone()).unwrap(),
                    )
                })
                .collect(),
            gaps: vec!["node node-d: forbidden".to_owned()],
        };
        let lines = |nodes: &[&str]| {
            let mut report = examine(&snapshot, NOW);
            report.add_nodes(&networks, replies(nodes));
            text(&report)
        };
        let found = lines(&["node-a", "node-b", "node-c"]);
        let expected = "\nothers   all its networks can be served by node-b, node-c\n";
        assert!(found.contains(expected), "{found}");
        assert!(
            found.contains("note     node node-d: forbidden\n"),
            "{found}"
        );
        let found = lines(&["node-a"]);
        let expected = "\nothers   no other node that answered can serve all its networks\n";
        assert!(found.contains(expected), "{found}");
        let mut fixture = PodFixture::pod("storage");
        fixture.pod["spec"]["nodeName"].take();
        let snapshot = fixture.snapshot();
        let mut waiting = examine(&snapshot, NOW);
        assert!(waiting.cause.is_of_node(), "{waiting:?}");
        waiting.add_nodes(&networks, replies(&["node-a"]));
        let found = text(&waiting);
        let expected = "\nnodes    all its networks can be served by node-a\n";
        assert!(found.contains(expected), "{found}");
    }
}
