//! Just enough HTTP/1.1 to read one response: its status, and a bounded body by `content-length`, in chunks or until the end.

use std::io::{self, Read};
use std::time::Duration;

/// The most bytes of the status line and all headers together.
const MAX_HEAD: usize = 64 << 10;
/// The most bytes of one line.
const MAX_LINE: usize = 16 << 10;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    /// Whether the daemon reports that it did not begin the request.
    pub(crate) not_begun: bool,
    pub(crate) body: Vec<u8>,
}

/// Returns a complete POST request that closes the connection after its response. The daemon may hold it for `hold` until it can
/// begin.
pub(crate) fn request(path: &str, hold: Duration, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: dummy\r\nConnection: close\r\nContent-Type: application/json\r\n{}: {}\r\nContent-Length: {}\r\n\r\n",
        api::HEADER_HOLD,
        hold.as_millis(),
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Reads one response with a body of at most `limit` bytes.
pub(crate) fn read_response(source: impl Read, limit: usize) -> io::Result<HttpResponse> {
    let mut reader = Reader {
        source,
        buffer: Vec::new(),
        start: 0,
    };
    loop {
        let Head {
            status,
            not_begun,
            framing,
        } = head(&mut reader)?;
        // After an interim response (1xx) follows another one.
        if !(100..200).contains(&status) {
            let body = match framing {
                _ if matches!(status, 204 | 304) => Vec::new(),
                Framing::Length(length) if length > limit => return Err(too_long(limit)),
                Framing::Length(length) => reader.exactly(length)?,
                Framing::Chunked => chunks(&mut reader, limit)?,
                Framing::UntilEnd => reader.until_end(limit)?,
            };
            return Ok(HttpResponse {
                status,
                not_begun: not_begun && status == api::STATUS_NOT_BEGUN,
                body,
            });
        }
    }
}

struct Head {
    status: u16,
    not_begun: bool,
    framing: Framing,
}

enum Framing {
    Length(usize),
    Chunked,
    UntilEnd,
}

fn head(reader: &mut Reader<impl Read>) -> io::Result<Head> {
    let line = reader.line()?;
    let mut parts = line.split(' ');
    let protocol = parts.next().unwrap_or_default();
    let status = parts
        .next()
        .and_then(|part| part.parse().ok())
        .filter(|status| (100..600).contains(status));
    let status = status
        .filter(|_| protocol.starts_with("HTTP/1."))
        .ok_or_else(|| unusable("it does not start as HTTP/1.1 does"))?;
    let (mut framing, mut not_begun) = (Framing::UntilEnd, false);
    let mut length = line.len();
    loop {
        let line = reader.line()?;
        if line.is_empty() {
            return Ok(Head {
                status,
                not_begun,
                framing,
            });
        }
        length += line.len();
        if length > MAX_HEAD {
            return Err(unusable("its headers are too long"));
        }
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| unusable("a header has no colon"))?;
        if name.eq_ignore_ascii_case(api::HEADER_NOT_BEGUN) {
            not_begun = true;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.trim().eq_ignore_ascii_case("chunked") {
                return Err(unusable("its transfer encoding is not known"));
            }
            framing = Framing::Chunked;
        } else if name.eq_ignore_ascii_case("content-length")
            && !matches!(framing, Framing::Chunked)
        {
            framing = Framing::Length(
                value
                    .trim()
                    .parse()
                    .map_err(|_| unusable("its content length is not a number"))?,
            );
        }
    }
}

fn chunks(reader: &mut Reader<impl Read>, limit: usize) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = reader.line()?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16)
            .map_err(|_| unusable("the size of a chunk is not a number"))?;
        if size == 0 {
            // Trailers are not needed, and the connection ends anyway.
            return Ok(body);
        }
        if size > limit.saturating_sub(body.len()) {
            return Err(too_long(limit));
        }
        body.append(&mut reader.exactly(size)?);
        if !reader.line()?.is_empty() {
            return Err(unusable("a chunk does not end where it should"));
        }
    }
}

struct Reader<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
}

impl<R: Read> Reader<R> {
    /// Reads more bytes; the end of the stream is an error.
    fn fill_or_fail(&mut self) -> io::Result<()> {
        if self.fill()? {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Reads more bytes; `false` at the end of the stream.
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let mut piece = [0; 16 << 10];
        loop {
            match self.source.read(&mut piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(count) => {
                    self.buffer.extend_from_slice(&piece[..count]);
                    return Ok(count > 0);
                }
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            let rest = &self.buffer[self.start..];
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
                let line =
                    String::from_utf8(line.to_vec()).map_err(|_| unusable("a line is not text"))?;
                self.start += end + 1;
                return Ok(line);
            }
            if rest.len() > MAX_LINE {
                return Err(unusable("a line is too long"));
            }
            self.fill_or_fail()?;
        }
    }

    fn exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            let rest = &self.buffer[self.start..];
            let taken = rest.len().min(count - bytes.len());
            bytes.extend_from_slice(&rest[..taken]);
            self.start += taken;
            if bytes.len() == count {
                return Ok(bytes);
            }
            self.fill_or_fail()?;
        }
    }

    fn until_end(&mut self, limit: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            bytes.extend_from_slice(&self.buffer[self.start..]);
            self.start = self.buffer.len();
            if bytes.len() > limit {
                return Err(too_long(limit));
            }
            if !self.fill()? {
                return Ok(bytes);
            }
        }
    }
}

fn unusable(reason: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("unusable answer: {reason}"),
    )
}

fn too_long(limit: usize) -> io::Error {
    unusable(&format!("it is longer than {limit} bytes"))
}

/// Fuzz target of the daemon's answer; `docs/contributing/testing.md` says how it runs.
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz {
    use super::{Read, io, read_response};

    const LIMIT: usize = 1 << 12;

    /// An answer is the same in whatever pieces it arrives, and bounded.
    pub(crate) fn responses(input: &[u8]) -> bool {
        let whole = read_response(input, LIMIT).map_err(|error| error.kind());
        let pieces = read_response(Pieces(input), LIMIT).map_err(|error| error.kind());
        assert_eq!(whole, pieces);
        let response = whole.ok();
        if let Some(response) = &response {
            assert!(response.body.len() <= LIMIT);
            assert!((200..600).contains(&response.status));
        }
        response.is_some()
    }

    /// Returns three bytes at a time.
    struct Pieces<'a>(&'a [u8]);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let (piece, rest) = self.0.split_at(self.0.len().min(3).min(buffer.len()));
            buffer[..piece.len()].copy_from_slice(piece);
            self.0 = rest;
            Ok(piece.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one byte at a time, so that every boundary falls between two reads.
    struct OneByteReads<'a>(&'a [u8]);

    impl Read for OneByteReads<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(1).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn check(text: &str, status: u16, body: &str) {
        let expected = HttpResponse {
            status,
            not_begun: false,
            body: body.as_bytes().to_vec(),
        };
        assert_eq!(
            read_response(text.as_bytes(), 64).unwrap(),
            expected,
            "{text:?}"
        );
        assert_eq!(
            read_response(OneByteReads(text.as_bytes()), 64).unwrap(),
            expected,
            "{text:?}"
        );
    }

    fn error(text: &str) -> String {
        read_response(text.as_bytes(), 64).unwrap_err().to_string()
    }

    #[test]
    fn body_is_read_in_every_framing() {
        check(
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            200,
            "hello",
        );
        check(
            "HTTP/1.1 200 OK\r\ncontent-length:5\r\n\r\nhello and more",
            200,
            "hello",
        );
        check(
            "HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n",
            400,
            "hello",
        );
        check("HTTP/1.0 500 x\r\n\r\nuntil the end", 500, "until the end");
        check("HTTP/1.1 204\r\n\r\n", 204, "");
        check(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            200,
            "",
        );
    }

    #[test]
    fn body_lines_and_headers_are_bounded() {
        assert!(
            error("HTTP/1.1 200 OK\r\nContent-Length: 65\r\n\r\n").contains("longer than 64 bytes")
        );
        assert!(
            error("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n41\r\n")
                .contains("longer than 64 bytes")
        );
        assert!(
            error("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n")
                .contains("longer than 64 bytes")
        );
        assert!(
            error(&format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(65)))
                .contains("longer than 64 bytes")
        );
        assert!(error(&"x".repeat(MAX_LINE * 3)).contains("too long"));
        assert!(
            error(&format!(
                "HTTP/1.1 200 OK\r\n{}",
                format!("a: {}\r\n", "x".repeat(8000)).repeat(10)
            ))
            .contains("headers are too long")
        );
    }

    #[test]
    fn invalid_responses_are_refused() {
        assert!(error("SSH-2.0-x\r\n\r\n").contains("does not start as HTTP/1.1"));
        assert!(error("HTTP/1.1 abc\r\n\r\n").contains("does not start as HTTP/1.1"));
        assert!(error("HTTP/1.1 200 OK\r\nnonsense\r\n\r\n").contains("no colon"));
        assert!(error("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n").contains("not a number"));
        assert!(error("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n").contains("not known"));
        for cut in [
            "",
            "HTTP/1.1 200",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel",
        ] {
            assert_eq!(
                read_response(cut.as_bytes(), 64).unwrap_err().kind(),
                io::ErrorKind::UnexpectedEof,
                "{cut:?}"
            );
        }
    }

    #[test]
    fn request_has_headers_and_body() {
        let text = request("/cni", Duration::from_secs(2), b"{}");
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("POST /cni HTTP/1.1\r\nHost: dummy\r\nConnection: close\r\n"));
        assert!(text.ends_with("multus-hold-ms: 2000\r\nContent-Length: 2\r\n\r\n{}"));
    }

    #[test]
    fn not_begun_needs_status_and_header() {
        let check = |text: &str, expected| {
            let response = read_response(text.as_bytes(), 64).unwrap();
            assert_eq!(response.not_begun, expected, "{text:?}");
        };
        let header = "Multus-Not-Begun: 1\r\nContent-Length: 0\r\n\r\n";
        check(&format!("HTTP/1.1 503 x\r\n{header}"), true);
        check(&format!("HTTP/1.1 400 x\r\n{header}"), false);
        check("HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n", false);
    }

    #[test]
    fn fuzz_responses() {
        testkit::fuzz::corpus::run("shim_responses", super::fuzz::responses);
    }
}
