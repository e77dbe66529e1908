//! Ranges: the part of a subnet that is handed out, and sets of ranges, of which a container gets one address each.

use std::fmt;
use std::net::IpAddr;

use serde::Deserialize;

use crate::error::{Result, bail, failure};
use crate::ip::{self, AddressError, Cidr, bits, next};

/// A range as the configuration writes it; an empty text is an absent key.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RangeTexts {
    /// The network. Only the range at the top level of `ipam` may be without.
    pub(crate) subnet: Option<String>,
    #[serde(rename = "rangestart")]
    pub(crate) first: String,
    #[serde(rename = "rangeend")]
    pub(crate) last: String,
    pub(crate) gateway: String,
}

/// A range whose texts were read.
#[derive(Clone, Debug)]
pub(crate) struct RangeConfig {
    pub(crate) subnet: Option<Cidr>,
    pub(crate) first: Option<IpAddr>,
    pub(crate) last: Option<IpAddr>,
    pub(crate) gateway: Option<IpAddr>,
}

impl RangeTexts {
    /// Reads the texts.
    pub(crate) fn read(&self) -> Result<RangeConfig> {
        let wrong = |error: AddressError| failure!("{error}");
        let optional = |text: &str| ip::parse_optional(text).map_err(wrong);
        let subnet = self.subnet.as_ref().map(|text| text.parse().map_err(wrong));
        Ok(RangeConfig {
            subnet: subnet.transpose()?,
            first: optional(&self.first)?,
            last: optional(&self.last)?,
            gateway: optional(&self.gateway)?,
        })
    }
}

/// A range of addresses in one subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The network to which the addresses belong.
    pub(crate) subnet: Cidr,
    pub(crate) first: IpAddr,
    pub(crate) last: IpAddr,
    /// The gateway, which no container gets.
    pub(crate) gateway: IpAddr,
}

/// Ranges of one family that do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeSet(pub(crate) Vec<Range>);

impl Range {
    pub(crate) fn parse(config: &RangeConfig) -> Result<Self> {
        let subnet = config
            .subnet
            .ok_or_else(|| failure!("IP <nil> not v4 nor v6"))?;
        check_subnet(subnet)?;
        let second = next(subnet.address).unwrap_or(subnet.address);
        let gateway = config.gateway.unwrap_or(second);
        let (first, last) = (config.first, config.last);
        let outside =
            |what: &str, address: IpAddr| failure!("{what} {address} not in network {subnet}");
        if let Some(first) = first {
            let is_behind = last.is_some_and(|last| is_before(last, first));
            if is_behind || !subnet.contains(first) {
                return Err(outside("RangeStart", first));
            }
        }
        let first = first.unwrap_or(second);
        if let Some(last) = last
            && (is_before(last, first) || !subnet.contains(last))
        {
            return Err(outside("RangeEnd", last));
        }
        Ok(Self {
            subnet,
            first,
            last: last.unwrap_or_else(|| last_host(subnet)),
            gateway,
        })
    }

    pub fn first(&self) -> IpAddr {
        self.first
    }

    pub fn last(&self) -> IpAddr {
        self.last
    }

    /// Returns how many addresses the range may hand out.
    pub fn count(&self) -> u128 {
        let [first, last] = [self.first, self.last].map(|address| match address {
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => address.to_bits(),
        });
        let gateways = u128::from(self.contains(self.gateway));
        (last - first).saturating_add(1) - gateways
    }

    /// Returns whether the address is one that the range may hand out, or its gateway.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.subnet.contains(address) && self.first <= address && address <= self.last
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.first)
            || self.contains(other.last)
            || other.contains(self.first)
            || other.contains(self.last)
    }
}

impl RangeSet {
    /// Reads a set; an error says what is wrong with it.
    pub(crate) fn parse(configs: &[RangeConfig]) -> Result<Self> {
        if configs.is_empty() {
            bail!("empty range set");
        }
        let mut ranges: Vec<Range> = Vec::new();
        for config in configs {
            let range = Range::parse(config)?;
            let is_same_family = ranges
                .iter()
                .all(|other| other.first.is_ipv4() == range.first.is_ipv4());
            if !is_same_family {
                bail!("mixed address families");
            }
            ranges.push(range);
        }
        for (index, range) in ranges.iter().enumerate() {
            if let Some(other) = ranges[index + 1..]
                .iter()
                .find(|other| range.overlaps(other))
            {
                bail!("subnets {range} and {other} overlap");
            }
        }
        Ok(Self(ranges))
    }

    /// Returns whether the set hands out IPv4 addresses.
    pub(crate) fn is_ipv4(&self) -> bool {
        self.0.iter().any(|range| range.first.is_ipv4())
    }

    /// Returns the range that may hand out this address.
    pub(crate) fn range_of(&self, address: IpAddr) -> Option<&Range> {
        self.0.iter().find(|range| range.contains(address))
    }

    /// Returns whether both sets have an address in common.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let overlaps = |range: &Range| other.0.iter().any(|other| range.overlaps(other));
        self.0.iter().any(overlaps)
    }
}

/// Fails unless the network of a range has room for a gateway and a container.
pub(crate) fn check_subnet(subnet: Cidr) -> Result<()> {
    if subnet.length > bits(subnet.address) - 2 {
        bail!("Network {subnet} too small to allocate from");
    }
    if subnet.address.to_canonical() != subnet.address {
        bail!("IPNet IP and Mask version mismatch");
    }
    let network = subnet.network();
    if network != subnet {
        bail!(
            "Network has host bits set. For a subnet mask of length {} the network address is {}",
            network.length,
            network.address
        );
    }
    Ok(())
}

/// Addresses of two families have no order.
pub(crate) fn is_before(address: IpAddr, other: IpAddr) -> bool {
    address.is_ipv4() == other.is_ipv4() && address < other
}

/// Returns the last address of a network for a container: IPv4's very last one is the broadcast address.
pub(crate) fn last_host(subnet: Cidr) -> IpAddr {
    match subnet.last() {
        IpAddr::V4(address) => IpAddr::V4((address.to_bits() - 1).into()),
        address @ IpAddr::V6(_) => address,
    }
}

impl fmt::Display for Range {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.first, self.last)
    }
}

impl fmt::Display for RangeSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            range.fmt(formatter)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `subnet start end gateway`, with `-` for an absent key.
    pub(crate) fn set(texts: &[&str]) -> Result<RangeSet> {
        let configs = texts
            .iter()
            .map(|text| {
                let mut fields = text.split(' ').map(|field| match field {
                    "-" => String::new(),
                    field => field.to_owned(),
                });
                let texts = RangeTexts {
                    subnet: fields.next().filter(|subnet| !subnet.is_empty()),
                    first: fields.next().unwrap_or_default(),
                    last: fields.next().unwrap_or_default(),
                    gateway: fields.next().unwrap_or_default(),
                };
                texts.read()
            })
            .collect::<Result<Vec<_>>>()?;
        RangeSet::parse(&configs)
    }

    #[track_caller]
    pub(crate) fn check(text: &str, expected: &str, gateway: &str) {
        let set = set(&[text]).unwrap();
        assert_eq!(set.to_string(), expected);
        assert_eq!(set.0[0].gateway.to_string(), gateway);
    }

    #[track_caller]
    pub(crate) fn check_refused(texts: &[&str], expected: &str) {
        assert_eq!(set(texts).unwrap_err().msg, expected);
    }

    #[test]
    pub(crate) fn absent_keys_have_defaults() {
        check("10.0.0.0/24", "10.0.0.1-10.0.0.254", "10.0.0.1");
        check(
            "10.0.0.0/24 10.0.0.9 10.0.0.20 10.0.0.254",
            "10.0.0.9-10.0.0.20",
            "10.0.0.254",
        );
        check("fd00::/64", "fd00::1-fd00::ffff:ffff:ffff:ffff", "fd00::1");
        check(
            "10.0.0.0/30 - - ::ffff:10.9.9.9",
            "10.0.0.1-10.0.0.2",
            "10.9.9.9",
        );
        check("0.0.0.0/0", "0.0.0.1-255.255.255.254", "0.0.0.1");
    }

    #[test]
    pub(crate) fn wrong_ranges_are_refused() {
        check_refused(&[], "empty range set");
        check_refused(&["-"], "IP <nil> not v4 nor v6");
        check_refused(&["10.0.0.0"], "invalid CIDR address: 10.0.0.0");
        check_refused(
            &["10.0.0.0/31"],
            "Network 10.0.0.0/31 too small to allocate from",
        );
        check_refused(
            &["fd00::/127"],
            "Network fd00::/127 too small to allocate from",
        );
        check_refused(
            &["10.0.0.5/24"],
            "Network has host bits set. For a subnet mask of length 24 the network address is 10.0.0.0",
        );
        check_refused(
            &["::ffff:10.0.0.0/104"],
            "IPNet IP and Mask version mismatch",
        );
        check_refused(
            &["10.0.0.0/24 10.0.1.1"],
            "RangeStart 10.0.1.1 not in network 10.0.0.0/24",
        );
        check_refused(
            &["10.0.0.0/24 10.0.0.9 10.0.0.8"],
            "RangeStart 10.0.0.9 not in network 10.0.0.0/24",
        );
        check_refused(
            &["10.0.0.0/24 - 10.0.0.0"],
            "RangeEnd 10.0.0.0 not in network 10.0.0.0/24",
        );
        check_refused(
            &["10.0.0.0/24 - fd00::1"],
            "RangeEnd fd00::1 not in network 10.0.0.0/24",
        );
        check_refused(&["10.0.0.0/24 x"], "invalid IP address: x");
        check_refused(&["10.0.0.0/24", "fd00::/64"], "mixed address families");
        check_refused(
            &["10.0.0.0/16 - 10.0.0.9", "10.0.0.0/24 10.0.0.9"],
            "subnets 10.0.0.1-10.0.0.9 and 10.0.0.9-10.0.0.254 overlap",
        );
    }

    #[test]
    pub(crate) fn parts_of_one_subnet_do_not_overlap() {
        let first = set(&["10.0.0.0/24 - 10.0.0.9", "10.0.0.0/24 10.0.0.20"]).unwrap();
        let second = set(&["10.0.0.0/24 10.0.0.10 10.0.0.19"]).unwrap();
        assert!(!first.overlaps(&second));
        assert!(first.overlaps(&set(&["10.0.0.0/24 10.0.0.15 10.0.0.20"]).unwrap()));
        assert!(!first.overlaps(&set(&["fd00::/64"]).unwrap()));
        assert_eq!(first.range_of("10.0.0.10".parse().unwrap()), None);
        let found = first.range_of("10.0.0.20".parse().unwrap()).unwrap();
        assert_eq!(found.to_string(), "10.0.0.20-10.0.0.254");
    }
}
