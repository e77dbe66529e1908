//! Validates the addresses of a network's configuration as the reference plugins `host-local` and `static` read them:
//! subnets, ranges, gateways and fixed addresses that cannot work are reported before a pod fails on a node.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cni::config::NetworkConfig;
use serde_json::{Map, Value};

/// An entry of `ipam` that cannot work, or probably does not work as intended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IpamProblem {
    /// True when the plugin refuses it; otherwise pods start, but the entry has no effect.
    pub(crate) is_refused: bool,
    /// A sentence that says what is wrong and what to write instead.
    pub(crate) text: String,
}

/// A range of addresses that a network assigns to pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Range {
    subnet: Subnet,
    first: IpAddr,
    last: IpAddr,
}

/// An address with a prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Subnet {
    address: IpAddr,
    prefix: u8,
}

impl Subnet {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let address = parse_address(address)?;
        let prefix: u8 = prefix.parse().ok()?;
        (prefix <= width(address)).then_some(Self { address, prefix })
    }

    fn contains(&self, other: IpAddr) -> bool {
        self.address.is_ipv4() == other.is_ipv4()
            && bits(self.address) & self.mask() == bits(other) & self.mask()
    }

    fn mask(&self) -> u128 {
        let host_bits = u32::from(width(self.address) - self.prefix);
        u128::MAX.checked_shl(host_bits).unwrap_or(0)
    }

    fn network(&self) -> IpAddr {
        from_bits(bits(self.address) & self.mask(), self.address.is_ipv4())
    }

    /// Returns the first and the last address that a pod can have.
    fn usable(&self) -> (IpAddr, IpAddr) {
        let is_v4 = self.address.is_ipv4();
        let network = bits(self.network());
        let host_mask = !self.mask() & width_mask(is_v4);
        // The last address of an IPv4 subnet is its broadcast address.
        let last = network | host_mask;
        let last = if is_v4 { last - 1 } else { last };
        (from_bits(network + 1, is_v4), from_bits(last, is_v4))
    }
}

impl std::fmt::Display for Subnet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix)
    }
}

impl Range {
    /// Returns true when the network can assign this address.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.subnet.contains(address)
            && (bits(self.first)..=bits(self.last)).contains(&bits(address))
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} to {}", self.first, self.last)
    }
}

/// Validates the addresses of all plugins of the network.
pub(crate) fn check(config: &NetworkConfig) -> Vec<IpamProblem> {
    sections(config)
        .flat_map(|ipam| match text(ipam, "type") {
            Some("host-local") => host_local(ipam).1,
            Some("static") => fixed(ipam),
            _ => Vec::new(),
        })
        .collect()
}

/// Returns the ranges from which the network can assign a requested address; empty when they are not known.
pub(crate) fn ranges(config: &NetworkConfig) -> Vec<Range> {
    sections(config)
        .filter(|ipam| text(ipam, "type") == Some("host-local"))
        .flat_map(|ipam| host_local(ipam).0)
        .collect()
}

/// Reads an address with or without a prefix length.
pub(crate) fn parse_address(text: &str) -> Option<IpAddr> {
    let address = text.split_once('/').map_or(text, |(address, _)| address);
    address.parse().ok()
}

fn sections(config: &NetworkConfig) -> impl Iterator<Item = &Map<String, Value>> {
    let plugins = config.plugins.iter();
    plugins.filter_map(|plugin| plugin.value.get("ipam")?.as_object())
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}

fn refused(text: String) -> IpamProblem {
    IpamProblem {
        is_refused: true,
        text,
    }
}

/// Reads the ranges of `host-local`: one that is written directly in `ipam`, and the sets in `ranges`.
fn host_local(ipam: &Map<String, Value>) -> (Vec<Range>, Vec<IpamProblem>) {
    let (mut found, mut problems) = (Vec::<Range>::new(), Vec::new());
    let direct = ipam.contains_key("subnet").then_some(ipam);
    let sets = ipam.get("ranges").and_then(Value::as_array);
    let nested = sets.into_iter().flatten().filter_map(Value::as_array);
    let nested = nested.flatten().filter_map(Value::as_object);
    let mut written = 0;
    for range in direct.into_iter().chain(nested) {
        written += 1;
        if let Some(range) = one_range(range, &mut problems) {
            if let Some(other) = found.iter().find(|other| overlap(other, &range)) {
                problems.push(refused(format!(
                    "ipam: the ranges {other} and {range} overlap: keep one, or separate them"
                )));
            }
            found.push(range);
        }
    }
    if written == 0 {
        problems.push(refused(
            "ipam: host-local needs a subnet: write \"subnet\": \"10.1.2.0/24\", or \"ranges\""
                .to_owned(),
        ));
    }
    (found, problems)
}

fn one_range(range: &Map<String, Value>, problems: &mut Vec<IpamProblem>) -> Option<Range> {
    let written = text(range, "subnet").unwrap_or_default();
    let Some(subnet) = Subnet::parse(written) else {
        problems.push(refused(format!(
            "ipam: subnet \"{written}\" is not a network: write it as in 10.1.2.0/24 or fd00:1::/64"
        )));
        return None;
    };
    if subnet.network() != subnet.address {
        problems.push(refused(format!(
            "ipam: subnet {subnet} has host bits set: write {}/{}",
            subnet.network(),
            subnet.prefix
        )));
        return None;
    }
    if subnet.prefix > width(subnet.address) - 2 {
        problems.push(refused(format!(
            "ipam: subnet {subnet} is too small to assign addresses from: write /{} or less",
            width(subnet.address) - 2
        )));
        return None;
    }
    let (mut first, mut last) = subnet.usable();
    for (key, bound) in [("rangeStart", &mut first), ("rangeEnd", &mut last)] {
        let Some(written) = text(range, key) else {
            continue;
        };
        match written.parse::<IpAddr>() {
            Ok(address) if subnet.contains(address) => *bound = address,
            _ => {
                problems.push(refused(format!(
                    "ipam: {key} \"{written}\" is not in subnet {subnet}: choose an address of the subnet"
                )));
                return None;
            }
        }
    }
    if bits(first) > bits(last) {
        problems.push(refused(format!(
            "ipam: rangeStart {first} is greater than rangeEnd {last}: swap them"
        )));
        return None;
    }
    if let Some(written) = text(range, "gateway") {
        match written.parse::<IpAddr>() {
            Err(_) => problems.push(refused(format!(
                "ipam: gateway \"{written}\" is not an address: write it as in {}",
                subnet.usable().0
            ))),
            Ok(gateway) if !subnet.contains(gateway) => problems.push(IpamProblem {
                is_refused: false,
                text: format!(
                    "ipam: gateway {gateway} is outside subnet {subnet}, so pods cannot reach it: choose an address of the subnet"
                ),
            }),
            Ok(_) => {}
        }
    }
    Some(Range {
        subnet,
        first,
        last,
    })
}

fn overlap(one: &Range, other: &Range) -> bool {
    one.first.is_ipv4() == other.first.is_ipv4()
        && bits(one.first) <= bits(other.last)
        && bits(other.first) <= bits(one.last)
}

/// Validates the addresses of `static`.
fn fixed(ipam: &Map<String, Value>) -> Vec<IpamProblem> {
    let entries = ipam.get("addresses").and_then(Value::as_array);
    let entries = entries.into_iter().flatten().filter_map(Value::as_object);
    let mut problems = Vec::new();
    for entry in entries {
        let written = text(entry, "address").unwrap_or_default();
        let Some(subnet) = Subnet::parse(written) else {
            problems.push(refused(format!(
                "ipam: address \"{written}\" has no prefix length or is not an address: write it as in 10.1.2.3/24"
            )));
            continue;
        };
        match text(entry, "gateway").map(|gateway| (gateway, gateway.parse::<IpAddr>())) {
            Some((_, Ok(gateway))) if !subnet.contains(gateway) => problems.push(IpamProblem {
                is_refused: false,
                text: format!(
                    "ipam: gateway {gateway} is outside the network of {subnet}, so pods cannot reach it: choose an address of that network"
                ),
            }),
            Some((gateway, Err(_))) => problems.push(refused(format!(
                "ipam: gateway \"{gateway}\" is not an address: write it as in 10.1.2.1"
            ))),
            _ => {}
        }
    }
    problems
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn width_mask(is_v4: bool) -> u128 {
    if is_v4 {
        u128::from(u32::MAX)
    } else {
        u128::MAX
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn from_bits(bits: u128, is_v4: bool) -> IpAddr {
    if is_v4 {
        // The masks above keep IPv4 addresses within 32 bits.
        let low = u32::try_from(bits & u128::from(u32::MAX)).unwrap_or(u32::MAX);
        IpAddr::V4(Ipv4Addr::from_bits(low))
    } else {
        IpAddr::V6(Ipv6Addr::from_bits(bits))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(ipam: &Value) -> NetworkConfig {
        let value = json!({"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": ipam});
        NetworkConfig::parse(value.to_string().as_bytes()).unwrap()
    }

    #[track_caller]
    fn check_ipam(ipam: &Value, expected: &[(bool, &str)]) {
        let found = check(&config(ipam));
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (problem, (is_refused, part)) in found.iter().zip(expected) {
            assert_eq!(problem.is_refused, *is_refused, "{problem:?}");
            assert!(
                problem.text.contains(part),
                "no {part:?} in {:?}",
                problem.text
            );
        }
    }

    #[test]
    fn valid_addresses_have_no_problem() {
        for ipam in [
            json!({"type": "host-local", "subnet": "10.1.2.0/24"}),
            json!({"type": "host-local", "subnet": "10.1.2.0/24", "rangeStart": "10.1.2.10", "rangeEnd": "10.1.2.20", "gateway": "10.1.2.1"}),
            json!({"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00:1::/64"}]]}),
            json!({"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/25"}, {"subnet": "10.1.2.128/25"}]]}),
            json!({"type": "static", "addresses": [{"address": "10.1.2.3/24", "gateway": "10.1.2.1"}]}),
            json!({"type": "static"}),
            json!({"type": "dhcp"}),
            json!({"type": "whereabouts", "range": "x"}),
            json!({}),
        ] {
            check_ipam(&ipam, &[]);
        }
    }

    #[test]
    fn subnets_that_host_local_refuses_are_reported() {
        let of = |subnet: &str| json!({"type": "host-local", "subnet": subnet});
        for bad in ["10.1.2", "10.1.2.0", "10.1.2.0/33", "fd00::/129", "x/8", ""] {
            check_ipam(&of(bad), &[(true, "is not a network")]);
        }
        check_ipam(&of("10.1.2.3/24"), &[(true, "write 10.1.2.0/24")]);
        check_ipam(&of("10.1.2.0/31"), &[(true, "write /30 or less")]);
        check_ipam(&of("fd00::1/64"), &[(true, "write fd00::/64")]);
        check_ipam(&json!({"type": "host-local"}), &[(true, "needs a subnet")]);
    }

    #[test]
    fn bounds_and_gateways_are_compared_with_the_subnet() {
        let of = |key: &str, address: &str| json!({"type": "host-local", "subnet": "10.1.2.0/24", key: address});
        check_ipam(
            &of("rangeStart", "10.1.3.1"),
            &[(true, "rangeStart \"10.1.3.1\" is not in")],
        );
        check_ipam(&of("rangeEnd", "10"), &[(true, "rangeEnd")]);
        check_ipam(
            &of("gateway", "10.1.3.1"),
            &[(false, "gateway 10.1.3.1 is outside subnet 10.1.2.0/24")],
        );
        check_ipam(&of("gateway", "10.1"), &[(true, "is not an address")]);
        check_ipam(
            &json!({"type": "host-local", "subnet": "10.1.2.0/24", "rangeStart": "10.1.2.9", "rangeEnd": "10.1.2.2"}),
            &[(true, "swap them")],
        );
        check_ipam(
            &json!({"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.0.0/16"}]]}),
            &[(true, "overlap")],
        );
        check_ipam(
            &json!({"type": "static", "addresses": [{"address": "10.1.2.3"}]}),
            &[(true, "10.1.2.3/24")],
        );
        check_ipam(
            &json!({"type": "static", "addresses": [{"address": "10.1.2.3/24", "gateway": "10.9.9.9"}]}),
            &[(false, "outside the network")],
        );
    }

    #[test]
    fn ranges_contain_assignable_addresses_only() {
        let ranges = |ipam: &Value| super::ranges(&config(ipam));
        let holds = |ranges: &[Range], address: &str| {
            let address = parse_address(address).unwrap();
            ranges.iter().any(|range| range.contains(address))
        };
        let all = ranges(
            &json!({"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24", "rangeEnd": "10.1.2.9"}], [{"subnet": "fd00::/64"}]]}),
        );
        for (address, expected) in [
            ("10.1.2.1", true),
            ("10.1.2.9/24", true),
            ("10.1.2.0", false),
            ("10.1.2.10", false),
            ("fd00::7/64", true),
            ("fd01::7", false),
        ] {
            assert_eq!(holds(&all, address), expected, "{address}");
        }
        let subnet = ranges(&json!({"type": "host-local", "subnet": "10.1.2.0/24"}));
        assert!(holds(&subnet, "10.1.2.254") && !holds(&subnet, "10.1.2.255"));
        assert!(ranges(&json!({"type": "static"})).is_empty());
    }
}
