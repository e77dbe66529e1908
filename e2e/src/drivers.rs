//! A device plugin and a DRA driver, both of devices that are nothing but names, on the sockets of a real kubelet, and what becomes of
//! their devices. The device plugin is this very program under an argument of its own, as is as much of a
//! kubelet as tells of devices where none runs.

pub(crate) mod device_plugin;
pub(crate) mod dra;
mod grpc;
pub(crate) mod pod_resources;

use std::{collections::BTreeMap, ffi::OsString};

use anyhow::{Context as _, ensure};
use cni::{NetworkConfig, cache::Entry};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, kubelet},
    control_plane::objects,
    node::{Node, Service},
    sh,
};

/// Where networks look for what is known about devices.
const INFORMATION: &str = "/var/run/k8s.cni.cncf.io/devinfo/dp";
/// What daemons keep.
const STATE: &str = "/var/lib/cni/multus";

/// Devices of a pod, by interface.
pub(crate) type DevicesByInterface = BTreeMap<String, String>;

/// Runs what the arguments name, if they name one of these: it ends with its node.
pub(crate) fn run_by_name(
    mut arguments: impl Iterator<Item = OsString>,
) -> Option<anyhow::Result<()>> {
    let run: fn() -> anyhow::Result<()> = match arguments.next()?.to_str()? {
        device_plugin::NAME => device_plugin::run,
        pod_resources::NAME => pod_resources::run,
        _ => return None,
    };
    Some(run())
}

/// Starts both on a node.
pub(crate) fn start(node: &Node) -> anyhow::Result<[Service; 2]> {
    let own = std::env::current_exe()?;
    let settings = dra::settings(&node.name, &kubelet::kubeconfig(node)).to_string();
    let plugin = device_plugin::NAME;
    Ok([
        node.serve(plugin, &own, |command| command.arg(plugin))?,
        node.serve("dra-driver", "dra-driver", |command| command.arg(settings))?,
    ])
}

/// Waits until the kubelet has taken both.
pub(crate) fn are_taken(cluster: &Cluster, node: &str) -> anyhow::Result<()> {
    sh::until(60, "the node has devices", || {
        let object = cluster.get(&["node", node])?;
        let count = object["status"]["allocatable"][device_plugin::RESOURCE].as_str();
        let expected = device_plugin::DEVICES.len().to_string();
        ensure!(count == Some(&expected), "allocatable are {count:?}");
        let slices = cluster.get(&["resourceslices"])?;
        let mut slices = slices["items"].as_array().into_iter().flatten();
        ensure!(
            slices.any(|slice| slice["spec"]["nodeName"] == node),
            "no slice tells of devices"
        );
        Ok(())
    })
}

/// A network whose attachments want a device.
pub(crate) fn network(name: &str, resource: &str, subnet: &str) -> Value {
    let config = json!({
        "cniVersion": "1.0.0", "type": "bridge", "bridge": format!("br-{name}"),
        "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet}]]},
    });
    let mut definition = objects::network(name, &config);
    definition["metadata"]["annotations"] = json!({"k8s.v1.cni.cncf.io/resourceName": resource});
    definition
}

/// What a device's own driver tells the node of it: the file, and what is in it.
fn information(resource: &str, id: &str) -> (String, Value) {
    let name = format!("{resource}-{id}-device.json").replace('/', "-");
    let told = json!({"type": "pci", "version": "1.1.0", "pci": {"pci-address": id}});
    (format!("{INFORMATION}/{name}"), told)
}

/// A claim's part of a pod's specification: one container has it, and the scheduler finds its devices.
pub(crate) fn claim(pod: &mut Value, mut claim: Value) {
    unbind(pod);
    claim["name"] = json!("nics");
    pod["spec"]["resourceClaims"] = json!([claim]);
    pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "nics"}]);
}

/// Leaves the node of a pod to the scheduler.
pub(crate) fn unbind(pod: &mut Value) {
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("nodeName");
    }
}

/// What plugins call the devices that a pod's claim was given, in its order.
pub(crate) fn claimed(cluster: &Cluster, pod: &str) -> anyhow::Result<Vec<&'static str>> {
    let claims = cluster.get(&["resourceclaims"])?;
    let mut all = claims["items"].as_array().into_iter().flatten();
    let claim = all
        .find(|claim| claim["status"]["reservedFor"][0]["name"] == pod)
        .with_context(|| format!("no claim of {pod} has devices: {claims}"))?;
    let results = claim["status"]["allocation"]["devices"]["results"].as_array();
    let names = results.into_iter().flatten().map(|one| &one["device"]);
    let known = |name: &Value| dra::DEVICES.into_iter().find(|(one, _)| name == one);
    Ok(names.filter_map(known).map(|(_, id)| id).collect())
}

/// Words of a container's environment after a variable that begins so; sorted.
pub(crate) fn seen(
    cluster: &Cluster,
    (pod, container): (&str, &str),
    variable: &str,
) -> anyhow::Result<Vec<String>> {
    let words = ["exec", pod, "-c", container, "--", "/bin/busybox", "env"];
    let text = cluster.kubectl(&words)?;
    let values = text
        .lines()
        .filter(|line| line.starts_with(variable))
        .filter_map(|line| Some(line.split_once('=')?.1));
    let mut ids: Vec<_> = values
        .flat_map(str::split_whitespace)
        .map(str::to_owned)
        .collect();
    ids.sort();
    ensure!(!ids.is_empty(), "{container} sees no {variable}: {text}");
    Ok(ids)
}

/// What plugins were told of their device: in what is kept of their ADD.
pub(crate) fn told(node: &Node, pod: &str) -> anyhow::Result<DevicesByInterface> {
    let folder = format!("{STATE}/.multus-rs");
    let mut told = DevicesByInterface::new();
    for name in node.list(&folder)? {
        let path = node.path(&format!("{folder}/{name}"));
        if path.extension().is_none_or(|it| it != "json") {
            continue;
        }
        let state: Value = serde_json::from_slice(&std::fs::read(path)?)?;
        for delegate in state["delegates"].as_array().into_iter().flatten() {
            let id = delegate["requested"]["device_id"].as_str();
            if let (true, Some(id)) = (state["pod"]["name"] == pod, id) {
                let interface = delegate["ifname"].as_str().unwrap_or_default();
                told.insert(interface.to_owned(), id.to_owned());
            }
        }
    }
    for (interface, id) in &told {
        ensure!(
            was_handed(node, interface, id)?,
            "no plugin of {interface} was told of {id}"
        );
    }
    Ok(told)
}

/// Whether every plugin of some network with this interface has the device in its configuration, under both names.
fn was_handed(node: &Node, interface: &str, id: &str) -> anyhow::Result<bool> {
    let results = format!("{STATE}/results");
    for name in node.list(&results)? {
        let file = std::fs::read(node.path(&format!("{results}/{name}")))?;
        let entry: Entry = serde_json::from_slice(&file).with_context(|| name.clone())?;
        let config = NetworkConfig::parse(&entry.config).with_context(|| name.clone())?;
        let has = |key| {
            let mut plugins = config.plugins.iter();
            plugins.all(|plugin| plugin.value.get(key).is_some_and(|value| value == id))
        };
        if entry.if_name == interface && has("deviceID") && has("pciBusID") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Fails unless the pod's status tells of these devices, and of no others.
pub(crate) fn status_tells_of(
    cluster: &Cluster,
    pod: &str,
    told: &DevicesByInterface,
) -> anyhow::Result<()> {
    let object = cluster.pod(pod)?;
    let text = object["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"]
        .as_str()
        .context("no status")?;
    let status: Vec<Value> = serde_json::from_str(text)?;
    for one in &status {
        let interface = one["interface"].as_str().unwrap_or_default();
        let address = one["device-info"]["pci"]["pci-address"].as_str();
        let expected = told.get(interface).map(String::as_str);
        ensure!(
            address == expected,
            "{interface}: {expected:?}, the status tells {one}"
        );
    }
    Ok(())
}
