//! One child process: input, bounded output, a deadline, and its verdict.
//!
//! Everything happens in one loop over `poll`, because a plugin may leave a grandchild behind that keeps the pipes open: once the
//! plugin itself has ended, what it wrote is taken and nobody is waited for.

mod ended;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::exec::ExecError;
use crate::types::CniError;

/// Bounds of one run.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most bytes of stdout; more is an error.
    pub stdout: usize,
    /// Most bytes of stderr that are kept; the rest is read and dropped.
    pub stderr: usize,
    /// After that long the child is killed; `None` waits for ever.
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

/// What a child left.
#[derive(Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// All of its stdout.
    pub stdout: Vec<u8>,
    /// The first bytes of its stderr.
    pub stderr: Vec<u8>,
}

/// How much of a plugin's talk goes into an error.
const EXCERPT: usize = 1024;
/// How often, and how long, a program that is just being replaced is tried again.
const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// The caller reads the child's output only after this time, or at the child's end. An answer fits into a pipe, so most children end
/// first, and the caller is woken once instead of for each piece. A child that writes more than a pipe holds waits until then.
const UNWATCHED: Duration = Duration::from_millis(100);

impl Output {
    /// The stdout of a success; the typed error of a failure, or one that quotes what there is.
    pub fn into_answer(self, path: &Path) -> Result<Vec<u8>, ExecError> {
        if self.status.success() {
            return Ok(self.stdout);
        }
        if let Some(error) = CniError::parse(&self.stdout) {
            return Err(ExecError::Plugin(error));
        }
        let name = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy();
        let mut msg = format!("plugin {name} failed: {}", self.status);
        let talk = if self.stderr.trim_ascii().is_empty() {
            &self.stdout
        } else {
            &self.stderr
        };
        if !talk.trim_ascii().is_empty() {
            msg.push_str(": ");
            msg.push_str(&excerpt(talk));
        }
        Err(ExecError::Plugin(CniError::new(CniError::INTERNAL, msg)))
    }
}

/// Runs the command to its end. The caller sets program, environment and whatever has to happen between fork and exec.
pub fn run(
    command: &mut Command,
    path: &Path,
    stdin: &[u8],
    limits: &Limits,
) -> Result<Output, ExecError> {
    let failed = |source| ExecError::Io {
        path: path.to_owned(),
        source,
    };
    // A group of its own, so that the plugins which it called can be ended with it.
    command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spawn_retrying_busy(command, || true).map_err(failed)?;
    let outcome = ended::handle(pid(&child))
        .map_err(Broken::Io)
        .and_then(|ended| exchange(ended.as_fd(), Streams::of(&mut child), stdin, limits));
    if outcome.is_err() {
        // Before the wait below, the id is nobody else's. It may have ended by itself meanwhile, which is as well.
        let _ = kill_process_group(pid(&child), Signal::KILL);
    }
    let status = child.wait().map_err(failed)?;
    match outcome {
        Ok((stdout, stderr)) => Ok(Output {
            status,
            stdout,
            stderr,
        }),
        Err(broken) => Err(broken.into_exec_error(path, limits)),
    }
}

/// Spawns the command. "Text file busy" means that the program is being written at this moment: tries again, as long as
/// `is_wanted` returns true.
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
    /// To be written to.
    pub stdin: OwnedFd,
    /// To be read from.
    pub stdout: OwnedFd,
    /// To be read from.
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

/// Why an exchange with a child stopped before the child ended. The caller has to kill the child.
#[derive(Debug)]
pub enum Broken {
    /// A pipe failed.
    Io(io::Error),
    /// The child wrote more to stdout than is allowed.
    TooMuch,
    /// The child did not end within this time.
    Late(Duration),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Broken {
    /// The error for the program at `path`, which ran within `limits`.
    pub fn into_exec_error(self, path: &Path, limits: &Limits) -> ExecError {
        let path = path.to_owned();
        match self {
            Self::Io(source) => ExecError::Io { path, source },
            Self::TooMuch => ExecError::TooMuchOutput {
                path,
                limit: limits.stdout,
            },
            Self::Late(time) => ExecError::TimedOut {
                path,
                seconds: time.as_secs(),
            },
        }
    }
}

/// Writes `input` to the child and reads its output until `ended` becomes readable, which means that the child has ended.
/// Returns stdout and the beginning of stderr.
pub fn exchange(
    ended: BorrowedFd<'_>,
    streams: Streams,
    mut input: &[u8],
    limits: &Limits,
) -> Result<(Vec<u8>, Vec<u8>), Broken> {
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
            return Err(Broken::TooMuch);
        }
        if (ready.stderr || ready.ended) && drain(stderr.as_ref(), &mut err, limits.stderr)? {
            stderr = None;
        }
        if ready.ended {
            return Ok((out, err));
        }
    }
}

/// What can be done without waiting.
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

/// Returns whether the descriptor becomes readable within this time. A signal starts the time anew.
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

/// Waits until something can be done.
fn wait(
    ended: BorrowedFd<'_>,
    pipes: [&Option<OwnedFd>; 3],
    deadline: Option<(Instant, Duration)>,
) -> Result<Ready, Broken> {
    let timeout = match deadline {
        None => None,
        Some((end, time)) => {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Broken::Late(time));
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
            // The child has ended or has closed its input without reading all of it: its answer counts.
            Err(Errno::PIPE) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Reads what is there and keeps at most `limit` bytes in total; returns whether the pipe is at its end.
fn drain(pipe: Option<&OwnedFd>, kept: &mut Vec<u8>, limit: usize) -> io::Result<bool> {
    let Some(pipe) = pipe else { return Ok(false) };
    let mut buffer = [0; 16 << 10];
    // A child that writes faster than it is read must not keep the loop from looking at the clock.
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

/// The end of a text, on one line: that is where a program says why it gave up.
fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth_back(EXCERPT) {
        None => line,
        Some((start, _)) => format!("…{}", &line[start..]),
    }
}
