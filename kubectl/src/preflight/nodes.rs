//! Finds nodes that daemons cannot serve, by what the API server knows of them: architecture, system, kernel, runtime, labels and taints.

use std::collections::BTreeMap;

use plan::placement::{term_matches, untolerated};
use serde_json::Value;

use super::{snapshot::ClusterNode, values::Values, verdict::Verdict};

/// The oldest kernel that the daemon supports.
const OLDEST_KERNEL: (u64, u64) = (4, 18);
/// The runtimes whose directories the daemon can discover, as nodes report them.
const RUNTIMES: [&str; 3] = ["containerd://", "cri-o://", "docker://"];
/// One finding about a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NodeFinding {
    pub(super) verdict: Verdict,
    pub(super) text: String,
    /// True when the node's pods get only the cluster's default network.
    pub(super) is_unserved: bool,
}

/// Returns the reasons why a daemon cannot serve this node, or may not.
pub(super) fn findings(node: &ClusterNode, values: &Values) -> Vec<NodeFinding> {
    if !node.os.is_empty() && node.os != "linux" {
        return vec![NodeFinding {
            verdict: Verdict::Note,
            text: format!(
                "the node runs {}, and daemons run on Linux: its pods get only the default network",
                node.os
            ),
            is_unserved: true,
        }];
    }
    let mut findings = Vec::new();
    if let Some(text) = placement(node, values) {
        findings.push(NodeFinding {
            verdict: Verdict::Changes,
            text: format!("{text}; until then its pods get only the default network"),
            is_unserved: true,
        });
    }
    if kernel(&node.kernel).is_some_and(|kernel| kernel < OLDEST_KERNEL) {
        findings.push(NodeFinding {
            verdict: Verdict::Fails,
            text: format!(
                "kernel {} is older than {}.{}, which the daemon needs: upgrade the node, or keep the daemon off it with labels.nodeSelector",
                node.kernel, OLDEST_KERNEL.0, OLDEST_KERNEL.1
            ),
            is_unserved: true,
        });
    }
    let is_known = RUNTIMES.iter().any(|name| node.runtime.starts_with(name));
    if !node.runtime.is_empty() && !is_known {
        findings.push(NodeFinding {
            verdict: Verdict::Changes,
            text: format!(
                "the daemon cannot query runtime {} for its directories, only containerd, CRI-O and cri-dockerd: run `multus-distro doctor --all` on the node to see what it finds",
                node.runtime
            ),
            is_unserved: false,
        });
    }
    findings
}

/// Returns why the `DaemonSet` creates no pod on the node.
fn placement(node: &ClusterNode, values: &Values) -> Option<String> {
    let architectures = values.get("architectures").as_array();
    let is_supported = architectures.is_none_or(|all| {
        all.is_empty() || all.iter().any(|one| one == node.architecture.as_str())
    });
    if !node.architecture.is_empty() && !is_supported {
        let all: Vec<_> = architectures
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        return Some(format!(
            "there is no image for architecture {}, only for {}: build one and set image and architectures",
            node.architecture,
            all.join(", ")
        ));
    }
    // The chart adds the usual name to that of the published chart; the usual name wins.
    let selectors = ["labels.nodeSelector", "nodeSelector"];
    let selectors = selectors
        .iter()
        .filter_map(|path| values.get(path).as_object());
    let selector: BTreeMap<_, _> = selectors.flatten().collect();
    let lacking = selector.into_iter().find(|(key, value)| {
        // A node without any label comes from a file that left them out.
        !node.labels.is_empty() && node.labels.get(*key).map(String::as_str) != value.as_str()
    });
    if let Some((key, value)) = lacking {
        return Some(format!(
            "nodeSelector requires {key}={}, which the node does not have: label it, or change the value",
            value.as_str().unwrap_or_default()
        ));
    }
    let terms = values.get(
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
    );
    let terms = terms.as_array().map(Vec::as_slice).unwrap_or_default();
    if !terms.is_empty()
        && !node.labels.is_empty()
        && !terms
            .iter()
            .any(|one| term_matches(one, &node.name, &node.labels))
    {
        return Some(
            "no term of affinity.nodeAffinity matches its labels: label it, or change the value"
                .to_owned(),
        );
    }
    let tolerations = values.get("tolerations").as_array();
    let tolerations = tolerations.map(Vec::as_slice).unwrap_or_default();
    let taint = untolerated(&node.taints, tolerations)?;
    Some(format!(
        "no toleration of the values matches taint {}:{}: add one to tolerations",
        taint.key, taint.effect
    ))
}

/// Parses the first two numbers of a kernel's version.
fn kernel(version: &str) -> Option<(u64, u64)> {
    let mut numbers = version.split(|letter: char| !letter.is_ascii_digit());
    let mut number = || numbers.next()?.parse().ok();
    Some((number()?, number()?))
}

#[cfg(test)]
mod tests {
    use plan::placement::Taint;
    use serde_json::json;

    use super::*;

    fn node() -> ClusterNode {
        ClusterNode {
            name: "n1".to_owned(),
            architecture: "amd64".to_owned(),
            os: "linux".to_owned(),
            kernel: "4.18.0-553.el8_10.x86_64".to_owned(),
            runtime: "containerd://2.0.4-k3s2".to_owned(),
            labels: [("kubernetes.io/os".to_owned(), "linux".to_owned())].into(),
            ..ClusterNode::default()
        }
    }

    #[track_caller]
    fn check(node: &ClusterNode, values: &Value, expected: &[(Verdict, bool, &str)]) {
        let values = Values::new(values.as_object().unwrap());
        let found = findings(node, &values);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (finding, (verdict, is_unserved, part)) in found.iter().zip(expected) {
            assert_eq!(
                (finding.verdict, finding.is_unserved),
                (*verdict, *is_unserved)
            );
            assert!(finding.text.contains(part), "{finding:?}");
        }
    }

    #[test]
    fn supported_nodes_have_no_finding() {
        let none = json!({});
        check(&node(), &none, &[]);
        for runtime in ["cri-o://1.30.2", "docker://27.0.1", ""] {
            let runtime = runtime.to_owned();
            check(&ClusterNode { runtime, ..node() }, &none, &[]);
        }
        for architecture in ["arm64", "arm", ""] {
            let architecture = architecture.to_owned();
            check(
                &ClusterNode {
                    architecture,
                    ..node()
                },
                &none,
                &[],
            );
        }
        for kernel in ["6.12.0", "5.4.0-1", "10.1", ""] {
            let kernel = kernel.to_owned();
            check(&ClusterNode { kernel, ..node() }, &none, &[]);
        }
    }

    #[test]
    fn unsupported_nodes_have_a_finding() {
        let none = json!({});
        let s390x = ClusterNode {
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
        let windows = ClusterNode {
            os: "windows".to_owned(),
            kernel: "10.0.20348".to_owned(),
            ..node()
        };
        check(&windows, &none, &[(Verdict::Note, true, "runs windows")]);
        let old = ClusterNode {
            kernel: "3.10.0-1160.el7".to_owned(),
            ..node()
        };
        check(&old, &none, &[(Verdict::Fails, true, "older than 4.18")]);
        let other = ClusterNode {
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
                &[(Verdict::Changes, true, "requires network=multus")],
            );
        }
        for (operator, values, is_fit) in [
            ("In", json!(["linux", "x"]), true),
            ("In", json!(["x"]), false),
            ("NotIn", json!(["x"]), true),
            ("NotIn", json!(["linux"]), false),
            ("Exists", json!(null), true),
            ("DoesNotExist", json!(null), false),
            ("Gt", json!(["1"]), false),
            ("Near", json!(["1"]), true),
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
        let tainted = |key: &str, effect: &str| ClusterNode {
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
