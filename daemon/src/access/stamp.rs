//! Detects by one `stat` whether a file has changed since it was read.

use std::{os::unix::fs::MetadataExt as _, path::Path};

/// The metadata that changes when a file is written or replaced. Symlinks are followed, so that the kubelet's swap of a projected volume
/// is a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Returns the stamp of a file, or `None` while its metadata cannot be read.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let file = std::fs::metadata(path).ok()?;
        Some(Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn swapped_symlinks_and_new_content_change_the_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        assert_eq!(Stamp::of(&path("token")), None);
        // The kubelet's layout of a projected volume.
        for version in ["..1", "..2"] {
            fs::create_dir(path(version)).unwrap();
            fs::write(path(version).join("token"), "same size").unwrap();
        }
        symlink("..1", path("..data")).unwrap();
        symlink("..data/token", path("token")).unwrap();
        let first = Stamp::of(&path("token"));
        assert!(first.is_some());
        assert_eq!(Stamp::of(&path("token")), first);
        symlink("..2", path("..data_tmp")).unwrap();
        fs::rename(path("..data_tmp"), path("..data")).unwrap();
        let second = Stamp::of(&path("token"));
        assert_ne!(second, first);
        fs::write(path("..2/token"), "another size").unwrap();
        assert_ne!(Stamp::of(&path("token")), second);
    }
}
