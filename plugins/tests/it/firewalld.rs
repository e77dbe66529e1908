//! firewall with a bus on which a test plays firewalld.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use crate::plugin::{end, start_with};

const PLUGIN: &str = "firewall";
/// The length of the fixed part of a message of D-Bus.
const FIXED: usize = 16;

/// A called method with its texts.
type Called = (String, Vec<String>);

/// Accepts one connection to a bus at `path` and answers every call with "true"; returns the calls when the plugin has ended.
fn play(path: &Path) -> JoinHandle<Vec<Called>> {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.starts_with("\0AUTH EXTERNAL "), "{line}");
        stream.write_all(b"OK 0123\r\n").unwrap();
        line.clear();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "BEGIN\r\n");
        let mut calls = Vec::new();
        while let Some((serial, called)) = receive(&mut reader) {
            calls.push(called);
            reply(&mut stream, serial);
        }
        calls
    })
}

/// Reads a call; `None` when the plugin has ended.
fn receive(reader: &mut impl Read) -> Option<([u8; 4], Called)> {
    let mut fixed = [0; FIXED];
    reader.read_exact(&mut fixed).ok()?;
    let (body, serial, fields) = (number(&fixed[4..]), &fixed[8..12], number(&fixed[12..]));
    let mut rest = vec![0; fields.next_multiple_of(8) + body];
    reader.read_exact(&mut rest).unwrap();
    let (fields, mut body) = rest.split_at(fields.next_multiple_of(8));
    // The field of the method's name: its number, then a text.
    let member = fields.windows(4).position(|field| field == [3, 1, b's', 0]);
    let method = text(&fields[member.unwrap() + 4..]);
    let mut texts = Vec::new();
    while !body.is_empty() {
        let text = text(body);
        let length = (4 + text.len() + 1).next_multiple_of(4);
        body = body.get(length..).unwrap_or_default();
        texts.push(text);
    }
    Some((serial.try_into().unwrap(), (method, texts)))
}

/// Returns true to a call.
fn reply(stream: &mut UnixStream, serial: [u8; 4]) {
    let mut message = b"l\x02\0\x01\x04\0\0\0\x01\0\0\0\x0f\0\0\0".to_vec();
    message.extend(b"\x05\x01u\0");
    message.extend(serial);
    message.extend(b"\x08\x01g\0\x01b\0\0");
    message.extend(b"\x01\0\0\0");
    stream.write_all(&message).unwrap();
}

fn number(bytes: &[u8]) -> usize {
    u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes[4..4 + number(bytes)].to_vec()).unwrap()
}

/// Runs a verb; returns what it called, without its introduction to the bus.
fn calls(verb: &str, keys: &Value) -> Vec<Called> {
    let dir = tempfile::tempdir().unwrap();
    let bus = dir.path().join("bus");
    let mut config = json!({
        "cniVersion": "1.1.0", "name": "net", "type": PLUGIN, "backend": "firewalld",
        "prevResult": {
            "cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/no/such/netns"}],
            "ips": [{"address": "10.1.2.3/24", "interface": 0}, {"address": "fd00::3/64", "interface": 0}],
        },
    });
    for (key, value) in keys.as_object().unwrap() {
        config[key] = value.clone();
    }
    let firewalld = play(&bus);
    let address = format!("unix:path={}", bus.display());
    let env = [("DBUS_SYSTEM_BUS_ADDRESS", address.as_str())];
    let (output, document) = end(start_with(PLUGIN, verb, "pod", &config, &env));
    assert!(output.status.success(), "{document}");
    let mut calls = firewalld.join().unwrap();
    assert_eq!(calls.remove(0), ("Hello".to_owned(), Vec::new()));
    calls
}

#[test]
fn addresses_go_to_the_zone_of_the_configuration() {
    for (keys, zone) in [
        (json!({"firewalldZone": "pods"}), "pods"),
        (json!({}), "trusted"),
    ] {
        for (verb, method) in [
            ("ADD", "addSource"),
            ("CHECK", "querySource"),
            ("DEL", "removeSource"),
        ] {
            let expected = ["10.1.2.3/32", "fd00::3/128"]
                .map(|address| (method.to_owned(), vec![zone.to_owned(), address.to_owned()]));
            assert_eq!(calls(verb, &keys), expected, "{verb}");
        }
    }
}
