//! The daemon's socket: one listener under two names.
//!
//! Its own name (`daemon-<id>.sock`) exists from the start, for this daemon's probes. The public name (`multus.sock`), which shims connect
//! to, is taken by a rename once pods can be served, so that shims always reach exactly one of two daemons of a node, as in a rolling update,
//! and none is refused meanwhile. A daemon that shuts down withdraws the public name first and then serves the queued connections.

pub mod location;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use anyhow::Context;
use node::root::{Root, RootError, proc_path};
use rustix::{
    fs::{AtFlags, Mode, fchmod, linkat},
    net::{SocketFlags, accept_with},
};
use tokio::net::{UnixListener, UnixStream};
use tracing::{debug, info};

use crate::host::{dir_watch::DirectoryWatch, refuse_other_than_sockets, remove_dead_sockets};

const DIR_MODE: u32 = 0o700;
/// The temporary name before the rename.
const NEW: &str = ".multus-rs-socket.new";

/// A listener and its names.
#[derive(Debug)]
pub struct Socket {
    root: Arc<Root>,
    dir: PathBuf,
    id: String,
    own: String,
    listener: UnixListener,
    identity: Identity,
    claim: Claim,
}

/// The daemon's claim to the public name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// It does not want the name.
    None,
    /// It takes the name, even from another daemon.
    Take,
    /// It keeps the name unless another daemon takes it.
    Keep,
}

/// Device and inode.
type Identity = (u64, u64);

/// The owner of the listener that the public name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketOwner {
    ThisDaemon,
    /// Another daemon, which may have ended.
    OtherDaemon,
    /// The name does not exist.
    None,
}

/// Returns the name of a daemon's own socket; `id` is its pod's uid, or its process id outside a pod.
pub fn own_name(id: &str) -> String {
    format!("daemon-{id}.sock")
}

impl Socket {
    /// Listens under the own name in `dir` (created with mode 0700; the socket has 0600).
    pub fn bind(root: Arc<Root>, dir: &Path, id: &str) -> anyhow::Result<Self> {
        let own = own_name(id);
        let (listener, identity) = listen(&root, dir, &own)?;
        location::set(&root, id, dir)?;
        Ok(Self {
            root,
            dir: dir.to_owned(),
            id: id.to_owned(),
            own,
            listener,
            identity,
            claim: Claim::None,
        })
    }

    /// Waits for the next connection.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// Returns a connection that is already queued. It asks the kernel: the runtime does not yet know of a connection that arrived just now.
    pub fn queued(&self) -> Option<UnixStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accepted = accept_with(&self.listener, flags).ok()?;
        UnixStream::from_std(accepted.into()).ok()
    }

    /// Claims the public name, even from another daemon; [`restore_names`](Self::restore_names) takes it.
    pub fn publish(&mut self) {
        self.claim = Claim::Take;
    }

    /// Removes the public name if it is ours.
    pub fn withdraw(&mut self) -> Result<(), RootError> {
        self.claim = Claim::None;
        if self.owner() == SocketOwner::ThisDaemon {
            self.root.remove(self.dir.join(api::SOCKET_NAME))?;
        }
        Ok(())
    }

    /// Returns the owner of the listener that the public name leads to.
    pub fn owner(&self) -> SocketOwner {
        let found = self.root.directory(&self.dir);
        match found.map(|dir| dir.identity(api::SOCKET_NAME)) {
            Ok(Ok(found)) if found == self.identity => SocketOwner::ThisDaemon,
            Ok(Ok(_)) => SocketOwner::OtherDaemon,
            Ok(Err(_)) | Err(_) => SocketOwner::None,
        }
    }

    /// Returns whether another daemon accepts connections at its own name.
    pub fn has_others(&self) -> bool {
        let names = self.root.list(&self.dir).unwrap_or_default();
        let mut others = names
            .iter()
            .filter(|name| is_own_name(name) && **name != self.own);
        others.any(|name| self.root.accepts(&self.dir.join(name)))
    }

    /// Returns whether any daemon accepts connections at the public name.
    pub fn is_served(&self) -> bool {
        is_served(&self.root, &self.dir)
    }

    /// Watches the directory. Begin the watch before restoring the names, so that no change is missed.
    pub(crate) fn watch(&self) -> io::Result<DirectoryWatch> {
        DirectoryWatch::new(&self.root, &[&self.dir])
    }

    /// Restores deleted names, or the directory. A public name that another daemon has taken stays with it.
    pub fn restore_names(&mut self) -> anyhow::Result<()> {
        self.keep_own_name()?;
        location::set(&self.root, &self.id, &self.dir)?;
        if match self.claim {
            Claim::None => false,
            Claim::Take => true,
            Claim::Keep => match self.owner() {
                SocketOwner::ThisDaemon => false,
                // A killed daemon left the name behind.
                SocketOwner::OtherDaemon => !self.is_served(),
                SocketOwner::None => true,
            },
        } {
            self.take_name()?;
            self.claim = Claim::Keep;
            info!("shims connect to this daemon");
        }
        Ok(())
    }

    /// Restores the own name from the public one. A listener without any name cannot get one again: then a new listener is opened, and clients
    /// queued at the old one must retry.
    fn keep_own_name(&mut self) -> anyhow::Result<()> {
        if let Ok(dir) = self.root.directory(&self.dir) {
            let is_ours = |name: &str| dir.identity(name) == Ok(self.identity);
            if is_ours(&self.own) {
                return Ok(());
            }
            if is_ours(api::SOCKET_NAME)
                && linkat(&dir, api::SOCKET_NAME, &dir, &self.own, AtFlags::empty()).is_ok()
            {
                return Ok(());
            }
        }
        (self.listener, self.identity) = listen(&self.root, &self.dir, &self.own)?;
        Ok(())
    }

    fn take_name(&self) -> anyhow::Result<()> {
        let path = self.dir.join(api::SOCKET_NAME);
        refuse_other_than_sockets(&self.root, &path)?;
        let dir = self.root.directory(&self.dir)?;
        dir.remove(NEW)?;
        linkat(&dir, &self.own, &dir, NEW, AtFlags::empty())
            .with_context(|| format!("cannot take {}", path.display()))?;
        dir.rename(NEW, api::SOCKET_NAME)?;
        // A rename between two names of the same socket does nothing, so the temporary name may still exist.
        dir.remove(NEW)?;
        Ok(())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Best effort: connections to names that stay behind are refused.
        let _ = self.withdraw();
        let _ = self.root.remove(self.dir.join(&self.own));
        let _ = location::forget(&self.root, &self.id);
    }
}

/// Returns whether any daemon accepts connections at the public name.
pub fn is_served(root: &Root, dir: &Path) -> bool {
    root.accepts(&dir.join(api::SOCKET_NAME))
}

/// Returns whether a daemon served shims a moment ago. Ask before [`sweep`] and [`Socket::bind`], which change the directory.
pub fn was_served_lately(root: &Root, dir: &Path) -> bool {
    root.open_dir(dir)
        .is_ok_and(|dir| api::presence::is_recent(&proc_path(&dir), SystemTime::now()))
}

/// Removes the own names of ended daemons, and their location files.
pub fn sweep(root: &Root, dir: &Path) {
    for (id, dir) in location::list(root) {
        if !root.accepts(&dir.join(own_name(&id))) {
            let removed = location::forget(root, &id);
            debug!(id, ?removed, "removed the location file of an ended daemon");
        }
    }
    remove_dead_sockets(root, dir, is_own_name);
}

fn listen(root: &Root, dir: &Path, own: &str) -> anyhow::Result<(UnixListener, Identity)> {
    root.make_dirs(dir, DIR_MODE)?;
    refuse_other_than_sockets(root, &dir.join(own))?;
    let open = root.directory(dir)?;
    // A directory with nothing but our sockets is ours, whichever process created it.
    if open
        .list()?
        .iter()
        .all(|name| is_own_name(name) || name == api::SOCKET_NAME || location::is_name(name))
    {
        fchmod(&open, Mode::from_raw_mode(DIR_MODE))
            .with_context(|| format!("cannot change the mode of {}", dir.display()))?;
    }
    let (listener, identity) = open.listen(own)?;
    Ok((UnixListener::from_std(listener)?, identity))
}

fn is_own_name(name: &str) -> bool {
    let id = name.strip_prefix("daemon-");
    id.is_some_and(|id| id.strip_suffix(".sock").is_some())
}

#[cfg(test)]
mod tests;
