//! A node's file tree, opened once. Every access resolves below it (openat2 with `RESOLVE_IN_ROOT`, or `steps`), so that a symlink,
//! absolute or not, means on the node what it means to the node, and nothing ever reaches outside.

mod directory;
mod steps;

pub use directory::{Directory, Disk, Durability};

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

/// What the names of files begin with that are not complete yet.
const TEMPORARY: &str = ".multus-rs-";

/// A directory that stands for `/`.
#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
    name: PathBuf,
    disk: Arc<dyn Disk>,
}

/// Something below the root could not be reached.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct RootError {
    /// What was attempted.
    pub action: &'static str,
    /// On what, as the node names it.
    pub path: PathBuf,
    /// Why it failed.
    #[source]
    pub source: io::Error,
}

impl RootError {
    /// Whether the thing is simply not there.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// What a path is, its last component not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
    /// A device, a pipe.
    Other,
}

type Result<T> = std::result::Result<T, RootError>;

impl Root {
    /// Opens the directory that stands for `/`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|e| fail("open", path, e))?;
        Ok(Self {
            dir,
            name: path.to_owned(),
            disk: Arc::new(directory::KernelDisk),
        })
    }

    /// The same root, which waits for the disk by other means.
    #[must_use]
    pub fn with_disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = disk;
        self
    }

    /// Where the root was opened, in the caller's own view.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// The user that the root belongs to.
    pub fn owner(&self) -> Result<u32> {
        let stat = rustix::fs::fstat(&self.dir).map_err(|e| fail("look at", &self.name, e))?;
        Ok(stat.st_uid)
    }

    /// The whole content of a file of at most `max` bytes.
    pub fn read(&self, path: impl AsRef<Path>, max: u64) -> Result<Vec<u8>> {
        let path = path.as_ref();
        self.at(path, OFlags::RDONLY | OFlags::NONBLOCK)
            .map_err(io::Error::from)
            .and_then(|file| read_bounded(File::from(file), max))
            .map_err(|error| fail("read", path, error))
    }

    /// The names in a directory, sorted by byte.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Vec<String>> {
        let path = path.as_ref();
        let dir = self.open_dir(path)?;
        names(&dir).map_err(|error| fail("list", path, error))
    }

    /// Whether the path leads to something, links followed.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.at(path.as_ref(), OFlags::PATH).is_ok()
    }

    /// Whether the path leads to a directory, links followed.
    pub fn is_dir(&self, path: impl AsRef<Path>) -> bool {
        self.at(path.as_ref(), OFlags::PATH | OFlags::DIRECTORY)
            .is_ok()
    }

    /// Whether the path leads to a program, links followed.
    pub fn is_executable(&self, path: impl AsRef<Path>) -> bool {
        let found = self.at(path.as_ref(), OFlags::PATH);
        found
            .and_then(|fd| rustix::fs::fstat(&fd))
            .is_ok_and(|stat| {
                FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                    && stat.st_mode & 0o111 != 0
            })
    }

    /// Opens a file for reading, links followed.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        self.at(path, OFlags::RDONLY | OFlags::NONBLOCK)
            .map(File::from)
            .map_err(|e| fail("open", path, e))
    }

    /// What the path is, its last component not followed; `None` when there is nothing.
    pub fn kind(&self, path: impl AsRef<Path>) -> Result<Option<Kind>> {
        let path = path.as_ref();
        let fd = match self.at(path, OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(fail("look at", path, error)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|e| fail("look at", path, e))?;
        Ok(Some(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Symlink,
            FileType::Socket => Kind::Socket,
            _ => Kind::Other,
        }))
    }

    /// Opens a directory; the handle reads, lists and stays valid when the directory moves.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<OwnedFd> {
        let path = path.as_ref();
        self.at(path, OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(|e| fail("open directory", path, e))
    }

    /// The directory as a root of its own.
    pub fn sub(&self, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Ok(Self {
            dir: self.open_dir(path)?,
            name: self.name.join(relative(path)),
            disk: Arc::clone(&self.disk),
        })
    }

    /// What a link of the kernel's in a directory leads to (as `root` in `/proc/<pid>`), as a root of its own.
    pub fn follow(&self, dir: impl AsRef<Path>, link: &str) -> Result<Self> {
        let path = dir.as_ref().join(link);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(self.open_dir(dir)?, link, flags, Mode::empty());
        Ok(Self {
            dir: dir.map_err(|e| fail("follow", &path, e))?,
            name: self.name.join(relative(&path)),
            disk: Arc::clone(&self.disk),
        })
    }

    /// What tells a file or directory from every other, links followed; `None` when there is nothing.
    pub fn identity(&self, path: impl AsRef<Path>) -> Option<(u64, u64)> {
        let fd = self.at(path.as_ref(), OFlags::PATH).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    /// When the file was last written, in seconds since 1970, links followed.
    pub fn modified(&self, path: impl AsRef<Path>) -> Option<i64> {
        let fd = self.at(path.as_ref(), OFlags::PATH).ok()?;
        Some(rustix::fs::fstat(&fd).ok()?.st_mtime)
    }

    /// Makes the directory and the parents that are missing, each with `mode`.
    pub fn make_dirs(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        if self.is_dir(path) {
            return Ok(());
        }
        let mut done = PathBuf::from("/");
        for part in path
            .components()
            .filter(|part| matches!(part, Component::Normal(_)))
        {
            let parent = self.open_dir(&done)?;
            done.push(part);
            if self.is_dir(&done) {
                continue;
            }
            // What is written into a new directory is lost with it, unless the directory itself outlives a power cut.
            let outcome =
                match rustix::fs::mkdirat(&parent, part.as_os_str(), Mode::from_raw_mode(mode)) {
                    Ok(()) => self.disk.sync_dir(parent.as_fd()),
                    Err(Errno::EXIST) => Ok(()),
                    Err(error) => Err(error.into()),
                };
            outcome.map_err(|error| fail("make directory", &done, error))?;
        }
        Ok(())
    }

    /// Replaces a file as one step ([`Directory::replace`]) that outlives a power cut.
    pub fn write_atomic(&self, path: impl AsRef<Path>, bytes: &[u8], mode: u32) -> Result<()> {
        self.write(path.as_ref(), bytes, mode, Durability::Synced)
    }

    /// Replaces a file as one step ([`Directory::replace`]); what a power cut may do to it is the caller's choice.
    pub fn write(
        &self,
        path: &Path,
        bytes: &[u8],
        mode: u32,
        durability: Durability,
    ) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        parent.replace(name, bytes, mode, durability)
    }

    /// Removes a file, link or socket, and what a crashed attempt to write it left; `false` when there was none. It stays away
    /// after a power cut.
    pub fn remove(&self, path: impl AsRef<Path>) -> Result<bool> {
        self.remove_in(path.as_ref(), Directory::sync)
    }

    /// The same without waiting for the disk: a power cut may bring the file back.
    pub fn remove_volatile(&self, path: impl AsRef<Path>) -> Result<bool> {
        self.remove_in(path.as_ref(), |_| Ok(()))
    }

    fn remove_in(&self, path: &Path, sync: impl FnOnce(&Directory) -> Result<()>) -> Result<bool> {
        let (parent, name) = match self.parent(path) {
            Ok(found) => found,
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) => return Err(error),
        };
        let removed = parent.remove(name)?;
        if removed {
            sync(&parent)?;
        }
        Ok(removed)
    }

    /// Whether files could be made in the directory.
    pub fn is_writable(&self, path: impl AsRef<Path>) -> bool {
        self.open_dir(path).is_ok_and(|dir| {
            rustix::fs::accessat(&dir, ".", rustix::fs::Access::WRITE_OK, AtFlags::empty()).is_ok()
        })
    }

    /// The parent directory, opened, and the last component's name.
    pub fn parent<'a>(&self, path: &'a Path) -> Result<(Directory, &'a OsStr)> {
        let name = path
            .file_name()
            .ok_or_else(|| fail("use", path, io::Error::from(io::ErrorKind::InvalidInput)))?;
        let parent = self.directory(path.parent().unwrap_or(Path::new("/")))?;
        Ok((parent, name))
    }

    /// Opens a directory for work on several of its files.
    pub fn directory(&self, path: impl AsRef<Path>) -> Result<Directory> {
        let path = path.as_ref();
        Ok(Directory {
            fd: self.open_dir(path)?,
            path: path.to_owned(),
            disk: Arc::clone(&self.disk),
        })
    }

    /// The same; the directory and the parents that are missing are made, each with `mode`.
    pub fn make_directory(&self, path: impl AsRef<Path>, mode: u32) -> Result<Directory> {
        let path = path.as_ref();
        match self.directory(path) {
            Err(error) if error.is_not_found() => {
                self.make_dirs(path, mode)?;
                self.directory(path)
            }
            opened => opened,
        }
    }

    fn at(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let mut path = relative(path);
        if path.as_os_str().is_empty() {
            path = Path::new(".");
        }
        let flags = flags | OFlags::CLOEXEC;
        let (dir, mut attempts) = (self.dir.as_fd(), 0);
        loop {
            match openat2(dir, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                // The kernel gives up when something is renamed under its feet; it asks to be called again.
                Err(Errno::AGAIN | Errno::INTR) if attempts < 64 => attempts += 1,
                // Filters of system calls have either word for what they do not know.
                Err(Errno::NOSYS | Errno::PERM) => return steps::open(dir, path, flags),
                other => return other,
            }
        }
    }
}

/// The content of a file of at most `max` bytes.
fn read_bounded(file: File, max: u64) -> io::Result<Vec<u8>> {
    let size = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or_default();
    // One byte more than there is, so that the end is seen without asking for more memory. Some files have no size.
    let capacity = size.min(max).max(1 << 10) + 1;
    let mut bytes = Vec::with_capacity(usize::try_from(capacity).unwrap_or_default());
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        let text = format!("it has more than {max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// The names in a directory, sorted by byte.
fn names(dir: impl AsFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        match entry?.file_name().to_str() {
            Ok("." | "..") | Err(_) => {}
            Ok(name) => names.push(name.to_owned()),
        }
    }
    names.sort();
    Ok(names)
}

/// The name of the file that a crashed [`Root::write_atomic`] meant to write, of the name that it left.
pub fn written_as(temporary: &str) -> Option<&str> {
    temporary.strip_prefix(TEMPORARY)?.strip_suffix(".tmp")
}

fn temporary(name: &OsStr) -> String {
    format!("{TEMPORARY}{}.tmp", name.to_string_lossy())
}

/// A path that any call of this process understands as long as `fd` lives.
pub fn proc_path(fd: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn fail(action: &'static str, path: &Path, source: impl Into<io::Error>) -> RootError {
    RootError {
        action,
        path: path.to_owned(),
        source: source.into(),
    }
}

#[cfg(test)]
mod tests;
