//! Paths of the node as this process reaches them.

use std::path::{Path, PathBuf};

/// Returns where an absolute path of the node is when `root` stands for the node's root.
pub(crate) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}
