//! What would fail or change when this release is installed: a function over a snapshot of the cluster and the values.

use std::collections::{BTreeMap, BTreeSet};

use api::options;
use chart::VERSION;
use plan::netconf::Netconf;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    installation::{self, Choice, Installation, Kind, choose},
    nodes,
    pods::{self, Today},
    snapshot::Snapshot,
    values::{Values, node_path},
};
use crate::{
    judge,
    remark::{Remark, Severity},
};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// Good to know; nothing has to be done.
    Note,
    /// Works, but not as before, or takes a step of its own.
    Changes,
    /// Pods or the installation would fail.
    Fails,
}

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Subject {
    Value,
    Cluster,
    DaemonSet,
    Node,
    Definition,
    Pod,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) verdict: Verdict,
    pub(super) subject: Subject,
    /// Names of all that it is about.
    pub(super) names: Vec<String>,
    /// What would happen, why, and what to do.
    pub(super) text: String,
}

impl Finding {
    fn new(verdict: Verdict, subject: Subject, name: impl Into<String>, text: String) -> Self {
        Self {
            verdict,
            subject,
            names: vec![name.into()],
            text,
        }
    }
}

/// Values that a person gave, and the files that they came from.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) files: Vec<String>,
    pub(super) values: Map<String, Value>,
}

/// Everything that was decided.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outcome {
    /// The worst of the findings; absent where there is nothing to do.
    pub(super) verdict: Option<Verdict>,
    /// The chart to install, and why this one.
    pub(super) chart: &'static str,
    pub(super) chart_reason: String,
    /// Where the values came from by which all was judged.
    pub(super) values: String,
    /// The daemon's file that comes of these values.
    pub(super) daemon_config: Map<String, Value>,
    pub(super) findings: Vec<Finding>,
    /// What to do, in this order.
    pub(super) steps: Vec<String>,
}

/// Decides what would fail or change.
pub(super) fn decide(snapshot: &mut Snapshot, given: Option<&Given>) -> Outcome {
    let installed = installation::all(snapshot);
    let choice = choose(snapshot, &installed);
    if snapshot.has_crd == Some(false) {
        let chart = choice.chart.crd_name();
        snapshot.known.missing_crd = Some(chart);
    }
    let snapshot = &*snapshot;
    let installed = installation::all(snapshot);
    let (values, source) = effective_values(snapshot, &choice, given);
    let mut findings = of_values(&values, snapshot);
    let daemon_config = values.daemon_config();
    // Values that are refused judge no pod: the defaults do.
    let netconf = judge::netconf(daemon_config.clone())
        .or_else(|_| judge::netconf(Map::new()))
        .expect("a daemon without options starts");
    findings.extend(of_default_networks(&daemon_config, snapshot, &netconf));
    findings.extend(of_cluster(snapshot, &choice));
    findings.extend(of_installations(&installed, snapshot, &values, &netconf));
    let (of_nodes, unserved) = of_nodes(snapshot, &values);
    findings.extend(of_nodes);
    let today = Today::of(&installed);
    findings.extend(of_pods(snapshot, &netconf, today, &unserved));
    findings.extend(of_definitions(snapshot, &netconf));
    let mut findings = grouped(findings);
    findings
        .sort_by(|a, b| (b.verdict, a.subject, &a.names).cmp(&(a.verdict, b.subject, &b.names)));
    let worst = findings.iter().map(|one| one.verdict).max();
    let steps = steps(&findings, &installed, snapshot, &choice, given);
    Outcome {
        verdict: worst.filter(|verdict| *verdict > Verdict::Note),
        chart: choice.chart.name,
        chart_reason: choice.reason,
        values: source,
        daemon_config,
        findings,
        steps,
    }
}

/// The values to judge by: those that were given, else those of the release, else none.
fn effective_values(
    snapshot: &Snapshot,
    choice: &Choice,
    given: Option<&Given>,
) -> (Values, String) {
    if let Some(given) = given {
        return (Values::new(&given.values), given.files.join(", "));
    }
    let release = (choice.namespace.clone(), choice.release.clone());
    match snapshot.release_values.get(&release) {
        Some(values) if !values.is_empty() => (
            Values::new(values),
            format!("those of release {}/{}", release.0, release.1),
        ),
        _ => (Values::new(&Map::new()), "the chart's own".to_owned()),
    }
}

fn of_values(values: &Values, snapshot: &Snapshot) -> Vec<Finding> {
    let problems = values.problems(snapshot.version()).into_iter();
    let mut findings: Vec<_> = problems
        .map(|problem| {
            // The chart's messages name the value themselves.
            let text = problem.text.strip_prefix(&format!("{} ", problem.path));
            let text = text.map_or(problem.text.clone(), |rest| format!("it {rest}"));
            Finding::new(Verdict::Fails, Subject::Value, problem.path, text)
        })
        .collect();
    let config = values.daemon_config();
    let is_k3s = snapshot
        .nodes
        .iter()
        .any(|node| node.kubelet.contains("+k3s"));
    for key in [
        "cniConfigDir",
        "shimDir",
        "multusAutoconfigDir",
        "criSocket",
    ] {
        let Some(path) = config
            .get(key)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
        else {
            continue;
        };
        let path = node_path(path);
        let (verdict, of_k3s) = if is_k3s && !path.contains("k3s") {
            (
                Verdict::Changes,
                ", and K3s has directories and a socket of its own",
            )
        } else {
            (Verdict::Note, "")
        };
        let text = format!(
            "it puts {path} on every node, whatever the node says{of_k3s}; a node whose runtime has another one is not Ready: remove it unless all nodes are alike"
        );
        findings.push(Finding::new(verdict, Subject::Value, key, text));
    }
    findings
}

/// Networks of every pod that the values name and that only nodes could have.
fn of_default_networks(
    config: &Map<String, Value>,
    snapshot: &Snapshot,
    netconf: &Netconf,
) -> Vec<Finding> {
    let namespace = &netconf.multus_namespace;
    let is_absent = |name: &str| {
        let key = (namespace.clone(), name.to_owned());
        snapshot.known.is_whole
            && !name.is_empty()
            && !name.contains('/')
            && !snapshot.known.nads.contains_key(&key)
    };
    let first = options::get(config, "clusterNetwork").into_iter();
    let further = options::get(config, "defaultNetworks").and_then(Value::as_array);
    let named = first.map(|name| ("clusterNetwork", name)).chain(
        further
            .into_iter()
            .flatten()
            .map(|name| ("defaultNetworks", name)),
    );
    named
        .filter_map(|(key, name)| {
            let name = name.as_str().filter(|name| is_absent(name))?;
            let text = format!(
                "it names network {name}, and there is no definition {namespace}/{name}: without a configuration of that name in {} of every node, pods fail there: create the definition, or correct the name",
                netconf.conf_dir.display()
            );
            Some(Finding::new(Verdict::Changes, Subject::Value, format!("config.daemon_conf.{key}"), text))
        })
        .collect()
}

fn of_cluster(snapshot: &Snapshot, choice: &Choice) -> Option<Finding> {
    (snapshot.has_crd == Some(false)).then(|| {
        let text = format!(
            "the cluster does not know NetworkAttachmentDefinitions: install {} first, or every pod that asks for a network fails",
            choice.chart.crd_name()
        );
        Finding::new(Verdict::Changes, Subject::Cluster, "CRD", text)
    })
}

fn of_installations(
    installed: &[Installation<'_>],
    snapshot: &Snapshot,
    values: &Values,
    netconf: &Netconf,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in installed {
        let (namespace, release) = one.release();
        let name = format!("{}/{}", one.set.namespace, one.set.name);
        let mut add = |verdict, text| {
            findings.push(Finding::new(
                verdict,
                Subject::DaemonSet,
                name.clone(),
                text,
            ));
        };
        match one.kind {
            Kind::Ours => add(
                Verdict::Note,
                format!(
                    "multus-rs is installed as release {namespace}/{release} already: these findings are about its upgrade"
                ),
            ),
            Kind::Thin | Kind::Thick => {
                let kind = if one.kind == Kind::Thin {
                    "thin"
                } else {
                    "thick"
                };
                match (one.chart, &one.set.release) {
                    (Some(_), _) if is_of_distro(one, snapshot) => add(
                        Verdict::Changes,
                        format!(
                            "upstream's {kind} Multus, which the distro installs by its HelmChart {release}, again and again: take `multus` out of its `cni`, and have multus-distro bring this one; pods that run keep their networks"
                        ),
                    ),
                    (Some(_), _) => add(
                        Verdict::Note,
                        format!(
                            "upstream's {kind} Multus, of release {namespace}/{release}: `helm upgrade` replaces it, and pods that run keep their networks"
                        ),
                    ),
                    (None, Some(_)) => add(
                        Verdict::Changes,
                        format!(
                            "upstream's {kind} Multus, of Helm release {namespace}/{release} of another chart: two of them on a node write the same configuration: uninstall that release right before the installation; pods that run keep their networks"
                        ),
                    ),
                    (None, None) => add(
                        Verdict::Changes,
                        format!(
                            "upstream's {kind} Multus, which no Helm release owns: two of them on a node write the same configuration: delete this DaemonSet right before the installation; pods that run keep their networks"
                        ),
                    ),
                }
            }
            Kind::Dhcp | Kind::DynamicNetworks | Kind::Whereabouts => {
                findings.extend(of_companion(one, installed, snapshot, values, netconf));
            }
        }
        if matches!(one.kind, Kind::Thin | Kind::Thick) {
            for (key, old, new) in installation::lost_settings(one, snapshot, values) {
                let new = if new.is_null() {
                    "do not set it".to_owned()
                } else {
                    format!("have {new}")
                };
                let text = format!(
                    "it runs with {key} {old}, and the values {new}: set config.daemon_conf.{key} to {old} to keep it"
                );
                findings.push(Finding::new(
                    Verdict::Changes,
                    Subject::DaemonSet,
                    name.clone(),
                    text,
                ));
            }
        }
    }
    findings
}

/// Whether the distro itself installs this release.
fn is_of_distro(one: &Installation<'_>, snapshot: &Snapshot) -> bool {
    let (_, release) = one.release();
    matches!(one.kind, Kind::Thin | Kind::Thick) && snapshot.helm_charts.contains(release)
}

/// What becomes of a `DaemonSet` that goes with upstream's, when the release that it is part of is upgraded.
fn of_companion(
    one: &Installation<'_>,
    installed: &[Installation<'_>],
    snapshot: &Snapshot,
    values: &Values,
    netconf: &Netconf,
) -> Option<Finding> {
    let main = installed
        .iter()
        .find(|main| main.kind.is_multus() && main.chart.is_some())?;
    let is_part = match (&one.set.release, &main.set.release) {
        (Some(own), Some(release)) => own == release,
        _ => one.set.app.starts_with(&main.set.app) && !main.set.app.is_empty(),
    };
    if !is_part {
        return None;
    }
    let with_ipam = |kind: &str| -> Vec<String> {
        let definitions = snapshot.definitions.iter().map(|one| &one.nad);
        definitions
            .filter(|nad| {
                judge::ipam_types(nad, netconf)
                    .iter()
                    .any(|one| one == kind)
            })
            .map(|nad| format!("{}/{}", nad.namespace, nad.name))
            .collect()
    };
    let (verdict, text) = match one.kind {
        Kind::Dhcp if !values.is_on("manifests.dhcpDaemonSet") => {
            let networks = with_ipam("dhcp");
            if networks.is_empty() {
                return None;
            }
            let networks = networks.join(", ");
            (
                Verdict::Fails,
                format!(
                    "it goes with the upgrade, and pods of {networks} get no lease any more: set manifests.dhcpDaemonSet to true"
                ),
            )
        }
        Kind::Whereabouts => {
            let networks = with_ipam("whereabouts");
            if networks.is_empty() {
                return None;
            }
            let networks = networks.join(", ");
            (
                Verdict::Fails,
                format!(
                    "it goes with the upgrade, and pods of {networks} get no address once whereabouts is off the nodes: install whereabouts' own chart first"
                ),
            )
        }
        Kind::DynamicNetworks if !values.is_on("dynamicNetworksController.enabled") => (
            Verdict::Changes,
            "it goes with the upgrade, and a changed annotation no longer changes a running pod: set dynamicNetworksController.enabled to true".to_owned(),
        ),
        _ => return None,
    };
    let name = format!("{}/{}", one.set.namespace, one.set.name);
    Some(Finding::new(verdict, Subject::DaemonSet, name, text))
}

/// What is to be said of nodes, and those whose pods get no further networks.
fn of_nodes(snapshot: &Snapshot, values: &Values) -> (Vec<Finding>, BTreeSet<String>) {
    let (mut findings, mut unserved) = (Vec::new(), BTreeSet::new());
    for node in &snapshot.nodes {
        for remark in nodes::judge(node, values) {
            if remark.is_unserved {
                unserved.insert(node.name.clone());
            }
            let name = node.name.clone();
            findings.push(Finding::new(
                remark.verdict,
                Subject::Node,
                name,
                remark.text,
            ));
        }
    }
    (findings, unserved)
}

fn of_pods(
    snapshot: &Snapshot,
    netconf: &Netconf,
    today: Today,
    unserved: &BTreeSet<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for pod in &snapshot.pods {
        let is_unserved = unserved.contains(&pod.node);
        for (verdict, text) in pods::judge(pod, netconf, &snapshot.known, today, is_unserved) {
            findings.push(Finding::new(verdict, Subject::Pod, pod.title(), text));
        }
    }
    findings
}

/// What no pod could use; whoever selects it now, fails.
fn of_definitions(snapshot: &Snapshot, netconf: &Netconf) -> Vec<Finding> {
    let pods = snapshot.pods.iter();
    let selected: BTreeSet<_> = pods
        .filter(|pod| !pod.object.host_network)
        .flat_map(|pod| judge::selected(&pod.object, netconf))
        .map(|selection| (selection.namespace, selection.name))
        .collect();
    let mut findings = Vec::new();
    for definition in &snapshot.definitions {
        let nad = &definition.nad;
        let is_selected = selected.contains(&(nad.namespace.clone(), nad.name.clone()));
        for remark in judge::definition(definition, netconf) {
            let is_error = remark.severity() == Severity::Error;
            let verdict = match (&remark, is_error, is_selected) {
                // Its pods tell it.
                (Remark::Plan(_), _, true) => continue,
                (_, true, true) => Verdict::Fails,
                _ => Verdict::Note,
            };
            let unused = if is_error && !is_selected {
                "; no pod selects it now"
            } else {
                ""
            };
            let name = format!("{}/{}", nad.namespace, nad.name);
            let text = format!("{remark}{unused}");
            findings.push(Finding::new(verdict, Subject::Definition, name, text));
        }
    }
    findings
}

/// Findings that say the same of several objects are one.
fn grouped(findings: Vec<Finding>) -> Vec<Finding> {
    let mut groups = BTreeMap::<(Verdict, Subject, String), Finding>::new();
    for finding in findings {
        // Some texts name the object itself.
        let name = finding
            .names
            .first()
            .map(String::as_str)
            .unwrap_or_default();
        let plain = finding.text.replace(name, "");
        let key = (finding.verdict, finding.subject, plain);
        match groups.get_mut(&key) {
            Some(group) => group.names.extend(finding.names),
            None => drop(groups.insert(key, finding)),
        }
    }
    let mut all: Vec<_> = groups.into_values().collect();
    for one in &mut all {
        one.names.sort();
        one.names.dedup();
    }
    all
}

/// What to do, in its order.
fn steps(
    findings: &[Finding],
    installed: &[Installation<'_>],
    snapshot: &Snapshot,
    choice: &Choice,
    given: Option<&Given>,
) -> Vec<String> {
    let mut steps = Vec::new();
    let is_failing = |subject: &[Subject]| {
        let mut failing = findings.iter().filter(|one| one.verdict == Verdict::Fails);
        failing.any(|one| subject.contains(&one.subject))
    };
    if is_failing(&[Subject::Value]) {
        steps.push("correct the values that are refused".to_owned());
    }
    if is_failing(&[
        Subject::Pod,
        Subject::Definition,
        Subject::Node,
        Subject::DaemonSet,
    ]) {
        steps.push(
            "correct what fails; pods that run keep their networks until they start again"
                .to_owned(),
        );
    }
    for one in installed {
        let (namespace, release) = one.release();
        match (one.kind, one.chart, &one.set.release) {
            (Kind::Thin | Kind::Thick, None, Some(_)) => {
                steps.push(format!("helm uninstall --namespace {namespace} {release}"));
            }
            (Kind::Thin | Kind::Thick, None, None) => steps.push(format!(
                "kubectl delete daemonset --namespace {} {}",
                one.set.namespace, one.set.name
            )),
            _ => {}
        }
    }
    let Choice {
        chart,
        namespace,
        release,
        ..
    } = choice;
    if installed.iter().any(|one| is_of_distro(one, snapshot)) {
        let distro = chart.distro.as_str();
        steps.push(format!(
            "put values that are to stay into a HelmChartConfig {namespace}/{}",
            chart.name
        ));
        steps.push(format!(
            "take `multus` out of `cni` in /etc/rancher/{distro}/config.yaml of each server"
        ));
        steps.push(format!("start each server by `multus-distro server --multus -- {distro} server`; `multus-distro install` makes it so for good"));
        return steps;
    }
    let key = (namespace.clone(), release.clone());
    let has_values = snapshot
        .release_values
        .get(&key)
        .is_some_and(|all| !all.is_empty());
    let mut files = String::new();
    match given {
        Some(given) => files.extend(given.files.iter().map(|file| format!(" --values {file}"))),
        None if has_values => {
            steps.push(format!(
                "helm get values --namespace {namespace} {release} --output yaml > values.yaml"
            ));
            files.push_str(" --values values.yaml");
        }
        None => {}
    }
    let upgrade = "helm upgrade --install --take-ownership --reset-values --namespace";
    let crd = chart.crd_name();
    steps.push(format!("{upgrade} {namespace} {crd} {crd}-{VERSION}.tgz"));
    let chart = chart.name;
    steps.push(format!(
        "{upgrade} {namespace} {release} {chart}-{VERSION}.tgz{files}"
    ));
    steps
}

#[cfg(test)]
mod tests;
