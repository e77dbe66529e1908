//! Pushes artifacts into a registry in order: blobs, manifests of platforms, then the manifest that gets the tag.
//!
//! Blobs that the registry has are not sent again, so that a second push, and the push of a release that shares blobs with a former one,
//! send only what is new.

use std::collections::BTreeMap;

use archive::digest::{Digest, sha256};

use crate::{Error, Registry};

/// An image or chart with a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// The path below the registry.
    pub repository: String,
    /// The tag of the last manifest.
    pub tag: String,
    /// The blobs that manifests name.
    pub blobs: BTreeMap<Digest, Vec<u8>>,
    /// Media type and bytes; each after those that it names. The last gets the tag.
    pub manifests: Vec<(&'static str, Vec<u8>)>,
}

impl Artifact {
    /// Returns the digest that the tag names.
    pub fn digest(&self) -> Digest {
        let last = self.manifests.last();
        sha256(last.map_or(&[][..], |(_, bytes)| bytes))
    }
}

/// The bytes of blobs and manifests: sent, and in the registry already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PushStats {
    pub sent: u64,
    pub present: u64,
}

impl PushStats {
    /// Counts bytes that were sent or are there.
    pub fn count(&mut self, is_present: bool, len: usize, progress: &dyn Fn(u64)) {
        let len = len as u64;
        if is_present {
            self.present += len;
        } else {
            self.sent += len;
        }
        progress(len);
    }
}

impl std::ops::AddAssign for PushStats {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.present += other.present;
    }
}

/// Sends what the registry does not have. The tag comes last, so that it never names an incomplete artifact.
pub fn send(
    registry: &Registry,
    artifact: &Artifact,
    progress: &dyn Fn(u64),
) -> Result<PushStats, Error> {
    let mut stats = PushStats::default();
    let mut count = |is_present, len| stats.count(is_present, len, progress);
    let repository = &artifact.repository;
    for (digest, bytes) in &artifact.blobs {
        let is_present = blob(registry, repository, digest, bytes)?;
        count(is_present, bytes.len());
    }
    for (at, (media_type, bytes)) in artifact.manifests.iter().enumerate() {
        let digest = sha256(bytes);
        let is_last = at + 1 == artifact.manifests.len();
        let name = if is_last {
            artifact.tag.clone()
        } else {
            digest.to_string()
        };
        let is_present = registry.digest_of(repository, &name)? == Some(digest);
        if !is_present {
            registry.push_manifest(repository, &name, media_type, bytes)?;
        }
        count(is_present, bytes.len());
    }
    Ok(stats)
}

/// Sends a blob that the registry does not have; returns whether it had it.
pub(crate) fn blob(
    registry: &Registry,
    repository: &str,
    digest: &Digest,
    bytes: &[u8],
) -> Result<bool, Error> {
    let is_present = registry.has_blob(repository, digest)?;
    if !is_present {
        registry.push_blob(repository, digest, bytes)?;
    }
    Ok(is_present)
}

/// Gives the tag to an artifact that the registry has under another one; returns whether the tag named something else before.
pub fn tag(registry: &Registry, artifact: &Artifact) -> Result<bool, Error> {
    let Artifact {
        repository, tag, ..
    } = artifact;
    let Some((media_type, bytes)) = artifact.manifests.last() else {
        return Ok(false);
    };
    if registry.digest_of(repository, tag)? == Some(artifact.digest()) {
        return Ok(false);
    }
    registry.push_manifest(repository, tag, media_type, bytes)?;
    Ok(true)
}
