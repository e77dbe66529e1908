//! The daemon's end of the spawner: starts it, hands programs to it, and notices when it is lost.
//!
//! A spawner belongs to one place. Calls that are under way keep it; it ends when nobody does, or with the daemon.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use cni::process::is_readable_within;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tracing::{debug, warn};

use super::{
    Place, serve,
    wire::{self, Answer, Request},
};
use crate::host::orphans;

/// A spawner has entered its place by then, and a program that was killed has ended, unless the kernel holds it.
const PATIENCE: Duration = Duration::from_secs(10);
/// So many lanes are kept for the next calls.
const IDLE_LANES: usize = 16;

/// How a spawner is started: as a program, with an argument.
#[derive(Debug, Clone)]
pub(super) struct Launcher {
    pub(super) program: PathBuf,
    /// How many files plugins may have open, where that is not what the daemon may.
    pub(super) file_limit: Option<u64>,
    /// Instead of that on a thread of this process, which enters nothing.
    #[cfg(test)]
    pub(super) is_thread: bool,
}

/// A spawner that runs.
#[derive(Debug)]
pub(super) struct Spawner {
    control: OwnedFd,
    process: Option<Child>,
    mark: orphans::Mark,
    idle: Mutex<Vec<Lane>>,
    lanes: AtomicU64,
    lost: Once,
}

/// A connection that carries one program at a time.
#[derive(Debug)]
struct Lane {
    number: u64,
    socket: OwnedFd,
}

/// Why a program has no status.
#[derive(Debug)]
pub(super) enum Failure {
    /// The spawner is lost; nothing was started.
    NotSent,
    /// The spawner is lost, and what it had started was ended.
    Lost,
    /// It does not answer.
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
    /// Starts one that carries the mark in its environment and enters the place; returns why that cannot be done. All that it
    /// starts has to carry the same mark.
    pub(super) fn start(
        launcher: &Launcher,
        place: &Place,
        mark: orphans::Mark,
    ) -> Result<Self, String> {
        let (control, theirs) = pair(SocketType::SEQPACKET)
            .map_err(|error| format!("cannot make a socket for the spawner: {error}"))?;
        let process = launch(launcher, theirs, &mark)
            .map_err(|error| format!("cannot start the spawner: {error}"))?;
        let spawner = Self {
            control,
            process,
            mark,
            idle: Mutex::default(),
            lanes: AtomicU64::new(0),
            lost: Once::new(),
        };
        spawner
            .enter(place)
            .map_err(|error| format!("the spawner cannot be told where plugins run: {error}"))??;
        debug!(
            pid = spawner.process.as_ref().map(Child::id),
            "started the spawner"
        );
        Ok(spawner)
    }

    fn enter(&self, place: &Place) -> io::Result<Result<(), String>> {
        let chroot = place.chroot.as_ref().map(|path| path.as_os_str());
        let runtime = place.runtime.as_deref();
        let cgroup_procs: Vec<_> = runtime
            .iter()
            .flat_map(|runtime| runtime.cgroup_procs.iter().map(AsFd::as_fd))
            .collect();
        let mount_namespace = runtime.map(|runtime| runtime.mount_namespace.as_fd());
        wire::send_enter(&self.control, chroot, mount_namespace, &cgroup_procs)?;
        if !is_readable_within(self.control.as_fd(), PATIENCE)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        wire::receive_report(&self.control)
    }

    /// Starts a program with these standard streams. It is killed when the call is dropped before its end.
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
            // It must not start once nobody expects it any more.
            let _ = wire::send_kill(&self.control, lane.number);
            return Err(Failure::Silent);
        }
        match wire::receive_answer(&lane.socket)? {
            Some(Answer::Started(pid)) => Ok(Detached {
                pid,
                lane: lane.socket,
                fate: Fate::Running,
            }),
            Some(Answer::Failed(errno)) => {
                Err(Failure::NotStarted(io::Error::from_raw_os_error(errno)))
            }
            Some(Answer::Ended(_)) => Err(Failure::NotStarted(io::ErrorKind::InvalidData.into())),
            None => Err(Failure::Lost),
        }
    }

    /// One that is idle, or a new one.
    fn lane(&self) -> Result<Lane, Failure> {
        if let Some(lane) = self.lock_idle().pop() {
            return Ok(lane);
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
        Ok(Lane { number, socket })
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

    /// It has ended by itself: what it had started must not go on beside whatever undoes it. Returns once all of that has ended.
    fn end_what_it_left(&self) {
        self.lost.call_once(|| {
            let ended = orphans::end_spawned(&self.mark);
            warn!(
                ended,
                "the spawner was lost; the next call starts another one"
            );
        });
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Nothing that it runs is waited for any more. It would end by itself as soon as the control socket closes.
            let _ = process.kill();
            // Waiting must not hold up whoever drops it.
            let _ = thread::Builder::new()
                .name("spawner-end".into())
                .spawn(move || process.wait());
        }
    }
}

/// A program that runs.
#[derive(Debug)]
pub(super) struct Call<'a> {
    spawner: &'a Spawner,
    lane: Option<Lane>,
}

impl Call<'_> {
    /// Waits for its end.
    pub(super) fn status(mut self) -> Result<ExitStatus, Failure> {
        let Some(lane) = self.lane.take() else {
            return Err(Failure::Silent);
        };
        match wire::receive_answer(&lane.socket)? {
            Some(Answer::Ended(status)) => {
                self.spawner.give_back(lane);
                Ok(ExitStatus::from_raw(status))
            }
            Some(Answer::Failed(errno)) => Err(io::Error::from_raw_os_error(errno).into()),
            Some(Answer::Started(_)) => Err(Failure::Silent),
            None => {
                self.spawner.end_what_it_left();
                Err(Failure::Lost)
            }
        }
    }

    /// Kills it with its process group and waits for its end. The lane is not used again: the kill may arrive late.
    pub(super) fn kill(mut self) -> Result<(), Failure> {
        let Some(lane) = self.lane.take() else {
            return Ok(());
        };
        let killed = wire::send_kill(&self.spawner.control, lane.number)
            .and_then(|()| is_readable_within(lane.socket.as_fd(), PATIENCE))?;
        if !killed {
            return Err(Failure::Silent);
        }
        match wire::receive_answer(&lane.socket)? {
            None => {
                self.spawner.end_what_it_left();
                Err(Failure::Lost)
            }
            Some(_) => Ok(()),
        }
    }
}

impl AsFd for Call<'_> {
    /// Becomes readable when the program has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        let lane = self.lane.as_ref().expect("it is there until the call ends");
        lane.socket.as_fd()
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(lane) = &self.lane {
            // A spawner that is lost has nothing to kill.
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

/// What is known of a detached program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It runs.
    Running,
    /// It has ended.
    Ended(ExitStatus),
    /// The spawner that watched it is gone.
    Unknown,
}

impl Detached {
    /// Its id; another process may have it once it has ended.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// What is known of it now.
    pub fn fate(&mut self) -> Fate {
        if self.fate == Fate::Running {
            self.fate = match is_readable_within(self.lane.as_fd(), Duration::ZERO) {
                Ok(false) => Fate::Running,
                Ok(true) => match wire::receive_answer(&self.lane) {
                    Ok(Some(Answer::Ended(status))) => Fate::Ended(ExitStatus::from_raw(status)),
                    _ => Fate::Unknown,
                },
                Err(_) => Fate::Unknown,
            };
        }
        self.fate
    }
}

/// Starts the process; its stdin is the control socket.
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
        // A spawner that does not end with its daemon is found by the next start as plugins are.
        .envs(mark.variables())
        .process_group(0)
        .stdin(Stdio::from(control))
        .stdout(Stdio::null())
        .spawn()
        .map(Some)
}

fn pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        kind,
        SocketFlags::CLOEXEC,
        None,
    )?)
}
