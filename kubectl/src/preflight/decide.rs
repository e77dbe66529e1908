//! Decides what would fail or change when this release is installed: a function over a snapshot of the cluster and the values.

use std::collections::{BTreeMap, BTreeSet};

use api::options;
use chart::{Distro, Identity, VERSION};
use plan::{daemon_config::Config, netconf::Netconf};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    helm::Rendering,
    installation::{self, Choice, Installation, Kind, choose},
    nodes,
    pods::{self, Provider},
    snapshot::{CRD, ClusterSnapshot, HelmChart},
    values::{Values, node_path},
    verdict::Verdict,
};
use crate::{
    address_use::{self, AddressFault, ClusterFacts},
    diagnostic::{Diagnostic, Severity},
    pod_state, validate,
};

/// The value by which daemons give addresses of `multus-ipam`.
const IPAM: &str = "ipam.enabled";
/// The value by which the daemon changes the networks of running pods.
const HOT_PLUG: &str = "dynamicNetworksController.enabled";

/// The kind of object that a finding is about.
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

/// One finding about one or more objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) verdict: Verdict,
    pub(super) subject: Subject,
    /// The names of all objects that it is about.
    pub(super) names: Vec<String>,
    /// A sentence that says what would happen and why, with a hint at its end.
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

/// Values of `--values`, with the names of their files.
#[derive(Debug, Default)]
pub(super) struct ExplicitValues {
    pub(super) files: Vec<String>,
    pub(super) values: Map<String, Value>,
}

/// The result of preflight.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outcome {
    /// The worst verdict of the findings; `None` when there is nothing to do.
    pub(super) verdict: Option<Verdict>,
    /// The chart to install.
    pub(super) chart: &'static str,
    pub(super) chart_reason: String,
    /// The source of the values.
    pub(super) values: String,
    /// The daemon's configuration file that the chart makes from these values; `None` where Helm did not render it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) daemon_config: Option<Map<String, Value>>,
    pub(super) findings: Vec<Finding>,
    /// Commands and other steps, in their order.
    pub(super) steps: Vec<String>,
}

/// Returns the chart to install and its values, which Helm renders.
pub(super) fn choose_chart(
    snapshot: &ClusterSnapshot,
    explicit: Option<&ExplicitValues>,
) -> (Choice, Values) {
    let choice = choose(snapshot, &installation::all(snapshot));
    let (values, _) = effective_values(snapshot, &choice, explicit);
    (choice, values)
}

/// Decides what would fail or change. Without explicit values those of the installed release are used, else the chart's defaults.
pub(super) fn decide(
    snapshot: &mut ClusterSnapshot,
    explicit: Option<&ExplicitValues>,
    rendering: Rendering,
) -> Outcome {
    let installed = installation::all(snapshot);
    let choice = choose(snapshot, &installed);
    if snapshot.has_crd == Some(false) {
        let chart = choice.chart.crd_name();
        snapshot.known.missing_crd = Some(chart);
    }
    let (values, source) = effective_values(snapshot, &choice, explicit);
    if let (Rendering::Unknown(reason), false) = (&rendering, values.explicit.is_empty()) {
        snapshot.unread.push(format!(
            "the values were checked only against the chart's schema: {reason}; with helm in the PATH, the chart's templates check them, too"
        ));
    }
    let snapshot = &*snapshot;
    let installed = installation::all(snapshot);
    let mut findings = refused_values(&values, &rendering);
    let rendered = match rendering {
        Rendering::Accepted(config) => Some(config),
        _ => None,
    };
    let daemon_config = rendered.clone();
    let daemon_config = daemon_config.unwrap_or_else(|| values.known_daemon_config());
    findings.extend(value_changes(&values, &daemon_config, snapshot));
    // Pods are validated by the default options when the values are refused.
    let netconf = validate::netconf(daemon_config.clone())
        .or_else(|_| validate::netconf(Map::new()))
        .expect("a daemon accepts an empty configuration");
    findings.extend(deletable_crd(snapshot));
    let (node_findings, unserved) = node_findings(snapshot, &values);
    findings.extend(node_findings);
    if values.is_standalone() {
        findings.extend(standalone_plugins(&installed, snapshot, &netconf));
    } else {
        findings.extend(absent_default_networks(&daemon_config, snapshot, &netconf));
        findings.extend(missing_crd(snapshot, &choice));
        let replaced_installations =
            replaced_installations(&installed, snapshot, &values, &daemon_config, &netconf);
        findings.extend(replaced_installations);
        let provider = Provider::of(&installed);
        findings.extend(pod_findings(snapshot, &netconf, provider, &unserved));
        if values.is_on(HOT_PLUG) {
            findings.extend(hot_plug_changes(snapshot, &netconf));
        }
        findings.extend(invalid_definitions(snapshot, &netconf));
        findings.extend(address_findings(snapshot, &values, &netconf));
    }
    let mut findings = grouped(findings);
    findings
        .sort_by(|a, b| (b.verdict, a.subject, &a.names).cmp(&(a.verdict, b.subject, &b.names)));
    let worst = findings.iter().map(|one| one.verdict).max();
    let steps = steps(&findings, &installed, snapshot, &choice, explicit);
    Outcome {
        verdict: worst.filter(|verdict| *verdict > Verdict::Note),
        chart: choice.chart.name,
        chart_reason: choice.reason,
        values: source,
        daemon_config: rendered,
        findings,
        steps,
    }
}

/// Returns the values to use and their source: explicit ones, else those of the release, else the chart's defaults.
fn effective_values(
    snapshot: &ClusterSnapshot,
    choice: &Choice,
    explicit: Option<&ExplicitValues>,
) -> (Values, String) {
    if let Some(explicit) = explicit {
        return (Values::new(&explicit.values), explicit.files.join(", "));
    }
    let release = (choice.namespace.clone(), choice.release.clone());
    match snapshot.release_values.get(&release) {
        Some(values) if !values.is_empty() => (
            Values::new(values),
            format!("those of release {}/{}", release.0, release.1),
        ),
        _ => (Values::new(&Map::new()), "the chart's defaults".to_owned()),
    }
}

/// Reports values that the schema, the chart or the daemon refuses. The chart is asked about values that the schema allows.
fn refused_values(values: &Values, rendering: &Rendering) -> Vec<Finding> {
    let finding = |path: &str, text: String| {
        Finding::new(Verdict::Fails, Subject::Value, path.to_owned(), text)
    };
    let problems = values.problems();
    if !problems.is_empty() {
        let problems = problems.into_iter();
        return problems.map(|one| finding(&one.path, one.text)).collect();
    }
    match rendering {
        // The chart's messages begin with the value's path.
        Rendering::Refused(text) => {
            let (path, rest) = text.split_once(' ').unwrap_or(("values", text));
            let is_about_several = rest.starts_with("and ");
            let text = if is_about_several {
                text.clone()
            } else {
                format!("it {rest}")
            };
            vec![finding(path, text)]
        }
        Rendering::Accepted(config) => {
            let error = Config::parse(config.clone()).err();
            let finding = error.map(|error| finding("config", error.to_string()));
            finding.into_iter().collect()
        }
        Rendering::Unknown(_) => Vec::new(),
    }
}

fn value_changes(
    values: &Values,
    config: &Map<String, Value>,
    snapshot: &ClusterSnapshot,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if values.is_on("rke2-whereabouts.enabled") {
        let text = "it is true: the daemons of this chart give the addresses of whereabouts' pools, and nothing of whereabouts is installed; its CRDs stay as they are";
        let path = "rke2-whereabouts.enabled";
        findings.push(Finding::new(
            Verdict::Changes,
            Subject::Value,
            path,
            text.to_owned(),
        ));
    }
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
        let (verdict, hint) = if is_k3s && !path.contains("k3s") {
            (
                Verdict::Changes,
                ", but K3s has its own directories and socket",
            )
        } else {
            (Verdict::Note, "")
        };
        let text = format!(
            "it sets {path} on every node, whatever the node's runtime reports{hint}; the daemon of a node whose runtime has another path is not Ready: remove it unless all nodes are alike"
        );
        findings.push(Finding::new(verdict, Subject::Value, key, text));
    }
    findings
}

/// Reports what plugins without a multiplexer mean for pods: they lose the additional networks that the replaced release attached.
fn standalone_plugins(
    installed: &[Installation<'_>],
    snapshot: &ClusterSnapshot,
    netconf: &Netconf,
) -> Vec<Finding> {
    let path = "cniplugins.standalone";
    let replaced = installed
        .iter()
        .find(|one| one.attaches() && one.chart.is_some());
    let Some(replaced) = replaced else {
        let text = "nodes get only plugins: this release attaches no networks to pods";
        let finding = Finding::new(Verdict::Note, Subject::Value, path, text.to_owned());
        return vec![finding];
    };
    let name = format!("{}/{}", replaced.set.namespace, replaced.set.name);
    let pods = snapshot.pods.iter().filter_map(|pod| {
        let networks = pods::networks(pod, netconf)?;
        let text = format!(
            "the upgrade removes the multiplexer, DaemonSet {name}, so the pod's next start is without {networks}: delete it before, or set {path} to false"
        );
        Some(Finding::new(Verdict::Changes, Subject::Pod, pod.title(), text))
    });
    let text =
        format!("the upgrade replaces the multiplexer, DaemonSet {name}, with only the plugins");
    let finding = Finding::new(Verdict::Changes, Subject::Value, path, text);
    pods.chain([finding]).collect()
}

/// Reports default networks that the values name and that only files of the nodes could define.
fn absent_default_networks(
    config: &Map<String, Value>,
    snapshot: &ClusterSnapshot,
    netconf: &Netconf,
) -> Vec<Finding> {
    let namespace = &netconf.multus_namespace;
    let is_absent = |name: &str| {
        let key = (namespace.clone(), name.to_owned());
        snapshot.known.is_complete
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
                "it names network {name}, but there is no definition {namespace}/{name}; pods fail on every node without a configuration of that name in {}: create the definition, or correct the name",
                netconf.conf_dir.display()
            );
            Some(Finding::new(Verdict::Changes, Subject::Value, format!("config.daemon_conf.{key}"), text))
        })
        .collect()
}

fn missing_crd(snapshot: &ClusterSnapshot, choice: &Choice) -> Option<Finding> {
    (snapshot.has_crd == Some(false)).then(|| {
        let text = format!(
            "the cluster does not have the CRD of NetworkAttachmentDefinitions, without which every pod that requests a network fails: install {} first",
            choice.chart.crd_name()
        );
        Finding::new(Verdict::Changes, Subject::Cluster, "CRD", text)
    })
}

fn deletable_crd(snapshot: &ClusterSnapshot) -> Option<Finding> {
    snapshot.crd_deleter.as_ref().map(|(namespace, release)| {
        let text = format!(
            "Helm release {namespace}/{release} made the CRD of NetworkAttachmentDefinitions without `helm.sh/resource-policy: keep`, so Helm deletes it, with all network definitions, when an upgrade of that release leaves it out: annotate the CRD before all else"
        );
        Finding::new(Verdict::Changes, Subject::Cluster, "CRD", text)
    })
}

/// Reports what looks like a second Multus of a chart, in another namespace than the first.
fn second_charts(installed: &[Installation<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut charts = installed
        .iter()
        .filter(|one| one.kind.is_multus() && one.chart.is_some());
    let first = charts.next();
    for (first, other) in charts.filter_map(|other| Some((first?, other))) {
        if first.set.namespace != other.set.namespace {
            findings.push(Finding::new(
                Verdict::Fails,
                Subject::DaemonSet,
                format!("{}/{}", other.set.namespace, other.set.name),
                format!(
                    "looks like a second Multus of a chart; the steps are about {}/{}: find out whose it is, and delete it, or the other one, before anything is installed",
                    first.set.namespace, first.set.name
                ),
            ));
        }
    }
    findings
}

fn replaced_installations(
    installed: &[Installation<'_>],
    snapshot: &ClusterSnapshot,
    values: &Values,
    daemon_config: &Map<String, Value>,
    netconf: &Netconf,
) -> Vec<Finding> {
    let mut findings = second_charts(installed);
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
                    "multus-rs is already installed as release {namespace}/{release}: these findings are about its upgrade"
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
                            "upstream's {kind} Multus, which the distro installs again and again by its HelmChart {release}; running pods keep their networks: remove `multus` from the distro's `cni`, and let multus-distro install this one"
                        ),
                    ),
                    (Some(_), _) if helm_chart(one, snapshot).is_some() => add(
                        Verdict::Changes,
                        format!(
                            "upstream's {kind} Multus, which HelmChart {release} installs; running pods keep their networks: let that HelmChart install this chart, and add no second Multus, which would write the same configuration on each node"
                        ),
                    ),
                    (Some(_), _) => add(
                        Verdict::Note,
                        format!(
                            "upstream's {kind} Multus, of release {namespace}/{release}: `helm upgrade` replaces it, and running pods keep their networks"
                        ),
                    ),
                    (None, Some(_)) => add(
                        Verdict::Changes,
                        format!(
                            "upstream's {kind} Multus, of Helm release {namespace}/{release} of another chart; two of them on a node would write the same configuration, and running pods keep their networks: {} right before the installation",
                            if snapshot.uninstallable.contains(&owned(one)) {
                                "uninstall that release"
                            } else {
                                "remove its DaemonSet and Helm's record of it, and do not uninstall it, which may delete the CRD and all network definitions,"
                            }
                        ),
                    ),
                    (None, None) => add(
                        Verdict::Changes,
                        format!(
                            "upstream's {kind} Multus, which no Helm release owns; running pods keep their networks: delete this DaemonSet once the new daemons, which run next to it, are ready: before that, new pods would silently get only their default network"
                        ),
                    ),
                }
            }
            Kind::Dhcp | Kind::DynamicNetworks | Kind::Whereabouts => {
                findings.extend(lost_companion(one, installed, snapshot, values, netconf));
            }
        }
        if matches!(one.kind, Kind::Thin | Kind::Thick) {
            for (key, old, new) in installation::lost_settings(one, snapshot, daemon_config) {
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

/// Returns the `HelmChart` that installs this release of upstream's Multus.
fn helm_chart<'a>(one: &Installation<'_>, snapshot: &'a ClusterSnapshot) -> Option<&'a HelmChart> {
    let (_, release) = one.release();
    let mut charts = snapshot.helm_charts.iter();
    let found = charts.find(|chart| chart.name == release);
    found.filter(|_| matches!(one.kind, Kind::Thin | Kind::Thick))
}

/// Returns true when a distro installs this release again and again: RKE2 does so with the `HelmChart` of its own name, K3s has none.
fn is_of_distro(one: &Installation<'_>, snapshot: &ClusterSnapshot) -> bool {
    let is_rke2 = |chart: &HelmChart| chart.name == Identity::of(Distro::Rke2).name;
    let mut nodes = snapshot.nodes.iter();
    helm_chart(one, snapshot).is_some_and(is_rke2)
        && !nodes.any(|node| node.kubelet.contains("+k3s"))
}

/// Says where a `HelmChart` is changed.
fn place(chart: &HelmChart) -> String {
    let HelmChart {
        namespace, name, ..
    } = chart;
    match &chart.addon {
        Some(addon) => format!(
            "HelmChart {namespace}/{name}, which is in the file {addon}.yaml (or .yml, .json) of `server/manifests` on each server"
        ),
        None => format!("HelmChart {namespace}/{name}"),
    }
}

/// Reports a `DaemonSet` next to upstream's that the upgrade of their common release removes.
fn lost_companion(
    one: &Installation<'_>,
    installed: &[Installation<'_>],
    snapshot: &ClusterSnapshot,
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
                validate::ipam_types(nad, netconf)
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
                    "the upgrade removes it, and then pods of {networks} get no lease: set manifests.dhcpDaemonSet to true"
                ),
            )
        }
        Kind::Whereabouts
            if !["ipam.whereabouts", "rke2-whereabouts.enabled"]
                .iter()
                .any(|path| values.is_on(path)) =>
        {
            let networks = with_ipam("whereabouts");
            if networks.is_empty() {
                return None;
            }
            let networks = networks.join(", ");
            (
                Verdict::Fails,
                format!(
                    "the upgrade removes it, and pods of {networks} get no address once the nodes no longer have whereabouts: set ipam.whereabouts to true, or install whereabouts' own chart first"
                ),
            )
        }
        Kind::DynamicNetworks if !values.is_on(HOT_PLUG) => (
            Verdict::Changes,
            "the upgrade removes it, and then a changed annotation no longer changes a running pod: set dynamicNetworksController.enabled to true".to_owned(),
        ),
        _ => return None,
    };
    let name = format!("{}/{}", one.set.namespace, one.set.name);
    Some(Finding::new(verdict, Subject::DaemonSet, name, text))
}

/// Returns the findings about nodes, and the names of the nodes whose pods get no additional networks.
fn node_findings(snapshot: &ClusterSnapshot, values: &Values) -> (Vec<Finding>, BTreeSet<String>) {
    let (mut findings, mut unserved) = (Vec::new(), BTreeSet::new());
    for node in &snapshot.nodes {
        for finding in nodes::findings(node, values) {
            if finding.is_unserved {
                unserved.insert(node.name.clone());
            }
            let name = node.name.clone();
            findings.push(Finding::new(
                finding.verdict,
                Subject::Node,
                name,
                finding.text,
            ));
        }
    }
    (findings, unserved)
}

fn pod_findings(
    snapshot: &ClusterSnapshot,
    netconf: &Netconf,
    provider: Provider,
    unserved: &BTreeSet<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for pod in &snapshot.pods {
        let is_unserved = unserved.contains(&pod.object.node);
        for (verdict, text) in pods::findings(pod, netconf, &snapshot.known, provider, is_unserved)
        {
            findings.push(Finding::new(verdict, Subject::Pod, pod.title(), text));
        }
    }
    findings
}

/// Reports running pods whose annotation differs from what they have: a daemon with hot plug changes them when it starts.
fn hot_plug_changes(snapshot: &ClusterSnapshot, netconf: &Netconf) -> Vec<Finding> {
    let pods = snapshot.pods.iter().filter(|pod| !pod.object.host_network);
    let findings = pods.filter_map(|pod| {
        let attached = pod.attached.as_deref()?;
        let requested = pod_state::requested(&pod.object, netconf);
        let names = |names: &[String]| names.join(", ");
        let more = pod_state::without(requested.clone(), attached.iter().map(String::as_str));
        let less = pod_state::without(attached.to_vec(), requested.iter().map(String::as_str));
        let change = match (&more[..], &less[..]) {
            ([], []) => return None,
            (more, []) => format!("attaches {} to", names(more)),
            ([], less) => format!("detaches {} from", names(less)),
            (more, less) => format!("attaches {} to, and detaches {} from,", names(more), names(less)),
        };
        // Only the daemon's state knows such a network.
        let doubt = if more.is_empty() {
            ""
        } else {
            ", unless its plugin reported no interface and it is attached already"
        };
        let text = format!(
            "its annotation was changed after its start, so the daemon {change} the running pod{doubt}: correct the annotation first, or set {HOT_PLUG} to false"
        );
        Some(Finding::new(Verdict::Changes, Subject::Pod, pod.title(), text))
    });
    findings.collect()
}

/// Reports invalid definitions; they fail the pods that select them now.
fn invalid_definitions(snapshot: &ClusterSnapshot, netconf: &Netconf) -> Vec<Finding> {
    let pods = snapshot.pods.iter();
    let selected: BTreeSet<_> = pods
        .filter(|pod| !pod.object.host_network)
        .flat_map(|pod| validate::selected(&pod.object, netconf))
        .map(|selection| (selection.namespace, selection.name))
        .collect();
    let mut findings = Vec::new();
    for definition in &snapshot.definitions {
        let nad = &definition.nad;
        let is_selected = selected.contains(&(nad.namespace.clone(), nad.name.clone()));
        for diagnostic in validate::definition(definition, netconf) {
            let is_error = diagnostic.severity() == Severity::Error;
            let verdict = match (&diagnostic, is_error, is_selected) {
                // The findings of the pods that select it have the same error.
                (Diagnostic::Plan(_), _, true)
                | (
                    Diagnostic::ForeignPlugin { .. }
                    | Diagnostic::PoolsOfWhereabouts
                    | Diagnostic::KeysWithoutEffect { .. },
                    ..,
                ) => continue,
                (_, true, true) => Verdict::Fails,
                _ => Verdict::Note,
            };
            let unused = if is_error && !is_selected {
                "; no pod selects it at present"
            } else {
                ""
            };
            let name = format!("{}/{}", nad.namespace, nad.name);
            let text = format!("{diagnostic}{unused}");
            findings.push(Finding::new(verdict, Subject::Definition, name, text));
        }
    }
    findings
}

/// Reports addresses that pods would get twice, or not at all.
fn address_findings(
    snapshot: &ClusterSnapshot,
    values: &Values,
    netconf: &Netconf,
) -> Vec<Finding> {
    let nodes = snapshot.nodes.len();
    let facts = ClusterFacts {
        nodes: (nodes > 0).then_some(nodes),
        is_ipam_on: Some(values.is_on(IPAM)),
        has_claims: None,
    };
    let pods = snapshot.pods.iter().map(|pod| &pod.object);
    let faults = address_use::faults(&snapshot.known, pods, netconf, facts);
    let finding = |((namespace, name), fault): (_, AddressFault)| {
        let verdict = match fault.severity() {
            Severity::Error => Verdict::Fails,
            _ => Verdict::Note,
        };
        let name = format!("{namespace}/{name}");
        Finding::new(verdict, Subject::Definition, name, fault.to_string())
    };
    faults.into_iter().map(finding).collect()
}

/// Returns namespace and name of its release, as the snapshot has them.
fn owned(one: &Installation<'_>) -> (String, String) {
    let (namespace, release) = one.release();
    (namespace.to_owned(), release.to_owned())
}

fn delete_daemon_set(one: &Installation<'_>) -> String {
    let (namespace, name) = (&one.set.namespace, &one.set.name);
    format!("kubectl delete daemonset --namespace {namespace} {name}")
}

/// Joins findings with the same text about several objects into one.
fn grouped(findings: Vec<Finding>) -> Vec<Finding> {
    let mut groups = BTreeMap::<(Verdict, Subject, String), Finding>::new();
    for finding in findings {
        // Some texts contain the object's name, which must not keep them apart.
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

/// Returns how the release of another chart is removed without a network.
fn removal(one: &Installation<'_>, snapshot: &ClusterSnapshot) -> Vec<String> {
    let (namespace, release) = one.release();
    let chart = helm_chart(one, snapshot);
    let delete_chart = chart.map(|chart| format!("delete {}", place(chart)));
    if snapshot.uninstallable.contains(&owned(one)) {
        let uninstall = || format!("helm uninstall --namespace {namespace} {release}");
        return vec![delete_chart.unwrap_or_else(uninstall)];
    }
    // Helm would delete what the release made, the CRD too, even where another release has taken it over.
    let mut steps = vec![
        format!("kubectl get {CRD} --all-namespaces --output yaml > networks.yaml"),
        delete_daemon_set(one),
        format!(
            "kubectl delete secret --namespace {namespace} --selector owner=helm,name={release}"
        ),
    ];
    steps.extend(delete_chart);
    steps
}

/// Returns what to do, in its order.
fn steps(
    findings: &[Finding],
    installed: &[Installation<'_>],
    snapshot: &ClusterSnapshot,
    choice: &Choice,
    explicit: Option<&ExplicitValues>,
) -> Vec<String> {
    let mut steps = Vec::new();
    if snapshot.crd_deleter.is_some() {
        steps.push(format!(
            "kubectl annotate crd {CRD} helm.sh/resource-policy=keep"
        ));
    }
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
            "correct what fails; running pods keep their networks until they start again"
                .to_owned(),
        );
    }
    // Those that neither our chart nor the distro replaces.
    let (other_charts, without_release): (Vec<_>, Vec<_>) = installed
        .iter()
        .filter(|one| matches!(one.kind, Kind::Thin | Kind::Thick) && one.chart.is_none())
        .partition(|one| one.set.release.is_some());
    // Helm would delete what the new release had taken over, so the old one goes first.
    steps.extend(
        other_charts
            .into_iter()
            .flat_map(|one| removal(one, snapshot)),
    );
    // Upstream's daemon deletes its configuration when it ends, so ours has to serve before.
    let last = without_release.iter().map(|one| delete_daemon_set(one));
    let Choice {
        chart,
        namespace,
        release,
        ..
    } = choice;
    if installed.iter().any(|one| is_of_distro(one, snapshot)) {
        let distro = chart.cluster();
        steps.push(format!(
            "write the values that you want to keep into a HelmChartConfig {namespace}/{}",
            chart.name
        ));
        steps.push(format!(
            "remove `multus` from `cni` in /etc/rancher/{distro}/config.yaml of each server"
        ));
        steps.push(format!("start each server with `multus-distro run --multus -- {distro} server`; `multus-distro install` makes that permanent"));
        steps.extend(last);
        return steps;
    }
    let key = (namespace.clone(), release.clone());
    let mut ours = installed.iter().filter(|one| one.chart.is_some());
    let helm_chart = ours.find_map(|one| helm_chart(one, snapshot));
    let has_values = snapshot
        .release_values
        .get(&key)
        .is_some_and(|all| !all.is_empty());
    let mut files = String::new();
    match explicit {
        Some(explicit) => files.extend(
            explicit
                .files
                .iter()
                .map(|file| format!(" --values {file}")),
        ),
        // A HelmChart has the values itself.
        None if has_values && helm_chart.is_none() => {
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
    match helm_chart {
        // Helm alone would be undone by the next job of the HelmChart.
        Some(found) => steps.push(format!(
            "in {}: replace `chart`, `repo` and `version` by `chartContent`, which is what `base64 --wrap=0 {chart}-{VERSION}.tgz` prints, and add `takeOwnership: true`",
            place(found)
        )),
        None => steps.push(format!(
            "{upgrade} {namespace} {release} {chart}-{VERSION}.tgz{files}"
        )),
    }
    if !without_release.is_empty() {
        steps.push(format!(
            "kubectl rollout status --namespace {namespace} daemonset/{release}"
        ));
    }
    steps.extend(last);
    steps
}

#[cfg(test)]
mod tests;
