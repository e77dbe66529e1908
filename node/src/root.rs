//! A node's file tree, opened once. Every access resolves below it (openat2 with `RESOLVE_IN_ROOT`, or `steps`), so that a symlink,
//! absolute or not, means on the node what it means to the node, and nothing ever reaches outside.

mod steps;

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Component, Path, PathBuf},
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
        })
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
        let file = File::from(
            self.at(path, OFlags::RDONLY | OFlags::NONBLOCK)
                .map_err(|e| fail("read", path, e))?,
        );
        let mut bytes = Vec::new();
        file.take(max + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| fail("read", path, e))?;
        if bytes.len() as u64 > max {
            let text = format!("it has more than {max} bytes");
            return Err(fail(
                "read",
                path,
                io::Error::new(io::ErrorKind::FileTooLarge, text),
            ));
        }
        Ok(bytes)
    }

    /// The names in a directory, sorted by byte.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Vec<String>> {
        let path = path.as_ref();
        let dir = self.open_dir(path)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&dir).map_err(|e| fail("list", path, e))? {
            let entry = entry.map_err(|e| fail("list", path, e))?;
            match entry.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => names.push(name.to_owned()),
            }
        }
        names.sort();
        Ok(names)
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
                    Ok(()) => rustix::fs::fsync(&parent),
                    Err(Errno::EXIST) => Ok(()),
                    Err(error) => Err(error),
                };
            outcome.map_err(|error| fail("make directory", &done, error))?;
        }
        Ok(())
    }

    /// Replaces a file as one step: a hidden file beside it, fsync, rename, fsync of the directory.
    /// A leftover of a crashed attempt is overwritten; two callers must not write one path at once.
    pub fn write_atomic(&self, path: impl AsRef<Path>, bytes: &[u8], mode: u32) -> Result<()> {
        let path = path.as_ref();
        let (parent, name) = self.parent(path)?;
        let temporary = temporary(name);
        let write = || -> io::Result<()> {
            match rustix::fs::unlinkat(&parent, &temporary, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let mut file = File::from(rustix::fs::openat(
                &parent,
                &temporary,
                flags,
                Mode::from_raw_mode(mode),
            )?);
            file.write_all(bytes)?;
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
            file.sync_all()?;
            rustix::fs::renameat(&parent, &temporary, &parent, name)?;
            rustix::fs::fsync(&parent)?;
            Ok(())
        };
        write().map_err(|error| {
            // Best effort: the next attempt overwrites what cannot be removed now.
            let _ = rustix::fs::unlinkat(&parent, &temporary, AtFlags::empty());
            fail("write", path, error)
        })
    }

    /// Removes a file, link or socket, and what a crashed attempt to write it left; `false` when there was none.
    pub fn remove(&self, path: impl AsRef<Path>) -> Result<bool> {
        let path = path.as_ref();
        let (parent, name) = match self.parent(path) {
            Ok(found) => found,
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) => return Err(error),
        };
        // It is nobody's, and no one would miss it: failing is no reason to keep the file itself.
        let _ = rustix::fs::unlinkat(&parent, temporary(name), AtFlags::empty());
        match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
            Ok(()) => {
                rustix::fs::fsync(&parent).map_err(|e| fail("sync the directory of", path, e))?;
                Ok(true)
            }
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(fail("remove", path, error)),
        }
    }

    /// Whether files could be made in the directory.
    pub fn is_writable(&self, path: impl AsRef<Path>) -> bool {
        self.open_dir(path).is_ok_and(|dir| {
            rustix::fs::accessat(&dir, ".", rustix::fs::Access::WRITE_OK, AtFlags::empty()).is_ok()
        })
    }

    /// The parent directory, opened, and the last component's name.
    pub fn parent<'a>(&self, path: &'a Path) -> Result<(OwnedFd, &'a OsStr)> {
        let name = path
            .file_name()
            .ok_or_else(|| fail("use", path, io::Error::from(io::ErrorKind::InvalidInput)))?;
        Ok((
            self.open_dir(path.parent().unwrap_or(Path::new("/")))?,
            name,
        ))
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
