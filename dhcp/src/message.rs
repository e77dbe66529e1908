//! DHCP messages as bytes (RFC 2131, section 2).

use std::net::Ipv4Addr;

use crate::Mac;
use crate::options::{Options, code};

const BOOTREQUEST: u8 = 1;
const BOOTREPLY: u8 = 2;
const ETHERNET: u8 = 1;
const BROADCAST_FLAG: u16 = 0x8000;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// The offsets of the fixed fields.
const CHADDR: usize = 28;
const SNAME: usize = 44;
const FILE: usize = 108;
const COOKIE_OFFSET: usize = 236;
const OPTIONS: usize = 240;
/// Servers and relays of BOOTP drop what is shorter.
const MINIMUM_LENGTH: usize = 300;

/// The kind of a message (option 53).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A client looks for servers.
    Discover = 1,
    /// A server offers an address.
    Offer = 2,
    /// A client takes an offer, or renews its lease.
    Request = 3,
    /// A client refuses an address that another node has.
    Decline = 4,
    /// A server grants the lease.
    Ack = 5,
    /// A server refuses the lease.
    Nak = 6,
    /// A client gives its lease back.
    Release = 7,
}

impl Kind {
    fn of(number: u8) -> Option<Self> {
        [
            Self::Discover,
            Self::Offer,
            Self::Request,
            Self::Decline,
            Self::Ack,
            Self::Nak,
            Self::Release,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == number)
    }

    fn is_reply(self) -> bool {
        matches!(self, Self::Offer | Self::Ack | Self::Nak)
    }
}

/// A message of an Ethernet client, or to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The kind; the options repeat it.
    pub kind: Kind,
    /// The number that replies repeat.
    pub transaction: u32,
    /// For how many seconds the client has been looking for a lease.
    pub seconds: u16,
    /// Whether replies must be broadcast, for a client that hears nothing else.
    pub wants_broadcast: bool,
    /// `ciaddr`: the address that the client has and answers for.
    pub client_address: Ipv4Addr,
    /// `yiaddr`: the address that the server gives.
    pub your_address: Ipv4Addr,
    /// `siaddr`: the next server of a boot.
    pub next_server: Ipv4Addr,
    /// `giaddr`: the relay that forwarded the message.
    pub relay: Ipv4Addr,
    /// `chaddr`: the client's hardware address.
    pub mac: Mac,
    pub options: Options,
}

impl Message {
    /// Makes a message with nothing but its kind and its client.
    pub fn new(kind: Kind, transaction: u32, mac: Mac) -> Self {
        let mut options = Options::default();
        options.set(code::MESSAGE_TYPE, [kind as u8]);
        Self {
            kind,
            transaction,
            seconds: 0,
            wants_broadcast: false,
            client_address: Ipv4Addr::UNSPECIFIED,
            your_address: Ipv4Addr::UNSPECIFIED,
            next_server: Ipv4Addr::UNSPECIFIED,
            relay: Ipv4Addr::UNSPECIFIED,
            mac,
            options,
        }
    }

    /// Returns the bytes that follow the UDP header.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; OPTIONS];
        bytes[0] = if self.kind.is_reply() {
            BOOTREPLY
        } else {
            BOOTREQUEST
        };
        bytes[1] = ETHERNET;
        bytes[2] = 6;
        bytes[4..8].copy_from_slice(&self.transaction.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.seconds.to_be_bytes());
        if self.wants_broadcast {
            bytes[10..12].copy_from_slice(&BROADCAST_FLAG.to_be_bytes());
        }
        let addresses = [
            self.client_address,
            self.your_address,
            self.next_server,
            self.relay,
        ];
        for (at, address) in addresses.iter().enumerate() {
            bytes[12 + at * 4..16 + at * 4].copy_from_slice(&address.octets());
        }
        bytes[CHADDR..CHADDR + 6].copy_from_slice(&self.mac);
        bytes[COOKIE_OFFSET..OPTIONS].copy_from_slice(&COOKIE);
        self.options.write(&mut bytes);
        if bytes.len() < MINIMUM_LENGTH {
            bytes.resize(MINIMUM_LENGTH, 0);
        }
        bytes
    }

    /// Returns the transaction of what may be a message, which costs less than to read it.
    pub(crate) fn transaction_of(bytes: &[u8]) -> Option<u32> {
        let number = bytes.get(4..8)?.first_chunk()?;
        Some(u32::from_be_bytes(*number))
    }

    /// Reads a message, or returns `None` for bytes that are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < OPTIONS || bytes[COOKIE_OFFSET..OPTIONS] != COOKIE {
            return None;
        }
        let mut options = Options::default();
        options.read(&bytes[OPTIONS..]);
        // Fields for the name of a boot server and its file may have further options: bit 1 is the file's, bit 2 the name's.
        let overload = match options.get(code::OVERLOAD) {
            Some([fields]) => *fields,
            _ => 0,
        };
        if overload & 1 != 0 {
            options.read(&bytes[FILE..COOKIE_OFFSET]);
        }
        if overload & 2 != 0 {
            options.read(&bytes[SNAME..FILE]);
        }
        let kind = match options.get(code::MESSAGE_TYPE) {
            Some([number]) => Kind::of(*number)?,
            _ => return None,
        };
        if (bytes[0] == BOOTREPLY) != kind.is_reply() || bytes[1] != ETHERNET || bytes[2] != 6 {
            return None;
        }
        let four = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let address = |at: usize| Ipv4Addr::from(four(at));
        let mut mac = [0; 6];
        mac.copy_from_slice(&bytes[CHADDR..CHADDR + 6]);
        Some(Self {
            kind,
            transaction: u32::from_be_bytes(four(4)),
            seconds: u16::from_be_bytes([bytes[8], bytes[9]]),
            wants_broadcast: u16::from_be_bytes([bytes[10], bytes[11]]) & BROADCAST_FLAG != 0,
            client_address: address(12),
            your_address: address(16),
            next_server: address(20),
            relay: address(24),
            mac,
            options,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Message {
        let mut message = Message::new(Kind::Offer, 0x1234_5678, [2, 0, 0, 0, 0, 1]);
        message.your_address = Ipv4Addr::new(10, 0, 0, 5);
        message.relay = Ipv4Addr::new(10, 0, 0, 254);
        message.seconds = 300;
        message.wants_broadcast = true;
        message
            .options
            .set(code::SERVER_IDENTIFIER, [10, 0, 0, 1])
            .set(code::LEASE_TIME, [0, 0, 0, 120]);
        message
    }

    #[test]
    fn message_is_read_as_it_is_written() {
        let bytes = offer().encode();
        assert_eq!(bytes.len(), 300);
        assert_eq!(&bytes[..4], [2, 1, 6, 0]);
        assert_eq!(Message::decode(&bytes), Some(offer()));
    }

    #[test]
    fn options_lie_in_fixed_fields_too() {
        let mut expected = offer();
        expected.options.set(code::OVERLOAD, [3]);
        let mut bytes = expected.encode();
        bytes[FILE..FILE + 6].copy_from_slice(&[code::ROUTER, 4, 10, 0, 0, 1]);
        bytes[SNAME..SNAME + 7].copy_from_slice(&[code::ROUTER, 4, 10, 0, 0, 2, 255]);
        let routers = Message::decode(&bytes)
            .unwrap()
            .options
            .addresses(code::ROUTER);
        assert_eq!(
            routers,
            [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)]
        );
    }

    #[test]
    fn other_bytes_are_not_a_message() {
        let good = offer().encode();
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        for (what, bytes) in [
            ("short", good[..239].to_vec()),
            ("cookie", with(236, 0)),
            ("a request that offers", with(0, 1)),
            ("token ring", with(1, 6)),
            ("no type", with(240, 12)),
            ("unknown type", with(242, 99)),
        ] {
            assert_eq!(Message::decode(&bytes), None, "{what}");
        }
    }
}
