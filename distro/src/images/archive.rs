//! One archive on a node: the names of its images, and the check of every byte against the digests.

use std::{fs::File, io::Read as _, path::Path};

use anyhow::{Context as _, bail, ensure};
use archive::{
    image_archive,
    oci::{self, Index},
};
use node::root::Root;

use super::arch;

/// Far more than an index with every image that ever was in a release.
const MAX_INDEX: u64 = 4 << 20;

/// Returns the references in an archive, read only from its first entries.
pub(crate) fn references(root: &Root, path: &Path) -> anyhow::Result<Vec<String>> {
    let damaged = || format!("{} is damaged: install it again", path.display());
    let mut tar = tar::Archive::new(root.open_file(path)?);
    for entry in tar.entries().with_context(damaged)? {
        let entry = entry.with_context(damaged)?;
        if entry.path().with_context(damaged)? != Path::new("index.json") {
            continue;
        }
        let mut bytes = Vec::new();
        entry
            .take(MAX_INDEX)
            .read_to_end(&mut bytes)
            .with_context(damaged)?;
        let index: Index = oci::from_bytes(&bytes).with_context(damaged)?;
        let names = index.manifests.iter().filter_map(|image| {
            let name = image.annotations.get(oci::REF_NAME)?;
            Some(name.clone())
        });
        return Ok(names.collect());
    }
    bail!("{} holds no images: install it again", path.display())
}

/// Verifies an archive and returns its images, all of which must be for this node's architecture.
pub(crate) fn images_for_this_node(path: &Path) -> anyhow::Result<Vec<String>> {
    let damaged = || format!("{} is damaged", path.display());
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| {
            file.take(image_archive::MAX_SIZE + 1)
                .read_to_end(&mut bytes)
        })
        .with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(
        bytes.len() as u64 <= image_archive::MAX_SIZE,
        "{} is larger than any archive of a release: install it again",
        path.display()
    );
    let (_, images) = image_archive::read_for(&bytes, arch()).with_context(damaged)?;
    Ok(images.into_iter().map(|image| image.reference).collect())
}
