//! Whether a daemon of this node served a moment ago, from the times of its socket, so that nobody keeps a state for it.
//!
//! The shim sets the modification time of the socket at each STATUS that succeeds. A daemon that ends removes the socket, which changes
//! the directory; one that is killed leaves it. After a reboot there is neither.

use std::fs::{metadata, symlink_metadata};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::SOCKET_NAME;

/// For how long STATUS succeeds without a daemon. A killed daemon is back after one or two seconds, one that was killed again after ten
/// or twenty, and a node whose STATUS fails becomes `NotReady`, with all its pods.
pub const GRACE: Duration = Duration::from_secs(30);

/// Returns whether STATUS succeeded, or a daemon took or gave up its socket in this directory, within [`GRACE`].
///
/// A time in the future says nothing: the clock was set back.
pub fn is_recent(dir: &Path, now: SystemTime) -> bool {
    let changed = symlink_metadata(dir.join(SOCKET_NAME))
        .or_else(|_| metadata(dir))
        .and_then(|found| found.modified());
    let age = changed.ok().and_then(|time| now.duration_since(time).ok());
    age.is_some_and(|age| age <= GRACE)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn time_of_the_socket_counts_and_without_one_that_of_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let set = |seconds| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            File::open(dir.path()).unwrap().set_modified(time).unwrap();
        };
        let is_recent_at = |seconds| {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            is_recent(dir.path(), now)
        };
        set(1000);
        assert!(is_recent_at(1000) && is_recent_at(1030));
        assert!(!is_recent_at(1031), "too long ago");
        assert!(!is_recent_at(999), "the clock was set back");
        let now = SystemTime::now();
        let _socket = UnixListener::bind(dir.path().join(SOCKET_NAME)).unwrap();
        set(1000);
        assert!(is_recent(dir.path(), now + Duration::from_secs(1)));
        assert!(!is_recent_at(1000), "the socket is younger than that");
        assert!(!is_recent(&dir.path().join("absent"), now));
    }
}
