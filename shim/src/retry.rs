//! The pace at which a request that was not begun is sent again: on each change in the socket's directory, and after growing pauses.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// The pause after the first failure, and after each change in the directory; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause, so that a change that the kernel did not report is found, too.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Paces the attempts of one request.
pub(crate) struct Retry {
    dir: PathBuf,
    watch: Option<OwnedFd>,
    pause: Duration,
    end: Instant,
}

impl Retry {
    /// Paces requests to `socket` until `end`.
    pub(crate) fn new(socket: &Path, end: Instant) -> Self {
        Self {
            dir: socket.parent().unwrap_or(Path::new("/")).to_owned(),
            watch: None,
            pause: FIRST_PAUSE,
            end,
        }
    }

    /// Returns the time that is left.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Waits before the next attempt; `false` once the time is over.
    pub(crate) fn wait(&mut self) -> bool {
        let left = self.left();
        if left.is_zero() {
            return false;
        }
        let pause = self.pause.min(left);
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        match &self.watch {
            Some(watch) if has_changed(watch, pause) => self.pause = FIRST_PAUSE,
            Some(_) => {}
            // The first pause is short: the attempt after it finds a change from before the watch began.
            None => {
                self.watch = watch(&self.dir);
                thread::sleep(pause);
            }
        }
        true
    }
}

/// Watches the directory for new names; `None` where that fails, as for a missing directory.
fn watch(dir: &Path) -> Option<OwnedFd> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
    inotify::add_watch(&watch, dir.as_os_str() as &OsStr, flags).ok()?;
    Some(watch)
}

/// Waits for a change and drops all events that are pending then.
fn has_changed(watch: &OwnedFd, pause: Duration) -> bool {
    let Ok(pause) = Timespec::try_from(pause) else {
        return false;
    };
    let changed = matches!(
        poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&pause)),
        Ok(1..)
    );
    let mut buffer = [0; 4096];
    while changed && rustix::io::read(watch, &mut buffer).is_ok_and(|count| count > 0) {}
    changed
}
