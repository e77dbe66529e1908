//! Pushes artifacts into a registry in order: blobs, manifests of platforms, then the manifest that gets the tag.
//!
//! Blobs that the registry has are not sent again, so that a second push, and the push of a release that shares blobs with a former one,
//! send only what is new.

use std::collections::BTreeMap;

use archive::{
    digest::{Digest, sha256},
    layout::Layout,
    oci::{self, Index, Manifest},
};

use crate::{
    names,
    registry::{self, Registry},
};

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

/// Why an image cannot be pushed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{0}` is not the name of an image: write HOST/REPOSITORY:TAG")]
    Name(String),
    #[error("blob {0} is missing or damaged")]
    Blob(Digest),
    #[error("manifest {digest} is of the unknown kind {media_type}")]
    Kind { digest: Digest, media_type: String },
}

/// Returns every image of a layout without its registry: below another registry it has the same path, as mirrors require.
pub fn artifacts(layout: &Layout) -> Result<Vec<Artifact>, Error> {
    let mut artifacts = Vec::new();
    for image in &layout.images {
        let name = image.annotations.get(oci::REF_NAME).cloned();
        let name = name.unwrap_or_default();
        let reference = names::reference(&name).ok_or_else(|| Error::Name(name.clone()))?;
        let mut artifact = Artifact {
            repository: reference.repository().to_owned(),
            tag: reference.tag().ok_or(Error::Name(name))?.to_owned(),
            blobs: BTreeMap::new(),
            manifests: Vec::new(),
        };
        add(&mut artifact, layout, &image.digest, &image.media_type)?;
        artifacts.push(artifact);
    }
    Ok(artifacts)
}

fn add(
    artifact: &mut Artifact,
    layout: &Layout,
    digest: &Digest,
    media_type: &str,
) -> Result<(), Error> {
    let blob = |digest: &Digest| layout.blobs.get(digest).ok_or(Error::Blob(*digest));
    let bytes = blob(digest)?;
    let known = oci::manifest_kind(media_type).ok_or_else(|| Error::Kind {
        digest: *digest,
        media_type: media_type.to_owned(),
    })?;
    let damaged = |_| Error::Blob(*digest);
    if oci::is_index(known) {
        let index: Index = oci::from_bytes(bytes).map_err(damaged)?;
        for child in index.manifests {
            add(artifact, layout, &child.digest, &child.media_type)?;
        }
    } else {
        let manifest: Manifest = oci::from_bytes(bytes).map_err(damaged)?;
        for descriptor in manifest.layers.iter().chain([&manifest.config]) {
            let bytes = blob(&descriptor.digest)?.clone();
            artifact.blobs.insert(descriptor.digest, bytes);
        }
    }
    artifact.manifests.push((known, bytes.clone()));
    Ok(())
}

/// Sends what the registry does not have. The tag comes last, so that it never names an incomplete artifact.
pub fn send(
    registry: &Registry,
    artifact: &Artifact,
    progress: &dyn Fn(u64),
) -> Result<PushStats, registry::Error> {
    let mut stats = PushStats::default();
    let mut count = |is_present, len| stats.count(is_present, len, progress);
    let repository = &artifact.repository;
    for (digest, bytes) in &artifact.blobs {
        let is_present = registry.has_blob(repository, digest)?;
        if !is_present {
            registry.push_blob(repository, digest, bytes)?;
        }
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

/// Gives the tag to an artifact that the registry has under another one; returns whether the tag named something else before.
pub fn tag(registry: &Registry, artifact: &Artifact) -> Result<bool, registry::Error> {
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

#[cfg(test)]
mod tests {
    use archive::oci::Descriptor;

    use super::*;

    fn layout() -> Layout {
        let mut layout = Layout::default();
        let mut manifests = Vec::new();
        for text in ["a", "b"] {
            let config = layout.add(oci::CONFIG, text.into());
            let layer = layout.add(oci::LAYER, b"shared".to_vec());
            let manifest = oci::to_bytes(&Manifest::of(config, vec![layer]));
            manifests.push(layout.add(oci::MANIFEST, manifest));
        }
        let index = layout.add(oci::INDEX, oci::to_bytes(&Index::of(manifests)));
        layout.images.push(index.named("docker.io/x/y:v1"));
        layout
    }

    #[test]
    fn manifests_come_before_the_index_that_names_them() {
        let layout = layout();
        let [artifact] = &artifacts(&layout).unwrap()[..] else {
            panic!("one image");
        };
        assert_eq!(
            (artifact.repository.as_str(), artifact.tag.as_str()),
            ("x/y", "v1")
        );
        assert_eq!(artifact.blobs.len(), 3);
        let kinds: Vec<_> = artifact.manifests.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [oci::MANIFEST, oci::MANIFEST, oci::INDEX]);
    }

    #[test]
    fn incomplete_or_unnamed_image_is_refused() {
        let mut missing = layout();
        missing.blobs.remove(&sha256(b"shared"));
        assert!(matches!(artifacts(&missing), Err(Error::Blob(_))));
        let mut unnamed = layout();
        unnamed.images[0].annotations.clear();
        assert!(matches!(artifacts(&unnamed), Err(Error::Name(_))));
        let mut other = layout();
        other.images[0] = Descriptor::of("text/plain", b"a").named("r/x/y:v1");
        assert!(matches!(artifacts(&other), Err(Error::Kind { .. })));
    }
}
