//! The node's files as far as a plan reads them: configurations in their directories.

use std::io;
use std::path::Path;

use node::root::Root;

/// No configuration is larger; what is, is something else.
const MAX_BYTES: u64 = 4 << 20;

/// Reading access to the node's file tree; paths are those of the node.
pub trait Files: Send + Sync {
    /// The whole content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The names in a directory, sorted byte by byte.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Whether this is a directory, links followed.
    fn is_dir(&self, path: &Path) -> bool;
    /// Whether there is anything at this path.
    fn exists(&self, path: &Path) -> bool;
}

impl Files for Root {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Root::read(self, path, MAX_BYTES).map_err(|error| error.source)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        Root::list(self, dir).map_err(|error| error.source)
    }

    fn is_dir(&self, path: &Path) -> bool {
        Root::is_dir(self, path)
    }

    fn exists(&self, path: &Path) -> bool {
        Root::exists(self, path)
    }
}
