//! The services that hold addresses for longer than a plugin's process lives: how a plugin asks one. A service of `multus-daemon` ends with
//! its daemon, and the next one takes its place.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use cni::CniError;

use crate::error::{Cause as _, Context as _, Result, failure};

/// How long a service that has ended may take to be replaced by the next one.
const REPLACEMENT_TIME: Duration = Duration::from_secs(10);
/// The pause between two attempts to reach the next service.
const REPLACEMENT_PAUSE: Duration = Duration::from_millis(50);

/// A service by the sockets behind which it may listen.
pub(super) struct Service<'a> {
    /// Its name in errors.
    pub(super) name: &'static str,
    /// The socket of `multus-daemon`.
    pub(super) own: &'static str,
    /// The most important one first.
    pub(super) sockets: Vec<&'a str>,
}

/// Why a request was not served.
#[derive(Debug)]
pub(super) enum Unserved {
    /// No service runs.
    NoService(CniError),
    /// Any other reason.
    Failed(CniError),
}

impl Unserved {
    pub(super) fn into_error(self) -> CniError {
        match self {
            Self::NoService(error) | Self::Failed(error) => error,
        }
    }
}

impl From<CniError> for Unserved {
    fn from(error: CniError) -> Self {
        Self::Failed(error)
    }
}

/// Why a connection was refused.
#[derive(Debug)]
struct Refusal {
    unserved: Unserved,
    /// Whether the daemon's service listened before, so that the next one is to be expected.
    has_ended: bool,
}

impl Service<'_> {
    /// Fails unless a service accepts requests.
    pub(super) fn status(&self) -> Result<()> {
        let connected = self.connect().map(|_| ());
        connected.map_err(|refusal| super::unavailable(refusal.unserved.into_error()))
    }

    /// Sends a request to the service. One that may be repeated is sent again to the next service when this one ends before it answers.
    pub(super) fn request(
        &self,
        bytes: &[u8],
        may_repeat: bool,
        what: impl Fn() -> String,
    ) -> std::result::Result<Vec<u8>, Unserved> {
        let deadline = Instant::now() + REPLACEMENT_TIME;
        let mut is_next_expected = false;
        loop {
            let unserved = match self.connect() {
                Ok(stream) => {
                    let answer = converse(stream, bytes).context(&what)?;
                    if !answer.is_empty() {
                        return Ok(answer);
                    }
                    is_next_expected = true;
                    Unserved::NoService(failure!("{}: the daemon has ended", what()))
                }
                Err(refusal) => {
                    is_next_expected |= refusal.has_ended;
                    refusal.unserved
                }
            };
            if !is_next_expected || !may_repeat || Instant::now() >= deadline {
                return Err(unserved);
            }
            thread::sleep(REPLACEMENT_PAUSE);
        }
    }

    /// Connects to the first socket behind which a service listens.
    fn connect(&self) -> std::result::Result<UnixStream, Refusal> {
        use io::ErrorKind::{ConnectionRefused, NotFound};
        let mut has_ended = false;
        let mut refusal = None;
        for path in &self.sockets {
            match UnixStream::connect(path) {
                Ok(stream) => return Ok(stream),
                Err(source) => {
                    has_ended |= *path == self.own && source.kind() == ConnectionRefused;
                    refusal = Some((*path, source));
                }
            }
        }
        let (path, source) = refusal.expect("there is a path");
        let is_absent = matches!(source.kind(), NotFound | ConnectionRefused);
        let what = format!(
            "error dialing {} daemon: dial unix {path}: connect",
            self.name
        );
        let error = source.with(&what);
        let unserved = if is_absent {
            Unserved::NoService(error)
        } else {
            Unserved::Failed(error)
        };
        Err(Refusal {
            unserved,
            has_ended,
        })
    }
}

/// Sends a request and returns the answer, which is empty when the service ended before it answered.
fn converse(mut stream: UnixStream, request: &[u8]) -> io::Result<Vec<u8>> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
    let mut answer = Vec::new();
    let outcome = stream
        .write_all(request)
        .and_then(|()| stream.shutdown(Shutdown::Write))
        .and_then(|()| stream.read_to_end(&mut answer));
    match outcome {
        Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected) => {
            Ok(Vec::new())
        }
        other => other.map(|_| answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_sent_again_to_the_next_service() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dhcp.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let services = thread::spawn(move || {
            let mut received = Vec::new();
            // The first service ends before it reads, the second one before it answers.
            drop(listener.accept().unwrap());
            for answer in [&b""[..], b"\"done\""] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = String::new();
                stream.read_to_string(&mut request).unwrap();
                received.push(request);
                stream.write_all(answer).unwrap();
            }
            received
        });
        let name = path.to_string_lossy();
        let service = Service {
            name: "DHCP",
            own: "",
            sockets: vec![&name],
        };
        let answer = service.request(b"release", true, String::new).unwrap();
        assert_eq!(answer, b"\"done\"");
        assert_eq!(services.join().unwrap(), ["release", "release"]);

        // The path stays behind, but it is not known whether another service will come.
        let begin = Instant::now();
        let unserved = service.request(b"release", true, String::new).unwrap_err();
        let Unserved::NoService(error) = unserved else {
            panic!("{unserved:?}");
        };
        let expected = format!(
            "error dialing DHCP daemon: dial unix {}: connect: connection refused",
            path.display()
        );
        assert_eq!(error.msg, expected);
        assert!(begin.elapsed() < REPLACEMENT_TIME);
    }
}
