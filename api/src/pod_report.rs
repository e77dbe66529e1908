//! The report of one node about one pod's networks: `multus-daemon pod` prints it as JSON and `kubectl multus` reads it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cause::Cause;

/// Raised by every change that gives an existing field another meaning.
pub const SCHEMA: u32 = 1;

/// The complete report. Readers ignore fields that they do not know: a newer daemon added them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    pub schema: u32,
    /// The program's version.
    pub version: String,
    /// The node's name in the cluster.
    pub node: String,
    /// The reason why the daemon does not serve pods; absent when it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The daemon's file, key by key.
    pub options: Map<String, Value>,
    /// The pod's containers that have networks.
    pub containers: Vec<Container>,
    /// Recent failures of the pod, the newest last.
    pub failures: Vec<RecentFailure>,
    /// Errors of reading the node's files or querying the daemon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// One sandbox of the pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// The container ID.
    #[serde(rename = "containerID")]
    pub id: String,
    /// The uid of the pod that it was created for; empty when unknown.
    pub uid: String,
    /// Its networks in the order in which they were attached.
    pub attachments: Vec<Attachment>,
}

/// One network of a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// The network's name in status and events.
    pub network: String,
    /// The interface in the container.
    pub interface: String,
    /// The types of its plugins in their order.
    pub plugins: Vec<String>,
    /// The state of the attachment.
    pub progress: Step,
    /// The addresses that its plugins assigned, each with its prefix length.
    pub addresses: Vec<String>,
    /// The `IPAMClaim`, of the pod's namespace, that has the addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// The time of the attachment, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// The device of the attachment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// The state of an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Its plugins have not been started.
    Planned,
    /// Its plugins are running, or were when they were killed.
    Started,
    /// Its plugins have succeeded.
    Attached,
    /// Its plugins failed, and their work is not undone yet.
    Failed,
    /// It is detached.
    Removed,
}

/// One complete failure, under the id that events and the log have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecentFailure {
    /// Its id in events and log.
    pub id: String,
    /// The pod as `namespace/name`.
    pub pod: String,
    /// A verb of CNI, or `hot plug`.
    pub verb: String,
    #[serde(default)]
    pub cause: Cause,
    /// The CNI code.
    pub code: u32,
    /// Cause and hint.
    pub msg: String,
    /// Details, if there are any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
    /// The time of the last occurrence, in seconds since 1970.
    pub at: u64,
    /// The number of occurrences.
    pub count: u32,
}
