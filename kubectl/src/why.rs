//! `kubectl multus why`: what keeps a pod from its networks, and what to do about it.

mod cause;
mod decide;

use std::fmt::Write as _;

use serde::Serialize;

use self::{
    cause::Cause,
    decide::{Verdict, decide, summary},
};
use crate::{
    Ending, Output, judge,
    node::Asked,
    remark::{Remark, Severity},
    scene::Scene,
    table::age,
};

/// The last events are those that matter.
const EVENTS: usize = 6;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    pod: String,
    node: String,
    phase: String,
    /// Whether there is nothing to do.
    well: bool,
    cause: Cause,
    /// What is the matter.
    what: String,
    /// What helps; empty where nothing has to be done.
    cure: String,
    /// What the daemon would say of the pod today.
    findings: Vec<Finding>,
    /// What was told of it, the oldest first.
    told: Vec<Told>,
    /// What the node's daemon says.
    daemon: String,
    /// What could not be asked, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Finding {
    severity: Severity,
    text: String,
}

#[derive(Debug, Serialize)]
struct Told {
    age: String,
    who: &'static str,
    reason: String,
    count: u64,
    message: String,
}

/// Finds the cause and prints it with what it was found in.
pub(crate) fn run(scene: &Scene, output: Output, now: u64) -> anyhow::Result<Ending> {
    let remarks = judge::pod(&scene.facts.pod, &scene.netconf, &scene.known);
    let verdict = decide(scene, &remarks);
    let report = report(scene, &remarks, verdict, now);
    output.print(&report, || text(&report))?;
    Ok(Ending::of(report.well))
}

fn report(scene: &Scene, remarks: &[Remark], verdict: Verdict, now: u64) -> Report {
    let facts = &scene.facts;
    let findings = remarks.iter().map(|remark| Finding {
        severity: remark.severity(),
        text: remark.to_string(),
    });
    Report {
        pod: facts.name(),
        node: facts.node.clone(),
        phase: facts.phase.clone(),
        well: verdict.cause.is_well(),
        cause: verdict.cause,
        what: verdict.what,
        cure: verdict.cure,
        findings: findings.collect(),
        told: told(scene, now),
        daemon: daemon(&scene.asked),
        gaps: scene.gaps(),
    }
}

fn told(scene: &Scene, now: u64) -> Vec<Told> {
    let ago = |at: u64| age(now.saturating_sub(at));
    let first = scene.events.len().saturating_sub(EVENTS);
    let events = scene.events[first..].iter().map(|event| {
        let told = Told {
            age: ago(event.at),
            who: "event",
            reason: event.reason.clone(),
            count: event.count,
            message: event.message.clone(),
        };
        (event.at, told)
    });
    let failures = scene
        .asked
        .answer()
        .map(|answer| answer.failures.as_slice());
    let failures = failures.unwrap_or_default().iter().map(|failure| {
        let details = match failure.details.as_str() {
            "" => String::new(),
            details => format!("; {details}"),
        };
        let told = Told {
            age: ago(failure.at),
            who: "daemon",
            reason: failure.verb.clone(),
            count: u64::from(failure.count),
            message: format!("{}{details} (id {})", failure.msg, failure.id),
        };
        (failure.at, told)
    });
    let mut all: Vec<_> = events.chain(failures).collect();
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, told)| told).collect()
}

fn daemon(asked: &Asked) -> String {
    match asked {
        Asked::NoNode => "not asked: the pod has no node".to_owned(),
        Asked::NoDaemon => "there is none on the node".to_owned(),
        Asked::NotRunning { daemon, reason } => format!("{daemon} does not run: {reason}"),
        Asked::Refused(reason) => format!("not asked: {reason}"),
        Asked::Answered { daemon, answer } => match &answer.problem {
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
        if report.well { "well" } else { "cause" },
        report.what
    );
    if !report.cure.is_empty() {
        let _ = writeln!(text, "cure     {}", report.cure);
    }
    let _ = writeln!(text, "\npod      {}, {}", report.pod, report.phase);
    let _ = writeln!(text, "node     {node}");
    let _ = writeln!(text, "daemon   {}", report.daemon);
    for finding in &report.findings {
        if finding.text != report.what {
            let _ = writeln!(text, "{:<8} {}", finding.severity, finding.text);
        }
    }
    for told in &report.told {
        let times = match told.count {
            0 | 1 => String::new(),
            count => format!(" x{count}"),
        };
        let _ = writeln!(
            text,
            "{:<8} {}{times}, {} ago: {}",
            told.who,
            told.reason,
            told.age,
            once(&told.message, &report.what)
        );
    }
    for gap in &report.gaps {
        let _ = writeln!(text, "note     {gap}");
    }
    text
}

/// A message without the calls around it, and without what the cause says already.
fn once(message: &str, cause: &str) -> String {
    let message = summary(message);
    let is_said = !cause.is_empty() && message.contains(cause) || {
        let (words, _) = message.rsplit_once(" (id ").unwrap_or((&message, ""));
        !words.is_empty() && cause.contains(words)
    };
    if is_said {
        "the cause above".to_owned()
    } else {
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::tests::{Given, NOW, answer};

    #[test]
    fn the_cause_comes_first_and_once() {
        let mut given = Given::pod("storage");
        given.define("storage", r#"{"cniVersion":"1.0.0","type":"bridge"}"#);
        given.asked = Some(answer());
        let sandbox = "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \"0a0b\": plugin type=\"multus-shim\" name=\"multus-cni-network\" failed (add): CmdAdd (shim): CNI request failed with status 400: ERRORED: error configuring pod [shop/cart] networking: [shop/cart/u-1:storage]: error adding container to network \"storage\": ";
        given.event("Scheduled", "assigned shop/cart to node-a", false, NOW - 9);
        let failure = "no IP addresses available in range set";
        given.event(
            "FailedCreatePodSandBox",
            &format!("{sandbox}{failure} (id 0a0b)"),
            true,
            NOW - 5,
        );
        let scene = given.scene();
        let verdict = decide(&scene, &[]);
        let text = text(&report(&scene, &[], verdict, NOW));
        let first = format!("cause    {failure} (id 0a0b)\ncure     enlarge");
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
