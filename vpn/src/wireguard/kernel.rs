//! The kernel's interface, by generic netlink (`linux/genetlink.h`, `linux/wireguard.h`).

use std::{io, net::SocketAddr};

use netlink::{
    Attributes, Message, Socket,
    codec::{from_octets, octets, u16_at},
    route::{AF_INET, AF_INET6},
};
use rustix::{io::Errno, net::netlink::GENERIC};

use super::device::{Change, Device, DevicePeer, Key};
use crate::{Prefix, Secret, kernel::ANSWER};

const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const WG_CMD_GET_DEVICE: u8 = 0;
const WG_CMD_SET_DEVICE: u8 = 1;
const WGDEVICE_A_IFNAME: u16 = 2;
const WGDEVICE_A_PUBLIC_KEY: u16 = 4;
const WGDEVICE_A_PEERS: u16 = 8;
const WGPEER_A_PUBLIC_KEY: u16 = 1;
const WGPEER_A_FLAGS: u16 = 3;
const WGPEER_A_ENDPOINT: u16 = 4;
const WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL: u16 = 5;
const WGPEER_A_LAST_HANDSHAKE_TIME: u16 = 6;
const WGPEER_A_ALLOWEDIPS: u16 = 9;
const WGALLOWEDIP_A_FAMILY: u16 = 1;
const WGALLOWEDIP_A_IPADDR: u16 = 2;
const WGALLOWEDIP_A_CIDR_MASK: u16 = 3;
const WGPEER_F_REPLACE_ALLOWEDIPS: u32 = 2;
const WGPEER_F_UPDATE_ONLY: u32 = 4;

/// The length of `struct genlmsghdr`.
const GENL: usize = 4;
/// The ranges in one message, whose attributes have at most 64 KiB.
const RANGES: usize = 1000;

pub(super) fn read(name: &str) -> io::Result<Option<Device>> {
    let Some((mut socket, family)) = open()? else {
        return Ok(None);
    };
    match socket.dump(|| device_request(family, name)) {
        Ok(bodies) => {
            let bodies: Vec<Secret> = bodies.into_iter().map(Secret::new).collect();
            Ok(Some(parse(bodies.iter().map(Secret::expose))))
        }
        Err(error) if is_no_wireguard(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn change(name: &str, changes: &[Change]) -> io::Result<()> {
    let (mut socket, family) = open()?.ok_or(Errno::NODEV)?;
    let messages = changes
        .iter()
        .flat_map(|change| messages(family, name, change));
    // The error of one peer does not stop the changes of the others.
    let mut result = Ok(());
    for message in messages {
        match socket.request(message) {
            // A peer that is gone meanwhile.
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {}
            other => result = result.and(other),
        }
    }
    result
}

/// Connects to the kernel's WireGuard; `None` where it has none.
fn open() -> io::Result<Option<(Socket, u16)>> {
    let mut socket = Socket::open(Some(GENERIC))?;
    socket.limit_wait(ANSWER)?;
    match socket.get(family_request()) {
        Ok(body) => Ok(parse_family(&body).map(|family| (socket, family))),
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the request for the number under which the kernel takes messages of WireGuard.
fn family_request() -> Message {
    let mut message = Message::new(GENL_ID_CTRL, 0, &[CTRL_CMD_GETFAMILY, 1, 0, 0]);
    message.put_text(CTRL_ATTR_FAMILY_NAME, "wireguard");
    message
}

fn parse_family(body: &[u8]) -> Option<u16> {
    let attributes = Attributes(body.get(GENL..)?);
    u16_at(attributes.get(CTRL_ATTR_FAMILY_ID)?, 0)
}

/// Returns the request for an interface and its peers.
fn device_request(family: u16, name: &str) -> Message {
    let mut message = Message::new(family, 0, &[WG_CMD_GET_DEVICE, 1, 0, 0]);
    message.put_text(WGDEVICE_A_IFNAME, name);
    message
}

fn is_no_wireguard(error: &io::Error) -> bool {
    let of = [Errno::NODEV, Errno::OPNOTSUPP].map(Errno::raw_os_error);
    error
        .raw_os_error()
        .is_some_and(|number| of.contains(&number))
}

/// Reads the messages of a dump. A peer with many ranges is continued in the next one.
fn parse<'a>(bodies: impl Iterator<Item = &'a [u8]>) -> Device {
    let mut device = Device {
        is_of_kernel: true,
        ..Device::default()
    };
    for body in bodies {
        let attributes = Attributes(body.get(GENL..).unwrap_or_default());
        if let Some(own) = attributes.get(WGDEVICE_A_PUBLIC_KEY).and_then(key) {
            device.key = Some(own);
        }
        for (_, peer) in attributes.nested(WGDEVICE_A_PEERS).into_iter().flatten() {
            let peer = Attributes(peer);
            let Some(key) = peer.get(WGPEER_A_PUBLIC_KEY).and_then(key) else {
                continue;
            };
            if device.peers.last().is_none_or(|last| last.key != key) {
                device.peers.push(DevicePeer::new(key));
            }
            let Some(last) = device.peers.last_mut() else {
                continue;
            };
            let number = |kind| peer.get(kind).and_then(|value| u16_at(value, 0));
            last.endpoint = peer
                .get(WGPEER_A_ENDPOINT)
                .and_then(endpoint)
                .or(last.endpoint);
            last.keepalive =
                number(WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL).unwrap_or(last.keepalive);
            let seconds = peer.get(WGPEER_A_LAST_HANDSHAKE_TIME).and_then(seconds);
            last.handshake = seconds.unwrap_or(last.handshake);
            let ranges = peer.nested(WGPEER_A_ALLOWEDIPS).into_iter().flatten();
            last.ranges
                .extend(ranges.filter_map(|(_, value)| range(value)));
        }
    }
    device
}

fn key(value: &[u8]) -> Option<Key> {
    <[u8; 32]>::try_from(value).ok().map(Key)
}

/// Reads a `struct sockaddr_in` or `sockaddr_in6`.
fn endpoint(value: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes([*value.get(2)?, *value.get(3)?]);
    let address = match u8::try_from(u16_at(value, 0)?) {
        Ok(AF_INET) => from_octets(value.get(4..8)?)?,
        Ok(AF_INET6) => from_octets(value.get(8..24)?)?,
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

/// Reads the seconds of a `struct __kernel_timespec`.
fn seconds(value: &[u8]) -> Option<u64> {
    let bytes = value.get(..8)?.try_into().ok()?;
    u64::try_from(i64::from_ne_bytes(bytes)).ok()
}

fn range(value: &[u8]) -> Option<Prefix> {
    let attributes = Attributes(value);
    let address = from_octets(attributes.get(WGALLOWEDIP_A_IPADDR)?)?;
    Prefix::new(address, *attributes.get(WGALLOWEDIP_A_CIDR_MASK)?.first()?)
}

/// Returns the requests of a change; only the first one replaces.
fn messages(family: u16, name: &str, change: &Change) -> Vec<Message> {
    let chunks: Vec<&[Prefix]> = if change.ranges.is_empty() {
        vec![&[]]
    } else {
        change.ranges.chunks(RANGES).collect()
    };
    let chunks = chunks.into_iter().enumerate();
    chunks
        .map(|(at, ranges)| {
            let mut flags = WGPEER_F_UPDATE_ONLY;
            if change.replaces && at == 0 {
                flags |= WGPEER_F_REPLACE_ALLOWEDIPS;
            }
            let mut message = Message::new(family, 0, &[WG_CMD_SET_DEVICE, 1, 0, 0]);
            message.put_text(WGDEVICE_A_IFNAME, name);
            message.nest(WGDEVICE_A_PEERS, |peers| {
                peers.nest(0, |peer| {
                    peer.put(WGPEER_A_PUBLIC_KEY, &change.key.0);
                    peer.put_u32(WGPEER_A_FLAGS, flags);
                    peer.nest(WGPEER_A_ALLOWEDIPS, |all| {
                        for range in ranges {
                            all.nest(0, |one| put_range(one, *range));
                        }
                    });
                });
            });
            message
        })
        .collect()
}

fn put_range(message: &mut Message, range: Prefix) {
    let address = range.address();
    let family = if address.is_ipv4() { AF_INET } else { AF_INET6 };
    message
        .put_u16(WGALLOWEDIP_A_FAMILY, family.into())
        .put(WGALLOWEDIP_A_IPADDR, &octets(address))
        .put_u8(WGALLOWEDIP_A_CIDR_MASK, range.length());
}

/// Fuzz target of the kernel's answer.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(input: &[u8]) -> bool {
    !parse(std::iter::once(input)).peers.is_empty()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};

    use netlink::codec::HEADER;

    use super::*;

    /// Returns the body of a message of a dump, with a private key and these peers.
    fn body(peers: &[&dyn Fn(&mut Message)]) -> Vec<u8> {
        let mut message = Message::new(0x20, 0, &[WG_CMD_GET_DEVICE, 1, 0, 0]);
        message.put(3, b"SECRET--SECRET--SECRET--SECRET--");
        message.put(WGDEVICE_A_PUBLIC_KEY, &[9; 32]);
        message.nest(WGDEVICE_A_PEERS, |all| {
            for peer in peers {
                all.nest(0, *peer);
            }
        });
        message.finish(0, 1)[HEADER..].to_vec()
    }

    fn with_ranges(peer: &mut Message, ranges: &[&str]) {
        peer.put(WGPEER_A_PUBLIC_KEY, &[7; 32]);
        peer.nest(WGPEER_A_ALLOWEDIPS, |all| {
            for text in ranges {
                all.nest(0, |one| put_range(one, text.parse().unwrap()));
            }
        });
    }

    #[test]
    fn peer_that_is_continued_is_one_peer() {
        let first = body(&[&|peer| {
            with_ranges(peer, &["10.9.0.1/32", "fd09::/64"]);
            let ipv4 = [
                &AF_INET.to_ne_bytes()[..],
                &[0, 0xca, 0x6c, 192, 0, 2, 7],
                &[0; 8],
            ];
            peer.put(WGPEER_A_ENDPOINT, &ipv4.concat());
            peer.put_u16(WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL, 25);
            let time = [17_i64.to_ne_bytes(), 5_i64.to_ne_bytes()];
            peer.put(WGPEER_A_LAST_HANDSHAKE_TIME, &time.concat());
        }]);
        let second = body(&[&|peer| with_ranges(peer, &["10.42.1.0/24"]), &|peer| {
            peer.put(WGPEER_A_PUBLIC_KEY, &[8; 32]);
        }]);
        let device = parse([&first[..], &second].into_iter());
        assert!(!format!("{device:?}").contains("SECRET"));
        assert_eq!(device.key, Some(Key([9; 32])));
        let ranges = ["10.9.0.1/32", "fd09::/64", "10.42.1.0/24"];
        let expected = DevicePeer {
            key: Key([7; 32]),
            endpoint: Some("192.0.2.7:51820".parse().unwrap()),
            keepalive: 25,
            handshake: 17,
            ranges: ranges.map(|text| text.parse().unwrap()).to_vec(),
        };
        assert_eq!(device.peers, [expected, DevicePeer::new(Key([8; 32]))]);
    }

    #[test]
    fn endpoint_has_either_family() {
        let mut ipv6 = vec![AF_INET6, 0, 0xca, 0x6c, 0, 0, 0, 0];
        ipv6.extend(Ipv6Addr::LOCALHOST.octets());
        ipv6.extend([0; 4]);
        assert_eq!(endpoint(&ipv6), Some("[::1]:51820".parse().unwrap()));
        assert_eq!(endpoint(&ipv6[..20]), None);
        assert_eq!(endpoint(&[7; 28]), None);
    }

    /// What is sent is read as a peer with these ranges, in as many messages as they need.
    #[test]
    fn change_of_many_ranges_replaces_once_and_never_makes_a_peer() {
        let ranges: Vec<Prefix> = (0..1500_u32)
            .map(|number| Prefix::new(IpAddr::from((0x0a00_0000 + number).to_be_bytes()), 32))
            .map(Option::unwrap)
            .collect();
        let change = Change {
            key: Key([7; 32]),
            replaces: true,
            ranges: ranges.clone(),
        };
        let sent: Vec<Vec<u8>> = messages(0x20, "wg0", &change)
            .into_iter()
            .map(|message| message.finish(0, 1)[HEADER..].to_vec())
            .collect();
        let device = parse(sent.iter().map(Vec::as_slice));
        assert_eq!((device.peers.len(), &device.peers[0].ranges), (1, &ranges));
        let flags = sent.iter().map(|body| {
            let peers = Attributes(&body[GENL..]).nested(WGDEVICE_A_PEERS).unwrap();
            let peer = peers.clone().next().unwrap().1;
            netlink::codec::u32_at(Attributes(peer).get(WGPEER_A_FLAGS).unwrap(), 0).unwrap()
        });
        assert_eq!(flags.collect::<Vec<_>>(), [6, 4]);
    }

    /// Returns the bytes of a recorded message, without its header.
    fn recorded(text: &str) -> Vec<u8> {
        let bytes = text.split_whitespace();
        let bytes = bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap());
        bytes.collect()
    }

    /// The messages that `wg set wg0 peer BwcHBw… allowed-ips 10.9.0.2/32,fd09::2/128` of wireguard-tools 1.0.20210914 sends.
    #[test]
    fn requests_are_those_of_wireguards_own_tool() {
        let body = |message: Message| message.finish(0, 1)[HEADER..].to_vec();
        let link_message = "03 01 00 00 0e 00 02 00 77 69 72 65 67 75 61 72 64 00 00 00";
        assert_eq!(body(family_request()), recorded(link_message));
        let link_message = "\
            01 01 00 00 08 00 02 00 77 67 30 00 7c 00 08 80 78 00 00 80 24 00 01 00 \
            07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 \
            08 00 03 00 02 00 00 00 48 00 09 80 \
            1c 00 00 80 06 00 01 00 02 00 00 00 08 00 02 00 0a 09 00 02 05 00 03 00 20 00 00 00 \
            28 00 00 80 06 00 01 00 0a 00 00 00 14 00 02 00 fd 09 00 00 00 00 00 00 00 00 00 00 00 00 00 02 \
            05 00 03 00 80 00 00 00";
        let change = Change {
            key: Key([7; 32]),
            replaces: true,
            ranges: ["10.9.0.2/32", "fd09::2/128"]
                .map(|text| text.parse().unwrap())
                .to_vec(),
        };
        let mut sent = messages(0x20, "wg0", &change).into_iter().map(body);
        // `wg` makes a peer that is not there.
        let expected = link_message.replacen("08 00 03 00 02", "08 00 03 00 06", 1);
        assert_eq!(sent.next(), Some(recorded(&expected)));
        assert_eq!(sent.next(), None);
    }

    #[test]
    fn device_is_requested_by_its_name_and_the_number_of_the_family() {
        let bytes = device_request(0x1f, "wg0").finish(0, 1);
        assert_eq!(netlink::codec::u16_at(&bytes, 4), Some(0x1f));
        let expected = "00 01 00 00 08 00 02 00 77 67 30 00";
        assert_eq!(bytes[HEADER..], recorded(expected));
        // A new family (1), its name, and its number.
        let answer =
            "01 02 00 00 0e 00 02 00 77 69 72 65 67 75 61 72 64 00 00 00 06 00 01 00 1f 00 00 00";
        assert_eq!(parse_family(&recorded(answer)), Some(0x1f));
        assert_eq!(parse_family(&recorded(answer)[..20]), None);
        assert_eq!(parse_family(&[]), None);
    }

    /// The last range of a peer is taken away by a list without one, which is there all the same.
    #[test]
    fn list_without_ranges_is_sent() {
        let change = Change {
            key: Key([7; 32]),
            replaces: true,
            ranges: Vec::new(),
        };
        let sent = messages(0x20, "wg0", &change);
        assert_eq!(sent.len(), 1);
        for message in sent {
            let bytes = message.finish(0, 1);
            assert_eq!(bytes[bytes.len() - 4..], [4, 0, 9, 0x80]);
        }
    }

    #[test]
    fn interface_of_another_kind_is_none_of_the_kernels() {
        for (number, expected) in [
            (Errno::NODEV, true),
            (Errno::OPNOTSUPP, true),
            (Errno::PERM, false),
            (Errno::INVAL, false),
        ] {
            assert_eq!(is_no_wireguard(&number.into()), expected, "{number}");
        }
    }
}
