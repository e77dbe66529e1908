//! A process that is meant to end, told from every other that may get its id.

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

use super::{Name, STATE, stat_field};

/// How often a process without a handle is looked at.
const PAUSE: Duration = Duration::from_millis(20);

/// It stays the same process for as long as this lives, or is none any more.
#[derive(Debug)]
pub(super) enum Held {
    /// By a handle: the id cannot become another's.
    Handle(OwnedFd),
    /// By its start, as kernels before 5.3 and some filters of system calls know no handles.
    Name(Pid, Name),
}

impl Held {
    /// `None` where there is no such process.
    pub(super) fn new(id: Pid) -> Result<Option<Self>> {
        match pidfd_open(id, PidfdFlags::empty()) {
            Ok(handle) => Ok(Some(Self::Handle(handle))),
            Err(Errno::SRCH) => Ok(None),
            Err(Errno::NOSYS | Errno::PERM) => Ok(Self::by_name(id)),
            Err(error) => Err(error),
        }
    }

    fn by_name(id: Pid) -> Option<Self> {
        let name = Name::of(id.as_raw_nonzero().get().cast_unsigned()).ok()?;
        Some(Self::Name(id, name))
    }

    /// Sends a signal; who has ended needs none.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let sent = match self {
            Self::Handle(handle) => pidfd_send_signal(handle, signal),
            Self::Name(id, name) if name.is_alive() => kill_process(*id, signal),
            Self::Name(..) => Ok(()),
        };
        match sent {
            Err(Errno::SRCH) => Ok(()),
            other => other,
        }
    }

    /// Waits for its end.
    pub(super) fn has_ended(&self, deadline: Instant) -> Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self {
                Self::Handle(handle) => {
                    let left =
                        Timespec::try_from(left).expect("seconds are within the clock's range");
                    match poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&left)) {
                        Err(Errno::INTR) => {}
                        ended => return ended.map(|count| count > 0),
                    }
                }
                Self::Name(id, name) if !runs(*id, *name) => return Ok(true),
                Self::Name(..) if left.is_zero() => return Ok(false),
                Self::Name(..) => thread::sleep(PAUSE.min(left)),
            }
        }
    }
}

/// Whether a process does anything any more; one that nobody has waited for does not.
fn runs(id: Pid, name: Name) -> bool {
    let state = || stat_field(id.as_raw_nonzero().get(), STATE);
    name.is_alive() && state().is_ok_and(|state| state != "Z")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn both_ways_signal_and_see_the_end() {
        let by_handle = |id| Held::new(id).unwrap();
        for hold in [by_handle, Held::by_name] {
            let mut child = Command::new("sleep").arg("600").spawn().unwrap();
            let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            let held = hold(id).unwrap();
            assert!(!held.has_ended(Instant::now()).unwrap());
            held.signal(Signal::KILL).unwrap();
            let patience = Instant::now() + Duration::from_mins(1);
            assert!(held.has_ended(patience).unwrap());
            child.wait().unwrap();
            assert!(held.has_ended(Instant::now()).unwrap());
            held.signal(Signal::KILL).unwrap();
            assert!(hold(id).is_none());
        }
    }
}
