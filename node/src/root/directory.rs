//! A directory that is open: its files are read, replaced and removed by name, without resolving the way to it again.

use std::{
    ffi::OsStr,
    fmt::Debug,
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};

use super::{Result, fail, names, read_bounded, temporary};

/// Waits for the disk. Every wait below a [`Root`](super::Root) goes through here, so that tests can count them and can play a power
/// cut.
pub trait Disk: Debug + Send + Sync {
    /// Returns when the content of the file is on disk.
    fn sync_data(&self, file: BorrowedFd<'_>) -> io::Result<()>;
    /// Returns when the names in the directory are on disk.
    fn sync_dir(&self, dir: BorrowedFd<'_>) -> io::Result<()>;
}

/// The kernel's own calls.
#[derive(Debug)]
pub(super) struct KernelDisk;

impl Disk for KernelDisk {
    fn sync_data(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(file)?)
    }

    fn sync_dir(&self, dir: BorrowedFd<'_>) -> io::Result<()> {
        Ok(rustix::fs::fsync(dir)?)
    }
}

/// What a power cut can do to a file that was replaced. Processes see the old file or the new one in every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: content and name are on disk.
    Synced,
    /// It may bring the old file back; whichever is there is whole.
    Whole,
    /// It may bring the old file back, or leave the new one empty or cut off. Nothing waits for the disk.
    Volatile,
}

/// An open directory below a root.
#[derive(Debug)]
pub struct Directory {
    pub(super) fd: OwnedFd,
    /// As the node names it.
    pub(super) path: PathBuf,
    pub(super) disk: Arc<dyn Disk>,
}

impl Directory {
    /// Its path, as the node names it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole content of a file of at most `max` bytes. A symbolic link is refused with `ELOOP`.
    pub fn read(&self, name: impl AsRef<OsStr>, max: u64) -> Result<Vec<u8>> {
        let name = name.as_ref();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(&self.fd, name, flags, Mode::empty())
            .map_err(io::Error::from)
            .and_then(|file| read_bounded(File::from(file), max))
            .map_err(|error| fail("read", &self.path.join(name), error))
    }

    /// The names in it, sorted by byte.
    pub fn list(&self) -> Result<Vec<String>> {
        names(&self.fd).map_err(|error| fail("list", &self.path, error))
    }

    /// Makes a file under its own name; one that has the name already is removed first. Only for files that do not count before
    /// something else is written, for a crash leaves them cut off.
    pub fn create(&self, name: impl AsRef<OsStr>, bytes: &[u8], mode: u32) -> Result<File> {
        let name = name.as_ref();
        let write = || {
            let mut file = self.create_new(name, mode)?;
            file.write_all(bytes)?;
            Ok(file)
        };
        write().map_err(|error: io::Error| fail("write", &self.path.join(name), error))
    }

    /// Replaces a file as one step: a hidden file beside it, then a rename.
    /// A leftover of a crashed attempt is overwritten; two callers must not write one file at once.
    pub fn replace(
        &self,
        name: impl AsRef<OsStr>,
        bytes: &[u8],
        mode: u32,
        durability: Durability,
    ) -> Result<()> {
        let name = name.as_ref();
        let temporary = temporary(name);
        let write = || -> io::Result<()> {
            let mut file = self.create_new(temporary.as_ref(), mode)?;
            file.write_all(bytes)?;
            if durability != Durability::Volatile {
                // Before the rename: a name must never lead to content that is not there.
                self.disk.sync_data(file.as_fd())?;
            }
            rustix::fs::renameat(&self.fd, &temporary, &self.fd, name)?;
            if durability == Durability::Synced {
                self.disk.sync_dir(self.fd.as_fd())?;
            }
            Ok(())
        };
        write().map_err(|error| {
            // Best effort: the next attempt overwrites what cannot be removed now.
            let _ = rustix::fs::unlinkat(&self.fd, &temporary, AtFlags::empty());
            fail("write", &self.path.join(name), error)
        })
    }

    /// Removes a file, link or socket, and what a crashed attempt to write it left; `false` when there was none.
    /// A power cut may bring it back until [`Directory::sync`].
    pub fn remove(&self, name: impl AsRef<OsStr>) -> Result<bool> {
        let name = name.as_ref();
        // Failing to remove a leftover is no reason to keep the file itself.
        let _ = rustix::fs::unlinkat(&self.fd, temporary(name), AtFlags::empty());
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(fail("remove", &self.path.join(name), error)),
        }
    }

    /// Returns when the content of a file of this directory is on disk.
    pub fn sync_data(&self, file: &File, name: impl AsRef<OsStr>) -> Result<()> {
        let synced = self.disk.sync_data(file.as_fd());
        synced.map_err(|error| fail("sync", &self.path.join(name.as_ref()), error))
    }

    /// Returns when the names in it are on disk.
    pub fn sync(&self) -> Result<()> {
        let synced = self.disk.sync_dir(self.fd.as_fd());
        synced.map_err(|error| fail("sync", &self.path, error))
    }

    fn create_new(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(mode);
        let file = match rustix::fs::openat(&self.fd, name, flags, mode) {
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?;
                rustix::fs::openat(&self.fd, name, flags, mode)?
            }
            opened => opened?,
        };
        // The process' mask may have taken something away.
        if Mode::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != mode {
            rustix::fs::fchmod(&file, mode)?;
        }
        Ok(File::from(file))
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Directory {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl From<Directory> for OwnedFd {
    fn from(directory: Directory) -> Self {
        directory.fd
    }
}
