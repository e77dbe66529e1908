//! The journal holds the DELs that the shim accepted while no daemon answered. The daemon replays them, and an ADD waits for those of its own
//! container and pod.

mod pending;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use api::journal;
use node::root::{Root, RootError};
use tokio::sync::Notify;
use tracing::warn;

use self::pending::Pending;
use crate::{call::CniCall, host::dir_watch::DirectoryWatch};

pub(crate) use self::pending::Subject;

const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const MAX_ENTRY: u64 = api::MAX_MESSAGE as u64;

/// The entries that this daemon has read from the journal, for which ADDs wait.
#[derive(Debug, Default)]
pub struct Journal {
    pending: Mutex<Pending>,
    pub(crate) changed: Notify,
}

impl Journal {
    /// Returns once every entry that concerns this container or pod was tried.
    pub(crate) async fn wait_for(&self, add: &Subject) {
        self.until(|pending| {
            if pending.hurry(add) {
                self.changed.notify_waiters();
            }
            !pending.holds_up(add)
        })
        .await;
    }

    /// Returns once every entry that was read was tried.
    pub(crate) async fn wait_for_first_pass(&self) {
        self.until(|pending| !pending.has_untried()).await;
    }

    async fn until(&self, mut condition: impl FnMut(&mut Pending) -> bool) {
        loop {
            let changed = self.changed.notified();
            if condition(&mut self.pending()) {
                return;
            }
            changed.await;
        }
    }

    /// Ignores poisoning: the entries are consistent after every statement, so a panic of another thread does no harm to them.
    pub(crate) fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches the journals in these state directories, which are created if they do not exist.
pub(crate) fn watch(root: &Root, cni_dirs: &[PathBuf]) -> io::Result<DirectoryWatch> {
    let dirs: Vec<_> = cni_dirs.iter().map(|dir| journal::dir(dir)).collect();
    for dir in &dirs {
        root.make_dirs(dir, DIR_MODE)
            .map_err(|error| error.source)?;
    }
    DirectoryWatch::new(root, &dirs.iter().map(PathBuf::as_path).collect::<Vec<_>>())
}

/// Writes a DEL to the journal as the shim does: with only CNI's variables, since others may be secrets.
pub fn put(
    root: &Root,
    cni_dir: &Path,
    name: &str,
    request: &api::Request,
) -> Result<(), RootError> {
    let mut request = request.clone();
    request.env.retain(|key, _| key.starts_with("CNI_"));
    let dir = journal::dir(cni_dir);
    root.make_dirs(&dir, DIR_MODE)?;
    root.write_atomic(dir.join(name), &request.to_json(), FILE_MODE)
}

/// Reads the entries of the journals in these state directories, without replaying them. A file that is not a request is renamed to
/// `<name>.broken`.
pub(crate) fn read(root: &Root, cni_dirs: &[PathBuf], journal: &Journal) -> Result<(), RootError> {
    let mut entries = Vec::new();
    for dir in cni_dirs.iter().map(|dir| journal::dir(dir)) {
        match root.list(&dir) {
            Ok(names) => {
                let names = names.into_iter().filter(|name| journal::is_entry(name));
                entries.extend(names.map(|name| dir.join(name)));
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    journal
        .pending()
        .keep(|path| entries.iter().any(|entry| entry == path));
    for path in entries {
        let identity = root.identity(&path);
        if journal.pending().knows(&path, identity) {
            continue;
        }
        let subject = match load(root, &path) {
            Ok(Loaded::Request(request)) => subject(&request),
            Ok(Loaded::Removed) => continue,
            // Its replay fails with the same error, and reports it.
            Err(_) => Subject::default(),
        };
        let now = Instant::now();
        journal.pending().put(path, identity, subject, now);
    }
    journal.changed.notify_waiters();
    Ok(())
}

/// The content of an entry.
pub(crate) enum Loaded {
    Request(api::Request),
    /// Another daemon of this node replayed the entry, or it was set aside.
    Removed,
}

pub(crate) fn load(root: &Root, path: &Path) -> Result<Loaded, RootError> {
    let bytes = match root.read(path, MAX_ENTRY) {
        Err(error) if error.is_not_found() => return Ok(Loaded::Removed),
        other => other?,
    };
    match api::Request::from_json(&bytes) {
        Ok(request) => Ok(Loaded::Request(request)),
        Err(error) => {
            warn!(entry = %path.display(), %error, "setting aside a journal entry that is not a request");
            set_aside(root, path)?;
            Ok(Loaded::Removed)
        }
    }
}

fn subject(request: &api::Request) -> Subject {
    let call = CniCall::parse(request);
    call.map(|call| Subject::of(&call)).unwrap_or_default()
}

/// Renames an entry so that it no longer counts as one. That needs no disk space, so a full disk does not keep the entry in retries.
fn set_aside(root: &Root, path: &Path) -> Result<(), RootError> {
    let (dir, name) = root.parent(path)?;
    let mut aside = name.to_owned();
    aside.push(".broken");
    rustix::fs::renameat(&dir, name, &dir, aside).map_err(|error| RootError {
        action: "set aside",
        path: path.to_owned(),
        source: error.into(),
    })
}

#[cfg(test)]
mod tests;
