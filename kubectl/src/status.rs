//! `kubectl multus status`: the networks that a pod has, out of its status and of the daemon's answer.

use std::fmt::Write as _;

use api::pod_report::{Attachment, Step};
use plan::netconf::Netconf;
use serde::Serialize;

use crate::{
    Ending, Output,
    cluster::Event,
    facts::{Facts, NetworkStatus},
    judge::Known,
    node::Asked,
    scene::Scene,
    table::{age, table},
};

/// One network of the pod.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    network: String,
    interface: String,
    addresses: Vec<String>,
    mac: String,
    default: bool,
    gateways: Vec<String>,
    /// In their order; none where nobody knows.
    plugins: Vec<String>,
    /// Since when it is attached, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    /// How old it is; `<` where only the pod's own age is known.
    age: String,
    /// What is odd about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Report {
    pod: String,
    node: String,
    phase: String,
    networks: Vec<Row>,
    /// What the annotation asks for and the pod does not have.
    missing: Vec<String>,
    /// Why the pod's networks cannot be had or are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// What could not be asked, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<String>,
}

/// Prints what there is.
pub(crate) fn run(scene: &Scene, output: Output, now: u64) -> anyhow::Result<Ending> {
    let report = report(scene, now);
    output.print(&report, || text(&report))?;
    Ok(Ending::of(
        report.missing.is_empty() && report.problem.is_none(),
    ))
}

fn report(scene: &Scene, now: u64) -> Report {
    let facts = &scene.facts;
    let networks = rows(scene, now);
    let there = networks
        .iter()
        .filter(|row| row.note.is_none())
        .map(|row| row.network.as_str());
    Report {
        pod: facts.name(),
        node: facts.node.clone(),
        phase: facts.phase.clone(),
        missing: facts.missing(&scene.netconf, there),
        problem: problem(scene, networks.is_empty()),
        networks,
        gaps: scene.gaps(),
    }
}

/// Why a pod cannot have its networks, or why they are not known: its annotation, or the daemon of its node.
fn problem(scene: &Scene, has_none: bool) -> Option<String> {
    let facts = &scene.facts;
    if let Err(error) = plan::selections(&facts.pod.view, &scene.netconf) {
        return Some(error.to_string());
    }
    if !has_none || facts.pod.host_network || facts.node.is_empty() {
        return None;
    }
    match &scene.asked {
        Asked::NoDaemon => Some("there is no Multus daemon on the pod's node".to_owned()),
        Asked::NotRunning { daemon, reason } => {
            Some(format!("the daemon {daemon} does not run: {reason}"))
        }
        Asked::Answered { daemon, answer } => {
            let problem = answer.problem.as_ref()?;
            Some(format!(
                "the daemon {daemon} does not serve pods: {problem}"
            ))
        }
        Asked::NoNode | Asked::Refused(_) => None,
    }
}

/// What the status tells, completed by the daemon's answer, and what the daemon alone knows.
fn rows(scene: &Scene, now: u64) -> Vec<Row> {
    let facts = &scene.facts;
    let attachments = attachments(&scene.asked, facts);
    let mut rows = Vec::new();
    let is_of = |status: &NetworkStatus, one: &Attachment| {
        status.name == one.network
            && (status.interface == one.interface || status.interface.is_empty())
    };
    for status in facts.status.iter().flatten() {
        let known = attachments.iter().find(|one| is_of(status, one));
        let since = known
            .and_then(|one| one.since)
            .or_else(|| told_at(&scene.events, status));
        let plugins = known.map_or_else(
            || of_definition(&scene.known, &scene.netconf, &status.name),
            |one| one.plugins.clone(),
        );
        rows.push(Row {
            network: status.name.clone(),
            interface: status.interface.clone(),
            addresses: status.ips.clone(),
            mac: status.mac.clone(),
            default: status.default,
            gateways: status.gateway.clone(),
            plugins,
            since,
            age: age_of(since, facts.started, now),
            note: None,
        });
    }
    for one in attachments {
        let mut told = facts.status.iter().flatten();
        if told.any(|status| is_of(status, one)) || one.progress == Step::Removed {
            continue;
        }
        rows.push(Row {
            network: one.network.clone(),
            interface: one.interface.clone(),
            addresses: one.addresses.clone(),
            mac: String::new(),
            default: false,
            gateways: Vec::new(),
            plugins: one.plugins.clone(),
            since: one.since,
            age: age_of(one.since, None, now),
            note: note(one.progress),
        });
    }
    rows
}

fn note(progress: Step) -> Option<&'static str> {
    match progress {
        // A network without an interface is in no status.
        Step::Attached | Step::Removed => None,
        Step::Planned => Some("not begun"),
        Step::Started => Some("being attached"),
        Step::Failed => Some("failed"),
    }
}

/// Those of the pod itself: a namesake may have left some.
fn attachments<'a>(asked: &'a Asked, facts: &Facts) -> Vec<&'a Attachment> {
    let containers = asked.answer().map(|answer| answer.containers.as_slice());
    let view = &facts.pod.view;
    containers
        .unwrap_or_default()
        .iter()
        .filter(|one| one.uid.is_empty() || one.uid == view.uid || view.is_static)
        .flat_map(|one| &one.attachments)
        .collect()
}

/// When an event told of it.
fn told_at(events: &[Event], status: &NetworkStatus) -> Option<u64> {
    let begin = format!("Add {} [", status.interface);
    let end = format!("] from {}", status.name);
    let mut newest_first = events.iter().rev();
    let told = newest_first.find(|event| {
        event.reason == "AddedInterface"
            && event.message.starts_with(&begin)
            && event.message.ends_with(&end)
    });
    told.map(|event| event.at)
}

/// What the definition says by now, where nobody could be asked what runs.
fn of_definition(known: &Known, netconf: &Netconf, name: &str) -> Vec<String> {
    let Some((namespace, name)) = name.split_once('/') else {
        return Vec::new();
    };
    let nad = known.nads.get(&(namespace.to_owned(), name.to_owned()));
    nad.map(|nad| crate::judge::plugins(nad, netconf))
        .unwrap_or_default()
}

fn age_of(since: Option<u64>, started: Option<u64>, now: u64) -> String {
    match (since, started) {
        (Some(since), _) => age(now.saturating_sub(since)),
        (None, Some(started)) => format!("<{}", age(now.saturating_sub(started))),
        (None, None) => String::new(),
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    let node = if report.node.is_empty() {
        "no node yet".to_owned()
    } else {
        format!("on {}", report.node)
    };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{} {node}, {}\n", report.pod, report.phase);
    let rows: Vec<_> = report.networks.iter().map(cells).collect();
    if rows.is_empty() {
        text.push_str("no networks are told of this pod\n");
    } else {
        let titles = ["NETWORK", "INTERFACE", "ADDRESSES", "MAC", "PLUGIN", "AGE"];
        text.push_str(&table(&titles, &rows));
    }
    for name in &report.missing {
        let _ = writeln!(
            text,
            "\nnot attached: {name}; `kubectl multus why {}` says why",
            report.pod
        );
    }
    if let Some(problem) = &report.problem {
        let _ = writeln!(text, "\nproblem: {problem}");
    }
    for gap in &report.gaps {
        let _ = writeln!(text, "\nnote: {gap}");
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    let or_dash = |text: String| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    };
    let default = if row.default { " *" } else { "" };
    let note = row.note.map(|note| format!(" ({note})"));
    vec![
        format!("{}{default}{}", row.network, note.unwrap_or_default()),
        or_dash(row.interface.clone()),
        or_dash(row.addresses.join(",")),
        or_dash(row.mac.clone()),
        or_dash(row.plugins.join("+")),
        or_dash(row.age.clone()),
    ]
}

#[cfg(test)]
mod tests;
