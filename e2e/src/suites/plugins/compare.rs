//! Comparison of what two cells saw: what the kernel or a plugin chooses at random is replaced, everything else must be equal.

use std::collections::BTreeMap;

use serde_json::Value;

/// Parts of the kernel's answers that differ from run to run.
const DROPPED: &[&str] = &[
    "bridge_id",
    "bytes",
    "designated_cost",
    "designated_bridge",
    "designated_root",
    "forward_delay_timer",
    "gc_timer",
    "handle",
    "hello_timer",
    "hold_timer",
    "ifindex",
    "link_index",
    "link_netnsid",
    "message_age_timer",
    "metainfo",
    "operstate",
    "packets",
    "root_id",
    "state",
    "tcn_timer",
    "tentative",
    "topology_change_timer",
];
/// Addresses that the kernel does not choose.
const FIXED: &[&str] = &[
    "00:00:00:00:00:00",
    "ff:ff:ff:ff:ff:ff",
    "01:80:c2:00:00:00",
];

/// A place where both sides differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    /// The keys from the name of the observation downwards, after slashes.
    pub(super) at: String,
    /// The reference's value and ours.
    pub(super) values: [Value; 2],
}

/// Replaces names and addresses that the kernel or a plugin chose; those of `literal` were chosen by the case.
pub(super) struct Normalizer<'a> {
    literal: &'a str,
    macs: BTreeMap<String, usize>,
}

impl<'a> Normalizer<'a> {
    pub(super) fn new(literal: &'a str) -> Self {
        Self {
            literal,
            macs: BTreeMap::new(),
        }
    }

    /// Returns the value with everything random replaced. Equal addresses get equal replacements, also in later calls.
    pub(super) fn normalize(&mut self, value: &Value) -> Value {
        let mut value = without_random_names(value, self.literal);
        self.replace_macs(&mut value);
        value
    }

    fn replace_macs(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace_macs(item)),
            Value::Object(items) => items.values_mut().for_each(|item| self.replace_macs(item)),
            _ => {}
        }
    }

    fn text(&mut self, text: &str) -> String {
        words(
            text,
            |letter| letter.is_ascii_hexdigit() || letter == ':',
            |word| {
                if is_link_local(word) && !self.literal.contains(word) {
                    return "fe80::#".to_owned();
                }
                if !is_mac(word) || FIXED.contains(&word) || self.literal.contains(word) {
                    return word.to_owned();
                }
                let next = self.macs.len() + 1;
                let number = self.macs.entry(word.to_owned()).or_insert(next);
                format!("mac#{number}")
            },
        )
    }
}

/// Replaces names of links, and drops and sorts what has no fixed value or order.
fn without_random_names(value: &Value, literal: &str) -> Value {
    match value {
        Value::String(text) => Value::String(replace_name(text, literal)),
        Value::Array(items) => {
            let mut items: Vec<_> = items
                .iter()
                .filter(|item| !follows_carrier(item))
                .map(|item| without_random_names(item, literal))
                .collect();
            if items.iter().all(|item| item["ifname"].is_string()) {
                items.sort_by_key(|item| item["ifname"].to_string());
            }
            Value::Array(items)
        }
        Value::Object(items) => items
            .iter()
            .filter(|(key, value)| !DROPPED.contains(&key.as_str()) || value.is_array())
            .map(|(key, value)| {
                (
                    replace_name(key, literal),
                    without_random_names(value, literal),
                )
            })
            .collect(),
        other => other.clone(),
    }
}

/// Returns whether the kernel adds this by itself some time after both ends of a link are up: link-local addresses with their routes, and
/// flags.
fn follows_carrier(item: &Value) -> bool {
    let is_automatic = |key: &str| {
        let address = item[key].as_str();
        address.is_some_and(|address| address.starts_with("fe80") || address.starts_with("ff00"))
    };
    let flag = item.as_str().unwrap_or_default();
    // Of an own address with its anycast address, once no duplicate is detected.
    let is_own = item["table"] == "local"
        && item["protocol"] == "kernel"
        && item["dst"].as_str().is_some_and(|dst| dst.contains(':'));
    is_own
        || is_automatic("dst")
        || is_automatic("local")
        || ["NO-CARRIER", "LOWER_UP", "M-DOWN", "linkdown"].contains(&flag)
}

/// Replaces `veth` with eight hexadecimal digits.
fn replace_name(text: &str, literal: &str) -> String {
    words(
        text,
        |letter| letter.is_ascii_alphanumeric(),
        |word| {
            let is_random = word.strip_prefix("veth").is_some_and(|digits| {
                digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
            });
            if is_random && !literal.contains(word) {
                "veth#".to_owned()
            } else {
                word.to_owned()
            }
        },
    )
}

/// Replaces each longest run of letters that `belongs` to a word.
fn words(
    text: &str,
    belongs: impl Fn(char) -> bool,
    mut replace: impl FnMut(&str) -> String,
) -> String {
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(&belongs) {
        replaced.push_str(&rest[..start]);
        let word = &rest[start..];
        let end = word.find(|letter| !belongs(letter)).unwrap_or(word.len());
        replaced.push_str(&replace(&word[..end]));
        rest = &word[end..];
    }
    replaced.push_str(rest);
    replaced
}

fn is_mac(word: &str) -> bool {
    word.len() == 17 && word.split(':').count() == 6 && word.split(':').all(|byte| byte.len() == 2)
}

fn is_link_local(word: &str) -> bool {
    word.starts_with("fe80::") && word.len() > "fe80::".len()
}

/// Returns every place where two values differ.
pub(super) fn differences(reference: &Value, ours: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(String::new(), reference, ours, &mut found);
    found
}

fn compare(at: String, reference: &Value, ours: &Value, found: &mut Vec<Difference>) {
    match (reference, ours) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).collect();
            for key in keys {
                compare(format!("{at}/{key}"), &reference[key], &ours[key], found);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                compare(format!("{at}/{index}"), left, right, found);
            }
        }
        _ if reference == ours => {}
        _ => found.push(Difference {
            at,
            values: [reference.clone(), ours.clone()],
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn random_names_and_addresses_are_replaced() {
        let value = json!([
            {"ifname": "veth0a1b2c3d", "address": "0a:00:00:00:00:01", "ifindex": 4, "link": "eth0"},
            {"ifname": "eth0", "address": "02:00:00:00:00:07", "gateway": "fe80::1:2"},
            {"ifname": "br0", "address": "0a:00:00:00:00:01", "link": "8000.0a:00:00:00:00:01"},
        ]);
        let expected = json!([
            {"ifname": "br0", "address": "mac#1", "link": "8000.mac#1"},
            {"ifname": "eth0", "address": "02:00:00:00:00:07", "gateway": "fe80::#"},
            {"ifname": "veth#", "address": "mac#1", "link": "eth0"},
        ]);
        let mut normalizer = Normalizer::new("mac: 02:00:00:00:00:07");
        assert_eq!(normalizer.normalize(&value), expected);
        assert_eq!(
            normalizer.normalize(&json!("0a:00:00:00:00:02")),
            json!("mac#2")
        );
    }

    #[test]
    fn each_place_is_found() {
        let reference = json!({"a": [1, {"b": 2}], "c": null, "same": 1});
        let ours = json!({"a": [1, {"b": 3}], "d": [4], "same": 1});
        let found = differences(&reference, &ours);
        let places: Vec<_> = found
            .iter()
            .map(|difference| difference.at.as_str())
            .collect();
        assert_eq!(places, ["/a/1/b", "/d"]);
        assert_eq!(found[0].values, [json!(2), json!(3)]);
    }

    #[test]
    fn lists_of_different_lengths_differ_as_a_whole() {
        assert_eq!(differences(&json!([1]), &json!([1, 2]))[0].at, "");
    }
}
