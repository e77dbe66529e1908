//! The daemon as a process, and an HTTP client of its socket.

use std::{
    fs::File,
    io::{self, Read, Write},
    ops::Deref,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
};

use api::Request;
use cni::{CniError, CniResult};
use rustix::process::{Pid, Signal, kill_process};

use crate::{PATIENCE, wait_for};

/// A client of a daemon's socket.
pub(crate) struct SocketClient(pub(crate) PathBuf);

/// A running daemon; it is killed when dropped, and its log is printed when the test fails.
pub(crate) struct Daemon {
    child: Child,
    client: SocketClient,
    log: PathBuf,
}

impl Deref for Daemon {
    type Target = SocketClient;

    fn deref(&self) -> &SocketClient {
        &self.client
    }
}

#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl SocketClient {
    /// Returns why the daemon is not ready, as `/readyz` reports it, or `None` when it is.
    pub(crate) fn problem(&self) -> Option<String> {
        match self.try_send("GET", api::PATH_READYZ, b"") {
            Ok(response) if response.status == 200 => None,
            Ok(response) => Some(response.text()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Returns whether connections are accepted.
    pub(crate) fn listens(&self) -> bool {
        UnixStream::connect(&self.0).is_ok()
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: &[u8]) -> HttpResponse {
        self.try_send(method, path, body).unwrap()
    }

    fn try_send(&self, method: &str, path: &str, body: &[u8]) -> io::Result<HttpResponse> {
        send(&self.0, method, path, body)
    }

    /// Sends one verb.
    pub(crate) fn cni(&self, request: &Request) -> HttpResponse {
        self.send("POST", api::PATH_CNI, &request.to_json())
    }

    /// Sends one verb as our shim does, with a hold header in milliseconds.
    pub(crate) fn cni_held(&self, request: &Request, hold: u32) -> HttpResponse {
        let header = format!("{}: {hold}\r\n", api::HEADER_HOLD);
        send_with(&self.0, &header, &request.to_json()).unwrap()
    }

    /// The same on another thread.
    pub(crate) fn cni_held_meanwhile(
        &self,
        request: &Request,
        hold: u32,
    ) -> thread::JoinHandle<io::Result<HttpResponse>> {
        let (socket, body) = (self.0.clone(), request.to_json());
        let header = format!("{}: {hold}\r\n", api::HEADER_HOLD);
        thread::spawn(move || send_with(&socket, &header, &body))
    }

    /// Sends one verb without reading its response.
    pub(crate) fn cni_and_leave(&self, request: &Request) -> UnixStream {
        let mut stream = UnixStream::connect(&self.0).unwrap();
        let first = format!("POST {}", api::PATH_CNI);
        send_request(&mut stream, &first, "", &request.to_json()).unwrap();
        stream
    }

    /// The same with a long hold.
    pub(crate) fn cni_held_and_leave(&self, request: &Request) -> UnixStream {
        let mut stream = UnixStream::connect(&self.0).unwrap();
        let first = format!("POST {}", api::PATH_CNI);
        let header = format!("{}: 100000\r\n", api::HEADER_HOLD);
        send_request(&mut stream, &first, &header, &request.to_json()).unwrap();
        stream
    }

    /// Sends one verb on another thread.
    pub(crate) fn cni_meanwhile(
        &self,
        request: &Request,
    ) -> thread::JoinHandle<io::Result<HttpResponse>> {
        let body = request.to_json();
        let stream = UnixStream::connect(&self.0).unwrap();
        thread::spawn(move || exchange_on(stream, &format!("POST {}", api::PATH_CNI), "", &body))
    }
}

impl Daemon {
    /// Starts a daemon; its stderr is appended to `log`.
    pub(crate) fn start(mut command: Command, socket: PathBuf, log: PathBuf) -> Self {
        let stderr = File::options().create(true).append(true).open(&log);
        let child = command
            .stdin(Stdio::null())
            .stderr(stderr.unwrap())
            .spawn()
            .unwrap();
        Self {
            child,
            client: SocketClient(socket),
            log,
        }
    }

    /// Uses the daemon's own socket from now on, as its probes do.
    pub(crate) fn by_own_name(mut self) -> Self {
        let name = format!("daemon-{}.sock", self.child.id());
        self.client.0.set_file_name(name);
        self
    }

    /// Waits until it accepts connections.
    #[track_caller]
    pub(crate) fn listening(self) -> Self {
        wait_for("a listening socket", || self.listens().then_some(()));
        self
    }

    /// Waits until it is ready.
    pub(crate) fn ready(self) -> Self {
        wait_for("a ready daemon", || self.problem().is_none().then_some(()));
        self
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until the log, which all daemons of a node share, contains a text this many times.
    #[track_caller]
    pub(crate) fn until_logged(&self, text: &str, times: usize) {
        let what = format!("{times} times {text:?} in the log");
        wait_for(&what, || {
            let found = self.log().matches(text).count();
            (found == times).then_some(())
        });
    }

    /// Waits until shims connect to another daemon instead.
    #[track_caller]
    pub(crate) fn until_replaced(&self) {
        self.until_logged("shims connect to this daemon", 2);
    }

    pub(crate) fn terminate(&self) {
        kill_process(self.pid(), Signal::TERM).unwrap();
    }

    /// Waits until it has ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        wait_for("the daemon's end", || self.child.try_wait().unwrap())
    }

    /// Kills it, as a power failure would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// A number of its `/proc` status, such as `Threads` or `VmRSS`.
    #[track_caller]
    pub(crate) fn status(&self, name: &str) -> usize {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        let number = line.split_whitespace().nth(1).unwrap();
        number.parse().unwrap()
    }

    /// Its limits, as the kernel prints them.
    pub(crate) fn limits(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/limits", self.child.id())).unwrap()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            println!("log of multus-daemon:\n{}", self.log());
        }
    }
}

impl HttpResponse {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// Checks for a success without a body.
    #[track_caller]
    pub(crate) fn done(&self) {
        assert_eq!((self.status, self.text().as_str()), (200, ""));
    }

    /// The result of an ADD.
    #[track_caller]
    pub(crate) fn result(&self) -> CniResult {
        assert_eq!(self.status, 200, "{}", self.text());
        let response = api::Response::from_json(&self.body).unwrap();
        response.result.expect("an ADD has a result")
    }

    /// The error of a request that the daemon has not begun.
    #[track_caller]
    pub(crate) fn not_begun(&self) -> CniError {
        assert_eq!(self.status, api::STATUS_NOT_BEGUN, "{}", self.text());
        assert!(self.head.contains(api::HEADER_NOT_BEGUN), "{}", self.head);
        serde_json::from_slice(&self.body).unwrap()
    }

    #[track_caller]
    pub(crate) fn error(&self) -> CniError {
        assert_eq!(self.status, 400, "{}", self.text());
        serde_json::from_slice(&self.body).unwrap()
    }
}

fn send_request(stream: &mut UnixStream, first: &str, header: &str, body: &[u8]) -> io::Result<()> {
    let head = format!(
        "{first} HTTP/1.1\r\nHost: dummy\r\n{header}Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat())
}

fn send(socket: &Path, method: &str, path: &str, body: &[u8]) -> io::Result<HttpResponse> {
    exchange(socket, &format!("{method} {path}"), "", body)
}

fn send_with(socket: &Path, header: &str, body: &[u8]) -> io::Result<HttpResponse> {
    exchange(socket, &format!("POST {}", api::PATH_CNI), header, body)
}

fn exchange(socket: &Path, first: &str, header: &str, body: &[u8]) -> io::Result<HttpResponse> {
    exchange_on(UnixStream::connect(socket)?, first, header, body)
}

fn exchange_on(
    mut stream: UnixStream,
    first: &str,
    header: &str,
    body: &[u8],
) -> io::Result<HttpResponse> {
    stream.set_read_timeout(Some(PATIENCE))?;
    send_request(&mut stream, first, header, body)?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    let end = response.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.ok_or_else(|| io::Error::other("the response is truncated"))?;
    let head = String::from_utf8_lossy(&response[..end]).into_owned();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| io::Error::other("the response has no status"))?;
    Ok(HttpResponse {
        status,
        head,
        body: response[end + 4..].to_vec(),
    })
}
