//! The spawner: a small process of its own that starts plugins for the daemon.
//!
//! It is the daemon's program, started as a new process, so its address space is small. It enters the runtime's cgroups and mount
//! namespace once; its children inherit them. A thread per lane starts one program at a time (with `posix_spawn`, which copies no page
//! tables and suspends only that thread), waits for it, and sends its status. It keeps no state: it ends when the daemon closes the
//! control socket, and running programs go on without it.
//!
//! Invariant: it gets no signal at its parent's end. `PR_SET_PDEATHSIG` would already fire at the end of the daemon's thread that started it.

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

use super::wire::{self, Control, Enter, Reply, Request};

/// The argument that makes the daemon's program a spawner. It is not a public command.
pub const ARGUMENT: &str = "plugin-spawner";
/// The stack size of a lane's thread, which uses little of it.
const STACK: usize = 256 << 10;

/// Runs the spawner; its stdin is the control socket. The argument is the plugins' limit of open files.
pub fn main(file_limit: Option<&OsStr>) -> ExitCode {
    // The name in the output of ps; nothing depends on it.
    let _ = rustix::thread::set_name(c"multus-spawner");
    if let Some(limit) = file_limit.and_then(|text| text.to_str()?.parse().ok()) {
        limit_files(limit);
    }
    match serve(io::stdin().as_fd()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Lowers the soft limit of open files, which plugins inherit. A failure is ignored: plugins work with any limit.
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

/// Serves until the daemon closes the socket. Threads of lanes with a running program are left behind.
pub(super) fn serve(control: BorrowedFd<'_>) -> io::Result<()> {
    let Some(Control::Enter(context)) = wire::receive_control(control)? else {
        return Err(io::Error::other("the first message is not Enter"));
    };
    let entered = enter(&context);
    drop(context);
    wire::send_report(control, &entered)?;
    let lanes = Lanes::default();
    while let Some(message) = wire::receive_control(control)? {
        match message {
            Control::Open(number, socket) => lanes.open(number, socket),
            Control::Kill(number) => lanes.kill(number),
            Control::Enter(_) => return Err(io::Error::other("a second Enter message")),
        }
    }
    Ok(())
}

/// Enters cgroups and namespace of plugins. Must come before the first thread: only a single-threaded process can enter a mount namespace.
pub(super) fn enter(context: &Enter) -> wire::Report {
    let warning = enter_cgroups(context);
    if let Some(chroot) = &context.chroot {
        rustix::process::chroot(chroot)
            .and_then(|()| rustix::process::chdir("/"))
            .map_err(|error| format!("cannot change its root to {}: {error}", chroot.display()))?;
    } else if let Some(namespace) = &context.mount_namespace {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
            .map_err(|error| format!("cannot enter the runtime's mount namespace: {error}"))?;
    }
    Ok(warning)
}

/// Enters the runtime's cgroups. Returns why not even one could be entered: a plugin also works in the daemon's.
fn enter_cgroups(context: &Enter) -> Option<String> {
    if let Some(namespace) = &context.cgroup_namespace {
        // Older kernels check the namespace of the process that writes, newer ones that of the process that opened the file.
        let _ = move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::ControlGroup));
    }
    let written = context
        .cgroup_procs
        .iter()
        .map(|procs| rustix::io::write(procs, b"0"));
    let written: Vec<_> = written.collect();
    let error = written.iter().find_map(|one| one.err())?;
    let is_in_none = written.iter().all(Result::is_err);
    is_in_none.then(|| {
        format!("plugins use the memory of the daemon's pod, since they cannot enter the runtime's cgroup: {error}; raise the pod's memory limit")
    })
}

/// The open lanes.
#[derive(Default, Clone)]
struct Lanes(Arc<Mutex<HashMap<u64, Arc<Lane>>>>);

impl Lanes {
    fn open(&self, number: u64, socket: OwnedFd) {
        let lane = Arc::new(Lane::default());
        self.lock().insert(number, Arc::clone(&lane));
        let socket = Arc::new(socket);
        let (lanes, spare) = (self.clone(), Arc::clone(&socket));
        let run = move || {
            lane.serve(&socket);
            lanes.lock().remove(&number);
        };
        let started = thread::Builder::new().stack_size(STACK).spawn(run);
        if let Err(error) = started {
            self.lock().remove(&number);
            // The daemon may have closed the lane.
            let _ = wire::send_reply(&spare, failed(&error));
        }
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
    /// A process that was not waited for yet, so its pid is not used again.
    running: Option<Pid>,
    /// The daemon has killed the lane's program and sends no more requests.
    is_killed: bool,
}

impl Lane {
    /// Serves requests until the daemon closes the lane.
    fn serve(&self, socket: &OwnedFd) {
        loop {
            let (reply, is_valid) = match wire::receive_request(socket) {
                Ok(None) => return,
                Ok(Some((request, streams))) => (self.run(socket, request, streams), true),
                Err(error) => (failed(&error), false),
            };
            if wire::send_reply(socket, reply).is_err() || !is_valid {
                return;
            }
        }
    }

    fn run(&self, socket: &OwnedFd, request: Request, streams: [OwnedFd; 3]) -> Reply {
        let [stdin, stdout, stderr] = streams.map(Stdio::from);
        let mut command = Command::new(request.path);
        command
            .args(request.arguments)
            .env_clear()
            .envs(request.environment)
            // A process group of its own, so that plugins which it calls can be killed with it.
            .process_group(0)
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr);
        let spawned = spawn_retrying_busy(&mut command, || !self.lock().is_killed);
        // Closes our copies of the program's streams.
        drop(command);
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => return failed(&error),
        };
        let pid = Pid::from_child(&child);
        self.started(pid);
        if request.reports_start {
            // If the daemon has ended, the program goes on all the same.
            let _ = wire::send_reply(socket, Reply::Started(pid.as_raw_nonzero().get()));
        }
        match self.wait(&mut child, pid) {
            Ok(status) => Reply::Ended(status.into_raw()),
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

    /// Waits for the end of a program. The pid is released under the lock, so that `kill` cannot hit another process.
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

/// Ignores errors: the group may have ended by itself.
fn kill_group(pid: Pid) {
    let _ = kill_process_group(pid, Signal::KILL);
}

fn failed(error: &io::Error) -> Reply {
    // An error that is not from the kernel means a malformed message.
    Reply::Failed(error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error()))
}
