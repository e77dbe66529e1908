//! One child process with input, bounded output and a deadline.
//!
//! One loop over `poll` does everything, because a plugin may leave a grandchild that keeps the pipes open: once the plugin itself has
//! ended, the loop takes its output and waits for no other process.

mod exit;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The limits of one run.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The most bytes of stdout; more are an error.
    pub stdout: usize,
    /// The most bytes of stderr that are kept; the rest is read and dropped.
    pub stderr: usize,
    /// The time after which the child is killed; `None` waits for ever.
    pub time: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stdout: 16 << 20,
            stderr: 64 << 10,
            time: None,
        }
    }
}

/// The output and the status of a child that ended.
#[derive(Debug)]
pub struct Output {
    pub status: ExitStatus,
    /// The complete stdout.
    pub stdout: Vec<u8>,
    /// The first bytes of stderr.
    pub stderr: Vec<u8>,
}

/// How often a program that is just being replaced is tried, and the pause between two tries.
const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// The caller reads the child's output only after this time or at the child's end. A result fits into a pipe, so most children end
/// first, and the caller wakes up once instead of for each piece. A child that writes more than a pipe holds waits until then.
const UNWATCHED: Duration = Duration::from_millis(100);

/// Runs the command to its end in a process group of its own, so that a kill also ends the plugins that it called. The caller sets
/// program, environment and everything that has to happen between fork and exec.
pub fn run(command: &mut Command, stdin: &[u8], limits: &Limits) -> Result<Output, RunError> {
    run_until(command.process_group(0), stdin, limits, kill_process_group)
}

/// The same in the caller's process group: whoever kills that one ends the command, too. At a limit the command alone is killed.
pub fn run_in_this_group(
    command: &mut Command,
    stdin: &[u8],
    limits: &Limits,
) -> Result<Output, RunError> {
    run_until(command, stdin, limits, kill_process)
}

fn run_until(
    command: &mut Command,
    stdin: &[u8],
    limits: &Limits,
    kill: impl FnOnce(Pid, Signal) -> Result<(), Errno>,
) -> Result<Output, RunError> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spawn_retrying_busy(command, || true)?;
    let outcome = exit::descriptor(pid(&child))
        .map_err(RunError::Io)
        .and_then(|ended| exchange(ended.as_fd(), Streams::of(&mut child), stdin, limits));
    if outcome.is_err() {
        // Before the wait below no other process can have this ID. The kill fails if the child has ended by itself, which is fine.
        let _ = kill(pid(&child), Signal::KILL);
    }
    let status = child.wait()?;
    let (stdout, stderr) = outcome?;
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}

/// Spawns the command. "Text file busy" means that the program is being written at this moment, and is retried as long as `is_wanted`
/// returns true.
pub fn spawn_retrying_busy(
    command: &mut Command,
    is_wanted: impl Fn() -> bool,
) -> io::Result<Child> {
    for _ in 1..BUSY_TRIES {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && is_wanted() => {
                thread::sleep(BUSY_PAUSE);
            }
            other => return other,
        }
    }
    command.spawn()
}

fn pid(child: &Child) -> Pid {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    id.expect("a child has a pid")
}

/// The caller's ends of a child's pipes.
#[derive(Debug)]
pub struct Streams {
    /// The end to write to.
    pub stdin: OwnedFd,
    /// The end to read from.
    pub stdout: OwnedFd,
    /// The end to read from.
    pub stderr: OwnedFd,
}

impl Streams {
    fn of(child: &mut Child) -> Self {
        Self {
            stdin: child.stdin.take().expect("piped").into(),
            stdout: child.stdout.take().expect("piped").into(),
            stderr: child.stderr.take().expect("piped").into(),
        }
    }
}

/// The reason why a run stopped before the child ended by itself. The caller of [`exchange`] has to kill the child.
#[derive(Debug)]
pub enum RunError {
    /// The child could not be started, or a pipe failed.
    Io(io::Error),
    /// The child wrote more to stdout than is allowed.
    TooMuchOutput,
    /// The child did not end within this time.
    TimedOut(Duration),
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes `input` to the child and reads its output until `ended` becomes readable, which means that the child has ended.
/// Returns stdout and the beginning of stderr.
pub fn exchange(
    ended: BorrowedFd<'_>,
    streams: Streams,
    mut input: &[u8],
    limits: &Limits,
) -> Result<(Vec<u8>, Vec<u8>), RunError> {
    let mut stdin = Some(streams.stdin);
    let mut stdout = Some(streams.stdout);
    let mut stderr = Some(streams.stderr);
    for pipe in [&stdin, &stdout, &stderr].into_iter().flatten() {
        rustix::io::ioctl_fionbio(pipe, true).map_err(io::Error::from)?;
    }
    let deadline = limits.time.map(|time| (Instant::now() + time, time));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    // Most input fits into the pipe at once.
    let mut ready = Ready {
        stdin: true,
        ..Ready::default()
    };
    let mut unwatched = Some(limits.time.map_or(UNWATCHED, |time| time.min(UNWATCHED)));
    loop {
        if ready.stdin
            && let Some(pipe) = &stdin
            && feed(pipe, &mut input)?
        {
            stdin = None;
        }
        ready = match unwatched.take() {
            Some(time) if stdin.is_none() && is_readable_within(ended, time)? => Ready {
                ended: true,
                ..Ready::default()
            },
            _ => wait(ended, [&stdin, &stdout, &stderr], deadline)?,
        };
        if (ready.stdout || ready.ended)
            && drain(stdout.as_ref(), &mut out, limits.stdout.saturating_add(1))?
        {
            stdout = None;
        }
        if out.len() > limits.stdout {
            return Err(RunError::TooMuchOutput);
        }
        if (ready.stderr || ready.ended) && drain(stderr.as_ref(), &mut err, limits.stderr)? {
            stderr = None;
        }
        if ready.ended {
            return Ok((out, err));
        }
    }
}

/// The descriptors that can be used without waiting.
#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one per descriptor, not a state"
)]
struct Ready {
    ended: bool,
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

/// Returns whether the descriptor becomes readable within this time. A signal starts the time again.
pub fn is_readable_within(descriptor: BorrowedFd<'_>, time: Duration) -> io::Result<bool> {
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    loop {
        let mut fds = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        match poll(&mut fds, Some(&time)) {
            Err(Errno::INTR) => {}
            count => return Ok(count? > 0),
        }
    }
}

/// Waits until a descriptor is ready, or until the deadline.
fn wait(
    ended: BorrowedFd<'_>,
    pipes: [&Option<OwnedFd>; 3],
    deadline: Option<(Instant, Duration)>,
) -> Result<Ready, RunError> {
    let timeout = match deadline {
        None => None,
        Some((end, time)) => {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(RunError::TimedOut(time));
            }
            Some(Timespec::try_from(left).expect("a deadline is within the range of the clock"))
        }
    };
    // A pipe that is closed is represented by `ended`, without any event to wait for.
    let entry = |pipe: usize, flags| match pipes[pipe] {
        Some(pipe) => PollFd::from_borrowed_fd(pipe.as_fd(), flags),
        None => PollFd::from_borrowed_fd(ended, PollFlags::empty()),
    };
    let mut fds = [
        PollFd::from_borrowed_fd(ended, PollFlags::IN),
        entry(0, PollFlags::OUT),
        entry(1, PollFlags::IN),
        entry(2, PollFlags::IN),
    ];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) => {
            let [ended, stdin, stdout, stderr] = fds.each_ref().map(|fd| !fd.revents().is_empty());
            Ok(Ready {
                ended,
                stdin,
                stdout,
                stderr,
            })
        }
        Err(Errno::INTR) => Ok(Ready::default()),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

/// Writes as much as fits; returns whether the pipe can be closed.
fn feed(pipe: &OwnedFd, input: &mut &[u8]) -> io::Result<bool> {
    while !input.is_empty() {
        match rustix::io::write(pipe, input) {
            Ok(written) => *input = &input[written..],
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            // The child has ended or has closed its stdin without reading all of it: its output counts.
            Err(Errno::PIPE) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Reads the available bytes and keeps at most `limit` in total; returns whether the pipe is at its end.
fn drain(pipe: Option<&OwnedFd>, kept: &mut Vec<u8>, limit: usize) -> io::Result<bool> {
    let Some(pipe) = pipe else { return Ok(false) };
    let mut buffer = [0; 16 << 10];
    // Bounded, so that a child that writes faster than it is read cannot keep the caller from checking the deadline.
    for _ in 0..64 {
        match rustix::io::read(pipe, &mut buffer) {
            Ok(0) => return Ok(true),
            Ok(count) => {
                kept.extend_from_slice(&buffer[..count.min(limit.saturating_sub(kept.len()))]);
            }
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}
