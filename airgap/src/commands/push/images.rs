//! The images of a layout as artifacts for a registry.

use std::collections::BTreeMap;

use archive::{
    digest::Digest,
    layout::Layout,
    oci::{self, Index, Manifest},
};
use registry::push::Artifact;
use release::names;

/// Why an image cannot be pushed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("`{0}` is not the name of an image: write HOST/REPOSITORY:TAG")]
    Name(String),
    #[error("blob {0} is missing or damaged")]
    Blob(Digest),
    #[error("manifest {digest} is of the unknown kind {media_type}")]
    Kind { digest: Digest, media_type: String },
}

/// Returns every image of a layout without its registry: below another registry it has the same path, as mirrors require.
pub(super) fn artifacts(layout: &Layout) -> Result<Vec<Artifact>, Error> {
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

#[cfg(test)]
mod tests {
    use archive::{digest::sha256, oci::Descriptor};

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
