//! The signatures of a release: made with a key file, and checked with its public half, without a network.
//!
//! They lie between the files of a release, and no checksum covers them: a release is signed after it is made, perhaps by several builders,
//! and stays the same bytes. Deciding is functions over trees; nothing here reads a key.

mod chart;
pub mod image;
pub mod provenance;
mod sign;
mod statement;
mod verify;

use std::{fs, path::Path};

use anyhow::{Context as _, ensure};
use archive::{digest::Digest, lists};
use serde_json::Value;

pub(crate) use self::verify::check_sums;
pub use self::{
    image::{Signed, signed},
    provenance::{Build, Dependency},
    sign::{sign, state},
    verify::{Report, Statement, Trust, check, check_medium},
};
use crate::{
    description::SUMS,
    tree::{Limit, Tree},
};

/// The ending of a bundle of Sigstore.
pub const BUNDLE: &str = ".sigstore.json";
/// The directory of the statements about how a release was made, one for each builder.
pub const PROVENANCE: &str = "provenance/";
/// The directory of the signatures of images and charts, as registries get them.
pub const IMAGES: &str = "signatures/";
/// The public key for Helm and `gpg`.
pub const KEYRING: &str = "charts/keyring.gpg";
/// The ending of a chart's signature for Helm.
pub const CHART: &str = ".prov";
/// The largest signature or statement.
pub const MAX_SIZE: u64 = 4 << 20;

/// Returns whether a file of a release is one of its signatures, by its path alone.
pub(crate) fn is_signature(path: &str) -> bool {
    let is_digest = |dir: &str, endings: &[&str]| {
        let name = path.strip_prefix(dir);
        let stem = name.and_then(|name| endings.iter().find_map(|end| name.strip_suffix(end)));
        stem.is_some_and(|stem| Digest::from_hex(stem).is_ok())
    };
    let chart = path.strip_prefix("charts/assets/");
    let chart = chart.and_then(|rest| rest.strip_suffix(CHART)?.strip_suffix(".tgz"));
    [sums_signature(SUMS), sums_bundle(), KEYRING.to_owned()].contains(&path.to_owned())
        || is_digest(PROVENANCE, &[BUNDLE])
        || is_digest(IMAGES, &[BUNDLE, image::PAYLOAD, image::PAYLOAD_SIGNATURE])
        || path
            .strip_prefix("airgap/")
            .is_some_and(is_medium_signature)
        || chart.is_some_and(|chart| chart.matches('/').count() == 1)
}

/// Returns whether a file of a directory with archives is the signature of a checksum file.
pub fn is_medium_signature(name: &str) -> bool {
    let arch = name
        .strip_prefix("sha256sum-")
        .and_then(|rest| rest.strip_suffix(".txt.sig"));
    arch.is_some_and(|arch| !arch.is_empty() && !arch.contains('/'))
}

/// Returns the path of the signature of a file.
pub fn sums_signature(path: &str) -> String {
    format!("{path}{}", lists::SIGNATURE)
}

/// Returns the path of the bundle over the checksums.
pub(crate) fn sums_bundle() -> String {
    format!("{SUMS}{BUNDLE}")
}

/// Returns the path of the statement by a key.
pub fn provenance_path(key: &Digest) -> String {
    format!("{PROVENANCE}{}{BUNDLE}", key.hex())
}

/// Reads the signature in a file, but none that is larger than any.
pub fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let context = || format!("cannot read {}", path.display());
    let size = fs::metadata(path).with_context(context)?.len();
    ensure!(
        size <= MAX_SIZE,
        "{} has {size} bytes, and a signature has at most {MAX_SIZE}: copy it again",
        path.display()
    );
    fs::read(path).with_context(context)
}

/// Returns the statement in a bundle, whoever signed it: a push sends what is there, and whoever pulls it verifies it.
pub fn statement_of_anyone(bundle: &[u8]) -> Option<Value> {
    let statement = signing::bundle::statement_of_anyone(bundle).ok()?;
    serde_json::from_slice(&statement).ok()
}

/// Takes the signatures out of a release, and returns them.
pub fn take(tree: &mut Tree) -> Tree {
    let all = std::mem::take(&mut tree.0).into_iter();
    let (signatures, files) = all.partition(|(path, _)| is_signature(path));
    tree.0 = files;
    Tree(signatures)
}

/// The sizes that signatures of a release may have: they are read before anything is known of them.
pub const LIMIT: Limit = Limit {
    applies: is_signature,
    bytes: MAX_SIZE,
};

/// The same for a directory with archives.
pub const MEDIUM_LIMIT: Limit = Limit {
    applies: is_medium_signature,
    bytes: MAX_SIZE,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_known_by_their_paths() {
        let hex = "0".repeat(64);
        for path in [
            "SHA256SUMS.sig",
            "SHA256SUMS.sigstore.json",
            "airgap/sha256sum-arm64.txt.sig",
            "charts/assets/k3s-multus/k3s-multus-5.0.0.tgz.prov",
            "charts/keyring.gpg",
            &format!("provenance/{hex}.sigstore.json"),
            &format!("signatures/{hex}.sigstore.json"),
            &format!("signatures/{hex}.json"),
            &format!("signatures/{hex}.json.sig"),
        ] {
            assert!(is_signature(path), "{path}");
        }
        for path in [
            "SHA256SUMS",
            "release.json",
            "release.json.sig",
            "bin/amd64/multus-shim.sig",
            "sha256sum-arm64.txt.sig",
            "airgap/sha256sum-.txt.sig",
            "airgap/sha256sum-a/b.txt.sig",
            "charts/assets/k3s-multus-5.0.0.tgz.prov",
            "charts/assets/a/b/c.tgz.prov",
            "charts/index.yaml.prov",
            "provenance/x.sigstore.json",
            "provenance/../bin.sigstore.json",
            &format!("provenance/{hex}.json"),
            &format!("provenance/{}.sigstore.json", hex.replace('0', "A")),
            &format!("signatures/a/{hex}.json"),
        ] {
            assert!(!is_signature(path), "{path}");
        }
    }
}
