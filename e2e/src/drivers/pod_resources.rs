//! As much of a kubelet as tells which devices pods have: whatever a file holds when it is asked.
//!
//! It speaks HTTP/2 frame by frame and does not read what it is asked: clients in Go name a socket's path as the authority, which
//! libraries of ours refuse, and the one question is known.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
};

use anyhow::ensure;

/// The argument that makes this program the kubelet.
pub(crate) const NAME: &str = "pod-resources";
/// Where it listens.
pub(crate) const SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";
/// The message that it answers with; without it, all that it gives are errors.
pub(crate) const LISTED: &str = "/run/pod-resources.list";

/// What a client says first.
const PREFACE: usize = 24;
/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
/// Their flags.
const END_STREAM: u8 = 1;
const ACKNOWLEDGE: u8 = 1;
const END_HEADERS: u8 = 4;
/// Frames are not longer unless their reader says so.
const LONGEST: usize = 16 << 10;

/// Serves for ever.
pub(crate) fn run() -> anyhow::Result<()> {
    if let Some(folder) = Path::new(SOCKET).parent() {
        fs::create_dir_all(folder)?;
    }
    let _ = fs::remove_file(SOCKET);
    for stream in UnixListener::bind(SOCKET)?.incoming() {
        let stream = stream?;
        // A client may go whenever it likes.
        std::thread::spawn(move || converse(stream));
    }
    Ok(())
}

fn converse(mut stream: UnixStream) -> anyhow::Result<()> {
    stream.read_exact(&mut [0; PREFACE])?;
    send(&mut stream, SETTINGS, 0, 0, &[])?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, number @ ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        ensure!(length <= LONGEST, "a frame of {length} bytes");
        let mut content = vec![0; length];
        stream.read_exact(&mut content)?;
        let number = u32::from_be_bytes(number);
        match kind {
            SETTINGS | PING if flags & ACKNOWLEDGE == 0 => {
                let echo: &[u8] = if kind == PING { &content } else { &[] };
                send(&mut stream, kind, ACKNOWLEDGE, 0, echo)?;
            }
            DATA | HEADERS if flags & END_STREAM != 0 => answer(&mut stream, number)?,
            _ => {}
        }
    }
}

fn answer(stream: &mut UnixStream, number: u32) -> anyhow::Result<()> {
    // Status 200 stands in the table of headers, as does the name `content-type`.
    let mut headers = vec![0x88, 0x0f, 0x10];
    text(&mut headers, "application/grpc");
    send(stream, HEADERS, END_HEADERS, number, &headers)?;
    let listed = fs::read(LISTED).ok();
    if let Some(message) = &listed {
        let mut framed = vec![0];
        framed.extend(u32::try_from(message.len())?.to_be_bytes());
        framed.extend(message);
        ensure!(framed.len() <= LONGEST, "more than the tests need");
        send(stream, DATA, 0, number, &framed)?;
    }
    let mut trailers = vec![0];
    text(&mut trailers, "grpc-status");
    text(&mut trailers, if listed.is_some() { "0" } else { "12" });
    let last = END_HEADERS | END_STREAM;
    send(stream, HEADERS, last, number, &trailers)
}

/// A text of headers; all of ours are short.
fn text(headers: &mut Vec<u8>, text: &str) {
    headers.extend(u8::try_from(text.len()));
    headers.extend(text.bytes());
}

fn send(
    stream: &mut UnixStream,
    kind: u8,
    flags: u8,
    number: u32,
    content: &[u8],
) -> anyhow::Result<()> {
    let [_, length @ ..] = u32::try_from(content.len())?.to_be_bytes();
    let mut frame = length.to_vec();
    frame.extend([kind, flags]);
    frame.extend(number.to_be_bytes());
    frame.extend(content);
    Ok(stream.write_all(&frame)?)
}
