//! Ranges: the addresses that a network may give, and the blocks of 32 addresses in which nodes hold them.
//!
//! All arithmetic is done with 128 bits, so one code serves both families. The ranges of `host-local` follow the words of the upstream
//! plugin, with its messages, and give the gateway's default even to `/31`; these rules differ, so they are not shared.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The number of addresses in a block.
pub const BLOCK_SIZE: u32 = 32;

/// What is wrong with a range; the caller adds where it was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    #[error("{0:?} is not an IP address; write one such as 10.20.0.1 or fd00:20::1")]
    NotAnAddress(String),
    #[error("{address} is an IPv4 address written as IPv6; write {v4}")]
    Mapped { address: Ipv6Addr, v4: Ipv4Addr },
    #[error("{0:?} is not a subnet; write one such as 10.20.0.0/16 or fd00:20::/64")]
    NotASubnet(String),
    #[error("{given} has bits behind its prefix; write {subnet}")]
    HostBits { given: String, subnet: Subnet },
    #[error("{what} {address} is outside {subnet}; choose an address of that subnet")]
    Outside {
        what: &'static str,
        address: IpAddr,
        subnet: Subnet,
    },
    #[error("the range begins at {first}, behind its end {last}; exchange the two")]
    Reversed { first: IpAddr, last: IpAddr },
    #[error(
        "{subnet} has no address left to give; choose a larger range, another gateway or fewer exclusions"
    )]
    Empty { subnet: Subnet },
}

/// A subnet without bits behind its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    first: IpAddr,
    length: u8,
}

/// The addresses of one subnet that may be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    subnet: Subnet,
    gateway: Option<IpAddr>,
    /// First and last address of each part that may be given, in ascending order. It is never empty.
    parts: Vec<(u128, u128)>,
}

/// A block of [`BLOCK_SIZE`] addresses that begins at a multiple of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    first: IpAddr,
}

/// The limits of a range as a definition writes them. `None` is the subnet's own limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub first: Option<IpAddr>,
    pub last: Option<IpAddr>,
    pub gateway: Option<IpAddr>,
}

impl Range {
    /// Returns the range of a subnet between its limits. Network, broadcast and gateway addresses are not part of it.
    pub fn new(subnet: Subnet, limits: Limits) -> Result<Self, RangeError> {
        let named = [
            ("start", limits.first),
            ("end", limits.last),
            ("gateway", limits.gateway),
        ];
        for (what, address) in named {
            if let Some(address) = address.filter(|address| !subnet.contains(*address)) {
                return Err(RangeError::Outside {
                    what,
                    address,
                    subnet,
                });
            }
        }
        let first = limits.first.unwrap_or(subnet.first);
        let last = limits.last.unwrap_or(subnet.last());
        if first > last {
            return Err(RangeError::Reversed { first, last });
        }
        let mut range = Self {
            subnet,
            gateway: limits.gateway,
            parts: vec![(bits(first), bits(last))],
        };
        if subnet.has_network_address() {
            range.remove(bits(subnet.first), bits(subnet.first));
            if subnet.first.is_ipv4() {
                range.remove(bits(subnet.last()), bits(subnet.last()));
            }
        }
        if let Some(gateway) = limits.gateway {
            range.remove(bits(gateway), bits(gateway));
        }
        range.check()
    }

    /// Returns the range without these addresses. Exclusions that have none of its addresses change nothing.
    pub fn without(mut self, exclude: &[Subnet]) -> Result<Self, RangeError> {
        let same_family = |other: &&Subnet| other.first.is_ipv4() == self.subnet.first.is_ipv4();
        for excluded in exclude
            .iter()
            .filter(same_family)
            .copied()
            .collect::<Vec<_>>()
        {
            self.remove(bits(excluded.first), bits(excluded.last()));
        }
        self.check()
    }

    fn check(self) -> Result<Self, RangeError> {
        let subnet = self.subnet;
        if self.parts.is_empty() {
            return Err(RangeError::Empty { subnet });
        }
        Ok(self)
    }

    fn remove(&mut self, first: u128, last: u128) {
        let keep = |(from, to): (u128, u128)| {
            if last < from || to < first {
                return [Some((from, to)), None];
            }
            [
                (from < first).then(|| (from, first - 1)),
                (last < to).then(|| (last + 1, to)),
            ]
        };
        self.parts = self.parts.drain(..).flat_map(keep).flatten().collect();
    }

    /// Returns the range of one of its addresses, or `None` when it may not give this one.
    pub fn only(&self, address: IpAddr) -> Option<Self> {
        let parts = vec![(bits(address), bits(address))];
        let narrowed = || Self {
            parts,
            ..self.clone()
        };
        self.contains(address).then(narrowed)
    }

    /// Returns what the range has of a part of its subnet, as a range of that part. `None` is nothing, or no part.
    pub fn within(&self, part: Subnet) -> Option<Self> {
        let mut narrowed = self.clone();
        let (first, last) = (bits(part.first), bits(part.last()));
        if !self.subnet.contains(part.first) || !self.subnet.contains(part.last()) {
            return None;
        }
        if let Some(before) = first.checked_sub(1) {
            narrowed.remove(0, before);
        }
        if let Some(behind) = last.checked_add(1) {
            narrowed.remove(behind, u128::MAX);
        }
        narrowed.subnet = part;
        narrowed.check().ok()
    }

    /// Returns the subnet, whose prefix length the pod's address has.
    pub fn subnet(&self) -> Subnet {
        self.subnet
    }

    /// Returns the gateway, if there is one.
    pub fn gateway(&self) -> Option<IpAddr> {
        self.gateway
    }

    /// Returns the first address that the range may give.
    pub fn first(&self) -> IpAddr {
        self.end(self.parts.first().map(|(first, _)| *first))
    }

    /// Returns the last address that the range may give.
    pub fn last(&self) -> IpAddr {
        self.end(self.parts.last().map(|(_, last)| *last))
    }

    fn end(&self, bits: Option<u128>) -> IpAddr {
        let is_ipv4 = self.subnet.first.is_ipv4();
        bits.map_or(self.subnet.first, |bits| address(bits, is_ipv4))
    }

    /// Returns the addresses that the range may give, in ascending order.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let is_ipv4 = self.subnet.first.is_ipv4();
        let parts = self.parts.iter();
        parts
            .flat_map(move |(first, last)| (*first..=*last).map(move |bits| address(bits, is_ipv4)))
    }

    /// Returns whether the range may give this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let value = bits(address);
        address.is_ipv4() == self.subnet.first.is_ipv4()
            && self
                .parts
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&value))
    }

    /// Returns how many addresses the range may give.
    pub fn count(&self) -> u128 {
        // Of `::/0` the network address is missing, so the sum has 128 bits.
        self.parts
            .iter()
            .map(|(first, last)| last - first + 1)
            .sum()
    }

    /// Returns whether both ranges have an address in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        let meets = |(a, b): &(u128, u128)| other.parts.iter().any(|(c, d)| a <= d && c <= b);
        self.subnet.first.is_ipv4() == other.subnet.first.is_ipv4() && self.parts.iter().any(meets)
    }

    /// Returns the slots of a block whose addresses the range may give, as a set of bits: bit 0 is the block's first address.
    pub fn slots(&self, block: Block) -> u32 {
        (0..BLOCK_SIZE)
            .filter(|slot| self.contains(block.address(*slot)))
            .fold(0, |set, slot| set | 1 << slot)
    }

    /// Returns how many blocks have an address of the range.
    pub fn block_count(&self) -> u128 {
        self.block_runs()
            .map(|(first, last)| last - first + 1)
            .sum()
    }

    /// Returns a block by its place among those of the range, which are in ascending order.
    pub fn block_at(&self, mut place: u128) -> Option<Block> {
        for (first, last) in self.block_runs() {
            if place <= last - first {
                let value = (first + place) * u128::from(BLOCK_SIZE);
                return Some(Block {
                    first: address(value, self.subnet.first.is_ipv4()),
                });
            }
            place -= last - first + 1;
        }
        None
    }

    /// Returns the first and last numbers of blocks that follow each other, each block once.
    fn block_runs(&self) -> impl Iterator<Item = (u128, u128)> + '_ {
        let size = u128::from(BLOCK_SIZE);
        let mut next = 0;
        self.parts.iter().filter_map(move |(first, last)| {
            let (first, last) = ((first / size).max(next), last / size);
            next = last + 1;
            (first <= last).then_some((first, last))
        })
    }
}

impl Block {
    /// Returns the block that an address is in.
    pub fn of(of: IpAddr) -> Self {
        let value = bits(of);
        Self {
            first: address(value - value % u128::from(BLOCK_SIZE), of.is_ipv4()),
        }
    }

    /// Returns the block's first address.
    pub fn first(self) -> IpAddr {
        self.first
    }

    /// Returns the address of a slot, of which there are [`BLOCK_SIZE`].
    pub fn address(self, slot: u32) -> IpAddr {
        address(
            bits(self.first) | u128::from(slot % BLOCK_SIZE),
            self.first.is_ipv4(),
        )
    }

    /// Returns the slot of an address, or `None` when the address is of another block.
    pub fn slot(self, of: IpAddr) -> Option<u32> {
        let offset = u32::try_from(bits(of) % u128::from(BLOCK_SIZE)).ok()?;
        (Self::of(of) == self).then_some(offset)
    }
}

impl Subnet {
    /// Returns the subnet's first address.
    pub fn first(self) -> IpAddr {
        self.first
    }

    /// Returns the prefix length in bits.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Returns the subnet's last address.
    pub fn last(self) -> IpAddr {
        address(
            bits(self.first) | host_mask(self.length, self.first),
            self.first.is_ipv4(),
        )
    }

    /// Returns whether the address is of this subnet.
    pub fn contains(self, other: IpAddr) -> bool {
        other.is_ipv4() == self.first.is_ipv4() && self.first <= other && other <= self.last()
    }

    /// Returns how far an address is behind the first one, or `None` when it is not of this subnet.
    pub fn offset(self, other: IpAddr) -> Option<u128> {
        self.contains(other).then(|| bits(other) - bits(self.first))
    }

    /// Returns the address so far behind the first one, or `None` when the subnet is not as large.
    pub fn at(self, offset: u128) -> Option<IpAddr> {
        let is_inside = offset <= host_mask(self.length, self.first);
        is_inside.then(|| address(bits(self.first) + offset, self.first.is_ipv4()))
    }

    /// Returns the address after the network address, or `None` when the subnet has no network address.
    pub fn default_gateway(self) -> Option<IpAddr> {
        self.has_network_address()
            .then(|| address(bits(self.first) + 1, self.first.is_ipv4()))
    }

    /// A subnet of one or two addresses has neither network nor broadcast address (RFC 3021, RFC 6164).
    fn has_network_address(self) -> bool {
        host_mask(self.length, self.first) > 1
    }
}

impl FromStr for Subnet {
    type Err = RangeError;

    /// Reads an address with a prefix length.
    fn from_str(text: &str) -> Result<Self, RangeError> {
        let error = || RangeError::NotASubnet(text.to_owned());
        let (base, length) = text.split_once('/').ok_or_else(error)?;
        let base = parse_address(base)?;
        let length: u8 = length.parse().map_err(|_| error())?;
        if length > width(base) {
            return Err(error());
        }
        let first = address(bits(base) & !host_mask(length, base), base.is_ipv4());
        let subnet = Self { first, length };
        if first != base {
            let given = text.to_owned();
            return Err(RangeError::HostBits { given, subnet });
        }
        Ok(subnet)
    }
}

impl From<IpAddr> for Subnet {
    /// Returns the subnet of this address alone.
    fn from(first: IpAddr) -> Self {
        let length = width(first);
        Self { first, length }
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

/// Reads an address; IPv4 that is written as IPv6 is an error, since it would be another name of the same address.
pub fn parse_address(text: &str) -> Result<IpAddr, RangeError> {
    let read: IpAddr = text
        .parse()
        .map_err(|_| RangeError::NotAnAddress(text.to_owned()))?;
    if let IpAddr::V6(address) = read
        && let Some(v4) = address.to_ipv4_mapped()
    {
        return Err(RangeError::Mapped { address, v4 });
    }
    Ok(read)
}

fn width(of: IpAddr) -> u8 {
    if of.is_ipv4() { 32 } else { 128 }
}

fn host_mask(length: u8, of: IpAddr) -> u128 {
    let host_bits = width(of) - length;
    u128::MAX
        .checked_shr(128 - u32::from(host_bits))
        .unwrap_or(0)
}

fn bits(of: IpAddr) -> u128 {
    match of {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Returns the address of these bits; the callers' bits of IPv4 come from an IPv4 address, so the upper 96 are zero.
#[expect(
    clippy::cast_possible_truncation,
    reason = "an IPv4 address has 32 bits"
)]
fn address(bits: u128, is_ipv4: bool) -> IpAddr {
    if is_ipv4 {
        Ipv4Addr::from_bits(bits as u32).into()
    } else {
        Ipv6Addr::from_bits(bits).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        parse_address(text).unwrap()
    }

    fn range(subnet: &str, limits: Limits) -> Result<Range, RangeError> {
        Range::new(subnet.parse()?, limits)
    }

    fn whole(subnet: &str) -> Range {
        range(subnet, Limits::default()).unwrap()
    }

    fn gateway(text: &str) -> Limits {
        Limits {
            gateway: Some(ip(text)),
            ..Limits::default()
        }
    }

    #[test]
    fn network_broadcast_and_gateway_are_not_given() {
        let range = range("10.0.0.0/29", gateway("10.0.0.1")).unwrap();
        let given: Vec<_> = (0..8)
            .filter(|n| range.contains(ip(&format!("10.0.0.{n}"))))
            .collect();
        assert_eq!(given, [2, 3, 4, 5, 6]);
        assert_eq!(range.count(), 5);
        let single = super::tests::range("10.0.0.0/30", gateway("10.0.0.1")).unwrap();
        assert!(single.contains(ip("10.0.0.2")) && single.count() == 1);
    }

    #[test]
    fn sizes_at_both_ends_of_128_bits() {
        for (subnet, count) in [
            ("10.0.0.4/32", 1),
            ("10.0.0.4/31", 2),
            ("10.0.0.4/30", 2),
            ("0.0.0.0/0", (1 << 32) - 2),
            ("fd00::1/128", 1),
            ("fd00::/127", 2),
            ("fd00::/126", 3),
            ("::/0", u128::MAX),
        ] {
            assert_eq!(whole(subnet).count(), count, "{subnet}");
        }
    }

    #[test]
    fn an_excluded_subnet_leaves_the_parts_beside_it() {
        let exclude: [Subnet; 2] = ["10.0.0.64/26".parse().unwrap(), ip("10.0.0.200").into()];
        let range = whole("10.0.0.0/24").without(&exclude).unwrap();
        assert_eq!(range.count(), 254 - 64 - 1);
        assert_eq!(
            (range.first(), range.last()),
            (ip("10.0.0.1"), ip("10.0.0.254"))
        );
        for (address, given) in [
            ("10.0.0.63", true),
            ("10.0.0.64", false),
            ("10.0.0.127", false),
            ("10.0.0.128", true),
            ("10.0.0.200", false),
        ] {
            assert_eq!(range.contains(ip(address)), given, "{address}");
        }
        let blocks: Vec<_> = (0..range.block_count())
            .map(|place| range.block_at(place).unwrap().first().to_string())
            .collect();
        let expected = [
            "10.0.0.0",
            "10.0.0.32",
            "10.0.0.128",
            "10.0.0.160",
            "10.0.0.192",
            "10.0.0.224",
        ];
        assert_eq!(blocks, expected);
    }

    #[test]
    fn slots_of_a_block_are_those_of_the_range() {
        let range = range("10.0.0.0/28", gateway("10.0.0.1")).unwrap();
        assert_eq!(range.slots(Block::of(ip("10.0.0.9"))), 0x7ffc);
        assert_eq!(range.slots(Block::of(ip("fd00::"))), 0);
    }

    #[test]
    fn each_address_is_in_one_slot_of_one_block() {
        for (address, first, slot) in [
            ("10.20.3.31", "10.20.3.0", 31),
            ("10.20.3.32", "10.20.3.32", 0),
            ("fd00:20::5f", "fd00:20::40", 31),
            (
                "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffe0",
                31,
            ),
        ] {
            let block = Block::of(ip(address));
            assert_eq!(block.first(), ip(first));
            assert_eq!(block.slot(ip(address)), Some(slot));
            assert_eq!(block.address(slot), ip(address));
        }
        assert_eq!(Block::of(ip("10.0.0.0")).slot(ip("10.0.0.32")), None);
    }

    #[test]
    fn families_do_not_overlap_though_their_bits_do() {
        assert!(!whole("0.0.0.0/0").overlaps(&whole("::/0")));
        assert!(whole("10.0.0.0/8").overlaps(&whole("10.9.0.0/16")));
        assert!(!whole("10.0.0.0/25").overlaps(&whole("10.0.0.128/25")));
    }

    #[test]
    fn bad_ranges_name_the_cure() {
        let limits = |first: &str, last: &str| Limits {
            first: Some(ip(first)),
            last: Some(ip(last)),
            gateway: None,
        };
        for (result, message) in [
            (
                range("10.0.0.0", Limits::default()),
                "\"10.0.0.0\" is not a subnet; write one such as 10.20.0.0/16 or fd00:20::/64",
            ),
            (
                range("10.0.0.0/33", Limits::default()),
                "\"10.0.0.0/33\" is not a subnet; write one such as 10.20.0.0/16 or fd00:20::/64",
            ),
            (
                range("10.0.0.1/24", Limits::default()),
                "10.0.0.1/24 has bits behind its prefix; write 10.0.0.0/24",
            ),
            (
                range("::ffff:10.0.0.0/120", Limits::default()),
                "::ffff:10.0.0.0 is an IPv4 address written as IPv6; write 10.0.0.0",
            ),
            (
                range("10.0.0.0/24", limits("10.0.0.9", "10.0.0.8")),
                "the range begins at 10.0.0.9, behind its end 10.0.0.8; exchange the two",
            ),
            (
                range("10.0.0.0/24", limits("10.0.1.0", "10.0.1.1")),
                "start 10.0.1.0 is outside 10.0.0.0/24; choose an address of that subnet",
            ),
            (
                range("10.0.0.0/24", gateway("fd00::1")),
                "gateway fd00::1 is outside 10.0.0.0/24; choose an address of that subnet",
            ),
            (
                range("10.0.0.4/32", gateway("10.0.0.4")),
                "10.0.0.4/32 has no address left to give; choose a larger range, another gateway or fewer exclusions",
            ),
        ] {
            assert_eq!(result.unwrap_err().to_string(), message);
        }
    }
}
