//! The effect of a finding.

use serde::Serialize;

/// The effect of a finding on pods or on the installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// Nothing has to be done.
    Note,
    /// It works, but not as before, or it needs an extra step.
    Changes,
    /// Pods or the installation would fail.
    Fails,
}
