//! The few OCI image types that are written and read here (image-spec v1.1), in the key order they are written in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::digest::{Digest, sha256};

/// Media type of an image index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media type of an image manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of an image configuration.
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Media type of a zstd layer.
pub const LAYER_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
/// Media type of a gzip layer.
pub const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// Media type of a plain layer.
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// Docker's media type of what is [`INDEX`] here.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Docker's media type of what is [`MANIFEST`] here.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker's media type of what is [`CONFIG`] here.
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
/// Docker's media type of what is [`LAYER_GZIP`] here.
pub const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
/// Annotation that containerd takes an imported image's name from.
pub const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// Annotation that other readers take the name from.
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Points at a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What the blob is.
    pub media_type: String,
    /// Its hash.
    pub digest: Digest,
    /// Its length.
    pub size: u64,
    /// For a manifest in an index: what it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Names, in a layout's `index.json`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What an image runs on, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// `GOARCH`.
    pub architecture: String,
    /// `GOOS`.
    pub os: String,
    /// `v7` for arm; absent for arm64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// An index: the manifests of one image, or the images of a layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// Always 2.
    pub schema_version: u32,
    /// [`INDEX`]; others leave it out, or write docker's.
    #[serde(default)]
    pub media_type: String,
    /// What it lists.
    pub manifests: Vec<Descriptor>,
}

/// One platform's image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always 2.
    pub schema_version: u32,
    /// [`MANIFEST`]; others leave it out, or write docker's.
    #[serde(default)]
    pub media_type: String,
    /// The [`ImageConfig`].
    pub config: Descriptor,
    /// Bottom first.
    pub layers: Vec<Descriptor>,
    /// What people read of it, where it is no image.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What a runtime does with the layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// RFC 3339.
    #[serde(default)]
    pub created: String,
    /// Where it runs.
    #[serde(flatten)]
    pub platform: Platform,
    /// How it starts.
    #[serde(default)]
    pub config: RunConfig,
    /// Hashes of the uncompressed layers.
    pub rootfs: RootFs,
    /// One line per layer.
    #[serde(default)]
    pub history: Vec<History>,
}

/// How a container of the image starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct RunConfig {
    /// Numeric user and group.
    pub user: String,
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The layers, uncompressed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootFs {
    /// Always `layers`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Bottom first.
    pub diff_ids: Vec<Digest>,
}

/// Where a layer came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// RFC 3339.
    #[serde(default)]
    pub created: String,
    /// What made it.
    #[serde(default)]
    pub created_by: String,
}

impl Descriptor {
    /// Describes these bytes.
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: sha256(bytes),
            size: bytes.len() as u64,
            platform: None,
            annotations: BTreeMap::new(),
        }
    }

    /// The same with both name annotations, so that every reader finds the full reference.
    #[must_use]
    pub fn named(mut self, reference: &str) -> Self {
        for key in [CONTAINERD_NAME, REF_NAME] {
            self.annotations
                .insert(key.to_owned(), reference.to_owned());
        }
        self
    }
}

impl Index {
    /// An index of these.
    pub fn of(manifests: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: INDEX.to_owned(),
            manifests,
        }
    }
}

impl Manifest {
    /// A manifest of this configuration and these layers.
    pub fn of(config: Descriptor, layers: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: MANIFEST.to_owned(),
            config,
            layers,
            annotations: BTreeMap::new(),
        }
    }
}

/// The constant for a media type of manifests and indexes.
pub fn manifest_kind(media_type: &str) -> Option<&'static str> {
    [INDEX, MANIFEST, DOCKER_LIST, DOCKER_MANIFEST]
        .into_iter()
        .find(|known| *known == media_type)
}

/// Whether a media type is that of several platforms.
pub fn is_index(media_type: &str) -> bool {
    matches!(media_type, INDEX | DOCKER_LIST)
}

/// Compact JSON without a newline: the form every blob has.
pub fn to_bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("these types have text keys and no floats")
}

/// Reads a blob; the error names what is wrong in it.
pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_in_the_usual_order() {
        let platform = Platform {
            architecture: "arm".into(),
            os: "linux".into(),
            variant: Some("v7".into()),
        };
        let mut image = Descriptor::of(MANIFEST, b"{}").named("r/i:v1");
        image.platform = Some(platform);
        let text = String::from_utf8(to_bytes(&Index::of(vec![image]))).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"#,
                r#""mediaType":"application/vnd.oci.image.manifest.v1+json","#,
                r#""digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2,"#,
                r#""platform":{"architecture":"arm","os":"linux","variant":"v7"},"#,
                r#""annotations":{"io.containerd.image.name":"r/i:v1","org.opencontainers.image.ref.name":"r/i:v1"}}]}"#
            )
        );
    }
}
