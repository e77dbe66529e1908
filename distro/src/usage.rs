//! What is the command line's fault: refused with status 2, before anything is touched.

/// Words that contradict each other, the program or the host.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadUsage(pub(crate) String);
