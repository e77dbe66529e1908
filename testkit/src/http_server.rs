//! An HTTP server of the test's own: every response is bytes that the test chooses, right or wrong.

use std::{
    io::{BufRead as _, BufReader, Read, Write},
    net::TcpListener,
    process::Command,
    sync::{Arc, Mutex},
    thread,
};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// The second part of the request line.
    pub(crate) target: String,
    /// The first byte of a requested range.
    pub(crate) range: Option<usize>,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Server {
    pub(crate) base: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Serves one request per connection; the function gets the number of earlier requests, and the request.
    pub(crate) fn start(respond: impl Fn(usize, &Request) -> Vec<u8> + Send + 'static) -> Self {
        Self::start_with(None, respond)
    }

    /// Serves encrypted connections when there is a configuration for them.
    pub(crate) fn start_with(
        tls: Option<ServerConfig>,
        respond: impl Fn(usize, &Request) -> Vec<u8> + Send + 'static,
    ) -> Self {
        let tls = tls.map(Arc::new);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let listener = TcpListener::bind("127.0.0.1:0").expect("sockets of the test work");
        let address = listener.local_addr().expect("sockets of the test work");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("sockets of the test work");
                let mut stream: Box<dyn Stream> = match &tls {
                    None => Box::new(stream),
                    Some(tls) => {
                        let connection = ServerConnection::new(Arc::clone(tls));
                        let connection = connection.expect("a sound configuration");
                        Box::new(StreamOwned::new(connection, stream))
                    }
                };
                // A client that does not trust the certificate sends no request.
                let Some(request) = request(&mut *stream) else {
                    continue;
                };
                let nth = {
                    let mut seen = seen.lock().expect("no thread panicked");
                    seen.push(request.clone());
                    seen.len() - 1
                };
                // A client may close the connection before the end.
                let _ = stream.write_all(&respond(nth, &request));
            }
        });
        Self {
            base: format!("{scheme}://{address}"),
            requests,
        }
    }

    /// Returns the first byte that each request asked for.
    pub(crate) fn offsets(&self) -> Vec<usize> {
        let requests = self.requests();
        requests.iter().map(|one| one.range.unwrap_or(0)).collect()
    }

    /// Returns all requests in order.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("no thread panicked").clone()
    }

    pub(crate) fn targets(&self) -> Vec<String> {
        self.requests().into_iter().map(|one| one.target).collect()
    }
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

fn request(stream: &mut dyn Stream) -> Option<Request> {
    let mut stream = BufReader::new(stream);
    let lines = stream.by_ref().lines();
    let head: Vec<String> = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .collect();
    let target = head
        .first()?
        .split(' ')
        .nth(1)
        .expect("a request has a target");
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
    let length = head.iter().find_map(|line| {
        let line = line.to_lowercase();
        line.strip_prefix("content-length: ")?.parse().ok()
    });
    let mut body = vec![0; length.unwrap_or_default()];
    stream.read_exact(&mut body).expect("a complete request");
    Some(Request {
        body,
        method: head[0].split(' ').next().unwrap_or_default().to_owned(),
        target: target.to_owned(),
        range,
        authorization,
    })
}

/// Returns a response; the status may be followed by further headers.
pub(crate) fn response(status: &str, body: &[u8]) -> Vec<u8> {
    let length = if status.starts_with("204") {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let head = format!("HTTP/1.1 {status}\r\n{length}Connection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

pub(crate) fn complete(bytes: &[u8]) -> Vec<u8> {
    response("200 OK", bytes)
}

/// Returns a response that announces all bytes and has only the first `len`.
pub(crate) fn part(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut response = complete(bytes);
    response.truncate(response.len() - bytes.len() + len);
    response
}

/// Returns the response of a server that supports ranges.
pub(crate) fn rest(bytes: &[u8], from: Option<usize>) -> Vec<u8> {
    match (from, from.and_then(|from| bytes.get(from..))) {
        (None, _) => complete(bytes),
        (Some(from), Some(rest)) if !rest.is_empty() => {
            let (last, len) = (bytes.len() - 1, bytes.len());
            let range = format!("206 Partial Content\r\nContent-Range: bytes {from}-{last}/{len}");
            response(&range, rest)
        }
        _ => response("416 Range Not Satisfiable", b""),
    }
}

/// Removes the proxies of the environment from a command.
pub(crate) fn without_proxies(mut command: Command) -> Command {
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command
}
