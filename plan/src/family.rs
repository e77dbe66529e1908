//! The families of IP addresses.

use std::net::IpAddr;

/// A family of IP addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both families.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    /// Whether this destination covers every address of the family.
    pub fn is_default(self, destination: &str) -> bool {
        let Some((address, "0")) = destination.split_once('/') else {
            return false;
        };
        address
            .parse()
            .is_ok_and(|address: IpAddr| address.is_unspecified() && Self::of(address) == self)
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_destination_has_prefix_length_zero() {
        let text = "0.0.0.0/0";
        assert!(Family::V4.is_default(text) && !Family::V6.is_default(text));
        for text in ["::/0", "::0/0", "0::0/0"] {
            assert!(Family::V6.is_default(text) && !Family::V4.is_default(text));
        }
        for text in [
            "10.0.0.0/8",
            "0.0.0.0/1",
            "0.0.0.0",
            "",
            "10.0.0.1/0",
            "::/1",
        ] {
            assert!(
                !Family::V4.is_default(text) && !Family::V6.is_default(text),
                "{text}"
            );
        }
    }
}
