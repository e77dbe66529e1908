//! The spawner: a small process of its own that starts plugins for the daemon.
//!
//! It is the daemon's program started afresh, so its address space is small. It enters the runtime's control groups and mount
//! namespace once; whatever it starts is there already. A thread per lane starts one program at a time (with `posix_spawn`, which
//! copies no page tables and suspends that thread alone), waits for it, and sends its status. It keeps no state: it ends when the
//! daemon closes the control socket, and programs that run go on without it.
//!
//! Invariant: no signal tells it of its parent's end. `PR_SET_PDEATHSIG` would fire when the daemon's thread ends that started it.

use std::{
    collections::HashMap,
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use cni::process::spawn_retrying_busy;
use rustix::{
    io::Errno,
    process::{
        Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getrlimit, kill_process_group,
        setrlimit, waitid,
    },
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use super::wire::{self, Answer, Control, Enter, Request};

/// The argument that makes the daemon's program a spawner. It is no command of the command line.
pub const ARGUMENT: &str = "plugin-spawner";
/// The stack of a lane's thread, of which little is ever touched.
const STACK: usize = 256 << 10;

/// The life of the process; its stdin is the control socket. The argument is how many files plugins may have open.
pub fn main(file_limit: Option<&OsStr>) -> ExitCode {
    // What is shown by ps beside the daemon; nothing depends on it.
    let _ = rustix::thread::set_name(c"multus-spawner");
    if let Some(limit) = file_limit.and_then(|text| text.to_str()?.parse().ok()) {
        limit_files(limit);
    }
    match serve(io::stdin().as_fd()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Lowers the soft limit of open files, which what is started inherits. A limit that cannot be set is no reason to start nothing.
fn limit_files(soft: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current > soft) {
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(soft),
                ..limit
            },
        );
    }
}

/// Serves until the daemon closes the socket. Threads of lanes that still wait for a program are left behind.
pub(super) fn serve(control: BorrowedFd<'_>) -> io::Result<()> {
    let Some(Control::Enter(place)) = wire::receive_control(control)? else {
        return Err(io::Error::other("the first message is no place"));
    };
    let entered = enter(&place);
    drop(place);
    wire::send_report(control, &entered.err().unwrap_or_default())?;
    let lanes = Lanes::default();
    while let Some(message) = wire::receive_control(control)? {
        match message {
            Control::Open(number, socket) => lanes.open(number, socket)?,
            Control::Kill(number) => lanes.kill(number),
            Control::Enter(_) => return Err(io::Error::other("a second place")),
        }
    }
    Ok(())
}

/// Goes where plugins run. Must come before the first thread: a mount namespace is entered by a process of one thread.
fn enter(place: &Enter) -> Result<(), String> {
    for procs in &place.cgroup_procs {
        // Charging is best effort: a plugin that is charged to the daemon still does its work.
        let _ = rustix::io::write(procs, b"0");
    }
    if let Some(chroot) = &place.chroot {
        rustix::process::chroot(chroot)
            .and_then(|()| rustix::process::chdir("/"))
            .map_err(|error| format!("cannot change its root to {}: {error}", chroot.display()))
    } else if let Some(namespace) = &place.mount_namespace {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
            .map_err(|error| format!("cannot enter the runtime's mount namespace: {error}"))
    } else {
        Ok(())
    }
}

/// The lanes that are open.
#[derive(Default, Clone)]
struct Lanes(Arc<Mutex<HashMap<u64, Arc<Lane>>>>);

impl Lanes {
    fn open(&self, number: u64, socket: OwnedFd) -> io::Result<()> {
        let lane = Arc::new(Lane::default());
        self.lock().insert(number, Arc::clone(&lane));
        let (lanes, spare) = (self.clone(), socket.try_clone()?);
        let run = move || {
            lane.serve(&socket);
            lanes.lock().remove(&number);
        };
        let started = thread::Builder::new().stack_size(STACK).spawn(run);
        if let Err(error) = started {
            self.lock().remove(&number);
            // Whoever has closed the lane needs no answer.
            let _ = wire::send_answer(&spare, failed(&error));
        }
        Ok(())
    }

    fn kill(&self, number: u64) {
        let lane = self.lock().get(&number).cloned();
        if let Some(lane) = lane {
            lane.kill();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Lane>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One lane's program.
#[derive(Default)]
struct Lane(Mutex<State>);

#[derive(Default)]
struct State {
    /// It runs, or has ended and nobody has waited for it: the id is its own.
    running: Option<Pid>,
    /// The daemon has given the lane up; it sends no more requests.
    is_killed: bool,
}

impl Lane {
    /// Until the daemon closes the lane.
    fn serve(&self, socket: &OwnedFd) {
        loop {
            let (answer, is_whole) = match wire::receive_request(socket) {
                Ok(None) => return,
                Ok(Some((request, streams))) => (self.run(socket, request, streams), true),
                Err(error) => (failed(&error), false),
            };
            if wire::send_answer(socket, answer).is_err() || !is_whole {
                return;
            }
        }
    }

    fn run(&self, socket: &OwnedFd, request: Request, streams: [OwnedFd; 3]) -> Answer {
        let [stdin, stdout, stderr] = streams.map(Stdio::from);
        let mut command = Command::new(request.path);
        command
            .args(request.arguments)
            .env_clear()
            .envs(request.environment)
            // A group of its own, so that the plugins which it calls can be ended with it.
            .process_group(0)
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr);
        let spawned = spawn_retrying_busy(&mut command, || !self.lock().is_killed);
        // Its streams are the program's alone from now on.
        drop(command);
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => return failed(&error),
        };
        let pid = Pid::from_child(&child);
        self.started(pid);
        if request.reports_start {
            // A daemon that is gone needs no answer; the program goes on.
            let _ = wire::send_answer(socket, Answer::Started(pid.as_raw_nonzero().get()));
        }
        match self.wait(&mut child, pid) {
            Ok(status) => Answer::Ended(status.into_raw()),
            Err(error) => failed(&error),
        }
    }

    fn started(&self, pid: Pid) {
        let mut state = self.lock();
        state.running = Some(pid);
        if state.is_killed {
            kill_group(pid);
        }
    }

    /// Waits for its end, without taking its id away from whoever is about to kill it.
    fn wait(&self, child: &mut Child, pid: Pid) -> io::Result<ExitStatus> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(pid), options), Err(Errno::INTR)) {}
        let mut state = self.lock();
        state.running = None;
        child.wait()
    }

    fn kill(&self) {
        let mut state = self.lock();
        state.is_killed = true;
        if let Some(pid) = state.running {
            kill_group(pid);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// It may have ended by itself meanwhile, which is as well.
fn kill_group(pid: Pid) {
    let _ = kill_process_group(pid, Signal::KILL);
}

fn failed(error: &io::Error) -> Answer {
    // What does not come from the kernel is a message that cannot be read.
    Answer::Failed(error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error()))
}
