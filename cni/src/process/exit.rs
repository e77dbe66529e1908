//! A descriptor for the end of a child, so that one `poll` waits for it together with the child's pipes.

use std::{io, os::fd::OwnedFd, thread};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid},
};

/// Returns a descriptor that `poll` reports as readable once the child has ended. The caller must not have waited for the child.
pub(super) fn descriptor(child: Pid) -> io::Result<OwnedFd> {
    match pidfd_open(child, PidfdFlags::empty()) {
        // Filters of system calls (seccomp) return either error for a call that they do not know.
        Err(Errno::NOSYS | Errno::PERM) => pipe_closed_at_exit(child),
        other => Ok(other?),
    }
}

/// The same for kernels before 5.3: one end of a pipe whose other end a thread closes when the child ends.
fn pipe_closed_at_exit(child: Pid) -> io::Result<OwnedFd> {
    let (ended, open) = io::pipe()?;
    let wait = move || {
        let _open = open;
        // The child stays a zombie, since the caller still asks for its status. The call fails if the caller did so first: the child has ended.
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

    fn has_ended(descriptor: &OwnedFd, patience: Duration) -> bool {
        let patience = Timespec::try_from(patience).unwrap();
        let mut fds = [PollFd::new(descriptor, PollFlags::IN)];
        poll(&mut fds, Some(&patience)).unwrap() > 0
    }

    #[test]
    fn both_descriptors_report_the_end_and_leave_the_status() {
        for make in [descriptor, pipe_closed_at_exit] {
            let mut child = Command::new("sleep").arg("600").spawn().unwrap();
            let id = super::super::pid(&child);
            let descriptor = make(id).unwrap();
            assert!(!has_ended(&descriptor, Duration::ZERO));
            kill_process(id, Signal::TERM).unwrap();
            assert!(has_ended(&descriptor, Duration::from_mins(1)));
            assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        }
    }

    #[test]
    fn child_that_was_waited_for_has_ended() {
        let mut child = Command::new("true").spawn().unwrap();
        let id = super::super::pid(&child);
        child.wait().unwrap();
        let descriptor = pipe_closed_at_exit(id).unwrap();
        assert!(has_ended(&descriptor, Duration::from_mins(1)));
    }
}
