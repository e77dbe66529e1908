//! Follows every digest of a layout: name → index → manifest → configuration and layers → uncompressed layers.
//!
//! Nothing is trusted before it was hashed, every blob must be reached, and the first fault is reported. Layers are hashed as streams, so
//! that an image that unpacks to much takes no memory.

use std::{
    collections::BTreeSet,
    io::{self, Read},
};

use flate2::bufread::MultiGzDecoder;

use crate::{
    digest::{self, Digest},
    layout::Layout,
    oci::{self, Descriptor, ImageConfig, Index, Manifest, Platform},
};

/// The largest number of bytes that all layers of a layout together have when they are unpacked.
pub const MAX_UNPACKED: u64 = 1 << 30;

/// A named image and everything that it consists of.
#[derive(Debug, Clone)]
pub struct Image {
    /// The full reference.
    pub reference: String,
    /// The digest that the name points to: that of an index, or of a manifest in an archive of one platform.
    pub digest: Digest,
    pub platforms: Vec<PlatformImage>,
}

#[derive(Debug, Clone)]
pub struct PlatformImage {
    pub platform: Platform,
    /// Describes the manifest.
    pub manifest: Descriptor,
    /// Describes the configuration.
    pub config: Descriptor,
    /// The layers, from the bottom to the top.
    pub layers: Vec<Layer>,
}

/// One layer, compressed and uncompressed.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Describes the compressed blob.
    pub blob: Descriptor,
    /// The digest of the uncompressed tar archive.
    pub diff_id: Digest,
    /// The length of the uncompressed tar archive, which [`unpack`] returns.
    pub size: u64,
}

/// The ways in which a layout can be wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A descriptor in `index.json` has no name, or two that differ.
    #[error("image {0} has no name, or two that differ")]
    Unnamed(Digest),
    /// A name occurs twice.
    #[error("image {0} occurs twice")]
    Duplicate(String),
    /// A descriptor points to a blob that is not in the layout.
    #[error("blob {digest} is missing, which {parent} points to")]
    Missing {
        /// The blob's digest.
        digest: Digest,
        /// The image, index or manifest that points to the blob.
        parent: String,
    },
    /// A blob has another length than its descriptor says.
    #[error("blob {digest} has {found} bytes, {parent} says {expected}")]
    Size {
        /// The blob's digest.
        digest: Digest,
        /// The image, index or manifest that points to the blob.
        parent: String,
        /// The length in the descriptor.
        expected: u64,
        /// The length of the blob.
        found: u64,
    },
    /// A JSON blob does not parse.
    #[error("blob {digest} is not a valid {media_type}")]
    Json {
        /// The blob's digest.
        digest: Digest,
        /// The media type that its descriptor names.
        media_type: String,
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
    /// A descriptor has a media type that is not allowed in its place.
    #[error(
        "{parent} points to {digest} of the media type {media_type}, which is not allowed there"
    )]
    MediaType {
        /// The blob's digest.
        digest: Digest,
        /// The image, index or manifest that points to the blob.
        parent: String,
        /// The media type that the descriptor names.
        media_type: String,
    },
    /// Index and configuration name different platforms.
    #[error("the index lists manifest {0} for another platform than its configuration names")]
    Platform(Digest),
    /// The number of `diff_ids` differs from the number of layers.
    #[error("configuration {0} does not have one diff_id per layer")]
    DiffIds(Digest),
    /// A layer cannot be decompressed.
    #[error("layer {digest} cannot be unpacked")]
    Unpack {
        /// The compressed layer.
        digest: Digest,
        /// The media type that is not one of a layer, or the decoder's error.
        #[source]
        source: io::Error,
    },
    /// The layers unpack to more than [`MAX_UNPACKED`] bytes together.
    #[error("the layers up to {0} unpack to more than {MAX_UNPACKED} bytes")]
    Budget(Digest),
    /// A layer's content has another digest than the configuration says.
    #[error("layer {digest} holds {found}, its configuration says {expected}")]
    DiffId {
        /// The compressed layer.
        digest: Digest,
        /// The digest in the configuration.
        expected: Digest,
        /// The digest of the uncompressed layer.
        found: Digest,
    },
    /// No image needs this blob.
    #[error("blob {0} belongs to no image")]
    Unreachable(Digest),
}

/// Verifies a complete layout and returns its images.
pub fn images(layout: &Layout) -> Result<Vec<Image>, Error> {
    let mut verifier = Verifier {
        layout,
        left: MAX_UNPACKED,
        seen: BTreeSet::new(),
    };
    let mut names = BTreeSet::new();
    let mut images = Vec::new();
    for descriptor in &layout.images {
        let reference = name(descriptor)?;
        if !names.insert(reference.clone()) {
            return Err(Error::Duplicate(reference));
        }
        images.push(Image {
            platforms: verifier.platforms(descriptor, &reference)?,
            digest: descriptor.digest,
            reference,
        });
    }
    match layout
        .blobs
        .keys()
        .find(|digest| !verifier.seen.contains(*digest))
    {
        Some(digest) => Err(Error::Unreachable(*digest)),
        None => Ok(images),
    }
}

/// Returns the uncompressed bytes of a verified layer, made from those of its blob.
pub fn unpack(layer: &Layer, blob: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader(&layer.blob.media_type, blob)?
        .take(layer.size)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a layer of this media type uncompressed. Some builders write several gzip members; bytes after the last one are an error.
fn reader<'a>(media_type: &str, bytes: &'a [u8]) -> io::Result<Box<dyn Read + 'a>> {
    match media_type {
        oci::LAYER_GZIP | oci::DOCKER_LAYER => Ok(Box::new(MultiGzDecoder::new(bytes))),
        oci::LAYER => Ok(Box::new(bytes)),
        other => Err(io::Error::other(format!(
            "its media type is {other}: make its layers with gzip"
        ))),
    }
}

fn name(descriptor: &Descriptor) -> Result<String, Error> {
    let value = |key| descriptor.annotations.get(key);
    match (value(oci::CONTAINERD_NAME), value(oci::REF_NAME)) {
        (Some(one), Some(two)) if one == two => Ok(one.clone()),
        _ => Err(Error::Unnamed(descriptor.digest)),
    }
}

struct Verifier<'a> {
    layout: &'a Layout,
    /// The bytes that the remaining layers may have.
    left: u64,
    seen: BTreeSet<Digest>,
}

impl<'a> Verifier<'a> {
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
        let left = self.left;
        let hashed = reader(&blob.media_type, self.blob(&blob, parent)?)
            .and_then(|from| digest::copy(from.take(left.saturating_add(1)), io::sink()));
        let (found, size) = hashed.map_err(|source| Error::Unpack { digest, source })?;
        self.left = left.checked_sub(size).ok_or(Error::Budget(digest))?;
        if found != diff_id {
            return Err(Error::DiffId {
                digest,
                expected: diff_id,
                found,
            });
        }
        Ok(Layer {
            blob,
            diff_id,
            size,
        })
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

    fn blob(&mut self, descriptor: &Descriptor, parent: &str) -> Result<&'a [u8], Error> {
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

/// Some builders write the variant in only one of the two places; where both have one, the two must be equal.
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
