//! The content of a file as a value, found by its bytes; the name only decides that a file without such a content is one of a release.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use archive::{digest::Digest, image_archive, lists};
use release::{
    arch::Arch,
    description::Release,
    elf, names,
    parts::{self, Part},
};
use serde::Serialize;

#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub(super) enum Content {
    Release {
        version: String,
        commit: String,
        architectures: Vec<String>,
        images: Vec<Image>,
        charts: Vec<Chart>,
        /// By the paths in the table of parts.
        files: BTreeMap<String, Files>,
    },
    /// An archive of images.
    Archive {
        images: Vec<Image>,
    },
    /// A list of images.
    List {
        images: Vec<String>,
    },
    Checksums {
        files: Vec<Checksum>,
    },
    /// A static program.
    Program {
        arch: &'static str,
    },
    /// A file of a release without any of these contents.
    File {},
}

#[derive(Debug, Serialize, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) reference: String,
    pub(super) digest: Digest,
    pub(super) platforms: Vec<Platform>,
}

#[derive(Debug, Serialize, PartialEq, Eq)]
pub(super) struct Platform {
    pub(super) arch: String,
    pub(super) layers: usize,
    /// The bytes of the layers, as they are stored and unpacked.
    pub(super) size: u64,
    pub(super) unpacked: u64,
}

#[derive(Debug, Serialize, PartialEq, Eq)]
pub(super) struct Chart {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) path: String,
}

#[derive(Debug, Serialize, PartialEq, Eq)]
pub(super) struct Checksum {
    pub(super) path: String,
    pub(super) sha256: String,
}

#[derive(Debug, Default, Serialize, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) count: usize,
    pub(super) size: u64,
}

impl Files {
    fn add(&mut self, size: u64) {
        self.count += 1;
        self.size += size;
    }
}

impl Content {
    pub(super) fn from_release(release: &Release) -> Self {
        let images = release.images.iter().map(|image| Image {
            reference: image.reference.clone(),
            digest: image.digest,
            platforms: image
                .platforms
                .iter()
                .map(|platform| Platform {
                    arch: platform.arch.clone(),
                    layers: platform.layers.len(),
                    size: platform.layers.iter().map(|layer| layer.size).sum(),
                    unpacked: platform
                        .layers
                        .iter()
                        .map(|layer| layer.uncompressed_size)
                        .sum(),
                })
                .collect(),
        });
        let charts = release.charts.iter().map(|chart| Chart {
            name: chart.name.clone(),
            version: chart.version.clone(),
            path: chart.path.clone(),
        });
        let mut files = BTreeMap::<String, Files>::new();
        for file in &release.files {
            let path = parts::of(&file.path).map_or(parts::OTHER, |part| part.path);
            files.entry(path.to_owned()).or_default().add(file.size);
        }
        Self::Release {
            version: release.version.clone(),
            commit: release.commit.clone(),
            architectures: release.architectures.clone(),
            images: images.collect(),
            charts: charts.collect(),
            files,
        }
    }

    /// Fails when the bytes are those of nothing that a release has in `airgap/`, or are damaged. A file that is another part of a release
    /// may have any content.
    pub(super) fn from_file(bytes: &[u8], part: Option<&Part>) -> anyhow::Result<Self> {
        let may_be = |kind: &str| part.is_none_or(|part| part.kind == kind);
        if bytes.get(257..262) == Some(b"ustar") && may_be("image-archive") {
            return archive_content(bytes);
        }
        let mut arches = Arch::ALL.into_iter();
        if let Some(arch) = arches.find(|arch| elf::check_static(bytes, *arch).is_ok()) {
            return Ok(Self::Program { arch: arch.name() });
        }
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        if let Some(sums) = lists::parse_sums(text).filter(|sums| !sums.is_empty())
            && may_be("checksums")
        {
            let files = sums.into_iter().map(|(path, digest)| Checksum {
                path,
                sha256: digest.hex(),
            });
            return Ok(Self::Checksums {
                files: files.collect(),
            });
        }
        if text.starts_with('{') && may_be("description") {
            let release = Release::parse(bytes).context("it is not a valid release.json")?;
            return Ok(Self::from_release(&release));
        }
        // Any word is a short name of an image; lists have full ones.
        let is_full =
            |line: &str| names::reference(line).is_some_and(|name| name.to_string() == line);
        if !text.is_empty() && text.lines().all(is_full) && may_be("image-list") {
            return Ok(Self::List {
                images: text.lines().map(str::to_owned).collect(),
            });
        }
        let contents = ["image-archive", "checksums", "description", "image-list"];
        if part.is_some_and(|part| !contents.contains(&part.kind)) {
            return Ok(Self::File {});
        }
        bail!("it is not an archive, a list of images, a checksum file or a release.json")
    }
}

fn archive_content(bytes: &[u8]) -> anyhow::Result<Content> {
    let (_, images) = image_archive::read(bytes).context("it is not a valid archive of images")?;
    let images = images.into_iter();
    let images = images.map(|image| Image {
        reference: image.reference,
        digest: image.digest,
        platforms: image
            .platforms
            .iter()
            .map(|platform| Platform {
                arch: platform.platform.architecture.clone(),
                layers: platform.layers.len(),
                size: platform.layers.iter().map(|layer| layer.blob.size).sum(),
                unpacked: platform.layers.iter().map(|layer| layer.size).sum(),
            })
            .collect(),
    });
    Ok(Content::Archive {
        images: images.collect(),
    })
}
