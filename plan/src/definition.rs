//! Turns a network attachment definition, or the file on disk that it refers to, into an attachment.

use std::sync::Arc;

use super::annotation::Selection;
use super::draft::Draft;
use super::{Attachment, Device, Inputs, Nad, PlanError, generated_config, on_disk};

/// Returns the attachment for a pod's selection. Isolation never closes `open_namespaces`, of which the pod's own is the first.
/// An equal selection in `earlier` shares its configuration.
pub(super) fn attachment(
    selection: Selection,
    open_namespaces: &[&str],
    earlier: &[Attachment],
    inputs: Inputs<'_>,
) -> Result<Attachment, PlanError> {
    let Selection {
        namespace, name, ..
    } = &selection;
    let is_open = open_namespaces.contains(&namespace.as_str())
        || inputs.netconf.global_namespaces.contains(namespace);
    if inputs.netconf.namespace_isolation && !is_open {
        return Err(PlanError::Isolation {
            pod_namespace: open_namespaces
                .first()
                .copied()
                .unwrap_or_default()
                .to_owned(),
            namespace: namespace.clone(),
            name: name.clone(),
        });
    }
    let is_equal = |one: &&Attachment| {
        one.selection.as_ref().is_some_and(|other| {
            let names = (&other.namespace, &other.name);
            names == (namespace, name) && other.plugin_args() == selection.plugin_args()
        })
    };
    if let Some(equal) = earlier.iter().find(is_equal) {
        return Ok(Attachment {
            name: equal.name.clone(),
            is_default: false,
            config: Arc::clone(&equal.config),
            selection: Some(selection),
            device: equal.device.clone(),
        });
    }
    let nad = match inputs.definitions.nad(namespace, name) {
        Some(nad) => Some(nad),
        None => read(namespace, name, inputs)?,
    };
    let nad = nad.ok_or_else(|| {
        let (namespace, name) = (namespace.clone(), name.clone());
        match inputs.definitions.missing_crd() {
            None => PlanError::NoDefinition { namespace, name },
            Some(chart) => PlanError::NoCrd {
                namespace,
                name,
                chart,
            },
        }
    })?;
    from_nad(&nad, Some(selection), inputs)
}

/// Reads a definition that the watch does not have.
pub(super) fn read(
    namespace: &str,
    name: &str,
    inputs: Inputs<'_>,
) -> Result<Option<Arc<Nad>>, PlanError> {
    let read = inputs.definitions.read(namespace, name);
    read.map_err(|reason| PlanError::UnreadDefinition {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        reason,
    })
}

/// Returns the attachment for a definition.
pub(super) fn from_nad(
    nad: &Nad,
    selection: Option<Selection>,
    inputs: Inputs<'_>,
) -> Result<Attachment, PlanError> {
    let name = format!("{}/{}", nad.namespace, nad.name);
    let unusable = |reason| PlanError::Definition {
        namespace: nad.namespace.clone(),
        name: nad.name.clone(),
        reason,
    };
    let mut draft = if nad.config.trim().is_empty() {
        match on_disk::find(&nad.name, inputs)? {
            Some(draft) => Ok(draft),
            None if inputs.netconf.legacy_annotation => generated_config::generated(&nad.name, inputs.plugins)
                .unwrap_or_else(|| {
                    Err(format!(
                        "spec.config is empty, and neither a configuration named \"{}\" in {} nor a plugin of that name is on this node: write one there",
                        nad.name,
                        inputs.netconf.conf_dir.display()
                    ))
                }),
            None => Err(format!(
                "spec.config is empty, and no configuration named \"{}\" is in {} on this node: write one, or set legacyNetworksAnnotation to have the plugin of that name run",
                nad.name,
                inputs.netconf.conf_dir.display()
            )),
        }
        .map_err(unusable)?
    } else {
        Draft::parse(nad.config.as_bytes()).map_err(unusable)?
    };
    draft.name_if_missing(&nad.name).map_err(unusable)?;
    draft.version_if_missing(&inputs.netconf.cni_version);
    if let Some(selection) = &selection {
        let args = selection.plugin_args();
        draft.merge_cni_args(&args).map_err(unusable)?;
    }
    Ok(Attachment {
        name,
        is_default: false,
        config: Arc::new(draft.finish().map_err(unusable)?),
        selection,
        device: nad.resource_name.as_ref().map(|resource| Device {
            resource: resource.clone(),
            id: None,
        }),
    })
}
