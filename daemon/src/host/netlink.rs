//! The kernel's messages about routes (rtnetlink), as far as default routes need them: plain functions over bytes. The caller opens the
//! socket.

use std::io;
use std::net::IpAddr;

use plan::Family;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const GET_ROUTES: u16 = 26;

const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const INTERRUPTED: u16 = 0x10;
const DUMP: u16 = 0x300;
/// Adds a route even if there are others to the destination.
const CREATE: u16 = 0x400;

/// Lengths of a message's header, and of the route header after it.
const HEADER: usize = 16;
const ROUTE: usize = 12;

const MAIN_TABLE: u8 = 254;
const BY_ADMINISTRATOR: u8 = 3;
const UNIVERSE: u8 = 0;
const LINK: u8 = 253;
const UNICAST: u8 = 1;

const INTERFACE: u16 = 4;
const GATEWAY: u16 = 5;
const METRIC: u16 = 6;

/// A default route of the main table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// `None` for a route with several next hops.
    pub(crate) interface: Option<u32>,
    /// `None` for a route to a link.
    pub(crate) gateway: Option<IpAddr>,
    /// The kernel's message about it, which also deletes it.
    body: Vec<u8>,
}

/// The content of a reply of the kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Default routes of the main table.
    pub(crate) found: Vec<Found>,
    /// True for the last message.
    pub(crate) is_last: bool,
    /// True if routes changed while they were listed.
    pub(crate) is_interrupted: bool,
}

/// A request to list all routes of a family.
pub(crate) fn list(family: Family) -> Vec<u8> {
    let mut body = [0; ROUTE];
    body[0] = number(family);
    message(GET_ROUTES, REQUEST | DUMP, &body)
}

/// A request to delete a route.
pub(crate) fn delete(route: &Found) -> Vec<u8> {
    message(DELETE_ROUTE, REQUEST | ACKNOWLEDGE, &route.body)
}

/// A request to add a default route.
pub(crate) fn add(family: Family, interface: u32, gateway: Option<IpAddr>, metric: u32) -> Vec<u8> {
    let scope = if gateway.is_some() { UNIVERSE } else { LINK };
    let mut body = vec![
        number(family),
        0,
        0,
        0,
        MAIN_TABLE,
        BY_ADMINISTRATOR,
        scope,
        UNICAST,
    ];
    body.resize(ROUTE, 0);
    attribute(&mut body, INTERFACE, &interface.to_ne_bytes());
    match gateway {
        Some(IpAddr::V4(gateway)) => attribute(&mut body, GATEWAY, &gateway.octets()),
        Some(IpAddr::V6(gateway)) => attribute(&mut body, GATEWAY, &gateway.octets()),
        None => {}
    }
    if metric != 0 {
        attribute(&mut body, METRIC, &metric.to_ne_bytes());
    }
    message(NEW_ROUTE, REQUEST | ACKNOWLEDGE | CREATE, &body)
}

/// Parses one datagram of the kernel; a refusal becomes an error with its number.
pub(crate) fn read(mut bytes: &[u8]) -> io::Result<Reply> {
    let mut reply = Reply::default();
    while !bytes.is_empty() {
        let length = word(bytes, 0).ok_or_else(cut)? as usize;
        let message = bytes.get(..length).filter(|_| length >= HEADER);
        let (message, body) = message
            .and_then(|message| Some((message, message.get(HEADER..)?)))
            .ok_or_else(cut)?;
        reply.is_interrupted |= half(message, 6).ok_or_else(cut)? & INTERRUPTED != 0;
        match half(message, 4).ok_or_else(cut)? {
            ERROR => {
                let code = word(body, 0).ok_or_else(cut)?.cast_signed();
                if code != 0 {
                    return Err(io::Error::from_raw_os_error(-code));
                }
                reply.is_last = true;
            }
            DONE => reply.is_last = true,
            NEW_ROUTE => reply.found.extend(default_route(body)?),
            _ => {}
        }
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
    }
    Ok(reply)
}

/// Returns the route if it is a default route of the main table.
fn default_route(body: &[u8]) -> io::Result<Option<Found>> {
    let [family, destination, _, _, table, _, _, kind, ..] = *body else {
        return Err(cut());
    };
    if destination != 0 || table != MAIN_TABLE || kind != UNICAST {
        return Ok(None);
    }
    let mut found = Found {
        interface: None,
        gateway: None,
        body: body.to_vec(),
    };
    let mut attributes = body.get(ROUTE..).ok_or_else(cut)?;
    while !attributes.is_empty() {
        let length = usize::from(half(attributes, 0).ok_or_else(cut)?);
        let value = attributes.get(4..length).ok_or_else(cut)?;
        match half(attributes, 2).ok_or_else(cut)? {
            INTERFACE => found.interface = word(value, 0),
            GATEWAY => found.gateway = address(family, value),
            _ => {}
        }
        attributes = attributes.get(aligned(length)..).unwrap_or_default();
    }
    Ok(Some(found))
}

fn address(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    if family == number(Family::V4) {
        <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from)
    } else {
        <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
    }
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).expect("a message has some hundred bytes");
    let mut out = length.to_ne_bytes().to_vec();
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    // No sequence number and no port: a socket has one request at a time.
    out.resize(HEADER, 0);
    out.extend(body);
    out
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).expect("an attribute is an address at most");
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(aligned(body.len()), 0);
}

fn number(family: Family) -> u8 {
    match family {
        Family::V4 => 2,
        Family::V6 => 10,
    }
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn cut() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the kernel's reply about routes is truncated",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(table: u8, kind: u8, destination: u8, gateway: &str, interface: u32) -> Vec<u8> {
        let gateway: IpAddr = gateway.parse().unwrap();
        let mut bytes = add(Family::of(gateway), interface, Some(gateway), 0);
        bytes[HEADER + 1] = destination;
        bytes[HEADER + 4] = table;
        bytes[HEADER + 7] = kind;
        bytes
    }

    #[test]
    fn default_routes_of_the_main_table_are_found() {
        let bytes = [
            route(MAIN_TABLE, UNICAST, 0, "10.0.0.1", 3),
            route(MAIN_TABLE, UNICAST, 8, "10.0.0.1", 3),
            route(100, UNICAST, 0, "10.0.0.1", 3),
            route(MAIN_TABLE, 7, 0, "fd00::1", 3),
            route(MAIN_TABLE, UNICAST, 0, "fd00::1", 4),
        ];
        let reply = read(&bytes.concat()).unwrap();
        let found: Vec<_> = reply
            .found
            .iter()
            .map(|found| (found.interface, found.gateway.unwrap().to_string()))
            .collect();
        let expected = [(Some(3), "10.0.0.1".into()), (Some(4), "fd00::1".into())];
        assert_eq!(found, expected);
        assert!(!reply.is_last && !reply.is_interrupted);
        // The request to delete repeats the found route byte by byte.
        assert_eq!(delete(&reply.found[0])[HEADER..], bytes[0][HEADER..]);
    }

    #[test]
    fn route_to_a_link_has_no_gateway() {
        let bytes = add(Family::V4, 7, None, 0);
        let reply = read(&bytes).unwrap();
        assert_eq!(
            (reply.found[0].interface, reply.found[0].gateway),
            (Some(7), None)
        );
        assert_eq!(bytes[HEADER + 6], LINK);
    }

    #[test]
    fn end_and_refusals_are_recognised() {
        let end = |code: i32| message(ERROR, 0, &code.to_ne_bytes());
        assert!(read(&end(0)).unwrap().is_last);
        assert_eq!(read(&end(-101)).unwrap_err().raw_os_error(), Some(101));
        let done = read(&message(DONE, INTERRUPTED, &[0; 4])).unwrap();
        assert!(done.is_last && done.is_interrupted);
    }

    #[test]
    fn truncated_messages_are_errors() {
        let complete = route(MAIN_TABLE, UNICAST, 0, "fd00::1", 4);
        for length in 1..complete.len() {
            let mut bytes = complete[..length].to_vec();
            read(&bytes).unwrap_err();
            if let (Some(head), Ok(length)) = (bytes.get_mut(..4), u32::try_from(length)) {
                head.copy_from_slice(&length.to_ne_bytes());
                // Its own length may be valid now, but it must not be read beyond its end.
                let _ = read(&bytes);
            }
        }
    }
}
