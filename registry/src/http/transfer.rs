//! Continues a file with the body of a response, after a check that the body begins where the file ends.

use reqwest::{
    RequestBuilder, StatusCode,
    header::{CONTENT_RANGE, RANGE},
};

use super::{Failure, Http, part::Part};

/// The bytes that have just arrived.
#[derive(Debug, Clone, Copy)]
pub struct Arrived {
    pub bytes: u64,
    /// Bytes of the file so far.
    pub done: u64,
    /// Bytes of the complete file, where the server says it.
    pub total: Option<u64>,
}

/// How a body continues the bytes that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resume {
    Append,
    /// The body is the complete file, although a range was requested.
    StartOver,
    /// The body is another part of the file than the requested one.
    Refuse,
}

/// Requests the rest of a file.
pub(super) async fn receive(
    http: &Http,
    request: RequestBuilder,
    part: &mut Part,
    progress: &dyn Fn(Arrived),
) -> Result<(), Failure> {
    let request = match part.len {
        0 => request,
        start => request.header(RANGE, format!("bytes={start}-")),
    };
    let mut response = http.send(request).await?;
    let status = response.status();
    if status == StatusCode::RANGE_NOT_SATISFIABLE && part.len > 0 {
        part.restart()?;
        return Err(Failure::Protocol("the file has another length"));
    }
    if !status.is_success() {
        return Err(http.refusal(response).await);
    }
    let range = response.headers().get(CONTENT_RANGE);
    let first = range.and_then(|range| range_start(range.to_str().ok()?));
    match resume(status.as_u16(), first, part.len) {
        Resume::Append => {}
        Resume::StartOver => part.restart()?,
        Resume::Refuse => {
            part.restart()?;
            return Err(Failure::Protocol(
                "the server sends something else than the file",
            ));
        }
    }
    let length = response.content_length();
    part.ensure_room(length.unwrap_or_default())?;
    let total = length.map(|length| part.len + length);
    while let Some(bytes) = http.chunk(&mut response).await? {
        part.append(&bytes)?;
        progress(Arrived {
            bytes: bytes.len() as u64,
            done: part.len,
            total,
        });
    }
    Ok(())
}

/// Decides about the response to a request for the bytes from `start` on; `first` is the offset that it names.
fn resume(status: u16, first: Option<u64>, start: u64) -> Resume {
    match status {
        206 if first == Some(start) => Resume::Append,
        200 => Resume::StartOver,
        _ => Resume::Refuse,
    }
}

/// Returns the first offset of `bytes 5-22/23`.
fn range_start(range: &str) -> Option<u64> {
    let range = range.strip_prefix("bytes")?.trim_start();
    range.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_appended_only_at_its_offset() {
        for (status, range, start, expected) in [
            (206, "bytes 5-22/23", 5, Resume::Append),
            (206, "bytes 5-22/23", 4, Resume::Refuse),
            (206, "bytes 5-22/23", 0, Resume::Refuse),
            (206, "", 5, Resume::Refuse),
            (206, "bytes */23", 5, Resume::Refuse),
            (200, "", 5, Resume::StartOver),
            (204, "", 0, Resume::Refuse),
        ] {
            let found = resume(status, range_start(range), start);
            assert_eq!(found, expected, "{status} {range} {start}");
        }
    }
}
