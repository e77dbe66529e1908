//! Pod, definitions and configuration in; the ordered list of attachments out.
//! Nothing here touches a socket or a process: files and definitions come through two small traits, so that the same
//! inputs always give the same plan.

pub mod daemon_config;
pub mod diff;
pub mod json;
pub mod netconf;
pub mod network_status;
pub mod node_path;
pub mod objects;

mod address;
mod allowed;
mod annotation;
mod attached;
mod chain;
mod config;
mod default_network;
mod device;
mod error;
mod files;
mod nad;
mod plugins;
mod pod;
mod requested;
pub mod requests;
mod routes;

pub use annotation::{
    AnnotationError, KEYS as ANNOTATION_KEYS, Selection, parse as parse_annotation,
};
pub use attached::Attached;
pub use device::{Device, Devices, assign, wanted};
pub use error::PlanError;
pub use files::Files;
pub use nad::{Definitions, Nad, RESOURCE_ANNOTATION};
pub use plugins::{NoPlugins, Plugins, Spoken};
pub use pod::{
    DEFAULT_NETWORK_ANNOTATION, LEGACY_ANNOTATION, NETWORKS_ANNOTATION, POD_ANNOTATIONS, PodView,
    STATIC_POD_ANNOTATION, is_static, pod_gone,
};
pub use requested::Requested;
pub use routes::{Family, check_selections};

use std::collections::BTreeSet;

use cni::config::NetworkConfig;
use serde_json::{Map, Value};

use crate::netconf::Netconf;

/// One network of a container, ready to be run.
#[derive(Debug, Clone)]
pub struct Attachment {
    /// What status and events call it: `<namespace>/<definition>`, or the CNI name where there is no definition.
    pub name: String,
    /// Whether this is the default network, whose result the runtime gets.
    pub master: bool,
    /// The configuration that the plugins get.
    pub config: NetworkConfig,
    /// What the pod asked for, when the pod asked.
    pub selection: Option<Selection>,
    /// The device that its definition wants.
    pub device: Option<Device>,
}

impl Attachment {
    /// The interface name of the attachment at `index`. A requested name uses up its index, as pods rely on.
    pub fn ifname(&self, index: usize, cni_ifname: &str) -> String {
        match self.selection.as_ref().and_then(|s| s.interface.clone()) {
            Some(name) => name,
            None if self.master => cni_ifname.to_owned(),
            None => format!("net{index}"),
        }
    }
}

/// Everything that is read to make a plan.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// The effective configuration.
    pub netconf: &'a Netconf,
    /// Network attachment definitions.
    pub definitions: &'a dyn Definitions,
    /// The node's files.
    pub files: &'a dyn Files,
    /// The node's plugins.
    pub plugins: &'a dyn Plugins,
}

/// The attachments of a pod in the order in which they are run; the first is the default network.
pub fn attachments(
    pod: Option<&PodView>,
    inputs: Inputs<'_>,
) -> Result<Vec<Attachment>, PlanError> {
    let mut legacy = legacy(pod, inputs.netconf)?.into_iter();
    let (chosen, first) = (pod.and_then(PodView::default_network), legacy.next());
    let mut attachments = vec![match (chosen, first, pod) {
        (Some(text), ..) => pod_default_network(pod, text, inputs)?,
        (None, Some(first), Some(pod)) => nad::attachment(first, &[&pod.namespace], inputs)?,
        _ => default_network::resolve(inputs)?,
    }];
    attachments.extend(default_network::further(pod, inputs)?);
    if let Some(pod) = pod {
        for selection in selections(pod, inputs.netconf)? {
            attachments.push(nad::attachment(selection, &[&pod.namespace], inputs)?);
        }
    }
    attachments.extend(chain::auxiliary(inputs)?);
    allowed::check(&attachments, pod, inputs.netconf)?;
    routes::check(&attachments)?;
    attachments[0].master = true;
    attachments.iter().try_for_each(refuse_multus)?;
    attachments.iter().try_for_each(refuse_long_mac)?;
    Ok(attachments)
}

/// What a pod's annotation asks for besides the default network, in its order.
pub fn selections(pod: &PodView, netconf: &Netconf) -> Result<Vec<Selection>, PlanError> {
    let present = annotated(pod, NETWORKS_ANNOTATION, pod.networks(), &pod.namespace)?;
    // The proposal numbers interfaces from eth0 on, which is the default network's.
    let mut legacy = legacy(Some(pod), netconf)?;
    for (index, selection) in legacy.iter_mut().enumerate() {
        let usual = || format!("eth{index}");
        selection.interface.get_or_insert_with(usual);
    }
    Ok(legacy.into_iter().skip(1).chain(present).collect())
}

/// The attachment for one of them, for a pod that runs already.
pub fn selected(
    pod: &PodView,
    selection: Selection,
    inputs: Inputs<'_>,
) -> Result<Attachment, PlanError> {
    let attachment = nad::attachment(selection, &[&pod.namespace], inputs)?;
    admit(attachment, pod, inputs)
}

/// The attachment for a definition that no pod has selected yet: what is wrong with it whoever selects it.
pub fn defined(nad: &Nad, inputs: Inputs<'_>) -> Result<Attachment, PlanError> {
    let attachment = nad::from_nad(nad, None, inputs)?;
    refuse_multus(&attachment)?;
    allowed::check(std::slice::from_ref(&attachment), None, inputs.netconf)?;
    Ok(attachment)
}

/// A configuration that somebody gave outright, as its plugins get it.
pub fn bare(config: &[u8], netconf: &Netconf) -> Result<NetworkConfig, PlanError> {
    let unusable = |reason| PlanError::Given { reason };
    let mut draft = config::Draft::parse(config).map_err(unusable)?;
    draft.version_if_missing(&netconf.cni_version);
    draft.finish().map_err(unusable)
}

/// The attachment for a configuration that somebody gave outright, with wishes as an annotation has them.
pub fn given(
    pod: &PodView,
    config: &[u8],
    wishes: &Map<String, Value>,
    inputs: Inputs<'_>,
) -> Result<Attachment, PlanError> {
    let unusable = |reason| PlanError::Given { reason };
    let mut draft = config::Draft::parse(config).map_err(unusable)?;
    draft.version_if_missing(&inputs.netconf.cni_version);
    let mut entry = wishes.clone();
    entry.insert("name".to_owned(), Value::from(draft.name()));
    let text = Value::from(vec![Value::Object(entry)]).to_string();
    let mut selections =
        annotation::parse(&text, &pod.namespace).map_err(|error| unusable(error.to_string()))?;
    let selection = selections.remove(0);
    if let Some(args) = &selection.cni_args {
        draft.merge_cni_args(args).map_err(unusable)?;
    }
    let config = draft.finish().map_err(unusable)?;
    let attachment = Attachment {
        name: config.name.clone(),
        master: false,
        config,
        selection: Some(selection),
        device: None,
    };
    admit(attachment, pod, inputs)
}

/// What may be run at all.
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

/// The default network alone, as every pod without annotations gets it.
pub fn primary(inputs: Inputs<'_>) -> Result<NetworkConfig, PlanError> {
    let attachment = default_network::resolve(inputs)?;
    refuse_multus(&attachment)?;
    allowed::check(std::slice::from_ref(&attachment), None, inputs.netconf)?;
    Ok(attachment.config)
}

/// Which of these interface names stands there a second time, the first that does.
pub fn repeated<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<usize> {
    let mut seen = BTreeSet::new();
    names.into_iter().position(|name| !seen.insert(name))
}

/// Whether a plugin of this type is multus: it would wait for itself.
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

/// Hardware addresses of 8 and 20 bytes are those of InfiniBand.
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

/// Whether a plugin of the network is one of InfiniBand, or takes its GUIDs.
fn is_infiniband(config: &NetworkConfig) -> bool {
    config.plugins.iter().any(|plugin| {
        let takes_guids = plugin
            .capabilities
            .iter()
            .any(|own| own == "infinibandGUID");
        takes_guids || ["ib-sriov", "ib-sriov-cni", "ipoib"].contains(&plugin.kind.as_str())
    })
}

/// The default network that a pod chose for itself. Namespace isolation holds for it like for any other choice, but that
/// `multusNamespace`, where a name alone leads to, is the cluster owner's own.
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
            let open = [pod.namespace.as_str(), namespace];
            nad::attachment(selection, &open, inputs)
        }
        (Some(_), false) => Err(PlanError::ManyDefaults),
        (None, _) => Err(PlanError::NoDefault),
    }
}

/// The networks of the annotation that the original proposal had, the first of which is the default one. It counts where the cluster's
/// owner wants that and the pod has none of the present annotations.
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
        pod: format!("{}/{}", pod.namespace, pod.name),
        annotation,
        source: Box::new(source),
    })
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
