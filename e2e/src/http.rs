//! One HTTP exchange on a unix socket; neither the daemon's nor kubectl's needs more than version 1.0.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// Longer than anything that is asked here may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// What came back.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    /// Lines after the status line, lower case.
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

    /// The same, unless its status tells of a failure.
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

/// Sends a request and reads its answer to the end; a connection that is closed without one is an error.
pub(crate) fn send(
    socket: &Path,
    method: &str,
    path: &str,
    kind: &str,
    body: &[u8],
) -> anyhow::Result<HttpResponse> {
    let place = || format!("{method} {path} on {}", socket.display());
    let mut stream = UnixStream::connect(socket).with_context(place)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all(&[head.as_bytes(), body].concat())
        .with_context(place)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).with_context(place)?;
    read(&bytes).with_context(place)
}

fn read(bytes: &[u8]) -> anyhow::Result<HttpResponse> {
    let end = bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .context("the connection was closed without an answer")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let (first, headers) = head.split_once("\r\n").unwrap_or((&head, ""));
    let status = first
        .split_whitespace()
        .nth(1)
        .context("no status in the answer")?;
    Ok(HttpResponse {
        status: status.parse().context("no status in the answer")?,
        headers: headers.to_lowercase(),
        body: bytes[end + 4..].to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let answer =
            read(b"HTTP/1.0 400 Bad Request\r\nContent-Type: A/B\r\n\r\nno\r\n\r\n").unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (400, "no\r\n\r\n"));
        assert_eq!(answer.headers, "content-type: a/b");
        assert!(answer.well().is_err());
        assert!(read(b"").is_err());
    }
}
