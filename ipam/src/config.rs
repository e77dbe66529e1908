//! Definitions: the `ipam` object of a network's configuration, in our form and in that of `whereabouts`.
//!
//! Both become one [`Definition`]. Whatever is wrong is refused with one line that says where, what and how to cure it; then nothing is
//! given. The plugin's other keys, `routes`, `dns` and `resolvConf`, are kept as they were written, for the result.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value};

use crate::range::{self, Limits, Range, RangeError, Subnet};

/// The keys of our form.
const KEYS: [&str; 11] = [
    "type",
    "ranges",
    "subnet",
    "rangeStart",
    "rangeEnd",
    "gateway",
    "exclude",
    "space",
    "sticky",
    "routes",
    "dns",
];
const RANGE_KEYS: [&str; 4] = ["subnet", "rangeStart", "rangeEnd", "gateway"];
/// The keys of `whereabouts` that have an effect.
const WHEREABOUTS_KEYS: [&str; 15] = [
    "type",
    "range",
    "range_start",
    "range_end",
    "exclude",
    "ipRanges",
    "network_name",
    "enable_overlapping_ranges",
    "routes",
    "dns",
    "gateway",
    "addresses",
    "configuration_path",
    "node_slice_size",
    "name",
];
/// Its keys for leader election, logs, its reconciler and its access to the API server, which have none here.
const WHEREABOUTS_IGNORED: [&str; 15] = [
    "datastore",
    "kubernetes",
    "log_file",
    "log_level",
    "reconciler_cron_expression",
    "leader_lease_duration",
    "leader_renew_deadline",
    "leader_retry_period",
    "sleep_for_race",
    "etcd_host",
    "etcd_username",
    "etcd_password",
    "etcd_key_file",
    "etcd_cert_file",
    "etcd_ca_cert_file",
];
const WHEREABOUTS_RANGE_KEYS: [&str; 5] = [
    "range",
    "range_start",
    "range_end",
    "exclude",
    "node_slice_size",
];

/// What is wrong with a definition: one line with the place, the fault and its cure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("ipam.{place}: {source}")]
    Range { place: String, source: RangeError },
    #[error("ipam.{place}: the key is not known; {cure}")]
    UnknownKey { place: String, cure: String },
    #[error("ipam.{place}: the value is not {expected}; correct it")]
    Kind {
        place: String,
        expected: &'static str,
    },
    #[error("ipam: there is no range; add {0}")]
    NoRange(&'static str),
    #[error(
        "ipam.{place}: {subnet} is of another family than the ranges before it; give it a list of its own"
    )]
    MixedFamilies { place: String, subnet: Subnet },
    #[error(
        "ipam.{place}: {subnet} overlaps {other} of this definition; remove one or set their limits apart"
    )]
    Overlap {
        place: String,
        subnet: Subnet,
        other: Subnet,
    },
    #[error("ipam.exclude: {0} is outside every range; correct or remove it")]
    Exclude(Subnet),
    #[error("ipam.type: {0:?} is not served here; write \"multus-ipam\"")]
    Type(String),
    #[error(
        "ipam.node_slice_size: slices of nodes are those of one range; remove the others, or this key"
    )]
    NodeSlices,
    #[error("ipam: whereabouts gives no address of {subnet}, {why}; choose another range")]
    NoPool { subnet: Subnet, why: &'static str },
    #[error(
        "ipam.network_name: the pool's name would be {0:?}, which is none of an object; write small letters, digits and dashes"
    )]
    PoolName(String),
}

/// For how long a pod's address stays its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sticky {
    /// Until DEL.
    #[default]
    Pod,
    /// Until the pod's owner, a `StatefulSet` or a virtual machine, no longer exists.
    Owner,
}

/// What a network's definition asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// A pod gets one address of each list.
    pub lists: Vec<Vec<Range>>,
    /// Addresses of one space are given once. The empty name is the space that all definitions share.
    pub space: String,
    pub sticky: Sticky,
    /// `routes`, `dns`, `resolvConf` and `addresses` as written.
    pub passed: BTreeMap<String, Value>,
    /// Keys that are accepted without effect.
    pub ignored: Vec<String>,
}

/// Reads the `ipam` object of a network's configuration; its `type` says in which form it is.
pub fn parse(ipam: &Map<String, Value>) -> Result<Definition, ConfigError> {
    match text(ipam, "type", "")?.unwrap_or_default() {
        "multus-ipam" => parse_own(ipam),
        "whereabouts" => parse_whereabouts(ipam),
        other => Err(ConfigError::Type(other.to_owned())),
    }
}

fn parse_own(ipam: &Map<String, Value>) -> Result<Definition, ConfigError> {
    let mut known = KEYS.to_vec();
    known.push("resolvConf");
    check_keys(ipam, "", &known)?;
    let excluded = exclusions(ipam, "", str::parse)?;
    let mut lists = Vec::new();
    if ipam.contains_key("subnet") {
        lists.push(vec![own_range(ipam, "")?]);
    } else if let Some(key) = RANGE_KEYS[1..].iter().find(|key| ipam.contains_key(**key)) {
        return Err(ConfigError::UnknownKey {
            place: (*key).to_owned(),
            cure: "add \"subnet\" beside it or move it into \"ranges\"".to_owned(),
        });
    }
    for (outer, list) in array(ipam, "ranges", "")?.iter().enumerate() {
        let place = format!("ranges[{outer}]");
        let list = list.as_array().filter(|list| !list.is_empty());
        let list = list.ok_or_else(|| kind(&place, "a list of ranges"))?;
        let read = |(inner, value): (usize, &Value)| {
            let place = format!("{place}[{inner}]");
            let map = value.as_object().ok_or_else(|| kind(&place, "a range"))?;
            let place = format!("{place}.");
            check_keys(map, &place, &RANGE_KEYS)?;
            own_range(map, &place)
        };
        lists.push(
            list.iter()
                .enumerate()
                .map(read)
                .collect::<Result<_, _>>()?,
        );
    }
    if lists.is_empty() {
        return Err(ConfigError::NoRange("\"ranges\" or \"subnet\""));
    }
    let sticky = match text(ipam, "sticky", "")? {
        None | Some("pod") => Sticky::Pod,
        Some("owner") => Sticky::Owner,
        Some(_) => return Err(kind("sticky", "\"pod\" or \"owner\"")),
    };
    Ok(Definition {
        lists: check_lists(lists, &excluded)?,
        space: text(ipam, "space", "")?.unwrap_or_default().to_owned(),
        sticky,
        passed: passed(ipam, &["routes", "dns", "resolvConf"]),
        ignored: Vec::new(),
    })
}

fn own_range(map: &Map<String, Value>, place: &str) -> Result<Range, ConfigError> {
    let subnet =
        text(map, "subnet", place)?.ok_or_else(|| kind(&format!("{place}subnet"), "a subnet"))?;
    let at = |key: &str| format!("{place}{key}");
    let subnet: Subnet = subnet.parse().map_err(in_place(at("subnet")))?;
    let mut limits = Limits {
        first: address(map, "rangeStart", place)?,
        last: address(map, "rangeEnd", place)?,
        gateway: address(map, "gateway", place)?,
    };
    // As `host-local` does, where the subnet has room for it.
    limits.gateway = limits.gateway.or(subnet.default_gateway());
    Range::new(subnet, limits).map_err(in_place(place.trim_end_matches('.').to_owned()))
}

fn parse_whereabouts(ipam: &Map<String, Value>) -> Result<Definition, ConfigError> {
    let known = [&WHEREABOUTS_KEYS[..], &WHEREABOUTS_IGNORED[..]].concat();
    check_keys(ipam, "", &known)?;
    let gateway = whereabouts_gateway(ipam)?;
    let mut lists = Vec::new();
    if text(ipam, "range", "")?.is_some() {
        lists.push(vec![whereabouts_range(ipam, gateway, "")?]);
    }
    for (index, value) in array(ipam, "ipRanges", "")?.iter().enumerate() {
        let place = format!("ipRanges[{index}]");
        let map = value.as_object().ok_or_else(|| kind(&place, "a range"))?;
        let place = format!("{place}.");
        check_keys(map, &place, &WHEREABOUTS_RANGE_KEYS)?;
        lists.push(vec![whereabouts_range(map, gateway, &place)?]);
    }
    if lists.is_empty() && array(ipam, "addresses", "")?.is_empty() {
        return Err(ConfigError::NoRange("\"range\" or \"ipRanges\""));
    }
    let ignored = WHEREABOUTS_IGNORED
        .iter()
        .filter(|key| ipam.contains_key(**key));
    Ok(Definition {
        lists: check_lists(lists, &[])?,
        space: text(ipam, "network_name", "")?
            .unwrap_or_default()
            .to_owned(),
        sticky: Sticky::Pod,
        passed: passed(ipam, &["routes", "dns", "addresses"]),
        ignored: ignored.map(|key| (*key).to_owned()).collect(),
    })
}

/// A range as `whereabouts` writes it: a subnet, which may have bits behind its prefix, or `first-last/length`, whose limits count more than
/// those of their own keys.
fn whereabouts_range(
    map: &Map<String, Value>,
    gateway: Option<IpAddr>,
    place: &str,
) -> Result<Range, ConfigError> {
    let at = format!("{place}range");
    let written = text(map, "range", place)?.ok_or_else(|| kind(&at, "a subnet"))?;
    let wrong = in_place(at);
    let (first, rest) = match written.split_once('-') {
        Some((first, rest)) => (
            Some(sloppy_address(first.trim()).map_err(&wrong)?),
            rest.trim(),
        ),
        None => (None, written),
    };
    let subnet = sloppy_subnet(rest).map_err(&wrong)?;
    let last = match (first, rest.split_once('/')) {
        (Some(_), Some((last, _))) => Some(sloppy_address(last).map_err(&wrong)?),
        _ => None,
    };
    let limits = Limits {
        first: first.or(address_in(map, "range_start", place, sloppy_address)?),
        last: last.or(address_in(map, "range_end", place, sloppy_address)?),
        gateway: gateway.filter(|gateway| subnet.contains(*gateway)),
    };
    let range = Range::new(subnet, limits).map_err(&wrong)?;
    let excluded = exclusions(map, place, sloppy_subnet)?;
    if let Some(outside) = excluded.iter().find(|excluded| !meets(subnet, **excluded)) {
        return Err(ConfigError::Exclude(*outside));
    }
    range.without(&excluded).map_err(wrong)
}

/// Reads the gateway of the form of `whereabouts`, which need not be in a range.
pub(crate) fn whereabouts_gateway(map: &Map<String, Value>) -> Result<Option<IpAddr>, ConfigError> {
    address_in(map, "gateway", "", sloppy_address)
}

/// Reads a subnet as `whereabouts` does: bits behind the prefix do not count.
fn sloppy_subnet(written: &str) -> Result<Subnet, RangeError> {
    match without_zeros(written).parse() {
        Err(RangeError::HostBits { subnet, .. }) => Ok(subnet),
        other => other,
    }
}

fn sloppy_address(written: &str) -> Result<IpAddr, RangeError> {
    range::parse_address(&without_zeros(written))
}

/// Returns an IPv4 address without zeros in front of its numbers: `whereabouts` reads these as decimal numbers, and others as octal ones.
fn without_zeros(written: &str) -> String {
    if written.contains(':') {
        return written.to_owned();
    }
    let (address, length) = written.split_at(written.find('/').unwrap_or(written.len()));
    let number = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let numbers: Vec<_> = address.split('.').map(number).collect();
    numbers.join(".") + length
}

/// Checks lists of one definition against each other and takes the exclusions out.
fn check_lists(
    lists: Vec<Vec<Range>>,
    excluded: &[Subnet],
) -> Result<Vec<Vec<Range>>, ConfigError> {
    let mut before: Vec<(usize, &Range)> = Vec::new();
    for (index, range) in lists
        .iter()
        .enumerate()
        .flat_map(|(index, list)| list.iter().map(move |range| (index, range)))
    {
        let subnet = range.subnet();
        let place = format!("ranges[{index}]");
        if let Some((_, other)) = before.iter().find(|(_, other)| other.overlaps(range)) {
            let other = other.subnet();
            return Err(ConfigError::Overlap {
                place,
                subnet,
                other,
            });
        }
        let is_mixed = |(list, other): &(usize, &Range)| {
            *list == index && other.subnet().first().is_ipv4() != subnet.first().is_ipv4()
        };
        if before.iter().any(is_mixed) {
            return Err(ConfigError::MixedFamilies { place, subnet });
        }
        before.push((index, range));
    }
    if let Some(outside) = excluded.iter().find(|excluded| {
        !before
            .iter()
            .any(|(_, range)| meets(range.subnet(), **excluded))
    }) {
        return Err(ConfigError::Exclude(*outside));
    }
    let cut = |range: Range| {
        range
            .without(excluded)
            .map_err(in_place("exclude".to_owned()))
    };
    lists
        .into_iter()
        .map(|list| list.into_iter().map(cut).collect())
        .collect()
}

fn meets(one: Subnet, other: Subnet) -> bool {
    one.contains(other.first()) || other.contains(one.first())
}

fn exclusions(
    map: &Map<String, Value>,
    place: &str,
    parse: fn(&str) -> Result<Subnet, RangeError>,
) -> Result<Vec<Subnet>, ConfigError> {
    let read = |(index, value): (usize, &Value)| {
        let place = format!("{place}exclude[{index}]");
        let written = value
            .as_str()
            .ok_or_else(|| kind(&place, "an address or a subnet"))?;
        let subnet = if written.contains('/') {
            parse(written)
        } else {
            range::parse_address(written).map(Subnet::from)
        };
        subnet.map_err(in_place(place))
    };
    array(map, "exclude", place)?
        .iter()
        .enumerate()
        .map(read)
        .collect()
}

fn check_keys(map: &Map<String, Value>, place: &str, known: &[&str]) -> Result<(), ConfigError> {
    let Some(key) = map.keys().find(|key| !known.contains(&key.as_str())) else {
        return Ok(());
    };
    let nearest = known.iter().min_by_key(|known| distance(key, known));
    Err(ConfigError::UnknownKey {
        place: format!("{place}{key}"),
        cure: match nearest.filter(|known| distance(key, known) <= 3) {
            Some(known) => format!("did you mean {known:?}?"),
            None => "remove it".to_owned(),
        },
    })
}

/// Returns how many letters have to be changed, added or removed; case does not count.
fn distance(one: &str, other: &str) -> usize {
    let other = other.to_ascii_lowercase();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, a) in one.to_ascii_lowercase().bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, b) in other.bytes().enumerate() {
            let best = (diagonal + usize::from(a != b))
                .min(row[column] + 1)
                .min(row[column + 1] + 1);
            diagonal = row[column + 1];
            row[column + 1] = best;
        }
    }
    row[other.len()]
}

fn passed(map: &Map<String, Value>, keys: &[&str]) -> BTreeMap<String, Value> {
    let value = |key: &&str| Some(((*key).to_owned(), map.get(*key)?.clone()));
    keys.iter().filter_map(value).collect()
}

/// Returns a key's text; an empty one is an absent key, as in `host-local`.
fn text<'a>(
    map: &'a Map<String, Value>,
    key: &str,
    place: &str,
) -> Result<Option<&'a str>, ConfigError> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(_) => Err(kind(&format!("{place}{key}"), "a text")),
    }
}

fn address(
    map: &Map<String, Value>,
    key: &str,
    place: &str,
) -> Result<Option<IpAddr>, ConfigError> {
    address_in(map, key, place, range::parse_address)
}

fn address_in(
    map: &Map<String, Value>,
    key: &str,
    place: &str,
    parse: fn(&str) -> Result<IpAddr, RangeError>,
) -> Result<Option<IpAddr>, ConfigError> {
    let read = text(map, key, place)?.map(parse).transpose();
    read.map_err(in_place(format!("{place}{key}")))
}

fn array<'a>(
    map: &'a Map<String, Value>,
    key: &str,
    place: &str,
) -> Result<&'a [Value], ConfigError> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(values)) => Ok(values),
        Some(_) => Err(kind(&format!("{place}{key}"), "a list")),
    }
}

pub(crate) fn kind(place: &str, expected: &'static str) -> ConfigError {
    let place = place.to_owned();
    ConfigError::Kind { place, expected }
}

fn in_place(place: String) -> impl Fn(RangeError) -> ConfigError {
    move |source| ConfigError::Range {
        place: place.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(ipam: &Value) -> Result<Definition, ConfigError> {
        parse(ipam.as_object().unwrap())
    }

    fn counts(ipam: &Value) -> Vec<Vec<u128>> {
        let lists = read(ipam).unwrap().lists;
        lists
            .iter()
            .map(|list| list.iter().map(Range::count).collect())
            .collect()
    }

    fn check_error(mut keys: Value, message: &str) {
        let map = keys.as_object_mut().unwrap();
        map.entry("type").or_insert_with(|| json!("multus-ipam"));
        assert_eq!(parse(map).unwrap_err().to_string(), message);
    }

    #[test]
    fn own_form_has_host_locals_keys() {
        let ipam = json!({"type": "multus-ipam", "ranges": [[{"subnet": "10.20.0.0/16", "gateway": "10.20.0.1"}], [{"subnet": "fd00:20::/64"}]],
            "exclude": ["10.20.0.0/26"], "routes": [{"dst": "10.99.0.0/16"}], "sticky": "owner", "space": "lab"});
        let definition = read(&ipam).unwrap();
        assert_eq!(definition.sticky, Sticky::Owner);
        assert_eq!(definition.space, "lab");
        assert_eq!(
            definition.passed["routes"],
            json!([{"dst": "10.99.0.0/16"}])
        );
        // Without 64 excluded ones and the broadcast address; without the network and the default gateway.
        assert_eq!(counts(&ipam), [[65536 - 64 - 1], [(1 << 64) - 2]]);
    }

    #[test]
    fn small_subnets_get_no_default_gateway_that_takes_their_last_address() {
        for (subnet, count) in [("10.0.0.4/32", 1), ("10.0.0.4/31", 2), ("10.0.0.4/30", 1)] {
            assert_eq!(
                counts(&json!({"type": "multus-ipam", "subnet": subnet})),
                [[count]],
                "{subnet}"
            );
        }
    }

    #[test]
    fn whereabouts_form_reads_its_ways_to_write_a_range() {
        for (ipam, expected) in [
            (
                json!({"type": "whereabouts", "range": "192.168.2.225/28"}),
                vec![vec![14]],
            ),
            (
                json!({"type": "whereabouts", "range": "192.168.2.10-192.168.2.19/24"}),
                vec![vec![10]],
            ),
            (
                json!({"type": "whereabouts", "range": "192.168.2.0/24", "range_start": "192.168.2.10", "range_end": "192.168.2.11"}),
                vec![vec![2]],
            ),
            (
                json!({"type": "whereabouts", "range": "192.168.2.0/28", "gateway": "192.168.2.1", "exclude": ["192.168.2.8/29"]}),
                vec![vec![6]],
            ),
            (
                json!({"type": "whereabouts", "ipRanges": [{"range": "10.1.0.0/30"}, {"range": "fd00::/120"}]}),
                vec![vec![2], vec![255]],
            ),
        ] {
            assert_eq!(counts(&ipam), expected, "{ipam}");
        }
    }

    #[test]
    fn whereabouts_keys_without_effect_are_named() {
        let ipam = json!({"type": "whereabouts", "range": "10.0.0.0/24", "network_name": "blue", "log_level": "debug", "kubernetes": {"kubeconfig": "/x"}});
        let definition = read(&ipam).unwrap();
        assert_eq!(definition.ignored, ["kubernetes", "log_level"]);
        assert_eq!(definition.space, "blue");
    }

    #[test]
    fn bad_definitions_say_where_what_and_the_cure() {
        check_error(
            json!({}),
            "ipam: there is no range; add \"ranges\" or \"subnet\"",
        );
        check_error(
            json!({"type": "host-local"}),
            "ipam.type: \"host-local\" is not served here; write \"multus-ipam\"",
        );
        check_error(
            json!({"subnet": "10.0.0.0/24", "rangestart": "10.0.0.5"}),
            "ipam.rangestart: the key is not known; did you mean \"rangeStart\"?",
        );
        check_error(
            json!({"subnet": "10.0.0.0/24", "completelyOther": 1}),
            "ipam.completelyOther: the key is not known; remove it",
        );
        check_error(
            json!({"ranges": [[{"subnet": "10.0.0.0"}]]}),
            "ipam.ranges[0][0].subnet: \"10.0.0.0\" is not a subnet; write one such as 10.20.0.0/16 or fd00:20::/64",
        );
        check_error(
            json!({"ranges": [[{"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.8"}]]}),
            "ipam.ranges[0][0]: the range begins at 10.0.0.9, behind its end 10.0.0.8; exchange the two",
        );
        check_error(
            json!({"ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": "fd00::/64"}]]}),
            "ipam.ranges[0]: fd00::/64 is of another family than the ranges before it; give it a list of its own",
        );
        check_error(
            json!({"ranges": [[{"subnet": "10.0.0.0/16"}], [{"subnet": "10.0.1.0/24"}]]}),
            "ipam.ranges[1]: 10.0.1.0/24 overlaps 10.0.0.0/16 of this definition; remove one or set their limits apart",
        );
        check_error(
            json!({"subnet": "10.0.0.0/24", "exclude": ["10.0.1.0/28"]}),
            "ipam.exclude: 10.0.1.0/28 is outside every range; correct or remove it",
        );
        check_error(
            json!({"subnet": "10.0.0.0/24", "exclude": ["10.0.0.0/24"]}),
            "ipam.exclude: 10.0.0.0/24 has no address left to give; choose a larger range, another gateway or fewer exclusions",
        );
        check_error(
            json!({"subnet": "10.0.0.0/24", "sticky": "ever"}),
            "ipam.sticky: the value is not \"pod\" or \"owner\"; correct it",
        );
        check_error(
            json!({"rangeEnd": "10.0.0.9", "ranges": []}),
            "ipam.rangeEnd: the key is not known; add \"subnet\" beside it or move it into \"ranges\"",
        );
        check_error(
            json!({"type": "whereabouts", "range": "10.0.0.0/24", "exclude": ["10.1.0.0/16"]}),
            "ipam.exclude: 10.1.0.0/16 is outside every range; correct or remove it",
        );
        check_error(
            json!({"type": "whereabouts", "rnage": "10.0.0.0/24"}),
            "ipam.rnage: the key is not known; did you mean \"range\"?",
        );
    }
}
