//! `kubectl multus lint`: validates definitions and pods before they are applied, as the daemon would.

mod gather;

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

use anyhow::{Context as _, bail};
use cmdline::counted;
use plan::netconf::Netconf;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    CommandStatus, Output,
    address_use::{self, ClusterFacts},
    cluster::{self, Cluster},
    diagnostic::{Diagnostic, Severity},
    manifest::{self, Document, Location},
    networks,
    node_daemon::{AllReplies, query_all},
    object::{self, Object},
    validate::{self, KnownDefinitions},
};

/// The place of findings about what is in no file.
const CLUSTER: &str = "cluster";

/// Arguments of `lint`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files and directories of YAML or JSON; - is stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Read networks that are not among the files from the cluster, the pods that share their addresses, and which nodes serve them
    #[arg(long)]
    cluster: bool,
    /// Configuration file of the daemon (daemon-config.json of its ConfigMap) [default: the daemon's default options]
    #[arg(long, value_name = "FILE")]
    daemon_config: Option<PathBuf>,
    /// Also fail on warnings
    #[arg(long)]
    strict: bool,
}

/// One diagnostic, with the object that it is about.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    #[serde(flatten)]
    location: Location,
    /// True for a file that cannot be read.
    #[serde(skip)]
    is_unread: bool,
    /// Kind, namespace and name; empty for documents that cannot be read.
    pub(crate) object: String,
    pub(crate) text: String,
}

/// Everything of a cluster but definitions that decides about addresses; the default is unknown.
#[derive(Debug, Default)]
struct Rest {
    pods: Vec<object::Pod>,
    facts: ClusterFacts,
    unread: Vec<Diagnostic>,
}

#[derive(Debug, Serialize)]
struct Report {
    /// The number of definitions and pods.
    objects: usize,
    errors: usize,
    warnings: usize,
    findings: Vec<Finding>,
}

/// Validates all objects and prints the findings.
pub(crate) async fn run(
    args: &Args,
    options: &cluster::Options,
    output: Output,
) -> anyhow::Result<CommandStatus> {
    let daemon_options = daemon_options(args)?;
    // The chart leaves the key out where it is false.
    let is_ipam_on = args.daemon_config.as_ref().map(|_| {
        let value = api::options::get(&daemon_options, "ipam");
        value == Some(&Value::Bool(true))
    });
    let netconf = validate::netconf(daemon_options)?;
    let cluster = if args.cluster {
        Some(Cluster::new(options).await?)
    } else {
        None
    };
    let known_namespace = cluster.as_ref().map(|cluster| cluster.namespace.clone());
    let namespace = known_namespace
        .or_else(|| options.namespace.clone())
        .unwrap_or_else(|| "default".to_owned());
    let (mut objects, mut findings) = (Vec::new(), Vec::new());
    for source in &args.files {
        read(source, &namespace, &mut objects, &mut findings);
    }
    let mut known = KnownDefinitions::default();
    for (_, object) in &objects {
        if let Object::Definition(definition) = object {
            known.add(&definition.nad);
        }
    }
    if let Some(cluster) = &cluster {
        let names = selected_networks(&objects, &netconf);
        let completed = cluster.complete(&mut known, names).await;
        completed.map_err(anyhow::Error::msg)?;
    }
    findings.extend(findings_of(&objects, &known, &netconf));
    let mut rest = Rest::default();
    if let Some(cluster) = &cluster
        && address_use::depends_on_cluster(&known, &netconf)
    {
        rest = gather::rest(cluster, &mut known).await;
    }
    rest.facts.is_ipam_on = is_ipam_on.or(rest.facts.is_ipam_on);
    findings.extend(of_addresses(&objects, &known, &netconf, &rest));
    if let Some(cluster) = &cluster {
        let replies = query_all(cluster, None, None).await;
        findings.extend(of_nodes(&objects, &netconf, replies.as_ref()));
    }
    findings.sort_by(|a, b| (&a.location, &a.object).cmp(&(&b.location, &b.object)));
    let count = |severity| {
        let found = findings.iter().filter(|one| one.severity == severity);
        found.count()
    };
    let report = Report {
        objects: objects.len(),
        errors: count(Severity::Error),
        warnings: count(Severity::Warning),
        findings,
    };
    output.print(&report, || text(&report))?;
    let unread = report.findings.iter().filter(|one| one.is_unread).count();
    Ok(match unread {
        _ if report.errors > unread || (args.strict && report.warnings > 0) => {
            CommandStatus::ProblemFound
        }
        0 => CommandStatus::Ok,
        _ => CommandStatus::Incomplete,
    })
}

/// Returns the findings about objects of a cluster that was read already, all pods and definitions among them.
pub(crate) fn of_cluster(
    objects: Vec<Object>,
    known: &KnownDefinitions,
    netconf: &Netconf,
    facts: ClusterFacts,
    replies: &AllReplies,
) -> Vec<Finding> {
    let objects = objects.into_iter();
    let objects: Vec<_> = objects.map(|one| (manifest::whole(CLUSTER), one)).collect();
    let rest = Rest {
        facts,
        ..Rest::default()
    };
    let mut findings = findings_of(&objects, known, netconf);
    findings.extend(of_addresses(&objects, known, netconf, &rest));
    findings.extend(of_nodes(&objects, netconf, Ok(replies)));
    findings
}

fn daemon_options(args: &Args) -> anyhow::Result<Map<String, Value>> {
    let Some(path) = &args.daemon_config else {
        return Ok(Map::new());
    };
    let read = || format!("cannot read {}", path.display());
    let bytes = std::fs::read(path).with_context(read)?;
    let map: Map<String, Value> = serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is not a JSON object", path.display()))?;
    if let Some(sentence) = plan::daemon_config::misspelled(&map).first() {
        bail!("cannot use {}: {sentence}", path.display());
    }
    Ok(map)
}

/// Reads definitions and pods from a file, a directory or stdin, and a finding for each document that cannot be read. A source without any
/// of them is a finding as well, since its author expects that something is checked.
fn read(
    source: &str,
    namespace: &str,
    objects: &mut Vec<(Location, Object)>,
    findings: &mut Vec<Finding>,
) {
    let before = (objects.len(), findings.len());
    for Document { location, content } in manifest::read(&[source.to_owned()]) {
        let read = content.and_then(|value| {
            let objects = object::read(&value, namespace)?;
            object::misspelled_kind(&value).map_or(Ok(objects), Err)
        });
        match read {
            Ok(read) => objects.extend(read.into_iter().map(|one| (location.clone(), one))),
            Err(reason) => {
                let unreadable = Diagnostic::Unreadable(reason);
                findings.push(finding(&location, String::new(), &unreadable));
            }
        }
    }
    if before == (objects.len(), findings.len()) {
        let location = manifest::whole(source);
        let nothing = Diagnostic::NothingToCheck;
        findings.push(finding(&location, String::new(), &nothing));
    }
}

fn findings_of(
    objects: &[(Location, Object)],
    known: &KnownDefinitions,
    netconf: &Netconf,
) -> Vec<Finding> {
    let mut findings = Vec::<Finding>::new();
    let mut locations = BTreeMap::<_, &Location>::new();
    let mut holders = BTreeMap::<(String, String), String>::new();
    for (location, object) in objects {
        let mut diagnostics = match object {
            Object::Definition(one) => validate::definition(one, netconf),
            Object::Pod(one) => validate::pod(one, netconf, known),
        };
        if let Object::Pod(pod) = object {
            let holder = format!("{} ({location})", object.title());
            diagnostics.extend(repeated_addresses(pod, netconf, &holder, &mut holders));
        }
        match locations.get(&object.identity()) {
            // Objects without a name are not duplicates: the API server generates their names.
            Some(other) if !object.identity().2.is_empty() => {
                let other = other.to_string();
                diagnostics.push(Diagnostic::DuplicateObject { other });
            }
            _ => drop(locations.insert(object.identity(), location)),
        }
        let first = findings.len();
        for diagnostic in &diagnostics {
            let found = finding(location, object.title(), diagnostic);
            // Several attachments of one network have the same findings.
            if !findings[first..].iter().any(|one| one.text == found.text) {
                findings.push(found);
            }
        }
    }
    findings
}

/// Reports fixed addresses that another pod requests as well, or that the replicas of one template would share.
fn repeated_addresses(
    pod: &object::Pod,
    netconf: &Netconf,
    holder: &str,
    holders: &mut BTreeMap<(String, String), String>,
) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    for (network, address) in validate::fixed_addresses(pod, netconf) {
        if pod.replicas > 1 {
            diagnostics.push(Diagnostic::ReplicatedAddress {
                address: address.clone(),
                network: network.clone(),
                replicas: pod.replicas,
            });
        }
        let key = (network.clone(), address.clone());
        match holders.get(&key) {
            Some(other) => diagnostics.push(Diagnostic::DuplicateAddress {
                address,
                network,
                other: other.clone(),
            }),
            None => drop(holders.insert(key, holder.to_owned())),
        }
    }
    diagnostics
}

/// Reports addresses that the pods of the files and of the cluster would get twice, or not at all. A finding is about the definition; where
/// that is only in the cluster, about the first pod that uses it.
fn of_addresses(
    objects: &[(Location, Object)],
    known: &KnownDefinitions,
    netconf: &Netconf,
    rest: &Rest,
) -> Vec<Finding> {
    let pods = objects.iter().filter_map(|(_, object)| object.pod());
    let pods: Vec<_> = pods.collect();
    let is_among_files = |other: &&object::Pod| {
        let mut pods = pods.iter();
        pods.any(|pod| other.is_of(pod) || other.title() == pod.title())
    };
    let others = rest.pods.iter().filter(|other| !is_among_files(other));
    let faults = address_use::faults(
        known,
        pods.iter().copied().chain(others),
        netconf,
        rest.facts,
    );
    let uses = |object: &Object, name: &address_use::NetworkName| {
        let selected = object.pod().map(|pod| validate::selected(pod, netconf));
        let mut selected = selected.into_iter().flatten();
        selected.any(|one| (&one.namespace, &one.name) == (&name.0, &name.1))
    };
    let mut findings = Vec::new();
    for (name, fault) in faults {
        let is_definition = |object: &Object| {
            object.identity() == (object::DEFINITION, name.0.as_str(), name.1.as_str())
        };
        let mut all = objects.iter();
        let found = all.find(|(_, object)| is_definition(object));
        let found = found.or_else(|| objects.iter().find(|(_, object)| uses(object, &name)));
        if let Some((location, object)) = found {
            let network = format!("{}/{}", name.0, name.1);
            let diagnostic = Diagnostic::Addresses { network, fault };
            findings.push(finding(location, object.title(), &diagnostic));
        }
    }
    let unread = rest.unread.iter();
    findings.extend(unread.map(|one| finding(&manifest::whole(CLUSTER), String::new(), one)));
    findings
}

/// Reports networks of the files that no node of the cluster can serve. Nodes know a definition as it is in the cluster.
fn of_nodes(
    objects: &[(Location, Object)],
    netconf: &Netconf,
    replies: Result<&AllReplies, &String>,
) -> Vec<Finding> {
    let replies = match replies {
        Ok(replies) => replies,
        Err(reason) => {
            let reason = reason.clone();
            let unknown = Diagnostic::NodesNotQueried { reason };
            return vec![finding(&manifest::whole(CLUSTER), String::new(), &unknown)];
        }
    };
    let mut findings = Vec::new();
    for (location, object) in objects {
        let names = match object {
            Object::Definition(one) => vec![(one.nad.namespace.clone(), one.nad.name.clone())],
            Object::Pod(pod) => selected_by(pod, netconf).collect(),
        };
        for (namespace, name) in names {
            let network = format!("{namespace}/{name}");
            if let Some((node, verdict)) = networks::served_nowhere(replies, &network) {
                let diagnostic = Diagnostic::ServedNowhere {
                    node: node.to_owned(),
                    reason: verdict.reason().to_owned(),
                    network,
                };
                findings.push(finding(location, object.title(), &diagnostic));
            }
        }
    }
    findings
}

/// Returns namespace and name of each network that a pod selects.
fn selected_networks(objects: &[(Location, Object)], netconf: &Netconf) -> Vec<(String, String)> {
    let pods = objects.iter().filter_map(|(_, object)| object.pod());
    pods.flat_map(|pod| selected_by(pod, netconf)).collect()
}

fn selected_by(pod: &object::Pod, netconf: &Netconf) -> impl Iterator<Item = (String, String)> {
    let selected = validate::selected(pod, netconf).into_iter();
    selected.map(|selection| (selection.namespace, selection.name))
}

fn finding(location: &Location, object: String, diagnostic: &Diagnostic) -> Finding {
    let text = diagnostic.to_string();
    // An error of the daemon names the pod or the definition, which the finding names already.
    let (kind, name) = object.rsplit_once(' ').unwrap_or(("", &object));
    let named = match kind {
        object::DEFINITION => format!("network-attachment-definition {name}: "),
        _ => format!("pod {name}: "),
    };
    // So begin upstream's errors; it says nothing to an author.
    let text = text.replace("parsePodNetworkAnnotation: failed to mac: ", "");
    Finding {
        severity: diagnostic.severity(),
        location: location.clone(),
        is_unread: location.line.is_none() && matches!(diagnostic, Diagnostic::Unreadable(_)),
        text: text.strip_prefix(&named).unwrap_or(&text).to_owned(),
        object,
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for one in &report.findings {
        let object = if one.object.is_empty() {
            String::new()
        } else {
            format!("{}: ", one.object)
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{}: {}: {object}{}",
            one.location, one.severity, one.text
        );
    }
    let _ = writeln!(
        text,
        "{} checked: {}, {}",
        counted(report.objects, "object"),
        counted(report.errors, "error"),
        counted(report.warnings, "warning")
    );
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn networks_that_no_node_serves_are_warnings() {
        let definition = |name: &str| {
            let object = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": object::DEFINITION,
                "metadata": {"name": name, "namespace": "shop"}, "spec": {"config": "{}"}});
            let objects = object::read(&object, "shop").unwrap();
            objects
                .into_iter()
                .map(|one| (manifest::whole("a.yaml"), one))
        };
        let names = ["far", "near", "new"];
        let objects: Vec<_> = names.into_iter().flat_map(definition).collect();
        let answer = |near: &str| {
            let network = |name: &str, state: &str| json!({"network": name, "state": state, "reason": "no link"});
            let networks = [network("shop/far", "cannot"), network("shop/near", near)];
            let report = json!({"schema": 1, "version": "5.0.0", "networks": networks});
            serde_json::from_value(report).unwrap()
        };
        let answers = [("a", answer("cannot")), ("b", answer("unknown"))];
        let answers = answers.map(|(node, answer)| (node.to_owned(), answer));
        let replies = AllReplies {
            answers: answers.into(),
            gaps: Vec::new(),
        };
        let netconf = validate::netconf(Map::new()).unwrap();
        let found = of_nodes(&objects, &netconf, Ok(&replies));
        let [far] = &found[..] else {
            panic!("{found:?}");
        };
        let expected = "no node of the cluster can serve network shop/far as it is there; on a: no link (`kubectl multus networks shop/far` has all)";
        assert_eq!(
            (far.severity, far.text.as_str()),
            (Severity::Warning, expected)
        );
        let found = of_nodes(&objects, &netconf, Err(&"forbidden".to_owned()));
        assert_eq!(found[0].severity, Severity::Note);
    }
}
