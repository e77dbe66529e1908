//! An HTTP server of the test's own: every response is bytes that the test chooses, right or wrong.

use std::{
    io::{BufRead as _, BufReader, Read, Write},
    net::TcpListener,
    process::Command,
    sync::{Arc, Mutex},
    thread,
};

use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};

use crate::authority::Authority;

#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// The second part of the request line.
    pub target: String,
    /// The first byte of a requested range.
    pub range: Option<usize>,
    pub authorization: Option<String>,
    /// Empty without the header.
    pub content_type: String,
    pub body: Vec<u8>,
}

pub struct Server {
    /// The address without a path.
    pub base: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Serves one request per connection; the function gets the number of earlier requests, and the request.
    pub fn start(respond: impl Fn(usize, &Request) -> Vec<u8> + Send + 'static) -> Self {
        Self::start_with(None, respond)
    }

    /// Serves encrypted connections when there is a configuration for them.
    pub fn start_with(
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
                let mut response = respond(nth, &request);
                if request.method == "HEAD" {
                    let end = response.windows(4).position(|four| four == b"\r\n\r\n");
                    response.truncate(end.map_or(response.len(), |end| end + 4));
                }
                // A client may close the connection before the end.
                let _ = stream.write_all(&response);
            }
        });
        Self {
            base: format!("{scheme}://{address}"),
            requests,
        }
    }

    /// Returns name and port of the server.
    pub fn host(&self) -> &str {
        let (_, host) = self.base.split_once("://").expect("it has a scheme");
        host
    }

    /// Returns the first byte that each request asked for.
    pub fn offsets(&self) -> Vec<usize> {
        let requests = self.requests();
        requests.iter().map(|one| one.range.unwrap_or(0)).collect()
    }

    /// Returns all requests in order.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("no thread panicked").clone()
    }

    pub fn targets(&self) -> Vec<String> {
        self.requests().into_iter().map(|one| one.target).collect()
    }
}

/// Returns the configuration of a server with this certificate and its key in PKCS #8; it wants a certificate of the authority `clients`
/// where there is one.
pub fn tls((certificate, key): (Vec<u8>, Vec<u8>), clients: Option<&Authority>) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the usual versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let root = CertificateDer::from(authority.certificate());
            roots.add(root).expect("a sound certificate");
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().expect("there is a root"))
        }
    };
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key));
    let config = builder.with_single_cert(vec![certificate.into()], key);
    config.expect("key and certificate fit")
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
    let header = |name: &str| {
        head.iter().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then(|| value.to_owned())
        })
    };
    let length = header("content-length").and_then(|text| text.parse().ok());
    let mut body = vec![0; length.unwrap_or_default()];
    stream.read_exact(&mut body).expect("a complete request");
    Some(Request {
        body,
        method: head[0].split(' ').next().unwrap_or_default().to_owned(),
        target: target.to_owned(),
        range,
        authorization: header("authorization"),
        content_type: header("content-type").unwrap_or_default(),
    })
}

/// Returns a response; the status may be followed by further headers.
pub fn response(status: &str, body: &[u8]) -> Vec<u8> {
    let length = if status.starts_with("204") {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let head = format!("HTTP/1.1 {status}\r\n{length}Connection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

pub fn complete(bytes: &[u8]) -> Vec<u8> {
    response("200 OK", bytes)
}

/// Returns a response that announces all bytes and has only the first `len`.
pub fn part(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut response = complete(bytes);
    response.truncate(response.len() - bytes.len() + len);
    response
}

/// Returns the response of a server that supports ranges.
pub fn rest(bytes: &[u8], from: Option<usize>) -> Vec<u8> {
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
pub fn without_proxies(mut command: Command) -> Command {
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command
}
