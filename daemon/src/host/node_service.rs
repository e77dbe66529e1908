//! The services of this daemon for plugins that hold something for longer than a plugin's process lives.
//!
//! A service's socket has one name for all daemons of a node, in the runtime's file tree. A daemon takes the name with a rename, so that
//! plugins always find a listener, and then waits for the lock on the state, which the daemon before it holds for as long as it serves.
//! Requests wait in the new socket meanwhile. The lock ends with its process, however that ends.

use std::{
    io::{self, PipeReader, PipeWriter},
    os::{fd::AsFd, unix::net::UnixListener},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use node::root::{Directory, Kind, Root, RootError};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FlockOperation, flock},
};
use tokio::sync::oneshot;

use crate::host::refuse_other_than_sockets;

/// The mode of the directories of sockets and state.
pub(crate) const DIR_MODE: u32 = 0o700;
/// The pause before the lock is tried again.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// The parts of a service whose daemon has its turn to serve.
pub struct Turn {
    /// The directory of its state, whose lock it has.
    pub dir: Directory,
    /// It does not block.
    pub listener: UnixListener,
    /// It can be read once the service is to end.
    pub stopped: PipeReader,
}

/// A running service. It ends when this is dropped, or with the process.
#[derive(Debug)]
pub struct NodeService {
    _stop: PipeWriter,
    ended: oneshot::Receiver<io::Result<()>>,
    name: SocketName,
}

/// The name of a service's socket, which another daemon may take.
#[derive(Debug, Clone)]
pub struct SocketName {
    path: PathBuf,
    identity: Identity,
}

/// Device and inode.
type Identity = (u64, u64);

impl NodeService {
    /// Takes the socket and starts a thread, which serves as soon as no other daemon has the lock on the directory of the service's state.
    /// `seen` is the file tree of plugins.
    pub fn start(
        thread: &str,
        seen: &Root,
        socket: &Path,
        dir: Directory,
        serve: impl FnOnce(Turn) -> io::Result<()> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let (listener, identity) = listen(seen, socket, thread)?;
        let (stopped, stop) = io::pipe()?;
        let (sender, ended) = oneshot::channel();
        let take_turn = move || {
            let outcome = lock(&dir, &stopped).and_then(|is_locked| {
                let turn = Turn {
                    dir,
                    listener,
                    stopped,
                };
                if is_locked { serve(turn) } else { Ok(()) }
            });
            // The receiver is dropped when the service is no longer wanted.
            let _ = sender.send(outcome);
        };
        thread::Builder::new()
            .name(thread.to_owned())
            .spawn(take_turn)
            .with_context(|| format!("cannot start the thread {thread}"))?;
        Ok(Self {
            _stop: stop,
            ended,
            name: SocketName {
                path: socket.to_owned(),
                identity,
            },
        })
    }

    /// Returns the name of the socket.
    pub fn name(&self) -> SocketName {
        self.name.clone()
    }

    /// Returns why the service has ended.
    pub async fn ended(&mut self) -> anyhow::Error {
        match (&mut self.ended).await {
            Ok(Ok(())) => anyhow::anyhow!("it was stopped"),
            Ok(Err(error)) => error.into(),
            Err(_) => anyhow::anyhow!("its thread panicked"),
        }
    }
}

impl SocketName {
    /// Returns whether plugins still find the service under the name.
    pub fn is_ours(&self, seen: &Root) -> bool {
        seen.identity(&self.path) == Some(self.identity)
    }
}

/// Removes a socket at which no process listens.
pub(crate) fn remove_socket(seen: &Root, path: &Path) -> Result<(), RootError> {
    if matches!(seen.kind(path), Ok(Some(Kind::Socket))) {
        seen.remove(path)?;
    }
    Ok(())
}

/// Listens on a new socket, and gives it the name. The name of a daemon that has ended or still serves is replaced.
fn listen(seen: &Root, path: &Path, service: &str) -> anyhow::Result<(UnixListener, Identity)> {
    let name = path.file_name().context("the socket has a name")?;
    refuse_other_than_sockets(seen, path)?;
    let dir = seen.make_directory(path.parent().unwrap_or(Path::new("/")), DIR_MODE)?;
    let new = format!(".multus-{service}-{}.new", std::process::id());
    // A caller that has gone again must not hold up the service, so the listener does not block.
    let listening = dir.listen(&new)?;
    dir.rename(&new, name)?;
    Ok(listening)
}

/// Waits for the lock on the directory; returns false when the service is stopped first.
fn lock(dir: &Directory, stopped: &impl AsFd) -> io::Result<bool> {
    let pause = Timespec::try_from(LOCK_PAUSE).expect("the pause is within the clock's range");
    loop {
        match flock(dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut fds = [PollFd::new(stopped, PollFlags::IN)];
        if poll(&mut fds, Some(&pause)).is_ok_and(|events| events > 0) {
            return Ok(false);
        }
    }
}
