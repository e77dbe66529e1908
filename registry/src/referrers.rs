//! Attaches documents to images in a registry: each is an artifact whose manifest names the image as its subject (OCI image and
//! distribution specifications 1.1). The image itself stays as it is.
//!
//! A registry without the API for referrers gets the index that clients look for then, under a tag made of the image's digest. Entries of
//! others in that index stay.

use std::collections::BTreeMap;

use archive::{
    digest::{Digest, sha256},
    oci::{self, Descriptor},
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    Error, Registry, optional,
    push::{self, PushStats},
};

/// Media type of the configuration of artifacts, which have none.
const EMPTY: &str = "application/vnd.oci.empty.v1+json";
const EMPTY_BYTES: &[u8] = b"{}";
/// The annotation with the name of a document.
const TITLE: &str = "org.opencontainers.image.title";

/// A document about an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Its media type, which is the type of its artifact too.
    pub media_type: String,
    /// Its file name.
    pub title: String,
    /// Its content.
    pub bytes: Vec<u8>,
    /// The annotations of its artifact, by which clients choose.
    pub annotations: BTreeMap<String, String>,
}

/// The manifest of an artifact.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    schema_version: u32,
    media_type: &'static str,
    artifact_type: &'a str,
    config: Descriptor,
    layers: [Descriptor; 1],
    subject: &'a Descriptor,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
}

/// Returns the bytes of the manifest that ties a document to its subject.
pub fn manifest(subject: &Descriptor, document: &Document) -> Vec<u8> {
    let mut layer = Descriptor::of(&document.media_type, &document.bytes);
    layer
        .annotations
        .insert(TITLE.to_owned(), document.title.clone());
    // Platform and names are of the index in which the subject stands.
    let subject = Descriptor {
        platform: None,
        annotations: BTreeMap::new(),
        ..subject.clone()
    };
    oci::to_bytes(&Manifest {
        schema_version: 2,
        media_type: oci::MANIFEST,
        artifact_type: &document.media_type,
        config: Descriptor::of(EMPTY, EMPTY_BYTES),
        layers: [layer],
        subject: &subject,
        annotations: &document.annotations,
    })
}

/// Returns the tag of the index of an image's referrers, for registries without their API.
pub fn fallback_tag(subject: &Digest) -> String {
    format!("sha256-{}", subject.hex())
}

/// Returns the index with these manifests in it, or `None` when it has them all. An index that is damaged is replaced.
fn with_manifests(index: Option<&[u8]>, manifests: &[(&str, Vec<u8>)]) -> Option<Vec<u8>> {
    let parsed = index.and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    let mut index = parsed
        .filter(|index| index["manifests"].is_array())
        .unwrap_or_else(|| json!({"schemaVersion": 2, "mediaType": oci::INDEX, "manifests": []}));
    let known = index["manifests"].as_array_mut()?;
    let before = known.len();
    for (artifact_type, bytes) in manifests {
        let digest = sha256(bytes).to_string();
        if !known.iter().any(|one| one["digest"] == *digest) {
            known.push(json!({
                "mediaType": oci::MANIFEST,
                "digest": digest,
                "size": bytes.len(),
                "artifactType": artifact_type,
            }));
        }
    }
    (known.len() > before).then(|| oci::to_bytes(&index))
}

/// Sends what the registry does not have of these documents about a manifest in it.
pub fn attach(
    registry: &Registry,
    repository: &str,
    subject: &Descriptor,
    documents: &[Document],
    progress: &dyn Fn(u64),
) -> Result<PushStats, Error> {
    let mut stats = PushStats::default();
    let mut count = |is_present, len| stats.count(is_present, len, progress);
    let mut manifests = Vec::new();
    for document in documents {
        for bytes in [EMPTY_BYTES, &document.bytes] {
            let is_present = push::blob(registry, repository, &sha256(bytes), bytes)?;
            count(is_present, bytes.len());
        }
        let bytes = manifest(subject, document);
        let name = sha256(&bytes).to_string();
        let is_present = registry.digest_of(repository, &name)?.is_some();
        if !is_present {
            registry.push_manifest(repository, &name, oci::MANIFEST, &bytes)?;
        }
        count(is_present, bytes.len());
        manifests.push((document.media_type.as_str(), bytes));
    }
    if !manifests.is_empty() && !registry.lists_referrers(repository, &subject.digest)? {
        let tag = fallback_tag(&subject.digest);
        let index = optional(registry.manifest(repository, &tag))?;
        if let Some(index) = with_manifests(index.as_deref(), &manifests) {
            registry.push_manifest(repository, &tag, oci::INDEX, &index)?;
            count(false, index.len());
        }
    }
    Ok(stats)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(media_type: &str) -> Document {
        Document {
            media_type: media_type.into(),
            title: "multus.json".into(),
            bytes: b"{}".to_vec(),
            annotations: BTreeMap::new(),
        }
    }

    #[test]
    fn manifest_names_its_subject_and_no_name_of_it() {
        let subject = Descriptor::of(oci::MANIFEST, b"image").named("r.example/x:v1");
        let bytes = manifest(&subject, &document("application/vnd.cyclonedx+json"));
        let text = String::from_utf8(bytes).unwrap();
        let empty = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        let expected = format!(
            r#"{{"schemaVersion":2,"mediaType":"{}","artifactType":"application/vnd.cyclonedx+json","config":{{"mediaType":"{EMPTY}","digest":"{empty}","size":2}},"layers":[{{"mediaType":"application/vnd.cyclonedx+json","digest":"{empty}","size":2,"annotations":{{"{TITLE}":"multus.json"}}}}],"subject":{{"mediaType":"{}","digest":"{}","size":5}}}}"#,
            oci::MANIFEST,
            oci::MANIFEST,
            sha256(b"image"),
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn index_keeps_entries_of_others_and_has_each_once() {
        let manifests = [("a/b", b"one".to_vec()), ("a/c", b"two".to_vec())];
        let first = with_manifests(None, &manifests[..1]).unwrap();
        let mut other: Value = serde_json::from_slice(&first).unwrap();
        other["manifests"][0]["annotations"] = json!({"x": "y"});
        let other = serde_json::to_vec(&other).unwrap();
        let both = with_manifests(Some(&other), &manifests).unwrap();
        let both_value: Value = serde_json::from_slice(&both).unwrap();
        assert_eq!(both_value["manifests"].as_array().unwrap().len(), 2);
        assert_eq!(both_value["manifests"][0]["annotations"]["x"], "y");
        assert_eq!(both_value["manifests"][1]["artifactType"], "a/c");
        assert_eq!(with_manifests(Some(&both), &manifests), None);
        assert_eq!(
            with_manifests(Some(b"<html>"), &manifests[..1]),
            Some(first)
        );
    }
}
