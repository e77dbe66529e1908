//! Which boot of the kernel this is. Network namespaces and interfaces of another one are gone, and what was not synced in it may be
//! lost.

use std::sync::Arc;

use node::root::Root;
use tracing::warn;

const PATH: &str = "/proc/sys/kernel/random/boot_id";
/// It has 36 characters.
const MAX_BYTES: u64 = 256;

/// The kernel's id of its present boot; `None` where it cannot be read.
pub(crate) fn boot_id(root: &Root) -> Option<Arc<str>> {
    match root.read(PATH, MAX_BYTES) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            Some(text.trim()).filter(|id| !id.is_empty()).map(Arc::from)
        }
        Err(error) => {
            warn!(%error, "no boot id: every step of an ADD waits for the disk");
            None
        }
    }
}
