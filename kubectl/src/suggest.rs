//! Suggests the nearest existing name for one that is probably misspelled.

use api::plugins::NAMES;
use plan::daemon_config::distance;

/// Plugin types that definitions commonly name, besides those that we have as well.
const OTHER_PLUGINS: &[&str] = &[
    "calico",
    "calico-ipam",
    "cilium-cni",
    "egress-router",
    "flannel",
    "ib-sriov-cni",
    "ipoib",
    "kube-ovn",
    "multi-networkpolicy",
    "ovn-k8s-cni-overlay",
    "ovs",
    "rdma",
    "route-override",
    "sriov",
    "userspace",
    "vxlan",
    "whereabouts",
];

/// Returns the candidate nearest to `name`, or `None` when `name` is one of them or all of them are too different.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let mut best: Option<(usize, &'a str)> = None;
    for candidate in candidates {
        if candidate == name {
            return None;
        }
        // Short names are similar to each other by chance, unless two letters are swapped.
        let limit = match name.len().min(candidate.len()) {
            3 if distance(&lower, &candidate.to_lowercase()) == 2 => 1,
            0..=3 => 0,
            4..=5 => 1,
            _ => 2,
        };
        let distance = transposed_distance(&lower, &candidate.to_lowercase());
        if distance <= limit && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Returns the key that is probably meant, also when only its beginning is written; `None` when the key is read, in whatever case.
pub(crate) fn key(key: &str, known: &[&'static str]) -> Option<&'static str> {
    if known.iter().any(|known| known.eq_ignore_ascii_case(key)) {
        return None;
    }
    let begins = |known: &&str| key.len() > 3 && known.starts_with(key);
    nearest(key, known.iter().copied()).or_else(|| known.iter().copied().find(begins))
}

/// Returns the common plugin type that is nearest to `kind`.
pub(crate) fn plugin(kind: &str) -> Option<&'static str> {
    nearest(kind, NAMES.iter().chain(OTHER_PLUGINS).copied())
}

/// Returns the edit distance, in which a swap of two neighbouring letters counts as one change.
fn transposed_distance(from: &str, to: &str) -> usize {
    let swapped = (1..from.len()).filter_map(|at| {
        let mut bytes = from.as_bytes().to_vec();
        bytes.swap(at - 1, at);
        let text = String::from_utf8(bytes).ok()?;
        Some(distance(&text, to) + 1)
    });
    swapped
        .chain([distance(from, to)])
        .min()
        .unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_plugin_types_get_a_suggestion() {
        for (kind, expected) in [
            ("brigde", Some("bridge")),
            ("Bridge", Some("bridge")),
            ("macvaln", Some("macvlan")),
            ("host_local", Some("host-local")),
            ("vlna", Some("vlan")),
            ("vlan", None),
            ("ipvlan", None),
            ("vrf", None),
            ("abc", None),
            ("my-own-plugin", None),
            ("", None),
        ] {
            assert_eq!(plugin(kind), expected, "{kind}");
        }
    }

    #[test]
    fn misspelled_keys_get_a_suggestion() {
        let known = ["master", "vlanId", "linkInContainer", "type", "ipam", "mtu"];
        for (misspelled, expected) in [
            ("mastr", Some("master")),
            ("vlan", Some("vlanId")),
            ("ipma", Some("ipam")),
            ("IPAM", None),
            ("vlanid", None),
            ("comment", None),
            ("own", None),
        ] {
            assert_eq!(key(misspelled, &known), expected, "{misspelled}");
        }
    }

    #[test]
    fn the_nearest_of_several_names_is_suggested() {
        let names = ["storage", "storage-2", "stores"];
        assert_eq!(nearest("storag", names), Some("storage"));
        assert_eq!(nearest("storage", names), None);
        assert_eq!(nearest("lan", ["wan"]), None);
        assert_eq!(nearest("lna", ["wan", "lan"]), Some("lan"));
        assert_eq!(nearest("nal", ["lan"]), None);
    }
}
