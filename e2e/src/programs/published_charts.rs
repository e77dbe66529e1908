//! Charts that users have installed, as `cargo xtask download` fetched them.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, ensure};

use crate::test_env::{self, sha256};

const LOCK: &str = include_str!("../../published.lock");

pub(crate) const OLD: &str = "rke2-multus-v4.3.008.tgz";
pub(crate) const NEW: &str = "rke2-multus-v4.3.017.tgz";
pub(crate) const NEW_CRD: &str = "rke2-multus-crd-4.3.017.tgz";

/// The archive of that name, with the digest that is locked.
pub(crate) fn archive(name: &str) -> anyhow::Result<PathBuf> {
    let home = test_env::home()?;
    let target = home.parent().context("a folder of cargo's")?;
    let path = target.join("download").join(name);
    let bytes = fs::read(&path).with_context(|| {
        format!(
            "{} is missing: get it with --install or `cargo xtask download`",
            path.display()
        )
    })?;
    let mut lines = LOCK
        .lines()
        .filter(|line| line.ends_with(&format!("/{name}")));
    let line = lines
        .next()
        .with_context(|| format!("{name} is not locked"))?;
    ensure!(
        line.starts_with(&sha256(&bytes)),
        "{} is not what is locked: `cargo xtask download` gets it again",
        path.display()
    );
    Ok(path)
}
