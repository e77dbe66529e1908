//! The documents of a release about its images, as a push attaches them.

use std::{collections::BTreeMap, path::Path};

use anyhow::Context as _;
use archive::{
    layout::Layout,
    oci::{self, Descriptor, Index},
};

use registry::{
    Error, Registry,
    push::PushStats,
    referrers::{self, Document},
};
use release::{arch::Arch, names, sbom, tree::Tree};

/// The lists of what is inside of one platform of an image.
pub(super) struct Attachment {
    /// The path below the registry.
    pub(super) repository: String,
    subject: Descriptor,
    documents: Vec<Document>,
}

impl Attachment {
    /// Returns the bytes of the documents.
    pub(super) fn size(&self) -> u64 {
        let sizes = self.documents.iter().map(|one| one.bytes.len());
        sizes.sum::<usize>() as u64
    }

    /// Returns the name of the platform's manifest in a registry.
    pub(super) fn name(&self, host: &str) -> String {
        format!("{host}/{}@{}", self.repository, self.subject.digest)
    }

    /// Sends what the registry does not have.
    pub(super) fn send(
        &self,
        registry: &Registry,
        progress: &dyn Fn(u64),
    ) -> Result<PushStats, Error> {
        referrers::attach(
            registry,
            &self.repository,
            &self.subject,
            &self.documents,
            progress,
        )
    }
}

/// Returns what a release has to attach: nothing where it has no lists.
pub(super) fn attachments(dist: &Path) -> anyhow::Result<Vec<Attachment>> {
    if !dist.join(sbom::DIR).is_dir() {
        return Ok(Vec::new());
    }
    let lists = Tree::read(&dist.join(sbom::DIR))?;
    let layout = Layout::read(&dist.join("oci"))?;
    let mut attachments = Vec::new();
    for image in &layout.images {
        let name = image.annotations.get(oci::REF_NAME);
        let name = name.context("an image has a name")?;
        let reference = names::reference(name).with_context(|| name.clone())?;
        let index = layout.blobs.get(&image.digest);
        let index: Index = oci::from_bytes(index.with_context(|| name.clone())?)?;
        for subject in index.manifests {
            let platform = subject.platform.as_ref();
            let arch = platform.and_then(|platform| Arch::parse(&platform.architecture));
            let documents = arch.map(|arch| documents(&lists, arch, name, &subject));
            attachments.push(Attachment {
                repository: reference.repository().to_owned(),
                documents: documents.unwrap_or_default(),
                subject,
            });
        }
    }
    attachments.retain(|one| !one.documents.is_empty());
    Ok(attachments)
}

/// Returns the lists that name this manifest: an image of others may have the last part of its name in common with one of this project.
fn documents(lists: &Tree, arch: Arch, reference: &str, subject: &Descriptor) -> Vec<Document> {
    let digest = subject.digest.hex();
    let path = sbom::image_document(arch, reference);
    let path = path.strip_prefix(sbom::DIR).unwrap_or(&path);
    let bytes = lists.get(path);
    let own = bytes.filter(|bytes| String::from_utf8_lossy(bytes).contains(&digest));
    let document = |bytes: &[u8]| Document {
        media_type: sbom::cyclonedx::MEDIA_TYPE.to_owned(),
        title: path.rsplit('/').next().unwrap_or(path).to_owned(),
        bytes: bytes.to_vec(),
        annotations: BTreeMap::new(),
    };
    own.map(document).into_iter().collect()
}
