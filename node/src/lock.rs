//! Locks between processes: a file that is held while it is locked, and that leaves no trace.

use std::{
    ffi::OsString,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat},
    io::Errno,
};

use crate::root::{Root, RootError};

/// Held until dropped; a process that dies gives it up.
#[derive(Debug)]
pub struct FileLock {
    dir: OwnedFd,
    name: OsString,
    _file: OwnedFd,
}

impl FileLock {
    /// Waits for the lock on `path`, whose directory is there.
    pub fn wait(root: &Root, path: &Path) -> Result<Self, RootError> {
        let lock = Self::take(root, path, FlockOperation::LockExclusive)?;
        Ok(lock.expect("who waits is not turned away"))
    }

    /// The lock, if nobody has it.
    pub fn attempt(root: &Root, path: &Path) -> Result<Option<Self>, RootError> {
        Self::take(root, path, FlockOperation::NonBlockingLockExclusive)
    }

    fn take(
        root: &Root,
        path: &Path,
        operation: FlockOperation,
    ) -> Result<Option<Self>, RootError> {
        let (dir, name) = root.parent(path)?;
        let locked = || -> io::Result<Option<OwnedFd>> {
            loop {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let file = openat(&dir, name, flags, Mode::RUSR | Mode::WUSR)?;
                match flock(&file, operation) {
                    Ok(()) => {}
                    Err(Errno::WOULDBLOCK) => return Ok(None),
                    Err(Errno::INTR) => continue,
                    Err(error) => return Err(error.into()),
                }
                // Who had it before may have removed the file: then this one is nobody's any more.
                if is_named(&dir, Path::new(name), &file)? {
                    return Ok(Some(file));
                }
            }
        };
        let file = locked().map_err(|source| RootError {
            action: "lock",
            path: path.to_owned(),
            source,
        })?;
        let name = name.to_owned();
        Ok(file.map(|file| Self {
            dir,
            name,
            _file: file,
        }))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Best effort: a file that stays behind is locked again the next time.
        let _ = unlinkat(&self.dir, &self.name, AtFlags::empty());
    }
}

fn is_named(dir: &impl AsFd, name: &Path, file: &OwnedFd) -> io::Result<bool> {
    let named = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let held = fstat(file)?;
    Ok((named.st_dev, named.st_ino) == (held.st_dev, held.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let path = Path::new("/a");
        let first = FileLock::wait(&root, path).unwrap();
        assert!(FileLock::attempt(&root, path).unwrap().is_none());
        assert!(FileLock::attempt(&root, Path::new("/b")).unwrap().is_some());
        drop(first);
        assert!(FileLock::attempt(&root, path).unwrap().is_some());
        assert!(root.list("/").unwrap().is_empty());
        assert!(FileLock::wait(&root, Path::new("/none/a")).is_err());
    }

    #[test]
    fn many_take_turns() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let held = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _lock = FileLock::wait(&root, Path::new("/a")).unwrap();
                        let others = held.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        assert_eq!(others, 0);
                        held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
