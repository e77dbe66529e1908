//! Locks between processes of one node, without a file for each lock.
//!
//! All locks of a directory are byte ranges of one file: the lock of a name is the one byte at the name's hash, since creating and
//! removing a file for each lock costs more than everything else about it. The ranges belong to the open file (`F_OFD_SETLK`, Linux
//! 3.15), so the threads of one process exclude each other as well, and a process that dies releases its locks.
//!
//! Where no file may be left, the directory itself is locked (flock(2)): a lock file that one process removes while another waits for it
//! would have two holders.

use std::{io, os::fd::OwnedFd};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    libc,
};
use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock, openat},
    io::retry_on_intr,
};

use crate::root::{Directory, RootError};

/// A lock that is released when it is dropped.
#[derive(Debug)]
pub struct FileLock {
    _file: OwnedFd,
}

impl FileLock {
    /// Waits for the lock of this name on `file`, which is created in the directory if it is missing.
    pub fn wait(dir: &Directory, file: &str, name: &str) -> Result<Self, RootError> {
        acquire(dir, file, name, true)
            .map(|lock| lock.expect("waiting ends with the lock or an error"))
    }

    /// Returns the lock of this name on `file`, or `None` while another thread or process holds it.
    pub fn attempt(dir: &Directory, file: &str, name: &str) -> Result<Option<Self>, RootError> {
        acquire(dir, file, name, false)
    }

    /// Waits for the lock of the directory itself.
    pub fn wait_for_directory(dir: &Directory) -> Result<Self, RootError> {
        let lock = || -> rustix::io::Result<OwnedFd> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            // The lock belongs to the open file, so every holder opens its own.
            let own = openat(dir, ".", flags, Mode::empty())?;
            retry_on_intr(|| flock(&own, FlockOperation::LockExclusive))?;
            Ok(own)
        };
        let file = lock().map_err(|errno| RootError {
            action: "lock",
            path: dir.path().to_owned(),
            source: errno.into(),
        })?;
        Ok(Self { _file: file })
    }
}

fn acquire(
    dir: &Directory,
    file: &str,
    name: &str,
    is_waiting: bool,
) -> Result<Option<FileLock>, RootError> {
    let lock = || -> io::Result<Option<FileLock>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(dir, file, flags, Mode::RUSR | Mode::WUSR)?;
        let range = byte(offset(name));
        loop {
            let command = if is_waiting {
                FcntlArg::F_OFD_SETLKW(&range)
            } else {
                FcntlArg::F_OFD_SETLK(&range)
            };
            match fcntl(&file, command) {
                Ok(_) => return Ok(Some(FileLock { _file: file })),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN | Errno::EACCES) if !is_waiting => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    };
    lock().map_err(|source| RootError {
        action: "lock",
        path: dir.path().join(file),
        source,
    })
}

/// Returns an exclusive lock on one byte of a file, which may lie beyond its end.
fn byte(offset: i32) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(libc::F_WRLCK).expect("the constant fits its field"),
        l_whence: i16::try_from(libc::SEEK_SET).expect("the constant fits its field"),
        l_start: offset.into(),
        l_len: 1,
        l_pid: 0,
    }
}

/// Returns the offset of the lock of a name: FNV-1a in 31 bits, which fit the offsets of 32-bit machines. It has to be the same in every
/// release, since two releases run side by side during an update. Two names with the same hash only wait for each other.
fn offset(name: &str) -> i32 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    i32::try_from(hash >> 33).expect("31 bits fit")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Root;

    #[test]
    fn name_has_one_holder_and_other_names_are_free() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let locks = root.make_directory("/locks", 0o700).unwrap();
        let first = FileLock::wait(&locks, "file", "a").unwrap();
        assert!(FileLock::attempt(&locks, "file", "a").unwrap().is_none());
        assert!(FileLock::attempt(&locks, "file", "b").unwrap().is_some());
        drop(first);
        assert!(FileLock::attempt(&locks, "file", "a").unwrap().is_some());
        assert_eq!(locks.list().unwrap(), ["file"]);
    }

    #[test]
    fn missing_directory_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let locks = root.make_directory("/locks", 0o700).unwrap();
        std::fs::remove_dir(dir.path().join("locks")).unwrap();
        let error = FileLock::wait(&locks, "file", "a").unwrap_err();
        assert!(error.is_not_found(), "{error}");
    }

    #[test]
    fn the_offset_of_a_name_never_changes() {
        assert_eq!(offset(""), 0x65f9_4e72);
        assert_eq!(offset("a"), 0x57b1_ee26);
    }

    #[test]
    fn threads_exclude_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let locks = root.directory("/").unwrap();
        let held = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _lock = FileLock::wait(&locks, "file", "a").unwrap();
                        let others = held.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        assert_eq!(others, 0);
                        held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
