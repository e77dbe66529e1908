//! Turns a network attachment definition, or the file on disk that it refers to, into an attachment.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::annotation::Selection;
use super::draft::Draft;
use super::{Attachment, Device, Inputs, PlanError, plugins};

/// Annotation of a definition with the resource from which each attachment needs a device.
pub const RESOURCE_ANNOTATION: &str = "k8s.v1.cni.cncf.io/resourceName";

/// A network attachment definition (`NetworkAttachmentDefinition`), as far as planning reads it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Nad {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// `spec.config`. When it is empty, the configuration is a file on the node's disk.
    pub config: String,
    /// The value of [`RESOURCE_ANNOTATION`].
    pub resource_name: Option<String>,
}

/// The cluster's definitions, as a watch keeps them.
pub trait Definitions: Send + Sync {
    /// Returns one definition.
    fn nad(&self, namespace: &str, name: &str) -> Option<Arc<Nad>>;

    /// Returns the chart that installs the CRD, where the cluster lacks it.
    fn missing_crd(&self) -> Option<String> {
        None
    }
}

/// Returns the attachment for a pod's selection. Isolation never closes `open_namespaces`, of which the pod's own is the first.
pub(super) fn attachment(
    selection: Selection,
    open_namespaces: &[&str],
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
    let nad = inputs.definitions.nad(namespace, name).ok_or_else(|| {
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
        match on_disk(&nad.name, inputs)? {
            Some(draft) => Ok(draft),
            None if inputs.netconf.legacy_annotation => plugins::generated(&nad.name, inputs.plugins)
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
    if let Some(args) = selection.as_ref().and_then(|s| s.cni_args.as_ref()) {
        draft.merge_cni_args(args).map_err(unusable)?;
    }
    Ok(Attachment {
        name,
        is_default: false,
        config: draft.finish().map_err(unusable)?,
        selection,
        device: nad.resource_name.as_ref().map(|resource| Device {
            resource: resource.clone(),
            id: None,
        }),
    })
}

/// Returns the first configuration on the node's disk, in the order of file names, whose `name` is `name`.
/// A file before it that cannot be parsed is an error, since it might have been that one.
pub(super) fn on_disk(name: &str, inputs: Inputs<'_>) -> Result<Option<Draft>, PlanError> {
    let dir = &inputs.netconf.conf_dir;
    for (_, draft) in drafts(dir, inputs)? {
        let draft = draft?;
        if draft.name() == name {
            return Ok(Some(draft));
        }
    }
    Ok(None)
}

/// Returns every configuration of a directory with its path, in the order of file names.
pub(super) fn drafts<'a>(
    dir: &Path,
    inputs: Inputs<'a>,
) -> Result<impl Iterator<Item = (PathBuf, Result<Draft, PlanError>)> + 'a, PlanError> {
    let paths = files(dir, &["conf", "json", "conflist"], inputs)?;
    Ok(paths.into_iter().map(move |path| {
        let draft = read(&path, inputs);
        (path, draft)
    }))
}

/// Returns the files of a directory with one of these extensions, in the order of their names; none where the directory does not exist.
pub(super) fn files(
    dir: &Path,
    extensions: &[&str],
    inputs: Inputs<'_>,
) -> Result<Vec<PathBuf>, PlanError> {
    let names = match inputs.files.list(dir) {
        Ok(names) => names,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Vec::new()
        }
        Err(error) => {
            return Err(PlanError::File {
                path: dir.to_owned(),
                reason: format!("cannot be listed: {error}"),
            });
        }
    };
    let matches = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| extensions.contains(&extension))
            && !inputs.files.is_dir(path)
    };
    let paths = names.into_iter().map(|name| dir.join(name));
    Ok(paths.filter(matches).collect())
}

/// Reads one configuration file.
pub(super) fn read(path: &Path, inputs: Inputs<'_>) -> Result<Draft, PlanError> {
    let unusable = |reason| PlanError::File {
        path: path.to_owned(),
        reason,
    };
    let bytes = inputs.files.read(path).map_err(|error| {
        let reason = format!("cannot be read: {error}; create it, or name another file");
        match error.kind() {
            ErrorKind::NotFound => PlanError::NoFile {
                path: path.to_owned(),
                reason,
            },
            _ => unusable(reason),
        }
    })?;
    Draft::parse(&bytes).map_err(unusable)
}
