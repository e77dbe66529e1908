//! The signatures of images and charts, as a push attaches them: bundles as artifacts about the image (cosign 3), and a tag made of the
//! image's digest (cosign 1 and 2).

use std::collections::BTreeMap;

use archive::{
    digest::sha256,
    oci::{self, Descriptor, Manifest},
};
use registry::{
    Error, Registry, optional,
    push::PushStats,
    referrers::{self, Document},
};
use release::{
    signatures::{BUNDLE, IMAGES, PROVENANCE, image, provenance, statement_of_anyone},
    tree::Tree,
};
use serde_json::json;

/// The media type of the signed text.
const PAYLOAD_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation with its signature.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// The annotations by which clients choose among bundles.
const CONTENT: &str = "dev.sigstore.bundle.content";
const PREDICATE_TYPE: &str = "dev.sigstore.bundle.predicateType";

/// Sends the signatures of an image or chart, and the statements about how it was made, that the registry does not have.
pub(super) fn attach(
    registry: &Registry,
    repository: &str,
    subject: &Descriptor,
    signatures: &Tree,
    progress: &dyn Fn(u64),
) -> Result<PushStats, Error> {
    let file = |ending: &str| signatures.get(&format!("{IMAGES}{}{ending}", subject.digest.hex()));
    let mut stats = PushStats::default();
    if let (Some(payload), Some(signature)) = (file(image::PAYLOAD), file(image::PAYLOAD_SIGNATURE))
    {
        let signature = String::from_utf8_lossy(signature).trim().to_owned();
        stats += tag(registry, repository, subject, payload, signature, progress)?;
    }
    let documents: Vec<_> = documents(subject, signatures).collect();
    stats += referrers::attach(registry, repository, subject, &documents, progress)?;
    Ok(stats)
}

/// Returns the bundles about a manifest: its signature, and the statements about how it was made that name its digest.
fn documents(subject: &Descriptor, signatures: &Tree) -> impl Iterator<Item = Document> {
    let digest = subject.digest.hex();
    let own = format!("{IMAGES}{digest}{BUNDLE}");
    let bundles = signatures.0.iter().filter_map(move |(path, file)| {
        let payload = statement_of_anyone(&file.bytes)?;
        let predicate = payload["predicateType"].as_str()?.to_owned();
        let mut subjects = payload["subject"].as_array()?.iter();
        let is_about = subjects.any(|one| one["digest"]["sha256"] == *digest);
        let is_known = (*path == own && predicate == image::PREDICATE)
            || (path.starts_with(PROVENANCE) && predicate == provenance::PREDICATE);
        (is_about && is_known).then_some((path, file, predicate))
    });
    bundles.map(|(path, file, predicate)| {
        let mut annotations = BTreeMap::new();
        annotations.insert(CONTENT.to_owned(), "dsse-envelope".to_owned());
        annotations.insert(PREDICATE_TYPE.to_owned(), predicate);
        Document {
            media_type: signing::bundle::MEDIA_TYPE.to_owned(),
            title: path.rsplit('/').next().unwrap_or(path).to_owned(),
            bytes: file.bytes.clone(),
            annotations,
        }
    })
}

/// Sends the older form: a manifest under a tag of its own, with a layer for each signature. Signatures of others stay.
fn tag(
    registry: &Registry,
    repository: &str,
    subject: &Descriptor,
    payload: &[u8],
    signature: String,
    progress: &dyn Fn(u64),
) -> Result<PushStats, Error> {
    let mut layer = Descriptor::of(PAYLOAD_TYPE, payload);
    layer.annotations.insert(SIGNATURE.to_owned(), signature);
    let tag = format!("{}.sig", referrers::fallback_tag(&subject.digest));
    let former = optional(registry.manifest(repository, &tag))?;
    let former = former.and_then(|bytes| oci::from_bytes::<Manifest>(&bytes).ok());
    let mut layers = former.map(|manifest| manifest.layers).unwrap_or_default();
    let mut stats = PushStats::default();
    let mut count = |is_present, len| stats.count(is_present, len, progress);
    let is_present = layers.contains(&layer);
    if !is_present {
        layers.push(layer);
    }
    let config = config(&layers);
    let manifest = oci::to_bytes(&Manifest::of(Descriptor::of(oci::CONFIG, &config), layers));
    for bytes in [payload, &config] {
        if !is_present {
            registry.push_blob(repository, &sha256(bytes), bytes)?;
        }
        count(is_present, bytes.len());
    }
    if !is_present {
        registry.push_manifest(repository, &tag, oci::MANIFEST, &manifest)?;
    }
    count(is_present, manifest.len());
    Ok(stats)
}

/// Returns the configuration that makes the signatures pass for an image, which every registry takes.
fn config(layers: &[Descriptor]) -> Vec<u8> {
    let digests: Vec<_> = layers.iter().map(|layer| layer.digest).collect();
    oci::to_bytes(&json!({
        "architecture": "",
        "os": "",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": digests},
    }))
}
