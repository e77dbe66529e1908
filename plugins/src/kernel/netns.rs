//! Network namespaces.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{self, Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::errno::Errno;

/// `statfs` types of files that are namespaces (`linux/magic.h`); `/proc/<pid>/ns` was procfs' on old kernels.
const NSFS_MAGIC: u64 = 0x6e73_6673;
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

/// How long a plugin waits for others; each of them holds the lock for some milliseconds.
const LOCK_TIME: Duration = Duration::from_secs(5);

/// An open network namespace.
pub(crate) struct Namespace {
    fd: OwnedFd,
}

/// Why a path is not a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// Nothing is there: the namespace was removed.
    NotFound(String),
    /// Something else is there, or it cannot be opened.
    Other(String),
}

impl Namespace {
    /// Opens the namespace of a path.
    pub(crate) fn open(path: impl AsRef<Path>) -> std::result::Result<Self, OpenError> {
        let path = path.as_ref();
        let shown = path.display();
        let kind = fs::statfs(path).map_err(|error| {
            let text = format!("failed to Statfs \"{shown}\": {}", Errno::from(error));
            match error {
                rustix::io::Errno::NOENT => OpenError::NotFound(text),
                _ => OpenError::Other(text),
            }
        })?;
        // The type's width differs from architecture to architecture.
        #[allow(
            clippy::cast_sign_loss,
            clippy::unnecessary_cast,
            reason = "a magic number of 32 bits in a field of the architecture's width"
        )]
        let kind = kind.f_type as u64 & 0xffff_ffff;
        if kind != NSFS_MAGIC && kind != PROC_SUPER_MAGIC {
            return Err(OpenError::Other(format!(
                "unknown FS magic on \"{shown}\": {kind:x}"
            )));
        }
        let fd = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| OpenError::Other(format!("open {shown}: {}", Errno::from(error))))?;
        Ok(Self { fd })
    }

    /// Opens the namespace that the thread is in.
    pub(crate) fn current() -> std::result::Result<Self, Errno> {
        let path = "/proc/thread-self/ns/net";
        let fd = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { fd })
    }

    /// Waits until no other plugin holds the namespace's lock, and holds it while this value is open. The lock is that of the
    /// namespace itself, so there is no file. Every process in the namespace can hold it, so a wait without end would let a pod, or a user
    /// of the host, stop plugins: after some seconds the process goes on without it.
    pub(crate) fn lock(&self) -> std::result::Result<(), Errno> {
        static HAS_WAITED: AtomicBool = AtomicBool::new(false);
        let time = if HAS_WAITED.load(Ordering::Relaxed) {
            Duration::ZERO
        } else {
            LOCK_TIME
        };
        if !self.lock_within(time)? {
            HAS_WAITED.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns whether it holds the lock.
    fn lock_within(&self, time: Duration) -> std::result::Result<bool, Errno> {
        match fs::flock(&self.fd, fs::FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            outcome => return Ok(outcome.map(|()| true)?),
        }
        let fd = self.fd.try_clone()?;
        let (sender, locked) = mpsc::channel();
        let wait = move || {
            let lock = || fs::flock(&fd, fs::FlockOperation::LockExclusive);
            // Nobody receives this after the time.
            let _ = sender.send(rustix::io::retry_on_intr(lock));
        };
        thread::Builder::new().spawn(wait)?;
        match locked.recv_timeout(time) {
            Ok(outcome) => Ok(outcome.map(|()| true)?),
            Err(_) => Ok(false),
        }
    }

    /// Returns whether both are the same namespace.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.identity()
            .is_some_and(|mine| other.identity() == Some(mine))
    }

    /// Returns device and inode, which no other namespace has as long as this one lives.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        let stat = fs::fstat(&self.fd).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    /// Returns the file descriptor, as attributes name it.
    pub(crate) fn fd(&self) -> u32 {
        use std::os::fd::AsRawFd;
        self.fd.as_raw_fd().cast_unsigned()
    }

    /// Runs `work` in this namespace, then returns to the one before. A thread that cannot return ends the process: everything that
    /// it did next would be in the wrong place.
    pub(crate) fn enter<T>(&self, work: impl FnOnce() -> T) -> std::result::Result<T, Errno> {
        use std::os::fd::AsFd;
        let before = Self::current()?;
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(self.fd.as_fd(), kind)?;
        let value = work();
        move_into_link_name_space(before.fd.as_fd(), kind)
            .expect("the thread returns to the network namespace in which it was");
        Ok(value)
    }
}

impl From<Namespace> for OwnedFd {
    fn from(namespace: Namespace) -> Self {
        namespace.fd
    }
}

/// Some plugins of the reference say no more than this.
impl From<OpenError> for cni::CniError {
    fn from(error: OpenError) -> Self {
        crate::error::failure!("{error}")
    }
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound(text) | Self::Other(text) => formatter.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_of_another_process_is_waited_for_and_then_passed_over() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || Namespace {
            fd: std::fs::File::open(file.path()).unwrap().into(),
        };
        let (first, second, third) = (open(), open(), open());
        assert_eq!(first.lock_within(LOCK_TIME), Ok(true));
        assert_eq!(second.lock_within(Duration::from_millis(50)), Ok(false));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| third.lock_within(Duration::from_mins(1)));
            drop((first, second));
            assert_eq!(waiting.join().unwrap(), Ok(true));
        });
    }
}
