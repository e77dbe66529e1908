//! A stub of virt-handler of `KubeVirt` for all nodes: it tells virt-controller what the pods of machines show, and builds the links that the
//! real one builds in them. It starts no guest: a machine is Running as soon as its pod is ready, and a migration takes no time.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    control_plane::api_client::ApiClient,
    plumbing::{self, Plumbing},
};

/// Pause between two looks at all machines.
const PAUSE: Duration = Duration::from_millis(100);
/// The object of each machine.
const INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
/// virt-controller gives no machine to a node whose virt-handler has been silent for minutes.
const HEARTBEAT: &str = "2999-01-01T00:00:00Z";
/// Where a machine's status has an interface from; virt-controller adds the network status of the pod.
const DOMAIN: &str = "domain";
const SEPARATOR: &str = ", ";
/// An instant for fields that have to be there.
const INSTANT: &str = "2026-01-01T00:00:00Z";

pub(super) struct VirtHandler<'a> {
    pub(super) cluster: &'a Cluster,
    /// Its requests, by its own account.
    pub(super) api: ApiClient,
    pub(super) log: PathBuf,
}

impl VirtHandler<'_> {
    /// Makes each node one that machines can run on, by the labels and devices that virt-handler finds.
    pub(super) fn prepare_nodes(&self, machine: &Value) -> anyhow::Result<()> {
        let domain = &machine["spec"]["template"]["spec"]["domain"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (model, kind) = (
            text(&domain["cpu"]["model"]),
            text(&domain["machine"]["type"]),
        );
        let labels = json!({
            "kubevirt.io/schedulable": "true",
            format!("cpu-model.node.kubevirt.io/{model}"): "true",
            format!("machine-type.node.kubevirt.io/{kind}"): "true",
        });
        // These kubelets report no local storage.
        let resources = json!({"devices.kubevirt.io/tun": "10", "ephemeral-storage": "1Gi"});
        for member in &self.cluster.members {
            let path = format!("/api/v1/nodes/{}", member.node.name);
            let metadata =
                json!({"labels": labels, "annotations": {"kubevirt.io/heartbeat": HEARTBEAT}});
            self.api
                .request("PATCH", &path, &json!({"metadata": metadata}))?;
            let status = json!({"status": {"capacity": resources, "allocatable": resources}});
            self.api
                .request("PATCH", &format!("{path}/status"), &status)?;
        }
        Ok(())
    }

    /// Looks at all machines until it is stopped. What fails is in the log and is tried again.
    pub(super) fn run(&self, stop: &AtomicBool) {
        let mut log = String::new();
        while !stop.load(Ordering::Relaxed) {
            if let Err(error) = self.look_at_all() {
                log.push_str(
                    &error
                        .chain()
                        .map(ToString::to_string)
                        .collect::<Vec<_>>()
                        .join(": "),
                );
                log.push('\n');
                let _ = fs::write(&self.log, &log);
            }
            thread::sleep(PAUSE);
        }
    }

    fn look_at_all(&self) -> anyhow::Result<()> {
        let list = self.api.get(INSTANCES)?;
        let machines = list["items"].as_array().context("it is a list")?;
        let outcomes = machines.iter().map(|machine| self.look_at(machine));
        outcomes.fold(Ok(()), Result::and)
    }

    fn look_at(&self, machine: &Value) -> anyhow::Result<()> {
        let status = &machine["status"];
        let change = match status["phase"].as_str().unwrap_or_default() {
            "Scheduled" => Some(started()),
            "Running" if machine["metadata"]["deletionTimestamp"].is_string() => {
                Some(json!({"status": {"phase": "Succeeded"}}))
            }
            "Running" => match migrated(machine) {
                Some(change) => Some(change),
                None => self.interfaces(machine)?,
            },
            _ => None,
        };
        change.map_or(Ok(()), |change| self.patch(machine, change))
    }

    /// Changes a machine that nobody else has changed since.
    fn patch(&self, machine: &Value, mut change: Value) -> anyhow::Result<()> {
        let metadata = &machine["metadata"];
        change["metadata"]["resourceVersion"] = metadata["resourceVersion"].clone();
        let name = metadata["name"].as_str().context("a machine has a name")?;
        self.api
            .request("PATCH", &format!("{INSTANCES}/{name}"), &change)?;
        Ok(())
    }

    /// Connects the machine with the interfaces that its pod has got, and lets go of those that it is to lose; returns the change of the
    /// machine's status.
    fn interfaces(&self, machine: &Value) -> anyhow::Result<Option<Value>> {
        let (spec, reported) = (&machine["spec"], &machine["status"]["interfaces"]);
        let wanted = spec["domain"]["devices"]["interfaces"].as_array();
        let mut found = Vec::new();
        for interface in reported.as_array().into_iter().flatten() {
            let mut specs = wanted.into_iter().flatten();
            let spec = specs.find(|spec| spec["name"] == interface["name"]);
            let is_absent = spec.is_some_and(|spec| spec["state"] == "absent");
            let is_bridge = spec.is_some_and(|spec| spec["bridge"].is_object());
            let source = interface["infoSource"].as_str().unwrap_or_default();
            let is_connected = source.split(SEPARATOR).any(|one| one == DOMAIN);
            let mut interface = interface.clone();
            if is_absent && is_connected {
                let link = interface["podInterfaceName"].as_str();
                self.plumbing(machine)?
                    .disconnect(link.context("a pod's link has a name")?)?;
                interface["infoSource"] = without_domain(source).into();
            } else if is_absent && source.is_empty() {
                // Neither guest nor pod has it.
                continue;
            } else if !is_absent && !is_connected && is_bridge && !source.is_empty() {
                let link = interface["podInterfaceName"].as_str();
                self.plumbing(machine)?
                    .connect(link.context("a pod's link has a name")?)?;
                interface["infoSource"] = [DOMAIN, source].join(SEPARATOR).into();
            }
            found.push(interface);
        }
        let found = Value::from(found);
        let has_changed = reported.is_array() && found != *reported;
        Ok(has_changed.then(|| json!({"status": {"interfaces": found}})))
    }

    /// Returns the namespace of the pod in which the machine is.
    fn plumbing(&self, machine: &Value) -> anyhow::Result<Plumbing<'_>> {
        let node = machine["status"]["nodeName"].as_str();
        let pods = machine["status"]["activePods"].as_object();
        let uid = pods
            .into_iter()
            .flatten()
            .find(|(_, on)| on.as_str() == node);
        let (uid, _) = uid.context("the machine has no pod")?;
        let pods = self.api.get("/api/v1/namespaces/default/pods")?;
        let pods = pods["items"].as_array().context("it is a list")?;
        let pod = pods
            .iter()
            .find(|pod| pod["metadata"]["uid"].as_str() == Some(uid));
        let nodes = self.cluster.members.iter().map(|member| &member.node);
        plumbing::of(nodes, pod.context("the machine's pod is gone")?)
    }

    /// Ends the process of a pod whose machine has left it.
    pub(super) fn end_launcher(&self, pod: &str) -> anyhow::Result<()> {
        ensure!(pod.starts_with("virt-launcher-"), "{pod} is no launcher");
        self.cluster.delete(&[pod.to_owned()])
    }
}

/// Returns the change of a machine whose pod has become ready. Patches of virt-controller test each field of a condition, and no null is kept.
fn started() -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": INSTANT, "lastTransitionTime": INSTANT});
    let conditions = [condition("Ready"), condition("LiveMigratable")];
    json!({"status": {"phase": "Running", "selinuxContext": "none", "conditions": conditions}})
}

/// Returns the change of a machine whose target pod is ready: it is there now.
fn migrated(machine: &Value) -> Option<Value> {
    let state = &machine["status"]["migrationState"];
    let is_done = state["completed"].as_bool().unwrap_or_default();
    let target = state["targetNode"].as_str().filter(|_| !is_done)?;
    let label = |name: &str| machine["metadata"]["labels"][name].as_str();
    if label("kubevirt.io/migrationTargetNodeName") != Some(target) {
        return None;
    }
    // Its interfaces are those of another pod, to which it is not connected yet.
    let mut interfaces = machine["status"]["interfaces"].clone();
    for interface in interfaces.as_array_mut().into_iter().flatten() {
        let source = interface["infoSource"].as_str().unwrap_or_default();
        interface["infoSource"] = without_domain(source).into();
    }
    Some(json!({
        "metadata": {"labels": {"kubevirt.io/nodeName": target}},
        "status": {"nodeName": target, "interfaces": interfaces, "migrationState": {
            "targetNodeAddress": "192.0.2.1", "targetNodeDomainDetected": true, "targetNodeDomainReadyTimestamp": INSTANT,
            "startTimestamp": INSTANT, "endTimestamp": INSTANT, "completed": true,
        }},
    }))
}

/// Returns the sources of an interface's status without the guest's own.
fn without_domain(source: &str) -> String {
    let left = source.split(SEPARATOR).filter(|one| *one != DOMAIN);
    left.collect::<Vec<_>>().join(SEPARATOR)
}
