//! Kubernetes objects of the tests, and the network status of pods.

use std::{collections::BTreeMap, process::Command};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::{
    control_plane::ControlPlane,
    node::{Node, dhcp, inspect::Addresses, runtime::IMAGE},
    sh,
    test_env::TestEnv,
};

/// The annotation that requests networks.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// The annotation with the network status.
const STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

/// Returns a pod bound to a node; `networks` is the text of the annotation.
pub(crate) fn pod(name: &str, node: &str, networks: Option<&str>) -> Value {
    let annotations: BTreeMap<_, _> = networks.map(|text| (NETWORKS, text)).into_iter().collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "Never"}],
        },
    })
}

/// Returns a pod whose node the scheduler chooses.
pub(crate) fn unbound_pod(name: &str, networks: Option<&str>) -> Value {
    let mut pod = pod(name, "", networks);
    unbind(&mut pod);
    pod
}

/// Removes the node from a pod, so that the scheduler chooses it.
pub(crate) fn unbind(pod: &mut Value) {
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("nodeName");
    }
}

/// Returns the name of an object.
pub(crate) fn name(object: &Value) -> anyhow::Result<&str> {
    let name = object["metadata"]["name"].as_str();
    name.with_context(|| format!("there is no name in {object}"))
}

/// Returns a network definition.
pub(crate) fn network(name: &str, config: &Value) -> Value {
    json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"config": config.to_string()},
    })
}

/// Applies the CRD of the packed chart, and then these network definitions.
pub(crate) fn definitions(
    env: &TestEnv,
    control: &ControlPlane,
    node: &Node,
    definitions: &[Value],
) -> anyhow::Result<()> {
    let chart = env.chart("rke2-multus-crd")?;
    let template = |name: &str| {
        let mut tar = Command::new("tar");
        tar.args("--extract --gzip --to-stdout --wildcards --file".split(' '))
            .arg(&chart);
        sh::run(tar.arg(format!("*/templates/{name}.yaml")))
    };
    let crds = [
        template("networkAttachmentDefinition")?,
        template("addressBlock")?,
    ];
    let crd = crds.join("\n---\n");
    apply_definitions(&crd, control, node, definitions)
}

/// Does the same with the CRD of the chart's sources, which needs no release.
pub(crate) fn definitions_without_release(
    control: &ControlPlane,
    node: &Node,
    definitions: &[Value],
) -> anyhow::Result<()> {
    let crd = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../chart/template/crd/templates/networkAttachmentDefinition.yaml"
    ));
    apply_definitions(crd, control, node, definitions)
}

fn apply_definitions(
    crd: &str,
    control: &ControlPlane,
    node: &Node,
    definitions: &[Value],
) -> anyhow::Result<()> {
    control.apply_text(node, crd)?;
    sh::until(30, "network definitions can be made", || {
        control.apply(node, definitions)
    })
}

/// Returns CRDs of the Prometheus operator's kinds that the charts can contain, with an open schema.
pub(crate) fn monitoring_crds() -> Vec<Value> {
    let kinds = [
        ("PodMonitor", "podmonitors"),
        ("PrometheusRule", "prometheusrules"),
    ];
    let definition = |(kind, plural): (&str, &str)| {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
            "spec": {
                "group": "monitoring.coreos.com", "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open}}}}],
            },
        })
    };
    kinds.into_iter().map(definition).collect()
}

/// Arguments of kubectl that wait until the API server serves those kinds.
pub(crate) const WAIT_FOR_MONITORING_CRDS: &[&str] = &[
    "wait",
    "--for=condition=Established",
    "--timeout=60s",
    "crd/podmonitors.monitoring.coreos.com",
    "crd/prometheusrules.monitoring.coreos.com",
];

/// Returns the network `storage`: a bridge on each node with addresses from one range.
pub(crate) fn storage() -> Value {
    let config = json!({
        "cniVersion": "1.0.0", "type": "bridge", "bridge": "br-storage", "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.20.0.0/24"}]]},
    });
    network("storage", &config)
}

/// Returns the network `leased`: a bridge with addresses from the node's DHCP server.
pub(crate) fn leased() -> Value {
    let config = json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": dhcp::BRIDGE, "ipam": {"type": "dhcp"}});
    network("leased", &config)
}

/// Returns the network `wire`: macvlan interfaces on the node's `eth0`, with the addresses that the pod requests.
pub(crate) fn wire() -> Value {
    let config = json!({
        "cniVersion": "1.0.0", "type": "macvlan", "master": "eth0", "mode": "bridge",
        "capabilities": {"ips": true}, "ipam": {"type": "static"},
    });
    network("wire", &config)
}

/// Returns the pod's network status: name, interface and addresses of each entry.
pub(crate) fn status(pod: &Value) -> anyhow::Result<Vec<(String, String, Vec<String>)>> {
    let text = pod["metadata"]["annotations"][STATUS]
        .as_str()
        .context("the pod has no network status")?;
    let entries: Vec<Value> = serde_json::from_str(text).context("network status")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(entries
        .iter()
        .map(|entry| {
            let ips = entry["ips"].as_array().into_iter().flatten();
            (
                text(&entry["name"]),
                text(&entry["interface"]),
                ips.map(text).collect(),
            )
        })
        .collect())
}

/// Fails unless the network status lists exactly these interfaces and addresses.
pub(crate) fn ensure_status(pod: &Value, inside: &Addresses) -> anyhow::Result<()> {
    let reported: BTreeMap<_, _> = status(pod)?
        .into_iter()
        .map(|(_, interface, ips)| (interface, ips))
        .collect();
    let bare = |address: &String| address.split('/').next().unwrap_or(address).to_owned();
    let expected: BTreeMap<_, Vec<_>> = inside
        .iter()
        .map(|(name, addresses)| (name.clone(), addresses.iter().map(bare).collect()))
        .collect();
    anyhow::ensure!(
        reported == expected,
        "the status has {reported:?}, the pod {expected:?}"
    );
    Ok(())
}
