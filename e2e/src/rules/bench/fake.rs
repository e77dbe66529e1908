//! A daemon that is none: it answers as told and keeps what it was asked, so that a shim can be looked at by itself.

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

use super::Bench;

/// Where its socket is on the node.
pub(crate) const DIR: &str = "/run/fake";

/// Status and body for a path, asked after so many other requests.
type Answers = dyn Fn(&str, usize) -> (u16, &'static str) + Send;

/// Path and body of a request.
type Asked = (String, Vec<u8>);

/// It ends when this goes away.
pub(crate) struct Fake {
    socket: std::path::PathBuf,
    asked: Arc<Mutex<Vec<Asked>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bench {
    /// Starts one that is well, and answers every verb like this.
    pub(crate) fn fake_answering(&self, status: u16, body: &'static str) -> anyhow::Result<Fake> {
        self.fake(move |path, _| match path {
            "/cni" => (status, body),
            _ => (200, ""),
        })
    }

    /// Starts one.
    pub(crate) fn fake(
        &self,
        answers: impl Fn(&str, usize) -> (u16, &'static str) + Send + 'static,
    ) -> anyhow::Result<Fake> {
        let dir = self.scene.node.path(DIR);
        fs::create_dir_all(&dir)?;
        let socket = dir.join("multus.sock");
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).context("cannot listen in place of a daemon")?;
        let (asked, ended) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (asked, ended) = (Arc::clone(&asked), Arc::clone(&ended));
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    if ended.load(Ordering::SeqCst) {
                        return;
                    }
                    // A client that goes away is the case's own business.
                    let _ = stream
                        .map_err(anyhow::Error::from)
                        .and_then(|stream| exchange(stream, &answers, &asked));
                }
            })
        };
        Ok(Fake {
            socket,
            asked,
            ended,
            thread: Some(thread),
        })
    }
}

impl Fake {
    /// What was posted to `/cni`.
    pub(crate) fn requests(&self) -> anyhow::Result<Vec<Value>> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let posted = asked.iter().filter(|(path, _)| path == "/cni");
        posted
            .map(|(_, body)| Ok(serde_json::from_slice(body)?))
            .collect()
    }
}

impl Drop for Fake {
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
    answers: &Answers,
    asked: &Mutex<Vec<Asked>>,
) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let (head, start) = loop {
        let count = stream.read(&mut piece)?;
        anyhow::ensure!(count > 0, "the request has no end");
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
        anyhow::ensure!(count > 0, "the request has no end");
        bytes.extend_from_slice(&piece[..count]);
    }
    let path = head.split_whitespace().nth(1).unwrap_or_default();
    // Some clients write whole addresses.
    let path = path
        .strip_prefix("http://")
        .map_or(path, |rest| rest.find('/').map_or("/", |at| &rest[at..]))
        .to_owned();
    let (status, body) = {
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = answers(&path, asked.len());
        asked.push((path, bytes[start..].to_vec()));
        answer
    };
    let answer = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    Ok(stream.write_all(answer.as_bytes())?)
}
