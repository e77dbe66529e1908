//! Cases of subject `legacy`: The annotation of the original proposal.

use anyhow::ensure;
use serde_json::json;

use super::cases;
use crate::rules::harness::{Harness, NETWORKS, PodSpec};

cases! { "legacy":
    plain annotation_off ["legacy.off"]
    plain annotation ["legacy.annotation"]
    plain annotation_and_current ["legacy.current-annotation-wins"]
    plain plugin_definition ["legacy.plugin-definition"]
}

const LEGACY: &str = "alpha.network.k8s.io/networks";

fn annotation_off(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod_with("legacy-off", &PodSpec::annotated(&[(LEGACY, "a,b")]))?;
    harness.add(&pod)?;
    harness.expect_calls(&pod, &["ADD primary"])
}

fn annotation(harness: &Harness) -> anyhow::Result<()> {
    let keys = json!({"legacyNetworksAnnotation": true});
    let pod = harness.pod_with("legacy", &PodSpec::annotated(&[(LEGACY, "a,b")]))?;
    harness.add_with(&pod, &keys)?;
    harness.expect_calls(&pod, &["ADD a", "ADD b"])?;
    let call = harness.call(&pod, "ADD", "a")?;
    ensure!(call.variable("CNI_IFNAME") == "eth0", "{call:?}");
    let call = harness.call(&pod, "ADD", "b")?;
    ensure!(call.variable("CNI_IFNAME") == "eth1", "{call:?}");
    let status = harness.network_status(&pod)?;
    ensure!(
        status[0]["name"] == "default/a" && status[0]["default"] == true,
        "{status:?}"
    );
    harness.del(&pod)?;
    harness.expect_calls(&pod, &["ADD a", "ADD b", "DEL b", "DEL a"])
}

fn annotation_and_current(harness: &Harness) -> anyhow::Result<()> {
    let keys = json!({"legacyNetworksAnnotation": true});
    let form = PodSpec::annotated(&[(LEGACY, "b"), (NETWORKS, "a")]);
    let pod = harness.pod_with("legacy-and-current", &form)?;
    harness.add_with(&pod, &keys)?;
    harness.expect_calls(&pod, &["ADD primary", "ADD a"])
}

fn plugin_definition(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("legacy-plugin", "recorder-plain")?;
    harness
        .verb("ADD", &pod)?
        .error_contains(&["recorder-plain", "spec.config is empty"])?;
    harness.add_with(&pod, &json!({"legacyNetworksAnnotation": true}))?;
    let call = harness.call(&pod, "ADD", "recorder-plain")?;
    let expected =
        json!({"cniVersion": "1.1.0", "name": "recorder-plain", "type": "recorder-plain"});
    ensure!(call.stdin == expected, "{}", call.stdin);
    harness.del(&pod)?;
    harness.call(&pod, "DEL", "recorder-plain").map(drop)
}
