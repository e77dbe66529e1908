//! One child process: input, bounded output, a deadline, and its verdict.
//!
//! Everything happens in one loop over `poll`, because a plugin may leave a grandchild behind that keeps the pipes open: once the
//! plugin itself has ended, what it wrote is taken and nobody is waited for.

mod ended;

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
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
    let mut child = spawn(command).map_err(failed)?;
    let outcome = converse(&mut child, stdin, limits);
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
        Err(Broken::Io(source)) => Err(failed(source)),
        Err(Broken::TooMuch) => Err(ExecError::TooMuchOutput {
            path: path.to_owned(),
            limit: limits.stdout,
        }),
        Err(Broken::Late(time)) => Err(ExecError::TimedOut {
            path: path.to_owned(),
            seconds: time.as_secs(),
        }),
    }
}

/// "Text file busy" means that the program is being written this very moment: try again.
fn spawn(command: &mut Command) -> io::Result<Child> {
    for _ in 1..BUSY_TRIES {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
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

enum Broken {
    Io(io::Error),
    TooMuch,
    Late(Duration),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Feeds and drains the child until it has ended.
fn converse(
    child: &mut Child,
    mut input: &[u8],
    limits: &Limits,
) -> Result<(Vec<u8>, Vec<u8>), Broken> {
    let ended = ended::handle(pid(child))?;
    let mut stdin = child.stdin.take();
    let mut stdout = Some(child.stdout.take().expect("piped"));
    let mut stderr = Some(child.stderr.take().expect("piped"));
    for pipe in [
        stdin.as_ref().map(AsFd::as_fd),
        stdout.as_ref().map(AsFd::as_fd),
        stderr.as_ref().map(AsFd::as_fd),
    ] {
        rustix::io::ioctl_fionbio(pipe.expect("piped"), true).map_err(io::Error::from)?;
    }
    let deadline = limits.time.map(|time| (Instant::now() + time, time));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        if input.is_empty() {
            stdin = None;
        }
        let over = wait(
            &ended,
            [
                stdin.as_ref().map(AsFd::as_fd),
                stdout.as_ref().map(AsFd::as_fd),
                stderr.as_ref().map(AsFd::as_fd),
            ],
            deadline,
        )?;
        if let Some(pipe) = &mut stdin {
            match pipe.write(input) {
                Ok(written) => input = &input[written..],
                Err(error) if retry(&error) => {}
                // It ended or closed its input without reading all of it: its answer counts, not ours.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => input = &[],
                Err(error) => return Err(error.into()),
            }
        }
        if drain(&mut stdout, &mut out, limits.stdout.saturating_add(1))? {
            stdout = None;
        }
        if out.len() > limits.stdout {
            return Err(Broken::TooMuch);
        }
        if drain(&mut stderr, &mut err, limits.stderr)? {
            stderr = None;
        }
        if over {
            return Ok((out, err));
        }
    }
}

/// Waits until something can be done; says whether the child has ended.
fn wait(
    ended: &OwnedFd,
    pipes: [Option<std::os::fd::BorrowedFd<'_>>; 3],
    deadline: Option<(Instant, Duration)>,
) -> Result<bool, Broken> {
    let mut fds = vec![PollFd::new(ended, PollFlags::IN)];
    for (index, pipe) in pipes.iter().enumerate() {
        if let Some(pipe) = pipe {
            fds.push(PollFd::new(
                pipe,
                if index == 0 {
                    PollFlags::OUT
                } else {
                    PollFlags::IN
                },
            ));
        }
    }
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
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) => Ok(!fds[0].revents().is_empty()),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

/// Takes what is there, keeps at most `limit` bytes in total; says whether the pipe is at its end.
fn drain(pipe: &mut Option<impl Read>, kept: &mut Vec<u8>, limit: usize) -> io::Result<bool> {
    let Some(pipe) = pipe else { return Ok(false) };
    let mut buffer = [0; 16 << 10];
    // A child that writes faster than it is read must not keep the loop from looking at the clock.
    for _ in 0..64 {
        match pipe.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(count) => {
                kept.extend_from_slice(&buffer[..count.min(limit.saturating_sub(kept.len()))]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if retry(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

fn retry(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
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
