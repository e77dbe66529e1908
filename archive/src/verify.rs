//! Follows every digest of a layout: name → index → manifest → configuration and layers → uncompressed layers.
//!
//! Nothing is trusted that was not hashed, every blob must be reached, and the first thing that is wrong is named.

use std::collections::BTreeSet;

use crate::{
    digest::{Digest, sha256},
    layout::Layout,
    oci::{self, Descriptor, ImageConfig, Index, Manifest, Platform},
};

/// Uncompresses a layer of a media type; the text says why it cannot.
pub type Unpack<'a> = &'a dyn Fn(&str, &[u8]) -> Result<Vec<u8>, String>;

/// An image with a name and everything it consists of.
#[derive(Debug, Clone)]
pub struct Image {
    /// The full reference.
    pub reference: String,
    /// What the name points at: an index, or a manifest in an archive of one platform.
    pub digest: Digest,
    /// One per platform.
    pub platforms: Vec<PlatformImage>,
}

/// The image of one platform.
#[derive(Debug, Clone)]
pub struct PlatformImage {
    /// Where it runs.
    pub platform: Platform,
    /// Describes the manifest.
    pub manifest: Descriptor,
    /// Describes the configuration.
    pub config: Descriptor,
    /// Bottom first.
    pub layers: Vec<Layer>,
}

/// One layer, compressed and not.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Describes the compressed blob.
    pub blob: Descriptor,
    /// Hash of the tar archive in it.
    pub diff_id: Digest,
    /// That archive.
    pub tar: Vec<u8>,
}

/// What is wrong with a layout.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A descriptor in `index.json` has no name, or two that differ.
    #[error("image {0} has no name, or two that differ")]
    Unnamed(Digest),
    /// A name occurs twice.
    #[error("image {0} occurs twice")]
    Twice(String),
    /// A blob that something points at is not there.
    #[error("blob {digest} is missing, which {parent} points at")]
    Missing {
        /// Which.
        digest: Digest,
        /// What points at it.
        parent: String,
    },
    /// A blob has another length than its descriptor says.
    #[error("blob {digest} has {found} bytes, {parent} says {expected}")]
    Size {
        /// Which.
        digest: Digest,
        /// What points at it.
        parent: String,
        /// By the descriptor.
        expected: u64,
        /// Really.
        found: u64,
    },
    /// A JSON blob does not parse.
    #[error("blob {digest} is no {media_type}")]
    Json {
        /// Which.
        digest: Digest,
        /// What it should be.
        media_type: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A descriptor has a media type that does not belong there.
    #[error("{parent} points at {digest} of the media type {media_type}")]
    MediaType {
        /// Which.
        digest: Digest,
        /// What points at it.
        parent: String,
        /// What it says it is.
        media_type: String,
    },
    /// Index and configuration name different platforms.
    #[error("manifest {0} stands in the index for another platform than its configuration names")]
    Platform(Digest),
    /// There is not one `diff_id` per layer.
    #[error("configuration {0} has not one diff_id per layer")]
    DiffIds(Digest),
    /// A layer cannot be uncompressed.
    #[error("layer {digest}: {reason}")]
    Unpack {
        /// Which.
        digest: Digest,
        /// Why.
        reason: String,
    },
    /// A layer's content has another hash than the configuration says.
    #[error("layer {digest} holds {found}, its configuration says {expected}")]
    DiffId {
        /// The compressed layer.
        digest: Digest,
        /// By the configuration.
        expected: Digest,
        /// By its bytes.
        found: Digest,
    },
    /// A blob that nothing points at.
    #[error("blob {0} belongs to no image")]
    Unreachable(Digest),
}

/// Follows a whole layout.
pub fn images(layout: &Layout, unpack: Unpack<'_>) -> Result<Vec<Image>, Error> {
    let mut walk = Walk {
        layout,
        unpack,
        seen: BTreeSet::new(),
    };
    let mut names = BTreeSet::new();
    let mut images = Vec::new();
    for descriptor in &layout.images {
        let reference = name(descriptor)?;
        if !names.insert(reference.clone()) {
            return Err(Error::Twice(reference));
        }
        images.push(Image {
            platforms: walk.platforms(descriptor, &reference)?,
            digest: descriptor.digest,
            reference,
        });
    }
    match layout
        .blobs
        .keys()
        .find(|digest| !walk.seen.contains(*digest))
    {
        Some(digest) => Err(Error::Unreachable(*digest)),
        None => Ok(images),
    }
}

fn name(descriptor: &Descriptor) -> Result<String, Error> {
    let value = |key| descriptor.annotations.get(key);
    match (value(oci::CONTAINERD_NAME), value(oci::REF_NAME)) {
        (Some(one), Some(two)) if one == two => Ok(one.clone()),
        _ => Err(Error::Unnamed(descriptor.digest)),
    }
}

struct Walk<'a> {
    layout: &'a Layout,
    unpack: Unpack<'a>,
    seen: BTreeSet<Digest>,
}

impl Walk<'_> {
    fn platforms(&mut self, top: &Descriptor, parent: &str) -> Result<Vec<PlatformImage>, Error> {
        match top.media_type.as_str() {
            oci::MANIFEST | oci::DOCKER_MANIFEST => Ok(vec![self.platform(top, parent)?]),
            oci::INDEX | oci::DOCKER_LIST => {
                let index: Index = self.json(top, parent)?;
                let parent = format!("index {}", top.digest);
                index
                    .manifests
                    .iter()
                    .map(|manifest| self.platform(manifest, &parent))
                    .collect()
            }
            _ => Err(media_type(top, parent)),
        }
    }

    fn platform(&mut self, descriptor: &Descriptor, parent: &str) -> Result<PlatformImage, Error> {
        if !matches!(
            descriptor.media_type.as_str(),
            oci::MANIFEST | oci::DOCKER_MANIFEST
        ) {
            return Err(media_type(descriptor, parent));
        }
        let manifest: Manifest = self.json(descriptor, parent)?;
        let parent = format!("manifest {}", descriptor.digest);
        if !matches!(
            manifest.config.media_type.as_str(),
            oci::CONFIG | oci::DOCKER_CONFIG
        ) {
            return Err(media_type(&manifest.config, &parent));
        }
        let config: ImageConfig = self.json(&manifest.config, &parent)?;
        let named = descriptor.platform.as_ref();
        if !named.is_some_and(|named| same_platform(named, &config.platform)) {
            return Err(Error::Platform(descriptor.digest));
        }
        if config.rootfs.diff_ids.len() != manifest.layers.len() {
            return Err(Error::DiffIds(manifest.config.digest));
        }
        let layers = manifest.layers.into_iter().zip(config.rootfs.diff_ids);
        let layers = layers.map(|(blob, diff_id)| self.layer(blob, diff_id, &parent));
        Ok(PlatformImage {
            layers: layers.collect::<Result<_, _>>()?,
            platform: named.cloned().unwrap_or(config.platform),
            manifest: descriptor.clone(),
            config: manifest.config,
        })
    }

    fn layer(&mut self, blob: Descriptor, diff_id: Digest, parent: &str) -> Result<Layer, Error> {
        let digest = blob.digest;
        let tar = (self.unpack)(&blob.media_type, self.blob(&blob, parent)?)
            .map_err(|reason| Error::Unpack { digest, reason })?;
        let found = sha256(&tar);
        if found != diff_id {
            return Err(Error::DiffId {
                digest,
                expected: diff_id,
                found,
            });
        }
        Ok(Layer { blob, diff_id, tar })
    }

    fn json<T: serde::de::DeserializeOwned>(
        &mut self,
        descriptor: &Descriptor,
        parent: &str,
    ) -> Result<T, Error> {
        oci::from_bytes(self.blob(descriptor, parent)?).map_err(|source| Error::Json {
            digest: descriptor.digest,
            media_type: descriptor.media_type.clone(),
            source,
        })
    }

    fn blob(&mut self, descriptor: &Descriptor, parent: &str) -> Result<&[u8], Error> {
        let digest = descriptor.digest;
        let parent = || parent.to_owned();
        let bytes = self
            .layout
            .blobs
            .get(&digest)
            .ok_or_else(|| Error::Missing {
                digest,
                parent: parent(),
            })?;
        let found = bytes.len() as u64;
        if found != descriptor.size {
            return Err(Error::Size {
                digest,
                parent: parent(),
                expected: descriptor.size,
                found,
            });
        }
        self.seen.insert(digest);
        Ok(bytes)
    }
}

/// Builders differ in whether they say the variant in both places; one that both say is the same.
fn same_platform(index: &Platform, config: &Platform) -> bool {
    let variants = (index.variant.as_ref(), config.variant.as_ref());
    let is_same = match variants {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    is_same && index.architecture == config.architecture && index.os == config.os
}

fn media_type(descriptor: &Descriptor, parent: &str) -> Error {
    Error::MediaType {
        digest: descriptor.digest,
        parent: parent.to_owned(),
        media_type: descriptor.media_type.clone(),
    }
}
