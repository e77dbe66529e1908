//! The likely cause: a function over the pod, its definitions, events, status and the daemon's answer.
//!
//! What the cluster says now comes before what was told earlier: a definition that is missing is missing, whatever an event says.

use plan::{Attachment, PlanError};

use super::cause::{Cause, of_text};
use crate::{
    cluster::Event,
    judge,
    node::Asked,
    remark::{Remark, Severity},
    scene::Scene,
};

/// Reasons of events with which runtime and daemon tell that networks cannot be had.
const FAILURES: [&str; 3] = [
    "FailedCreatePodSandBox",
    "FailedAddNetwork",
    "NoNetworkFound",
];

/// Keys under which plugins are told an interface of the node.
const MASTER_KEYS: [&str; 3] = ["master", "device", "parent"];

/// What was decided.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) cause: Cause,
    pub(super) what: String,
    pub(super) cure: String,
}

impl Verdict {
    fn new(cause: Cause, what: impl Into<String>) -> Self {
        Self {
            cause,
            what: what.into(),
            cure: cause.cure().to_owned(),
        }
    }
}

/// The likely cause.
pub(super) fn decide(scene: &Scene, remarks: &[Remark]) -> Verdict {
    let by_object = of_life(scene, remarks);
    by_object
        .or_else(|| of_remarks(remarks))
        .or_else(|| of_node(scene))
        .or_else(|| of_failures(scene))
        .unwrap_or_else(|| of_absence(scene))
}

/// Where the pod is in its life, and whether it has what it asks for.
fn of_life(scene: &Scene, remarks: &[Remark]) -> Option<Verdict> {
    let facts = &scene.facts;
    if facts.is_deleted {
        let stuck = scene.events.iter().rev().find(|event| {
            event.is_warning
                && ["FailedDelNetwork", "FailedKillPod"].contains(&event.reason.as_str())
        });
        return Some(match stuck {
            Some(event) => failed(scene, &event.message),
            None => Verdict::new(Cause::Ended, "the pod is being deleted"),
        });
    }
    if ["Succeeded", "Failed"].contains(&facts.phase.as_str()) {
        let what = format!(
            "the pod has ended ({}), and its networks with it",
            facts.phase
        );
        return Some(Verdict::new(Cause::Ended, what));
    }
    if let Some(verdict) = of_annotations(remarks) {
        return Some(verdict);
    }
    let asks = !judge::selected(&facts.pod, &scene.netconf).is_empty();
    if !asks && fault(remarks).is_none() && facts.is_up() {
        let what = "the pod asks for no networks besides the cluster's default one";
        return Some(Verdict::new(Cause::NothingAsked, what));
    }
    if let Some(verdict) = of_outage(scene) {
        return Some(verdict);
    }
    if facts.node.is_empty() {
        let why = facts.unscheduled.clone().filter(|text| !text.is_empty());
        let why = why.unwrap_or_else(|| "the scheduler has not decided yet".to_owned());
        let next = fault(remarks).map(|next| format!("; once it has one, it will fail: {next}"));
        let what = format!("the pod has no node: {why}{}", next.unwrap_or_default());
        return Some(Verdict::new(Cause::NotScheduled, what));
    }
    (asks && missing(scene).is_empty()).then(|| of_whole(scene, remarks))
}

/// The scheduler finds no node, since the nodes' network is not ready.
fn of_outage(scene: &Scene) -> Option<Verdict> {
    let outage = &scene.outage;
    let (_, reason) = outage
        .nodes
        .first()
        .filter(|_| scene.facts.node.is_empty())?;
    let names: Vec<_> = outage.nodes.iter().map(|(name, _)| name.as_str()).collect();
    let is_ours = !outage.lacking.is_empty() || reason.contains("multus");
    let (cause, ours) = match (is_ours, outage.is_installed) {
        (true, _) => (Cause::DaemonNotReady, outage.lacking.join(", ")),
        (false, Some(true)) => (
            Cause::NodeNetworkNotReady,
            "all daemons of Multus are ready".to_owned(),
        ),
        (false, _) => (Cause::NodeNetworkNotReady, String::new()),
    };
    let ours = if ours.is_empty() {
        ours
    } else {
        format!("; {ours}")
    };
    let what = format!(
        "the pod has no node, since the network of {} is not ready ({reason}){ours}",
        names.join(", ")
    );
    Some(Verdict::new(cause, what))
}

/// The pod has all that it asks for.
fn of_whole(scene: &Scene, remarks: &[Remark]) -> Verdict {
    let facts = &scene.facts;
    let mut what = vec!["the pod has all networks that it asks for".to_owned()];
    if !facts.waiting.is_empty() {
        let reasons = facts.waiting.join(", ");
        what.push(format!("it waits for something else: {reasons}"));
    }
    if let Some(fault) = fault(remarks) {
        what.push(format!("another pod like it would fail by now: {fault}"));
    }
    let mut verdict = Verdict::new(Cause::Well, what.join("; "));
    if is_uninstalled(scene) {
        verdict.what.push_str("; Multus is not installed any more, so nobody frees its addresses when it is deleted, and another pod like it gets none of these networks");
        Cause::NotInstalled.cure().clone_into(&mut verdict.cure);
    }
    verdict
}

/// The first remark that is an error.
fn fault(remarks: &[Remark]) -> Option<&Remark> {
    let is_error = |one: &&Remark| one.severity() == Severity::Error;
    remarks.iter().find(is_error)
}

/// Networks that it asks for and that neither its status nor the daemon tells of.
fn missing(scene: &Scene) -> Vec<String> {
    let told = scene.facts.status.iter().flatten();
    let told: Vec<_> = told.map(|one| one.name.as_str()).collect();
    // What has no interface is in the state alone.
    let containers = scene
        .asked
        .answer()
        .map(|answer| answer.containers.as_slice());
    let in_state = containers
        .unwrap_or_default()
        .iter()
        .filter(|container| container.uid == scene.facts.pod.view.uid)
        .flat_map(|container| &container.attachments)
        .filter(|one| one.progress == api::pod_report::Step::Attached)
        .map(|one| one.network.as_str())
        .filter(|name| !told.contains(name));
    let there: Vec<_> = told.iter().copied().chain(in_state).collect();
    scene.facts.missing(&scene.netconf, there)
}

/// What makes the annotation mean nothing.
fn of_annotations(remarks: &[Remark]) -> Option<Verdict> {
    remarks.iter().find_map(|remark| {
        let cause = match remark {
            Remark::HostNetwork { .. } => Cause::HostNetwork,
            Remark::Misspelt { .. } | Remark::Misplaced { .. } | Remark::Legacy => {
                Cause::AnnotationMisspelt
            }
            _ => return None,
        };
        Some(Verdict::new(cause, remark.to_string()))
    })
}

/// What the daemon's own rules say of the pod as it is now.
fn of_remarks(remarks: &[Remark]) -> Option<Verdict> {
    let fault = fault(remarks)?;
    let cause = match fault {
        Remark::Plan(error) | Remark::SimilarName { error, .. } => of_plan(error),
        Remark::SameInterface { .. } => Cause::NetworksConflict,
        Remark::OutsideRange { .. } => Cause::AddressOutside,
        _ => Cause::DefinitionBroken,
    };
    Some(Verdict::new(cause, fault.to_string()))
}

fn of_plan(error: &PlanError) -> Cause {
    match error {
        PlanError::Annotation { .. } | PlanError::ManyDefaults | PlanError::NoDefault => {
            Cause::AnnotationInvalid
        }
        PlanError::NoDefinition { .. } | PlanError::NoCrd { .. } | PlanError::NoNetwork { .. } => {
            Cause::DefinitionMissing
        }
        PlanError::Isolation { .. } => Cause::NamespaceIsolation,
        PlanError::NotAllowed { .. } => Cause::PluginNotAllowed,
        PlanError::Unsupported { .. } => Cause::RequestUnserved,
        PlanError::NoDevice { .. } | PlanError::Device { .. } | PlanError::Devices { .. } => {
            Cause::DeviceMissing
        }
        PlanError::ManyGateways { .. } | PlanError::DefaultRouteTwice { .. } => {
            Cause::NetworksConflict
        }
        PlanError::ClusterNetwork { cause, .. } | PlanError::DefaultNetwork { cause, .. } => {
            of_plan(cause)
        }
        _ => Cause::DefinitionBroken,
    }
}

/// Whether somebody looked, and there is no Multus.
fn is_uninstalled(scene: &Scene) -> bool {
    matches!(scene.asked, Asked::NoDaemon) && scene.outage.is_installed == Some(false)
}

/// A daemon that cannot serve anybody.
fn of_node(scene: &Scene) -> Option<Verdict> {
    let (cause, what) = match &scene.asked {
        Asked::NoDaemon if is_uninstalled(scene) => (
            Cause::NotInstalled,
            "Multus is not installed in this cluster: it has no DaemonSet of it".to_owned(),
        ),
        Asked::NoDaemon => (
            Cause::DaemonMissing,
            "there is no Multus daemon on the pod's node".to_owned(),
        ),
        Asked::NotRunning { daemon, reason } => (
            Cause::DaemonNotReady,
            format!("the daemon {daemon} does not run: {reason}"),
        ),
        Asked::Answered { daemon, answer } => {
            let problem = answer.problem.as_ref()?;
            let what = format!("the daemon {daemon} does not serve pods: {problem}");
            (Cause::DaemonNotReady, what)
        }
        Asked::NoNode | Asked::Refused(_) => return None,
    };
    Some(Verdict::new(cause, what))
}

/// The newest of what went wrong, in the words of the daemon where they can be had.
fn of_failures(scene: &Scene) -> Option<Verdict> {
    let failures = scene
        .asked
        .answer()
        .map(|answer| answer.failures.as_slice());
    if let Some(failure) = failures.and_then(<[_]>::last) {
        let details = match failure.details.as_str() {
            "" => String::new(),
            details => format!("; {details}"),
        };
        let text = format!("{}{details} (id {})", failure.msg, failure.id);
        return Some(failed(scene, &text));
    }
    let is_failure = |event: &&Event| FAILURES.contains(&event.reason.as_str());
    let last = scene.events.iter().rev().find(is_failure)?;
    // A success after it makes it a thing of the past.
    let healed = scene
        .events
        .iter()
        .rev()
        .find(|event| event.reason == "AddedInterface");
    let is_past = healed.is_some_and(|event| event.at > last.at);
    (!is_past).then(|| failed(scene, &last.message))
}

/// The cause that the text of a failure tells of, with what is known of the cluster beside it.
fn failed(scene: &Scene, text: &str) -> Verdict {
    let cause = of_text(text);
    let summary = summary(text);
    let what = match cause {
        Cause::DaemonNotReady if is_uninstalled(scene) => {
            let what = format!("{summary}: Multus is not installed in this cluster any more");
            return Verdict::new(Cause::NotInstalled, what);
        }
        Cause::AddressTaken => taken(scene, text).unwrap_or(summary),
        Cause::MasterMissing => match master(scene, text) {
            Some(master) => format!("{summary}: {master} is not on node {}", scene.facts.node),
            None => summary,
        },
        _ => summary,
    };
    Verdict::new(cause, what)
}

/// The interface of the node that a failure is about: named by the text, else by the definition that failed.
fn master(scene: &Scene, text: &str) -> Option<String> {
    if let Some(master) = quoted_after(text, "lookup master") {
        return Some(format!("master {master}"));
    }
    let attachments = judge::attachments(&scene.facts.pod, &scene.netconf, &scene.known);
    let mut masters = attachments.iter().filter_map(|attachment| {
        let mut plugins = attachment.config.plugins.iter();
        let master = plugins.find_map(|plugin| {
            let mut keys = MASTER_KEYS.iter();
            keys.find_map(|key| plugin.value.get(*key)?.as_str())
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

/// Which pod holds the address that a failure is about.
fn taken(scene: &Scene, text: &str) -> Option<String> {
    let requested = judge::fixed_addresses(&scene.facts.pod, &scene.netconf);
    let (network, address) = requested.iter().find(|(_, address)| {
        let mut words =
            text.split(|letter: char| !letter.is_alphanumeric() && !".:".contains(letter));
        words.any(|word| word.trim_end_matches(['.', ':']) == address)
    })?;
    Some(match scene.holder(address) {
        Some(holder) => format!("address {address} of network {network} is held by pod {holder}"),
        None => format!(
            "address {address} of network {network} is not available: it is held by another pod, or left by one that is gone"
        ),
    })
}

/// What a failure says, each part of it once.
pub(super) fn summary(text: &str) -> String {
    let mut parts = Vec::<&str>::new();
    for part in innermost(text).split(": ") {
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    // Several layers tell the number of the same error.
    let mut words = Vec::new();
    let joined = parts.join(": ");
    for (index, part) in joined.split(" (os error ").enumerate() {
        match part.split_once(')') {
            Some((number, rest)) if index > 0 => {
                let told = format!(" (os error {number})");
                if !words.contains(&told) {
                    words.push(told);
                }
                words.push(rest.to_owned());
            }
            _ => words.push(part.to_owned()),
        }
    }
    words.concat()
}

/// The failure without the calls around it: what a plugin, or the daemon itself, said.
fn innermost(text: &str) -> &str {
    const AROUND: [&str; 4] = [
        "failed to setup network for sandbox ",
        "CNI request failed with status ",
        "error configuring pod [",
        "error adding container to network ",
    ];
    let starts = AROUND.iter().filter_map(|around| {
        let start = text.rfind(around)?;
        let rest = &text[start + around.len()..];
        // What follows is the name of a sandbox, pod or network, in quotes or brackets, and then a colon.
        rest.find(": ")
            .map(|colon| start + around.len() + colon + 2)
    });
    let rest = starts.max().map_or(text, |start| &text[start..]);
    if rest.trim().is_empty() { text } else { rest }
}

/// The word in quotes that follows a phrase, without regard to case.
fn quoted_after<'a>(text: &'a str, phrase: &str) -> Option<&'a str> {
    let start = text.to_lowercase().find(phrase)? + phrase.len();
    let rest = text.get(start..)?.trim_start();
    let rest = rest.strip_prefix('"')?;
    rest.split('"').next()
}

/// Nothing has failed, and yet something is not there.
fn of_absence(scene: &Scene) -> Verdict {
    let facts = &scene.facts;
    let missing = missing(scene).join(", ");
    if !facts.is_up() {
        return Verdict::new(
            Cause::BeingAttached,
            "the node has taken the pod and has told nothing of its networks so far: ask again in a moment",
        );
    }
    let is_known = scene.asked.answer().map(|answer| {
        answer
            .containers
            .iter()
            .any(|one| one.uid == facts.pod.view.uid)
    });
    if facts.status.is_none() && is_known != Some(true) {
        let what = format!(
            "the pod runs without {missing}: its runtime has not asked Multus for it, as it was made before Multus was there or by another CNI configuration"
        );
        return Verdict::new(Cause::RuntimeBypass, what);
    }
    let what =
        format!("the pod runs without {missing}: its annotation was changed after its start");
    let dynamic = scene
        .asked
        .answer()
        .and_then(|answer| answer.options.get("dynamicNetworks"));
    if dynamic == Some(&serde_json::Value::Bool(true)) {
        let what = format!(
            "{missing} is to be attached to the running pod, and nothing has failed so far: ask again in a moment"
        );
        return Verdict::new(Cause::BeingAttached, what);
    }
    Verdict::new(Cause::AnnotatedLater, what)
}

#[cfg(test)]
mod tests;
