//! As much of D-Bus as calls of methods with texts need (D-Bus Specification 0.43): a connection to the system's bus, calls, replies.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use crate::kernel::Errno;

const DEFAULT_ADDRESS: &str = "unix:path=/var/run/dbus/system_bus_socket";
/// How long a call may take; the usual limit of clients.
const TIMEOUT: Duration = Duration::from_secs(25);
/// How long a reply may be; those of firewalld are some bytes.
const REPLY_LIMIT: usize = 1 << 20;

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
/// The version of the protocol.
const VERSION: u8 = 1;
/// The length of the fixed part of a message, with the length of the fields that follow.
const FIXED: usize = 16;

const FIELD_PATH: u8 = 1;
const FIELD_INTERFACE: u8 = 2;
const FIELD_MEMBER: u8 = 3;
const FIELD_ERROR_NAME: u8 = 4;
const FIELD_REPLY_SERIAL: u8 = 5;
const FIELD_DESTINATION: u8 = 6;
const FIELD_SIGNATURE: u8 = 8;

/// A call of a method whose arguments are texts.
pub(super) struct Call<'a> {
    pub(super) destination: &'a str,
    pub(super) path: &'a str,
    pub(super) interface: &'a str,
    pub(super) method: &'a str,
    pub(super) arguments: &'a [&'a str],
}

impl<'a> Call<'a> {
    /// Makes a call of the bus itself.
    pub(super) const fn to_bus(method: &'a str, arguments: &'a [&'a str]) -> Self {
        Self {
            destination: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            method,
            arguments,
        }
    }

    /// Returns the message.
    fn encode(&self, serial: u32) -> Vec<u8> {
        let mut body = Encoder::default();
        for argument in self.arguments {
            body.text(argument);
        }
        let mut message = Encoder(vec![b'l', METHOD_CALL, 0, VERSION]);
        message.number(body.0.len());
        message.0.extend(serial.to_le_bytes());
        message.number(0);
        for (field, kind, value) in [
            (FIELD_PATH, b'o', self.path),
            (FIELD_INTERFACE, b's', self.interface),
            (FIELD_MEMBER, b's', self.method),
            (FIELD_DESTINATION, b's', self.destination),
        ] {
            message.align(8);
            message.0.extend([field, 1, kind, 0]);
            message.text(value);
        }
        if !self.arguments.is_empty() {
            message.align(8);
            let count = u8::try_from(self.arguments.len()).expect("methods have few arguments");
            message.0.extend([FIELD_SIGNATURE, 1, b'g', 0, count]);
            message.0.extend(self.arguments.iter().map(|_| b's'));
            message.0.push(0);
        }
        let fields = u32::try_from(message.0.len() - FIXED).expect("fields are short");
        message.0[12..FIXED].copy_from_slice(&fields.to_le_bytes());
        message.align(8);
        message.0.extend(body.0);
        message.0
    }
}

/// Appends values, each aligned to its size from the message's start.
#[derive(Default)]
struct Encoder(Vec<u8>);

impl Encoder {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, number: usize) {
        self.align(4);
        let number = u32::try_from(number).expect("messages are short");
        self.0.extend(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len());
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }
}

/// The values that a method returned.
pub(super) struct Reply {
    body: Vec<u8>,
}

impl Reply {
    /// Returns whether the first value is the truth value true.
    pub(super) fn is_true(&self) -> bool {
        number_at(&self.body, 0) == Some(1)
    }
}

/// A message from the bus.
#[derive(Debug, PartialEq, Eq)]
struct Incoming {
    kind: u8,
    reply_to: Option<u32>,
    error: Option<String>,
    body: Vec<u8>,
}

impl Incoming {
    /// Returns the length of the message that begins so: its fields with their padding, and its body.
    fn rest_length(fixed: &[u8]) -> Option<(usize, usize)> {
        let length = |at| usize::try_from(number_at(fixed, at)?).ok();
        // The bus passes messages on in the byte order of their sender, which is this machine.
        let is_known = fixed.first() == Some(&b'l');
        let (fields, body) = (length(12)?, length(4)?);
        (is_known && fields <= REPLY_LIMIT && body <= REPLY_LIMIT).then_some((fields, body))
    }

    /// Reads a message of which the fixed part is known to be right.
    fn decode(fixed: &[u8], fields: &[u8], body: Vec<u8>) -> Self {
        let mut incoming = Self {
            kind: fixed[1],
            reply_to: None,
            error: None,
            body,
        };
        let mut at = 0;
        while let Some([field, 1, kind, 0]) = fields.get(at..at + 4) {
            let Some(value) = number_at(fields, at + 4) else {
                break;
            };
            let length = match kind {
                b'u' => 4,
                b's' | b'o' => 4 + usize::try_from(value).unwrap_or(REPLY_LIMIT) + 1,
                // A signature has one byte of length.
                b'g' => 2 + usize::from(fields[at + 4]),
                _ => break,
            };
            match *field {
                FIELD_REPLY_SERIAL => incoming.reply_to = Some(value),
                FIELD_ERROR_NAME => incoming.error = text_at(fields, at + 4),
                _ => {}
            }
            at = (at + 4 + length).next_multiple_of(8);
        }
        incoming
    }

    /// Returns the reply, or the error's text, or its name when it has none.
    fn into_reply(self) -> Result<Reply, String> {
        if self.kind == ERROR {
            let name = self.error.unwrap_or_default();
            return Err(text_at(&self.body, 0).unwrap_or(name));
        }
        Ok(Reply { body: self.body })
    }
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn text_at(bytes: &[u8], at: usize) -> Option<String> {
    let length = usize::try_from(number_at(bytes, at)?).ok()?;
    let text = bytes.get(at + 4..)?.get(..length)?;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// A connection to the bus.
pub(super) struct Bus {
    stream: BufReader<UnixStream>,
    serial: u32,
}

impl Bus {
    /// Connects to the system's bus.
    pub(super) fn connect_system() -> Result<Self, String> {
        let addresses = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").unwrap_or_default();
        let addresses = if addresses.is_empty() {
            DEFAULT_ADDRESS
        } else {
            &addresses
        };
        let mut outcome = Err(format!("invalid bus address {addresses:?}"));
        for (name, address) in addresses.split(';').filter_map(socket_address) {
            outcome = UnixStream::connect_addr(&address)
                .map_err(|error| format!("dial unix {name}: connect: {}", Errno::from(error)));
            if outcome.is_ok() {
                break;
            }
        }
        let stream = BufReader::new(outcome?);
        let mut bus = Self { stream, serial: 0 };
        bus.authenticate()
            .map_err(|error| format!("dbus: authentication failed: {error}"))?;
        bus.call(&Call::to_bus("Hello", &[]))?;
        Ok(bus)
    }

    /// Logs in as the user of the process, whom the bus sees by the socket.
    fn authenticate(&mut self) -> io::Result<()> {
        let stream = self.stream.get_mut();
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let uid = rustix::process::getuid().as_raw().to_string();
        let uid = crate::filter::hex(uid.as_bytes());
        stream.write_all(format!("\0AUTH EXTERNAL {uid}\r\n").as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        if !line.starts_with("OK ") {
            return Err(io::Error::other(line.trim_end().to_owned()));
        }
        self.stream.get_mut().write_all(b"BEGIN\r\n")
    }

    /// Calls a method and waits for what it returns.
    pub(super) fn call(&mut self, call: &Call<'_>) -> Result<Reply, String> {
        self.serial += 1;
        let failed = |error: io::Error| format!("dbus: {}: {error}", call.method);
        let message = call.encode(self.serial);
        self.stream.get_mut().write_all(&message).map_err(failed)?;
        loop {
            let incoming = self.receive().map_err(failed)?;
            let is_reply = matches!(incoming.kind, METHOD_RETURN | ERROR);
            if is_reply && incoming.reply_to == Some(self.serial) {
                return incoming.into_reply();
            }
        }
    }

    fn receive(&mut self) -> io::Result<Incoming> {
        let mut fixed = [0; FIXED];
        self.stream.read_exact(&mut fixed)?;
        let (fields, body) = Incoming::rest_length(&fixed)
            .ok_or_else(|| io::Error::other("the bus sent something other than a message"))?;
        let mut rest = vec![0; fields.next_multiple_of(8) + body];
        self.stream.read_exact(&mut rest)?;
        let body = rest.split_off(fields.next_multiple_of(8));
        Ok(Incoming::decode(&fixed, &rest[..fields], body))
    }
}

/// Reads one address of a bus, `unix:path=/run/bus` or `unix:abstract=/tmp/bus`, with the name of the socket.
fn socket_address(address: &str) -> Option<(String, SocketAddr)> {
    let options = address.strip_prefix("unix:")?;
    options.split(',').find_map(|option| {
        let (key, value) = option.split_once('=')?;
        let address = match key {
            "path" => SocketAddr::from_pathname(value),
            "abstract" => SocketAddr::from_abstract_name(value),
            _ => return None,
        };
        Some((value.to_owned(), address.ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Call<'_> = Call {
        destination: "a.b",
        path: "/a",
        interface: "a.b.c",
        method: "m",
        arguments: &["zone", "x"],
    };

    #[test]
    fn call_is_aligned_and_has_its_signature() {
        let message = CALL.encode(7);
        let mut expected = b"l\x01\x00\x01\x12\0\0\0\x07\0\0\0\x48\0\0\0".to_vec();
        expected.extend(b"\x01\x01o\0\x02\0\0\0/a\0\0\0\0\0\0");
        expected.extend(b"\x02\x01s\0\x05\0\0\0a.b.c\0\0\0");
        expected.extend(b"\x03\x01s\0\x01\0\0\0m\0\0\0\0\0\0\0");
        expected.extend(b"\x06\x01s\0\x03\0\0\0a.b\0\0\0\0\0");
        expected.extend(b"\x08\x01g\0\x02ss\0");
        expected.extend(b"\x04\0\0\0zone\0\0\0\0\x01\0\0\0x\0");
        assert_eq!(message, expected);
    }

    #[test]
    fn reply_is_read_as_a_call_is_written() {
        let message = CALL.encode(7);
        let (fields, body) = Incoming::rest_length(&message[..FIXED]).unwrap();
        let padded = fields.next_multiple_of(8);
        assert_eq!(FIXED + padded + body, message.len());
        let mut fields = message[FIXED..FIXED + fields].to_vec();
        fields.resize(padded, 0);
        fields.extend(b"\x04\x01s\0\x03\0\0\0e.f\0\0\0\0\0\x05\x01u\0\x09\0\0\0");
        let body = message[FIXED + padded..].to_vec();
        let mut incoming = Incoming::decode(&message[..FIXED], &fields, body);
        assert_eq!(incoming.reply_to, Some(9));
        assert_eq!(incoming.error.as_deref(), Some("e.f"));
        incoming.kind = ERROR;
        assert_eq!(incoming.into_reply().err().as_deref(), Some("zone"));
    }

    #[test]
    fn bytes_that_are_not_a_message_are_refused() {
        let mut message = CALL.encode(7);
        message[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Incoming::rest_length(&message), None);
        assert_eq!(Incoming::rest_length(b"B\x01\x00\x01"), None);
        let fields = b"\x05\x01s\0\xff\xff\xff\xff";
        Incoming::decode(&message, fields, Vec::new());
    }

    #[test]
    fn addresses_name_a_path_or_an_abstract_socket() {
        let name = |address| socket_address(address).map(|(name, _)| name);
        assert_eq!(
            name("unix:path=/run/bus,guid=1").as_deref(),
            Some("/run/bus")
        );
        assert_eq!(
            name("unix:guid=1,abstract=/tmp/x").as_deref(),
            Some("/tmp/x")
        );
        assert_eq!(name("tcp:host=localhost"), None);
        let (_, address) = socket_address("unix:abstract=/tmp/x").unwrap();
        assert_eq!(address.as_abstract_name(), Some(&b"/tmp/x"[..]));
    }
}
