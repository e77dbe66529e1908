//! `kubectl multus status`: the networks of a pod, from its network status and the daemon's answer.

pub(crate) mod list;

use std::fmt::Write as _;

use api::pod_report::{Attachment, Step};
use plan::netconf::Netconf;
use serde::Serialize;

use crate::{
    CommandStatus, Output,
    cluster::Event,
    network_status::NetworkStatus,
    node_daemon::DaemonReply,
    pod_snapshot::PodSnapshot,
    pod_state::PodState,
    table::{age, table},
    validate::KnownDefinitions,
};

/// One network of the pod, a row of the table.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) network: String,
    pub(crate) interface: String,
    pub(crate) addresses: Vec<String>,
    /// The `IPAMClaim` that has the addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<String>,
    pub(crate) mac: String,
    pub(crate) default: bool,
    gateways: Vec<String>,
    /// The types of the plugins in their order; empty when they are not known.
    pub(crate) plugins: Vec<String>,
    /// The time when it was attached, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<u64>,
    /// The age of the attachment; with `<` when only the pod's own age is known.
    pub(crate) age: String,
    /// The state of an attachment that is not finished or has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<&'static str>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) pod: String,
    pub(crate) node: String,
    pub(crate) phase: String,
    pub(crate) networks: Vec<Row>,
    /// Networks that the annotation requests and the pod does not have.
    pub(crate) missing: Vec<String>,
    /// The reason why the pod's networks cannot be attached or are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
    /// Everything that could not be queried or read, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) gaps: Vec<String>,
}

/// Prints the networks of the pod.
pub(crate) fn run(
    snapshot: &PodSnapshot,
    output: Output,
    now: u64,
) -> anyhow::Result<CommandStatus> {
    let report = report(snapshot, now);
    output.print(&report, || text(&report))?;
    Ok(CommandStatus::of(
        report.missing.is_empty() && report.problem.is_none(),
    ))
}

/// Returns the networks of a pod.
pub(crate) fn report(snapshot: &PodSnapshot, now: u64) -> Report {
    let pod_state = &snapshot.pod_state;
    let networks = rows(snapshot, now);
    let attached = networks
        .iter()
        .filter(|row| row.note.is_none())
        .map(|row| row.network.as_str());
    Report {
        pod: pod_state.name(),
        node: pod_state.node.clone(),
        phase: pod_state.phase.clone(),
        missing: pod_state.missing(&snapshot.netconf, attached),
        problem: problem(snapshot, networks.is_empty()),
        networks,
        gaps: snapshot.gaps(),
    }
}

/// Returns why the pod's networks cannot be attached or are not known: its annotation is invalid, or the daemon of its node does not serve pods.
fn problem(snapshot: &PodSnapshot, has_no_networks: bool) -> Option<String> {
    let pod_state = &snapshot.pod_state;
    if let Err(error) = plan::selections(&pod_state.pod.view, &snapshot.netconf) {
        return Some(error.to_string());
    }
    if !has_no_networks || pod_state.pod.host_network || pod_state.node.is_empty() {
        return None;
    }
    match &snapshot.reply {
        DaemonReply::NoDaemon => Some("there is no Multus daemon on the pod's node".to_owned()),
        DaemonReply::NotRunning { daemon, reason } => {
            Some(format!("the daemon {daemon} does not run: {reason}"))
        }
        DaemonReply::Answered { daemon, answer } => {
            let problem = answer.problem.as_ref()?;
            Some(format!(
                "the daemon {daemon} does not serve pods: {problem}"
            ))
        }
        DaemonReply::NoNode | DaemonReply::Unavailable(_) => None,
    }
}

/// Returns the networks of the status, completed from the daemon's answer, then those that only the daemon knows.
fn rows(snapshot: &PodSnapshot, now: u64) -> Vec<Row> {
    let pod_state = &snapshot.pod_state;
    let attachments = attachments(&snapshot.reply, pod_state);
    let mut rows = Vec::new();
    let is_of = |status: &NetworkStatus, one: &Attachment| {
        status.name == one.network
            && (status.interface == one.interface || status.interface.is_empty())
    };
    for status in pod_state.status.iter().flatten() {
        let known = attachments.iter().find(|one| is_of(status, one));
        let since = known
            .and_then(|one| one.since)
            .or_else(|| added_at(&snapshot.events, status));
        let plugins = known.map_or_else(
            || definition_plugins(&snapshot.known, &snapshot.netconf, &status.name),
            |one| one.plugins.clone(),
        );
        rows.push(Row {
            network: status.name.clone(),
            interface: status.interface.clone(),
            addresses: status.ips.clone(),
            claim: known.and_then(|one| one.claim.clone()),
            mac: status.mac.clone(),
            default: status.default,
            gateways: status.gateway.clone(),
            plugins,
            since,
            age: age_of(since, pod_state.started, now),
            note: None,
        });
    }
    for one in attachments {
        let mut reported = pod_state.status.iter().flatten();
        if reported.any(|status| is_of(status, one)) || one.progress == Step::Removed {
            continue;
        }
        rows.push(Row {
            network: one.network.clone(),
            interface: one.interface.clone(),
            addresses: one.addresses.clone(),
            claim: one.claim.clone(),
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
        // An attached network without an interface is in no status.
        Step::Attached | Step::Removed => None,
        Step::Planned => Some("not begun"),
        Step::Started => Some("being attached"),
        Step::Failed => Some("failed"),
    }
}

/// Returns the attachments of this pod without those that an earlier pod of the same name left.
fn attachments<'a>(reply: &'a DaemonReply, pod_state: &PodState) -> Vec<&'a Attachment> {
    let containers = reply.answer().map(|answer| answer.containers.as_slice());
    let view = &pod_state.pod.view;
    containers
        .unwrap_or_default()
        .iter()
        .filter(|one| one.uid.is_empty() || one.uid == view.uid || view.is_static)
        .flat_map(|one| &one.attachments)
        .collect()
}

/// Returns the time of the event that reports the network's attachment.
fn added_at(events: &[Event], status: &NetworkStatus) -> Option<u64> {
    let begin = format!("Add {} [", status.interface);
    let end = format!("] from {}", status.name);
    let mut newest_first = events.iter().rev();
    let added = newest_first.find(|event| {
        let mut networks = event.message.split(plan::EVENT_SEPARATOR);
        event.reason == "AddedInterface"
            && networks.any(|text| text.starts_with(&begin) && text.ends_with(&end))
    });
    added.map(|event| event.at)
}

/// Returns the plugins that the definition names now, for pods whose daemon was not queried.
fn definition_plugins(known: &KnownDefinitions, netconf: &Netconf, name: &str) -> Vec<String> {
    let Some((namespace, name)) = name.split_once('/') else {
        return Vec::new();
    };
    let nad = known.nads.get(&(namespace.to_owned(), name.to_owned()));
    nad.map(|nad| crate::validate::plugins(nad, netconf))
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
        text.push_str("no networks are known of this pod\n");
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
    let claim = row.claim.as_ref();
    let claim = claim.map(|claim| format!(" (claim {claim})"));
    vec![
        format!("{}{default}{}", row.network, note.unwrap_or_default()),
        or_dash(row.interface.clone()),
        or_dash(row.addresses.join(",") + &claim.unwrap_or_default()),
        or_dash(row.mac.clone()),
        or_dash(row.plugins.join("+")),
        or_dash(row.age.clone()),
    ]
}

#[cfg(test)]
mod tests;
