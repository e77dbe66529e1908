//! The node's files as far as a plan reads them: configurations in their directories.

use std::io;
use std::path::Path;

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
