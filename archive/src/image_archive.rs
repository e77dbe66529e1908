//! One archive that every importer reads: an OCI layout and docker's `manifest.json` over the same blobs.
//!
//! Metadata comes first, so that a reader finds an image without scanning the complete file. An archive that is read must have exactly the
//! bytes that are written for its images: no entry, and no byte after the end, that another importer may take for something else.

use serde::Serialize;

use crate::{
    digest::Digest,
    layout::{self, Layout, blob_path},
    oci::{self, Manifest},
    read::{self, Limits},
    tar::{self, Entry},
    verify,
};

/// The largest archive that is read, in bytes.
pub const MAX_SIZE: u64 = 64 << 20;
const LIMITS: Limits = Limits {
    entries: 10_000,
    total: MAX_SIZE,
    links: false,
};

/// An image in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The full reference.
    pub reference: String,
    /// The digest of its manifest.
    pub digest: Digest,
}

/// Why an archive cannot be written, or is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An image has no manifest in the layout, or a damaged one.
    #[error("manifest {0} is missing or damaged")]
    Manifest(Digest),
    /// A path cannot be written.
    #[error(transparent)]
    Tar(#[from] tar::Error),
    /// The bytes are not an archive.
    #[error(transparent)]
    Read(#[from] read::Error),
    /// The entries are not a layout.
    #[error(transparent)]
    Layout(#[from] layout::Error),
    /// A digest does not lead to what it names.
    #[error(transparent)]
    Images(#[from] verify::Error),
    /// An image is for another architecture than the name of the archive says.
    #[error("it holds {reference} for {found}: it was renamed or swapped")]
    Architecture {
        /// The image's name.
        reference: String,
        /// The image's architecture.
        found: String,
    },
    /// The archive has another entry in this place than the images make.
    #[error("entry {0} does not follow from its images")]
    Entry(String),
    /// Headers, padding or the end have other bytes.
    #[error("it has bytes outside of its entries")]
    Trailing,
}

/// One image in docker's `manifest.json`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct DockerItem {
    config: String,
    repo_tags: Vec<String>,
    layers: Vec<String>,
}

/// Returns the archive of a layout whose top level names manifests.
pub fn write(layout: &Layout) -> Result<Vec<u8>, Error> {
    Ok(tar::write_in_order(&entries(layout)?)?)
}

/// Returns the entries of the archive of a layout, in their order.
pub fn entries(layout: &Layout) -> Result<Vec<Entry>, Error> {
    let mut files = layout.files().into_iter();
    let docker = oci::to_bytes(&docker_items(layout)?);
    let mut entries: Vec<Entry> = files
        .by_ref()
        .take(2)
        .map(|(path, bytes)| Entry::file(path, 0o644, bytes))
        .collect();
    entries.push(Entry::file("manifest.json", 0o644, docker));
    entries.push(Entry::dir("blobs", 0o755));
    entries.push(Entry::dir("blobs/sha256", 0o755));
    entries.extend(files.map(|(path, bytes)| Entry::file(path, 0o644, bytes)));
    Ok(entries)
}

fn docker_items(layout: &Layout) -> Result<Vec<DockerItem>, Error> {
    let items = layout.images.iter().map(|image| {
        let manifest = layout.blobs.get(&image.digest);
        let manifest = manifest.and_then(|bytes| oci::from_bytes::<Manifest>(bytes).ok());
        let manifest = manifest.ok_or(Error::Manifest(image.digest))?;
        let name = image.annotations.get(oci::REF_NAME).cloned();
        let layers = manifest.layers.iter();
        Ok(DockerItem {
            config: blob_path(&manifest.config.digest),
            repo_tags: name.into_iter().collect(),
            layers: layers.map(|layer| blob_path(&layer.digest)).collect(),
        })
    });
    items.collect()
}

/// Reads an archive, follows every digest in it, and returns it with the verified images.
pub fn read(bytes: &[u8]) -> Result<(Layout, Vec<verify::Image>), Error> {
    let layout = Layout::from_entries(read::entries(bytes, &LIMITS)?)?;
    let images = verify::images(&layout)?;
    if write(&layout)? != bytes {
        check_entries(&read::entries(bytes, &LIMITS)?, &entries(&layout)?)?;
        return Err(Error::Trailing);
    }
    Ok((layout, images))
}

/// Reads an archive, all of whose images must be for this architecture.
pub fn read_for(bytes: &[u8], architecture: &str) -> Result<(Layout, Vec<Image>), Error> {
    let (layout, images) = read(bytes)?;
    let images = images.into_iter().map(|image| {
        let mut platforms = image.platforms.iter().map(|one| &one.platform);
        match platforms.find(|platform| platform.architecture != architecture) {
            Some(platform) => Err(Error::Architecture {
                found: platform.architecture.clone(),
                reference: image.reference,
            }),
            None => Ok(Image {
                reference: image.reference,
                digest: image.digest,
            }),
        }
    });
    let images = images.collect::<Result<_, _>>()?;
    Ok((layout, images))
}

fn check_entries(found: &[Entry], expected: &[Entry]) -> Result<(), Error> {
    let mut pairs = found.iter().zip(expected);
    let differing = pairs.find_map(|(found, expected)| (found != expected).then_some(found));
    let differing = differing
        .or_else(|| found.get(expected.len()))
        .or_else(|| expected.get(found.len()));
    match differing {
        Some(entry) => Err(Error::Entry(entry.path.clone())),
        None => Ok(()),
    }
}
