//! Kubernetes objects of the tests, and how they are read back.

use std::{collections::BTreeMap, process::Command};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::{
    control::Control, inspect::Addresses, node::Node, runtime::IMAGE, sh, workplace::Workplace,
};

/// Annotation that asks for networks.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// Annotation that tells what came of it.
const STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

/// A pod bound to a node; `networks` is the annotation's text.
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

/// A network definition.
pub(crate) fn network(name: &str, config: &Value) -> Value {
    json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"config": config.to_string()},
    })
}

/// Applies the definition of network definitions, as it lies in the packed chart, and then these.
pub(crate) fn definitions(
    work: &Workplace,
    control: &Control,
    node: &Node,
    definitions: &[Value],
) -> anyhow::Result<()> {
    let crd = sh::run(
        Command::new("tar")
            .args([
                "--extract",
                "--gzip",
                "--to-stdout",
                "--wildcards",
                "--file",
            ])
            .arg(work.chart("rke2-multus-crd")?)
            .arg("*/templates/*.yaml"),
    )?;
    apply_definitions(&crd, control, node, definitions)
}

/// Does the same with the CRD of the chart's sources, which needs no release.
pub(crate) fn definitions_without_release(
    control: &Control,
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
    control: &Control,
    node: &Node,
    definitions: &[Value],
) -> anyhow::Result<()> {
    control.apply_text(node, crd)?;
    sh::until(30, "network definitions can be made", || {
        control.apply(node, definitions)
    })
}

/// The kinds of the Prometheus operator that the charts can have objects of, as far as an API server has to know them.
pub(crate) fn monitoring_kinds() -> Vec<Value> {
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

/// Arguments of `kubectl` that wait until objects of these kinds can be made.
pub(crate) const WAIT_FOR_MONITORING_KINDS: &[&str] = &[
    "wait",
    "--for=condition=Established",
    "--timeout=60s",
    "crd/podmonitors.monitoring.coreos.com",
    "crd/prometheusrules.monitoring.coreos.com",
];

/// A bridge on each node with addresses from one range.
pub(crate) fn storage() -> Value {
    let config = json!({
        "cniVersion": "1.0.0", "type": "bridge", "bridge": "br-storage", "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.20.0.0/24"}]]},
    });
    network("storage", &config)
}

/// Interfaces on the wire itself, with the addresses that the pod asks for.
pub(crate) fn wire() -> Value {
    let config = json!({
        "cniVersion": "1.0.0", "type": "macvlan", "master": "eth0", "mode": "bridge",
        "capabilities": {"ips": true}, "ipam": {"type": "static"},
    });
    network("wire", &config)
}

/// The pod's network status as written: name, interface, addresses.
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

/// Fails unless the status tells exactly what is inside.
pub(crate) fn status_tells(pod: &Value, inside: &Addresses) -> anyhow::Result<()> {
    let told: BTreeMap<_, _> = status(pod)?
        .into_iter()
        .map(|(_, interface, ips)| (interface, ips))
        .collect();
    let bare = |address: &String| address.split('/').next().unwrap_or(address).to_owned();
    let expected: BTreeMap<_, Vec<_>> = inside
        .iter()
        .map(|(name, addresses)| (name.clone(), addresses.iter().map(bare).collect()))
        .collect();
    anyhow::ensure!(
        told == expected,
        "the status tells {told:?}, inside is {expected:?}"
    );
    Ok(())
}
