//! Decides whether Kubernetes keeps a pod of a `DaemonSet` on a node: by the node selector, the required node affinity, and taints.
//!
//! What a future Kubernetes may write, such as another operator, counts as a match.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// Taints that Kubernetes makes every pod of a `DaemonSet` tolerate. It adds the last one for pods with the node's network, as ours.
const ALWAYS_TOLERATED: [&str; 7] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/network-unavailable",
];

/// A taint of a node.
#[derive(Debug, Default, Deserialize)]
pub struct Taint {
    /// The label-like name.
    pub key: String,
    /// The value, which may be empty.
    #[serde(default)]
    pub value: String,
    /// `NoSchedule`, `NoExecute` or `PreferNoSchedule`.
    pub effect: String,
}

/// The requirements of a pod's spec that decide on which nodes it may be.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Placement {
    node_selector: BTreeMap<String, String>,
    affinity: Value,
    tolerations: Vec<Value>,
}

impl Placement {
    /// Whether a `DaemonSet` with these requirements has a pod on the node.
    pub fn selects(&self, name: &str, labels: &BTreeMap<String, String>, taints: &[Taint]) -> bool {
        let mut selector = self.node_selector.iter();
        let required =
            &self.affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let terms = required["nodeSelectorTerms"].as_array();
        selector.all(|(key, value)| labels.get(key) == Some(value))
            && terms.is_none_or(|terms| terms.iter().any(|term| term_matches(term, name, labels)))
            && untolerated(taints, &self.tolerations).is_none()
    }
}

/// Returns the first taint that keeps pods of a `DaemonSet` with these tolerations off its node.
pub fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Value]) -> Option<&'a Taint> {
    taints.iter().find(|taint| {
        ["NoSchedule", "NoExecute"].contains(&taint.effect.as_str())
            && !ALWAYS_TOLERATED.contains(&taint.key.as_str())
            && !tolerations.iter().any(|one| tolerates(one, taint))
    })
}

/// Whether a term of a required node affinity matches a node. A term without requirements matches none.
pub fn term_matches(term: &Value, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let requirements = |key: &str| term[key].as_array().into_iter().flatten();
    let by_label = |one: &Value| {
        let label = labels.get(one["key"].as_str().unwrap_or_default());
        requirement_matches(one, label.map(String::as_str))
    };
    let mut is_empty = true;
    requirements("matchExpressions")
        .map(by_label)
        .chain(requirements("matchFields").map(|one| requirement_matches(one, Some(name))))
        .inspect(|_| is_empty = false)
        .all(|matches| matches)
        && !is_empty
}

fn requirement_matches(requirement: &Value, found: Option<&str>) -> bool {
    let values = requirement["values"].as_array();
    let mut values = values.into_iter().flatten().filter_map(Value::as_str);
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    match requirement["operator"].as_str().unwrap_or_default() {
        "In" => found.is_some_and(|found| values.any(|value| value == found)),
        "NotIn" => found.is_none_or(|found| values.all(|value| value != found)),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        operator @ ("Gt" | "Lt") => match (number(found), number(values.next())) {
            (Some(found), Some(limit)) if operator == "Gt" => found > limit,
            (Some(found), Some(limit)) => found < limit,
            _ => false,
        },
        _ => true,
    }
}

fn tolerates(toleration: &Value, taint: &Taint) -> bool {
    let text = |key: &str| toleration[key].as_str().unwrap_or_default();
    let fits = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
    fits(text("effect"), &taint.effect)
        && fits(text("key"), &taint.key)
        && match text("operator") {
            "" | "Equal" => !text("key").is_empty() && text("value") == taint.value,
            _ => true,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks a spec against a node `n1` with the label `disk=ssd`, the label `cpus=8`, and these taints.
    #[track_caller]
    fn check(spec: &Value, taints: &Value, expected: bool) {
        let placement: Placement = serde_json::from_value(spec.clone()).unwrap();
        let taints: Vec<Taint> = serde_json::from_value(taints.clone()).unwrap();
        let labels =
            [("disk", "ssd"), ("cpus", "8")].map(|(key, value)| (key.into(), value.into()));
        let selects = placement.selects("n1", &labels.into(), &taints);
        assert_eq!(selects, expected, "{spec} {taints:?}");
    }

    #[test]
    fn labels_of_the_node_selector_must_all_match() {
        for (selector, expected) in [
            (json!({}), true),
            (json!({"disk": "ssd", "cpus": "8"}), true),
            (json!({"disk": "ssd", "cpus": "4"}), false),
            (json!({"gpu": ""}), false),
        ] {
            check(&json!({"nodeSelector": selector}), &json!([]), expected);
        }
    }

    #[test]
    fn one_term_of_the_required_affinity_must_match() {
        let requirement = |operator: &str, key: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        let term = |one: &Value| json!({"matchExpressions": [one]});
        let fields = |operator, names| json!({"matchFields": [requirement(operator, "metadata.name", names)]});
        let both = json!({
            "matchExpressions": [requirement("In", "disk", &["ssd"])],
            "matchFields": [requirement("In", "metadata.name", &["n2"])],
        });
        for (terms, expected) in [
            (
                json!([term(&requirement("In", "disk", &["hdd", "ssd"]))]),
                true,
            ),
            (json!([term(&requirement("In", "disk", &["hdd"]))]), false),
            (
                json!([term(&requirement("NotIn", "disk", &["ssd"]))]),
                false,
            ),
            (json!([term(&requirement("NotIn", "gpu", &["a"]))]), true),
            (json!([term(&requirement("Exists", "disk", &[]))]), true),
            (json!([term(&requirement("Exists", "gpu", &[]))]), false),
            (
                json!([term(&requirement("DoesNotExist", "disk", &[]))]),
                false,
            ),
            (json!([term(&requirement("Gt", "cpus", &["7"]))]), true),
            (json!([term(&requirement("Gt", "cpus", &["8"]))]), false),
            (json!([term(&requirement("Lt", "cpus", &["9"]))]), true),
            (json!([term(&requirement("Lt", "disk", &["9"]))]), false),
            (json!([term(&requirement("Near", "disk", &["9"]))]), true),
            (json!([fields("In", &["n1"])]), true),
            (json!([fields("NotIn", &["n1"])]), false),
            (json!([both]), false),
            (json!([{}]), false),
            (
                json!([
                    term(&requirement("In", "disk", &["hdd"])),
                    fields("In", &["n1"])
                ]),
                true,
            ),
        ] {
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
            check(
                &json!({"affinity": {"nodeAffinity": required}}),
                &json!([]),
                expected,
            );
        }
        let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term(&requirement("Exists", "gpu", &[]))}]});
        check(
            &json!({"affinity": {"nodeAffinity": preferred}}),
            &json!([]),
            true,
        );
    }

    #[test]
    fn taints_must_be_tolerated() {
        let taint =
            |key: &str, effect: &str| json!([{"key": key, "value": "red", "effect": effect}]);
        for (tolerations, taints, expected) in [
            (json!([]), taint("team", "NoSchedule"), false),
            (json!([]), taint("team", "NoExecute"), false),
            (json!([]), taint("team", "PreferNoSchedule"), true),
            // A node that is drained, or whose kubelet is silent.
            (
                json!([]),
                taint("node.kubernetes.io/unschedulable", "NoSchedule"),
                true,
            ),
            (
                json!([]),
                taint("node.kubernetes.io/unreachable", "NoExecute"),
                true,
            ),
            (
                json!([{"operator": "Exists"}]),
                taint("team", "NoExecute"),
                true,
            ),
            (
                json!([{"operator": "Exists", "effect": "NoSchedule"}]),
                taint("team", "NoExecute"),
                false,
            ),
            (
                json!([{"key": "team", "operator": "Equal", "value": "red"}]),
                taint("team", "NoExecute"),
                true,
            ),
            (
                json!([{"key": "team", "value": "blue"}]),
                taint("team", "NoExecute"),
                false,
            ),
            (
                json!([{"key": "other", "operator": "Exists"}]),
                taint("team", "NoExecute"),
                false,
            ),
        ] {
            check(&json!({"tolerations": tolerations}), &taints, expected);
        }
    }
}
