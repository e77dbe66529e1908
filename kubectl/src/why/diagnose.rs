//! Diagnoses a pod: a function over its object, definitions, events, status and the daemon's answer returns the likely cause.
//!
//! The present state of the cluster counts more than earlier reports: a definition that does not exist is the cause, whatever an event says.

use api::{cause::Cause as FailureCause, options};
use plan::Attachment;

use super::cause::Cause;
use crate::{
    cluster::Event,
    diagnostic::{Diagnostic, Severity},
    node_daemon::DaemonReply,
    pod_snapshot::PodSnapshot,
    validate,
};

/// Reasons of the events by which runtime and daemon report that networks cannot be attached.
const FAILURES: [&str; 3] = [
    "FailedCreatePodSandBox",
    "FailedAddNetwork",
    "NoNetworkFound",
];

/// Keys of plugins' configurations that name an interface of the node.
const MASTER_KEYS: [&str; 3] = ["master", "device", "parent"];

/// The likely cause with its explanation, and a hint.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Diagnosis {
    pub(super) cause: Cause,
    pub(super) explanation: String,
    pub(super) hint: String,
}

impl Diagnosis {
    fn new(cause: impl Into<Cause>, explanation: impl Into<String>) -> Self {
        let cause = cause.into();
        Self {
            cause,
            explanation: explanation.into(),
            hint: cause.hint().to_owned(),
        }
    }
}

/// Returns the likely cause; `diagnostics` are those of the pod.
pub(super) fn diagnose(snapshot: &PodSnapshot, diagnostics: &[Diagnostic]) -> Diagnosis {
    pod_lifecycle(snapshot, diagnostics)
        .or_else(|| definition_errors(diagnostics))
        .or_else(|| daemon_problem(snapshot))
        .or_else(|| plugin_failures(snapshot))
        .unwrap_or_else(|| without_failure(snapshot))
}

/// Diagnoses pods that are ending, request nothing, have no node, or have all networks that they request.
fn pod_lifecycle(snapshot: &PodSnapshot, diagnostics: &[Diagnostic]) -> Option<Diagnosis> {
    let pod_state = &snapshot.pod_state;
    if pod_state.is_deleted {
        let stuck = snapshot.events.iter().rev().find(|event| {
            event.is_warning
                && ["FailedDelNetwork", "FailedKillPod"].contains(&event.reason.as_str())
        });
        return Some(match stuck {
            Some(event) => failed(snapshot, event_cause(snapshot, event), &event.message),
            None => Diagnosis::new(Cause::Ended, "the pod is being deleted"),
        });
    }
    if ["Succeeded", "Failed"].contains(&pod_state.phase.as_str()) {
        let explanation = format!(
            "the pod has ended ({}), and its networks were detached",
            pod_state.phase
        );
        return Some(Diagnosis::new(Cause::Ended, explanation));
    }
    if let Some(diagnosis) = annotation_errors(diagnostics) {
        return Some(diagnosis);
    }
    let has_requests = !validate::selected(&pod_state.pod, &snapshot.netconf).is_empty();
    if !has_requests && first_error(diagnostics).is_none() && pod_state.has_sandbox() {
        let explanation = "the pod requests no networks besides the cluster's default one";
        return Some(Diagnosis::new(Cause::NothingRequested, explanation));
    }
    if let Some(diagnosis) = cluster_problem(snapshot) {
        return Some(diagnosis);
    }
    if pod_state.node.is_empty() {
        let reason = pod_state
            .unscheduled
            .clone()
            .filter(|text| !text.is_empty());
        let reason = reason.unwrap_or_else(|| "the scheduler has not decided yet".to_owned());
        let next = first_error(diagnostics)
            .map(|next| format!("; once it is scheduled, it will fail: {next}"));
        let explanation = format!(
            "the pod is not scheduled: {reason}{}",
            next.unwrap_or_default()
        );
        return Some(Diagnosis::new(Cause::NotScheduled, explanation));
    }
    (has_requests && missing(snapshot).is_empty()).then(|| attached(snapshot, diagnostics))
}

/// Diagnoses pods for which the scheduler finds no node because the nodes' network is not ready.
fn cluster_problem(snapshot: &PodSnapshot) -> Option<Diagnosis> {
    let health = &snapshot.health;
    let (_, reason) = health
        .unready_nodes
        .first()
        .filter(|_| snapshot.pod_state.node.is_empty())?;
    let nodes = health.unready_nodes.iter();
    let names: Vec<_> = nodes.map(|(name, _)| name.as_str()).collect();
    let is_multus = !health.unready_daemon_sets.is_empty() || reason.contains("multus");
    let (cause, daemons) = match (is_multus, health.is_installed) {
        (true, _) => (
            FailureCause::DaemonNotReady,
            health.unready_daemon_sets.join(", "),
        ),
        (false, Some(true)) => (
            FailureCause::NodeNetworkNotReady,
            "all Multus daemons are ready".to_owned(),
        ),
        (false, _) => (FailureCause::NodeNetworkNotReady, String::new()),
    };
    let daemons = if daemons.is_empty() {
        daemons
    } else {
        format!("; {daemons}")
    };
    let explanation = format!(
        "the pod is not scheduled, since the network of {} is not ready ({reason}){daemons}",
        names.join(", ")
    );
    Some(Diagnosis::new(cause, explanation))
}

/// Returns the diagnosis of a pod that has all networks that it requests.
fn attached(snapshot: &PodSnapshot, diagnostics: &[Diagnostic]) -> Diagnosis {
    let pod_state = &snapshot.pod_state;
    let mut parts = vec!["the pod has all networks that it requests".to_owned()];
    if !pod_state.waiting.is_empty() {
        let reasons = pod_state.waiting.join(", ");
        parts.push(format!("it waits for something else: {reasons}"));
    }
    if let Some(error) = first_error(diagnostics) {
        parts.push(format!("another pod like it would fail now: {error}"));
    }
    let mut diagnosis = Diagnosis::new(Cause::Healthy, parts.join("; "));
    if is_uninstalled(snapshot) {
        diagnosis.explanation.push_str("; Multus is no longer installed, so its addresses are not freed when it is deleted, and another pod like it gets none of these networks");
        Cause::NotInstalled.hint().clone_into(&mut diagnosis.hint);
    }
    diagnosis
}

fn first_error(diagnostics: &[Diagnostic]) -> Option<&Diagnostic> {
    let is_error = |one: &&Diagnostic| one.severity() == Severity::Error;
    diagnostics.iter().find(is_error)
}

/// Returns the requested networks that neither the pod's status nor the daemon's state has.
fn missing(snapshot: &PodSnapshot) -> Vec<String> {
    let status = snapshot.pod_state.status.iter().flatten();
    let in_status: Vec<_> = status.map(|one| one.name.as_str()).collect();
    // A network without an interface is only in the daemon's state.
    let containers = snapshot
        .reply
        .answer()
        .map(|answer| answer.containers.as_slice());
    let in_state = containers
        .unwrap_or_default()
        .iter()
        .filter(|container| container.uid == snapshot.pod_state.pod.view.uid)
        .flat_map(|container| &container.attachments)
        .filter(|one| one.progress == api::pod_report::Step::Attached)
        .map(|one| one.network.as_str())
        .filter(|name| !in_status.contains(name));
    let attached: Vec<_> = in_status.iter().copied().chain(in_state).collect();
    snapshot.pod_state.missing(&snapshot.netconf, attached)
}

/// Diagnoses annotations that have no effect.
fn annotation_errors(diagnostics: &[Diagnostic]) -> Option<Diagnosis> {
    diagnostics.iter().find_map(|diagnostic| {
        let cause = match diagnostic {
            Diagnostic::HostNetwork { .. } => Cause::HostNetwork,
            Diagnostic::MisspelledAnnotation { .. }
            | Diagnostic::MisplacedAnnotation { .. }
            | Diagnostic::LegacyAnnotation => Cause::AnnotationIgnored,
            _ => return None,
        };
        Some(Diagnosis::new(cause, diagnostic.to_string()))
    })
}

/// Diagnoses pods that the daemon would refuse now.
fn definition_errors(diagnostics: &[Diagnostic]) -> Option<Diagnosis> {
    let error = first_error(diagnostics)?;
    let cause = match error {
        Diagnostic::Plan(error) | Diagnostic::SimilarName { error, .. } => error.cause(),
        Diagnostic::DuplicateInterface { .. } => FailureCause::NetworksConflict,
        Diagnostic::Request { .. } => FailureCause::RequestUnsupported,
        Diagnostic::OutsideRange { .. } => FailureCause::AddressOutOfRange,
        _ => FailureCause::DefinitionInvalid,
    };
    Some(Diagnosis::new(cause, error.to_string()))
}

/// Returns true when the `DaemonSets` were read and none of them is Multus.
fn is_uninstalled(snapshot: &PodSnapshot) -> bool {
    matches!(snapshot.reply, DaemonReply::NoDaemon) && snapshot.health.is_installed == Some(false)
}

/// Diagnoses a node whose daemon is missing or does not serve pods.
fn daemon_problem(snapshot: &PodSnapshot) -> Option<Diagnosis> {
    let (cause, explanation) = match &snapshot.reply {
        DaemonReply::NoDaemon if is_uninstalled(snapshot) => (
            Cause::NotInstalled,
            "Multus is not installed in this cluster: there is no DaemonSet of it".to_owned(),
        ),
        DaemonReply::NoDaemon => (
            Cause::DaemonMissing,
            "there is no Multus daemon on the pod's node".to_owned(),
        ),
        DaemonReply::NotRunning { daemon, reason } => (
            Cause::Failure(FailureCause::DaemonNotReady),
            format!("the daemon {daemon} does not run: {reason}"),
        ),
        DaemonReply::Answered { daemon, answer } => {
            let problem = answer.problem.as_ref()?;
            let explanation = format!("the daemon {daemon} does not serve pods: {problem}");
            (Cause::Failure(FailureCause::DaemonNotReady), explanation)
        }
        DaemonReply::NoNode | DaemonReply::Unavailable(_) => return None,
    };
    Some(Diagnosis::new(cause, explanation))
}

/// Diagnoses the newest failure; one that the daemon reports counts more than an event.
fn plugin_failures(snapshot: &PodSnapshot) -> Option<Diagnosis> {
    let failures = snapshot
        .reply
        .answer()
        .map(|answer| answer.failures.as_slice());
    if let Some(failure) = failures.and_then(<[_]>::last) {
        let text = failure_text(&failure.msg, &failure.details, &failure.id);
        return Some(failed(snapshot, failure.cause, &text));
    }
    let is_failure = |event: &&Event| FAILURES.contains(&event.reason.as_str());
    let last = snapshot.events.iter().rev().find(is_failure)?;
    // A later success means that the failure is over.
    let success = snapshot
        .events
        .iter()
        .rev()
        .find(|event| event.reason == "AddedInterface");
    let is_over = success.is_some_and(|event| event.at > last.at);
    (!is_over).then(|| failed(snapshot, event_cause(snapshot, last), &last.message))
}

/// Returns the cause that an event of the daemon has in its annotation. The runtime's event quotes the answer of shim or daemon: its
/// details have the word, or the daemon's own event about the same failure has. Anything else is an error of runtime or kubelet.
fn event_cause(snapshot: &PodSnapshot, event: &Event) -> FailureCause {
    let same_failure = || {
        let id = failure_id(&event.message)?;
        let mut events = snapshot.events.iter().rev();
        events.find_map(|other| {
            other
                .cause
                .filter(|_| failure_id(&other.message) == Some(id))
        })
    };
    event
        .cause
        .or_else(|| FailureCause::from_details(&event.message))
        .or_else(same_failure)
        .unwrap_or_else(|| FailureCause::from_foreign_text(&event.message))
}

/// Returns the id of a failure, under which answer, event and log have it.
fn failure_id(message: &str) -> Option<&str> {
    let (_, rest) = message.rsplit_once("(id ")?;
    rest.split_once(')').map(|(id, _)| id)
}

/// Joins message, details and id of a failure that the daemon reports.
pub(super) fn failure_text(message: &str, details: &str, id: &str) -> String {
    match details {
        "" => format!("{message} (id {id})"),
        details => format!("{message}; {details} (id {id})"),
    }
}

/// Diagnoses a failure, and adds the pod or the interface that the cluster's objects name.
fn failed(snapshot: &PodSnapshot, cause: FailureCause, text: &str) -> Diagnosis {
    let summary = summary(text);
    let explanation = match cause {
        FailureCause::DaemonNotReady if is_uninstalled(snapshot) => {
            let explanation = format!("{summary}: Multus is no longer installed in this cluster");
            return Diagnosis::new(Cause::NotInstalled, explanation);
        }
        FailureCause::AddressTaken => taken_address(snapshot, text).unwrap_or(summary),
        FailureCause::MasterMissing => match master(snapshot, text) {
            Some(master) => format!(
                "{summary}: {master} is not on node {}",
                snapshot.pod_state.node
            ),
            None => summary,
        },
        _ => summary,
    };
    Diagnosis::new(cause, explanation)
}

/// Returns the interface of the node that a failure is about: the text names it, or else the definition of the network that failed.
fn master(snapshot: &PodSnapshot, text: &str) -> Option<String> {
    if let Some(master) = quoted_after(text, "lookup master") {
        return Some(format!("master {master}"));
    }
    let attachments =
        validate::attachments(&snapshot.pod_state.pod, &snapshot.netconf, &snapshot.known);
    let mut masters = attachments.iter().filter_map(|attachment| {
        let mut plugins = attachment.config.plugins.iter();
        let master = plugins.find_map(|plugin| {
            let mut keys = MASTER_KEYS.iter();
            keys.find_map(|key| options::get(&plugin.value, key)?.as_str())
        })?;
        Some((attachment, master))
    });
    let is_named = |attachment: &Attachment| {
        let config = &attachment.config.name;
        text.contains(&format!("network \"{config}\"")) || text.contains(&attachment.name)
    };
    let first = masters.next()?;
    let (attachment, master) = match masters.next() {
        None => first,
        Some(second) => [first, second]
            .into_iter()
            .chain(masters)
            .find(|(attachment, _)| is_named(attachment))?,
    };
    Some(format!("master {master} of network {}", attachment.name))
}

/// Returns a sentence that names the address of a failure and the pod that holds it.
fn taken_address(snapshot: &PodSnapshot, text: &str) -> Option<String> {
    let requested = validate::fixed_addresses(&snapshot.pod_state.pod, &snapshot.netconf);
    let (network, address) = requested.iter().find(|(_, address)| {
        let mut words =
            text.split(|letter: char| !letter.is_alphanumeric() && !".:".contains(letter));
        words.any(|word| word.trim_end_matches(['.', ':']) == address)
    })?;
    Some(match snapshot.holder(address) {
        Some(holder) => format!("address {address} of network {network} is held by pod {holder}"),
        None => format!(
            "address {address} of network {network} is not available: another pod holds it, or a deleted one has not freed it"
        ),
    })
}

/// Shortens the text of a failure: the innermost error, each part of it once.
pub(super) fn summary(text: &str) -> String {
    let text = FailureCause::without_details(text);
    let mut parts = Vec::<&str>::new();
    for part in innermost(&text).split(": ") {
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    // Several layers add the number of the same error.
    let mut pieces = Vec::new();
    let joined = parts.join(": ");
    for (index, part) in joined.split(" (os error ").enumerate() {
        match part.split_once(')') {
            Some((number, rest)) if index > 0 => {
                let number = format!(" (os error {number})");
                if !pieces.contains(&number) {
                    pieces.push(number);
                }
                pieces.push(rest.to_owned());
            }
            _ => pieces.push(part.to_owned()),
        }
    }
    pieces.concat()
}

/// Removes the names of the calls around the error of a plugin or of the daemon itself.
fn innermost(text: &str) -> &str {
    const PREFIXES: [&str; 4] = [
        "failed to setup network for sandbox ",
        "CNI request failed with status ",
        "error configuring pod [",
        "error adding container to network ",
    ];
    let starts = PREFIXES.iter().filter_map(|prefix| {
        let start = text.rfind(prefix)?;
        let rest = &text[start + prefix.len()..];
        // The name of a sandbox, pod or network follows, in quotes or brackets, and then a colon.
        rest.find(": ")
            .map(|colon| start + prefix.len() + colon + 2)
    });
    let rest = starts.max().map_or(text, |start| &text[start..]);
    if rest.trim().is_empty() { text } else { rest }
}

/// Returns the quoted word that follows a phrase, whatever the phrase's case.
fn quoted_after<'a>(text: &'a str, phrase: &str) -> Option<&'a str> {
    let start = text.to_lowercase().find(phrase)? + phrase.len();
    let rest = text.get(start..)?.trim_start();
    let rest = rest.strip_prefix('"')?;
    rest.split('"').next()
}

/// Diagnoses a pod that misses networks although no failure is known.
fn without_failure(snapshot: &PodSnapshot) -> Diagnosis {
    let pod_state = &snapshot.pod_state;
    let missing = missing(snapshot).join(", ");
    if !pod_state.has_sandbox() {
        return Diagnosis::new(
            Cause::BeingAttached,
            "the node has accepted the pod and has not reported on its networks yet: try again in a moment",
        );
    }
    let is_in_state = snapshot.reply.answer().map(|answer| {
        answer
            .containers
            .iter()
            .any(|one| one.uid == pod_state.pod.view.uid)
    });
    if pod_state.status.is_none() && is_in_state != Some(true) {
        let explanation = format!(
            "the pod runs without {missing}: its runtime did not call Multus, because it created the pod before Multus was installed or with another CNI configuration"
        );
        return Diagnosis::new(Cause::RuntimeBypass, explanation);
    }
    let dynamic = snapshot
        .reply
        .answer()
        .and_then(|answer| answer.options.get("dynamicNetworks"));
    if dynamic == Some(&serde_json::Value::Bool(true)) {
        let explanation = format!(
            "the daemon attaches {missing} to the running pod, and nothing has failed so far: try again in a moment"
        );
        return Diagnosis::new(Cause::BeingAttached, explanation);
    }
    let explanation =
        format!("the pod runs without {missing}: its annotation was changed after its start");
    Diagnosis::new(Cause::AnnotatedLater, explanation)
}

#[cfg(test)]
mod tests;
