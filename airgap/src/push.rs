//! What goes into a registry, and in which order: blobs, manifests of platforms, then the one that gets the name.
//!
//! What is there already is not sent again, so that a second push, and the push of a release that shares blobs with a former one,
//! sends only what is new.

use std::collections::BTreeMap;

use archive::{
    digest::{Digest, sha256},
    layout::Layout,
    oci::{self, Index, Manifest},
};
use oci_client::Reference;

use crate::registry::{self, Registry};

/// Something with a name in a registry: an image, or a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// Below the registry.
    pub repository: String,
    /// Its name there.
    pub tag: String,
    /// What manifests point at.
    pub blobs: BTreeMap<Digest, Vec<u8>>,
    /// Media type and bytes; each after those it points at. The last gets the name.
    pub manifests: Vec<(&'static str, Vec<u8>)>,
}

/// Bytes of blobs and manifests that were sent, and that were there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Sent.
    pub sent: u64,
    /// There already.
    pub present: u64,
}

/// Why an image cannot be made ready.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its name is none.
    #[error("`{0}` is no name of an image")]
    Name(String),
    /// A blob is not in the layout, or damaged.
    #[error("blob {0} is missing or damaged")]
    Blob(Digest),
    /// A manifest is of a kind that is not known here.
    #[error("manifest {digest} is of the kind {media_type}")]
    Kind {
        /// Which.
        digest: Digest,
        /// What it says it is.
        media_type: String,
    },
}

/// Every image of a layout, its registry left out: below another one it has the same path, as mirrors expect.
pub fn parcels(layout: &Layout) -> Result<Vec<Parcel>, Error> {
    let mut parcels = Vec::new();
    for image in &layout.images {
        let name = image.annotations.get(oci::REF_NAME).cloned();
        let name = name.unwrap_or_default();
        let reference: Reference = name.parse().map_err(|_| Error::Name(name.clone()))?;
        let mut parcel = Parcel {
            repository: reference.repository().to_owned(),
            tag: reference.tag().ok_or(Error::Name(name))?.to_owned(),
            blobs: BTreeMap::new(),
            manifests: Vec::new(),
        };
        add(&mut parcel, layout, &image.digest, &image.media_type)?;
        parcels.push(parcel);
    }
    Ok(parcels)
}

fn add(
    parcel: &mut Parcel,
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
            add(parcel, layout, &child.digest, &child.media_type)?;
        }
    } else {
        let manifest: Manifest = oci::from_bytes(bytes).map_err(damaged)?;
        for descriptor in manifest.layers.iter().chain([&manifest.config]) {
            let bytes = blob(&descriptor.digest)?.clone();
            parcel.blobs.insert(descriptor.digest, bytes);
        }
    }
    parcel.manifests.push((known, bytes.clone()));
    Ok(())
}

/// Sends what is not there. The name comes last, so that it never stands for something that is not whole.
pub fn send(
    registry: &Registry,
    parcel: &Parcel,
    progress: &dyn Fn(u64),
) -> Result<Moved, registry::Error> {
    let mut moved = Moved::default();
    let mut count = |is_present: bool, len: usize| {
        let len = len as u64;
        if is_present {
            moved.present += len;
        } else {
            moved.sent += len;
        }
        progress(len);
    };
    let repository = &parcel.repository;
    for (digest, bytes) in &parcel.blobs {
        let is_present = registry.has_blob(repository, digest)?;
        if !is_present {
            registry.push_blob(repository, digest, bytes)?;
        }
        count(is_present, bytes.len());
    }
    for (at, (media_type, bytes)) in parcel.manifests.iter().enumerate() {
        let digest = sha256(bytes);
        let is_last = at + 1 == parcel.manifests.len();
        let name = if is_last {
            parcel.tag.clone()
        } else {
            digest.to_string()
        };
        let is_present = registry.digest_of(repository, &name)? == Some(digest);
        if !is_present {
            registry.push_manifest(repository, &name, media_type, bytes)?;
        }
        count(is_present, bytes.len());
    }
    Ok(moved)
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
    fn children_come_before_what_points_at_them() {
        let layout = layout();
        let [parcel] = &parcels(&layout).unwrap()[..] else {
            panic!("one image");
        };
        assert_eq!(
            (parcel.repository.as_str(), parcel.tag.as_str()),
            ("x/y", "v1")
        );
        assert_eq!(parcel.blobs.len(), 3);
        let kinds: Vec<_> = parcel.manifests.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [oci::MANIFEST, oci::MANIFEST, oci::INDEX]);
    }

    #[test]
    fn what_is_not_whole_is_not_begun() {
        let mut missing = layout();
        missing.blobs.remove(&sha256(b"shared"));
        assert!(matches!(parcels(&missing), Err(Error::Blob(_))));
        let mut unnamed = layout();
        unnamed.images[0].annotations.clear();
        assert!(matches!(parcels(&unnamed), Err(Error::Name(_))));
        let mut other = layout();
        other.images[0] = Descriptor::of("text/plain", b"a").named("r/x/y:v1");
        assert!(matches!(parcels(&other), Err(Error::Kind { .. })));
    }
}
