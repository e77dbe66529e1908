//! The OCI image types that this project writes and reads (image-spec v1.1), with their keys in the order in which they are written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::digest::{Digest, sha256};

/// Media type of an image index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media type of an image manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of an image configuration.
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Media type of a layer compressed with gzip.
pub const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// Media type of an uncompressed layer.
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// Docker's counterpart of [`INDEX`].
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Docker's counterpart of [`MANIFEST`].
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker's counterpart of [`CONFIG`].
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
/// Docker's counterpart of [`LAYER_GZIP`].
pub const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
/// The annotation from which containerd takes the name of an imported image.
pub const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// The annotation from which other readers take the name.
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Describes a blob and points to it by its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The blob's media type.
    pub media_type: String,
    /// The blob's digest.
    pub digest: Digest,
    /// The blob's length in bytes.
    pub size: u64,
    /// The platform, for a manifest in an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Annotations; in a layout's `index.json` they name the image.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The platform that an image runs on, in Go's terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// `GOARCH`.
    pub architecture: String,
    /// `GOOS`.
    pub os: String,
    /// `v7` for arm; `None` for arm64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// An index: the manifests of one image, or the images of a layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// Always 2.
    pub schema_version: u32,
    /// [`INDEX`] in ours; other writers leave it out or use docker's.
    #[serde(default)]
    pub media_type: String,
    pub manifests: Vec<Descriptor>,
}

/// The image of one platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always 2.
    pub schema_version: u32,
    /// [`MANIFEST`] in ours; other writers leave it out or use docker's.
    #[serde(default)]
    pub media_type: String,
    /// Describes the [`ImageConfig`].
    pub config: Descriptor,
    /// The layers, from the bottom to the top.
    pub layers: Vec<Descriptor>,
    /// Title, version and the like, for artifacts that are not images.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// An image's configuration: tells a runtime how to run the layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// The time of creation, as RFC 3339 writes it.
    #[serde(default)]
    pub created: String,
    /// The platform that it runs on.
    #[serde(flatten)]
    pub platform: Platform,
    /// Defaults for its containers.
    #[serde(default)]
    pub config: RunConfig,
    /// Digests of the uncompressed layers.
    pub rootfs: RootFs,
    /// One entry per layer.
    #[serde(default)]
    pub history: Vec<History>,
}

/// The defaults with which a container of the image starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct RunConfig {
    /// User and group, as `uid:gid`.
    pub user: String,
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// Labels of the image.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The digests of the uncompressed layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootFs {
    /// Always `layers`.
    #[serde(rename = "type")]
    pub kind: String,
    /// One digest per layer, from the bottom to the top.
    pub diff_ids: Vec<Digest>,
}

/// The origin of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The time of creation, as RFC 3339 writes it.
    #[serde(default)]
    pub created: String,
    /// The command that made the layer.
    #[serde(default)]
    pub created_by: String,
}

impl Descriptor {
    /// Returns the descriptor of these bytes, without platform and annotations.
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: sha256(bytes),
            size: bytes.len() as u64,
            platform: None,
            annotations: BTreeMap::new(),
        }
    }

    /// Adds both name annotations, so that every reader finds the full reference.
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
    /// Returns an index of these manifests.
    pub fn of(manifests: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: INDEX.to_owned(),
            manifests,
        }
    }
}

impl Manifest {
    /// Returns a manifest of this configuration and these layers, without annotations.
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

/// Returns the constant that equals a media type of manifests or indexes, `None` for any other media type.
pub fn manifest_kind(media_type: &str) -> Option<&'static str> {
    [INDEX, MANIFEST, DOCKER_LIST, DOCKER_MANIFEST]
        .into_iter()
        .find(|known| *known == media_type)
}

/// Returns true for the media types of indexes, which list manifests of several platforms.
pub fn is_index(media_type: &str) -> bool {
    matches!(media_type, INDEX | DOCKER_LIST)
}

/// Writes compact JSON without a newline, the form of every blob.
pub fn to_bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("these types have text keys and no floats")
}

/// Parses a JSON blob.
pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_in_the_order_of_the_specification() {
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
