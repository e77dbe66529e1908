//! Turns the verdicts on definitions into labels of the Node, or into files with the same labels for Node Feature Discovery.

use std::collections::BTreeMap;

use api::{
    network_report::Network,
    node_labels::{self, PREFIX},
};
use serde_json::{Map, Value, json};

/// The longest file that Node Feature Discovery reads (`MaxFeatureFileSize` of its local source).
const MAX_FILE: usize = 64 << 10;

/// Labels by their keys.
pub(crate) type Labels = BTreeMap<String, String>;

/// Returns the labels for these verdicts. A definition whose name is too long for a label has none.
pub(crate) fn labels(networks: &[Network]) -> Labels {
    let label = |one: &Network| {
        let value = node_labels::value(&one.verdict)?;
        Some((node_labels::key(&one.network)?, value.to_owned()))
    };
    networks.iter().filter_map(label).collect()
}

/// Returns the labels of an object's metadata that are the daemon's.
pub(crate) fn own_labels(object: &Value) -> Labels {
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    let own = labels
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with(PREFIX));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    own.map(|(key, value)| (key.clone(), text(value))).collect()
}

/// Returns the merge patch that turns the labels of a Node into the wanted ones, or `None` if they are the same.
pub(crate) fn patch(known: &Labels, wanted: &Labels) -> Option<Value> {
    let old = known.keys().filter(|key| !wanted.contains_key(*key));
    let new = wanted
        .iter()
        .filter(|(key, value)| known.get(*key) != Some(value));
    let changes: Map<_, _> = old
        .map(|key| (key.clone(), Value::Null))
        .chain(new.map(|(key, value)| (key.clone(), json!(value))))
        .collect();
    (!changes.is_empty()).then(|| json!({"metadata": {"labels": changes}}))
}

/// Returns the contents of the feature files with these labels, a line for each. There is one file unless that would be too long.
pub(crate) fn feature_files(labels: &Labels) -> Vec<String> {
    let mut files = vec![String::new()];
    for (key, value) in labels {
        let line = format!("{key}={value}\n");
        match files.last_mut() {
            Some(last) if last.len() + line.len() <= MAX_FILE => last.push_str(&line),
            _ => files.push(line),
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use api::network_report::Verdict;

    use super::*;

    fn network(name: &str, verdict: Verdict) -> Network {
        Network {
            network: name.to_owned(),
            verdict,
        }
    }

    fn key(name: &str) -> String {
        format!("{PREFIX}{name}")
    }

    #[test]
    fn served_and_unknown_networks_have_labels() {
        let reason = || "no link".to_owned();
        let long = format!("shop/{}", "a".repeat(60));
        let networks = [
            network("shop/lan", Verdict::Serves),
            network("shop/odd", Verdict::Unknown(reason())),
            network("shop/far", Verdict::Cannot(reason())),
            network(&long, Verdict::Serves),
        ];
        let expected = [("shop.lan", "serves"), ("shop.odd", "unknown")];
        let expected = expected.map(|(name, value)| (key(name), value.to_owned()));
        assert_eq!(labels(&networks), expected.into());
    }

    #[test]
    fn patch_has_only_what_changes_and_spares_the_labels_of_others() {
        let node = json!({"metadata": {"labels": {
            "kubernetes.io/os": "linux", key("shop.gone"): "serves", key("shop.lan"): "unknown", key("shop.same"): "serves",
        }}});
        let known = own_labels(&node);
        assert_eq!(known.len(), 3);
        let label = |name: &str| (key(name), "serves".to_owned());
        let wanted = ["shop.lan", "shop.new", "shop.same"].map(label).into();
        let expected = json!({"metadata": {"labels": {
            key("shop.gone"): null, key("shop.lan"): "serves", key("shop.new"): "serves",
        }}});
        assert_eq!(patch(&known, &wanted), Some(expected));
        assert_eq!(patch(&wanted, &wanted), None);
        assert_eq!(own_labels(&json!({"metadata": {}})), Labels::new());
    }

    #[test]
    fn feature_files_are_never_too_long() {
        assert_eq!(feature_files(&Labels::new()), [""]);
        let label = |number: usize| (key(&format!("shop.lan-{number:040}")), "serves".to_owned());
        let labels: Labels = (0..1500).map(label).collect();
        let files = feature_files(&labels);
        assert!(files.len() > 1 && files.iter().all(|file| file.len() <= MAX_FILE));
        let lines = files.concat();
        let lines: Vec<_> = lines.lines().collect();
        assert_eq!(lines.len(), labels.len());
        assert_eq!(lines[0], format!("{}=serves", label(0).0));
    }
}
