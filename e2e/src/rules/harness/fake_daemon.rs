//! A server in the daemon's place, which answers as a case wants and records requests, so that cases see the shim alone.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use anyhow::Context as _;
use serde_json::Value;

use super::Harness;

/// The directory of its socket on the node.
pub(crate) const DIR: &str = "/run/fake";

/// Gives status and body for a path and the number of requests before.
type Respond = dyn Fn(&str, usize) -> (u16, &'static str) + Send;

/// Path and body of a request.
type Request = (String, Vec<u8>);

/// The server ends on drop.
pub(crate) struct FakeDaemon {
    socket: std::path::PathBuf,
    requests: Arc<Mutex<Vec<Request>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Harness {
    /// Starts a server that is ready and gives this answer to every verb.
    pub(crate) fn fake_daemon_answering(
        &self,
        status: u16,
        body: &'static str,
    ) -> anyhow::Result<FakeDaemon> {
        self.fake_daemon(move |path, _| match path {
            "/cni" => (status, body),
            _ => (200, ""),
        })
    }

    /// Starts a server that gives status and body for a path and the number of requests before.
    pub(crate) fn fake_daemon(
        &self,
        respond: impl Fn(&str, usize) -> (u16, &'static str) + Send + 'static,
    ) -> anyhow::Result<FakeDaemon> {
        let dir = self.node().path(DIR);
        fs::create_dir_all(&dir)?;
        let socket = dir.join("multus.sock");
        let _ = fs::remove_file(&socket);
        let listener =
            UnixListener::bind(&socket).context("cannot listen in the place of the daemon")?;
        let (requests, ended) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (requests, ended) = (Arc::clone(&requests), Arc::clone(&ended));
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    if ended.load(Ordering::SeqCst) {
                        return;
                    }
                    // A client that closes its connection early is part of some cases.
                    let _ = stream
                        .map_err(anyhow::Error::from)
                        .and_then(|stream| exchange(stream, &respond, &requests));
                }
            })
        };
        Ok(FakeDaemon {
            socket,
            requests,
            ended,
            thread: Some(thread),
        })
    }
}

impl FakeDaemon {
    /// Returns the requests to `/cni`.
    pub(crate) fn requests(&self) -> anyhow::Result<Vec<Value>> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let posted = requests.iter().filter(|(path, _)| path == "/cni");
        posted
            .map(|(_, body)| Ok(serde_json::from_slice(body)?))
            .collect()
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(&self.socket);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.socket);
    }
}

fn exchange(
    mut stream: UnixStream,
    respond: &Respond,
    requests: &Mutex<Vec<Request>>,
) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let (head, start) = loop {
        let count = stream.read(&mut piece)?;
        anyhow::ensure!(count > 0, "the connection closed within the request");
        bytes.extend_from_slice(&piece[..count]);
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break (String::from_utf8_lossy(&bytes[..at]).to_lowercase(), at + 4);
        }
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .map_or(Ok(0), |text| text.trim().parse::<usize>())?;
    while bytes.len() < start + length {
        let count = stream.read(&mut piece)?;
        anyhow::ensure!(count > 0, "the connection closed within the request");
        bytes.extend_from_slice(&piece[..count]);
    }
    let path = head.split_whitespace().nth(1).unwrap_or_default();
    // Some clients send absolute URLs.
    let path = path
        .strip_prefix("http://")
        .map_or(path, |rest| rest.find('/').map_or("/", |at| &rest[at..]))
        .to_owned();
    let (status, body) = {
        let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = respond(&path, requests.len());
        requests.push((path, bytes[start..].to_vec()));
        answer
    };
    let answer = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    Ok(stream.write_all(answer.as_bytes())?)
}
