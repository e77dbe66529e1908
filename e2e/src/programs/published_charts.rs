//! The published charts that users have installed, as downloaded by `cargo xtask download`.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, ensure};

use crate::test_env::{self, sha256};

const LOCK: &str = include_str!("../../published.lock");

pub(crate) const OLD: &str = "rke2-multus-v4.3.008.tgz";
pub(crate) const NEW: &str = "rke2-multus-v4.3.017.tgz";
pub(crate) const NEW_CRD: &str = "rke2-multus-crd-4.3.017.tgz";

/// Returns the path of an archive, after checking its digest against the lock.
pub(crate) fn archive(name: &str) -> anyhow::Result<PathBuf> {
    let home = test_env::home()?;
    let target = home
        .parent()
        .context("the directory of runs has a parent")?;
    let path = target.join("download").join(name);
    let bytes = fs::read(&path).with_context(|| {
        format!(
            "{} is missing: download it with --install or `cargo xtask download`",
            path.display()
        )
    })?;
    let mut lines = LOCK
        .lines()
        .filter(|line| line.ends_with(&format!("/{name}")));
    let line = lines
        .next()
        .with_context(|| format!("{name} is not in the lock"))?;
    ensure!(
        line.starts_with(&sha256(&bytes)),
        "{} has another digest than the lock: `cargo xtask download` fetches it again",
        path.display()
    );
    Ok(path)
}
