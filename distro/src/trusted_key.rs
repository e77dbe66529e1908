//! The key of whoever publishes releases: from a file, or built in.
//!
//! With a key, a directory whose checksums this key did not sign is refused. Nothing turns a built-in key off but another key.

use std::path::Path;

use anyhow::Context as _;
use archive::digest::Digest;
use signing::PublicKey;

/// The key in PEM that `cargo xtask build` put in, or nothing.
const BUILT_IN: &str = include_str!(concat!(env!("OUT_DIR"), "/trusted-key.pem"));
/// The note about files that were checked without a key.
pub(crate) const UNCHECKED: &str =
    "nothing was checked about who made these files: name the public key of whoever did with --key";

/// A key, and where it comes from.
#[derive(Debug)]
pub(crate) struct TrustedKey {
    pub(crate) key: PublicKey,
    /// The origin in the words of messages.
    pub(crate) origin: String,
}

/// Returns the key of a file, else the one that is built in.
pub(crate) fn find(file: Option<&Path>) -> anyhow::Result<Option<TrustedKey>> {
    let Some(path) = file else {
        return built_in();
    };
    let key = PublicKey::from_file(path)?;
    Ok(Some(TrustedKey {
        key,
        origin: format!("the key {}", path.display()),
    }))
}

/// Returns the id of the key that is built in.
pub(crate) fn built_in_id() -> anyhow::Result<Option<Digest>> {
    Ok(built_in()?.map(|trusted| trusted.key.id()))
}

fn built_in() -> anyhow::Result<Option<TrustedKey>> {
    if BUILT_IN.is_empty() {
        return Ok(None);
    }
    let key = PublicKey::from_pem(BUILT_IN).context("the built-in key is damaged")?;
    Ok(Some(TrustedKey {
        key,
        origin: "the key that is built into this program".to_owned(),
    }))
}
