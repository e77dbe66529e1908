//! The node's files as a plan reads them.

use std::{io, path::Path, sync::Arc};

use node::root::Root;
use plan::Files;

/// The most bytes that are read of one file; a network configuration is a few kilobytes.
const MAX_BYTES: u64 = 4 << 20;

/// The file tree of the node below its root.
pub(crate) struct NodeFiles(pub(crate) Arc<Root>);

impl Files for NodeFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.read(path, MAX_BYTES).map_err(|error| error.source)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir).map_err(|error| error.source)
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.0.is_dir(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.0.exists(path)
    }
}
