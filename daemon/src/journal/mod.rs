//! Replaying the DELs that the shim wrote down while no daemon answered. An ADD waits for those of its own container and pod.

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
use crate::{call::Call, host::dir_watch::DirectoryWatch};

pub(crate) use self::pending::{About, PATIENCE, Verdict};

const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const MAX_ENTRY: u64 = api::MAX_MESSAGE as u64;

/// What this daemon knows of the journal. ADDs wait here for the entries of their own container and pod.
#[derive(Debug, Default)]
pub struct Journal {
    pending: Mutex<Pending>,
    pub(crate) changed: Notify,
}

impl Journal {
    /// Returns once no untried entry concerns this container and pod.
    pub(crate) async fn wait_for(&self, add: &About) {
        self.until(|pending| {
            if pending.hurry(add) {
                self.changed.notify_waiters();
            }
            !pending.holds_up(add)
        })
        .await;
    }

    /// Returns once every entry that is known was tried.
    pub(crate) async fn wait_for_first_pass(&self) {
        self.until(|pending| !pending.has_untried()).await;
    }

    async fn until(&self, mut is_so: impl FnMut(&mut Pending) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so(&mut self.pending()) {
                return;
            }
            changed.await;
        }
    }

    /// Every statement leaves it whole, so a panic elsewhere does not spoil it.
    pub(crate) fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches the journals in these directories of state, made if need be.
pub(crate) fn watch(root: &Root, cni_dirs: &[PathBuf]) -> io::Result<DirectoryWatch> {
    let dirs: Vec<_> = cni_dirs.iter().map(|dir| journal::dir(dir)).collect();
    for dir in &dirs {
        root.make_dirs(dir, DIR_MODE)
            .map_err(|error| error.source)?;
    }
    DirectoryWatch::new(root, &dirs.iter().map(PathBuf::as_path).collect::<Vec<_>>())
}

/// Writes a DEL down as the shim does: CNI's variables alone, for others may be secrets.
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

/// Reads which entries these directories of state hold, without doing them. What is no request is set aside as `<name>.broken`.
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
        let about = match load(root, &path) {
            Ok(Loaded::Request(request)) => about(&request),
            Ok(Loaded::Gone) => continue,
            // Trying it fails in the same way, and tells.
            Err(_) => About::default(),
        };
        let now = Instant::now();
        journal.pending().put(path, identity, about, now);
    }
    journal.changed.notify_waiters();
    Ok(())
}

/// What an entry's name leads to.
pub(crate) enum Loaded {
    Request(api::Request),
    /// Another daemon of this node was faster, or it was set aside.
    Gone,
}

pub(crate) fn load(root: &Root, path: &Path) -> Result<Loaded, RootError> {
    let bytes = match root.read(path, MAX_ENTRY) {
        Err(error) if error.is_not_found() => return Ok(Loaded::Gone),
        other => other?,
    };
    match api::Request::from_json(&bytes) {
        Ok(request) => Ok(Loaded::Request(request)),
        Err(error) => {
            warn!(entry = %path.display(), %error, "an entry of the journal is no request, it is set aside");
            set_aside(root, path)?;
            Ok(Loaded::Gone)
        }
    }
}

fn about(request: &api::Request) -> About {
    let call = Call::parse(request);
    call.map(|call| About::of(&call)).unwrap_or_default()
}

/// Takes a name that is no entry's. Needs no space, so that a full disk does not have it tried for ever.
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
