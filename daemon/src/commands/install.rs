//! `multus-daemon install`: puts the shim into a directory, as upstream's `install_multus` does.

use std::path::Path;

use anyhow::Context;
use node::{install, root::Root};

use crate::upkeep::{SHIM, shim_bytes};

/// Installs into `dir` as this process sees it.
pub fn run(dir: &Path) -> anyhow::Result<()> {
    let root = Root::open("/").context("cannot open /")?;
    anyhow::ensure!(
        root.is_dir(dir),
        "{} is not a directory: make it, or mount it",
        dir.display()
    );
    install::install(&root, dir, SHIM, &shim_bytes()?)?;
    Ok(())
}
