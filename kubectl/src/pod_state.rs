//! A pod of the cluster as its object describes it: requested networks, node, phase and network status.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use plan::netconf::Netconf;
use serde_json::Value;

use crate::{
    network_status::{self, NetworkStatus},
    object, validate,
};

/// A pod of the cluster, its status included.
#[derive(Debug, Default, Clone)]
pub(crate) struct PodState {
    /// Name, annotations and the requested networks.
    pub(crate) pod: object::Pod,
    /// The node's name; empty while the pod is not scheduled.
    pub(crate) node: String,
    /// The phase, such as `Pending` or `Running`.
    pub(crate) phase: String,
    /// True when a deletion was requested.
    pub(crate) is_deleted: bool,
    /// The scheduler's reason why no node fits.
    pub(crate) unscheduled: Option<String>,
    /// The time when the kubelet accepted the pod, in seconds since 1970.
    pub(crate) started: Option<u64>,
    /// The reasons why containers do not run, such as `ImagePullBackOff`.
    pub(crate) waiting: Vec<String>,
    /// The entries of the network status; `None` without the annotation.
    pub(crate) status: Option<Vec<NetworkStatus>>,
}

impl PodState {
    /// Reads a pod's object; fails when metadata or network status cannot be parsed.
    pub(crate) fn read(object: &Value) -> Result<Self, String> {
        let text = |pointer: &str| {
            let value = object.pointer(pointer).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        Ok(Self {
            pod: object::pod(object, "")?,
            node: text("/spec/nodeName"),
            phase: text("/status/phase"),
            is_deleted: object.pointer("/metadata/deletionTimestamp").is_some(),
            unscheduled: unscheduled(object),
            started: seconds(&text("/status/startTime")),
            waiting: waiting(object),
            status: network_status::of(object)?,
        })
    }

    /// Returns `namespace/name`.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.pod.view.namespace, self.pod.view.name)
    }

    /// Returns true when the sandbox exists: containers run, or wait for something else than the network.
    pub(crate) fn has_sandbox(&self) -> bool {
        self.phase == "Running" || !self.waiting.is_empty() || self.status.is_some()
    }

    /// Returns the requested networks that are not among `attached`, each as often as it is missing.
    pub(crate) fn missing<'a>(
        &self,
        netconf: &Netconf,
        attached: impl IntoIterator<Item = &'a str>,
    ) -> Vec<String> {
        without(requested(&self.pod, netconf), attached)
    }
}

/// Returns the networks that a pod requests.
pub(crate) fn requested(pod: &object::Pod, netconf: &Netconf) -> Vec<String> {
    let selected = validate::selected(pod, netconf);
    let names = selected
        .iter()
        .map(|selection| format!("{}/{}", selection.namespace, selection.name));
    names.collect()
}

/// Returns the names that are not among others, each as often as it is missing.
pub(crate) fn without<'a>(
    names: Vec<String>,
    others: impl IntoIterator<Item = &'a str>,
) -> Vec<String> {
    let mut counts = BTreeMap::<&str, usize>::new();
    for name in others {
        *counts.entry(name).or_default() += 1;
    }
    let is_missing = |name: &String| match counts.get_mut(name.as_str()) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    names.into_iter().filter(is_missing).collect()
}

/// Parses a time of RFC 3339 into seconds since 1970.
pub(crate) fn seconds(time: &str) -> Option<u64> {
    let time: Timestamp = time.parse().ok()?;
    u64::try_from(time.as_second()).ok()
}

fn unscheduled(object: &Value) -> Option<String> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let condition = conditions
        .iter()
        .find(|one| one["type"] == "PodScheduled" && one["status"] == "False")?;
    Some(condition["message"].as_str().unwrap_or_default().to_owned())
}

fn waiting(object: &Value) -> Vec<String> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let all = lists
        .iter()
        .filter_map(|list| object.pointer(&format!("/status/{list}"))?.as_array())
        .flatten();
    let reasons = all.filter_map(|one| one.pointer("/state/waiting/reason")?.as_str());
    let reasons =
        reasons.filter(|reason| !["ContainerCreating", "PodInitializing"].contains(reason));
    reasons.map(str::to_owned).collect()
}
