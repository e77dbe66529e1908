//! Resolves the networks that the cluster's owner configured: the default network, and additional ones for every pod.

use std::path::Path;
use std::sync::Arc;

use super::chain;
use super::draft::Draft;
use super::{Attachment, Inputs, PlanError, PodView, definition, on_disk};

/// Resolves the default network: `clusterNetwork`, or the first of `delegates`.
pub(super) fn resolve(inputs: Inputs<'_>) -> Result<Attachment, PlanError> {
    let netconf = inputs.netconf;
    if netconf.cluster_network.is_empty() {
        return inline(0, inputs);
    }
    named(&netconf.cluster_network, inputs).map_err(|cause| PlanError::ClusterNetwork {
        name: netconf.cluster_network.clone(),
        namespace: netconf.multus_namespace.clone(),
        cause: Box::new(cause),
    })
}

/// Resolves the networks that follow the default network for every pod outside the system's namespaces.
pub(super) fn further(
    pod: Option<&PodView>,
    inputs: Inputs<'_>,
) -> Result<Vec<Attachment>, PlanError> {
    let netconf = inputs.netconf;
    if netconf.cluster_network.is_empty() {
        return (1..netconf.delegates.len())
            .map(|index| inline(index, inputs))
            .collect();
    }
    if pod.is_none_or(|pod| netconf.system_namespaces.contains(&pod.namespace)) {
        return Ok(Vec::new());
    }
    netconf
        .default_networks
        .iter()
        .map(|name| {
            named(name, inputs).map_err(|cause| PlanError::DefaultNetwork {
                name: name.clone(),
                namespace: netconf.multus_namespace.clone(),
                cause: Box::new(cause),
            })
        })
        .collect()
}

fn inline(index: usize, inputs: Inputs<'_>) -> Result<Attachment, PlanError> {
    let unusable = |reason| PlanError::Delegate { index, reason };
    let map = inputs
        .netconf
        .delegates
        .get(index)
        .ok_or_else(|| unusable("is missing".to_owned()))?;
    finish(Draft::from_map(map.clone()), inputs).map_err(unusable)
}

/// Resolves a network by name (a definition, then a configuration on disk) or by path (a directory or a file).
fn named(name: &str, inputs: Inputs<'_>) -> Result<Attachment, PlanError> {
    let netconf = inputs.netconf;
    if name.contains('/') {
        return at_path(Path::new(name), inputs);
    }
    if let Some(nad) = inputs.definitions.nad(&netconf.multus_namespace, name) {
        return definition::from_nad(&nad, None, inputs);
    }
    let Some(draft) = on_disk::find(name, inputs)? else {
        // Last, since a name of a configuration on disk is not a definition's, and each ADD would read one.
        return match definition::read(&netconf.multus_namespace, name, inputs)? {
            Some(nad) => definition::from_nad(&nad, None, inputs),
            None => Err(PlanError::NoNetwork {
                name: name.to_owned(),
                namespace: netconf.multus_namespace.clone(),
                dir: netconf.conf_dir.clone(),
            }),
        };
    };
    finish(draft, inputs).map_err(|reason| PlanError::File {
        path: netconf.conf_dir.clone(),
        reason: format!("configuration \"{name}\": {reason}"),
    })
}

fn at_path(path: &Path, inputs: Inputs<'_>) -> Result<Attachment, PlanError> {
    let unusable = |reason: String| PlanError::File {
        path: path.to_owned(),
        reason,
    };
    let draft = if inputs.files.is_dir(path) {
        first_of(path, inputs)?
    } else {
        let mut draft = on_disk::read(path, inputs)?;
        if path.extension().is_some_and(|e| e == "conflist") {
            chain::append_subdirectory(&mut draft, path, inputs)?;
        } else if draft.is_list() {
            return Err(unusable(
                "a file that does not end in .conflist must have a \"type\" at its top".to_owned(),
            ));
        }
        draft
    };
    finish(draft, inputs).map_err(unusable)
}

/// Returns the first configuration of a directory other than Multus' own. A file before it that cannot be used is an error, because
/// it might have been the one that the owner meant.
fn first_of(dir: &Path, inputs: Inputs<'_>) -> Result<Draft, PlanError> {
    for (path, draft) in on_disk::drafts(dir, inputs)? {
        let draft = draft?;
        if draft.calls_multus() {
            continue;
        }
        if draft.is_configuration() {
            return Ok(draft);
        }
        return Err(PlanError::File {
            path,
            reason: "has neither a \"type\" nor a list of \"plugins\": correct or remove it"
                .to_owned(),
        });
    }
    Err(PlanError::NoFile {
        path: dir.to_owned(),
        reason: "holds only CNI configurations of multus".to_owned(),
    })
}

fn finish(mut draft: Draft, inputs: Inputs<'_>) -> Result<Attachment, String> {
    draft.version_if_missing(&inputs.netconf.cni_version);
    let config = Arc::new(draft.finish()?);
    Ok(Attachment {
        name: config.name.clone(),
        is_default: false,
        config,
        selection: None,
        device: None,
    })
}
