//! The folder beside a release's place in which the release is made. It goes with the run, and a killed run's is taken over.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use crate::tree::Staged;

/// A locked, empty folder on the file system of the release.
pub(crate) struct Workshop {
    pub(crate) dir: PathBuf,
    /// The kernel takes it from a run that died.
    _lock: File,
    /// After the folder itself: parents that nothing was put into go, too.
    _parents: Staged,
}

impl Workshop {
    /// Makes it for a release in `out`.
    pub(crate) fn beside(out: &Path) -> anyhow::Result<Self> {
        let (Some(parent), Some(name)) = (out.parent(), out.file_name()) else {
            bail!("a release needs a folder of its own: give --out one");
        };
        let context = || format!("cannot make a release in {}", parent.display());
        let mut parents = Staged::default();
        parents.make_folder(parent).with_context(context)?;
        let dir = parent.join(format!(".{}.new", name.to_string_lossy()));
        if !dir.is_dir() {
            fs::create_dir(&dir).with_context(context)?;
        }
        let lock = File::open(&dir).with_context(context)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "another run is making {}: wait for it, or give --out another folder",
                out.display()
            ),
            Err(TryLockError::Error(error)) => return Err(error).with_context(context),
        }
        let workshop = Self {
            dir,
            _lock: lock,
            _parents: parents,
        };
        for leftover in fs::read_dir(&workshop.dir).with_context(context)? {
            fs::remove_dir_all(leftover.with_context(context)?.path()).with_context(context)?;
        }
        Ok(workshop)
    }
}

/// Best effort: what cannot be removed now is taken over by the next run.
impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_the_run_and_takes_over_what_a_killed_one_left() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("a/b/dist");
        let leftover = dir.path().join("a/b/.dist.new/release");
        drop(Workshop::beside(&out).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        fs::create_dir_all(leftover.join("bin")).unwrap();
        let workshop = Workshop::beside(&out).unwrap();
        assert_eq!(fs::read_dir(&workshop.dir).unwrap().count(), 0);
        let error = Workshop::beside(&out).err().unwrap().to_string();
        assert!(error.starts_with("another run is making"), "{error}");
    }
}
