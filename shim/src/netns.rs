//! The check that the shim does not run inside the network namespace that it is called for.

use std::fs;
use std::os::unix::fs::MetadataExt;

use cni::CniError;

use crate::call::CniCall;

/// Fails with code 8 if this process is in `CNI_NETNS`, unless `CNI_NETNS_OVERRIDE` allows it. A namespace that cannot be read passes:
/// the daemon handles it.
pub(crate) fn check(call: &CniCall) -> Result<(), CniError> {
    let value = call.variables.get("CNI_NETNS_OVERRIDE");
    let overridden = value == "1" || value.eq_ignore_ascii_case("true");
    if overridden || call.netns().is_empty() {
        return Ok(());
    }
    let (Ok(requested), Ok(own)) = (
        fs::metadata(call.netns()),
        fs::metadata("/proc/self/ns/net"),
    ) else {
        return Ok(());
    };
    if (requested.dev(), requested.ino()) != (own.dev(), own.ino()) {
        return Ok(());
    }
    Err(CniError::new(
        CniError::INVALID_NETNS,
        "plugin's netns and netns from CNI_NETNS should not be the same",
    )
    .with_details(call.netns()))
}
