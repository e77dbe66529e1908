//! The image sets of the project, or of files given instead, and the third-party images in them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use airgap::{
    pull::{self, Store},
    sets::{self, Locked, Sets},
};
use anyhow::Context as _;
use archive::{layout::Layout, oci::Platform};
use chart::BuildSettings;

use crate::{arch::Arch, project::Project};

/// The lock that this program was built with, by which it verifies releases of its own commit.
const LOCK: &str = include_str!("../../airgap/images.lock");

/// The options for the files of image sets.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct SetPaths {
    /// Image sets; airgap/images.toml unless set
    #[arg(long, value_name = "FILE")]
    images: Option<PathBuf>,
    /// Their lock; airgap/images.lock unless set
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// Store of third-party images; target/download/images unless set
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
}

impl SetPaths {
    /// Reads `images.toml`.
    pub(crate) fn sets(&self, project: &Project) -> anyhow::Result<Sets> {
        let path = explicit_or(self.images.as_ref(), project, "airgap/images.toml");
        Sets::parse(&read(&path)?).with_context(|| path.display().to_string())
    }

    pub(crate) fn lock_path(&self, project: &Project) -> PathBuf {
        explicit_or(self.lock.as_ref(), project, "airgap/images.lock")
    }

    /// Reads `images.lock`.
    pub(crate) fn locked(&self, project: &Project) -> anyhow::Result<Vec<Locked>> {
        let path = self.lock_path(project);
        sets::parse_lock(&read(&path)?, project.settings())
            .with_context(|| path.display().to_string())
    }

    pub(crate) fn store(&self, project: &Project) -> Store {
        let default = || project.target.join("download/images");
        Store::new(self.store.clone().unwrap_or_else(default))
    }

    /// Adds the third-party images to a layout that has the project's own.
    pub(crate) fn add_pulled(
        &self,
        project: &Project,
        layout: &mut Layout,
        arches: &[Arch],
    ) -> anyhow::Result<()> {
        let (store, platforms) = (self.store(project), platforms(arches));
        for image in self.locked(project)? {
            let Some(digest) = image.digest else {
                continue;
            };
            pull::add_to(layout, (&image.reference, digest), &platforms, &store).with_context(
                || {
                    format!(
                        "cannot add {}: fetch it with `cargo xtask airgap pull`",
                        image.reference
                    )
                },
            )?;
        }
        Ok(())
    }
}

/// Returns the architectures as image indexes name them.
pub(crate) fn platforms(arches: &[Arch]) -> Vec<Platform> {
    arches.iter().map(|arch| arch.platform()).collect()
}

/// Returns the names of all images of a build, sorted.
pub(crate) fn expected(settings: &BuildSettings<'_>) -> anyhow::Result<Vec<String>> {
    let locked = sets::parse_lock(LOCK, settings).context("airgap/images.lock")?;
    let mut names: Vec<_> = locked.into_iter().map(|image| image.reference).collect();
    names.sort();
    Ok(names)
}

fn explicit_or(explicit: Option<&PathBuf>, project: &Project, default: &str) -> PathBuf {
    explicit
        .cloned()
        .unwrap_or_else(|| project.root.join(default))
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
