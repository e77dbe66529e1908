//! Options of DHCP messages (RFC 2132), as codes and bytes, and the values that a client reads.

use std::net::Ipv4Addr;

pub mod code {
    /// The length of the network's prefix, as a mask.
    pub const SUBNET_MASK: u8 = 1;
    /// Gateways, the best one first.
    pub const ROUTER: u8 = 3;
    /// Servers of DNS.
    pub const NAME_SERVERS: u8 = 6;
    /// The client's name.
    pub const HOST_NAME: u8 = 12;
    /// The client's domain.
    pub const DOMAIN_NAME: u8 = 15;
    /// Routes to classful networks.
    pub const STATIC_ROUTES: u8 = 33;
    /// The address that a client wants.
    pub const REQUESTED_ADDRESS: u8 = 50;
    /// How many seconds a lease is valid.
    pub const LEASE_TIME: u8 = 51;
    /// Which fixed fields hold options, too.
    pub const OVERLOAD: u8 = 52;
    /// The kind of the message.
    pub const MESSAGE_TYPE: u8 = 53;
    /// The address by which the server is known.
    pub const SERVER_IDENTIFIER: u8 = 54;
    /// The options that a client wants.
    pub const PARAMETER_REQUEST_LIST: u8 = 55;
    /// Why a server refuses or a client gives back.
    pub const MESSAGE: u8 = 56;
    /// How long a message may be.
    pub const MAXIMUM_SIZE: u8 = 57;
    /// After how many seconds the lease is renewed.
    pub const RENEWAL_TIME: u8 = 58;
    /// After how many seconds any server may renew the lease.
    pub const REBINDING_TIME: u8 = 59;
    /// The kind of client, as its vendor names it.
    pub const VENDOR_CLASS: u8 = 60;
    /// The identifier that the server tells clients apart by.
    pub const CLIENT_IDENTIFIER: u8 = 61;
    /// The class of the client's user.
    pub const USER_CLASS: u8 = 77;
    /// Routes to networks of any length, which take the place of routers and static routes (RFC 3442).
    pub const CLASSLESS_ROUTES: u8 = 121;
}

const PAD: u8 = 0;
const END: u8 = 255;

/// Returns the code of an option that a configuration names, by its name or its number.
pub fn code_of(name: &str) -> Option<u8> {
    Some(match name {
        "dhcp-client-identifier" => code::CLIENT_IDENTIFIER,
        "subnet-mask" => code::SUBNET_MASK,
        "routers" => code::ROUTER,
        "host-name" => code::HOST_NAME,
        "user-class" => code::USER_CLASS,
        "vendor-class-identifier" => code::VENDOR_CLASS,
        number if number.bytes().all(|byte| byte.is_ascii_digit()) => return number.parse().ok(),
        _ => return None,
    })
}

/// The options of a message, in their order. Each code is there once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(Vec<(u8, Vec<u8>)>);

impl Options {
    /// Sets an option, in place of one of the same code.
    pub fn set(&mut self, code: u8, value: impl Into<Vec<u8>>) -> &mut Self {
        let value = value.into();
        match self.0.iter_mut().find(|(present, _)| *present == code) {
            Some((_, present)) => *present = value,
            None => self.0.push((code, value)),
        }
        self
    }

    /// Returns the bytes of an option.
    pub fn get(&self, code: u8) -> Option<&[u8]> {
        self.0
            .iter()
            .find(|(present, _)| *present == code)
            .map(|(_, value)| value.as_slice())
    }

    /// Returns a number of four bytes.
    pub fn number(&self, code: u8) -> Option<u32> {
        Some(u32::from_be_bytes(self.get(code)?.try_into().ok()?))
    }

    pub fn address(&self, code: u8) -> Option<Ipv4Addr> {
        self.number(code).map(Ipv4Addr::from_bits)
    }

    /// Returns the addresses of a list.
    pub fn addresses(&self, code: u8) -> Vec<Ipv4Addr> {
        let bytes = self.get(code).unwrap_or_default();
        let (addresses, _) = bytes.as_chunks::<4>();
        addresses
            .iter()
            .map(|octets| Ipv4Addr::from(*octets))
            .collect()
    }

    /// Reads options up to the end mark, or to one that is cut short. An option that comes several times is one long option (RFC 3396).
    pub(crate) fn read(&mut self, mut bytes: &[u8]) {
        while let [code, rest @ ..] = bytes {
            match *code {
                PAD => bytes = rest,
                END => return,
                code => {
                    let Some((length, rest)) = rest.split_first() else {
                        return;
                    };
                    let Some((value, rest)) = rest.split_at_checked(usize::from(*length)) else {
                        return;
                    };
                    match self.0.iter_mut().find(|(present, _)| *present == code) {
                        Some((_, present)) => present.extend_from_slice(value),
                        None => self.0.push((code, value.to_vec())),
                    }
                    bytes = rest;
                }
            }
        }
    }

    /// Appends the options and the end mark; a long value is written in parts.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        for (code, value) in &self.0 {
            let mut rest = value.as_slice();
            loop {
                let (part, next) = rest.split_at(rest.len().min(255));
                bytes.push(*code);
                bytes.push(u8::try_from(part.len()).expect("a part has at most 255 bytes"));
                bytes.extend_from_slice(part);
                rest = next;
                if rest.is_empty() {
                    break;
                }
            }
        }
        bytes.push(END);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_have_codes() {
        for (name, expected) in [
            ("host-name", Some(12)),
            ("routers", Some(3)),
            ("121", Some(121)),
            ("255", Some(255)),
            ("256", None),
            ("+1", None),
            ("", None),
            ("router", None),
        ] {
            assert_eq!(code_of(name), expected, "{name:?}");
        }
    }

    #[test]
    fn options_are_written_as_they_are_read() {
        let mut options = Options::default();
        options
            .set(code::MESSAGE_TYPE, [1])
            .set(code::HOST_NAME, "a")
            .set(code::HOST_NAME, "b")
            .set(43, vec![7; 600])
            .set(80, []);
        let mut bytes = Vec::new();
        options.write(&mut bytes);
        let mut read = Options::default();
        read.read(&bytes);
        assert_eq!(read, options);
        assert_eq!(read.get(code::HOST_NAME), Some(&b"b"[..]));
        assert_eq!(read.get(43).map(<[u8]>::len), Some(600));
    }

    #[test]
    fn options_end_where_they_are_cut_short() {
        for (bytes, expected) in [
            (&[0, 0, 3, 4, 10, 0, 0, 1, 255, 1, 1, 1][..], 1),
            (&[3, 4, 10, 0, 0], 0),
            (&[3], 0),
            (&[], 0),
        ] {
            let mut options = Options::default();
            options.read(bytes);
            assert_eq!(options.0.len(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn values_have_their_types() {
        let mut options = Options::default();
        options
            .set(code::ROUTER, [10, 0, 0, 1, 10, 0, 0, 2, 9])
            .set(code::LEASE_TIME, [0, 0, 1, 0])
            .set(code::SUBNET_MASK, [255, 255]);
        let routers = options.addresses(code::ROUTER);
        assert_eq!(
            routers,
            [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)]
        );
        assert_eq!(options.number(code::LEASE_TIME), Some(256));
        assert_eq!(options.address(code::SUBNET_MASK), None);
    }
}
