//! Ethernet frames with a DHCP message in UDP over IPv4, which a client without an address must write and read itself.

use std::net::Ipv4Addr;

use crate::Mac;

pub const CLIENT_PORT: u16 = 68;
pub const SERVER_PORT: u16 = 67;

const ETHERNET: usize = 14;
const IP: usize = 20;
const UDP: usize = 8;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const PROTOCOL_UDP: u8 = 17;
const TTL: u8 = 64;

/// The addresses of a frame from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The client's hardware address.
    pub source_mac: Mac,
    /// The hardware address of the server, of the relay to it, or of all.
    pub destination_mac: Mac,
    /// The client's address, if it has one.
    pub source: Ipv4Addr,
    /// The server's address, or that of all.
    pub destination: Ipv4Addr,
}

/// Returns the frame of a client's message, or `None` when the message is too long for one.
pub fn encode(addresses: &Addresses, message: &[u8]) -> Option<Vec<u8>> {
    let udp_length = u16::try_from(UDP + message.len()).ok()?;
    let ip_length = u16::try_from(IP + UDP + message.len()).ok()?;
    let mut bytes = Vec::with_capacity(ETHERNET + usize::from(ip_length));
    bytes.extend_from_slice(&addresses.destination_mac);
    bytes.extend_from_slice(&addresses.source_mac);
    bytes.extend_from_slice(&ETHERTYPE_IPV4);

    let mut ip = [0; IP];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&ip_length.to_be_bytes());
    ip[8] = TTL;
    ip[9] = PROTOCOL_UDP;
    ip[12..16].copy_from_slice(&addresses.source.octets());
    ip[16..20].copy_from_slice(&addresses.destination.octets());
    let sum = checksum(&[&ip]);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend_from_slice(&ip);

    let mut udp = [0; UDP];
    udp[0..2].copy_from_slice(&CLIENT_PORT.to_be_bytes());
    udp[2..4].copy_from_slice(&SERVER_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_length.to_be_bytes());
    let pseudo = [0, PROTOCOL_UDP, udp[4], udp[5]];
    let sum = match checksum(&[&ip[12..20], &pseudo, &udp, message]) {
        // Zero would mean that there is none.
        0 => 0xffff,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    bytes.extend_from_slice(&udp);
    bytes.extend_from_slice(message);
    Some(bytes)
}

/// Returns the sender's hardware address and the message of a frame to a client, or `None` for any other frame.
///
/// The checksum of UDP is not compared: a server on the same machine leaves it to hardware that such a frame never passes.
pub fn decode(frame: &[u8]) -> Option<(Mac, &[u8])> {
    let packet = frame.get(ETHERNET..)?;
    if frame[12..14] != ETHERTYPE_IPV4 {
        return None;
    }
    let version = *packet.first()?;
    let header_length = usize::from(version & 0xf) * 4;
    if version >> 4 != 4 || header_length < IP {
        return None;
    }
    let header = packet.get(..header_length)?;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // The first bit that counts is "more fragments", the rest is the fragment's place.
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    if header[9] != PROTOCOL_UDP || is_fragment || checksum(&[header]) != 0 {
        return None;
    }
    // A short frame is padded.
    let datagram = packet.get(header_length..total)?;
    let udp = datagram.get(..UDP)?;
    if u16::from_be_bytes([udp[2], udp[3]]) != CLIENT_PORT {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
    let message = datagram.get(UDP..length)?;
    let mut source = [0; 6];
    source.copy_from_slice(&frame[6..12]);
    Some((source, message))
}

/// The checksum of the Internet protocols (RFC 1071) over parts of which all but the last have an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            let low = pair.get(1).copied().unwrap_or_default();
            sum += u32::from(u16::from_be_bytes([pair[0], low]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("the carries are folded")
}

/// The addresses of a client that has none, for tests.
#[cfg(any(test, fuzzing))]
pub(crate) const ADDRESSES: Addresses = Addresses {
    source_mac: [2, 0, 0, 0, 0, 1],
    destination_mac: crate::BROADCAST,
    source: Ipv4Addr::UNSPECIFIED,
    destination: Ipv4Addr::BROADCAST,
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The frame as it would come to a client.
    fn to_client(message: &[u8]) -> Vec<u8> {
        let mut frame = encode(&ADDRESSES, message).unwrap();
        frame[36..38].copy_from_slice(&CLIENT_PORT.to_be_bytes());
        frame
    }

    #[test]
    fn checksums_are_right() {
        let frame = encode(&ADDRESSES, b"odd").unwrap();
        assert_eq!(checksum(&[&frame[14..34]]), 0);
        let length = [0, PROTOCOL_UDP, 0, 11];
        assert_eq!(checksum(&[&frame[26..34], &length, &frame[34..]]), 0);
        // The example of RFC 1071.
        assert_eq!(
            checksum(&[&[0, 1, 0xf2, 3], &[0xf4, 0xf5, 0xf6, 0xf7]]),
            !0xddf2
        );
        assert_eq!(encode(&ADDRESSES, &vec![0; 65_530]), None);
    }

    #[test]
    fn frame_is_read_without_its_padding() {
        let mut frame = to_client(b"message");
        frame.extend_from_slice(&[0; 20]);
        assert_eq!(decode(&frame), Some(([2, 0, 0, 0, 0, 1], &b"message"[..])));
    }

    #[test]
    fn other_frames_are_passed_over() {
        let good = to_client(b"message");
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            // Every change but the last one is in a header whose checksum is made right.
            bytes[24..26].fill(0);
            let sum = checksum(&[&bytes[14..34]]);
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
            bytes
        };
        assert!(decode(&with(22, 3)).is_some());
        for (what, bytes) in [
            ("ARP", with(13, 6)),
            ("IPv6", with(14, 0x65)),
            ("a short header", with(14, 0x44)),
            ("TCP", with(23, 6)),
            ("a fragment", with(20, 0x20)),
            ("a length beyond the frame", with(17, 200)),
            ("another port", with(37, 99)),
            ("a length of UDP beyond the packet", with(39, 200)),
            ("a length of UDP below its header", with(39, 3)),
            ("nothing", Vec::new()),
            ("half", good[..30].to_vec()),
        ] {
            assert_eq!(decode(&bytes), None, "{what}");
        }
        let mut broken = good;
        broken[22] = 3;
        assert_eq!(decode(&broken), None, "checksum");
    }
}
