//! Images FROM scratch: a data file lists the files, the binaries come from a build, and no metadata comes from a disk.

use std::collections::BTreeMap;

use archive::{
    gzip,
    layout::Layout,
    oci::{self, Descriptor, History, ImageConfig, Index, Manifest, Platform, RootFs, RunConfig},
    tar::{self, Entry},
};
use chart::ImagePrefix;
use serde::Deserialize;

/// The version of the data file.
const SCHEMA: u32 = 1;

/// The directory in every image of this project with its licence and those of what is in it.
pub(crate) const DOCUMENTS: &str = "/usr/share/doc/multus";

/// The content of `images/<name>/image.json`. Paths are absolute, as they are in the image.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Definition {
    schema: u32,
    /// Repository, with its registry, without a tag.
    pub repository: String,
    /// Path → name of a program from the build.
    pub binaries: BTreeMap<String, String>,
    /// Path → text of a file.
    #[serde(default)]
    pub texts: BTreeMap<String, String>,
    /// Path → target of a symbolic link, which must be in the image.
    #[serde(default)]
    pub links: BTreeMap<String, String>,
    /// Directories that may be empty.
    #[serde(default)]
    pub directories: Vec<String>,
    /// Numeric user and group.
    pub user: String,
    /// Program and first arguments.
    pub entrypoint: Vec<String>,
    /// Labels besides the version.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Bytes that one platform's uncompressed layer may have.
    pub max_size: u64,
}

/// The facts that all images of a release share.
#[derive(Debug, Clone)]
pub struct Release {
    /// The version without the leading `v` of tags.
    pub version: String,
    /// The time in RFC 3339.
    pub created: String,
    /// Name → text of the files in [`DOCUMENTS`].
    pub documents: BTreeMap<String, String>,
}

/// Why an image cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("bad image definition")]
    Definition(#[source] serde_json::Error),
    #[error("image definition has schema {0}, this program reads {SCHEMA}")]
    Schema(u32),
    #[error("`{0}` is not absolute")]
    Relative(String),
    #[error("`{from}` points at `{target}`, which is not in the image")]
    Dangling {
        /// The link, or `entrypoint`.
        from: String,
        target: String,
    },
    #[error("the image needs `{0}`, which was not built")]
    Binary(String),
    #[error(transparent)]
    Tar(#[from] tar::Error),
    #[error("{architecture}: the layer has {size} bytes uncompressed, its budget is {budget}")]
    Budget {
        architecture: String,
        size: u64,
        budget: u64,
    },
}

impl Definition {
    /// Reads the data file; unknown keys are refused.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let definition: Self = serde_json::from_slice(bytes).map_err(Error::Definition)?;
        match definition.schema {
            SCHEMA => Ok(definition),
            other => Err(Error::Schema(other)),
        }
    }

    /// Returns the same image under the names of a build.
    #[must_use]
    pub fn named(self, images: &ImagePrefix) -> Self {
        Self {
            repository: images.rename(&self.repository),
            ..self
        }
    }

    /// Returns the full name in a release.
    pub fn reference(&self, release: &Release) -> String {
        format!("{}:v{}", self.repository, release.version)
    }

    /// Adds the image to the layout, one manifest per platform in the given order, under one index.
    pub fn add_to(
        &self,
        layout: &mut Layout,
        release: &Release,
        platforms: &[(Platform, BTreeMap<String, Vec<u8>>)],
    ) -> Result<(), Error> {
        let mut manifests = Vec::new();
        for (platform, binaries) in platforms {
            let tar = self.layer(release, binaries)?;
            let size = tar.len() as u64;
            if size > self.max_size {
                return Err(Error::Budget {
                    architecture: platform.architecture.clone(),
                    size,
                    budget: self.max_size,
                });
            }
            let config = self.config(release, platform, &tar);
            let config = layout.add(oci::CONFIG, oci::to_bytes(&config));
            let blob = layout.add(oci::LAYER_GZIP, gzip::compress(&tar));
            let manifest = oci::to_bytes(&Manifest::of(config, vec![blob]));
            let mut manifest = layout.add(oci::MANIFEST, manifest);
            manifest.platform = Some(platform.clone());
            manifests.push(manifest);
        }
        let index: Descriptor = layout.add(oci::INDEX, oci::to_bytes(&Index::of(manifests)));
        layout.images.push(index.named(&self.reference(release)));
        Ok(())
    }

    /// Returns the uncompressed layer.
    pub fn layer(
        &self,
        release: &Release,
        binaries: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Vec<u8>, Error> {
        let mut entries = Vec::new();
        for (path, name) in &self.binaries {
            let bytes = binaries
                .get(name)
                .ok_or_else(|| Error::Binary(name.clone()))?;
            entries.push(Entry::file(below(path)?, 0o755, bytes.clone()));
        }
        for (path, text) in &self.texts {
            entries.push(Entry::file(below(path)?, 0o644, text.as_bytes()));
        }
        for (name, text) in &release.documents {
            let path = format!("{DOCUMENTS}/{name}");
            entries.push(Entry::file(below(&path)?, 0o644, text.as_bytes()));
        }
        for (path, target) in &self.links {
            self.check_target(path, target)?;
            entries.push(Entry::link(below(path)?, target));
        }
        for path in &self.directories {
            entries.push(Entry::dir(below(path)?, 0o755));
        }
        if let Some(program) = self.entrypoint.first() {
            self.check_target("entrypoint", program)?;
        }
        Ok(tar::write(&entries)?)
    }

    fn check_target(&self, from: &str, target: &str) -> Result<(), Error> {
        let absolute = match from.rsplit_once('/') {
            Some((parent, _)) if !target.starts_with('/') => format!("{parent}/{target}"),
            _ => target.to_owned(),
        };
        let known = self.binaries.contains_key(&absolute)
            || self.texts.contains_key(&absolute)
            || self.directories.contains(&absolute);
        if known {
            return Ok(());
        }
        Err(Error::Dangling {
            from: from.to_owned(),
            target: target.to_owned(),
        })
    }

    fn config(&self, release: &Release, platform: &Platform, tar: &[u8]) -> ImageConfig {
        let mut labels = self.labels.clone();
        let version = "org.opencontainers.image.version";
        labels.insert(version.to_owned(), release.version.clone());
        ImageConfig {
            created: release.created.clone(),
            platform: platform.clone(),
            config: RunConfig {
                user: self.user.clone(),
                entrypoint: self.entrypoint.clone(),
                labels,
            },
            rootfs: RootFs {
                kind: "layers".to_owned(),
                diff_ids: vec![archive::digest::sha256(tar)],
            },
            history: vec![History {
                created: release.created.clone(),
                created_by: "cargo xtask images".to_owned(),
            }],
        }
    }
}

fn below(path: &str) -> Result<&str, Error> {
    path.strip_prefix('/')
        .ok_or_else(|| Error::Relative(path.to_owned()))
}
