//! The part of a layout that one architecture's archive has ([`archive::image_archive`]), and the way back.
//!
//! The layout's own index spans all architectures; the archive names the manifest of its one architecture, since agents before
//! mid 2024 refuse an archive that names a blob it does not hold.

use crate::names;
use archive::{
    digest::Digest,
    layout::Layout,
    oci::{self, Descriptor, Index, Manifest},
};

/// Why an archive cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("image {image} has no manifest for {architecture}")]
    Architecture {
        /// Digest of the image's index.
        image: Digest,
        architecture: String,
    },
    #[error("`{0}` is not the name of an image: make the layout again with `cargo xtask images`")]
    Name(String),
    #[error("blob {0} is missing")]
    Missing(Digest),
    #[error("blob {digest} is damaged")]
    Damaged {
        digest: Digest,
        #[source]
        source: serde_json::Error,
    },
}

/// Returns the part of a layout that one architecture needs, whose top level names manifests instead of indexes.
pub fn slice(layout: &Layout, architecture: &str) -> Result<Layout, Error> {
    let mut part = Layout::default();
    for image in &layout.images {
        let name = image.annotations.get(oci::REF_NAME).cloned();
        let name = name.unwrap_or_default();
        if names::reference(&name).is_none() {
            return Err(Error::Name(name));
        }
        let index: Index = read(layout, image)?;
        let manifests = index.manifests.into_iter();
        let mut manifest = manifests
            .into_iter()
            .find(|manifest| {
                let platform = manifest.platform.as_ref();
                platform.is_some_and(|platform| platform.architecture == architecture)
            })
            .ok_or_else(|| Error::Architecture {
                image: image.digest,
                architecture: architecture.to_owned(),
            })?;
        let parsed: Manifest = read(layout, &manifest)?;
        let needed = [&manifest, &parsed.config]
            .into_iter()
            .chain(&parsed.layers);
        for descriptor in needed {
            let bytes = blob(layout, descriptor)?.to_vec();
            part.blobs.insert(descriptor.digest, bytes);
        }
        manifest.annotations.clone_from(&image.annotations);
        part.images.push(manifest);
    }
    Ok(part)
}

/// Returns the layout of slices, one per architecture, in which each image has an index again.
///
/// The slices of all architectures of a release give the index that the release has, byte by byte.
pub fn join(parts: &[Layout]) -> Result<Layout, Error> {
    let mut layout = Layout::default();
    let mut children: Vec<(String, Vec<Descriptor>)> = Vec::new();
    for part in parts {
        layout.blobs.extend(part.blobs.clone());
        for image in &part.images {
            let name = image.annotations.get(oci::REF_NAME).cloned();
            let name = name.unwrap_or_default();
            if names::reference(&name).is_none() {
                return Err(Error::Name(name));
            }
            let mut manifest = image.clone();
            manifest.annotations.clear();
            match children.iter_mut().find(|(known, _)| *known == name) {
                Some((_, manifests)) => manifests.push(manifest),
                None => children.push((name, vec![manifest])),
            }
        }
    }
    for (name, manifests) in children {
        let index = layout.add(oci::INDEX, oci::to_bytes(&Index::of(manifests)));
        layout.images.push(index.named(&name));
    }
    Ok(layout)
}

fn read<T: serde::de::DeserializeOwned>(
    layout: &Layout,
    descriptor: &Descriptor,
) -> Result<T, Error> {
    oci::from_bytes(blob(layout, descriptor)?).map_err(|source| Error::Damaged {
        digest: descriptor.digest,
        source,
    })
}

fn blob<'a>(layout: &'a Layout, descriptor: &Descriptor) -> Result<&'a [u8], Error> {
    let found = layout.blobs.get(&descriptor.digest);
    found
        .map(Vec::as_slice)
        .ok_or(Error::Missing(descriptor.digest))
}
