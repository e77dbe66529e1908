//! `multus-daemon install`: installs the shim into a directory under both of its names, as upstream's `install_multus` does.

use std::path::Path;

use anyhow::Context;
use node::{install::Installation, root::Root};

use crate::reconcile::node::{PASSTHRU, SHIM, shipped};

/// Installs into `dir` as this process sees it.
pub fn run(dir: &Path) -> anyhow::Result<()> {
    let root = Root::open("/").context("cannot open /")?;
    anyhow::ensure!(
        root.is_dir(dir),
        "{} is not a directory: create it, or mount it",
        dir.display()
    );
    put(&root, dir, &shipped(SHIM)?)
}

fn put(root: &Root, dir: &Path, shim: &[u8]) -> anyhow::Result<()> {
    for name in [SHIM, PASSTHRU] {
        Installation::multiplexer(root).install(dir, name, shim)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shim_is_installed_under_both_names() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.make_dirs("/bin", 0o755).unwrap();
        put(&root, Path::new("/bin"), b"the shim").unwrap();
        assert_eq!(root.list("/bin").unwrap(), ["multus-shim", "passthru"]);
        assert_eq!(root.read("/bin/passthru", 9).unwrap(), b"the shim");
    }
}
