//! The directory of a network: a file for each address, and in it the attachment that has it. The files, the lock and the marks of
//! the round robin are those of the reference's host-local, so that both can run on one directory at once.
//!
//! Nothing is synced to the disk: a node that loses its power loses its containers too. What survives is read with that in mind.

use std::fs::DirBuilder;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags, RawDir};
use rustix::io::retry_on_intr;

use super::lease::{Lease, text_of};
use crate::error::{Context, Result};
use crate::ip;
use crate::kernel::Errno;

const LOCK: &str = "lock";
const LAST_RESERVED: &str = "last_reserved_ip";
/// No text that names a container and an interface is longer.
const TEXT_LIMIT: usize = 4096;
/// Room for the names of some hundred files at a time.
const DIRECTORY_BUFFER: usize = 32 << 10;

/// The directory of a network, locked until it is dropped: one process at a time reads and writes it.
pub(super) struct Store {
    directory: OwnedFd,
    path: PathBuf,
    /// The kernel releases the lock with the descriptor, however the process ends.
    _lock: OwnedFd,
}

impl Store {
    /// Opens the directory of a network, made where it is missing.
    pub(super) fn open(data_dir: &str, network: &str) -> Result<Self> {
        let path = Path::new(data_dir).join(network);
        let directory = match open_directory(&path) {
            Err(Errno::ENOENT) => {
                // Whatever the umask is, nobody else may write there.
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o755)
                    .create(&path)
                    .context(|| format!("mkdir {}", path.display()))?;
                open_directory(&path)
            }
            other => other,
        };
        let directory = directory.context(|| format!("open {}", path.display()))?;
        Self::lock(directory, path)
    }

    /// Opens the directory, or returns `None` when no address was ever reserved.
    pub(super) fn open_if_present(data_dir: &str, network: &str) -> Result<Option<Self>> {
        let path = Path::new(data_dir).join(network);
        match open_directory(&path) {
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error).context(|| format!("open {}", path.display())),
            Ok(directory) => Self::lock(directory, path).map(Some),
        }
    }

    fn lock(directory: OwnedFd, path: PathBuf) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let lock = fs::openat(&directory, LOCK, flags, Mode::from_raw_mode(0o750))
            .map_err(Errno::from)
            .context(|| format!("open {}", path.join(LOCK).display()))?;
        retry_on_intr(|| fs::flock(&lock, FlockOperation::LockExclusive))
            .map_err(Errno::from)
            .context(|| format!("lock {}", path.join(LOCK).display()))?;
        Ok(Self {
            directory,
            path,
            _lock: lock,
        })
    }

    /// Returns all leases. The address of a file that cannot be read stays taken.
    pub(super) fn leases(&self) -> Result<Vec<Lease>> {
        fs::seek(&self.directory, fs::SeekFrom::Start(0))
            .map_err(Errno::from)
            .context(|| format!("read {}", self.path.display()))?;
        let mut leases = Vec::new();
        let mut buffer = vec![MaybeUninit::uninit(); DIRECTORY_BUFFER];
        let mut entries = RawDir::new(&self.directory, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry
                .map_err(Errno::from)
                .context(|| format!("read {}", self.path.display()))?;
            let name = entry.file_name();
            let Some(address) = name.to_str().ok().and_then(|name| ip::parse(name).ok()) else {
                continue;
            };
            let text = match self.read(name) {
                Ok(text) => Some(text),
                // A program that does not lock may have removed it.
                Err(Errno::ENOENT) => continue,
                Err(_) => None,
            };
            leases.push(Lease { address, text });
        }
        Ok(leases)
    }

    /// Returns the text of a file.
    fn read(&self, name: impl rustix::path::Arg) -> std::result::Result<String, Errno> {
        let file = fs::openat(
            &self.directory,
            name,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let mut buffer = [0; TEXT_LIMIT];
        let length = retry_on_intr(|| rustix::io::read(&file, &mut buffer))?;
        Ok(text_of(&buffer[..length]))
    }

    /// Writes the lease of an address; `false` when another attachment has it.
    pub(super) fn reserve(&self, address: IpAddr, text: &str) -> Result<bool> {
        let name = address.to_string();
        let what = || format!("open {}", self.path.join(&name).display());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let create = || {
            fs::openat(&self.directory, &name, flags, Mode::from_raw_mode(0o600))
                .map_err(Errno::from)
        };
        let file = match create() {
            Err(Errno::EEXIST) => {
                if !self.read(&name).is_ok_and(|text| text.is_empty()) {
                    return Ok(false);
                }
                self.release(address)?;
                create()
            }
            other => other,
        };
        let file = std::fs::File::from(file.context(what)?);
        if let Err(error) = write_all(file, text.as_bytes()) {
            // The address is free again; the error that is reported is the first one.
            let _ = self.release(address);
            return Err(error).context(|| format!("write {}", self.path.join(&name).display()));
        }
        Ok(true)
    }

    /// Removes the lease of an address; one that is not there is fine.
    pub(super) fn release(&self, address: IpAddr) -> Result<()> {
        let name = address.to_string();
        match fs::unlinkat(&self.directory, &name, AtFlags::empty()).map_err(Errno::from) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            error => error.context(|| format!("remove {}", self.path.join(&name).display())),
        }
    }

    /// Returns the address that a set handed out last. Without the mark, the set begins anew.
    pub(super) fn last_reserved(&self, set: usize) -> Option<IpAddr> {
        let text = self.read(mark(set)).ok()?;
        ip::parse(&text).ok()
    }

    /// Marks the address that a set handed out last.
    pub(super) fn set_last_reserved(&self, set: usize, address: IpAddr) -> Result<()> {
        let name = mark(set);
        let what = || format!("open {}", self.path.join(&name).display());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = fs::openat(&self.directory, &name, flags, Mode::from_raw_mode(0o600))
            .map_err(Errno::from)
            .context(what)?;
        write_all(file.into(), address.to_string().as_bytes()).context(what)
    }
}

fn open_directory(path: &Path) -> std::result::Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fs::open(path, flags, Mode::empty())?)
}

fn write_all(mut file: std::fs::File, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    file.write_all(bytes)
}

fn mark(set: usize) -> String {
    format!("{LAST_RESERVED}.{set}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn address(host: u8) -> IpAddr {
        [10, 0, 0, host].into()
    }

    #[test]
    fn files_are_those_of_the_reference() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("deep/er");
        let store = Store::open(data_dir.to_str().unwrap(), "net").unwrap();
        assert!(store.reserve(address(2), "a\r\neth0").unwrap());
        assert!(!store.reserve(address(2), "b\r\neth0").unwrap());
        assert!(
            store
                .reserve("fd00::2".parse().unwrap(), "a\r\neth0")
                .unwrap()
        );
        assert_eq!(store.last_reserved(1), None);
        store.set_last_reserved(1, address(200)).unwrap();
        store.set_last_reserved(1, address(2)).unwrap();
        assert_eq!(store.last_reserved(1), Some(address(2)));
        let read = |name: &str| std::fs::read(data_dir.join("net").join(name)).unwrap();
        assert_eq!(read("10.0.0.2"), b"a\r\neth0");
        assert_eq!(read("fd00::2"), b"a\r\neth0");
        assert_eq!(read("last_reserved_ip.1"), b"10.0.0.2");
        assert_eq!(read("lock"), b"");
        assert_eq!(store.leases().unwrap().len(), 2);
        store.release(address(2)).unwrap();
        store.release(address(2)).unwrap();
        assert_eq!(store.leases().unwrap().len(), 1);
    }

    #[test]
    fn directories_are_written_by_their_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("deep");
        let umask = rustix::process::umask(Mode::empty());
        let store = Store::open(data_dir.to_str().unwrap(), "net");
        rustix::process::umask(umask);
        drop(store.unwrap());
        for path in [data_dir.join("net"), data_dir] {
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o755, "{}", path.display());
        }
    }

    #[test]
    fn abandoned_address_is_reserved_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().to_str().unwrap(), "net").unwrap();
        let file = dir.path().join("net/10.0.0.3");
        for text in ["", "\0\0"] {
            std::fs::write(&file, text).unwrap();
            assert!(store.reserve(address(3), "a\r\neth0").unwrap(), "{text:?}");
            assert_eq!(std::fs::read(&file).unwrap(), b"a\r\neth0");
        }
    }

    #[test]
    fn unreadable_file_keeps_its_address() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().to_str().unwrap(), "net").unwrap();
        std::fs::create_dir(dir.path().join("net/10.0.0.3")).unwrap();
        assert!(!store.leases().unwrap()[0].is_abandoned());
        assert!(!store.reserve(address(3), "a\r\neth0").unwrap());
    }

    #[test]
    fn missing_directory_has_no_store() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().to_str().unwrap();
        assert!(Store::open_if_present(data_dir, "net").unwrap().is_none());
        drop(Store::open(data_dir, "net").unwrap());
        assert!(Store::open_if_present(data_dir, "net").unwrap().is_some());
    }
}
