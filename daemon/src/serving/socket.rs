//! The daemon's socket: one listener under two names.
//!
//! Its own name (`daemon-<id>.sock`) is there from the start, for this daemon's probes. The name that shims know (`multus.sock`) is
//! taken by a rename once pods can be served, so that of two daemons of one node, as in a rolling update, always exactly one is found
//! and no shim is refused while they change. A daemon that ends gives the name up first and then serves whoever is already queued.

pub mod location;

use std::{
    io,
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use futures::FutureExt;
use node::root::{Kind, Root, RootError, proc_path};
use rustix::{
    fs::{AtFlags, Mode, fchmod, linkat, renameat, statat, unlinkat},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
};
use tokio::net::{UnixListener, UnixStream};
use tracing::{debug, info};

use crate::host::dir_watch::DirectoryWatch;

const DIR_MODE: u32 = 0o700;
const SOCKET_MODE: u32 = 0o600;
/// Not yet what it will be called.
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
    wish: Wish,
}

/// What is wanted of the name that shims know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// Nothing.
    None,
    /// To have it, whoever has it now.
    Take,
    /// To have it unless another daemon has taken it.
    Keep,
}

/// Device and inode.
type Identity = (u64, u64);

/// To whom the name that shims know leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// To this daemon.
    Us,
    /// To another one, which may have ended.
    Another,
    /// To nobody.
    Nobody,
}

/// The name of a daemon's own socket; `id` is its pod's uid, or its process id where it is no pod.
pub fn own_name(id: &str) -> String {
    format!("daemon-{id}.sock")
}

impl Socket {
    /// Listens under the own name in `dir` (0700, made if need be; the socket is 0600).
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
            wish: Wish::None,
        })
    }

    /// The next connection.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// A connection that is queued already.
    pub fn queued(&self) -> Option<UnixStream> {
        let accepted = self.listener.accept().now_or_never()?;
        accepted.ok().map(|(stream, _)| stream)
    }

    /// From the next look on the name that shims know is ours, whoever has it now.
    pub fn publish(&mut self) {
        self.wish = Wish::Take;
    }

    /// Gives that name up, where it is ours.
    pub fn withdraw(&mut self) -> Result<(), RootError> {
        self.wish = Wish::None;
        if self.holder() == Holder::Us {
            self.root.remove(self.dir.join(api::SOCKET_NAME))?;
        }
        Ok(())
    }

    /// To whom the name leads.
    pub fn holder(&self) -> Holder {
        let found = self
            .root
            .open_dir(&self.dir)
            .ok()
            .and_then(|dir| identity(&dir, api::SOCKET_NAME).ok());
        match found {
            Some(found) if found == self.identity => Holder::Us,
            Some(_) => Holder::Another,
            None => Holder::Nobody,
        }
    }

    /// Whether somebody takes connections under the name that shims know.
    pub fn is_served(&self) -> bool {
        is_served(&self.root, &self.dir)
    }

    /// Watches the directory; make it before looking after the names, so that nothing is missed.
    pub(crate) fn watch(&self) -> io::Result<DirectoryWatch> {
        DirectoryWatch::new(&self.root, &[&self.dir])
    }

    /// Puts back what somebody has removed: names, or the directory. A name that another daemon has taken stays with it.
    pub fn look_after_names(&mut self) -> anyhow::Result<()> {
        self.keep_own_name()?;
        location::set(&self.root, &self.id, &self.dir)?;
        if match self.wish {
            Wish::None => false,
            Wish::Take => true,
            Wish::Keep => match self.holder() {
                Holder::Us => false,
                // Left by one that was killed.
                Holder::Another => !self.is_served(),
                Holder::Nobody => true,
            },
        } {
            self.take_name()?;
            self.wish = Wish::Keep;
            info!("shims find this daemon");
        }
        Ok(())
    }

    /// While one name is left the other can be made from it. A listener without any cannot be given one again: there is a new one,
    /// and who was queued at the old one tries again.
    fn keep_own_name(&mut self) -> anyhow::Result<()> {
        let dir = self.root.open_dir(&self.dir);
        let named = |dir: &OwnedFd, name: &str| identity(dir, name).ok() == Some(self.identity);
        if let Ok(dir) = dir {
            if named(&dir, &self.own) {
                return Ok(());
            }
            if named(&dir, api::SOCKET_NAME)
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
        let dir = self.root.open_dir(&self.dir)?;
        let taken = || -> rustix::io::Result<()> {
            remove(&dir, NEW)?;
            linkat(&dir, &self.own, &dir, NEW, AtFlags::empty())?;
            renameat(&dir, NEW, &dir, api::SOCKET_NAME)?;
            // Where both names lead to one socket already, the rename does nothing at all.
            remove(&dir, NEW)
        };
        taken().with_context(|| format!("cannot take {}", path.display()))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Best effort: who finds these names finds nobody behind them.
        let _ = self.withdraw();
        let _ = self.root.remove(self.dir.join(&self.own));
        let _ = location::forget(&self.root, &self.id);
    }
}

/// Whether somebody takes connections under the name that shims know.
pub fn is_served(root: &Root, dir: &Path) -> bool {
    is_served_at(root, &dir.join(api::SOCKET_NAME))
}

/// Whether somebody takes connections at a path.
pub fn is_served_at(root: &Root, path: &Path) -> bool {
    let served = |(dir, name): (_, &std::ffi::OsStr)| answers(&proc_path(&dir).join(name));
    root.parent(path).is_ok_and(served)
}

/// Removes the own names of daemons that have ended, and what tells where these were.
pub fn sweep(root: &Root, dir: &Path) {
    for (id, dir) in location::list(root) {
        if !is_served_at(root, &dir.join(own_name(&id))) {
            let removed = location::forget(root, &id);
            debug!(id, ?removed, "the location of a daemon that has ended");
        }
    }
    let (Ok(names), Ok(open)) = (root.list(dir), root.open_dir(dir)) else {
        return;
    };
    for name in names.iter().filter(|name| is_own_name(name)) {
        let path = dir.join(name);
        let is_socket = matches!(root.kind(&path), Ok(Some(Kind::Socket)));
        if is_socket && !answers(&proc_path(&open).join(name)) {
            let removed = root.remove(&path);
            debug!(path = %path.display(), ?removed, "the socket of a daemon that has ended");
        }
    }
}

fn listen(root: &Root, dir: &Path, own: &str) -> anyhow::Result<(UnixListener, Identity)> {
    root.make_dirs(dir, DIR_MODE)?;
    let path = dir.join(own);
    refuse_other_than_sockets(root, &path)?;
    let open = root.open_dir(dir)?;
    let usable = proc_path(&open).join(own);
    let names = root.list(dir)?;
    let listening = || -> io::Result<_> {
        // A directory that holds nothing but sockets of ours is ours, whoever made it.
        if names
            .iter()
            .all(|name| is_own_name(name) || name == api::SOCKET_NAME || location::is_name(name))
        {
            fchmod(&open, Mode::from_raw_mode(DIR_MODE))?;
        }
        remove(&open, own)?;
        let listener = UnixListener::bind(&usable)?;
        std::fs::set_permissions(&usable, std::fs::Permissions::from_mode(SOCKET_MODE))?;
        Ok((listener, identity(&open, own)?))
    };
    listening().with_context(|| format!("cannot listen on {}", path.display()))
}

fn is_own_name(name: &str) -> bool {
    let id = name.strip_prefix("daemon-");
    id.is_some_and(|id| id.strip_suffix(".sock").is_some())
}

fn refuse_other_than_sockets(root: &Root, path: &Path) -> anyhow::Result<()> {
    match root.kind(path)? {
        None | Some(Kind::Socket) => Ok(()),
        Some(_) => anyhow::bail!("{} is not a socket: move it away", path.display()),
    }
}

fn remove(dir: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

fn identity(dir: &OwnedFd, name: &str) -> rustix::io::Result<Identity> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Whether a connection is taken; a full queue is somebody's, too.
fn answers(path: &Path) -> bool {
    let connected = || -> rustix::io::Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)
    };
    matches!(connected(), Ok(()) | Err(Errno::AGAIN))
}

#[cfg(test)]
mod tests;
