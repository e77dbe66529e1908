//! Keeps values of configurations and of `cni-args` out of a report: sentences of plugins and daemons quote what they were given.
//!
//! Shown are the values that a report is about: names of plugins, networks and links, addresses, ranges and numbers.

use std::collections::BTreeSet;

use plan::POD_ANNOTATIONS;
use serde_json::Value;

use super::model::Report;

/// The keys whose values are shown, in lower case: those of configurations, and of the pods' annotation.
const SHOWN: &str = "cniversion name type plugins master bridge device vlanid vlan mode mtu subnet range rangestart rangeend range_start \
range_end gateway gw dst ranges routes addresses address exclude space sticky capabilities links namespace interface ips mac \
default-route ipam-claim-reference";
/// Shorter texts are in many words, and no secrets.
const SHORTEST: usize = 6;
/// Of longer texts errors quote the beginning.
const LONGEST: usize = 100;
const HIDDEN: &str = "[hidden, see --full]";

/// Texts that must not be in a report, the longest first.
#[derive(Debug, Default)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    /// Collects the values of configurations and of pods' annotations.
    pub(super) fn of<'a>(configs: impl Iterator<Item = &'a str>, pods: &'a [Value]) -> Self {
        let annotations = pods
            .iter()
            .filter_map(|pod| pod.pointer("/metadata/annotations"));
        let annotations = annotations.flat_map(|annotations| {
            POD_ANNOTATIONS
                .iter()
                .filter_map(|key| annotations.get(*key)?.as_str())
        });
        let (mut hidden, mut shown) = (BTreeSet::new(), BTreeSet::new());
        for text in configs.chain(annotations).filter(|text| text.contains('"')) {
            match serde_json::from_str::<Value>(text) {
                Ok(value) => collect(&value, true, &mut hidden, &mut shown),
                // Of what is no JSON an error may quote any part.
                Err(_) => hidden.extend(text.split('"').skip(1).step_by(2).map(str::to_owned)),
            }
        }
        let is_secret = |text: &&String| {
            text.len() >= SHORTEST
                && !shown.contains(*text)
                && !SHOWN.split(' ').any(|key| key.eq_ignore_ascii_case(text))
        };
        let secrets = hidden.iter().filter(is_secret).flat_map(|text| {
            let start: String = text.chars().take(LONGEST).collect();
            [start.escape_debug().to_string(), start]
        });
        let mut secrets: Vec<_> = secrets.collect();
        secrets.sort_by_key(|text| std::cmp::Reverse(text.len()));
        secrets.dedup();
        Self(secrets)
    }

    /// Takes them out of all sentences of a report.
    pub(super) fn hide(&self, report: &mut Report<'_>) {
        for one in &mut report.findings {
            self.hide_in(&mut one.text);
            self.hide_in(&mut one.hint);
        }
        report.gaps.iter_mut().for_each(|gap| self.hide_in(gap));
        for network in &mut report.networks {
            for on_node in &mut network.nodes {
                use api::network_report::Verdict;
                if let Verdict::Cannot(reason) | Verdict::Unknown(reason) = &mut on_node.verdict {
                    self.hide_in(reason);
                }
            }
        }
        for pod in &mut report.pods {
            if let Some(problem) = &mut pod.status.problem {
                self.hide_in(problem);
            }
            if let Some(why) = &mut pod.why {
                why.texts().for_each(|text| self.hide_in(text));
            }
        }
    }

    fn hide_in(&self, text: &mut String) {
        for secret in &self.0 {
            if text.contains(secret.as_str()) {
                *text = text.replace(secret.as_str(), HIDDEN);
            }
        }
    }
}

/// Sorts the texts of a value by whether their key is one of those that are shown; what is below `cni-args` or an unknown key is not.
fn collect(
    value: &Value,
    is_shown: bool,
    hidden: &mut BTreeSet<String>,
    shown: &mut BTreeSet<String>,
) {
    match value {
        Value::String(text) if is_shown => drop(shown.insert(text.clone())),
        Value::String(text) => drop(hidden.insert(text.clone())),
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect(item, is_shown, hidden, shown)),
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            let key = key.to_lowercase();
            let is_known = key == "ipam" || SHOWN.split(' ').any(|known| known == key);
            collect(value, is_shown && is_known, hidden, shown);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
