//! Locks between processes: a file that is held while it is locked, and that leaves no trace.

use std::{io, os::fd::OwnedFd, sync::Arc};

use rustix::{
    fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, openat, unlinkat},
    io::Errno,
};

use crate::root::{Directory, RootError};

/// Held until dropped; a process that dies gives it up.
#[derive(Debug)]
pub struct FileLock {
    dir: Arc<Directory>,
    name: String,
    _file: OwnedFd,
}

impl FileLock {
    /// Waits for the lock on a file of the directory.
    pub fn wait(dir: &Arc<Directory>, name: &str) -> Result<Self, RootError> {
        let lock = Self::take(dir, name, FlockOperation::LockExclusive)?;
        Ok(lock.expect("who waits is not turned away"))
    }

    /// The lock, if nobody has it.
    pub fn attempt(dir: &Arc<Directory>, name: &str) -> Result<Option<Self>, RootError> {
        Self::take(dir, name, FlockOperation::NonBlockingLockExclusive)
    }

    fn take(
        dir: &Arc<Directory>,
        name: &str,
        operation: FlockOperation,
    ) -> Result<Option<Self>, RootError> {
        let locked = || -> io::Result<Option<OwnedFd>> {
            loop {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let file = openat(&**dir, name, flags, Mode::RUSR | Mode::WUSR)?;
                match flock(&file, operation) {
                    Ok(()) => {}
                    Err(Errno::WOULDBLOCK) => return Ok(None),
                    Err(Errno::INTR) => continue,
                    Err(error) => return Err(error.into()),
                }
                // The holder before may have removed the file: then its name is free for another one.
                if fstat(&file)?.st_nlink > 0 {
                    return Ok(Some(file));
                }
            }
        };
        let file = locked().map_err(|source| RootError {
            action: "lock",
            path: dir.path().join(name),
            source,
        })?;
        Ok(file.map(|file| Self {
            dir: Arc::clone(dir),
            name: name.to_owned(),
            _file: file,
        }))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Best effort: a file that stays behind is locked again the next time.
        let _ = unlinkat(&*self.dir, &self.name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Root;

    #[test]
    fn one_holds_it_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let locks = Arc::new(root.make_directory("/locks", 0o700).unwrap());
        let first = FileLock::wait(&locks, "a").unwrap();
        assert!(FileLock::attempt(&locks, "a").unwrap().is_none());
        assert!(FileLock::attempt(&locks, "b").unwrap().is_some());
        drop(first);
        assert!(FileLock::attempt(&locks, "a").unwrap().is_some());
        assert!(locks.list().unwrap().is_empty());
        std::fs::remove_dir(dir.path().join("locks")).unwrap();
        assert!(FileLock::wait(&locks, "a").is_err());
    }

    #[test]
    fn many_take_turns() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let locks = Arc::new(root.directory("/").unwrap());
        let held = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _lock = FileLock::wait(&locks, "a").unwrap();
                        let others = held.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        assert_eq!(others, 0);
                        held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
