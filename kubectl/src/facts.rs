//! What a pod's object tells of its networks.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use plan::{netconf::Netconf, network_status};
use serde::Deserialize;
use serde_json::Value;

use crate::{judge, object};

/// A pod of the cluster.
#[derive(Debug, Default, Clone)]
pub(crate) struct Facts {
    /// What it asks for.
    pub(crate) pod: object::Pod,
    /// Its node; empty before there is one.
    pub(crate) node: String,
    /// `Pending`, `Running` and so on.
    pub(crate) phase: String,
    /// Whether it is being deleted.
    pub(crate) is_deleted: bool,
    /// Why no node was found.
    pub(crate) unscheduled: Option<String>,
    /// When its node took it, in seconds since 1970.
    pub(crate) started: Option<u64>,
    /// Why containers do not run, such as `ImagePullBackOff`.
    pub(crate) waiting: Vec<String>,
    /// The networks that it has; `None` without the annotation.
    pub(crate) status: Option<Vec<NetworkStatus>>,
}

/// One entry of the network status.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct NetworkStatus {
    pub(crate) name: String,
    pub(crate) interface: String,
    pub(crate) ips: Vec<String>,
    pub(crate) mac: String,
    pub(crate) default: bool,
    pub(crate) gateway: Vec<String>,
}

impl Facts {
    /// Reads the object.
    pub(crate) fn read(object: &Value) -> Result<Self, String> {
        let text = |pointer: &str| {
            let value = object.pointer(pointer).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let annotation = object
            .pointer("/metadata/annotations")
            .and_then(|annotations| annotations.get(network_status::ANNOTATION))
            .and_then(Value::as_str);
        Ok(Self {
            pod: object::pod(object, "")?,
            node: text("/spec/nodeName"),
            phase: text("/status/phase"),
            is_deleted: object.pointer("/metadata/deletionTimestamp").is_some(),
            unscheduled: unscheduled(object),
            started: seconds(&text("/status/startTime")),
            waiting: waiting(object),
            status: annotation
                .map(serde_json::from_str)
                .transpose()
                .map_err(|error| format!("the pod's network status cannot be read: {error}"))?,
        })
    }

    /// `namespace/name`.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.pod.view.namespace, self.pod.view.name)
    }

    /// Whether its sandbox is there: containers run, or wait for something else than the network.
    pub(crate) fn is_up(&self) -> bool {
        self.phase == "Running" || !self.waiting.is_empty() || self.status.is_some()
    }

    /// The networks that its annotation asks for and that are not among these, each as often as it is missing.
    pub(crate) fn missing<'a>(
        &self,
        netconf: &Netconf,
        there: impl IntoIterator<Item = &'a str>,
    ) -> Vec<String> {
        let mut counts = BTreeMap::<&str, usize>::new();
        for name in there {
            *counts.entry(name).or_default() += 1;
        }
        let wanted = judge::selected(&self.pod, netconf);
        let names = wanted
            .iter()
            .map(|selection| format!("{}/{}", selection.namespace, selection.name));
        let is_missing = |name: &String| match counts.get_mut(name.as_str()) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        };
        names.filter(is_missing).collect()
    }
}

/// Seconds since 1970.
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
