//! Reads plugins that other installers put next to the default network's configuration: in a directory with the name of its list, or
//! of the auxiliary chain. The files are read again for every plan, so that a change takes effect with the next pod.

use std::path::Path;
use std::sync::Arc;

use cni::version::Version;
use serde_json::{Map, Value, json};

use super::draft::Draft;
use super::{Attachment, Inputs, PlanError, on_disk};

/// Appends the plugins of the directory with the list's name, unless the list sets `loadOnlyInlinedPlugins`.
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
            reason: format!("\"name\": \"{name}\" is not a valid network name"),
        });
    }
    let plugins = plugins(&dir.join(name), inputs)?;
    draft.append_plugins(plugins);
    Ok(())
}

/// Returns the chain that runs after all other networks, or `None` when its directory has no plugin.
pub(super) fn auxiliary(inputs: Inputs<'_>) -> Result<Option<Attachment>, PlanError> {
    let netconf = inputs.netconf;
    let name = &netconf.auxiliary_cni_chain_name;
    if name.is_empty() {
        return Ok(None);
    }
    let default_network = Path::new(&netconf.cluster_network);
    let unusable = |reason: String| PlanError::File {
        path: default_network.to_owned(),
        reason,
    };
    let dir = default_network
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
        is_default: false,
        config: Arc::new(draft.finish().map_err(unusable)?),
        selection: None,
        device: None,
    }))
}

/// Returns Multus' own version, or 0.3.1 where that version has no lists of plugins: `passthru` speaks no older one.
fn chain_version(own: &str) -> &str {
    const FIRST_WITH_LISTS: Version = Version::V0_3_0;
    let is_new = Version::parse(own).is_ok_and(|version| version >= FIRST_WITH_LISTS);
    if is_new { own } else { "0.3.1" }
}

/// Returns the plugins of a chain directory in the order of file names, or none where there is no directory.
fn plugins(dir: &Path, inputs: Inputs<'_>) -> Result<Vec<Map<String, Value>>, PlanError> {
    on_disk::files(dir, &["conf"], inputs)?
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
                    "is not a JSON object: {error}; correct or remove it"
                ))
            })?;
            match plugin.get("type").and_then(Value::as_str) {
                Some(kind) if !kind.is_empty() => Ok(plugin),
                _ => Err(unusable(
                    "has no \"type\": set it to the plugin's name".to_owned(),
                )),
            }
        })
        .collect()
}

/// Matches `^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`, which also keeps the name from leading out of its directory.
fn is_list_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}
