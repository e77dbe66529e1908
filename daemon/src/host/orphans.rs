//! Ends plugins that outlived their daemon. They would go on with an ADD that no daemon knows, concurrently with the DEL that undoes it, so
//! every start ends them. In a rolling update the daemon before this one ends later: its plugins are ended after its end, and at the latest
//! before a record that it wrote is used.
//!
//! Every plugin has its daemon's identity in its environment, and so has every plugin that it calls. A helper that a plugin leaves behind
//! on purpose has a session of its own and is not ended. The spawner, which starts plugins, stays in the daemon's session, and so do they.
//!
//! When the spawner ends before the daemon, the plugins that it had started are ended in the same way.

mod handle;

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal},
};
use tracing::{info, warn};

use self::handle::ProcessHandle;

/// The variable with the identity of a plugin's daemon.
pub const VARIABLE: &str = "MULTUS_DAEMON";
/// The variable that distinguishes the spawners of one daemon.
const SPAWNER: &str = "MULTUS_SPAWNER";
/// The most bytes that are read of an environment.
const MAX_ENVIRONMENT: usize = 1 << 20;
/// The time for a process to start another program.
const EXEC: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);
/// The time for all of them to finish by themselves: a killed plugin may leave something that no DEL finds, such as an empty lease.
const GRACE: Duration = Duration::from_secs(3);
/// The time for a killed process to end, unless the kernel blocks it.
const PATIENCE: Duration = Duration::from_secs(5);

const STATE: usize = 3;
const SESSION: usize = 6;
const STARTED: usize = 22;
/// Where the environment begins and ends in memory: both are 0 before the process has one.
const ENVIRONMENT: [usize; 2] = [50, 51];

/// Identifies a process for ever: the kernel uses a pid again, but with another start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessIdentity {
    pid: u32,
    started: u64,
}

impl ProcessIdentity {
    /// The identity of this process.
    pub fn own() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// The identity of the process that has this pid now.
    fn of(pid: u32) -> io::Result<Self> {
        let started = started(pid)?;
        Ok(Self { pid, started })
    }

    fn parse(text: &str) -> Option<Self> {
        let (pid, started) = text.split_once('-')?;
        Some(Self {
            pid: pid.parse().ok()?,
            started: started.parse().ok()?,
        })
    }

    fn is_alive(self) -> bool {
        started(self.pid).is_ok_and(|started| started == self.started)
    }
}

impl std::fmt::Display for ProcessIdentity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}-{}", self.pid, self.started)
    }
}

/// The variables in the environment of a spawner and of every process that it starts.
#[derive(Debug, Clone)]
pub struct Mark {
    daemon: Option<ProcessIdentity>,
    spawner: u64,
}

impl Mark {
    /// The mark of one of this daemon's spawners, by its number.
    pub fn new(spawner: u64) -> Self {
        // Without /proc no process is marked, and none could be found.
        let daemon = ProcessIdentity::own().ok();
        Self { daemon, spawner }
    }

    /// The variables of this mark.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let Some(daemon) = self.daemon else {
            return Vec::new();
        };
        vec![
            (VARIABLE, daemon.to_string()),
            (SPAWNER, self.spawner.to_string()),
        ]
    }

    /// Returns whether a process has this mark and no session of its own.
    fn is_on(&self, pid: i32) -> bool {
        let Some(daemon) = daemon_of(pid).filter(|daemon| Some(*daemon) == self.daemon) else {
            return false;
        };
        carried(pid, SPAWNER).is_some_and(|spawner| spawner == self.spawner.to_string())
            && is_in_our_pid_namespace(pid)
            && !has_own_session(pid, daemon)
    }
}

/// Ends the plugins of ended daemons, and returns their number.
pub fn end() -> usize {
    end_all(&is_orphan)
}

/// Ends the plugins of this daemon, by its [`ProcessIdentity`], if it has ended. Returns when none runs any more; a daemon that has ended
/// starts no others, so this looks for them once.
pub fn end_plugins_of(daemon: &str) {
    static DONE: Mutex<Vec<ProcessIdentity>> = Mutex::new(Vec::new());
    let Some(daemon) = ProcessIdentity::parse(daemon).filter(|one| !one.is_alive()) else {
        return;
    };
    // Others wait for the end of the same plugins.
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !done.contains(&daemon) {
        end_all(&is_orphan);
        done.push(daemon);
    }
}

/// Ends the plugins of an ended spawner of this daemon, and returns their number.
pub fn end_spawned(mark: &Mark) -> usize {
    end_all(&|pid| mark.is_on(pid))
}

fn end_all(is_orphan: &dyn Fn(i32) -> bool) -> usize {
    let grace = Instant::now() + GRACE;
    processes()
        .filter(|pid| end_one(*pid, grace, is_orphan))
        .count()
}

/// Lists the pids of all processes; none if they cannot be listed.
fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn end_one(pid: i32, grace: Instant, is_orphan: &dyn Fn(i32) -> bool) -> bool {
    if !is_orphan(pid) {
        return false;
    }
    let Some(id) = Pid::from_raw(pid) else {
        return false;
    };
    let ended = || -> rustix::io::Result<bool> {
        let Some(process) = ProcessHandle::new(id)? else {
            return Ok(false);
        };
        // With the handle the pid stays this process's, so only this check is certain.
        if !is_orphan(pid) || process.has_ended(grace)? {
            return Ok(false);
        }
        process.signal(Signal::KILL)?;
        if process.has_ended(Instant::now() + PATIENCE)? {
            Ok(true)
        } else {
            Err(Errno::TIMEDOUT)
        }
    };
    match ended() {
        Ok(true) => {
            info!(pid, "ended an orphaned plugin");
            true
        }
        Ok(false) => false,
        Err(error) => {
            warn!(pid, %error, "cannot end an orphaned plugin");
            false
        }
    }
}

/// Sends SIGTERM to every process with this variable whose program is meant, waits for their end, and returns their number.
pub(crate) fn end_marked(
    (variable, value): (&str, &str),
    is_meant: &dyn Fn(&Path) -> bool,
) -> usize {
    let is_marked = |pid: i32| {
        is_in_our_pid_namespace(pid)
            && carried(pid, variable).is_some_and(|found| found == value)
            && fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|program| is_meant(&program))
    };
    let end = |pid: i32| {
        let process = ProcessHandle::new(Pid::from_raw(pid)?).ok()??;
        // With the handle the pid stays this process's.
        if !is_marked(pid) {
            return None;
        }
        process.signal(Signal::TERM).ok()?;
        if !process.has_ended(Instant::now() + PATIENCE).unwrap_or(true) {
            warn!(pid, "a process does not end");
        }
        Some(())
    };
    processes()
        .filter(|pid| is_marked(*pid) && end(*pid).is_some())
        .count()
}

/// Returns whether the process is a plugin of an ended daemon.
fn is_orphan(pid: i32) -> bool {
    let Some(daemon) = daemon_of(pid) else {
        return false;
    };
    // A container of this node may be another node, whose daemon has pids of another namespace.
    if !is_in_our_pid_namespace(pid) {
        return false;
    }
    !daemon.is_alive() && !has_own_session(pid, daemon)
}

/// A plugin is in its daemon's session, which the spawner between them does not change. Returns whether it left that for one of its own.
fn has_own_session(pid: i32, daemon: ProcessIdentity) -> bool {
    let session = stat_field(pid, SESSION).ok().and_then(|id| id.parse().ok());
    session.is_none_or(|session| session == pid || daemon_of(session) == Some(daemon))
}

/// Returns whether the process is in our pid namespace, so that the pids in its environment are ours.
fn is_in_our_pid_namespace(pid: i32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid"));
    let (theirs, ours) = (namespace(&pid.to_string()), namespace("self"));
    matches!((theirs, ours), (Ok(theirs), Ok(ours)) if theirs == ours)
}

/// Returns the daemon in a process's environment, or `None` if that cannot be read.
fn daemon_of(pid: i32) -> Option<ProcessIdentity> {
    ProcessIdentity::parse(&carried(pid, VARIABLE)?)
}

/// Returns the value of a process's variable, or `None` if the environment cannot be read.
fn carried(pid: i32, variable: &str) -> Option<String> {
    let environment = environment_of(pid).ok()?;
    named_in(&environment, variable)
}

/// Reads the environment of a process. While it starts another program the kernel shows none, so an empty one is read again unless it is
/// empty in the process's memory, too.
fn environment_of(pid: i32) -> io::Result<Vec<u8>> {
    let until = Instant::now() + EXEC;
    // Kernel threads and zombies have no program.
    let has_program = || fs::read_link(format!("/proc/{pid}/exe")).is_ok();
    let has_none = || match ENVIRONMENT.map(|place| stat_field(pid, place)) {
        [Ok(begin), Ok(end)] => begin == end && end != "0",
        _ => true,
    };
    loop {
        let mut environment = vec![0; MAX_ENVIRONMENT];
        // At once: of a process that has started another program since, a second read gives nothing.
        let length = File::open(format!("/proc/{pid}/environ"))?.read(&mut environment)?;
        environment.truncate(length);
        if !environment.is_empty() || Instant::now() >= until || !has_program() || has_none() {
            return Ok(environment);
        }
        thread::sleep(PAUSE);
    }
}

fn named_in(environment: &[u8], variable: &str) -> Option<String> {
    let prefix = format!("{variable}=");
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(prefix.as_bytes()))?;
    std::str::from_utf8(value).ok().map(str::to_owned)
}

/// Returns the start time of a process in the kernel's ticks.
fn started(pid: u32) -> io::Result<u64> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    stat_field(pid, STARTED)?.parse().map_err(io::Error::other)
}

/// Returns a field of `stat` after the name in parentheses, numbered as in proc(5).
fn stat_field(pid: i32, number: usize) -> io::Result<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = fields.split_whitespace().nth(number - 3);
    field
        .map(str::to_owned)
        .ok_or_else(|| io::Error::other("stat is cut off"))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn identity_round_trips() {
        let own = ProcessIdentity::own().unwrap();
        assert!(own.is_alive());
        assert_eq!(ProcessIdentity::parse(&own.to_string()), Some(own));
        let other = ProcessIdentity { started: 1, ..own };
        assert!(!other.is_alive(), "the pid is another process's");
        let environment = format!("A=1\0{VARIABLE}={own}\0B=2\0");
        let found = |environment: &str| {
            ProcessIdentity::parse(&named_in(environment.as_bytes(), VARIABLE)?)
        };
        assert_eq!(found(&environment), Some(own));
        for none in ["", "A=1\0", "MULTUS_DAEMON=\0", "MULTUS_DAEMON=1\0"] {
            assert_eq!(found(none), None, "{none}");
        }
    }

    #[test]
    fn process_that_starts_another_program_is_found() {
        let again = "exec sh -c \"$0\" \"$0\"";
        let mut command = Command::new("sh");
        command.args(["-c", again, again]).env(VARIABLE, "here");
        let mut child = command.spawn().unwrap();
        let pid = child.id().cast_signed();
        // Before its first program it is this one.
        while fs::read_link(format!("/proc/{pid}/exe")).ok() == std::env::current_exe().ok() {
            thread::yield_now();
        }
        let found = (0..5_000).filter(|_| carried(pid, VARIABLE).as_deref() == Some("here"));
        let found = found.count();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, 5_000);
    }

    #[test]
    fn only_orphans_are_ended() {
        let own = ProcessIdentity::own().unwrap();
        let ended = ProcessIdentity { started: 1, ..own };
        let spawn = |args: &[&str], daemon: Option<ProcessIdentity>| {
            let mut command = Command::new(args[0]);
            if let Some(daemon) = daemon {
                command.env(VARIABLE, daemon.to_string());
            }
            command.args(&args[1..]).stdin(Stdio::null());
            command.spawn().unwrap()
        };
        let mut children = [
            spawn(&["sleep", "600"], None),
            spawn(&["sleep", "600"], Some(own)),
            spawn(&["setsid", "sleep", "600"], Some(ended)),
            spawn(&["sleep", "600"], Some(ended)),
        ];
        // Until `exec` the child still has the test's environment.
        let pids = children.each_ref().map(std::process::Child::id);
        for pid in pids {
            let name = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            while name().trim() != "sleep" {
                thread::yield_now();
            }
        }
        let ended =
            pids.map(|pid| end_one(i32::try_from(pid).unwrap(), Instant::now(), &is_orphan));
        for child in &mut children[..3] {
            assert!(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
        }
        for child in &mut children {
            child.wait().unwrap();
        }
        assert_eq!(ended, [false, false, false, true]);
    }
}
