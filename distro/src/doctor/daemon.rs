//! What the daemons of this node answer: there are two of them during an update, and one that is not ready stops it.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use node::root::Root;

use super::Examination;
use crate::commands::install::below;

const DIR: &str = "/run/multus";
const PATIENCE: Duration = Duration::from_secs(3);
/// More than any answer.
const MOST: u64 = 64 << 10;

pub(super) fn look(root: &Root, found: &mut Examination) {
    let names = root.list(DIR).unwrap_or_default();
    let own = |name: &&String| {
        let id = name.strip_prefix("daemon-");
        id.is_some_and(|id| id.strip_suffix(".sock").is_some())
    };
    for name in names.iter().filter(own) {
        let socket = Path::new(DIR).join(name);
        match ask(&below(root.name(), &socket)) {
            Ok((200, notes)) => notes.lines().for_each(|note| found.note(note)),
            Ok((_, reason)) => found.problem(format!(
                "the daemon at {} is not ready: {}",
                socket.display(),
                reason.trim()
            )),
            // Left by a daemon that was killed; the next one removes it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => found.problem(format!(
                "the daemon at {} does not answer: {error}",
                socket.display()
            )),
        }
    }
}

/// Status and body of the daemon's answer about its readiness.
fn ask(socket: &Path) -> io::Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: dummy\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MOST).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    Ok((status, body.to_owned()))
}
