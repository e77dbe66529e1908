//! The limit of open files: raised to the maximum for the daemon, kept for plugins.
//!
//! A full node needs more connections than the usual soft limit of 1024 files allows. Plugins may close every file descriptor up to their
//! limit one by one, so a high limit would make them slow.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// The limit that this process was started with.
static ORIGINAL: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit to the hard one.
pub fn raise() {
    let original = *ORIGINAL.get_or_init(|| getrlimit(Resource::Nofile));
    let raised = Rlimit {
        current: original.maximum,
        ..original
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => debug!(?original, ?raised, "raised the limit of open files"),
        Err(error) => warn!(%error, ?original, "cannot raise the limit of open files"),
    }
}

/// Returns the soft limit before it was raised, which plugins get; `None` if it was not raised or there was none.
pub fn original() -> Option<u64> {
    ORIGINAL.get().and_then(|limit| limit.current)
}
