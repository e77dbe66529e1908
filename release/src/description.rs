//! `release.json`: what a release consists of, for programs that look it up and for users who compare two releases.

use anyhow::{bail, ensure};
use archive::{
    digest::{Digest, sha256},
    lists,
    verify::Image,
};
use chart::{BuildSettings, ImagePrefix};
use serde::{Deserialize, Serialize};

use crate::{arch::Arch, build::Build, parts, tree::Tree};

/// The name of the description in a release.
pub const FILE: &str = "release.json";
/// The name of the checksums of every other file.
pub const SUMS: &str = "SHA256SUMS";
/// The version of the format.
const SCHEMA: u32 = 2;

/// The complete file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Release {
    pub schema: u32,
    pub version: String,
    pub commit: String,
    pub epoch: u64,
    pub toolchain: String,
    /// The id of the key that is built into `multus-distro`, of which `images install` takes signed archives alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_key: Option<Digest>,
    /// What the programs were built with; absent in releases that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    pub architectures: Vec<String>,
    /// The text before the names of images that the release built, unless it is that of this project.
    #[serde(default, skip_serializing_if = "ImagePrefix::is_default")]
    pub image_prefix: ImagePrefix,
    pub images: Vec<ImageEntry>,
    pub charts: Vec<ChartEntry>,
    pub budgets: Vec<Budget>,
    pub files: Vec<FileEntry>,
}

/// A file other than `release.json` and `SHA256SUMS`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct FileEntry {
    pub path: String,
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// The permissions, in octal.
    pub mode: String,
    pub size: u64,
    pub sha256: String,
}

/// An image with every digest in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ImageEntry {
    pub reference: String,
    pub digest: Digest,
    pub platforms: Vec<PlatformEntry>,
}

/// One platform of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PlatformEntry {
    pub arch: String,
    pub manifest: Digest,
    pub config: Digest,
    pub layers: Vec<LayerEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LayerEntry {
    pub digest: Digest,
    pub diff_id: Digest,
    pub size: u64,
    pub uncompressed_size: u64,
}

/// A packed chart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ChartEntry {
    pub name: String,
    pub version: String,
    pub path: String,
    pub digest: Digest,
}

/// A size with a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Budget {
    pub what: String,
    pub size: u64,
    pub limit: u64,
}

/// The facts about a release that do not follow from its files.
pub struct Origin {
    pub version: String,
    pub commit: String,
    pub epoch: u64,
    pub toolchain: String,
    /// The id of the key that is built into `multus-distro`.
    pub trusted_key: Option<Digest>,
    pub build: Option<Build>,
    pub architectures: Vec<Arch>,
    pub image_prefix: ImagePrefix,
}

impl Release {
    /// Describes a tree, which must not hold the two describing files yet.
    pub fn of(
        origin: Origin,
        tree: &Tree,
        images: &[Image],
        charts: Vec<ChartEntry>,
        budgets: Vec<Budget>,
    ) -> Self {
        Self {
            schema: SCHEMA,
            budgets,
            version: origin.version,
            commit: origin.commit,
            epoch: origin.epoch,
            toolchain: origin.toolchain,
            trusted_key: origin.trusted_key,
            build: origin.build,
            architectures: names(&origin.architectures),
            image_prefix: origin.image_prefix,
            images: self::images(images),
            charts,
            files: files(tree),
        }
    }

    pub fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let release: Self = serde_json::from_slice(bytes)?;
        ensure!(
            release.schema == SCHEMA,
            "schema {} is not {SCHEMA}, which this program reads",
            release.schema
        );
        Ok(release)
    }

    /// Returns the settings of its build.
    pub fn settings(&self) -> BuildSettings<'_> {
        BuildSettings {
            version: self.version.as_str().into(),
            images: self.image_prefix.clone(),
        }
    }

    /// Fails when anything is over its limit, and names all of it.
    pub fn check_budgets(&self) -> anyhow::Result<()> {
        let over: Vec<_> = self
            .budgets
            .iter()
            .filter(|budget| budget.size > budget.limit)
            .map(|one| {
                format!(
                    "{} has {} bytes, its budget is {}",
                    one.what, one.size, one.limit
                )
            })
            .collect();
        if over.is_empty() {
            return Ok(());
        }
        bail!("{}", over.join("; "))
    }

    /// Fails when files differed from the commit that the release names, since the commit alone does not make the same release then.
    pub fn check_clean(&self) -> anyhow::Result<()> {
        ensure!(
            !is_dirty(&self.commit),
            "{FILE} names commit {}: the release was made from a checkout with uncommitted changes; \
             commit them and make it again, or give --allow-dirty for a trial",
            self.commit
        );
        Ok(())
    }

    /// Adds the description, and the checksums of it and of the files that it lists.
    pub fn seal(&self, tree: &mut Tree) -> anyhow::Result<()> {
        let description = self.to_bytes()?;
        let mut sums = vec![(FILE, sha256(&description))];
        for file in &self.files {
            sums.push((&file.path, Digest::from_hex(&file.sha256)?));
        }
        tree.add(SUMS, lists::sums(sums));
        tree.add(FILE, description);
        Ok(())
    }

    /// Returns the bytes of the file.
    pub fn to_bytes(&self) -> anyhow::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// Marks a commit from which files differ.
pub const DIRTY: &str = "-dirty";

/// Returns whether files differed from the commit when it was noted.
pub fn is_dirty(commit: &str) -> bool {
    commit.ends_with(DIRTY)
}

fn names(arches: &[Arch]) -> Vec<String> {
    arches.iter().map(|arch| arch.name().to_owned()).collect()
}

/// Returns the images as the description lists them.
pub fn images(images: &[Image]) -> Vec<ImageEntry> {
    images.iter().map(image_entry).collect()
}

/// Returns every file of the tree but the two that describe it.
pub fn files(tree: &Tree) -> Vec<FileEntry> {
    let described = tree
        .0
        .iter()
        .filter(|(path, _)| *path != FILE && *path != SUMS);
    described
        .map(|(path, file)| FileEntry {
            path: path.clone(),
            kind: parts::kind(path).to_owned(),
            arch: arch_of(path).map(|arch| arch.name().to_owned()),
            mode: if file.is_program { "0755" } else { "0644" }.to_owned(),
            size: file.bytes.len() as u64,
            sha256: sha256(&file.bytes).hex(),
        })
        .collect()
}

fn arch_of(path: &str) -> Option<Arch> {
    match path.split_once('/')? {
        ("bin" | "sbom", rest) => Arch::parse(rest.split_once('/')?.0),
        ("airgap" | "krew" | "plugins", name) => name.split(['-', '.']).find_map(Arch::parse),
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
                uncompressed_size: layer.size,
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

    fn release(commit: &str, budgets: Vec<Budget>) -> Release {
        let origin = Origin {
            version: "5.0.0".to_owned(),
            commit: commit.to_owned(),
            epoch: 0,
            toolchain: String::new(),
            trusted_key: None,
            build: None,
            architectures: Vec::new(),
            image_prefix: ImagePrefix::DEFAULT,
        };
        Release::of(origin, &Tree::default(), &[], Vec::new(), budgets)
    }

    #[test]
    fn release_of_uncommitted_changes_is_refused() {
        release("abc", Vec::new()).check_clean().unwrap();
        let error = release("abc-dirty", Vec::new()).check_clean().unwrap_err();
        let error = error.to_string();
        assert!(error.contains("names commit abc-dirty"), "{error}");
        assert!(error.contains("--allow-dirty"), "{error}");
    }

    #[test]
    fn everything_over_its_limit_is_named() {
        let check = |sizes: &[(&str, u64)]| {
            let budgets = sizes.iter().map(|(what, size)| Budget {
                what: (*what).to_owned(),
                size: *size,
                limit: 10,
            });
            release("abc", budgets.collect()).check_budgets()
        };
        check(&[("a", 10)]).unwrap();
        let error = check(&[("a", 11), ("b", 10), ("c", 12)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a has 11 bytes, its budget is 10; c has 12 bytes, its budget is 10"
        );
    }

    #[test]
    fn kind_and_architecture_follow_from_the_path() {
        let check = |path, kind_expected, arch: Option<&str>| {
            assert_eq!(parts::kind(path), kind_expected, "{path}");
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
        let archive = "airgap/multus-airgap-images-arm64.tar";
        check(archive, "image-archive", Some("arm64"));
        check(
            "airgap/multus-images.linux-arm.txt",
            "image-list",
            Some("arm"),
        );
        let program = "airgap/multus-airgap-arm64";
        check(program, "program", Some("arm64"));
        check("airgap/multus-images.txt", "image-list", None);
        let digests = "airgap/multus-images-digests.linux-arm.txt";
        check(digests, "image-list", Some("arm"));
        let rke2 = "airgap/rke2/rke2-images-multus.linux-arm64.txt";
        check(rke2, "image-list", Some("arm64"));
        check("man/multus-distro.1", "man-page", None);
        check("completions/_multus-distro", "completion", None);
        check("airgap/sha256sum-amd64.txt", "checksums", Some("amd64"));
        check("exports/hauler.yaml", "export", None);
        check("krew/multus.yaml", "krew-manifest", None);
        let kubectl = "krew/kubectl-multus-v5.0.0-linux-arm64.tar.gz";
        check(kubectl, "kubectl-archive", Some("arm64"));
    }
}
