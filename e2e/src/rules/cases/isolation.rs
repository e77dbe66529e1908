//! Cases of subject `isolation`: Namespace isolation.

use anyhow::ensure;
use serde_json::json;

use super::cases;
use crate::rules::harness::{Harness, NETWORKS, PodSpec};

cases! { "isolation":
    plain off ["isolation.off"]
    plain refuses ["isolation.refused", "isolation.default-namespace"]
    plain global_namespaces ["isolation.global-namespaces"]
    plain exempts_the_configuration ["isolation.exempt"]
}

fn refuses(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("isolated", "other/far")?;
    let keys = json!({"namespaceIsolation": true});
    let words = [
        "namespace isolation enabled, annotation violates permission",
        "pod is in namespace default but refers to target namespace other",
    ];
    harness.ensure_refused_with(&pod, &keys, &words)?;
    // `default` is open to all, and a pod's own namespace is open to the pod.
    let form = PodSpec {
        namespace: "other",
        ..PodSpec::annotated(&[(NETWORKS, "far,default/a")])
    };
    let pod = harness.pod_with("isolated-not", &form)?;
    harness.add_with(&pod, &keys)?;
    harness.expect_calls(&pod, &["ADD primary", "ADD far", "ADD a"])
}

fn global_namespaces(harness: &Harness) -> anyhow::Result<()> {
    let keys = json!({"namespaceIsolation": true, "globalNamespaces": "other , shared"});
    let pod = harness.attach_with("global", "other/far,shared/common", &keys)?;
    harness.expect_calls(&pod, &["ADD primary", "ADD far", "ADD common"])?;
    let form = PodSpec {
        namespace: "other",
        ..PodSpec::annotated(&[(NETWORKS, "default/a")])
    };
    let pod = harness.pod_with("global-not", &form)?;
    harness
        .verb_with("ADD", &pod, &keys)?
        .error_contains(&["annotation violates permission"])
}

fn exempts_the_configuration(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach_with("exempt", "a", &json!({"namespaceIsolation": true, "clusterNetwork": "central", "defaultNetworks": ["also-central"]}))?;
    harness.expect_calls(&pod, &["ADD central", "ADD also-central", "ADD a"])
}

fn off(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("open", "other/far,shared/common")?;
    harness.expect_calls(&pod, &["ADD primary", "ADD far", "ADD common"])?;
    let status = harness.network_status(&pod)?;
    ensure!(status[1]["name"] == "other/far", "{status:?}");
    Ok(())
}
