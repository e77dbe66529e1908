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

use crate::http::{self, HttpResponse};

/// The reason why a request got no response.
#[derive(Debug)]
pub(crate) enum SendError {
    /// No daemon accepts connections; nothing was sent.
    Unreachable(io::Error),
    /// The connection broke after the request was sent: whether the daemon began it is not known.
    ConnectionLost(io::Error),
    /// The response did not arrive in time.
    TimedOut(Duration),
}

impl std::fmt::Display for SendError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(error) => write!(formatter, "cannot connect: {error}"),
            Self::ConnectionLost(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                formatter.write_str("it closed the connection without an answer")
            }
            Self::ConnectionLost(error) => write!(formatter, "the connection broke: {error}"),
            Self::TimedOut(time) => write!(formatter, "no answer within {} s", time.as_secs()),
        }
    }
}

/// The timeouts of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// For a place in a full queue of connections.
    pub(crate) connect: Duration,
    /// From the first byte of the request to the last of the response.
    pub(crate) response: Duration,
}

/// The shortest timeout of a socket.
const MIN_TIMEOUT: Duration = Duration::from_millis(1);
/// The longest path that a socket address holds.
const MAX_ADDRESS: usize = 107;

/// Sends one request and reads its response.
pub(crate) fn send(
    socket: &Path,
    path: &str,
    hold: Duration,
    body: &[u8],
    timeouts: Timeouts,
) -> Result<HttpResponse, SendError> {
    let stream = open(socket, Instant::now() + timeouts.connect).map_err(SendError::Unreachable)?;
    let mut stream = DeadlineStream {
        stream,
        end: Instant::now() + timeouts.response,
    };
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            SendError::TimedOut(timeouts.response)
        }
        _ => SendError::ConnectionLost(error),
    };
    match stream.write_all(&http::request(path, hold, body)) {
        // A daemon may refuse before it has read everything; its response has the reason.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other.map_err(failed)?,
    }
    http::read_response(stream, api::MAX_MESSAGE).map_err(failed)
}

/// Connects; the kernel waits until `end` for a place in a full queue.
fn open(socket: &Path, end: Instant) -> io::Result<UnixStream> {
    // A path that is too long for a socket address is shortened through a descriptor of its directory.
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
        set_socket_timeout(&fd, Timeout::Send, Some(left.max(MIN_TIMEOUT)))?;
        match connect(&fd, &address) {
            Err(Errno::INTR) if Instant::now() < end => {}
            other => break other?,
        }
    }
    drop(dir);
    Ok(UnixStream::from(fd))
}

/// A stream with one deadline for all reads and writes.
struct DeadlineStream {
    stream: UnixStream,
    end: Instant,
}

impl DeadlineStream {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(Some(left))
        }
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
