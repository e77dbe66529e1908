//! One request to the daemon's socket, with a deadline for every step.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::http::{self, Answer};

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nobody is there; nothing was sent.
    Unreachable(io::Error),
    /// The connection broke after the request went out: what happened is not known.
    Lost(io::Error),
    /// No answer in time.
    Late(Duration),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(error) => write!(formatter, "cannot connect: {error}"),
            Self::Lost(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                formatter.write_str("it closed the connection without an answer")
            }
            Self::Lost(error) => write!(formatter, "the connection broke: {error}"),
            Self::Late(time) => write!(formatter, "no answer within {} s", time.as_secs()),
        }
    }
}

/// How long each half may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Getting through a full queue.
    pub(crate) connect: Duration,
    /// From the first byte of the request to the last of the answer.
    pub(crate) answer: Duration,
}

/// The least time that a socket can be given to wait.
const LEAST_WAIT: Duration = Duration::from_millis(1);
/// The longest path that a socket address holds.
const MAX_ADDRESS: usize = 107;

/// Sends one request and reads its answer.
pub(crate) fn send(
    socket: &Path,
    path: &str,
    hold: Duration,
    body: &[u8],
    patience: Patience,
) -> Result<Answer, Failure> {
    let stream = open(socket, Instant::now() + patience.connect).map_err(Failure::Unreachable)?;
    let mut stream = Deadline {
        stream,
        end: Instant::now() + patience.answer,
    };
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::Late(patience.answer),
        _ => Failure::Lost(error),
    };
    match stream.write_all(&http::request(path, hold, body)) {
        // A daemon may refuse before it has read everything; its answer says why.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other.map_err(failed)?,
    }
    http::answer(stream, api::MAX_MESSAGE).map_err(failed)
}

/// Connects; the kernel waits for a place in a full queue until `end`.
fn open(socket: &Path, end: Instant) -> io::Result<UnixStream> {
    // A path too long for an address is reached through its open directory.
    let (dir, address) = if socket.as_os_str().len() <= MAX_ADDRESS {
        (None, socket.to_owned())
    } else {
        let dir = File::open(socket.parent().unwrap_or(Path::new("/")))?;
        let short = Path::new("/proc/self/fd")
            .join(dir.as_raw_fd().to_string())
            .join(api::SOCKET_NAME);
        (Some(dir), short)
    };
    let address = SocketAddrUnix::new(&address)?;
    let fd = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // A timeout of 0 would mean none at all.
        set_socket_timeout(&fd, Timeout::Send, Some(left.max(LEAST_WAIT)))?;
        match connect(&fd, &address) {
            Err(Errno::INTR) if Instant::now() < end => {}
            other => break other?,
        }
    }
    drop(dir);
    Ok(UnixStream::from(fd))
}

/// A stream whose every read and write counts against one deadline.
struct Deadline {
    stream: UnixStream,
    end: Instant,
}

impl Deadline {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(Some(left))
        }
    }
}

impl Read for Deadline {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Deadline {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
