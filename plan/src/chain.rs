//! Plugins that others put beside the primary configuration: in a directory named like its list, or like the auxiliary
//! chain. They are read anew for every plan, so that a file takes effect with the next pod.

use std::path::Path;

use cni::version::Version;
use serde_json::{Map, Value, json};

use super::config::Draft;
use super::{Attachment, Inputs, PlanError, nad};

/// Appends the plugins of the directory that is named like the list, unless the list asks to be left alone.
pub(super) fn append_subdirectory(
    draft: &mut Draft,
    path: &Path,
    inputs: Inputs<'_>,
) -> Result<(), PlanError> {
    if draft.switch("loadOnlyInlinedPlugins") {
        return Ok(());
    }
    let (Some(dir), name) = (path.parent(), draft.name()) else {
        return Ok(());
    };
    if !is_list_name(name) {
        return Err(PlanError::File {
            path: path.to_owned(),
            reason: format!("\"name\": \"{name}\" is no valid network name"),
        });
    }
    let plugins = plugins(&dir.join(name), inputs)?;
    draft.append_plugins(plugins);
    Ok(())
}

/// The chain that runs after all other networks; absent when no plugin is there for it.
pub(super) fn auxiliary(inputs: Inputs<'_>) -> Result<Option<Attachment>, PlanError> {
    let netconf = inputs.netconf;
    let name = &netconf.auxiliary_cni_chain_name;
    if name.is_empty() {
        return Ok(None);
    }
    let primary = Path::new(&netconf.cluster_network);
    let unusable = |reason: String| PlanError::File {
        path: primary.to_owned(),
        reason,
    };
    let dir = primary
        .parent()
        .filter(|_| netconf.cluster_network.contains('/') && is_list_name(name))
        .ok_or_else(|| {
            unusable(format!(
                "auxiliaryCNIChainName \"{name}\" needs a clusterNetwork that is a path, and a valid network name"
            ))
        })?;
    let further = plugins(&dir.join(name), inputs)?;
    if further.is_empty() {
        return Ok(None);
    }
    let head = json!({
        "cniVersion": chain_version(&netconf.cni_version),
        "name": name,
        "plugins": [{"type": "passthru"}],
    });
    let Value::Object(head) = head else {
        unreachable!("written as an object above")
    };
    let mut draft = Draft::from_map(head);
    draft.append_plugins(further);
    Ok(Some(Attachment {
        name: name.clone(),
        master: false,
        config: draft.finish().map_err(unusable)?,
        selection: None,
        device: None,
    }))
}

/// The version of multus, where that has lists of plugins at all; `passthru` speaks no older one.
fn chain_version(own: &str) -> &str {
    const FIRST_WITH_LISTS: Version = Version::V0_3_0;
    let is_new = Version::parse(own).is_ok_and(|version| version >= FIRST_WITH_LISTS);
    if is_new { own } else { "0.3.1" }
}

/// The plugins of a chain directory by file name; none where there is no directory.
fn plugins(dir: &Path, inputs: Inputs<'_>) -> Result<Vec<Map<String, Value>>, PlanError> {
    nad::files(dir, &["conf"], inputs)?
        .into_iter()
        .map(|path| {
            let unusable = |reason: String| PlanError::File {
                path: path.clone(),
                reason,
            };
            let bytes = inputs
                .files
                .read(&path)
                .map_err(|error| unusable(format!("cannot be read: {error}")))?;
            let plugin: Map<String, Value> = serde_json::from_slice(&bytes).map_err(|error| {
                unusable(format!(
                    "is not a JSON object: {error}; correct it, or take it away"
                ))
            })?;
            match plugin.get("type").and_then(Value::as_str) {
                Some(kind) if !kind.is_empty() => Ok(plugin),
                _ => Err(unusable("has no \"type\": name its plugin".to_owned())),
            }
        })
        .collect()
}

/// `^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`: also keeps the name from leaving its directory.
fn is_list_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}
