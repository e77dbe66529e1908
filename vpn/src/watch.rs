//! Waits until a file of a directory is replaced, by inotify.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init},
    io::Errno,
};

/// A directory that is watched.
#[derive(Debug)]
pub struct Watch {
    fd: OwnedFd,
}

impl Watch {
    /// Watches a directory for files that are renamed into place.
    pub fn new(dir: &Path) -> io::Result<Self> {
        let fd = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        add_watch(&fd, dir, WatchFlags::MOVED_TO | WatchFlags::ONLYDIR)?;
        Ok(Self { fd })
    }

    /// Waits until a file of this name was replaced, and not longer than the time. Returns whether it was.
    pub fn wait(&self, name: &str, time: Duration) -> io::Result<bool> {
        let end = Instant::now() + time;
        loop {
            if self.has_changed(name)? {
                return Ok(true);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            let timeout = Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut fds, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads all events that there are.
    fn has_changed(&self, name: &str) -> io::Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.fd, &mut buffer);
        let mut has_changed = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    let file = event.file_name().map(std::ffi::CStr::to_bytes);
                    has_changed |= file == Some(name.as_bytes());
                }
                Err(Errno::AGAIN) => return Ok(has_changed),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn wait_ends_when_the_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::new(dir.path()).unwrap();
        let replace = |name: &str| {
            let temporary = dir.path().join("x.tmp");
            fs::write(&temporary, "x").unwrap();
            fs::rename(&temporary, dir.path().join(name)).unwrap();
        };
        replace("other");
        assert!(!watch.wait("state.json", Duration::ZERO).unwrap());
        replace("state.json");
        assert!(watch.wait("state.json", Duration::from_mins(1)).unwrap());
        assert!(!watch.wait("state.json", Duration::from_millis(1)).unwrap());
    }
}
