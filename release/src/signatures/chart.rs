//! The signed text about a chart, as Helm writes and reads it: the chart's metadata, and the digest of its archive.

use anyhow::{Context as _, ensure};
use archive::digest::sha256;
use chart::package::{CHART_YAML, Package};

/// The line between the two parts.
const BETWEEN: &str = "\n...\n";
/// The name of the key for Helm and `gpg`: it follows from nothing, so that the keyring is the same in each release.
pub(super) const KEY_NAME: &str = "multus-rs releases";

/// Returns the text for an archive of this path.
pub(super) fn text(path: &str, tgz: &[u8]) -> anyhow::Result<String> {
    let package = Package::read(tgz).with_context(|| path.to_owned())?;
    let metadata = package.get(CHART_YAML).unwrap_or_default();
    let metadata = std::str::from_utf8(metadata).with_context(|| path.to_owned())?;
    ensure!(
        !metadata.contains(BETWEEN),
        "{path}: {CHART_YAML} has a line of three dots, at which Helm cuts the signed text"
    );
    let name = path.rsplit('/').next().unwrap_or(path);
    Ok(format!(
        "{metadata}{BETWEEN}files:\n  {name}: sha256:{}",
        sha256(tgz).hex()
    ))
}
