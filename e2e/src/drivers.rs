//! A device plugin and a DRA driver for a real kubelet, whose devices are names only, and checks of which pods and networks got which
//! devices. The device plugin is this program in another role, and so is the pod resources API of a kubelet for nodes without one.

pub(crate) mod device_plugin;
pub(crate) mod dra;
pub(crate) mod pod_resources;

use std::{collections::BTreeMap, ffi::OsString};

use anyhow::{Context as _, ensure};
use cni::{NetworkConfig, cache::Entry};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, kubelet},
    control_plane::objects,
    daemon::STATE_DIR,
    node::{Node, Service},
    sh,
};

/// The directory of device information files.
const INFORMATION: &str = "/var/run/k8s.cni.cncf.io/devinfo/dp";

/// The device IDs of a pod by interface.
pub(crate) type DevicesByInterface = BTreeMap<String, String>;

/// Runs the driver that the first argument names, if it names one. The driver ends with its node.
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

/// Starts device plugin and DRA driver on a node.
pub(crate) fn start(node: &Node) -> anyhow::Result<[Service; 2]> {
    let own = std::env::current_exe()?;
    let settings = dra::settings(&node.name, &kubelet::kubeconfig(node)).to_string();
    let plugin = device_plugin::NAME;
    Ok([
        node.serve(plugin, &own, |command| command.arg(plugin))?,
        node.serve("dra-driver", "dra-driver", |command| command.arg(settings))?,
    ])
}

/// Waits until both are registered at the kubelet.
pub(crate) fn wait_until_registered(cluster: &Cluster, node: &str) -> anyhow::Result<()> {
    sh::until(60, "the node has devices", || {
        let object = cluster.get(&["node", node])?;
        let count = object["status"]["allocatable"][device_plugin::RESOURCE].as_str();
        let expected = device_plugin::DEVICES.len().to_string();
        ensure!(
            count == Some(&expected),
            "{count:?} devices are allocatable"
        );
        let slices = cluster.get(&["resourceslices"])?;
        let mut slices = slices["items"].as_array().into_iter().flatten();
        ensure!(
            slices.any(|slice| slice["spec"]["nodeName"] == node),
            "the node has no resource slice"
        );
        Ok(())
    })
}

/// Returns a network whose attachments need a device of the resource.
pub(crate) fn network(name: &str, resource: &str, subnet: &str) -> Value {
    let config = json!({
        "cniVersion": "1.0.0", "type": "bridge", "bridge": format!("br-{name}"),
        "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet}]]},
    });
    let mut definition = objects::network(name, &config);
    definition["metadata"]["annotations"] = json!({"k8s.v1.cni.cncf.io/resourceName": resource});
    definition
}

/// Returns path and content of the device information file that a driver writes for a device.
fn device_information(resource: &str, id: &str) -> (String, Value) {
    let name = format!("{resource}-{id}-device.json").replace('/', "-");
    let information = json!({"type": "pci", "version": "1.1.0", "pci": {"pci-address": id}});
    (format!("{INFORMATION}/{name}"), information)
}

/// Adds a claim to a pod and its container, and leaves the choice of the node to the scheduler, which allocates the devices.
pub(crate) fn add_claim(pod: &mut Value, mut claim: Value) {
    objects::unbind(pod);
    claim["name"] = json!("nics");
    pod["spec"]["resourceClaims"] = json!([claim]);
    pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "nics"}]);
}

/// Returns the device IDs that are allocated to a pod's claim, in its order.
pub(crate) fn claimed_devices(cluster: &Cluster, pod: &str) -> anyhow::Result<Vec<&'static str>> {
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

/// Returns the device IDs in the environment variables of a container whose names begin with `variable`, sorted.
pub(crate) fn devices_in_environment(
    cluster: &Cluster,
    (pod, container): (&str, &str),
    variable: &str,
) -> anyhow::Result<Vec<String>> {
    let args = ["exec", pod, "-c", container, "--", "/bin/busybox", "env"];
    let text = cluster.kubectl(&args)?;
    let values = text
        .lines()
        .filter(|line| line.starts_with(variable))
        .filter_map(|line| Some(line.split_once('=')?.1));
    let mut ids: Vec<_> = values
        .flat_map(str::split_whitespace)
        .map(str::to_owned)
        .collect();
    ids.sort();
    ensure!(!ids.is_empty(), "{container} has no {variable}: {text}");
    Ok(ids)
}

/// Returns the devices of a pod's attachments from the daemon's state, after checking that each plugin got its device.
pub(crate) fn attached_devices(node: &Node, pod: &str) -> anyhow::Result<DevicesByInterface> {
    let directory = format!("{STATE_DIR}/.multus-rs");
    let mut devices = DevicesByInterface::new();
    for name in node.list(&directory)? {
        let path = node.path(&format!("{directory}/{name}"));
        if path.extension().is_none_or(|it| it != "json") {
            continue;
        }
        let state: Value = serde_json::from_slice(&std::fs::read(path)?)?;
        for delegate in state["delegates"].as_array().into_iter().flatten() {
            let id = delegate["requested"]["device_id"].as_str();
            if let (true, Some(id)) = (state["pod"]["name"] == pod, id) {
                let interface = delegate["ifname"].as_str().unwrap_or_default();
                devices.insert(interface.to_owned(), id.to_owned());
            }
        }
    }
    for (interface, id) in &devices {
        ensure!(
            plugins_got(node, interface, id)?,
            "no plugin of {interface} got device {id}"
        );
    }
    Ok(devices)
}

/// Returns whether every plugin of a network with this interface has the device in its configuration, under both keys.
fn plugins_got(node: &Node, interface: &str, id: &str) -> anyhow::Result<bool> {
    let results = format!("{STATE_DIR}/results");
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

/// Fails unless the pod's network status has exactly these devices. It is written while the pod starts.
pub(crate) fn ensure_status(
    cluster: &Cluster,
    pod: &str,
    devices: &DevicesByInterface,
) -> anyhow::Result<()> {
    sh::until(10, "the network status", || {
        compare_status(cluster, pod, devices)
    })
}

fn compare_status(
    cluster: &Cluster,
    pod: &str,
    devices: &DevicesByInterface,
) -> anyhow::Result<()> {
    let object = cluster.pod(pod)?;
    let text = object["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"]
        .as_str()
        .context("no status")?;
    let status: Vec<Value> = serde_json::from_str(text)?;
    for one in &status {
        let interface = one["interface"].as_str().unwrap_or_default();
        let address = one["device-info"]["pci"]["pci-address"].as_str();
        let expected = devices.get(interface).map(String::as_str);
        ensure!(
            address == expected,
            "{interface} has device {expected:?}, the status {one}"
        );
    }
    Ok(())
}
