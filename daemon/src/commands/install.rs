//! `multus-daemon install`: puts the shim into a directory under both of its names, as upstream's `install_multus` does.

use std::path::Path;

use anyhow::Context;
use node::{install, root::Root};

use crate::upkeep::{PASSTHRU, SHIM, shim_bytes};

/// Installs into `dir` as this process sees it.
pub fn run(dir: &Path) -> anyhow::Result<()> {
    let root = Root::open("/").context("cannot open /")?;
    anyhow::ensure!(
        root.is_dir(dir),
        "{} is not a directory: make it, or mount it",
        dir.display()
    );
    let shim = shim_bytes()?;
    for name in [SHIM, PASSTHRU] {
        install::install(&root, dir, name, &shim)?;
    }
    Ok(())
}
