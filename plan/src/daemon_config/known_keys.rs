//! Checks keys against the table of options: the types of values, and names so similar to a known key that they must be misspelled.
//!
//! A value of the wrong type is an error. A misspelled key is only a warning, since a file of a newer release must not stop an older
//! daemon after a rollback; the chart refuses it when it is rendered. Any other unknown key belongs to the requests and is kept.

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
            return Err(json::wrong_type(option.name, expected(option.kind)).into());
        }
    }
    Ok(())
}

/// Returns a sentence for each unknown key that is similar to a known one.
pub fn misspelled(raw: &Map<String, Value>) -> Vec<String> {
    let unknown = raw.keys().filter(|key| options::find(key).is_none());
    let sentence = |key: &String| {
        let suggestion = suggestion(key)?;
        Some(format!(
            "there is no key \"{key}\": did you mean \"{suggestion}\"?"
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

/// Returns the option that an unknown key is probably meant for. Short keys have none, since they are similar by chance.
pub fn suggestion(key: &str) -> Option<&'static str> {
    let max_distance = match key.len() {
        0..6 => return None,
        6..10 => 1,
        _ => 2,
    };
    let names = OPTIONS.iter().map(|option| option.name);
    names
        .map(|name| (distance(&key.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= max_distance)
        .min()
        .map(|(_, name)| name)
}

/// Returns the Levenshtein distance: the number of bytes to insert, remove or change.
pub fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, left) in from.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
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
    fn distances_match_known_examples() {
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
    fn only_similar_names_are_suggested() {
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
            assert_eq!(suggestion(key), expected, "{key}");
        }
    }
}
