//! The limit of open files: as high as it may be for the daemon, as it was for plugins.
//!
//! A full node has more connections than the usual soft limit of 1024 files, and plugins may close every file up to their limit one
//! by one, so that a high one makes them slow.

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
        Ok(()) => debug!(?original, ?raised, "limit of open files"),
        Err(error) => warn!(%error, ?original, "cannot raise the limit of open files"),
    }
}

/// The soft limit before it was raised, which plugins get; `None` where it was not raised or there was none.
pub fn original() -> Option<u64> {
    ORIGINAL.get().and_then(|limit| limit.current)
}
