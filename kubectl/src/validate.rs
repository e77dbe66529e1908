//! Validates definitions and pods with the daemon's own functions, before they exist in a cluster.
//! This module has no rules of annotations, definitions or plans of its own; they are in the crate `plan`, and those of plugins in `plugins`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::{
    options::get,
    plugins::{NAMES, WHEREABOUTS},
};
use cni::version::SUPPORTED;
use plan::{
    ANNOTATION_KEYS, Attachment, DEFAULT_NETWORK_ANNOTATION, Definitions, Inputs,
    LEGACY_ANNOTATION, NETWORKS_ANNOTATION, Nad, NoFiles, NoPlugins, POD_ANNOTATIONS, PlanError,
    RESOURCE_ANNOTATION, SELECTOR_ANNOTATION, Selection, daemon_config,
    netconf::{Netconf, UnsupportedRequests},
};
use plugins::config::{Range, keys, parse_address, request_faults};
use serde_json::{Map, Value};

use crate::{
    diagnostic::{Diagnostic, Severity},
    object::{self, Definition, Pod},
    suggest,
};

/// The interface that every Kubernetes runtime requests for the default network.
const DEFAULT_INTERFACE: &str = "eth0";
/// Stands for the plugin of the cluster's default network. It is a part of Multus, so no list of allowed plugins refuses it.
const ANY_PLUGIN: &str = "passthru";

/// Plugins whose interface is a part of an Ethernet interface, their `master`.
const ON_ETHERNET: &[&str] = &["ipvlan", "macvlan", "vlan"];
/// The names that VPNs and tunnels give their interfaces, in front of a number.
const TUNNELS: &[&str] = &["nebula", "ppp", "tailscale", "tun", "utun", "wg", "wt"];

/// The definitions that were read from files or from the cluster.
#[derive(Debug, Default, Clone)]
pub(crate) struct KnownDefinitions {
    /// Definitions by namespace and name.
    pub(crate) nads: BTreeMap<(String, String), Arc<Nad>>,
    /// True when a definition that is not in `nads` does not exist; false when it may exist and was not read.
    pub(crate) is_complete: bool,
    /// Names of other definitions in the cluster, by namespace.
    pub(crate) other_names: BTreeMap<String, Vec<String>>,
    /// The chart that installs the CRD, when the cluster does not have it.
    pub(crate) missing_crd: Option<String>,
}

impl KnownDefinitions {
    /// Returns a definition of the namespace with a similar name, else one of the same name in the namespace of the
    /// most similar name.
    fn similar(&self, namespace: &str, name: &str) -> Option<String> {
        let listed = self.other_names.iter().flat_map(|(namespace, names)| {
            names
                .iter()
                .map(move |name| (namespace.as_str(), name.as_str()))
        });
        let known = self.nads.keys();
        let all: Vec<_> = known
            .map(|(namespace, name)| (namespace.as_str(), name.as_str()))
            .chain(listed)
            .collect();
        let in_namespace = all.iter().filter(|(other, _)| *other == namespace);
        let nearest =
            suggest::nearest(name, in_namespace.map(|(_, name)| *name)).map(str::to_owned);
        nearest.or_else(|| {
            let same = all.iter().filter(|(_, other)| *other == name);
            let nearest = same.min_by_key(|(other, _)| daemon_config::distance(other, namespace));
            nearest.map(|(namespace, name)| format!("{namespace}/{name}"))
        })
    }

    /// Adds a definition; one of the same namespace and name is replaced.
    pub(crate) fn add(&mut self, nad: &Arc<Nad>) {
        let key = (nad.namespace.clone(), nad.name.clone());
        self.nads.insert(key, Arc::clone(nad));
    }
}

impl Definitions for KnownDefinitions {
    fn nad(&self, namespace: &str, name: &str) -> Option<Arc<Nad>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.nads.get(&key).cloned()
    }

    fn missing_crd(&self) -> Option<String> {
        self.missing_crd.clone()
    }
}

/// Reads the options of a daemon's configuration file with the daemon's own reader, and puts a placeholder for the default network, which does not
/// matter here.
pub(crate) fn netconf(options: Map<String, Value>) -> anyhow::Result<Netconf> {
    let mut netconf = daemon_config::Config::parse(options)?.own_netconf()?;
    let default_network = [
        ("cniVersion", "1.0.0"),
        ("name", "default"),
        ("type", ANY_PLUGIN),
    ];
    let default_network = default_network.map(|(key, text)| (key.to_owned(), Value::from(text)));
    netconf.cluster_network = String::new();
    netconf.auxiliary_cni_chain_name = String::new();
    netconf.delegates = vec![default_network.into_iter().collect()];
    Ok(netconf)
}

fn inputs<'a>(netconf: &'a Netconf, known: &'a KnownDefinitions) -> Inputs<'a> {
    Inputs {
        netconf,
        definitions: known,
        files: &NoFiles,
        plugins: &NoPlugins,
    }
}

/// Validates a definition, independently of the pods that select it.
pub(crate) fn definition(definition: &Definition, netconf: &Netconf) -> Vec<Diagnostic> {
    let Definition { nad, .. } = definition;
    let known = [RESOURCE_ANNOTATION, SELECTOR_ANNOTATION];
    let mut diagnostics = misspelled(&definition.annotation_keys, &known);
    let selector = nad.selector_fault();
    diagnostics.extend(selector.map(|reason| Diagnostic::SelectorInvalid { reason }));
    if !object::is_current(&definition.api_version) {
        let found = definition.api_version.clone();
        diagnostics.push(Diagnostic::ApiVersion { found });
    }
    let named = format!("{}/{}", nad.namespace, nad.name);
    if nad.name.is_empty() {
        diagnostics.push(Diagnostic::NameMissing);
        return diagnostics;
    }
    if let Err(error) = plan::parse_annotation(&named, &nad.namespace) {
        let reason = error.to_string();
        diagnostics.push(Diagnostic::NameNeedsJson { reason });
    }
    if !definition.is_text {
        let place = "spec.config".to_owned();
        diagnostics.push(Diagnostic::NotText { place });
        return diagnostics;
    }
    if nad.config.trim().is_empty() {
        diagnostics.push(Diagnostic::ConfigOnNodes {
            name: nad.name.clone(),
            dir: netconf.conf_dir.display().to_string(),
        });
        return diagnostics;
    }
    match network(nad, netconf) {
        Err(error) => diagnostics.push(error.into()),
        Ok(attachment) => {
            diagnostics.extend(version(&attachment));
            diagnostics.extend(similar_plugins(&attachment));
            diagnostics.extend(tunnel_masters(&attachment));
            diagnostics.extend(similar_keys(&attachment));
            let has_resource = nad.resource_name.is_some();
            let faults = plugins::config::faults(&attachment.config, has_resource).into_iter();
            diagnostics.extend(faults.map(Diagnostic::Config));
            let keys = plugins::config::keys_without_effect(&attachment.config);
            if !keys.is_empty() {
                diagnostics.push(Diagnostic::KeysWithoutEffect { keys });
            }
        }
    }
    diagnostics
}

/// Reports types of plugins, those of `ipam` included, that are probably misspelled or do not come with Multus.
fn similar_plugins(attachment: &Attachment) -> Vec<Diagnostic> {
    let others = plan::plugin_types(&attachment.config)
        .filter(|kind| !NAMES.contains(kind) && *kind != ANY_PLUGIN);
    let similar = others.map(|kind| match (suggest::plugin(kind), kind.to_owned()) {
        (_, kind) if kind == WHEREABOUTS => Diagnostic::PoolsOfWhereabouts,
        (Some(meant), kind) => Diagnostic::SimilarPlugin { kind, meant },
        (None, kind) => Diagnostic::ForeignPlugin { kind },
    });
    similar.collect()
}

/// Reports keys that common plugins ignore and that are probably misspelled.
fn similar_keys(attachment: &Attachment) -> Vec<Diagnostic> {
    let plugins = attachment.config.plugins.iter().map(|plugin| &plugin.value);
    let objects =
        plugins.flat_map(|plugin| [Some(plugin), get(plugin, "ipam").and_then(Value::as_object)]);
    let object_keys = |object: &Map<String, Value>| {
        let plugin = object.get("type")?.as_str()?;
        let known = keys::of(plugin)?;
        let similar = object.keys().filter_map(move |key| {
            Some(Diagnostic::SimilarKey {
                plugin: plugin.to_owned(),
                key: key.clone(),
                meant: suggest::key(key, &known)?,
            })
        });
        Some(similar.collect::<Vec<_>>())
    };
    objects
        .flatten()
        .filter_map(object_keys)
        .flatten()
        .collect()
}

/// Reports plugins that need an Ethernet interface, on a master whose name is that of a VPN's or tunnel's interface. Only the node knows
/// what the interface really is.
fn tunnel_masters(attachment: &Attachment) -> Vec<Diagnostic> {
    let plugins = attachment.config.plugins.iter();
    let on_ethernet = plugins.filter(|plugin| ON_ETHERNET.contains(&plugin.kind.as_str()));
    let tunnels = on_ethernet.filter_map(|plugin| {
        let master = plugin.value.get("master")?.as_str()?;
        is_tunnel_name(master).then(|| Diagnostic::TunnelMaster {
            kind: plugin.kind.clone(),
            master: master.to_owned(),
        })
    });
    tunnels.collect()
}

/// Returns true for the usual names of interfaces without Ethernet: one of the prefixes and a number, as in `tailscale0`.
fn is_tunnel_name(name: &str) -> bool {
    TUNNELS.iter().any(|prefix| {
        name.strip_prefix(prefix)
            .is_some_and(|number| number.parse::<u8>().is_ok())
    })
}

/// Returns a definition as pods without a request for it get it.
pub(crate) fn network(nad: &Nad, netconf: &Netconf) -> Result<Attachment, PlanError> {
    plan::definition_attachment(nad, inputs(netconf, &KnownDefinitions::default()))
}

/// Returns the types of a definition's IPAM plugins.
pub(crate) fn ipam_types(nad: &Nad, netconf: &Netconf) -> Vec<String> {
    let objects = ipam_objects(nad, netconf).unwrap_or_default();
    let kinds = objects
        .iter()
        .filter_map(|ipam| get(ipam, "type")?.as_str());
    kinds.map(str::to_owned).collect()
}

/// Returns the `ipam` objects of a definition's plugins, in their order.
pub(crate) fn ipam_objects(
    nad: &Nad,
    netconf: &Netconf,
) -> Result<Vec<Map<String, Value>>, PlanError> {
    let attachment = network(nad, netconf)?;
    let plugins = attachment.config.plugins.iter();
    let objects = plugins.filter_map(|plugin| get(&plugin.value, "ipam")?.as_object());
    Ok(objects.cloned().collect())
}

/// Returns the types of a definition's plugins.
pub(crate) fn plugins(nad: &Nad, netconf: &Netconf) -> Vec<String> {
    let plugins =
        network(nad, netconf).map_or_else(|_| Vec::new(), |one| one.config.plugins.clone());
    plugins.into_iter().map(|plugin| plugin.kind).collect()
}

fn version(attachment: &Attachment) -> Option<Diagnostic> {
    let version = attachment.config.version();
    (!version.is_supported()).then(|| Diagnostic::UnsupportedVersion {
        version: version.to_string(),
        known: SUPPORTED.map(|version| version.to_string()).join(", "),
    })
}

/// Returns the networks that a pod selects in any of its annotations; annotations that cannot be parsed select none.
pub(crate) fn selected(pod: &Pod, netconf: &Netconf) -> Vec<Selection> {
    let default = pod.view.default_network().map_or_else(Vec::new, |text| {
        plan::parse_annotation(text, &netconf.multus_namespace).unwrap_or_default()
    });
    let mut all = plan::selections(&pod.view, netconf).unwrap_or_default();
    all.extend(default);
    if netconf.legacy_annotation
        && let Some(text) = pod.view.legacy_networks()
    {
        all.extend(plan::parse_annotation(text, &pod.view.namespace).unwrap_or_default());
    }
    all
}

/// Reports everything that will keep a pod from its networks.
pub(crate) fn pod(pod: &Pod, netconf: &Netconf, known: &KnownDefinitions) -> Vec<Diagnostic> {
    let mut diagnostics = misspelled(&pod.annotation_keys, POD_ANNOTATIONS);
    for (key, place) in pod.misplaced_annotations.clone() {
        diagnostics.push(Diagnostic::MisplacedAnnotation { key, place });
    }
    for key in &pod.non_text_annotations {
        let place = format!("annotation {key}");
        diagnostics.push(Diagnostic::NotText { place });
    }
    if pod.view.name.is_empty() {
        diagnostics.push(Diagnostic::NameMissing);
    }
    let used = [NETWORKS_ANNOTATION, DEFAULT_NETWORK_ANNOTATION];
    let used = used
        .into_iter()
        .find(|key| pod.view.annotations.contains_key(*key));
    if let (true, Some(key)) = (pod.host_network, used) {
        diagnostics.push(Diagnostic::HostNetwork { key });
        return diagnostics;
    }
    if pod.view.annotations.contains_key(LEGACY_ANNOTATION) && !netconf.legacy_annotation {
        diagnostics.push(Diagnostic::LegacyAnnotation);
    }
    diagnostics.extend(unknown_keys(pod));
    diagnostics.extend(empty_parts(pod));
    diagnostics.extend(exclusive_selectors(pod, netconf, known));
    let network_diagnostics = each_network(pod, netconf, known);
    let is_planable = network_diagnostics.iter().all(|diagnostic| {
        let is_unread = matches!(diagnostic, Diagnostic::NotAmongFiles { .. });
        diagnostic.severity() != Severity::Error && !is_unread
    });
    diagnostics.extend(network_diagnostics);
    if is_planable {
        diagnostics.extend(complete_plan(pod, netconf, known));
    }
    diagnostics
}

/// Reports the first two of the pod's networks whose definitions want nodes with different values of one label.
fn exclusive_selectors(
    pod: &Pod,
    netconf: &Netconf,
    known: &KnownDefinitions,
) -> Option<Diagnostic> {
    let mut wanted = BTreeMap::new();
    for one in selected(pod, netconf) {
        let Some(nad) = known.nad(&one.namespace, &one.name) else {
            continue;
        };
        let Some((key, value)) = nad.node_label() else {
            continue;
        };
        let network = format!("{}/{}", nad.namespace, nad.name);
        let (first, other) = wanted
            .entry(key.to_owned())
            .or_insert_with(|| (network.clone(), value.to_owned()));
        if other != value {
            return Some(Diagnostic::SelectorsExclude {
                first: first.clone(),
                first_label: format!("{key}={other}"),
                second: network,
                second_label: format!("{key}={value}"),
            });
        }
    }
    None
}

/// Returns the faults of the pod's definitions because of which the scheduler finds no nodes by them, each behind the definition's name, and
/// once however often the pod asks for the network.
pub(crate) fn scheduling_faults(
    pod: &Pod,
    netconf: &Netconf,
    known: &KnownDefinitions,
) -> BTreeSet<(String, String)> {
    let selected = selected(pod, netconf).into_iter();
    let nads = selected.filter_map(|one| known.nad(&one.namespace, &one.name));
    let faults = nads.flat_map(|nad| {
        let network = format!("{}/{}", nad.namespace, nad.name);
        let faults = nad.scheduling_faults();
        faults.map(move |(_, fault)| (network.clone(), fault))
    });
    faults.collect()
}

/// Reports items of the annotation's short form that begin with '/' or end with '@', which count as if these were absent.
fn empty_parts(pod: &Pod) -> impl Iterator<Item = Diagnostic> {
    let text = pod.view.networks();
    let items = text.split(',').map(str::trim);
    let items = items.filter(|item| item.starts_with('/') || item.ends_with('@'));
    items.map(|item| Diagnostic::EmptyPart {
        item: item.to_owned(),
    })
}

/// Reports keys of the annotations' JSON form that the daemon ignores.
fn unknown_keys(pod: &Pod) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    for annotation in [NETWORKS_ANNOTATION, DEFAULT_NETWORK_ANNOTATION] {
        let text = pod.view.annotations.get(annotation);
        let entries = text.and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok());
        for (entry, value) in entries.into_iter().flatten().enumerate() {
            let keys = value.as_object().into_iter().flat_map(Map::keys);
            let is_read = |key: &str| {
                ANNOTATION_KEYS
                    .iter()
                    .any(|read| key.eq_ignore_ascii_case(read))
            };
            diagnostics.extend(keys.filter(|key| !is_read(key)).map(|key| {
                Diagnostic::UnknownKey {
                    annotation,
                    entry: entry + 1,
                    key: key.clone(),
                    meant: suggest::nearest(key, ANNOTATION_KEYS.iter().copied()),
                }
            }));
        }
    }
    diagnostics
}

/// Returns the fixed addresses that a pod requests, as pairs of network and address.
pub(crate) fn fixed_addresses(pod: &Pod, netconf: &Netconf) -> Vec<(String, String)> {
    let selections = plan::selections(&pod.view, netconf).unwrap_or_default();
    let addresses = selections.into_iter().flat_map(|selection| {
        let network = format!("{}/{}", selection.namespace, selection.name);
        let address = |text: &String| Some(parse_address(text)?.to_string());
        let addresses: Vec<_> = selection.ips.iter().filter_map(address).collect();
        addresses
            .into_iter()
            .map(move |address| (network.clone(), address))
    });
    addresses.collect()
}

/// Reports fixed addresses that are outside of the network's own ranges.
fn outside_ranges(attachment: &Attachment) -> Vec<Diagnostic> {
    let ranges = plugins::config::ranges(&attachment.config);
    let requested = attachment.selection.iter().flat_map(|one| &one.ips);
    let outside = requested.filter(|text| {
        let address = parse_address(text);
        !ranges.is_empty()
            && address.is_some_and(|address| !ranges.iter().any(|range| range.contains(address)))
    });
    let text = |range: &Range| format!("{} to {}", range.first(), range.last());
    let listed = ranges.iter().map(text).collect::<Vec<_>>();
    outside
        .map(|address| Diagnostic::OutsideRange {
            address: address.clone(),
            network: attachment.name.clone(),
            ranges: listed.join(", "),
        })
        .collect()
}

/// Validates each network of the annotation by itself, since the daemon would stop at the first error.
fn each_network(pod: &Pod, netconf: &Netconf, known: &KnownDefinitions) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    let selections = plan::selections(&pod.view, netconf).unwrap_or_else(|error| {
        diagnostics.push(error.into());
        Vec::new()
    });
    if let Err(error) = plan::check_selections(&selections) {
        diagnostics.push(error.into());
    }
    for selection in selections {
        if selection.name.contains('/') {
            let name = selection.name;
            diagnostics.push(Diagnostic::NamespaceInName { name });
            continue;
        }
        if selection.interface.as_deref() == Some("lo") {
            let name = selection.name.clone();
            diagnostics.push(Diagnostic::Loopback { name });
        }
        if is_configured_on_node(&selection, known) {
            continue;
        }
        let attachment =
            plan::selected_attachment(&pod.view, selection, &[], inputs(netconf, known));
        let checked = attachment.and_then(|attachment| {
            let one = std::slice::from_ref(&attachment);
            plan::requests::check(one, netconf.unsupported_requests)?;
            let outside = outside_ranges(&attachment);
            let unsupported = unsupported(one, netconf);
            let faults = attachment
                .selection
                .iter()
                .flat_map(|one| request_faults(&attachment.config, &one.ips, one.mac.as_deref()));
            let faults: Vec<_> = faults.collect();
            let network = attachment.name.clone();
            let faults = faults.into_iter().map(move |fault| Diagnostic::Request {
                network: network.clone(),
                fault,
            });
            Ok(version(&attachment)
                .into_iter()
                .chain(outside)
                .chain(unsupported)
                .chain(faults))
        });
        match checked {
            Ok(found) => diagnostics.extend(found),
            Err(error) => diagnostics.push(or_unknown(error, known)),
        }
    }
    diagnostics
}

/// Reports requests that no plugin serves, for a daemon that starts such pods and reports it in an event.
fn unsupported(attachments: &[Attachment], netconf: &Netconf) -> Option<Diagnostic> {
    let refusal = plan::requests::check(attachments, UnsupportedRequests::Error);
    let error = refusal.err()?;
    (netconf.unsupported_requests == UnsupportedRequests::Event)
        .then_some(Diagnostic::UnsupportedRequest(error))
}

/// Resolves the networks of a pod's annotation one by one; those that cannot be resolved are left out.
pub(crate) fn attachments(
    pod: &Pod,
    netconf: &Netconf,
    known: &KnownDefinitions,
) -> Vec<Attachment> {
    let selections = plan::selections(&pod.view, netconf).unwrap_or_default();
    let inputs = inputs(netconf, known);
    selections
        .into_iter()
        .filter_map(|selection| plan::selected_attachment(&pod.view, selection, &[], inputs).ok())
        .collect()
}

/// Makes the plan that a daemon would make, and repeats the checks that a daemon makes before it runs a plugin.
fn complete_plan(pod: &Pod, netconf: &Netconf, known: &KnownDefinitions) -> Option<Diagnostic> {
    let on_node = selected(pod, netconf)
        .iter()
        .any(|selection| is_configured_on_node(selection, known));
    if on_node {
        return None;
    }
    let mut attachments = match plan::attachments(Some(&pod.view), inputs(netconf, known)) {
        Ok(attachments) => attachments,
        Err(error) => return Some(or_unknown(error, known)),
    };
    if let Some(devices) = &pod.devices
        && let Err(error) = plan::assign_devices(&mut attachments, devices.clone(), &[])
    {
        return Some(error.into());
    }
    let names: Vec<_> = attachments
        .iter()
        .enumerate()
        .map(|(index, one)| one.ifname(index, DEFAULT_INTERFACE))
        .collect();
    let index = plan::first_duplicate(names.iter().map(String::as_str))?;
    Some(Diagnostic::DuplicateInterface {
        interface: names[index].clone(),
        network: attachments[index].name.clone(),
    })
}

/// Returns true when the definition leaves the configuration to files of the node, which cannot be read from here.
fn is_configured_on_node(selection: &Selection, known: &KnownDefinitions) -> bool {
    let nad = known.nad(&selection.namespace, &selection.name);
    nad.is_some_and(|nad| nad.config.trim().is_empty())
}

fn or_unknown(error: PlanError, known: &KnownDefinitions) -> Diagnostic {
    match error {
        PlanError::NoDefinition { namespace, name } => {
            let similar = known.similar(&namespace, &name);
            match similar {
                similar if !known.is_complete => Diagnostic::NotAmongFiles {
                    namespace,
                    name,
                    similar,
                },
                Some(similar) => Diagnostic::SimilarName {
                    error: PlanError::NoDefinition { namespace, name },
                    similar,
                },
                None => PlanError::NoDefinition { namespace, name }.into(),
            }
        }
        error => error.into(),
    }
}

/// Reports annotations that Multus does not read and whose key is similar to one that it reads.
fn misspelled(keys: &[String], known: &[&'static str]) -> Vec<Diagnostic> {
    let unread = keys.iter().filter(|key| !known.contains(&key.as_str()));
    let meant = unread.filter_map(|key| {
        let meant = known.iter().find(|known| is_similar(key, known))?;
        Some(Diagnostic::MisspelledAnnotation {
            key: key.clone(),
            meant,
        })
    });
    meant.collect()
}

/// Returns true for keys that differ by one or two letters or in case, and for the right name after another prefix of CNI or Multus.
fn is_similar(key: &str, known: &str) -> bool {
    let (key, known) = (key.to_lowercase(), known.to_lowercase());
    if daemon_config::distance(&key, &known) <= 2 {
        return true;
    }
    let split = |text: &str| {
        let (prefix, name) = text.split_once('/').unwrap_or(("", text));
        (prefix.to_owned(), name.to_owned())
    };
    let ((prefix, name), (_, known_name)) = (split(&key), split(&known));
    (prefix.contains("cni") || prefix.contains("multus")) && name == known_name
}

#[cfg(test)]
mod tests;
