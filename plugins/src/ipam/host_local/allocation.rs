//! The choice of an address: round robin, so that the address of a container that is gone rests as long as possible.

use std::net::IpAddr;

use crate::config::range::{Range, RangeSet};
use crate::ip::next;

/// Returns every address of a set once, without the gateways, beginning after the one that was handed out last. One that the set
/// does not contain, since the configuration changed, counts as none: the set begins anew. A range that begins at the broadcast address
/// has none.
pub(super) fn candidates(
    set: &RangeSet,
    last: Option<IpAddr>,
) -> impl Iterator<Item = (IpAddr, &Range)> {
    let ranges: Vec<&Range> = set
        .0
        .iter()
        .filter(|range| range.first <= range.last)
        .collect();
    let position = last.and_then(|last| {
        let index = ranges.iter().position(|range| range.contains(last))?;
        Some((index, last))
    });
    let begin = match position {
        Some((index, last)) => Some(step(&ranges, index, last)),
        None => ranges.first().map(|range| (0, range.first)),
    };
    let mut following = begin;
    let cycle = std::iter::from_fn(move || {
        let (index, address) = following?;
        following = Some(step(&ranges, index, address)).filter(|next| Some(*next) != begin);
        Some((address, ranges[index]))
    });
    cycle.filter(|(address, range)| *address != range.gateway)
}

/// Returns the position after this one; the first range follows the last one.
fn step(ranges: &[&Range], index: usize, address: IpAddr) -> (usize, IpAddr) {
    let following = next(address).filter(|_| address != ranges[index].last);
    following.map_or_else(
        || {
            let index = (index + 1) % ranges.len();
            (index, ranges[index].first)
        },
        |address| (index, address),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::range::RangeTexts;

    fn set(json: &str) -> RangeSet {
        let texts: Vec<RangeTexts> = serde_json::from_str(json).unwrap();
        let configs: Vec<_> = texts.iter().map(|texts| texts.read().unwrap()).collect();
        RangeSet::parse(&configs).unwrap()
    }

    #[track_caller]
    fn check(set: &RangeSet, last: &str, expected: &[&str]) {
        let found: Vec<_> = candidates(set, last.parse().ok())
            .map(|(address, _)| address.to_string())
            .collect();
        assert_eq!(found, expected, "after {last:?}");
    }

    #[test]
    fn each_address_comes_once_after_the_last_one() {
        let set = set(r#"[{"subnet":"10.0.0.0/29"},
            {"subnet":"10.0.1.0/24","rangestart":"10.0.1.7","rangeend":"10.0.1.8","gateway":"10.0.1.8"}]"#);
        let all = ["2", "3", "4", "5", "6"].map(|host| format!("10.0.0.{host}"));
        let all: Vec<_> = all.iter().map(String::as_str).chain(["10.0.1.7"]).collect();
        for last in ["", "10.0.1.8", "10.0.1.9", "10.0.0.1", "fd00::1"] {
            check(&set, last, &all);
        }
        for turn in 1..all.len() {
            let mut expected = all.clone();
            expected.rotate_left(turn);
            check(&set, all[turn - 1], &expected);
        }
    }

    #[test]
    fn gateway_alone_is_not_a_candidate() {
        let only_gateway =
            set(r#"[{"subnet":"10.0.0.0/24","rangestart":"10.0.0.1","rangeend":"10.0.0.1"}]"#);
        check(&only_gateway, "", &[]);
        check(&only_gateway, "10.0.0.1", &[]);
        let one =
            set(r#"[{"subnet":"10.0.0.0/24","rangestart":"10.0.0.9","rangeend":"10.0.0.9"}]"#);
        check(&one, "10.0.0.9", &["10.0.0.9"]);
    }

    #[test]
    fn last_address_of_the_family_ends_a_range() {
        let set = set(
            r#"[{"subnet":"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0/124","rangestart":"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"}]"#,
        );
        let [before, last] =
            ["e", "f"].map(|digit| format!("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff{digit}"));
        check(&set, &last, &[&before, &last]);
        check(&set, &before, &[&last, &before]);
    }

    #[test]
    fn range_from_the_broadcast_address_has_no_address() {
        let begin = r#"{"subnet": "10.0.0.0/24", "rangestart": "10.0.0.255"}"#;
        check(&set(&format!("[{begin}]")), "", &[]);
        let and_other = set(&format!(r#"[{begin}, {{"subnet": "10.0.1.0/30"}}]"#));
        check(&and_other, "", &["10.0.1.2"]);
        check(&and_other, "10.0.0.255", &["10.0.1.2"]);
    }
}
