//! Decides what a report says: a function over a snapshot of the cluster. The JSON output is its result.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use api::{cause::Cause as FailureCause, network_report::Verdict, options, time::rfc3339, version};
use cmdline::counted;
use cni::config::NetworkConfig;
use plan::netconf::Netconf;
use plugins::config::{What, needs};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{gather::Snapshot, secrets::Secrets, vpn::VpnNode};
use crate::{
    address_use::ClusterFacts,
    addresses::{self, Objects, Overview},
    cluster::events_about,
    cluster_health::ClusterHealth,
    diagnostic::Severity,
    lint, networks,
    node_daemon::{DaemonReply, DaemonStatus},
    object::{self, DEFINITION, Object},
    pod_snapshot::{PodSnapshot, lenient_options},
    pod_state::PodState,
    status,
    validate::{self, KnownDefinitions},
    why,
};

/// Raised by every change that gives an existing field another meaning.
pub(super) const SCHEMA: u32 = 1;
const DAEMONS: &str = "kubectl get pods -A -l app.kubernetes.io/part-of=multus,app.kubernetes.io/component=daemon -o wide";

/// The complete report. docs/contributing/report.md describes it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report<'a> {
    pub(super) schema: u32,
    /// The program's version.
    pub(super) version: &'static str,
    /// The time of the snapshot.
    pub(super) time: String,
    /// The namespace of the pods; `None` for all.
    pub(super) namespace: Option<&'a str>,
    /// Whether values of configurations and `cni-args` are in it.
    pub(super) is_full: bool,
    /// What is wrong, the worst first.
    pub(super) findings: Vec<Finding>,
    /// Everything that could not be read or queried, with the reasons.
    pub(super) gaps: Vec<String>,
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) networks: Vec<Network>,
    /// The ranges that all nodes share.
    pub(super) ranges: Vec<&'a addresses::Row>,
    pub(super) pods: Vec<Pod>,
    pub(super) vpn: &'a [VpnNode],
}

/// Something that is wrong, with what helps.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// Kind and name of each object that it is about.
    pub(super) objects: Vec<String>,
    pub(super) text: String,
    /// What helps; empty where the text says it.
    pub(super) hint: String,
    /// The command that says more.
    pub(super) command: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Node<'a> {
    pub(super) name: String,
    /// `None` when nodes were not read.
    pub(super) is_ready: Option<bool>,
    /// Why its daemon did not answer.
    pub(super) gap: Option<String>,
    pub(super) daemon: Option<&'a DaemonStatus>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Network {
    /// Namespace and name of the definition.
    pub(super) name: String,
    /// The types of its plugins in their order, and those of their IPAM plugins.
    pub(super) plugins: Vec<String>,
    pub(super) ipam: Vec<String>,
    /// The links of the node that it builds on.
    pub(super) links: Vec<String>,
    pub(super) vlan: Option<u64>,
    /// The keys of its configuration.
    pub(super) keys: Vec<String>,
    /// The configuration itself, in a full report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) config: Option<String>,
    pub(super) nodes: Vec<OnNode>,
    /// The ranges of which each node gives by itself; none in a report of one namespace, which does not know all pods.
    pub(super) node_ranges: Vec<NodeRange>,
}

/// How much of a range a node has given that has given most of it.
#[derive(Debug, Serialize)]
pub(super) struct NodeRange {
    pub(super) first: IpAddr,
    pub(super) last: IpAddr,
    /// `None` when no pod has an address of the range.
    pub(super) node: Option<String>,
    pub(super) used: u128,
    pub(super) free: u128,
}

#[derive(Debug, Serialize)]
pub(super) struct OnNode {
    pub(super) node: String,
    #[serde(flatten)]
    pub(super) verdict: Verdict,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pod {
    /// What it got.
    #[serde(flatten)]
    pub(super) status: status::Report,
    /// What it requested.
    pub(super) requests: Vec<Request>,
    /// The seconds from the kubelet's start of the pod to its last network.
    pub(super) attached_after: Option<u64>,
    /// How many milliseconds the ADD of each interface took, where its node's daemon has seen it.
    pub(super) add_milliseconds: BTreeMap<String, u64>,
    /// The diagnosis of a pod that misses something.
    pub(super) why: Option<why::Report>,
}

/// One network that a pod requested.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    pub(super) network: String,
    pub(super) interface: Option<String>,
    pub(super) addresses: Vec<String>,
    pub(super) mac: Option<String>,
    pub(super) claim: Option<String>,
    /// The keys of `cni-args`.
    pub(super) cni_args: Vec<String>,
    /// Their values, in a full report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cni_args_values: Option<Map<String, Value>>,
}

/// Returns what a snapshot says; values of configurations and `cni-args` only when it `is_full`.
pub(super) fn report(snapshot: &Snapshot, is_full: bool) -> anyhow::Result<Report<'_>> {
    let netconf = netconf(snapshot)?;
    let health = ClusterHealth::of(
        snapshot.daemon_sets.as_deref(),
        snapshot.nodes.as_deref().unwrap_or_default(),
    );
    let mut gaps = snapshot.gaps.clone();
    gaps.extend(snapshot.replies.gaps.iter().cloned());
    let pods = pods(snapshot, &mut gaps, is_full)?;
    let networks = shown_networks(snapshot, &netconf, &pods, is_full);
    let names: BTreeSet<_> = networks.iter().map(|one| one.name.as_str()).collect();
    let ranges = snapshot.addresses.ranges.iter();
    let ranges: Vec<_> = ranges
        .filter(|row| {
            snapshot.namespace.is_none() || row.networks.iter().any(|one| names.contains(&**one))
        })
        .collect();
    let mut findings = cluster_findings(snapshot, &health);
    findings.extend(pods.iter().filter_map(pod_finding));
    findings.extend(linted(snapshot, &netconf, &names));
    findings.extend(address_findings(snapshot, &ranges, &names));
    findings.extend(snapshot.vpn.iter().flat_map(vpn_findings));
    let mut report = Report {
        schema: SCHEMA,
        version: version::VERSION,
        time: rfc3339(snapshot.now),
        namespace: snapshot.namespace.as_deref(),
        is_full,
        findings: grouped(findings),
        gaps,
        nodes: nodes(snapshot),
        networks,
        ranges,
        pods,
        vpn: &snapshot.vpn,
    };
    if !is_full {
        let definitions = snapshot.definitions.iter().flatten();
        let configs = definitions.filter_map(|one| one.pointer("/spec/config")?.as_str());
        let known = snapshot.known.nads.values().map(|nad| nad.config.as_str());
        Secrets::of(configs.chain(known), &snapshot.pods).hide(&mut report);
    }
    Ok(report)
}

impl Pod {
    /// Returns the networks that it has besides the cluster's default one, each with the pod's name.
    pub(super) fn additional(&self) -> impl Iterator<Item = (&str, &status::Row)> {
        let rows = self.status.networks.iter().filter(|row| !row.default);
        rows.map(|row| (self.status.pod.as_str(), row))
    }
}

impl Report<'_> {
    /// Returns the number of findings of a severity.
    pub(super) fn count(&self, severity: Severity) -> usize {
        let findings = self.findings.iter();
        findings.filter(|one| one.severity == severity).count()
    }

    /// Returns true when something is wrong, notes aside.
    pub(super) fn has_problem(&self) -> bool {
        self.count(Severity::Error) + self.count(Severity::Warning) > 0
    }
}

/// Returns the definitions of a list, without those that no daemon can read.
pub(super) fn known(definitions: Option<&[Value]>) -> KnownDefinitions {
    let mut known = KnownDefinitions {
        is_complete: definitions.is_some(),
        ..KnownDefinitions::default()
    };
    for object in definitions.into_iter().flatten() {
        if let Ok(nad) = plan::objects::definition(object.clone()) {
            known.add(&nad);
        }
    }
    known
}

/// Returns the networks that pods of the namespace select.
pub(super) fn selected(snapshot: &Snapshot) -> BTreeSet<(String, String)> {
    let Ok(netconf) = netconf(snapshot) else {
        return BTreeSet::new();
    };
    let pods = shown_pods(snapshot).filter_map(|pod| object::pod(pod, "").ok());
    let selections = pods.flat_map(|pod| validate::selected(&pod, &netconf));
    selections.map(|one| (one.namespace, one.name)).collect()
}

/// Returns the pods with additional networks and their nodes, those that miss something first, and how many these are.
pub(super) fn by_urgency(snapshot: &Snapshot) -> (Vec<(String, String)>, usize) {
    let mut pods = pods(snapshot, &mut Vec::new(), false).unwrap_or_default();
    pods.retain(|pod| !pod.status.node.is_empty());
    pods.sort_by_key(|pod| pod.why.is_none());
    let urgent = pods.iter().filter(|pod| pod.why.is_some()).count();
    let pods = pods.into_iter();
    let names = pods.map(|pod| (pod.status.pod, pod.status.node));
    (names.collect(), urgent)
}

/// Returns the ranges of a snapshot, and what is wrong with their addresses.
pub(super) fn addresses(snapshot: &Snapshot) -> Overview {
    let objects = Objects {
        definitions: snapshot.definitions.as_deref().unwrap_or_default(),
        blocks: &snapshot.blocks,
        nodes: snapshot.nodes.as_deref(),
        claims: snapshot.claims.as_deref(),
        pods: &snapshot.pods,
    };
    let netconf = netconf(snapshot);
    netconf.map_or_else(
        |_| Overview::default(),
        |netconf| Overview::of(&objects, &netconf),
    )
}

/// Returns the options of the first daemon that answered; otherwise those that report no request as unserved.
fn netconf(snapshot: &Snapshot) -> anyhow::Result<Netconf> {
    let mut replies = snapshot.pod_replies.values();
    let options = replies.find_map(|reply| Some(reply.answer()?.options.clone()));
    validate::netconf(options.unwrap_or_else(lenient_options))
}

fn shown_pods(snapshot: &Snapshot) -> impl Iterator<Item = &Value> {
    let namespace = snapshot.namespace.as_deref();
    snapshot.pods.iter().filter(move |pod| {
        let found = pod.pointer("/metadata/namespace").and_then(Value::as_str);
        namespace.is_none() || found == namespace
    })
}

/// Returns the pods that have, request or miss networks, and those whose sandbox cannot be made.
fn pods(snapshot: &Snapshot, gaps: &mut Vec<String>, is_full: bool) -> anyhow::Result<Vec<Pod>> {
    let mut events = BTreeMap::<(&str, &str), Vec<&Value>>::new();
    for event in &snapshot.events {
        let of = |key: &str| event["involvedObject"][key].as_str().unwrap_or_default();
        events
            .entry((of("namespace"), of("name")))
            .or_default()
            .push(event);
    }
    let mut found = Vec::new();
    for object in shown_pods(snapshot) {
        let pod_state = match PodState::read(object) {
            Ok(pod_state) => pod_state,
            Err(reason) => {
                let at = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
                gaps.push(format!("pod {}/{}: {reason}", at("namespace"), at("name")));
                continue;
            }
        };
        let has_ended = ["Succeeded", "Failed"].contains(&pod_state.phase.as_str());
        if has_ended || pod_state.pod.host_network {
            continue;
        }
        let view = &pod_state.pod.view;
        let events = events.get(&(view.namespace.as_str(), view.name.as_str()));
        let events = events.into_iter().flatten().copied();
        let events = events_about(events, &view.uid);
        found.extend(pod(pod_state, events, snapshot, is_full)?);
    }
    found.sort_by(|one, other| one.status.pod.cmp(&other.status.pod));
    Ok(found)
}

fn pod(
    pod_state: PodState,
    events: Vec<crate::cluster::Event>,
    snapshot: &Snapshot,
    is_full: bool,
) -> anyhow::Result<Option<Pod>> {
    let reply = match snapshot.pod_replies.get(&pod_state.name()) {
        _ if pod_state.node.is_empty() => DaemonReply::NoNode,
        Some(reply) => reply.clone(),
        None => DaemonReply::Unavailable("it was not queried about this pod".to_owned()),
    };
    let options = reply.answer().map(|answer| answer.options.clone());
    let mut of_pod = PodSnapshot {
        events,
        known: snapshot.known.clone(),
        netconf: validate::netconf(options.unwrap_or_else(lenient_options))?,
        reply,
        neighbours: Vec::new(),
        health: ClusterHealth::default(),
        unread: Vec::new(),
        pod_state,
    };
    let mut status = status::report(&of_pod, snapshot.now);
    status.gaps.clear();
    let has_sandbox = of_pod.pod_state.has_sandbox();
    let is_waiting = !has_sandbox && of_pod.events.iter().any(|event| event.is_warning);
    let misses = !status.missing.is_empty() || status.problem.is_some();
    if !misses && !is_waiting && status.networks.iter().all(|row| row.default) {
        return Ok(None);
    }
    let why = (misses || is_waiting || of_pod.pod_state.is_deleted).then(|| {
        of_pod.health = ClusterHealth::of(
            snapshot.daemon_sets.as_deref(),
            snapshot.nodes.as_deref().unwrap_or_default(),
        );
        if !validate::fixed_addresses(&of_pod.pod_state.pod, &of_pod.netconf).is_empty() {
            let (own, node) = (of_pod.pod_state.name(), of_pod.pod_state.node.as_str());
            let at =
                |pod: &&Value| pod.pointer("/spec/nodeName").and_then(Value::as_str) == Some(node);
            let others = snapshot.pods.iter().filter(at);
            let others = others.filter_map(|pod| PodState::read(pod).ok());
            let others = others.filter(|pod| pod.name() != own);
            of_pod.neighbours = others.collect();
        }
        why::examine(&of_pod, snapshot.now)
    });
    let additional = status.networks.iter().filter(|row| !row.default);
    let last = additional.filter_map(|row| row.since).max();
    let started = of_pod.pod_state.started;
    let selections = validate::selected(&of_pod.pod_state.pod, &of_pod.netconf);
    let requests = selections.into_iter().map(|one| Request {
        network: format!("{}/{}", one.namespace, one.name),
        interface: one.interface,
        addresses: one.ips,
        mac: one.mac,
        claim: one.claim,
        cni_args: one.cni_args.iter().flat_map(Map::keys).cloned().collect(),
        cni_args_values: one.cni_args.filter(|_| is_full),
    });
    let attached = snapshot.replies.answers.get(&of_pod.pod_state.node);
    let attached = attached.into_iter().flat_map(|answer| &answer.attached);
    let own = attached.filter(|one| one.pod == status.pod);
    Ok(Some(Pod {
        requests: requests.collect(),
        add_milliseconds: own
            .map(|one| (one.interface.clone(), one.milliseconds))
            .collect(),
        attached_after: last
            .zip(started)
            .and_then(|(last, started)| last.checked_sub(started)),
        why,
        status,
    }))
}

fn nodes(snapshot: &Snapshot) -> Vec<Node<'_>> {
    let mut ready = BTreeMap::<String, Option<bool>>::new();
    for node in snapshot.nodes.iter().flatten() {
        let name = node.pointer("/metadata/name").and_then(Value::as_str);
        ready.insert(name.unwrap_or_default().to_owned(), Some(is_ready(node)));
    }
    for name in snapshot.replies.answers.keys() {
        ready.entry(name.clone()).or_default();
    }
    let nodes = ready.into_iter().map(|(name, is_ready)| {
        let begin = format!("node {name}: ");
        let mut gaps = snapshot.replies.gaps.iter();
        let gap = gaps
            .find_map(|gap| gap.strip_prefix(&begin))
            .map(str::to_owned);
        let is_answered = snapshot.replies.answers.contains_key(&name);
        Node {
            daemon: snapshot.statuses.get(&name),
            gap: gap.or_else(|| (!is_answered).then(|| "no daemon answered".to_owned())),
            is_ready,
            name,
        }
    });
    nodes.collect()
}

fn is_ready(node: &Value) -> bool {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// Returns the definitions of the namespace, and those of others that its pods have or request.
fn shown_networks(
    snapshot: &Snapshot,
    netconf: &Netconf,
    pods: &[Pod],
    is_full: bool,
) -> Vec<Network> {
    let requests = pods.iter().flat_map(|pod| &pod.requests);
    let used: BTreeSet<_> = requests.map(|one| one.network.as_str()).collect();
    let is_shown = |namespace: &str, name: &str| {
        let scope = snapshot.namespace.as_deref();
        scope.is_none_or(|scope| scope == namespace) || used.contains(name)
    };
    let mut shown = Vec::new();
    for ((namespace, name), nad) in &snapshot.known.nads {
        let name = format!("{namespace}/{name}");
        if !is_shown(namespace, &name) {
            continue;
        }
        let verdicts = networks::verdicts(&snapshot.replies, &name);
        let nodes = verdicts.map(|(node, verdict)| OnNode {
            node: node.to_owned(),
            verdict: verdict.clone(),
        });
        let nodes = nodes.collect();
        let attachment = validate::network(nad, netconf).ok();
        let config = attachment.as_ref().map(|one| &one.config);
        let plugins = config.iter().flat_map(|config| &config.plugins);
        let mut vlans = plugins.filter_map(|one| one.value.get("vlanId").or(one.value.get("vlan")));
        shown.push(Network {
            plugins: validate::plugins(nad, netconf),
            ipam: validate::ipam_types(nad, netconf),
            links: config.map(|config| links(config)).unwrap_or_default(),
            vlan: vlans.find_map(Value::as_u64),
            keys: keys(&nad.config),
            config: is_full.then(|| nad.config.clone()),
            nodes,
            node_ranges: config
                .filter(|_| snapshot.namespace.is_none())
                .map(|config| node_ranges(config, &name, pods))
                .unwrap_or_default(),
            name,
        });
    }
    shown
}

/// Returns the ranges of which each node gives by itself, with what its pods have of them.
fn node_ranges(config: &NetworkConfig, network: &str, pods: &[Pod]) -> Vec<NodeRange> {
    let ranges = plugins::config::ranges(config).into_iter();
    ranges
        .map(|range| {
            let mut used = BTreeMap::<&str, u128>::new();
            for pod in pods {
                let rows = pod.additional().filter(|(_, row)| row.network == network);
                let addresses = rows.flat_map(|(_, row)| &row.addresses);
                let given = addresses.filter(|address| {
                    plugins::config::parse_address(address)
                        .is_some_and(|address| range.contains(address))
                });
                *used.entry(&pod.status.node).or_default() += given.count() as u128;
            }
            let most = used.into_iter().filter(|(_, used)| *used > 0);
            let most = most.max_by_key(|(_, used)| *used);
            let used = most.map_or(0, |(_, used)| used);
            NodeRange {
                first: range.first(),
                last: range.last(),
                node: most.map(|(node, _)| node.to_owned()),
                used,
                free: range.count().saturating_sub(used),
            }
        })
        .collect()
}

/// Returns the names of the links that the plugins build on or move.
fn links(config: &NetworkConfig) -> Vec<String> {
    let links = needs(config)
        .into_iter()
        .filter_map(|need| match need.what {
            What::Master(name) | What::Link(name) | What::BridgeOrNothing(name) => Some(name),
            What::MasterOfDefaultRoute => Some("link of the default route".to_owned()),
            What::Directory(path) => Some(path.display().to_string()),
            What::LinkWithMac(_) | What::DhcpService(_) | What::IpamService | What::Unknown => None,
        });
    links.collect()
}

/// Returns the keys of a configuration and of its plugins, those of `ipam` with a prefix.
fn keys(config: &str) -> Vec<String> {
    let mut keys = BTreeSet::new();
    let config: Value = serde_json::from_str(config).unwrap_or_default();
    let plugins = config["plugins"].as_array().into_iter().flatten();
    for object in plugins.chain([&config]).filter_map(Value::as_object) {
        keys.extend(object.keys().cloned());
        if let Some(ipam) = options::get(object, "ipam").and_then(Value::as_object) {
            keys.extend(ipam.keys().map(|key| format!("ipam.{key}")));
        }
    }
    keys.into_iter().collect()
}

fn finding(severity: Severity, object: String, text: String, command: String) -> Finding {
    let command = named_command(&text).map_or(command, str::to_owned);
    Finding {
        severity,
        objects: vec![object],
        text,
        hint: String::new(),
        command,
    }
}

/// Returns the command that a text names in backquotes, if it is one of this program or of kubectl.
fn named_command(text: &str) -> Option<&str> {
    let mut quoted = text.split('`').skip(1).step_by(2);
    quoted.find(|text| text.starts_with("kubectl "))
}

fn cluster_findings(snapshot: &Snapshot, health: &ClusterHealth) -> Vec<Finding> {
    let of = |cause: FailureCause, object: String, text: String| Finding {
        hint: why::Cause::from(cause).hint().to_owned(),
        ..finding(Severity::Error, object, text, DAEMONS.to_owned())
    };
    let mut findings = Vec::new();
    if health.is_installed == Some(false) {
        let text = "Multus is not installed in this cluster: install its chart".to_owned();
        let command = "kubectl multus preflight".to_owned();
        findings.push(finding(
            Severity::Error,
            "cluster".to_owned(),
            text,
            command,
        ));
    }
    let cluster = || "cluster".to_owned();
    let unready = health.unready_daemon_sets.iter();
    findings.extend(unready.map(|text| of(FailureCause::DaemonNotReady, cluster(), text.clone())));
    findings.extend(health.unready_nodes.iter().map(|(node, reason)| {
        let text = format!("its network is not ready: {reason}");
        of(
            FailureCause::NodeNetworkNotReady,
            format!("node {node}"),
            text,
        )
    }));
    findings.extend(snapshot.statuses.iter().filter_map(|(node, status)| {
        let problem = status.problem.as_ref()?;
        let text = format!("its daemon does not serve pods: {problem}");
        Some(of(
            FailureCause::DaemonNotReady,
            format!("node {node}"),
            text,
        ))
    }));
    findings
}

fn pod_finding(pod: &Pod) -> Option<Finding> {
    let why = pod.why.as_ref().filter(|why| !why.is_healthy)?;
    let name = &pod.status.pod;
    Some(Finding {
        severity: Severity::Error,
        objects: vec![format!("pod {name}")],
        text: why.explanation.clone(),
        hint: why.hint.clone(),
        command: format!("kubectl multus why {name}"),
    })
}

/// Returns what `lint --cluster` finds about the definitions and pods that are shown.
fn linted(snapshot: &Snapshot, netconf: &Netconf, networks: &BTreeSet<&str>) -> Vec<Finding> {
    let definitions = snapshot.definitions.iter().flatten();
    let mut objects: Vec<_> = definitions
        .filter_map(|one| object::read(one, "").ok())
        .flatten()
        .collect();
    if snapshot.known.is_complete {
        let running = snapshot.pods.iter().filter(|pod| !object::has_ended(pod));
        let pods = running.filter_map(|pod| object::pod(pod, "").ok());
        objects.extend(pods.map(|pod| Object::Pod(Box::new(pod))));
    }
    let facts = ClusterFacts {
        nodes: snapshot.nodes.as_ref().map(Vec::len),
        is_ipam_on: snapshot.is_ipam_on,
        has_claims: snapshot.has_claims,
    };
    let found = lint::of_cluster(objects, &snapshot.known, netconf, facts, &snapshot.replies);
    let is_shown = |one: &lint::Finding| match one.object.split_once(' ') {
        Some((DEFINITION, name)) => networks.contains(name),
        Some((_, name)) => {
            let namespace = name.split_once('/').map(|(namespace, _)| namespace);
            snapshot.namespace.is_none() || snapshot.namespace.as_deref() == namespace
        }
        None => true,
    };
    let found = found.into_iter().filter(is_shown);
    found
        .map(|one| {
            let (kind, name) = one.object.split_once(' ').unwrap_or_default();
            let (kind, resource) = match kind {
                DEFINITION => ("definition", "net-attach-def"),
                _ => ("pod", "pod"),
            };
            let (namespace, short) = name.split_once('/').unwrap_or_default();
            let command = format!("kubectl get {resource} -n {namespace} {short} -o yaml | kubectl multus lint --cluster -");
            finding(one.severity, format!("{kind} {name}"), one.text, command)
        })
        .collect()
}

/// Returns what `ipam` and `ipam check` find about the ranges that are shown.
fn address_findings(
    snapshot: &Snapshot,
    ranges: &[&addresses::Row],
    networks: &BTreeSet<&str>,
) -> Vec<Finding> {
    let is_shown = |one: &&addresses::Finding| {
        let address = one.object.rsplit(' ').next().unwrap_or_default();
        let is_near = |row: &&&addresses::Row| {
            let ends = row.first.zip(row.last);
            let block = ipam::range::parse_address(address).map(ipam::Block::of);
            // A block begins before the first address of its range.
            let is_in = |(first, last): (_, _)| {
                let block = block.as_ref().ok()?;
                Some(*block >= ipam::Block::of(first) && *block <= ipam::Block::of(last))
            };
            row.space == one.space && ends.and_then(is_in) == Some(true)
        };
        snapshot.namespace.is_none()
            || networks.contains(address)
            || ranges.iter().any(|row| is_near(&row))
    };
    let findings = snapshot.addresses.findings.iter().filter(is_shown);
    let mut found: Vec<_> = findings
        .map(|one| {
            let object = if one.object.contains(' ') {
                one.object.clone()
            } else {
                format!("address {}", one.object)
            };
            let text = format!("{}: {}", one.kind, one.text);
            finding(
                Severity::Error,
                object,
                text,
                "kubectl multus ipam check".to_owned(),
            )
        })
        .collect();
    let noted = ranges.iter().filter(|row| !row.notes.is_empty());
    found.extend(noted.map(|row| {
        let (severity, object) = match &row.range {
            Some(range) => (Severity::Warning, format!("range {range}")),
            None => (Severity::Note, counted(row.used, "address")),
        };
        finding(
            severity,
            object,
            row.notes.join("; "),
            "kubectl multus ipam".to_owned(),
        )
    }));
    found
}

fn vpn_findings(node: &VpnNode) -> impl Iterator<Item = Finding> {
    node.findings.iter().map(|one| {
        let severity = if one.is_problem {
            Severity::Error
        } else {
            Severity::Note
        };
        let command = "multus-distro vpn status".to_owned();
        finding(
            severity,
            format!("node {}", node.name),
            one.text.clone(),
            command,
        )
    })
}

/// Joins findings that say the same, and puts the worst first. Failures have an id of their own.
fn grouped(findings: Vec<Finding>) -> Vec<Finding> {
    let without_id = |text: &str| match text.rsplit_once(" (id ") {
        Some((before, _)) => before.to_owned(),
        None => text.to_owned(),
    };
    let mut joined = Vec::<Finding>::new();
    let mut places = BTreeMap::<String, usize>::new();
    for mut one in findings {
        let place = *places.entry(without_id(&one.text)).or_insert(joined.len());
        match joined.get_mut(place) {
            Some(first) => {
                first.severity = first.severity.max(one.severity);
                one.objects.retain(|object| !first.objects.contains(object));
                first.objects.append(&mut one.objects);
            }
            None => joined.push(one),
        }
    }
    joined.sort_by_key(|one| std::cmp::Reverse(one.severity));
    joined
}
