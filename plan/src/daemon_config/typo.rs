//! Keys of the table of options: their types, and names that are so near to one of them that they can only be meant for it.
//!
//! A value of the wrong type is an error. A misspelled key is a warning, as a file of a newer release must not stop an older daemon
//! after a rollback; the chart refuses it when it is rendered. Any other unknown key belongs to the requests and is kept.

use api::options::{self, Kind, OPTIONS};
use serde_json::{Map, Value};

use super::ConfigError;
use crate::json;

/// Fails on the first key that has a value of the wrong type.
pub(super) fn check_types(raw: &Map<String, Value>) -> Result<(), ConfigError> {
    let options = raw
        .iter()
        .filter_map(|(key, value)| Some((options::find(key)?, value)));
    for (option, value) in options {
        if !option.kind.accepts(value) {
            return Err(json::wrong(option.name, expected(option.kind)).into());
        }
    }
    Ok(())
}

/// One sentence for each key that is not known, but nearly.
pub fn misspelled(raw: &Map<String, Value>) -> Vec<String> {
    let unknown = raw.keys().filter(|key| options::find(key).is_none());
    let sentence = |key: &String| {
        let meant = meant(key)?;
        Some(format!(
            "there is no key \"{key}\": did you mean \"{meant}\"?"
        ))
    };
    unknown.filter_map(sentence).collect()
}

fn expected(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "true or false",
        Kind::Int => "a whole number",
        Kind::String => "a string",
        Kind::List => "a list",
        Kind::Object => "an object",
        Kind::Any => "any value",
    }
}

/// The option that an unknown key was meant for. Short names are near to each other by chance.
pub fn meant(key: &str) -> Option<&'static str> {
    let far = match key.len() {
        0..6 => return None,
        6..10 => 1,
        _ => 2,
    };
    let names = OPTIONS.iter().map(|option| option.name);
    names
        .map(|name| (distance(&key.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= far)
        .min()
        .map(|(_, name)| name)
}

/// How many bytes have to be put in, taken out or changed.
pub fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, left) in from.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, right) in to.bytes().enumerate() {
            let changed = diagonal + usize::from(left != right);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_the_textbook() {
        for (from, to, expected) in [
            ("kitten", "sitting", 3),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("abc", "acb", 2),
        ] {
            assert_eq!(distance(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn near_names_are_meant_and_far_ones_are_not() {
        for (key, expected) in [
            ("namespaceIsolaton", Some("namespaceIsolation")),
            ("NAMESPACESISOLATION", Some("namespaceIsolation")),
            ("logLevl", Some("logLevel")),
            ("clusterNetworks", Some("clusterNetwork")),
            ("criSockets", Some("criSocket")),
            ("bridge", None),
            ("mtu", None),
            ("args2", None),
            ("logFormat", None),
        ] {
            assert_eq!(meant(key), expected, "{key}");
        }
    }
}
