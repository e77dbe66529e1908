//! Addresses with a prefix length, as CNI writes them: `10.0.0.5/24`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An address and the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Cidr {
    /// The address, with its host bits.
    pub(crate) address: IpAddr,
    /// The length of the prefix: at most 32 or 128.
    pub(crate) length: u8,
}

/// A text that is not an address, or not an address with a prefix length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddressError {
    /// Not an address with a prefix length.
    Cidr(String),
    /// Not an address.
    Address(String),
}

impl Cidr {
    /// Makes a prefix; `length` must be within the family.
    pub(crate) const fn new(address: IpAddr, length: u8) -> Self {
        Self { address, length }
    }

    /// Only the address: a prefix of all bits.
    pub(crate) const fn host(address: IpAddr) -> Self {
        Self::new(address, bits(address))
    }

    /// Returns the mask in hexadecimal digits, as the reference prints it in errors.
    pub(crate) fn mask_text(self) -> String {
        let ones = match self.address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::BROADCAST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)),
        };
        match mask(ones, self.length) {
            IpAddr::V4(mask) => format!("{:08x}", mask.to_bits()),
            IpAddr::V6(mask) => format!("{:032x}", mask.to_bits()),
        }
    }

    /// Returns the network: the address without its host bits.
    pub(crate) fn network(self) -> Self {
        Self::new(mask(self.address, self.length), self.length)
    }

    /// Returns whether the network contains the address; those of the other family are never inside.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && mask(address, self.length) == mask(self.address, self.length)
    }

    /// Returns the last address of the network: IPv4's broadcast address.
    pub(crate) fn last(self) -> IpAddr {
        let host_bits = u32::from(bits(self.address) - self.length);
        match mask(self.address, self.length) {
            IpAddr::V4(network) => {
                let ones = 1u32.checked_shl(host_bits).unwrap_or(0).wrapping_sub(1);
                IpAddr::V4(Ipv4Addr::from_bits(network.to_bits() | ones))
            }
            IpAddr::V6(network) => {
                let ones = 1u128.checked_shl(host_bits).unwrap_or(0).wrapping_sub(1);
                IpAddr::V6(Ipv6Addr::from_bits(network.to_bits() | ones))
            }
        }
    }
}

/// Returns how many bits an address of this family has.
pub(crate) const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Returns the address that follows, or `None` after the last one of the family.
pub(crate) fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => address
            .to_bits()
            .checked_add(1)
            .map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        IpAddr::V6(address) => address
            .to_bits()
            .checked_add(1)
            .map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
    }
}

/// Reads an address. An IPv4 address that is written in IPv6's form is IPv4.
pub(crate) fn parse(text: &str) -> Result<IpAddr, AddressError> {
    text.parse()
        .map(|address: IpAddr| address.to_canonical())
        .map_err(|_| AddressError::Address(text.to_owned()))
}

/// Reads an address; an empty text is none.
pub(crate) fn parse_optional(text: &str) -> Result<Option<IpAddr>, AddressError> {
    if text.is_empty() {
        return Ok(None);
    }
    parse(text).map(Some)
}

fn mask(address: IpAddr, length: u8) -> IpAddr {
    let host_bits = u32::from(bits(address).saturating_sub(length));
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

impl FromStr for Cidr {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError::Cidr(text.to_owned());
        let (address, length) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        let length: u8 = length
            .parse()
            .ok()
            .filter(|length| is_number && *length <= bits(address))
            .ok_or_else(wrong)?;
        Ok(Self::new(address, length))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.length)
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cidr(text) => write!(formatter, "invalid CIDR address: {text}"),
            Self::Address(text) => write!(formatter, "invalid IP address: {text}"),
        }
    }
}

impl std::error::Error for AddressError {}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_contain_their_addresses() {
        let net = cidr("10.1.2.3/20");
        assert_eq!(net.network().to_string(), "10.1.0.0/20");
        assert_eq!(net.last().to_string(), "10.1.15.255");
        assert!(net.contains("10.1.15.1".parse().unwrap()));
        assert!(!net.contains("10.1.16.0".parse().unwrap()));
        assert!(!net.contains("::".parse().unwrap()));
        assert!(cidr("0.0.0.0/0").contains("255.1.1.1".parse().unwrap()));
        assert_eq!(
            cidr("::/0").last().to_string(),
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
        );
        assert_eq!(cidr("fd00::1/128").last().to_string(), "fd00::1");
        assert_eq!(
            next("10.0.0.255".parse().unwrap()).unwrap().to_string(),
            "10.0.1.0"
        );
        assert_eq!(next("255.255.255.255".parse().unwrap()), None);
        assert_eq!(net.mask_text(), "fffff000");
        assert_eq!(
            cidr("fd00::/68").mask_text(),
            "fffffffffffffffff000000000000000"
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "10.0.0.1",
            "10.0.0.1/33",
            "::/129",
            "10.0.0.1/+1",
            "10.0.0/8",
            "a/8",
            "10.0.0.1/",
        ] {
            assert_eq!(
                text.parse::<Cidr>(),
                Err(AddressError::Cidr(text.to_owned()))
            );
        }
    }
}
