//! The image sets of the project, or of files that stand for them, and the images of others in them.

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

use crate::{arch::Arch, project::Project};

/// What this program was built with, and verifies releases by.
const SETS: &str = include_str!("../../airgap/images.toml");
const LOCK: &str = include_str!("../../airgap/images.lock");

/// Where image sets are told.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Places {
    /// What is looked at; airgap/images.toml unless given
    #[arg(long, value_name = "FILE")]
    images: Option<PathBuf>,
    /// What was found; airgap/images.lock unless given
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// Where images of others are kept; target/download/images unless given
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
}

impl Places {
    /// Reads `images.toml`.
    pub(crate) fn sets(&self, project: &Project) -> anyhow::Result<Sets> {
        let path = given_or(self.images.as_ref(), project, "airgap/images.toml");
        Sets::parse(&read(&path)?).with_context(|| path.display().to_string())
    }

    /// Where the lock lies.
    pub(crate) fn lock_path(&self, project: &Project) -> PathBuf {
        given_or(self.lock.as_ref(), project, "airgap/images.lock")
    }

    /// Reads `images.lock`.
    pub(crate) fn locked(&self, project: &Project) -> anyhow::Result<Vec<Locked>> {
        let path = self.lock_path(project);
        sets::parse_lock(&read(&path)?, project.version).with_context(|| path.display().to_string())
    }

    /// Where images of others are kept.
    pub(crate) fn store(&self, project: &Project) -> Store {
        let usual = || project.target.join("download/images");
        Store::new(self.store.clone().unwrap_or_else(usual))
    }

    /// Adds the images of others to a layout that has our own.
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
                        "cannot carry {}: fetch it with `cargo xtask airgap pull`",
                        image.reference
                    )
                },
            )?;
        }
        Ok(())
    }
}

/// As indexes name them.
pub(crate) fn platforms(arches: &[Arch]) -> Vec<Platform> {
    arches.iter().map(|arch| arch.platform()).collect()
}

/// The names of every image of a release of this version, sorted.
pub(crate) fn expected(version: &str) -> anyhow::Result<Vec<String>> {
    let locked = sets::parse_lock(LOCK, version).context("airgap/images.lock")?;
    let mut names: Vec<_> = locked.into_iter().map(|image| image.reference).collect();
    names.sort();
    Ok(names)
}

/// Whether a release builds an image itself.
pub(crate) fn is_own(reference: &str) -> anyhow::Result<bool> {
    let sets = Sets::parse(SETS).context("airgap/images.toml")?;
    Ok(sets.is_own(reference))
}

fn given_or(given: Option<&PathBuf>, project: &Project, usual: &str) -> PathBuf {
    given.cloned().unwrap_or_else(|| project.root.join(usual))
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
