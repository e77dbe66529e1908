//! The check that a plugin does not run inside the very namespace it works on.

use std::fs;
use std::os::unix::fs::MetadataExt;

use cni::CniError;

use crate::call::Call;

/// Fails with code 8 if this process is in `CNI_NETNS`, unless `CNI_NETNS_OVERRIDE` allows it. A namespace that is gone is somebody
/// else's problem.
pub(crate) fn check(call: &Call) -> Result<(), CniError> {
    let value = call.variables.get("CNI_NETNS_OVERRIDE");
    let overridden = value == "1" || value.eq_ignore_ascii_case("true");
    if overridden || call.netns().is_empty() {
        return Ok(());
    }
    let (Ok(theirs), Ok(ours)) = (
        fs::metadata(call.netns()),
        fs::metadata("/proc/self/ns/net"),
    ) else {
        return Ok(());
    };
    if (theirs.dev(), theirs.ino()) != (ours.dev(), ours.ino()) {
        return Ok(());
    }
    Err(CniError::new(
        CniError::INVALID_NETNS,
        "plugin's netns and netns from CNI_NETNS should not be the same",
    )
    .with_details(call.netns()))
}
