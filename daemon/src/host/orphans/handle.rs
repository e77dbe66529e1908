//! A handle of a process, which never refers to another process that gets the same pid.

use std::{
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, Result},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal},
};

use super::{ProcessIdentity, STATE, stat_field};

/// Pause between two checks of a process without a pidfd.
const PAUSE: Duration = Duration::from_millis(20);

/// Refers to one process, or to none after its end.
#[derive(Debug)]
pub(super) enum ProcessHandle {
    /// While it is open, the kernel does not use the pid again.
    PidFd(OwnedFd),
    /// By its start time: kernels before 5.3 and some seccomp filters have no pidfds.
    Identity(Pid, ProcessIdentity),
}

impl ProcessHandle {
    /// Opens a process; returns `None` if it does not exist.
    pub(super) fn new(id: Pid) -> Result<Option<Self>> {
        match pidfd_open(id, PidfdFlags::empty()) {
            Ok(handle) => Ok(Some(Self::PidFd(handle))),
            Err(Errno::SRCH) => Ok(None),
            Err(Errno::NOSYS | Errno::PERM) => Ok(Self::by_name(id)),
            Err(error) => Err(error),
        }
    }

    fn by_name(id: Pid) -> Option<Self> {
        let name = ProcessIdentity::of(id.as_raw_nonzero().get().cast_unsigned()).ok()?;
        Some(Self::Identity(id, name))
    }

    /// Sends a signal; succeeds without effect if the process has ended.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let sent = match self {
            Self::PidFd(handle) => pidfd_send_signal(handle, signal),
            Self::Identity(id, name) if name.is_alive() => kill_process(*id, signal),
            Self::Identity(..) => Ok(()),
        };
        match sent {
            Err(Errno::SRCH) => Ok(()),
            other => other,
        }
    }

    /// Waits for the process's end; returns false at the deadline.
    pub(super) fn has_ended(&self, deadline: Instant) -> Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self {
                Self::PidFd(handle) => {
                    let left =
                        Timespec::try_from(left).expect("seconds are within the clock's range");
                    match poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&left)) {
                        Err(Errno::INTR) => {}
                        ended => return ended.map(|count| count > 0),
                    }
                }
                Self::Identity(id, name) if !runs(*id, *name) => return Ok(true),
                Self::Identity(..) if left.is_zero() => return Ok(false),
                Self::Identity(..) => thread::sleep(PAUSE.min(left)),
            }
        }
    }
}

/// Returns whether a process runs; a zombie does not.
fn runs(id: Pid, name: ProcessIdentity) -> bool {
    let state = || stat_field(id.as_raw_nonzero().get(), STATE);
    name.is_alive() && state().is_ok_and(|state| state != "Z")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn both_kinds_of_handles_signal_and_wait() {
        let by_pidfd = |id| ProcessHandle::new(id).unwrap();
        for open in [by_pidfd, ProcessHandle::by_name] {
            let mut child = Command::new("sleep").arg("600").spawn().unwrap();
            let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            let handle = open(id).unwrap();
            assert!(!handle.has_ended(Instant::now()).unwrap());
            handle.signal(Signal::KILL).unwrap();
            let patience = Instant::now() + Duration::from_mins(1);
            assert!(handle.has_ended(patience).unwrap());
            child.wait().unwrap();
            assert!(handle.has_ended(Instant::now()).unwrap());
            handle.signal(Signal::KILL).unwrap();
            assert!(open(id).is_none());
        }
    }
}
