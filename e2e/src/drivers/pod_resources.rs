//! The pod resources API of a kubelet, which lists the devices of pods: each answer is the present content of a file.
//!
//! It handles HTTP/2 frame by frame and does not parse the request: clients in Go send the socket's path as the authority, which the
//! Rust libraries refuse, and there is only one request.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
};

use anyhow::ensure;

/// The argument that makes this program the pod resources API.
pub(crate) const NAME: &str = "pod-resources";
/// The socket of the API.
pub(crate) const SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";
/// The file with the message of the answers; without it every answer is an error.
pub(crate) const LISTED: &str = "/run/pod-resources.list";

/// Length of the client's connection preface.
const PREFACE: usize = 24;
/// Frame types (RFC 9113 section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
/// Flags of frames (RFC 9113 section 6).
const END_STREAM: u8 = 1;
const ACKNOWLEDGE: u8 = 1;
const END_HEADERS: u8 = 4;
/// The longest frame unless the receiver allows longer ones.
const LONGEST: usize = 16 << 10;

/// Serves until the process ends.
pub(crate) fn run() -> anyhow::Result<()> {
    if let Some(directory) = Path::new(SOCKET).parent() {
        fs::create_dir_all(directory)?;
    }
    let _ = fs::remove_file(SOCKET);
    for stream in UnixListener::bind(SOCKET)?.incoming() {
        let stream = stream?;
        // A client may close the connection at any time.
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
    // HPACK's static table has `:status: 200` (index 8) and the name `content-type` (index 31).
    let mut headers = vec![0x88, 0x0f, 0x10];
    text(&mut headers, "application/grpc");
    send(stream, HEADERS, END_HEADERS, number, &headers)?;
    let listed = fs::read(LISTED).ok();
    if let Some(message) = &listed {
        let mut framed = vec![0];
        framed.extend(u32::try_from(message.len())?.to_be_bytes());
        framed.extend(message);
        ensure!(
            framed.len() <= LONGEST,
            "the message is longer than a frame"
        );
        send(stream, DATA, 0, number, &framed)?;
    }
    let mut trailers = vec![0];
    text(&mut trailers, "grpc-status");
    text(&mut trailers, if listed.is_some() { "0" } else { "12" });
    let last = END_HEADERS | END_STREAM;
    send(stream, HEADERS, last, number, &trailers)
}

/// Appends a string literal of HPACK; all strings here are shorter than 127 bytes.
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
