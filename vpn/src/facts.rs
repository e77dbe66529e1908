//! The facts that a running VPN gives about this node: the input of the address plan.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use serde::{Deserialize, Serialize};

use crate::Prefix;

/// The facts of this node in a VPN that is up, also in the file of the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// The network interface, such as `tailscale0`; it can be renamed, so it is never assumed.
    pub interface: String,
    /// The node's addresses in the VPN.
    #[serde(flatten)]
    pub addresses: Addresses,
    /// The node's name in the VPN without a trailing dot, such as `a.tail1234.ts.net`.
    pub dns_name: Option<String>,
    /// The interface's MTU in bytes.
    pub mtu: u32,
    /// The ranges that are reached through the interface, where the provider has none of its own.
    #[serde(default)]
    pub ranges: Vec<Prefix>,
}

/// At most one address of each family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// The IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ipv4, self.ipv6) {
            (Some(ipv4), Some(ipv6)) => write!(f, "{ipv4}, {ipv6}"),
            (Some(ipv4), None) => ipv4.fmt(f),
            (None, Some(ipv6)) => ipv6.fmt(f),
            (None, None) => f.write_str("no address"),
        }
    }
}

impl FromIterator<IpAddr> for Addresses {
    /// Takes the first address of each family.
    fn from_iter<T: IntoIterator<Item = IpAddr>>(addresses: T) -> Self {
        let mut first = Self::default();
        for address in addresses {
            match address {
                IpAddr::V4(address) => {
                    first.ipv4.get_or_insert(address);
                }
                IpAddr::V6(address) => {
                    first.ipv6.get_or_insert(address);
                }
            }
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_address_of_each_family_counts() {
        let all = ["fd7a::1", "100.64.0.1", "100.64.0.2", "fd7a::2"];
        let addresses: Addresses = all
            .iter()
            .map(|text| text.parse::<IpAddr>().unwrap())
            .collect();
        assert_eq!(addresses.ipv4, Some(Ipv4Addr::new(100, 64, 0, 1)));
        assert_eq!(addresses.ipv6, Some("fd7a::1".parse().unwrap()));
        assert_eq!(addresses.to_string(), "100.64.0.1, fd7a::1");
    }
}
