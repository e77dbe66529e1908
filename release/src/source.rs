//! Reads the images of a release, of a directory with archives, or of one archive, as one layout with an index per image.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use archive::{image_archive, layout::Layout, lists, medium::SoundArchive};

use crate::{
    arch::Arch,
    bundle, description,
    medium::{self, ProgramsByArch},
};

/// The name of the program in the `bin/` of a release.
pub const PROGRAM: &str = "multus-airgap";

/// The kinds of paths that have images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The directory of a release.
    Release(PathBuf),
    /// A directory with archives, their lists and checksums.
    Medium(PathBuf),
    Archive(PathBuf),
}

impl Source {
    /// Decides by the names of files alone.
    pub fn of(path: &Path) -> anyhow::Result<Self> {
        let path = path.to_owned();
        if is_release(&path) {
            return Ok(Self::Release(path));
        }
        if path.is_dir() {
            return Ok(Self::Medium(path));
        }
        if path.is_file() {
            return Ok(Self::Archive(path));
        }
        bail!(
            "{} does not exist: name a release, its airgap directory, or an archive",
            path.display()
        );
    }

    /// Returns the images of all architectures, each with an index.
    pub fn layout(&self) -> anyhow::Result<Layout> {
        match self {
            Self::Release(dir) => Layout::read(&dir.join("oci")).with_context(|| {
                format!(
                    "cannot read images from {}: name the directory of a release",
                    dir.display()
                )
            }),
            Self::Medium(dir) => medium_layout(dir),
            Self::Archive(path) => Ok(bundle::join(&[archive_layout(path)?])?),
        }
    }
}

impl Source {
    /// Returns the directory with archives and their checksums, which one archive does not have.
    pub fn medium(&self) -> Option<PathBuf> {
        match self {
            Self::Release(dir) => Some(dir.join("airgap")),
            Self::Medium(dir) => Some(dir.clone()),
            Self::Archive(_) => None,
        }
    }

    /// Returns the programs for operators that are there.
    pub fn programs(&self) -> ProgramsByArch {
        let path = |arch: &str| match self {
            Self::Release(dir) => Some(dir.join("bin").join(arch).join(PROGRAM)),
            Self::Medium(dir) => Some(dir.join(lists::program_name(arch))),
            Self::Archive(_) => None,
        };
        let names = Arch::ALL.into_iter().map(Arch::name);
        let found = names.filter_map(|arch| Some((arch.to_owned(), fs::read(path(arch)?).ok()?)));
        found.collect()
    }
}

/// Returns whether a directory is that of a release, as far as its names show.
pub fn is_release(dir: &Path) -> bool {
    [description::FILE, description::SUMS]
        .iter()
        .any(|name| dir.join(name).is_file())
}

/// Reads one archive; its images name manifests.
pub fn archive_layout(path: &Path) -> anyhow::Result<Layout> {
    let name = path.display().to_string();
    let bytes = fs::read(path).with_context(|| format!("cannot read {name}"))?;
    let (layout, _) = image_archive::read(&bytes).context(name)?;
    Ok(layout)
}

/// Verifies a directory of archives, and joins them.
fn medium_layout(dir: &Path) -> anyhow::Result<Layout> {
    let parts = in_order(medium::read(dir)?.archives).into_iter();
    let parts: Vec<_> = parts.map(|one| one.layout).collect();
    Ok(bundle::join(&parts)?)
}

/// Returns the archives in the order of architectures that an index of a release has.
fn in_order(mut sound: Vec<SoundArchive>) -> Vec<SoundArchive> {
    sound.sort_by_key(|one| {
        let arch = Arch::parse(&one.architecture);
        (arch.is_none(), arch, one.architecture.clone())
    });
    sound
}
