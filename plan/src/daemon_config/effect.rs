//! Keys that upstream knows and that change nothing here: said at each start, so that nobody relies on them.

use serde_json::{Map, Value};

use crate::{json, node_path::node_path};

/// One sentence for each key that is set to something it will not get.
pub(super) fn missing(raw: &Map<String, Value>) -> Vec<String> {
    let said = |(key, counts, cure): &(&str, fn(&Value) -> bool, &str)| {
        let set = json::get(raw, key).is_some_and(counts);
        set.then(|| format!("key \"{key}\" has no effect on the daemon: {cure}"))
    };
    KEYS.iter().filter_map(said).collect()
}

/// Key, whether this value of it would change something, what to do.
type Key = (&'static str, fn(&Value) -> bool, &'static str);

const KEYS: &[Key] = &[
    (
        "enablePprof",
        is_on,
        "there is nothing to profile, remove it",
    ),
    (
        "forceCNIVersion",
        is_on,
        "files of others are never rewritten, set the version in the primary's file",
    ),
    (
        "daemonSocketDir",
        |value| {
            is_text(value) && value.as_str().map(node_path) != Some(api::DEFAULT_SOCKET_DIR.into())
        },
        "the shim is told the directory of socketDir, set that",
    ),
    (
        "kubeconfig",
        is_text,
        "the daemon uses its pod's service account, remove it",
    ),
];

fn is_on(value: &Value) -> bool {
    *value == Value::Bool(true)
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_set_in_vain_is_said_once() {
        let set = json!({
            "EnablePprof": true, "forceCNIVersion": true, "kubeconfig": "/x", "logFile": "/var/log/multus.log",
        });
        let said = missing(set.as_object().unwrap());
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].starts_with("key \"enablePprof\" has no effect on the daemon: "));
    }

    #[test]
    fn what_changes_nothing_anyway_is_not_worth_a_word() {
        let set = json!({
            "enablePprof": false, "logFile": "", "logToStderr": true, "logOptions": {},
            "daemonSocketDir": "/run/multus/",
            "kubeconfig": null, "namespaceIsolation": true,
        });
        assert!(missing(set.as_object().unwrap()).is_empty());
    }

    #[test]
    fn every_key_is_in_the_table() {
        for (key, ..) in KEYS {
            assert!(api::options::find(key).is_some(), "{key}");
        }
    }
}
