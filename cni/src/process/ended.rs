//! How the end of a child is waited for beside its pipes.

use std::{io, os::fd::OwnedFd, thread};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid},
};

/// What can be read from, as `poll` has it, once a child that nobody has waited for has ended.
pub(super) fn handle(child: Pid) -> io::Result<OwnedFd> {
    match pidfd_open(child, PidfdFlags::empty()) {
        // Filters of system calls have either word for what they do not know.
        Err(Errno::NOSYS | Errno::PERM) => closed_at_end(child),
        other => Ok(other?),
    }
}

/// The same for kernels before 5.3: the end of a pipe whose other end a thread closes.
fn closed_at_end(child: Pid) -> io::Result<OwnedFd> {
    let (ended, open) = io::pipe()?;
    let wait = move || {
        let _open = open;
        // The child stays for whoever asks for its status. When that was quicker, it has ended, too.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(child), options), Err(Errno::INTR)) {}
    };
    let name = format!("end of {}", child.as_raw_nonzero());
    thread::Builder::new().name(name).spawn(wait)?;
    Ok(ended.into())
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt as _, process::Command, time::Duration};

    use rustix::{
        event::{PollFd, PollFlags, Timespec, poll},
        process::{Signal, kill_process},
    };

    use super::*;

    fn has_ended(handle: &OwnedFd, patience: Duration) -> bool {
        let patience = Timespec::try_from(patience).unwrap();
        let mut fds = [PollFd::new(handle, PollFlags::IN)];
        poll(&mut fds, Some(&patience)).unwrap() > 0
    }

    #[test]
    fn both_tell_of_the_end_and_leave_the_status() {
        for make in [handle, closed_at_end] {
            let mut child = Command::new("sleep").arg("600").spawn().unwrap();
            let id = super::super::pid(&child);
            let handle = make(id).unwrap();
            assert!(!has_ended(&handle, Duration::ZERO));
            kill_process(id, Signal::TERM).unwrap();
            assert!(has_ended(&handle, Duration::from_mins(1)));
            assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        }
    }

    #[test]
    fn a_child_that_somebody_has_waited_for_has_ended() {
        let mut child = Command::new("true").spawn().unwrap();
        let id = super::super::pid(&child);
        child.wait().unwrap();
        let handle = closed_at_end(id).unwrap();
        assert!(has_ended(&handle, Duration::from_mins(1)));
    }
}
