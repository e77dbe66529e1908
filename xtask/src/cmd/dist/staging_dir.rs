//! The staging directory next to a release's final path. It is deleted at the end of the run; the next run takes over that of a killed run.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use crate::tree::Batch;

/// A locked, empty directory on the file system of the release.
pub(crate) struct StagingDir {
    pub(crate) dir: PathBuf,
    /// The kernel releases the lock of a run that died.
    _lock: File,
    /// Dropped after the directory itself: removes parents that were made for it and are still empty.
    _parents: Batch,
}

impl StagingDir {
    /// Makes the staging directory for a release in `out`.
    pub(crate) fn next_to(out: &Path) -> anyhow::Result<Self> {
        let (Some(parent), Some(name)) = (out.parent(), out.file_name()) else {
            bail!("a release needs a directory of its own: give --out one");
        };
        let context = || format!("cannot make a release in {}", parent.display());
        let mut parents = Batch::default();
        parents.make_dir(parent).with_context(context)?;
        let dir = parent.join(format!(".{}.new", name.to_string_lossy()));
        if !dir.is_dir() {
            fs::create_dir(&dir).with_context(context)?;
        }
        let lock = File::open(&dir).with_context(context)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "another run is making {}: wait for it, or give --out another directory",
                out.display()
            ),
            Err(TryLockError::Error(error)) => return Err(error).with_context(context),
        }
        let staging = Self {
            dir,
            _lock: lock,
            _parents: parents,
        };
        for stale in fs::read_dir(&staging.dir).with_context(context)? {
            fs::remove_dir_all(stale.with_context(context)?.path()).with_context(context)?;
        }
        Ok(staging)
    }
}

/// Best effort: the next run takes over what cannot be removed now.
impl Drop for StagingDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_removes_it_and_a_stale_one_is_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("a/b/dist");
        let stale = dir.path().join("a/b/.dist.new/release");
        drop(StagingDir::next_to(&out).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        fs::create_dir_all(stale.join("bin")).unwrap();
        let staging = StagingDir::next_to(&out).unwrap();
        assert_eq!(fs::read_dir(&staging.dir).unwrap().count(), 0);
        let error = StagingDir::next_to(&out).err().unwrap().to_string();
        assert!(error.starts_with("another run is making"), "{error}");
    }
}
