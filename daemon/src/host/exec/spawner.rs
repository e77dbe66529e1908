//! The daemon's side of the spawner: starts it, sends it programs, and notices when it ends.
//!
//! A spawner belongs to one context. Calls in flight keep it; it ends when no call needs it any longer, or with the daemon.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, Once, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use cni::process::is_readable_within;
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::{Resource, getrlimit},
};
use tracing::{debug, warn};

use super::{
    ExecContext, serve,
    wire::{self, Reply, Request},
};
use crate::host::orphans;

/// The time for a spawner to enter its context, and for a killed program to end, unless the kernel blocks it.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of idle lanes that are kept for the next calls.
const IDLE_LANES: usize = 16;
/// The files of a spawner that belong to no lane: its standard streams, the namespace, and what it opens for a moment.
const SPARE_FILES: u64 = 24;
/// The most files of a spawner for one lane: its socket and a program's standard streams, before they are the program's.
const FILES_OF_LANE: u64 = 4;

/// The options to start a spawner process.
#[derive(Debug, Clone)]
pub(super) struct Launcher {
    pub(super) program: PathBuf,
    /// The plugins' limit of open files, if it is not the daemon's.
    pub(super) file_limit: Option<u64>,
    /// Runs the spawner on a thread of this process instead, which enters no namespace.
    #[cfg(test)]
    pub(super) is_thread: bool,
}

/// A running spawner.
#[derive(Debug)]
pub(super) struct Spawner {
    control: OwnedFd,
    process: Option<Child>,
    mark: orphans::Mark,
    idle: Mutex<Vec<Lane>>,
    lanes: AtomicU64,
    /// Its clones are those of the open lanes.
    open: Arc<()>,
    most_lanes: u64,
    lost: Once,
    /// Why plugins run in the daemon's cgroup, if they do.
    warning: Option<String>,
}

/// A connection that carries one program at a time.
#[derive(Debug)]
struct Lane {
    number: u64,
    socket: OwnedFd,
    _open: Arc<()>,
}

/// The reason why a program has no status.
#[derive(Debug)]
pub(super) enum Failure {
    /// The spawner has ended; nothing was started.
    NotSent,
    /// The spawner has ended, and the programs that it had started were ended, too.
    Lost,
    /// The spawner does not respond.
    Silent,
    /// The program could not be started.
    NotStarted(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::NotStarted(error)
    }
}

impl Spawner {
    /// Starts a spawner with the mark in its environment, and lets it enter the context. Every program that it starts must get the same mark.
    pub(super) fn start(
        launcher: &Launcher,
        context: &ExecContext,
        mark: orphans::Mark,
    ) -> Result<Self, String> {
        let (control, theirs) = pair(SocketType::SEQPACKET)
            .map_err(|error| format!("cannot create a socket for the spawner: {error}"))?;
        let process = launch(launcher, theirs, &mark)
            .map_err(|error| format!("cannot start the spawner: {error}"))?;
        let mut spawner = Self {
            control,
            process,
            mark,
            idle: Mutex::default(),
            lanes: AtomicU64::new(0),
            open: Arc::default(),
            most_lanes: most_lanes(launcher.file_limit),
            lost: Once::new(),
            warning: None,
        };
        spawner.warning = spawner.enter(context).map_err(|error| {
            format!("the spawner does not confirm where plugins run: {error}")
        })??;
        debug!(pid = spawner.pid(), "started the spawner");
        Ok(spawner)
    }

    /// Returns the pid, unless it is a thread of a test. The pid is not used again before the spawner is dropped.
    pub(super) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Returns what it could not enter without harm to plugins.
    pub(super) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    fn enter(&self, context: &ExecContext) -> io::Result<wire::Report> {
        let chroot = context.chroot.as_ref().map(|path| path.as_os_str());
        let runtime = context.runtime.as_deref();
        let cgroup_procs: Vec<_> = runtime
            .iter()
            .flat_map(|runtime| runtime.cgroup_procs.iter().map(AsFd::as_fd))
            .collect();
        let mount_namespace = runtime.map(|runtime| runtime.mount_namespace.as_fd());
        let cgroup_namespace = runtime.and_then(|runtime| runtime.cgroup_namespace.as_ref());
        wire::send_enter(
            &self.control,
            chroot,
            mount_namespace,
            cgroup_namespace.map(AsFd::as_fd),
            &cgroup_procs,
        )?;
        if !is_readable_within(self.control.as_fd(), PATIENCE)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        wire::receive_report(&self.control)
    }

    /// Starts a program with these standard streams. It is killed if the call is dropped before its end.
    pub(super) fn call(
        &self,
        request: &Request,
        streams: [BorrowedFd<'_>; 3],
    ) -> Result<Call<'_>, Failure> {
        let lane = self.lane()?;
        match wire::send_request(&lane.socket, request, streams) {
            Ok(()) => Ok(Call {
                spawner: self,
                lane: Some(lane),
            }),
            Err(error) if wire::is_end(&error) => Err(Failure::NotSent),
            Err(error) => Err(error.into()),
        }
    }

    /// Starts a program that is never killed and outlives the spawner.
    pub(super) fn start_detached(
        &self,
        request: &Request,
        streams: [BorrowedFd<'_>; 3],
    ) -> Result<Detached, Failure> {
        let lane = self.lane()?;
        wire::send_request(&lane.socket, request, streams).map_err(|error| {
            if wire::is_end(&error) {
                Failure::NotSent
            } else {
                error.into()
            }
        })?;
        if !is_readable_within(lane.socket.as_fd(), PATIENCE)? {
            // The program must not start after this error was returned.
            let _ = wire::send_kill(&self.control, lane.number);
            return Err(Failure::Silent);
        }
        match wire::receive_reply(&lane.socket)? {
            Some(Reply::Started(pid)) => Ok(Detached {
                pid,
                lane: lane.socket,
                fate: Fate::Running,
            }),
            Some(Reply::Failed(errno)) => {
                Err(Failure::NotStarted(io::Error::from_raw_os_error(errno)))
            }
            Some(Reply::Ended(_)) => Err(Failure::NotStarted(io::ErrorKind::InvalidData.into())),
            None => Err(Failure::Lost),
        }
    }

    /// Returns an idle lane, or opens a new one.
    fn lane(&self) -> Result<Lane, Failure> {
        if let Some(lane) = self.lock_idle().pop() {
            return Ok(lane);
        }
        // A spawner without files for another lane would take the daemon's message, but not the lane. The daemon would see the end of the
        // spawner in that and end every running program.
        let open = Arc::clone(&self.open);
        let others = u64::try_from(Arc::strong_count(&open) - 2).unwrap_or(u64::MAX);
        if others >= self.most_lanes {
            let text = format!(
                "{others} programs run already, the most for this limit of open files; raise the runtime's soft limit (ulimit -n)"
            );
            return Err(io::Error::other(text).into());
        }
        let (socket, theirs) = pair(SocketType::STREAM)?;
        let number = self.lanes.fetch_add(1, Ordering::Relaxed);
        wire::send_open(&self.control, number, theirs.as_fd()).map_err(|error| {
            if wire::is_end(&error) {
                Failure::NotSent
            } else {
                error.into()
            }
        })?;
        Ok(Lane {
            number,
            socket,
            _open: open,
        })
    }

    fn give_back(&self, lane: Lane) {
        let mut idle = self.lock_idle();
        if idle.len() < IDLE_LANES {
            idle.push(lane);
        }
    }

    fn lock_idle(&self) -> std::sync::MutexGuard<'_, Vec<Lane>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the programs of a lost spawner, so that they do not run concurrently with the DEL that undoes them. Returns once all have ended.
    fn end_orphans(&self) {
        self.lost.call_once(|| {
            let ended = orphans::end_spawned(&self.mark);
            warn!(
                ended,
                "the spawner ended unexpectedly; the next call starts another one"
            );
        });
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // No call waits for its programs. It would also end by itself when the control socket closes.
            let _ = process.kill();
            // Waiting on a thread: `drop` must not block.
            let _ = thread::Builder::new()
                .name("spawner-end".into())
                .spawn(move || process.wait());
        }
    }
}

/// A running program.
#[derive(Debug)]
pub(super) struct Call<'a> {
    spawner: &'a Spawner,
    lane: Option<Lane>,
}

impl Call<'_> {
    /// Waits for the program's end.
    pub(super) fn status(mut self) -> Result<ExitStatus, Failure> {
        let Some(lane) = self.lane.take() else {
            return Err(Failure::Silent);
        };
        match wire::receive_reply(&lane.socket)? {
            Some(Reply::Ended(status)) => {
                self.spawner.give_back(lane);
                Ok(ExitStatus::from_raw(status))
            }
            Some(Reply::Failed(errno)) => Err(io::Error::from_raw_os_error(errno).into()),
            Some(Reply::Started(_)) => Err(Failure::Silent),
            None => {
                self.spawner.end_orphans();
                Err(Failure::Lost)
            }
        }
    }

    /// Kills the program with its process group and waits for its end. The lane is not used again, since the kill may arrive late.
    pub(super) fn kill(mut self) -> Result<(), Failure> {
        let Some(lane) = self.lane.take() else {
            return Ok(());
        };
        let killed = wire::send_kill(&self.spawner.control, lane.number)
            .and_then(|()| is_readable_within(lane.socket.as_fd(), PATIENCE))?;
        if !killed {
            return Err(Failure::Silent);
        }
        match wire::receive_reply(&lane.socket)? {
            None => {
                self.spawner.end_orphans();
                Err(Failure::Lost)
            }
            Some(_) => Ok(()),
        }
    }
}

impl AsFd for Call<'_> {
    /// Becomes readable when the program has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        let lane = self
            .lane
            .as_ref()
            .expect("the lane is present until the call ends");
        lane.socket.as_fd()
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(lane) = &self.lane {
            // A failure means that the spawner has ended, and its programs with it.
            let _ = wire::send_kill(&self.spawner.control, lane.number);
        }
    }
}

/// A program that outlives daemon and spawner.
#[derive(Debug)]
pub struct Detached {
    pid: i32,
    lane: OwnedFd,
    fate: Fate,
}

/// The known state of a detached program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It runs.
    Running,
    /// It has ended.
    Ended(ExitStatus),
    /// The spawner that watched it has ended.
    Unknown,
}

impl Detached {
    /// Returns the pid; the kernel may use it again once the program has ended.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns the state of the program.
    pub fn fate(&mut self) -> Fate {
        if self.fate == Fate::Running {
            self.fate = match is_readable_within(self.lane.as_fd(), Duration::ZERO) {
                Ok(false) => Fate::Running,
                Ok(true) => match wire::receive_reply(&self.lane) {
                    Ok(Some(Reply::Ended(status))) => Fate::Ended(ExitStatus::from_raw(status)),
                    _ => Fate::Unknown,
                },
                Err(_) => Fate::Unknown,
            };
        }
        self.fate
    }
}

/// Starts the spawner's process; its stdin is the control socket.
fn launch(
    launcher: &Launcher,
    control: OwnedFd,
    mark: &orphans::Mark,
) -> io::Result<Option<Child>> {
    #[cfg(test)]
    if launcher.is_thread {
        thread::spawn(move || serve::serve(control.as_fd()));
        return Ok(None);
    }
    Command::new(&launcher.program)
        .arg0("multus-daemon")
        .arg(serve::ARGUMENT)
        .args(launcher.file_limit.map(|limit| limit.to_string()))
        .env_clear()
        // The next start finds a spawner that outlived its daemon by these variables, as it finds plugins.
        .envs(mark.variables())
        .process_group(0)
        .stdin(Stdio::from(control))
        .stdout(Stdio::null())
        .spawn()
        .map(Some)
}

/// Returns how many lanes a spawner with this limit of open files, or with this process', can serve at once.
fn most_lanes(file_limit: Option<u64>) -> u64 {
    let limit = file_limit.or_else(|| getrlimit(Resource::Nofile).current);
    limit.map_or(u64::MAX, |limit| {
        (limit.saturating_sub(SPARE_FILES) / FILES_OF_LANE).max(1)
    })
}

fn pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        kind,
        SocketFlags::CLOEXEC,
        None,
    )?)
}
