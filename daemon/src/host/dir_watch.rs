//! Watches directories for changes (inotify). The kind of change does not matter: the caller reads the directory again after any.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use node::root::{Root, RootError, proc_path};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

/// A watch of several directories.
#[derive(Debug)]
pub(crate) struct DirectoryWatch(AsyncFd<OwnedFd>);

impl DirectoryWatch {
    /// Watches these directories; for a missing one, its nearest existing ancestor.
    pub(crate) fn new(root: &Root, dirs: &[&Path]) -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        for dir in dirs {
            add_nearest(&fd, root, dir, FILES)?;
        }
        register(fd).map(Self)
    }

    /// Also watches the ancestors of these directories: replacing an ancestor replaces the directory without an event in it.
    pub(crate) fn with_parents(root: &Root, dirs: &[&Path]) -> io::Result<Self> {
        Self::with_parents_and_events(root, dirs, FILES)
    }

    /// The same for directories of programs: a file that becomes executable is a change, too. Elsewhere the metadata does not matter, and
    /// the shim sets the time of the daemon's socket at each STATUS.
    pub(crate) fn of_programs(root: &Root, dirs: &[&Path]) -> io::Result<Self> {
        Self::with_parents_and_events(root, dirs, FILES.union(WatchFlags::ATTRIB))
    }

    fn with_parents_and_events(
        root: &Root,
        dirs: &[&Path],
        events: WatchFlags,
    ) -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let above = dirs.iter().flat_map(|dir| dir.ancestors().skip(1));
        for above in above.filter(|above| is_quiet(above)) {
            // Best effort: without this watch a change is noticed later.
            let _ = add(&fd, root, above, ENTRIES);
        }
        // These come last: a directory has one watch, and the last call sets its events.
        for dir in dirs {
            add_nearest(&fd, root, dir, events)?;
        }
        register(fd).map(Self)
    }

    /// Returns once something has changed since the watch began.
    pub(crate) async fn changed(&self) {
        // An error of the watch counts as a change: the caller reads the directory and begins a new watch.
        let _ = self.0.readable().await;
    }
}

/// Registers a descriptor that becomes readable once something has changed.
pub(super) fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd stays the same open descriptor until it is dropped, and here it is dropped with its registration.
    #[expect(
        unsafe_code,
        reason = "registering a descriptor is unsafe for types that may change theirs"
    )]
    let registered = unsafe { AsyncFd::register(fd) }?;
    Ok(registered)
}

/// Returns on a change, or never if the watch could not be created; then the caller must poll.
pub(crate) async fn changed_or_never(watch: io::Result<DirectoryWatch>) {
    match watch {
        Ok(watch) => watch.changed().await,
        Err(_) => std::future::pending().await,
    }
}

/// Changes of a directory itself and of the names in it.
const ENTRIES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);
/// The same, and changes of what is in the files.
const FILES: WatchFlags = ENTRIES.union(WatchFlags::CLOSE_WRITE);

/// Returns whether few unrelated changes are expected: many programs write to `/` and to directories right below it, such as `/etc` and
/// `/run`.
fn is_quiet(dir: &Path) -> bool {
    dir.iter().count() > 2
}

fn add_nearest(fd: &OwnedFd, root: &Root, dir: &Path, events: WatchFlags) -> io::Result<()> {
    let mut wanted = dir;
    loop {
        match (add(fd, root, wanted, events), wanted.parent()) {
            (Ok(()), _) if wanted == dir => return Ok(()),
            // A missing directory may have been created before the watch of its parent began.
            (Ok(()), _) => match nearest(root, dir) {
                found if found == wanted => return Ok(()),
                found => wanted = found,
            },
            (Err(error), Some(parent)) if error.is_not_found() => wanted = parent,
            (Err(error), _) => return Err(error.source),
        }
    }
}

/// Returns the directory or its nearest existing ancestor.
fn nearest<'a>(root: &Root, dir: &'a Path) -> &'a Path {
    dir.ancestors()
        .find(|dir| root.is_dir(dir))
        .unwrap_or(Path::new("/"))
}

fn add(fd: &OwnedFd, root: &Root, dir: &Path, events: WatchFlags) -> Result<(), RootError> {
    let open = root.open_dir(dir)?;
    let watched = inotify::add_watch(fd.as_fd(), proc_path(&open), events);
    watched.map(drop).map_err(|error| RootError {
        action: "watch",
        path: dir.to_owned(),
        source: error.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, time::Duration};

    use super::*;

    #[tokio::test]
    async fn changes_of_links_and_missing_directories_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let there = dir.path().join("there");
        fs::create_dir(&there).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        fs::create_dir_all(dir.path().join("a/b/c/d/e")).unwrap();
        fs::write(dir.path().join("a/b/c/file"), "").unwrap();
        let dirs = ["/a/b/c", "/there", "/to/come", "/a/b/c/d/e"].map(Path::new);
        let changes: [&dyn Fn(); 6] = [
            &|| fs::write(dir.path().join("a/b/c/file"), "more").unwrap(),
            &|| fs::rename(dir.path().join("a/b"), dir.path().join("a/z")).unwrap(),
            &|| symlink("/file", there.join("symbolic")).unwrap(),
            &|| fs::hard_link(dir.path().join("file"), there.join("hard")).unwrap(),
            &|| fs::create_dir(dir.path().join("to")).unwrap(),
            &|| fs::create_dir(dir.path().join("to/come")).unwrap(),
        ];
        for (index, change) in changes.iter().enumerate() {
            let watch = DirectoryWatch::with_parents(&root, &dirs).unwrap();
            change();
            let heard = tokio::time::timeout(Duration::from_secs(20), watch.changed());
            assert!(heard.await.is_ok(), "change {index}");
        }
    }
}
