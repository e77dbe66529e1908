//! The limits of what one pod can make the daemon build, attach and record. They are far above what pods need, and low enough that no
//! annotation takes a node's memory or time from other pods.

use cni::config::NetworkConfig;

use super::{Attachment, PlanError};

/// The most plugins of one network.
const MAX_PLUGINS: usize = 32;
/// The most bytes that the configurations of all networks of a pod have together. A network that is requested twice counts twice, as it
/// does in the state on disk.
const MAX_CONFIG_BYTES: usize = 1 << 20;

/// Refuses the networks of a pod when their configurations are too large together; `present` are those that it has already.
pub fn check_size<'a>(
    present: impl Iterator<Item = &'a NetworkConfig>,
    attachments: &'a [Attachment],
) -> Result<(), PlanError> {
    let new = attachments.iter().map(|one| &*one.config);
    let bytes = present.chain(new).map(|config| config.bytes().len()).sum();
    if bytes > MAX_CONFIG_BYTES {
        return Err(PlanError::TooLarge {
            bytes,
            limit: MAX_CONFIG_BYTES,
        });
    }
    Ok(())
}

/// Refuses a network with too many plugins.
pub(super) fn check_plugins(count: usize) -> Result<(), String> {
    if count > MAX_PLUGINS {
        return Err(format!(
            "the CNI configuration lists {count} plugins, but a network may have {MAX_PLUGINS}: remove some"
        ));
    }
    Ok(())
}
