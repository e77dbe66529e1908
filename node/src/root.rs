//! A node's file tree, opened once. Every access resolves below it (openat2 with `RESOLVE_IN_ROOT`, or `resolve`), so that a symlink,
//! absolute or not, leads to the same file as on the node itself, and no access leaves the tree.

mod resolve;

use std::{
    ffi::OsStr,
    fmt::Debug,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::{fs::FileExt as _, net::UnixListener},
    },
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, FsWord, Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
    },
};

/// The prefix of temporary files.
const TEMPORARY_PREFIX: &str = ".multus-rs-";

/// The metadata that changes when a file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    size: i64,
    mode: u32,
    modified: (i64, u32),
    changed: (i64, u32),
}

/// Returns nanoseconds, less than a second, whose type differs between architectures.
fn nanoseconds(count: impl TryInto<u32>) -> u32 {
    count.try_into().unwrap_or_default()
}

/// An open directory that stands for the node's `/`.
#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
    name: PathBuf,
    disk: Arc<dyn Disk>,
}

/// The reason why an access below the root failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct RootError {
    /// The attempted action.
    pub action: &'static str,
    /// The path on the node.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: io::Error,
}

impl RootError {
    /// Returns whether the path does not exist.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// The kind of a file; a link as last component is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    Socket,
    /// A device or a pipe.
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
            disk: Arc::new(KernelDisk),
        })
    }

    /// Returns the same root with another implementation of waits for the disk.
    #[must_use]
    pub fn with_disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = disk;
        self
    }

    /// Returns the path that the root was opened at, in the caller's own file tree.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Returns the user ID of the root's owner.
    pub fn owner(&self) -> Result<u32> {
        let stat = rustix::fs::fstat(&self.dir).map_err(|e| fail("inspect", &self.name, e))?;
        Ok(stat.st_uid)
    }

    /// Reads a file of at most `max` bytes.
    pub fn read(&self, path: impl AsRef<Path>, max: u64) -> Result<Vec<u8>> {
        let path = path.as_ref();
        self.at(path, OFlags::RDONLY | OFlags::NONBLOCK)
            .map_err(io::Error::from)
            .and_then(|file| read_bounded(File::from(file), max))
            .map_err(|error| fail("read", path, error))
    }

    /// Returns the names in a directory, sorted by byte.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Vec<String>> {
        let path = path.as_ref();
        let dir = self.open_dir(path)?;
        names(&dir).map_err(|error| fail("list", path, error))
    }

    /// Returns whether the path exists, links followed.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.at(path.as_ref(), OFlags::PATH).is_ok()
    }

    /// Returns whether the path is a directory, links followed.
    pub fn is_dir(&self, path: impl AsRef<Path>) -> bool {
        self.at(path.as_ref(), OFlags::PATH | OFlags::DIRECTORY)
            .is_ok()
    }

    /// Returns whether the path is an executable file, links followed.
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

    /// Returns the kind of a file, a link as last component not followed; `None` if there is none.
    pub fn kind(&self, path: impl AsRef<Path>) -> Result<Option<Kind>> {
        let path = path.as_ref();
        let fd = match self.at(path, OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(fail("inspect", path, error)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|e| fail("inspect", path, e))?;
        Ok(Some(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Symlink,
            FileType::Socket => Kind::Socket,
            _ => Kind::Other,
        }))
    }

    /// Returns the path without links of what a path leads to, as it is below the root.
    pub fn real_path(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let fd = self
            .at(path, OFlags::PATH)
            .map_err(|e| fail("resolve", path, e))?;
        // The kernel knows the name of what is open.
        let name = |fd: &OwnedFd| {
            std::fs::read_link(proc_path(fd)).map_err(|error| fail("resolve", path, error))
        };
        let (real, root) = (name(&fd)?, name(&self.dir)?);
        let below = real.strip_prefix(&root).map_err(|_| {
            let moved = io::Error::other("it was moved out of the root meanwhile");
            fail("resolve", path, moved)
        })?;
        Ok(Path::new("/").join(below))
    }

    /// Opens a directory for reading and listing; the handle stays valid when the directory moves.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<OwnedFd> {
        let path = path.as_ref();
        self.at(path, OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(|e| fail("open directory", path, e))
    }

    /// Opens a directory as a root of its own.
    pub fn sub(&self, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Ok(Self {
            dir: self.open_dir(path)?,
            name: self.name.join(relative(path)),
            disk: Arc::clone(&self.disk),
        })
    }

    /// Follows a link of the kernel (as `root` in `/proc/<pid>`) to a root of its own.
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

    /// Returns user, group and permission bits of a file or directory, links followed; `None` if there is none.
    pub fn access(&self, path: impl AsRef<Path>) -> Option<(u32, u32, u32)> {
        let fd = self.at(path.as_ref(), OFlags::PATH).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        Some((stat.st_uid, stat.st_gid, stat.st_mode & 0o7777))
    }

    /// Returns device and inode, which identify a file or directory, links followed; `None` if there is none.
    pub fn identity(&self, path: impl AsRef<Path>) -> Option<(u64, u64)> {
        let fd = self.at(path.as_ref(), OFlags::PATH).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    /// Returns whether two paths are one name in one directory, by whatever links they lead there: a distro's directory that was moved
    /// often has a link at its former place.
    pub fn is_same_entry(&self, one: &Path, other: &Path) -> bool {
        let dir = |path: &Path| self.identity(path.parent()?);
        let is_same_dir = || dir(one).is_some_and(|identity| dir(other) == Some(identity));
        one == other || (one.file_name() == other.file_name() && is_same_dir())
    }

    /// Returns the time of the last write in seconds since 1970, links followed.
    pub fn modified(&self, path: impl AsRef<Path>) -> Option<i64> {
        let fd = self.at(path.as_ref(), OFlags::PATH).ok()?;
        Some(rustix::fs::fstat(&fd).ok()?.st_mtime)
    }

    /// Returns what changes when a file is written or replaced, links followed; `None` if there is no file.
    pub fn stamp(&self, path: impl AsRef<Path>) -> Option<Stamp> {
        let fd = self.at(path.as_ref(), OFlags::PATH).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        Some(Stamp {
            file: (stat.st_dev, stat.st_ino),
            size: stat.st_size,
            mode: stat.st_mode,
            modified: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanoseconds(stat.st_ctime_nsec)),
        })
    }

    /// Creates the directory and its missing parents, each with `mode`, whatever the umask.
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
            // Synced, since the files in a new directory are lost with it if the directory does not outlive a power cut.
            let mode = Mode::from_raw_mode(mode);
            let outcome = match rustix::fs::mkdirat(&parent, part.as_os_str(), mode) {
                Ok(()) => restore_mode(&parent, part.as_os_str(), mode)
                    .map_err(io::Error::from)
                    .and_then(|()| self.disk.sync_dir(parent.as_fd())),
                Err(Errno::EXIST) => Ok(()),
                Err(error) => Err(error.into()),
            };
            outcome.map_err(|error| fail("make directory", &done, error))?;
        }
        Ok(())
    }

    /// Replaces a file atomically ([`Directory::replace`]), and durably.
    pub fn write_atomic(&self, path: impl AsRef<Path>, bytes: &[u8], mode: u32) -> Result<()> {
        self.write(path.as_ref(), bytes, mode, Durability::Synced)
    }

    /// Replaces a file atomically ([`Directory::replace`]), as durably as the caller chooses.
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

    /// Returns the target of a symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        use std::os::unix::ffi::OsStringExt as _;
        let path = path.as_ref();
        let (parent, name) = self.parent(path)?;
        let target = rustix::fs::readlinkat(&parent, name, Vec::new());
        let target = target.map_err(|error| fail("read link", path, error))?;
        Ok(std::ffi::OsString::from_vec(target.into_bytes()).into())
    }

    /// Replaces a file or link atomically by a symbolic link, and durably.
    pub fn write_link(&self, path: impl AsRef<Path>, target: &str) -> Result<()> {
        let (parent, name) = self.parent(path.as_ref())?;
        parent.replace_by_link(name, target)
    }

    /// Removes a file, link or socket durably, with the temporary file of a crashed write; `false` if there was none.
    pub fn remove(&self, path: impl AsRef<Path>) -> Result<bool> {
        self.remove_in(path.as_ref(), Directory::sync)
    }

    /// The same without waiting for the disk: after a power cut the file may exist again.
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

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (parent, name) = self.parent(path)?;
        rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)
            .map_err(|error| fail("remove directory", path, error))
    }

    /// Returns whether files can be created in the directory.
    pub fn is_writable(&self, path: impl AsRef<Path>) -> bool {
        self.open_dir(path).is_ok_and(|dir| {
            rustix::fs::accessat(&dir, ".", rustix::fs::Access::WRITE_OK, AtFlags::empty()).is_ok()
        })
    }

    /// Opens the parent directory, and returns it with the name of the last component.
    pub fn parent<'a>(&self, path: &'a Path) -> Result<(Directory, &'a OsStr)> {
        let name = path
            .file_name()
            .ok_or_else(|| fail("use", path, io::Error::from(io::ErrorKind::InvalidInput)))?;
        let parent = self.directory(path.parent().unwrap_or(Path::new("/")))?;
        Ok((parent, name))
    }

    /// Returns whether a process accepts connections at a socket; a full queue counts, too.
    pub fn accepts(&self, socket: &Path) -> bool {
        let connected = |(dir, name): (Directory, &OsStr)| {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let client = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            connect(&client, &SocketAddrUnix::new(proc_path(&dir).join(name))?)
        };
        let outcome = self.parent(socket).map(connected);
        matches!(outcome, Ok(Ok(()) | Err(Errno::AGAIN)))
    }

    /// Opens a directory for access to several of its files.
    pub fn directory(&self, path: impl AsRef<Path>) -> Result<Directory> {
        let path = path.as_ref();
        Ok(Directory {
            fd: self.open_dir(path)?,
            path: path.to_owned(),
            disk: Arc::clone(&self.disk),
        })
    }

    /// The same; creates the directory and its missing parents, each with `mode`.
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
        let (dir, flags) = (self.dir.as_fd(), flags | OFlags::CLOEXEC);
        match open_in_root(dir, path, flags) {
            // Filters of system calls (seccomp) return either error for a call that they do not know.
            Err(Errno::NOSYS | Errno::PERM) => resolve::open(dir, path, flags),
            other => other,
        }
    }
}

/// Opens a path below a directory by `openat2`.
fn open_in_root(dir: BorrowedFd<'_>, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let mut attempts = 0;
    loop {
        match openat2(dir, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            // The kernel gives up when something is renamed or mounted meanwhile, and expects another call.
            Err(Errno::AGAIN | Errno::INTR) if attempts < 64 => attempts += 1,
            other => return other,
        }
    }
}

/// Waits for the disk. All waits below a [`Root`] go through this trait, so that tests can count them and simulate a power cut.
pub trait Disk: Debug + Send + Sync {
    /// Returns when the content of the file is on disk.
    fn sync_data(&self, file: BorrowedFd<'_>) -> io::Result<()>;
    /// Returns when the names in the directory are on disk.
    fn sync_dir(&self, dir: BorrowedFd<'_>) -> io::Result<()>;
    /// Returns whether [`sync_data`](Self::sync_data) of a new file also puts its name on disk, and before the names of later files.
    fn syncs_name_of_new_file(&self, file: BorrowedFd<'_>) -> bool;
}

/// The file systems that create a file and its name in one transaction, which the file's sync commits, and that commit transactions in their
/// order: ext4, XFS and Btrfs. Each number is the `f_type` of statfs(2).
const NAME_WITH_CONTENT: [FsWord; 3] = [0xef53, 0x5846_5342, 0x9123_683e_u32 as FsWord];

/// Waits by the kernel's system calls.
#[derive(Debug)]
struct KernelDisk;

impl Disk for KernelDisk {
    fn sync_data(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(file)?)
    }

    fn sync_dir(&self, dir: BorrowedFd<'_>) -> io::Result<()> {
        Ok(rustix::fs::fsync(dir)?)
    }

    fn syncs_name_of_new_file(&self, file: BorrowedFd<'_>) -> bool {
        rustix::fs::fstatfs(file).is_ok_and(|stat| NAME_WITH_CONTENT.contains(&stat.f_type))
    }
}

/// The effect of a power cut on a replaced file. Processes see the old file or the new one in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// None: content and name are on disk.
    Synced,
    /// The old file may exist again; either file is complete.
    Complete,
    /// The old file may exist again, or the new one may be empty or truncated. Nothing waits for the disk.
    Volatile,
}

/// An open directory below a root.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    disk: Arc<dyn Disk>,
}

impl Directory {
    /// Returns the path on the node.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a file of at most `max` bytes. A symbolic link is refused with `ELOOP`.
    pub fn read(&self, name: impl AsRef<OsStr>, max: u64) -> Result<Vec<u8>> {
        let name = name.as_ref();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(&self.fd, name, flags, Mode::empty())
            .map_err(io::Error::from)
            .and_then(|file| read_bounded(File::from(file), max))
            .map_err(|error| fail("read", &self.path.join(name), error))
    }

    /// Returns the names in the directory, sorted by byte.
    pub fn list(&self) -> Result<Vec<String>> {
        names(&self.fd).map_err(|error| fail("list", &self.path, error))
    }

    /// Creates a file under its final name; an existing one is removed first. A crash leaves the file truncated, so it must not count before
    /// another file is written.
    pub fn create(&self, name: impl AsRef<OsStr>, bytes: &[u8], mode: u32) -> Result<File> {
        let name = name.as_ref();
        let write = || {
            let mut file = self.create_new(name, mode)?;
            file.write_all(bytes)?;
            Ok(file)
        };
        write().map_err(|error: io::Error| fail("write", &self.path.join(name), error))
    }

    /// Overwrites a part of a file in place and does not wait for the disk. A symbolic link is refused with `ELOOP`.
    pub fn overwrite(&self, name: impl AsRef<OsStr>, bytes: &[u8], at: u64) -> Result<()> {
        let name = name.as_ref();
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(&self.fd, name, flags, Mode::empty())
            .map_err(io::Error::from)
            .and_then(|file| File::from(file).write_all_at(bytes, at))
            .map_err(|error| fail("write", &self.path.join(name), error))
    }

    /// Replaces a file atomically, by a temporary file in the same directory and a rename. The temporary file of a crashed write is
    /// replaced; two callers must not write one file at once.
    pub fn replace(
        &self,
        name: impl AsRef<OsStr>,
        bytes: &[u8],
        mode: u32,
        durability: Durability,
    ) -> Result<()> {
        let name = name.as_ref();
        let temporary = temporary_name(name);
        let write = || -> io::Result<()> {
            let mut file = self.create_new(temporary.as_ref(), mode)?;
            file.write_all(bytes)?;
            if durability != Durability::Volatile {
                // Before the rename, so that the name never leads to a truncated file.
                self.disk.sync_data(file.as_fd())?;
            }
            rustix::fs::renameat(&self.fd, &temporary, &self.fd, name)?;
            if durability == Durability::Synced {
                self.disk.sync_dir(self.fd.as_fd())?;
            }
            Ok(())
        };
        write().map_err(|error| {
            // Best effort: the next write replaces a temporary file that remains.
            let _ = rustix::fs::unlinkat(&self.fd, &temporary, AtFlags::empty());
            fail("write", &self.path.join(name), error)
        })
    }

    /// Replaces a file or link atomically by a symbolic link, as [`Directory::replace`] does for files, and durably.
    fn replace_by_link(&self, name: &OsStr, target: &str) -> Result<()> {
        let temporary = temporary_name(name);
        let link = || -> io::Result<()> {
            match rustix::fs::symlinkat(target, &self.fd, &temporary) {
                Err(Errno::EXIST) => {
                    rustix::fs::unlinkat(&self.fd, &temporary, AtFlags::empty())?;
                    rustix::fs::symlinkat(target, &self.fd, &temporary)?;
                }
                other => other?,
            }
            rustix::fs::renameat(&self.fd, &temporary, &self.fd, name)?;
            self.disk.sync_dir(self.fd.as_fd())
        };
        link().map_err(|error| {
            // Best effort: the next call replaces a temporary link that remains.
            let _ = rustix::fs::unlinkat(&self.fd, &temporary, AtFlags::empty());
            fail("link", &self.path.join(name), error)
        })
    }

    /// Renames a file inside the directory; one that has the name is replaced.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        rustix::fs::renameat(&self.fd, from, &self.fd, to)
            .map_err(|error| fail("rename", &self.path.join(from), error))
    }

    /// Removes a file, link or socket, with the temporary file of a crashed write; `false` if there was none.
    /// Until [`Directory::sync`] it may exist again after a power cut.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> Result<bool> {
        let name = name.as_ref();
        // A temporary file that cannot be removed is not a reason to keep the file itself.
        let _ = rustix::fs::unlinkat(&self.fd, temporary_name(name), AtFlags::empty());
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(fail("remove", &self.path.join(name), error)),
        }
    }

    /// Listens on a new socket, which replaces the file of that name and to which only its owner can ever connect. Returns it with its
    /// device and inode; it does not block.
    pub fn listen(&self, name: impl AsRef<OsStr>) -> Result<(UnixListener, (u64, u64))> {
        let name = name.as_ref();
        self.remove(name)?;
        let listening = || {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            // The file gets the mode that the socket has when it is bound.
            rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            bind(&socket, &SocketAddrUnix::new(proc_path(self).join(name))?)?;
            let identity = self.identity(name)?;
            // The longest queue that the kernel allows.
            listen(&socket, -1)?;
            Ok((socket.into(), identity))
        };
        listening().map_err(|error: Errno| fail("listen on", &self.path.join(name), error))
    }

    /// Returns device and inode of a file, a link not followed.
    pub fn identity(&self, name: impl AsRef<OsStr>) -> rustix::io::Result<(u64, u64)> {
        let stat = rustix::fs::statat(&self.fd, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Returns when the content of a file of this directory is on disk.
    pub fn sync_data(&self, file: &File, name: impl AsRef<OsStr>) -> Result<()> {
        let synced = self.disk.sync_data(file.as_fd());
        synced.map_err(|error| fail("sync", &self.path.join(name.as_ref()), error))
    }

    /// Returns whether [`sync_data`](Self::sync_data) of a file that was created in this directory also puts its name on disk, and before the
    /// names of all files that are created later.
    pub fn syncs_name_of(&self, new_file: &File) -> bool {
        self.disk.syncs_name_of_new_file(new_file.as_fd())
    }

    /// Returns when the names in the directory are on disk.
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
        // The umask of the process may have removed permissions.
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

/// Gives a new directory the permissions that the umask of the process removed.
fn restore_mode(parent: &OwnedFd, name: &OsStr, mode: Mode) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    let present = Mode::from_raw_mode(rustix::fs::fstat(&dir)?.st_mode);
    if present.contains(mode) {
        return Ok(());
    }
    rustix::fs::fchmod(&dir, present | mode)
}

/// Reads a file of at most `max` bytes.
fn read_bounded(file: File, max: u64) -> io::Result<Vec<u8>> {
    let size = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or_default();
    // One byte more than the file has, so that the read that finds the end needs no larger buffer. Files of /proc report no size.
    let capacity = size.min(max).max(1 << 10) + 1;
    let mut bytes = Vec::with_capacity(usize::try_from(capacity).unwrap_or_default());
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        let text = format!("it has more than {max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// Returns the names in a directory, sorted by byte.
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

/// Returns the name of the file that a temporary file was written for, which a crashed write left.
pub fn final_name(temporary: &str) -> Option<&str> {
    temporary
        .strip_prefix(TEMPORARY_PREFIX)?
        .strip_suffix(".tmp")
}

fn temporary_name(name: &OsStr) -> String {
    format!("{TEMPORARY_PREFIX}{}.tmp", name.to_string_lossy())
}

/// Returns a path to an open file, which is valid in this process while `fd` is open.
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
