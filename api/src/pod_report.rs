//! The report of one node about one pod's networks: `multus-daemon pod` prints it as JSON and `kubectl multus` reads it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What changes the meaning of known fields raises it.
pub const SCHEMA: u32 = 1;

/// The whole answer. Fields that a reader does not know are those of a newer daemon.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The program's version.
    pub version: String,
    /// The node's name in the cluster.
    pub node: String,
    /// Why the daemon does not serve pods; absent when it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The daemon's file, key by key.
    pub options: Map<String, Value>,
    /// The pod's containers that have networks.
    pub containers: Vec<Container>,
    /// What went wrong with the pod of late, the newest last.
    pub failures: Vec<Remembered>,
    /// What could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// One sandbox of the pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// Its id at the runtime.
    #[serde(rename = "containerID")]
    pub id: String,
    /// The uid of the pod that it was made for; empty when it is not known.
    pub uid: String,
    /// Its networks in the order in which they were attached.
    pub attachments: Vec<Attachment>,
}

/// One network of a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// What status and events call the network.
    pub network: String,
    /// The interface in the container.
    pub interface: String,
    /// The types of its plugins in their order.
    pub plugins: Vec<String>,
    /// How far it is.
    pub progress: Step,
    /// What its plugins gave it, each with its prefix length.
    pub addresses: Vec<String>,
    /// Since when it is attached, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// The device that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// How far an attachment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Its turn has not come.
    Planned,
    /// Its plugins are at work, or were when they were killed.
    Started,
    /// Its plugins have answered.
    Attached,
    /// Its plugins failed, and what they did is not undone yet.
    Failed,
    /// It is detached.
    Removed,
}

/// One failure, in whole, under the id that events and the log have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remembered {
    /// By which events and the log know it.
    pub id: String,
    /// The pod as `namespace/name`.
    pub pod: String,
    /// What was asked for: a verb of CNI, or `hot plug`.
    pub verb: String,
    /// The CNI code.
    pub code: u32,
    /// What is wrong, and what to do.
    pub msg: String,
    /// What more is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
    /// When it happened last, in seconds since 1970.
    pub at: u64,
    /// How often it happened.
    pub count: u32,
}
