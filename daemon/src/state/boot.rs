//! Identifies the present boot of the kernel. Network namespaces and interfaces of another boot do not exist, and data that was not synced
//! in it may be lost.

use std::sync::Arc;

use node::root::Root;
use tracing::warn;

const PATH: &str = "/proc/sys/kernel/random/boot_id";
/// The id itself has 36 characters.
const MAX_BYTES: u64 = 256;

/// Returns the kernel's id of its present boot, or `None` if it cannot be read.
pub(crate) fn boot_id(root: &Root) -> Option<Arc<str>> {
    match root.read(PATH, MAX_BYTES) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            Some(text.trim()).filter(|id| !id.is_empty()).map(Arc::from)
        }
        Err(error) => {
            warn!(%error, "cannot read the boot id; every step of an ADD waits for the disk");
            None
        }
    }
}
