//! Ranges of addresses, as routes and subnets are written: `10.42.1.0/24`.

use std::{fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Serialize};

/// A range of addresses; bits after the length are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// A text is not a range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a range of addresses, such as 10.42.1.0/24")]
pub struct PrefixError(String);

impl Prefix {
    /// Returns the range with this address in it, or `None` if the family has no such length.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(address) => {
                let kept = 32_u8.checked_sub(length)?;
                let mask = u32::MAX.checked_shl(kept.into()).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let kept = 128_u8.checked_sub(length)?;
                let mask = u128::MAX.checked_shl(kept.into()).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        };
        Some(Self { address, length })
    }

    /// Returns the first address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Returns the number of bits that all addresses have in common.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Returns the range of one address.
    pub fn host(address: IpAddr) -> Self {
        let length = if address.is_ipv4() { 32 } else { 128 };
        Self { address, length }
    }

    /// Returns whether every address of the other range is in this one.
    pub fn contains(self, other: Self) -> bool {
        self.length <= other.length && Self::new(other.address, self.length) == Some(self)
    }

    /// Returns the addresses that two ranges have in common, which are the smaller range.
    pub fn intersection(self, other: Self) -> Option<Self> {
        if self.contains(other) {
            Some(other)
        } else if other.contains(self) {
            Some(self)
        } else {
            None
        }
    }

    /// Returns whether the range holds every address of its family, as that of a default route.
    pub fn is_default(self) -> bool {
        self.length == 0
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let parse = || {
            let (address, length) = text.split_once('/')?;
            let is_number = length.bytes().all(|byte| byte.is_ascii_digit());
            let length = length.parse().ok().filter(|_| is_number)?;
            Self::new(address.parse().ok()?, length)
        };
        parse().ok_or_else(|| PrefixError(text.to_owned()))
    }
}

impl TryFrom<String> for Prefix {
    type Error = PrefixError;

    fn try_from(text: String) -> Result<Self, PrefixError> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn bits_after_the_length_are_dropped() {
        for (text, expected) in [
            ("10.42.1.7/24", "10.42.1.0/24"),
            ("10.42.1.7/0", "0.0.0.0/0"),
            ("fd00::1:2/64", "fd00::/64"),
            ("fd00::1/128", "fd00::1/128"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(prefix(text).to_string(), expected);
        }
        for text in [
            "10.0.0.0",
            "10.0.0.0/33",
            "::/129",
            "x/8",
            "10.0.0.0/+8",
            "10.0.0.0/",
        ] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn common_addresses_are_the_smaller_range() {
        let check = |one: &str, other: &str, expected: Option<&str>| {
            let found = prefix(one).intersection(prefix(other));
            assert_eq!(found, expected.map(prefix), "{one} {other}");
            assert_eq!(prefix(other).intersection(prefix(one)), found);
        };
        check("10.0.0.0/8", "10.1.0.0/16", Some("10.1.0.0/16"));
        check("10.0.0.0/8", "11.0.0.0/16", None);
        check("0.0.0.0/0", "fd00::/64", None);
        check("::/0", "fd00::/64", Some("fd00::/64"));
        assert!(!prefix("10.1.0.0/16").contains(prefix("10.0.0.0/8")));
    }
}
