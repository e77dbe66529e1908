//! Plugins that outlived their daemon. They go on with an ADD that nobody remembers, beside the DEL that undoes it, so a start ends them.
//!
//! Every plugin carries its daemon's name in its environment, and so does every plugin that it calls. A helper that a plugin leaves
//! behind on purpose has a session of its own, and is let be. The process that starts plugins stays in the daemon's session, and so do they.
//!
//! When that process is lost while the daemon lives on, what it had started is ended in the same way.

mod held;

use std::{
    fs::{self, File},
    io::{self, Read},
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal},
};
use tracing::{info, warn};

use self::held::Held;

/// The variable that holds the name of a plugin's daemon.
pub const VARIABLE: &str = "MULTUS_DAEMON";
/// The variable that tells the spawners of one daemon apart.
const SPAWNER: &str = "MULTUS_SPAWNER";
/// An environment is not read further.
const MAX_ENVIRONMENT: u64 = 1 << 20;
/// So long all of them may finish by themselves: a plugin that is killed may leave behind what no DEL finds, as an empty lease.
const GRACE: Duration = Duration::from_secs(3);
/// A process that was killed is gone by then, unless the kernel holds it.
const PATIENCE: Duration = Duration::from_secs(5);

const STATE: usize = 3;
const SESSION: usize = 6;
const STARTED: usize = 22;

/// A process, for all time: ids are used again, with another start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    pid: u32,
    started: u64,
}

impl Name {
    /// This process.
    pub fn own() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// That of an id, now.
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

impl std::fmt::Display for Name {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}-{}", self.pid, self.started)
    }
}

/// What a spawner and all that it starts carry in their environments.
#[derive(Debug, Clone)]
pub struct Mark {
    daemon: Option<Name>,
    spawner: u64,
}

impl Mark {
    /// For the spawner of this number of this daemon.
    pub fn new(spawner: u64) -> Self {
        // Without /proc nothing is marked, and nothing could be found.
        let daemon = Name::own().ok();
        Self { daemon, spawner }
    }

    /// The variables that hold it.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let Some(daemon) = self.daemon else {
            return Vec::new();
        };
        vec![
            (VARIABLE, daemon.to_string()),
            (SPAWNER, self.spawner.to_string()),
        ]
    }

    /// Whether the process carries it and has not left for a session of its own.
    fn is_on(&self, pid: i32) -> bool {
        let Some(daemon) = daemon_of(pid).filter(|daemon| Some(*daemon) == self.daemon) else {
            return false;
        };
        carried(pid, SPAWNER).is_some_and(|spawner| spawner == self.spawner.to_string())
            && is_counted_as_we_are(pid)
            && !is_in_session_of_its_own(pid, daemon)
    }
}

/// Ends the plugins of daemons that are no more, and returns how many there were.
pub fn end() -> usize {
    end_all(&is_orphan)
}

/// Ends the plugins of a spawner of this daemon that is no more, and returns how many there were.
pub fn end_spawned(mark: &Mark) -> usize {
    end_all(&|pid| mark.is_on(pid))
}

fn end_all(is_orphan: &dyn Fn(i32) -> bool) -> usize {
    let grace = Instant::now() + GRACE;
    processes()
        .filter(|pid| end_one(*pid, grace, is_orphan))
        .count()
}

/// The ids of all processes; none where they cannot be listed.
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
        let Some(process) = Held::new(id)? else {
            return Ok(false);
        };
        // Held, the id cannot become another's: only now it is certain whose it is.
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
            info!(pid, "ended a plugin that had outlived what started it");
            true
        }
        Ok(false) => false,
        Err(error) => {
            warn!(pid, %error, "cannot end a plugin that has outlived what started it");
            false
        }
    }
}

/// Asks every process that carries this variable to end; how many there were.
pub(crate) fn end_marked((variable, value): (&str, &str)) -> usize {
    let is_marked = |pid: i32| {
        is_counted_as_we_are(pid) && carried(pid, variable).is_some_and(|found| found == value)
    };
    let end = |pid: i32| {
        let process = Held::new(Pid::from_raw(pid)?).ok()??;
        // Held, the id cannot become another's.
        if !is_marked(pid) {
            return None;
        }
        process.signal(Signal::TERM).ok()
    };
    processes()
        .filter(|pid| is_marked(*pid) && end(*pid).is_some())
        .count()
}

/// Whether the process is a plugin of a daemon that is no more.
fn is_orphan(pid: i32) -> bool {
    let Some(daemon) = daemon_of(pid) else {
        return false;
    };
    // In a container of this node there may be another node, whose daemon counts its processes by itself.
    if !is_counted_as_we_are(pid) {
        return false;
    }
    !daemon.is_alive() && !is_in_session_of_its_own(pid, daemon)
}

/// The session of a plugin is its daemon's, or whoever's that one was: the spawner between them starts none.
fn is_in_session_of_its_own(pid: i32, daemon: Name) -> bool {
    let session = stat_field(pid, SESSION).ok().and_then(|id| id.parse().ok());
    session.is_none_or(|session| session == pid || daemon_of(session) == Some(daemon))
}

/// Whether ids of processes mean the same to it as to us.
fn is_counted_as_we_are(pid: i32) -> bool {
    let namespace = |who: &str| fs::read_link(format!("/proc/{who}/ns/pid"));
    let (theirs, ours) = (namespace(&pid.to_string()), namespace("self"));
    matches!((theirs, ours), (Ok(theirs), Ok(ours)) if theirs == ours)
}

/// The daemon that a process carries. What cannot be read is not ours.
fn daemon_of(pid: i32) -> Option<Name> {
    Name::parse(&carried(pid, VARIABLE)?)
}

/// The value of a variable of a process; none as well where that cannot be read.
fn carried(pid: i32, variable: &str) -> Option<String> {
    let mut environment = Vec::new();
    let read = File::open(format!("/proc/{pid}/environ")).and_then(|file| {
        file.take(MAX_ENVIRONMENT)
            .read_to_end(&mut environment)
            .map(drop)
    });
    read.ok().and_then(|()| named_in(&environment, variable))
}

fn named_in(environment: &[u8], variable: &str) -> Option<String> {
    let prefix = format!("{variable}=");
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(prefix.as_bytes()))?;
    std::str::from_utf8(value).ok().map(str::to_owned)
}

/// When a process was started, in the kernel's ticks.
fn started(pid: u32) -> io::Result<u64> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    stat_field(pid, STARTED)?.parse().map_err(io::Error::other)
}

/// A field of `stat`, counted as proc(5) does, behind the name in brackets.
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
    fn names_are_read_as_they_are_written() {
        let own = Name::own().unwrap();
        assert!(own.is_alive());
        assert_eq!(Name::parse(&own.to_string()), Some(own));
        let other = Name { started: 1, ..own };
        assert!(!other.is_alive(), "the id is somebody else's by now");
        let environment = format!("A=1\0{VARIABLE}={own}\0B=2\0");
        let found = |environment: &str| Name::parse(&named_in(environment.as_bytes(), VARIABLE)?);
        assert_eq!(found(&environment), Some(own));
        for none in ["", "A=1\0", "MULTUS_DAEMON=\0", "MULTUS_DAEMON=1\0"] {
            assert_eq!(found(none), None, "{none}");
        }
    }

    #[test]
    fn orphans_end_and_nobody_else() {
        let own = Name::own().unwrap();
        let ended = Name { started: 1, ..own };
        let spawn = |words: &[&str], daemon: Option<Name>| {
            let mut command = Command::new(words[0]);
            if let Some(daemon) = daemon {
                command.env(VARIABLE, daemon.to_string());
            }
            command.args(&words[1..]).stdin(Stdio::null());
            command.spawn().unwrap()
        };
        let mut children = [
            spawn(&["sleep", "600"], None),
            spawn(&["sleep", "600"], Some(own)),
            spawn(&["setsid", "sleep", "600"], Some(ended)),
            spawn(&["sleep", "600"], Some(ended)),
        ];
        // The program has taken over from the test once its environment is its own.
        let pids = children.each_ref().map(std::process::Child::id);
        for pid in pids {
            let name = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            while name().trim() != "sleep" {
                std::thread::yield_now();
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
