//! One HTTP request on a unix socket. Version 1.0 is enough for the daemon and for `kubectl proxy`.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// Longer than any request of the tests may take.
const READ_TIMEOUT: Duration = Duration::from_secs(90);

#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    /// The header lines in lower case.
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
}

impl HttpResponse {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("no JSON: {} {}", self.status, self.text()))
    }

    /// Fails unless the status is 2xx.
    pub(crate) fn well(self) -> anyhow::Result<Self> {
        ensure!(
            (200..300).contains(&self.status),
            "answered {} {}",
            self.status,
            self.text()
        );
        Ok(self)
    }
}

/// Sends a request and reads the response to its end; a connection that closes without a response is an error.
pub(crate) fn send(
    socket: &Path,
    method: &str,
    path: &str,
    kind: &str,
    body: &[u8],
) -> anyhow::Result<HttpResponse> {
    let request = || format!("{method} {path} on {}", socket.display());
    let mut stream = UnixStream::connect(socket).with_context(request)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all(&[head.as_bytes(), body].concat())
        .with_context(request)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).with_context(request)?;
    read(&bytes).with_context(request)
}

fn read(bytes: &[u8]) -> anyhow::Result<HttpResponse> {
    let end = bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .context("the connection was closed without a response")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let (first, headers) = head.split_once("\r\n").unwrap_or((&head, ""));
    let status = first
        .split_whitespace()
        .nth(1)
        .context("the response has no status")?;
    Ok(HttpResponse {
        status: status.parse().context("the response has no status")?,
        headers: headers.to_lowercase(),
        body: bytes[end + 4..].to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_parsed() {
        let answer =
            read(b"HTTP/1.0 400 Bad Request\r\nContent-Type: A/B\r\n\r\nno\r\n\r\n").unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (400, "no\r\n\r\n"));
        assert_eq!(answer.headers, "content-type: a/b");
        assert!(answer.well().is_err());
        assert!(read(b"").is_err());
    }
}
