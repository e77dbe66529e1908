//! A server of the test's own: every answer is bytes that the test chooses, right or wrong.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::{Arc, Mutex},
    thread,
};

/// What somebody asked for.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The first word.
    pub(crate) method: String,
    /// As it stands in the first line.
    pub(crate) target: String,
    /// The first byte, where a range is asked for.
    pub(crate) range: Option<usize>,
    /// Who asks.
    pub(crate) authorization: Option<String>,
}

pub(crate) struct Server {
    pub(crate) base: String,
    asked: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Answers one request a connection; the function is told how many came before.
    pub(crate) fn start(answer: impl Fn(usize, &Request) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("sockets of the test work");
        let address = listener.local_addr().expect("sockets of the test work");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("sockets of the test work");
                let request = request(&stream);
                let nth = {
                    let mut seen = seen.lock().expect("nobody panicked");
                    seen.push(request.clone());
                    seen.len() - 1
                };
                // Who has seen enough hangs up.
                let _ = stream.write_all(&answer(nth, &request));
            }
        });
        Self {
            base: format!("http://{address}"),
            asked,
        }
    }

    /// From which byte each request wanted the file.
    pub(crate) fn offsets(&self) -> Vec<usize> {
        let asked = self.asked.lock().expect("nobody panicked");
        asked.iter().map(|one| one.range.unwrap_or(0)).collect()
    }

    /// What was asked, in order.
    pub(crate) fn asked(&self) -> Vec<Request> {
        self.asked.lock().expect("nobody panicked").clone()
    }

    pub(crate) fn targets(&self) -> Vec<String> {
        let asked = self.asked.lock().expect("nobody panicked");
        asked.iter().map(|one| one.target.clone()).collect()
    }
}

fn request(stream: &TcpStream) -> Request {
    let lines = BufReader::new(stream).lines();
    let head: Vec<String> = lines
        .map(|line| line.expect("a request"))
        .take_while(|line| !line.is_empty())
        .collect();
    let target = head[0].split(' ').nth(1).expect("a request has a target");
    let range = head.iter().find_map(|line| {
        let line = line.to_lowercase();
        let from = line.strip_prefix("range: bytes=")?.strip_suffix('-')?;
        Some(from.parse().expect("an offset"))
    });
    let authorization = head.iter().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("authorization")
            .then(|| value.to_owned())
    });
    Request {
        method: head[0].split(' ').next().unwrap_or_default().to_owned(),
        target: target.to_owned(),
        range,
        authorization,
    }
}

/// An answer of this status, with further headers where there are any.
pub(crate) fn answer(status: &str, body: &[u8]) -> Vec<u8> {
    let length = if status.starts_with("204") {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let head = format!("HTTP/1.1 {status}\r\n{length}Connection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

pub(crate) fn whole(bytes: &[u8]) -> Vec<u8> {
    answer("200 OK", bytes)
}

/// The promise of all of it, and less.
pub(crate) fn part(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut whole = whole(bytes);
    whole.truncate(whole.len() - bytes.len() + len);
    whole
}

/// What an honest server says.
pub(crate) fn rest(bytes: &[u8], from: Option<usize>) -> Vec<u8> {
    match (from, from.and_then(|from| bytes.get(from..))) {
        (None, _) => whole(bytes),
        (Some(from), Some(rest)) if !rest.is_empty() => {
            let (last, len) = (bytes.len() - 1, bytes.len());
            let range = format!("206 Partial Content\r\nContent-Range: bytes {from}-{last}/{len}");
            answer(&range, rest)
        }
        _ => answer("416 Range Not Satisfiable", b""),
    }
}

/// A command that nobody's environment sends through a proxy.
pub(crate) fn without_proxies(mut command: Command) -> Command {
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command
}
