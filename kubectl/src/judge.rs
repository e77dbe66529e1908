//! What the daemon will say of definitions and pods, said by the very same functions before they exist.
//! Nothing here knows a rule of the annotation, of a definition or of a plan; see `plan`.

use std::{collections::BTreeMap, io, path::Path, sync::Arc};

use cni::version::SUPPORTED;
use plan::{
    ANNOTATION_KEYS, Attachment, DEFAULT_NETWORK_ANNOTATION, Definitions, Files, Inputs,
    LEGACY_ANNOTATION, NETWORKS_ANNOTATION, Nad, NoPlugins, POD_ANNOTATIONS, PlanError,
    RESOURCE_ANNOTATION, Selection, daemon_config,
    netconf::{Netconf, UnsupportedRequests},
};
use serde_json::{Map, Value};

use crate::{
    ipam,
    object::{self, Definition, Pod},
    remark::Remark,
    suggest,
};

/// The interface that every runtime of Kubernetes asks for.
const PRIMARY_INTERFACE: &str = "eth0";
/// Stands for the cluster's default network; a part of Multus, which no list of plugins refuses.
const ANY_PLUGIN: &str = "passthru";

/// The definitions that are known.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// By namespace and name.
    pub(crate) nads: BTreeMap<(String, String), Arc<Nad>>,
    /// Whether what is not there does not exist, as somebody looked.
    pub(crate) is_whole: bool,
    /// Names of other definitions in the cluster, by namespace.
    pub(crate) others: BTreeMap<String, Vec<String>>,
    /// The chart that brings the kind, where the cluster does not know it.
    pub(crate) missing_crd: Option<String>,
}

impl Known {
    /// A definition of the namespace whose name is nearly this one, or one of this very name in another namespace.
    fn similar(&self, namespace: &str, name: &str) -> Option<String> {
        let listed = self.others.iter().flat_map(|(namespace, names)| {
            names
                .iter()
                .map(move |name| (namespace.as_str(), name.as_str()))
        });
        let known = self.nads.keys();
        let all: Vec<_> = known
            .map(|(namespace, name)| (namespace.as_str(), name.as_str()))
            .chain(listed)
            .collect();
        let here = all.iter().filter(|(other, _)| *other == namespace);
        let near = suggest::nearest(name, here.map(|(_, name)| *name)).map(str::to_owned);
        near.or_else(|| {
            let same = all.iter().find(|(_, other)| *other == name);
            same.map(|(namespace, name)| format!("{namespace}/{name}"))
        })
    }

    /// One more.
    pub(crate) fn add(&mut self, nad: &Arc<Nad>) {
        let key = (nad.namespace.clone(), nad.name.clone());
        self.nads.insert(key, Arc::clone(nad));
    }
}

impl Definitions for Known {
    fn nad(&self, namespace: &str, name: &str) -> Option<Arc<Nad>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.nads.get(&key).cloned()
    }

    fn missing_crd(&self) -> Option<String> {
        self.missing_crd.clone()
    }
}

/// No node is at hand.
struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _path: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn list(&self, _dir: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn is_dir(&self, _path: &Path) -> bool {
        false
    }

    fn exists(&self, _path: &Path) -> bool {
        false
    }
}

/// The options of a daemon with this file, read as it reads them. Which default network there is does not matter here.
pub(crate) fn netconf(options: Map<String, Value>) -> anyhow::Result<Netconf> {
    let mut netconf = daemon_config::Config::parse(options)?.own_netconf()?;
    let primary = [
        ("cniVersion", "1.0.0"),
        ("name", "default"),
        ("type", ANY_PLUGIN),
    ];
    let primary = primary.map(|(key, text)| (key.to_owned(), Value::from(text)));
    netconf.cluster_network = String::new();
    netconf.auxiliary_cni_chain_name = String::new();
    netconf.delegates = vec![primary.into_iter().collect()];
    Ok(netconf)
}

fn inputs<'a>(netconf: &'a Netconf, known: &'a Known) -> Inputs<'a> {
    Inputs {
        netconf,
        definitions: known,
        files: &NoFiles,
        plugins: &NoPlugins,
    }
}

/// What is wrong with a definition, whoever selects it.
pub(crate) fn definition(definition: &Definition, netconf: &Netconf) -> Vec<Remark> {
    let Definition { nad, .. } = definition;
    let mut remarks = misspelt(&definition.keys, &[RESOURCE_ANNOTATION]);
    if !object::is_current(&definition.api_version) {
        let found = definition.api_version.clone();
        remarks.push(Remark::ApiVersion { found });
    }
    let named = format!("{}/{}", nad.namespace, nad.name);
    if let Err(error) = plan::parse_annotation(&named, &nad.namespace) {
        let reason = error.to_string();
        remarks.push(Remark::Unspeakable { reason });
    }
    if !definition.is_text {
        remarks.push(Remark::ConfigNoText);
        return remarks;
    }
    if nad.config.trim().is_empty() {
        remarks.push(Remark::OnEachNode {
            name: nad.name.clone(),
            dir: netconf.conf_dir.display().to_string(),
        });
        return remarks;
    }
    match plan::definition_attachment(nad, inputs(netconf, &Known::default())) {
        Err(error) => remarks.push(error.into()),
        Ok(attachment) => {
            remarks.extend(version(&attachment));
            remarks.extend(similar_plugins(&attachment));
            remarks.extend(
                ipam::check(&attachment.config)
                    .into_iter()
                    .map(Remark::Ipam),
            );
        }
    }
    remarks
}

/// Types of plugins, those of `ipam` included, that are probably misspelled.
fn similar_plugins(attachment: &Attachment) -> Vec<Remark> {
    let plugins = attachment.config.plugins.iter();
    let kinds = plugins.flat_map(|plugin| {
        let ipam = plugin.value.get("ipam").and_then(|ipam| ipam.get("type"));
        [Some(plugin.kind.as_str()), ipam.and_then(Value::as_str)]
    });
    let similar = kinds.flatten().filter_map(|kind| {
        let meant = suggest::plugin(kind)?;
        let kind = kind.to_owned();
        Some(Remark::SimilarPlugin { kind, meant })
    });
    similar.collect()
}

/// The types of a definition's address management.
pub(crate) fn ipam_types(nad: &Nad, netconf: &Netconf) -> Vec<String> {
    let attachment = plan::definition_attachment(nad, inputs(netconf, &Known::default()));
    let plugins = attachment.map_or_else(|_| Vec::new(), |one| one.config.plugins);
    let kinds = plugins
        .iter()
        .filter_map(|plugin| plugin.value.get("ipam")?.get("type")?.as_str());
    kinds.map(str::to_owned).collect()
}

/// The types of a definition's plugins.
pub(crate) fn plugins(nad: &Nad, netconf: &Netconf) -> Vec<String> {
    let attachment = plan::definition_attachment(nad, inputs(netconf, &Known::default()));
    attachment.map_or_else(
        |_| Vec::new(),
        |one| {
            one.config
                .plugins
                .into_iter()
                .map(|plugin| plugin.kind)
                .collect()
        },
    )
}

fn version(attachment: &Attachment) -> Option<Remark> {
    let version = attachment.config.version();
    (!version.is_supported()).then(|| Remark::Version {
        version: version.to_string(),
        known: SUPPORTED.map(|version| version.to_string()).join(", "),
    })
}

/// What a pod selects in any of its annotations, as far as that can be read.
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

/// What will keep a pod from its networks, all of it at once.
pub(crate) fn pod(pod: &Pod, netconf: &Netconf, known: &Known) -> Vec<Remark> {
    let mut remarks = misspelt(&pod.keys, POD_ANNOTATIONS);
    for key in &pod.keys_of_maker {
        if POD_ANNOTATIONS.contains(&key.as_str()) {
            remarks.push(Remark::Misplaced {
                key: key.clone(),
                kind: pod.kind.clone(),
            });
        }
    }
    let used = [NETWORKS_ANNOTATION, DEFAULT_NETWORK_ANNOTATION];
    let used = used
        .into_iter()
        .find(|key| pod.view.annotations.contains_key(*key));
    if let (true, Some(key)) = (pod.host_network, used) {
        remarks.push(Remark::HostNetwork { key });
        return remarks;
    }
    if pod.view.annotations.contains_key(LEGACY_ANNOTATION) && !netconf.legacy_annotation {
        remarks.push(Remark::Legacy);
    }
    remarks.extend(unknown_keys(pod));
    let of_each = one_by_one(pod, netconf, known);
    let is_whole = of_each
        .iter()
        .all(|remark| matches!(remark, Remark::NotServed(_)));
    remarks.extend(of_each);
    if is_whole {
        remarks.extend(all_together(pod, netconf, known));
    }
    remarks
}

/// Keys of the annotations' JSON form that the daemon passes over.
fn unknown_keys(pod: &Pod) -> Vec<Remark> {
    let mut remarks = Vec::new();
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
            remarks.extend(
                keys.filter(|key| !is_read(key))
                    .map(|key| Remark::UnknownKey {
                        annotation,
                        entry,
                        key: key.clone(),
                        meant: suggest::nearest(key, ANNOTATION_KEYS.iter().copied()),
                    }),
            );
        }
    }
    remarks
}

/// The fixed addresses of a pod's networks: network and address of each.
pub(crate) fn fixed_addresses(pod: &Pod, netconf: &Netconf) -> Vec<(String, String)> {
    let selections = plan::selections(&pod.view, netconf).unwrap_or_default();
    let addresses = selections.into_iter().flat_map(|selection| {
        let network = format!("{}/{}", selection.namespace, selection.name);
        let address = |text: &String| ipam::parse_address(text).map(|address| address.to_string());
        let addresses: Vec<_> = selection.ips.iter().filter_map(address).collect();
        addresses
            .into_iter()
            .map(move |address| (network.clone(), address))
    });
    addresses.collect()
}

/// Fixed addresses that the network's own ranges do not hold.
fn outside_ranges(attachment: &Attachment) -> Vec<Remark> {
    let ranges = ipam::ranges(&attachment.config);
    let requested = attachment.selection.iter().flat_map(|one| &one.ips);
    let outside = requested.filter(|text| {
        let address = ipam::parse_address(text);
        !ranges.is_empty()
            && address.is_some_and(|address| !ranges.iter().any(|range| range.contains(address)))
    });
    let listed = ranges.iter().map(ToString::to_string).collect::<Vec<_>>();
    outside
        .map(|address| Remark::OutsideRange {
            address: address.clone(),
            network: attachment.name.clone(),
            ranges: listed.join(", "),
        })
        .collect()
}

/// The networks of the annotation, each for itself: the daemon would stop at the first.
fn one_by_one(pod: &Pod, netconf: &Netconf, known: &Known) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let selections = plan::selections(&pod.view, netconf).unwrap_or_else(|error| {
        remarks.push(error.into());
        Vec::new()
    });
    if let Err(error) = plan::check_selections(&selections) {
        remarks.push(error.into());
    }
    for selection in selections {
        if is_on_node(&selection, known) {
            continue;
        }
        let attachment = plan::selected_attachment(&pod.view, selection, inputs(netconf, known));
        let checked = attachment.and_then(|attachment| {
            let one = std::slice::from_ref(&attachment);
            plan::requests::check(one, netconf.unsupported_requests)?;
            let outside = outside_ranges(&attachment);
            let lacking = lacking(one, netconf);
            Ok(version(&attachment)
                .into_iter()
                .chain(outside)
                .chain(lacking))
        });
        match checked {
            Ok(found) => remarks.extend(found),
            Err(error) => remarks.push(or_unknown(error, known)),
        }
    }
    remarks
}

/// What the pod starts without, where the daemon reports that in an event.
fn lacking(attachments: &[Attachment], netconf: &Netconf) -> Option<Remark> {
    let refusal = plan::requests::check(attachments, UnsupportedRequests::Error);
    let error = refusal.err()?;
    (netconf.unsupported_requests == UnsupportedRequests::Event).then_some(Remark::NotServed(error))
}

/// The networks of a pod's annotation that can be resolved, each for itself.
pub(crate) fn attachments(pod: &Pod, netconf: &Netconf, known: &Known) -> Vec<Attachment> {
    let selections = plan::selections(&pod.view, netconf).unwrap_or_default();
    let inputs = inputs(netconf, known);
    selections
        .into_iter()
        .filter_map(|selection| plan::selected_attachment(&pod.view, selection, inputs).ok())
        .collect()
}

/// The plan that a daemon would make, and what it checks before it runs a plugin.
fn all_together(pod: &Pod, netconf: &Netconf, known: &Known) -> Option<Remark> {
    let on_node = selected(pod, netconf)
        .iter()
        .any(|selection| is_on_node(selection, known));
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
        .map(|(index, one)| one.ifname(index, PRIMARY_INTERFACE))
        .collect();
    let index = plan::first_duplicate(names.iter().map(String::as_str))?;
    Some(Remark::SameInterface {
        interface: names[index].clone(),
        network: attachments[index].name.clone(),
    })
}

/// Whether a network has its configuration where only a node can look.
fn is_on_node(selection: &Selection, known: &Known) -> bool {
    let nad = known.nad(&selection.namespace, &selection.name);
    nad.is_some_and(|nad| nad.config.trim().is_empty())
}

fn or_unknown(error: PlanError, known: &Known) -> Remark {
    match error {
        PlanError::NoDefinition { namespace, name } => {
            let similar = known.similar(&namespace, &name);
            match similar {
                similar if !known.is_whole => Remark::NotAmongFiles {
                    namespace,
                    name,
                    similar,
                },
                Some(similar) => Remark::SimilarName {
                    error: PlanError::NoDefinition { namespace, name },
                    similar,
                },
                None => PlanError::NoDefinition { namespace, name }.into(),
            }
        }
        error => error.into(),
    }
}

/// Annotations that nobody reads and that are nearly one that is read.
fn misspelt(keys: &[String], known: &[&'static str]) -> Vec<Remark> {
    let unread = keys.iter().filter(|key| !known.contains(&key.as_str()));
    let meant = unread.filter_map(|key| {
        let meant = known.iter().find(|known| is_nearly(key, known))?;
        Some(Remark::Misspelt {
            key: key.clone(),
            meant,
        })
    });
    meant.collect()
}

/// One or two letters apart, in another case, or the right word behind another prefix of CNI's.
fn is_nearly(key: &str, known: &str) -> bool {
    let (key, known) = (key.to_lowercase(), known.to_lowercase());
    if daemon_config::distance(&key, &known) <= 2 {
        return true;
    }
    let apart = |text: &str| {
        let (prefix, name) = text.split_once('/').unwrap_or(("", text));
        (prefix.to_owned(), name.to_owned())
    };
    let ((prefix, name), (_, known_name)) = (apart(&key), apart(&known));
    (prefix.contains("cni") || prefix.contains("multus")) && name == known_name
}

#[cfg(test)]
mod tests;
