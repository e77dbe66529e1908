//! Keys of upstream that have no effect here. Each start logs them, so that no administrator relies on them.

use serde_json::{Map, Value};

use crate::{json, node_path::node_path};

/// Returns a sentence for each key whose value would have an effect on upstream's daemon.
pub(super) fn without_effect(raw: &Map<String, Value>) -> Vec<String> {
    let sentence = |(key, has_effect_upstream, hint): &Key| {
        let is_set = json::get(raw, key).is_some_and(|value| has_effect_upstream(value, raw));
        is_set.then(|| format!("key \"{key}\" has no effect on the daemon: {hint}"))
    };
    KEYS.iter().filter_map(sentence).collect()
}

/// A key, whether a value of it in this file would have an effect on upstream's daemon, and the hint.
type Key = (
    &'static str,
    fn(&Value, &Map<String, Value>) -> bool,
    &'static str,
);

const KEYS: &[Key] = &[
    (
        "enablePprof",
        is_on,
        "this daemon has no such profiles, remove it",
    ),
    (
        "forceCNIVersion",
        is_on,
        "files of other programs are never rewritten, set the version in the default network's file",
    ),
    (
        "daemonSocketDir",
        |value, raw| {
            is_text(value, raw)
                && value.as_str().map(node_path) != Some(api::DEFAULT_SOCKET_DIR.into())
        },
        "the shim uses the directory of socketDir, set that",
    ),
    (
        "delegates",
        |value, raw| {
            let file = json::get(raw, "multusConfigFile").and_then(Value::as_str);
            let is_generated = matches!(file, None | Some("" | "auto"));
            is_generated && value.as_array().is_some_and(|all| !all.is_empty())
        },
        "the generated configuration names the node's own default network, write them into a file and name it in multusConfigFile",
    ),
    (
        "kubeconfig",
        is_text,
        "the daemon uses its pod's service account, remove it",
    ),
];

fn is_on(value: &Value, _: &Map<String, Value>) -> bool {
    *value == Value::Bool(true)
}

fn is_text(value: &Value, _: &Map<String, Value>) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_without_effect_are_reported() {
        let set = json!({
            "EnablePprof": true, "forceCNIVersion": true, "kubeconfig": "/x", "logFile": "/var/log/multus.log",
        });
        let sentences = without_effect(set.as_object().unwrap());
        assert_eq!(sentences.len(), 3, "{sentences:?}");
        assert!(sentences[0].starts_with("key \"enablePprof\" has no effect on the daemon: "));
    }

    #[test]
    fn values_without_effect_upstream_are_not_reported() {
        let set = json!({
            "enablePprof": false, "logFile": "", "logToStderr": true, "logOptions": {},
            "daemonSocketDir": "/run/multus/",
            "kubeconfig": null, "namespaceIsolation": true,
        });
        assert!(without_effect(set.as_object().unwrap()).is_empty());
    }

    #[test]
    fn delegates_count_in_a_file_of_ones_own_alone() {
        let delegates = json!([{"type": "bridge"}]);
        for (file, expected) in [
            (json!("auto"), 1),
            (json!(null), 1),
            (json!("/etc/own.conf"), 0),
        ] {
            let set = json!({"delegates": delegates, "multusConfigFile": file});
            let sentences = without_effect(set.as_object().unwrap());
            assert_eq!(sentences.len(), expected, "{sentences:?}");
        }
    }

    #[test]
    fn every_key_is_in_the_table() {
        for (key, ..) in KEYS {
            assert!(api::options::find(key).is_some(), "{key}");
        }
    }
}
