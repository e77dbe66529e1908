//! Hearing of changes in directories (inotify). Which change it was does not matter: whoever hears of one looks again.

use std::{io, os::fd::OwnedFd, path::Path};

use node::root::{Root, proc_path};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

/// Some directories, watched from now on.
#[derive(Debug)]
pub(crate) struct DirectoryWatch(AsyncFd<OwnedFd>);

impl DirectoryWatch {
    pub(crate) fn new(root: &Root, dirs: &[&Path]) -> io::Result<Self> {
        let events = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        for dir in dirs {
            let dir = root.open_dir(dir).map_err(|error| error.source)?;
            inotify::add_watch(&fd, proc_path(&dir), events)?;
        }
        // SAFETY: an OwnedFd stays the same open descriptor until it is dropped, and here it is dropped with its registration.
        #[expect(
            unsafe_code,
            reason = "registering a descriptor is unsafe for types that may change theirs"
        )]
        let registered = unsafe { AsyncFd::register(fd) }?;
        Ok(Self(registered))
    }

    /// Returns once something has changed since the watch began.
    pub(crate) async fn changed(&self) {
        // An error of the watch itself counts as a change: the caller looks and makes a new one.
        let _ = self.0.readable().await;
    }
}

/// The same of a watch that could not be had: never. Who waits has to look again by himself.
pub(crate) async fn heard(watch: io::Result<DirectoryWatch>) {
    match watch {
        Ok(watch) => watch.changed().await,
        Err(_) => std::future::pending().await,
    }
}
