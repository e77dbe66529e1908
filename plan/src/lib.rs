//! Turns a pod, the network definitions and the configuration into an ordered list of attachments.
//! Nothing here touches a socket or a process: definitions, files and plugins come through three small traits, so the same
//! inputs always give the same plan.

pub mod daemon_config;
pub mod diff;
pub mod netconf;
pub mod network_status;
pub mod node_path;
pub mod objects;
pub mod placement;

mod address;
mod allowed;
mod annotation;
mod attached;
mod chain;
mod default_network;
mod definition;
mod device;
mod draft;
mod error;
mod family;
mod generated_config;
mod inputs;
mod json;
mod limits;
mod on_disk;
mod pod;
mod quoted;
mod requested;
pub mod requests;
mod routes;

pub use allowed::plugin_types;
pub use annotation::{
    AnnotationError, KEYS as ANNOTATION_KEYS, Selection, parse as parse_annotation,
};
pub use attached::{Attached, EVENT_SEPARATOR, added_events};
pub use device::{Device, Devices, assign_devices, required_devices};
pub use error::PlanError;
pub use family::Family;
pub use inputs::{
    Definitions, Files, Inputs, Nad, NoFiles, NoPlugins, PluginVersions, Plugins,
    RESOURCE_ANNOTATION, SELECTOR_ANNOTATION,
};
pub use json::WrongType;
pub use limits::check_size;
pub use pod::{
    DEFAULT_NETWORK_ANNOTATION, LEGACY_ANNOTATION, NETWORKS_ANNOTATION, POD_ANNOTATIONS, PodView,
    STATIC_POD_ANNOTATION, is_static,
};
pub use requested::Requested;
pub use routes::check_selections;

use std::collections::BTreeSet;
use std::sync::Arc;

use cni::config::NetworkConfig;
use serde_json::{Map, Value};

use crate::netconf::Netconf;

/// One network of a container, ready for its plugins to run.
#[derive(Debug, Clone)]
pub struct Attachment {
    /// The name in the network status and in events: `<namespace>/<definition>`, or the CNI name where there is no definition.
    pub name: String,
    /// Whether this is the default network, whose result the runtime gets.
    pub is_default: bool,
    /// The configuration for the plugins, shared by the networks that select one definition in the same way.
    pub config: Arc<NetworkConfig>,
    /// The entry of the pod's annotation that selected this network, if an annotation did.
    pub selection: Option<Selection>,
    /// The device that the definition requires.
    pub device: Option<Device>,
}

impl Attachment {
    /// Returns the interface name of the attachment at `index`. An attachment with a requested name still uses up its index:
    /// pods rely on this numbering.
    pub fn ifname(&self, index: usize, cni_ifname: &str) -> String {
        match self.selection.as_ref().and_then(|s| s.interface.clone()) {
            Some(name) => name,
            None if self.is_default => cni_ifname.to_owned(),
            None => format!("net{index}"),
        }
    }
}

/// Returns the attachments of a pod in the order in which they run; the first is the default network.
pub fn attachments(
    pod: Option<&PodView>,
    inputs: Inputs<'_>,
) -> Result<Vec<Attachment>, PlanError> {
    let mut legacy = legacy(pod, inputs.netconf)?.into_iter();
    let (chosen, first) = (pod.and_then(PodView::default_network), legacy.next());
    let mut attachments = vec![match (chosen, first, pod) {
        (Some(text), ..) => pod_default_network(pod, text, inputs)?,
        (None, Some(first), Some(pod)) => {
            definition::attachment(first, &[&pod.namespace], &[], inputs)?
        }
        _ => default_network::resolve(inputs)?,
    }];
    attachments.extend(default_network::further(pod, inputs)?);
    if let Some(pod) = pod {
        for selection in selections(pod, inputs.netconf)? {
            let attachment =
                definition::attachment(selection, &[&pod.namespace], &attachments, inputs)?;
            attachments.push(attachment);
            check_size(std::iter::empty(), &attachments)?;
        }
    }
    attachments.extend(chain::auxiliary(inputs)?);
    check_size(std::iter::empty(), &attachments)?;
    allowed::check(&attachments, pod, inputs.netconf)?;
    routes::check(&attachments)?;
    attachments[0].is_default = true;
    attachments.iter().try_for_each(refuse_multus)?;
    attachments.iter().try_for_each(refuse_long_mac)?;
    Ok(attachments)
}

/// Returns the networks that a pod's annotation requests besides the default network, in the annotation's order.
pub fn selections(pod: &PodView, netconf: &Netconf) -> Result<Vec<Selection>, PlanError> {
    let present = annotated(pod, NETWORKS_ANNOTATION, pod.networks(), &pod.namespace)?;
    // The original proposal numbers interfaces from eth0 on, and eth0 is the default network's.
    let mut legacy = legacy(Some(pod), netconf)?;
    for (index, selection) in legacy.iter_mut().enumerate() {
        let numbered = || format!("eth{index}");
        selection.interface.get_or_insert_with(numbered);
    }
    Ok(legacy.into_iter().skip(1).chain(present).collect())
}

/// Returns the attachment for one selection of a pod that already runs; it shares the configuration of an equal one in `earlier`.
pub fn selected_attachment(
    pod: &PodView,
    selection: Selection,
    earlier: &[Attachment],
    inputs: Inputs<'_>,
) -> Result<Attachment, PlanError> {
    let attachment = definition::attachment(selection, &[&pod.namespace], earlier, inputs)?;
    admit(attachment, pod, inputs)
}

/// Returns the attachment for a definition that no pod has selected yet. An error is one that every pod would meet which selects it.
pub fn definition_attachment(nad: &Nad, inputs: Inputs<'_>) -> Result<Attachment, PlanError> {
    let attachment = definition::from_nad(nad, None, inputs)?;
    refuse_multus(&attachment)?;
    allowed::check(std::slice::from_ref(&attachment), None, inputs.netconf)?;
    Ok(attachment)
}

/// Parses a configuration that a request carries itself, instead of a definition, into the form that the plugins get.
pub fn explicit_config(config: &[u8], netconf: &Netconf) -> Result<NetworkConfig, PlanError> {
    let unusable = |reason| PlanError::Explicit { reason };
    let mut draft = draft::Draft::parse(config).map_err(unusable)?;
    draft.version_if_missing(&netconf.cni_version);
    draft.finish().map_err(unusable)
}

/// Returns the attachment for a configuration that a request carries itself. `options` has the keys of an annotation's entry.
pub fn explicit_attachment(
    pod: &PodView,
    config: &[u8],
    options: &Map<String, Value>,
    inputs: Inputs<'_>,
) -> Result<Attachment, PlanError> {
    let unusable = |reason| PlanError::Explicit { reason };
    let mut draft = draft::Draft::parse(config).map_err(unusable)?;
    draft.version_if_missing(&inputs.netconf.cni_version);
    let mut entry = options.clone();
    entry.insert("name".to_owned(), Value::from(draft.name()));
    let text = Value::from(vec![Value::Object(entry)]).to_string();
    let mut selections =
        annotation::parse(&text, &pod.namespace).map_err(|error| unusable(error.to_string()))?;
    let selection = selections.remove(0);
    let args = selection.plugin_args();
    draft.merge_cni_args(&args).map_err(unusable)?;
    let config = draft.finish().map_err(unusable)?;
    let attachment = Attachment {
        name: config.name.clone(),
        is_default: false,
        config: Arc::new(config),
        selection: Some(selection),
        device: None,
    };
    admit(attachment, pod, inputs)
}

/// Refuses an attachment that may not run at all.
fn admit(
    attachment: Attachment,
    pod: &PodView,
    inputs: Inputs<'_>,
) -> Result<Attachment, PlanError> {
    refuse_multus(&attachment)?;
    refuse_long_mac(&attachment)?;
    allowed::check(std::slice::from_ref(&attachment), Some(pod), inputs.netconf)?;
    Ok(attachment)
}

/// Returns the configuration of the default network, as every pod without annotations gets it.
pub fn default_network_config(inputs: Inputs<'_>) -> Result<Arc<NetworkConfig>, PlanError> {
    let attachment = default_network::resolve(inputs)?;
    refuse_multus(&attachment)?;
    allowed::check(std::slice::from_ref(&attachment), None, inputs.netconf)?;
    Ok(attachment.config)
}

/// Returns the position of the first interface name that repeats an earlier one.
pub fn first_duplicate<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<usize> {
    let mut seen = BTreeSet::new();
    names.into_iter().position(|name| !seen.insert(name))
}

/// Whether a plugin of this type is Multus itself, which as a delegate would wait for its own answer.
pub fn is_multus(kind: &str) -> bool {
    ["multus", "multus-shim"].contains(&kind)
}

fn refuse_multus(attachment: &Attachment) -> Result<(), PlanError> {
    let plugins = &attachment.config.plugins;
    match plugins.iter().find(|plugin| is_multus(&plugin.kind)) {
        None => Ok(()),
        Some(plugin) => Err(PlanError::OwnDelegate {
            network: attachment.name.clone(),
            kind: plugin.kind.clone(),
        }),
    }
}

/// Refuses hardware addresses of 8 and 20 bytes for networks other than InfiniBand, the only ones that have such addresses.
fn refuse_long_mac(attachment: &Attachment) -> Result<(), PlanError> {
    let mac = attachment.selection.as_ref().and_then(|s| s.mac.as_ref());
    match mac.filter(|mac| !address::is_ethernet(mac)) {
        Some(mac) if !is_infiniband(&attachment.config) => Err(PlanError::LongMac {
            network: attachment.name.clone(),
            mac: mac.clone(),
        }),
        _ => Ok(()),
    }
}

/// Whether a plugin of the network is an InfiniBand plugin or accepts InfiniBand GUIDs.
fn is_infiniband(config: &NetworkConfig) -> bool {
    config.plugins.iter().any(|plugin| {
        let accepts_guids = plugin
            .capabilities
            .iter()
            .any(|own| own == "infinibandGUID");
        accepts_guids || ["ib-sriov", "ib-sriov-cni", "ipoib"].contains(&plugin.kind.as_str())
    })
}

/// Returns the default network that a pod selected for itself. Namespace isolation holds here as for any other selection, except that
/// `multusNamespace`, the namespace of a bare name, is open: the cluster's owner put the definitions there.
fn pod_default_network(
    pod: Option<&PodView>,
    text: &str,
    inputs: Inputs<'_>,
) -> Result<Attachment, PlanError> {
    let pod = pod.expect("the annotation's text came from this pod");
    let namespace = &inputs.netconf.multus_namespace;
    let mut selections = annotated(pod, DEFAULT_NETWORK_ANNOTATION, text, namespace)?;
    match (selections.pop(), selections.is_empty()) {
        (Some(selection), true) => {
            let open_namespaces = [pod.namespace.as_str(), namespace];
            definition::attachment(selection, &open_namespaces, &[], inputs)
        }
        (Some(_), false) => Err(PlanError::ManyDefaults),
        (None, _) => Err(PlanError::NoDefault),
    }
}

/// Returns the networks of the original proposal's annotation, the first of which is the default network. The annotation counts only
/// where the cluster's owner enabled it and the pod has none of the current annotations.
fn legacy(pod: Option<&PodView>, netconf: &Netconf) -> Result<Vec<Selection>, PlanError> {
    match pod.and_then(|pod| Some((pod, pod.legacy_networks()?))) {
        Some((pod, text)) if netconf.legacy_annotation => {
            annotated(pod, LEGACY_ANNOTATION, text, &pod.namespace)
        }
        _ => Ok(Vec::new()),
    }
}

fn annotated(
    pod: &PodView,
    annotation: &'static str,
    text: &str,
    namespace: &str,
) -> Result<Vec<Selection>, PlanError> {
    annotation::parse(text, namespace).map_err(|source| PlanError::Annotation {
        pod: pod.title(),
        annotation,
        source: Box::new(source),
    })
}

#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(test)]
mod tests;
