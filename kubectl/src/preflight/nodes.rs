//! Which nodes daemons can serve, as far as the API tells: architecture, system, kernel, runtime, labels and taints.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    decide::Verdict,
    snapshot::{Node, Taint},
    values::Values,
};

/// The oldest kernel that daemons run on.
const OLDEST_KERNEL: (u64, u64) = (4, 18);
/// Runtimes whose directories daemons know to find out, as the API names them.
const RUNTIMES: [&str; 3] = ["containerd://", "cri-o://", "docker://"];
/// Taints that every pod of a `DaemonSet` tolerates.
const ALWAYS_TOLERATED: [&str; 7] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/network-unavailable",
];

/// What is to be said of a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Remark {
    pub(super) verdict: Verdict,
    pub(super) text: String,
    /// Whether pods get no further networks there.
    pub(super) is_unserved: bool,
}

/// Returns what keeps a daemon from serving this node; empty where nothing does.
pub(super) fn judge(node: &Node, values: &Values) -> Vec<Remark> {
    if !node.os.is_empty() && node.os != "linux" {
        return vec![Remark {
            verdict: Verdict::Note,
            text: format!(
                "the node runs {}, and daemons run on Linux: its pods get the primary network alone",
                node.os
            ),
            is_unserved: true,
        }];
    }
    let mut remarks = Vec::new();
    if let Some(text) = placement(node, values) {
        remarks.push(Remark {
            verdict: Verdict::Changes,
            text: format!("{text}; until then its pods get the primary network alone"),
            is_unserved: true,
        });
    }
    if kernel(&node.kernel).is_some_and(|kernel| kernel < OLDEST_KERNEL) {
        remarks.push(Remark {
            verdict: Verdict::Fails,
            text: format!(
                "kernel {} is older than {}.{}, and the daemon does not run there: upgrade the node, or keep the daemon off it with labels.nodeSelector",
                node.kernel, OLDEST_KERNEL.0, OLDEST_KERNEL.1
            ),
            is_unserved: true,
        });
    }
    let is_known = RUNTIMES.iter().any(|name| node.runtime.starts_with(name));
    if !node.runtime.is_empty() && !is_known {
        remarks.push(Remark {
            verdict: Verdict::Changes,
            text: format!(
                "the daemon does not know how to ask runtime {} for its directories: `multus-distro doctor --all` on the node says what it finds; containerd, CRI-O and cri-dockerd are known",
                node.runtime
            ),
            is_unserved: false,
        });
    }
    remarks
}

/// Why the `DaemonSet` puts no pod on the node.
fn placement(node: &Node, values: &Values) -> Option<String> {
    let architectures = values.get("architectures").as_array();
    let is_made_for = architectures.is_none_or(|all| {
        all.is_empty() || all.iter().any(|one| one == node.architecture.as_str())
    });
    if !node.architecture.is_empty() && !is_made_for {
        let all: Vec<_> = architectures
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        return Some(format!(
            "no image is made for architecture {}, only for {}: build one and name it in image and architectures",
            node.architecture,
            all.join(", ")
        ));
    }
    // The usual name is added to the published one, and wins.
    let selectors = ["labels.nodeSelector", "nodeSelector"];
    let selectors = selectors
        .iter()
        .filter_map(|path| values.get(path).as_object());
    let selector: BTreeMap<_, _> = selectors.flatten().collect();
    let lacking = selector.into_iter().find(|(key, value)| {
        // A node without labels comes from a file that left them out.
        !node.labels.is_empty() && node.labels.get(*key).map(String::as_str) != value.as_str()
    });
    if let Some((key, value)) = lacking {
        return Some(format!(
            "nodeSelector wants {key}={}, which the node does not have: label it, or change the value",
            value.as_str().unwrap_or_default()
        ));
    }
    let terms = values.get(
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
    );
    let terms = terms.as_array().map(Vec::as_slice).unwrap_or_default();
    if !terms.is_empty() && !node.labels.is_empty() && !terms.iter().any(|one| matches(one, node)) {
        return Some(
            "no term of affinity.nodeAffinity fits its labels: label it, or change the value"
                .to_owned(),
        );
    }
    let tolerations = values.get("tolerations").as_array();
    let tolerations = tolerations.map(Vec::as_slice).unwrap_or_default();
    let taint = node.taints.iter().find(|taint| {
        ["NoSchedule", "NoExecute"].contains(&taint.effect.as_str())
            && !ALWAYS_TOLERATED.contains(&taint.key.as_str())
            && !tolerations.iter().any(|one| tolerates(one, taint))
    })?;
    Some(format!(
        "no toleration of the values fits taint {}:{}: add one to tolerations",
        taint.key, taint.effect
    ))
}

/// Whether a term of an affinity fits the labels; conditions on anything else are taken to be met.
fn matches(term: &Value, node: &Node) -> bool {
    let expressions = term["matchExpressions"].as_array();
    expressions.into_iter().flatten().all(|expression| {
        let key = expression["key"].as_str().unwrap_or_default();
        let label = node.labels.get(key);
        let mut values = expression["values"].as_array().into_iter().flatten();
        let is_among = label.is_some_and(|label| values.any(|value| value == label.as_str()));
        match expression["operator"].as_str().unwrap_or_default() {
            "In" => is_among,
            "NotIn" => !is_among,
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            _ => true,
        }
    })
}

fn tolerates(toleration: &Value, taint: &Taint) -> bool {
    let text = |key: &str| toleration[key].as_str().unwrap_or_default();
    let fits = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
    fits(text("effect"), &taint.effect)
        && fits(text("key"), &taint.key)
        && (text("operator") == "Exists"
            || (!text("key").is_empty() && text("value") == taint.value))
}

/// The first two numbers of a kernel's version.
fn kernel(version: &str) -> Option<(u64, u64)> {
    let mut numbers = version.split(|letter: char| !letter.is_ascii_digit());
    let mut number = || numbers.next()?.parse().ok();
    Some((number()?, number()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node() -> Node {
        Node {
            name: "n1".to_owned(),
            architecture: "amd64".to_owned(),
            os: "linux".to_owned(),
            kernel: "4.18.0-553.el8_10.x86_64".to_owned(),
            runtime: "containerd://2.0.4-k3s2".to_owned(),
            labels: [("kubernetes.io/os".to_owned(), "linux".to_owned())].into(),
            ..Node::default()
        }
    }

    #[track_caller]
    fn check(node: &Node, values: &Value, expected: &[(Verdict, bool, &str)]) {
        let values = Values::new(values.as_object().unwrap());
        let found = judge(node, &values);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (remark, (verdict, is_unserved, words)) in found.iter().zip(expected) {
            assert_eq!(
                (remark.verdict, remark.is_unserved),
                (*verdict, *is_unserved)
            );
            assert!(remark.text.contains(words), "{remark:?}");
        }
    }

    #[test]
    fn usual_nodes_are_served() {
        let none = json!({});
        check(&node(), &none, &[]);
        for runtime in ["cri-o://1.30.2", "docker://27.0.1", ""] {
            let runtime = runtime.to_owned();
            check(&Node { runtime, ..node() }, &none, &[]);
        }
        for architecture in ["arm64", "arm", ""] {
            let architecture = architecture.to_owned();
            check(
                &Node {
                    architecture,
                    ..node()
                },
                &none,
                &[],
            );
        }
        for kernel in ["6.12.0", "5.4.0-1", "10.1", ""] {
            let kernel = kernel.to_owned();
            check(&Node { kernel, ..node() }, &none, &[]);
        }
    }

    #[test]
    fn nodes_that_cannot_be_served_say_why() {
        let none = json!({});
        let s390x = Node {
            architecture: "s390x".to_owned(),
            ..node()
        };
        check(
            &s390x,
            &none,
            &[(
                Verdict::Changes,
                true,
                "architecture s390x, only for amd64, arm64, arm",
            )],
        );
        check(&s390x, &json!({"architectures": []}), &[]);
        let windows = Node {
            os: "windows".to_owned(),
            kernel: "10.0.20348".to_owned(),
            ..node()
        };
        check(&windows, &none, &[(Verdict::Note, true, "runs windows")]);
        let old = Node {
            kernel: "3.10.0-1160.el7".to_owned(),
            ..node()
        };
        check(&old, &none, &[(Verdict::Fails, true, "older than 4.18")]);
        let other = Node {
            runtime: "frakti://1".to_owned(),
            ..node()
        };
        check(
            &other,
            &none,
            &[(Verdict::Changes, false, "runtime frakti://1")],
        );
    }

    #[test]
    fn selectors_and_taints_keep_daemons_off_nodes() {
        let wanted = json!({"network": "multus"});
        for selector in [
            json!({"labels": {"nodeSelector": wanted}}),
            json!({"nodeSelector": wanted}),
            json!({"labels": {"nodeSelector": {"network": "x"}}, "nodeSelector": wanted}),
        ] {
            check(
                &node(),
                &selector,
                &[(Verdict::Changes, true, "wants network=multus")],
            );
        }
        for (operator, values, is_fit) in [
            ("In", json!(["linux", "x"]), true),
            ("In", json!(["x"]), false),
            ("NotIn", json!(["x"]), true),
            ("NotIn", json!(["linux"]), false),
            ("Exists", json!(null), true),
            ("DoesNotExist", json!(null), false),
            ("Gt", json!(["1"]), true),
        ] {
            let term = json!({"matchExpressions": [{"key": "kubernetes.io/os", "operator": operator, "values": values}]});
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
            let expected = [(Verdict::Changes, true, "affinity.nodeAffinity")];
            let expected = if is_fit { &[][..] } else { &expected };
            check(
                &node(),
                &json!({"affinity": {"nodeAffinity": required}}),
                expected,
            );
        }
        let tainted = |key: &str, effect: &str| Node {
            taints: vec![Taint {
                key: key.to_owned(),
                value: "v".to_owned(),
                effect: effect.to_owned(),
            }],
            ..node()
        };
        let reserved = tainted("reserved", "NoSchedule");
        check(&reserved, &json!({}), &[]);
        let none = json!({"tolerations": []});
        let expected = [(Verdict::Changes, true, "taint reserved:NoSchedule")];
        check(&reserved, &none, &expected);
        check(&tainted("reserved", "PreferNoSchedule"), &none, &[]);
        check(
            &tainted("node.kubernetes.io/not-ready", "NoExecute"),
            &none,
            &[],
        );
        for (toleration, is_enough) in [
            (json!({"key": "reserved", "value": "v"}), true),
            (json!({"key": "reserved", "operator": "Exists"}), true),
            (json!({"key": "reserved", "value": "w"}), false),
            (json!({"operator": "Exists", "effect": "NoExecute"}), false),
        ] {
            let values = json!({"tolerations": [toleration]});
            let expected = if is_enough { &[][..] } else { &expected };
            check(&reserved, &values, expected);
        }
    }
}
