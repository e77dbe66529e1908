//! Read access to the node's files for planning: configurations in their directories.

use std::io;
use std::path::Path;

/// Read access to the node's file tree. Paths are those of the node.
pub trait Files: Send + Sync {
    /// Returns the content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Returns the names in a directory, sorted byte by byte.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Whether the path is a directory or a link to one.
    fn is_dir(&self, path: &Path) -> bool;
    /// Whether the path exists.
    fn exists(&self, path: &Path) -> bool;
}
