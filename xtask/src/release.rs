//! `release.json`: what a release consists of, for programs that look it up and for users who compare two releases.

mod budgets;

use archive::{
    digest::{Digest, sha256},
    verify::Image,
};
use serde::{Deserialize, Serialize};

use crate::{arch::Arch, tree::Tree};

/// The name of the description in a release.
pub(crate) const FILE: &str = "release.json";
/// The name of the checksums of every other file.
pub(crate) const SUMS: &str = "SHA256SUMS";
/// The version of the format.
const SCHEMA: u32 = 2;
/// The former version, whose files have no modes.
const WITHOUT_MODES: u32 = 1;

/// The complete file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Release {
    pub(crate) schema: u32,
    pub(crate) version: String,
    pub(crate) commit: String,
    pub(crate) epoch: u64,
    pub(crate) toolchain: String,
    pub(crate) architectures: Vec<String>,
    pub(crate) images: Vec<ImageEntry>,
    pub(crate) charts: Vec<ChartEntry>,
    pub(crate) budgets: Vec<Budget>,
    pub(crate) files: Vec<FileEntry>,
}

/// A file other than `release.json` and `SHA256SUMS`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct FileEntry {
    pub(crate) path: String,
    pub(crate) kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) arch: Option<String>,
    /// The permissions, in octal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<String>,
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

/// An image with every digest in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ImageEntry {
    pub(crate) reference: String,
    pub(crate) digest: Digest,
    pub(crate) platforms: Vec<PlatformEntry>,
}

/// One platform of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct PlatformEntry {
    pub(crate) arch: String,
    pub(crate) manifest: Digest,
    pub(crate) config: Digest,
    pub(crate) layers: Vec<LayerEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct LayerEntry {
    pub(crate) digest: Digest,
    pub(crate) diff_id: Digest,
    pub(crate) size: u64,
    pub(crate) uncompressed_size: u64,
}

/// A packed chart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ChartEntry {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) path: String,
    pub(crate) digest: Digest,
}

/// A size with a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Budget {
    pub(crate) what: String,
    pub(crate) size: u64,
    pub(crate) limit: u64,
}

/// The facts about a release that do not follow from its files.
pub(crate) struct Origin {
    pub(crate) version: String,
    pub(crate) commit: String,
    pub(crate) epoch: u64,
    pub(crate) toolchain: String,
    pub(crate) architectures: Vec<Arch>,
}

impl Release {
    /// Describes a tree, which must not hold the two describing files yet.
    pub(crate) fn of(
        origin: Origin,
        tree: &Tree,
        images: &[Image],
        charts: Vec<ChartEntry>,
    ) -> Self {
        Self {
            schema: SCHEMA,
            budgets: budgets::of(&origin.architectures, tree, images),
            version: origin.version,
            commit: origin.commit,
            epoch: origin.epoch,
            toolchain: origin.toolchain,
            architectures: names(&origin.architectures),
            images: self::images(images),
            charts,
            files: files(tree),
        }
    }

    pub(crate) fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let release: Self = serde_json::from_slice(bytes)?;
        anyhow::ensure!(
            [WITHOUT_MODES, SCHEMA].contains(&release.schema),
            "schema {} is not {WITHOUT_MODES} or {SCHEMA}, which this program reads",
            release.schema
        );
        Ok(release)
    }

    /// Returns the same description in the format of `other`, which may be the former one.
    pub(crate) fn in_format_of(mut self, other: &Self) -> Self {
        self.schema = other.schema;
        if other.schema == WITHOUT_MODES {
            self.files.iter_mut().for_each(|file| file.mode = None);
        }
        self
    }

    /// Fails when anything is over its limit, and names all of it.
    pub(crate) fn check_budgets(&self) -> anyhow::Result<()> {
        budgets::check(&self.budgets)
    }

    /// Returns the bytes of the file.
    pub(crate) fn to_bytes(&self) -> anyhow::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

fn names(arches: &[Arch]) -> Vec<String> {
    arches.iter().map(|arch| arch.name().to_owned()).collect()
}

/// Returns the images as the description lists them.
pub(crate) fn images(images: &[Image]) -> Vec<ImageEntry> {
    images.iter().map(image_entry).collect()
}

/// Returns every file of the tree but the two that describe it.
pub(crate) fn files(tree: &Tree) -> Vec<FileEntry> {
    let described = tree
        .0
        .iter()
        .filter(|(path, _)| *path != FILE && *path != SUMS);
    described
        .map(|(path, file)| FileEntry {
            path: path.clone(),
            kind: kind(path).to_owned(),
            arch: arch_of(path).map(|arch| arch.name().to_owned()),
            mode: Some(if file.is_program { "0755" } else { "0644" }.to_owned()),
            size: file.bytes.len() as u64,
            sha256: sha256(&file.bytes).hex(),
        })
        .collect()
}

fn kind(path: &str) -> &'static str {
    let (dir, rest) = path.split_once('/').unwrap_or(("", path));
    match (dir, rest) {
        ("bin", _) => "program",
        ("oci", _) => "image-layout",
        ("charts", "index.yaml") => "chart-index",
        ("charts", _) => "chart",
        ("manifests", _) => "manifest",
        ("bindata", _) => "bindata",
        ("plugins", _) => "plugin-archive",
        ("airgap", name) if name.starts_with("sha256sum-") => "checksums",
        ("airgap", name) if name.contains(".tar.") => "image-archive",
        ("airgap", _) => "image-list",
        ("completions", _) => "completion",
        ("man", _) => "man-page",
        ("sbom", name) if name.starts_with("vex.") => "vex",
        ("sbom", _) => "sbom",
        ("", "LICENSE" | "THIRD-PARTY.txt") => "licence",
        _ => "other",
    }
}

fn arch_of(path: &str) -> Option<Arch> {
    match path.split_once('/')? {
        ("bin" | "sbom", rest) => Arch::parse(rest.split_once('/')?.0),
        ("airgap" | "plugins", name) => name.split(['-', '.']).find_map(Arch::parse),
        _ => None,
    }
}

fn image_entry(image: &Image) -> ImageEntry {
    let platforms = image.platforms.iter().map(|platform| PlatformEntry {
        arch: platform.platform.architecture.clone(),
        manifest: platform.manifest.digest,
        config: platform.config.digest,
        layers: platform
            .layers
            .iter()
            .map(|layer| LayerEntry {
                digest: layer.blob.digest,
                diff_id: layer.diff_id,
                size: layer.blob.size,
                uncompressed_size: layer.tar.len() as u64,
            })
            .collect(),
    });
    ImageEntry {
        reference: image.reference.clone(),
        digest: image.digest,
        platforms: platforms.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_and_architecture_follow_from_the_path() {
        let check = |path, kind_expected, arch: Option<&str>| {
            assert_eq!(kind(path), kind_expected, "{path}");
            assert_eq!(arch_of(path).map(Arch::name), arch, "{path}");
        };
        check("bin/arm/multus-shim", "program", Some("arm"));
        let list = "sbom/arm64/multus-shim.cdx.json";
        check(list, "sbom", Some("arm64"));
        check("sbom/vex.cdx.json", "vex", None);
        check("THIRD-PARTY.txt", "licence", None);
        check("oci/index.json", "image-layout", None);
        let plugins = "plugins/cni-plugins-linux-arm64-v5.0.0.tgz";
        check(plugins, "plugin-archive", Some("arm64"));
        check("charts/index.yaml", "chart-index", None);
        let archive = "airgap/multus-airgap-images-arm64.tar.zst";
        check(archive, "image-archive", Some("arm64"));
        check(
            "airgap/multus-images.linux-arm.txt",
            "image-list",
            Some("arm"),
        );
        check("airgap/multus-images.txt", "image-list", None);
        let digests = "airgap/multus-images-digests.linux-arm.txt";
        check(digests, "image-list", Some("arm"));
        let rke2 = "airgap/rke2/rke2-images-multus.linux-arm64.txt";
        check(rke2, "image-list", Some("arm64"));
        check("man/multus-distro.1", "man-page", None);
        check("completions/_multus-distro", "completion", None);
        check("airgap/sha256sum-amd64.txt", "checksums", Some("amd64"));
    }
}
