//! The interface of a program, by the text protocol of its socket (wireguard.com/xplatform, "Configuration Protocol").

use std::{
    fmt::Write as _,
    io::{self, Read as _, Write as _},
    net::SocketAddr,
    os::unix::net::UnixStream,
    time::Duration,
};

use super::device::{Change, Device, DevicePeer, Key};
use crate::{Prefix, Secret};

/// The directory of the sockets.
const DIR: &str = "/var/run/wireguard";
/// The deadline of an answer.
const LIMIT: Duration = Duration::from_secs(5);
/// More than any interface has to say.
const MAX: u64 = 16 << 20;

pub(super) fn read(name: &str) -> io::Result<Option<Device>> {
    match ask(name, "get=1\n\n") {
        Ok(answer) => parse(&answer).map(Some),
        // One without a socket, or with that of a program that has ended.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

pub(super) fn change(name: &str, changes: &[Change]) -> io::Result<()> {
    let answer = ask(name, &request(changes))?;
    let lines = answer.expose().split(|byte| *byte == b'\n');
    check(lines.filter_map(split))
}

fn ask(name: &str, request: &str) -> io::Result<Secret> {
    let mut socket = UnixStream::connect(format!("{DIR}/{name}.sock"))?;
    socket.set_read_timeout(Some(LIMIT))?;
    socket.set_write_timeout(Some(LIMIT))?;
    socket.write_all(request.as_bytes())?;
    // The program answers once more as long as the socket is open.
    socket.shutdown(std::net::Shutdown::Write)?;
    let mut answer = Vec::with_capacity(1 << 16);
    socket.take(MAX).read_to_end(&mut answer)?;
    Ok(Secret::new(answer))
}

fn request(changes: &[Change]) -> String {
    let mut text = String::from("set=1\n");
    for change in changes {
        text.push_str("public_key=");
        for byte in change.key.0 {
            let _ = write!(text, "{byte:02x}");
        }
        text.push_str("\nupdate_only=true\n");
        if change.replaces {
            text.push_str("replace_allowed_ips=true\n");
        }
        for range in &change.ranges {
            let _ = writeln!(text, "allowed_ip={range}");
        }
    }
    text.push('\n');
    text
}

fn parse(answer: &Secret) -> io::Result<Device> {
    let mut device = Device::default();
    let mut errno = Vec::new();
    for (key, value) in answer
        .expose()
        .split(|byte| *byte == b'\n')
        .filter_map(split)
    {
        let text = || std::str::from_utf8(value).unwrap_or_default();
        match (key, device.peers.last_mut()) {
            (b"errno", _) => errno.push((key, value)),
            (b"public_key", _) => {
                let key = hex(value).ok_or_else(|| invalid("a public key"))?;
                device.peers.push(DevicePeer::new(key));
            }
            (b"endpoint", Some(peer)) => peer.endpoint = text().parse::<SocketAddr>().ok(),
            (b"persistent_keepalive_interval", Some(peer)) => {
                peer.keepalive = text().parse().unwrap_or(0);
            }
            (b"last_handshake_time_sec", Some(peer)) => {
                peer.handshake = text().parse().unwrap_or(0);
            }
            (b"allowed_ip", Some(peer)) => {
                let range = text().parse::<Prefix>();
                peer.ranges
                    .push(range.map_err(|_| invalid("an allowed address"))?);
            }
            // private_key and preshared_key among them.
            _ => {}
        }
    }
    check(errno.into_iter()).map(|()| device)
}

fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|byte| *byte == b'=')?;
    Some((&line[..at], &line[at + 1..]))
}

/// Fails unless the answer ends with the number 0.
fn check<'a>(mut lines: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> io::Result<()> {
    let errno = lines.find(|(key, _)| *key == b"errno");
    let number = errno.and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse::<i32>().ok());
    match number {
        Some(0) => Ok(()),
        Some(number) => Err(io::Error::from_raw_os_error(number.abs())),
        None => Err(invalid("the end")),
    }
}

/// Returns an error that repeats nothing of an answer, which has a key.
fn invalid(part: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("its program's answer lacks {part}"),
    )
}

fn hex(text: &[u8]) -> Option<Key> {
    let mut key = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, digits) in key.iter_mut().zip(text.chunks(2)) {
        let digits = std::str::from_utf8(digits).ok()?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(Key(key))
}

/// Fuzz target of the answers of a program: no error repeats a private key.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(input: &[u8]) -> bool {
    match parse(&Secret::new(input)) {
        Ok(device) => {
            assert!(!format!("{device:?}").contains("SECRET"));
            true
        }
        Err(error) => {
            assert!(!error.to_string().contains("SECRET"), "{error}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE: &str = "e84b5a6d2717c1003a13b431570353dbaca9146cf150c5f8575680feba52027a";

    fn answer(rest: &str) -> io::Result<Device> {
        let text = format!("private_key={PRIVATE}\nlisten_port=12912\n{rest}");
        parse(&Secret::new(text.into_bytes()))
    }

    #[test]
    fn peers_are_read_and_keys_of_the_interface_are_not() {
        let (one, other) = ("b8".repeat(32), "58".repeat(32));
        let device = answer(&format!(
            "public_key={one}\npreshared_key={PRIVATE}\nallowed_ip=10.9.0.1/32\nallowed_ip=fd09::1/128\nendpoint=[fd00::23%eth0]:51820\nlast_handshake_time_sec=17\nlast_handshake_time_nsec=5\npersistent_keepalive_interval=25\nprotocol_version=1\npublic_key={other}\nendpoint=192.0.2.7:51820\nerrno=0\n\n"
        ))
        .unwrap();
        let shown = format!("{device:?}");
        assert!(
            !shown.contains(PRIVATE)
                && !shown.contains(&hex(PRIVATE.as_bytes()).unwrap().to_string()),
            "{shown}"
        );
        assert_eq!((device.key, device.peers.len()), (None, 2));
        let first = &device.peers[0];
        assert_eq!(first.key, Key([0xb8; 32]));
        assert_eq!((first.keepalive, first.handshake), (25, 17));
        let ranges = ["10.9.0.1/32", "fd09::1/128"].map(|text| text.parse().unwrap());
        assert_eq!(first.ranges, ranges);
        let second = &device.peers[1];
        assert_eq!(second.endpoint, Some("192.0.2.7:51820".parse().unwrap()));
        assert_eq!(second.handshake, 0);
    }

    #[test]
    fn errors_are_those_of_the_program_and_repeat_nothing() {
        let number = |rest: &str| answer(rest).unwrap_err().raw_os_error();
        assert_eq!(number("errno=-22\n\n"), Some(22));
        assert_eq!(number("errno=95\n\n"), Some(95));
        for cut in ["", "public_key=12\nerrno=0\n", "errno=x\n"] {
            let error = answer(cut).unwrap_err().to_string();
            assert!(
                error.contains("lacks") && !error.contains("e84b"),
                "{error}"
            );
        }
    }

    #[test]
    fn change_never_makes_a_peer() {
        let range = |text: &str| text.parse().unwrap();
        let changes = [
            Change {
                key: Key([0xab; 32]),
                replaces: false,
                ranges: vec![range("10.42.1.0/24")],
            },
            Change {
                key: Key([1; 32]),
                replaces: true,
                ranges: vec![],
            },
        ];
        let expected = format!(
            "set=1\npublic_key={}\nupdate_only=true\nallowed_ip=10.42.1.0/24\npublic_key={}\nupdate_only=true\nreplace_allowed_ips=true\n\n",
            "ab".repeat(32),
            "01".repeat(32)
        );
        assert_eq!(request(&changes), expected);
    }
}
