//! The state of each container's attachments on disk.
//!
//! A container has two files: the one that upstream Multus reads and writes, too, and a sidecar with everything else that the daemon needs.
//! The sidecar counts only while it belongs to exactly that upstream file, so either program can take over from the other.
//!
//! These steps wait for the disk (`store` gives the reasons):
//!
//! | step | waits for |
//! |---|---|
//! | first record of an ADD | content and name of the sidecar, which is complete in itself; on ext4, XFS and Btrfs, whose sync commits both, while the default network is attached |
//! | upstream's file of that record | nothing: after a power cut the sidecar of an earlier boot counts without it |
//! | progress of an ADD | nothing: after a reboot everything in the record counts as begun |
//! | changed networks of a running pod | both files |
//! | any other change of a record | content of the sidecar, so that the old one or the new one survives |
//! | removal by a DEL | the removal of upstream's file, after that of both |
//! | any other removal | the removal of upstream's file, before and after that of the sidecar |
//!
//! The result cache, locks and device information wait for nothing.

mod boot;
pub mod pod_report;
mod sidecar;
mod store;
mod upstream;

pub(crate) use boot::boot_id;
pub use store::{AddRecord, StateError, Store, Writer, own_dir, remove_locks};

use std::sync::Arc;

use cni::config::NetworkConfig;
use cni::env::{ContainerId, IfName};
use cni::types::Route;
use plan::{PodView, Requested};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The attachments of one container.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub container_id: ContainerId,
    /// The interface that the runtime requested.
    pub ifname: IfName,
    /// The network namespace of the ADD, if it is known.
    pub netns: Option<String>,
    /// The start of the process whose ID is in the path of the namespace, in the kernel's ticks; `None` for another path, and where another
    /// program wrote the state.
    pub netns_process: Option<u64>,
    /// The pod, if it is known.
    pub pod: PodRef,
    /// The delegates in the order of their ADD; the first is the default network.
    pub delegates: Vec<Delegate>,
    /// Whether a change still has to be written into the pod's status.
    pub status_pending: bool,
    /// The time of its first failed DEL, in seconds since the kernel was started.
    pub failing_since: Option<u64>,
    /// Whether the node was rebooted since this was written. The network namespace was then deleted with everything in it.
    pub rebooted: bool,
}

impl State {
    /// Returns the state of a container of which nothing is known.
    pub fn unknown(container_id: &ContainerId, ifname: &IfName) -> Self {
        Self {
            container_id: container_id.clone(),
            ifname: ifname.clone(),
            netns: None,
            netns_process: None,
            pod: PodRef::default(),
            delegates: Vec::new(),
            status_pending: false,
            failing_since: None,
            rebooted: false,
        }
    }
}

/// A pod's identity; its fields are empty if the container has only upstream's file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl From<&PodView> for PodRef {
    fn from(pod: &PodView) -> Self {
        Self {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        }
    }
}

/// One attachment of a container.
#[derive(Debug, Clone, PartialEq)]
pub struct Delegate {
    /// The network's name in status and events.
    pub name: String,
    /// The interface in the container.
    pub ifname: IfName,
    /// The complete configuration, shared with its plan.
    pub config: Arc<NetworkConfig>,
    /// The pod's requests for this network.
    pub requested: Requested,
    /// The capability arguments of its ADD.
    pub capability_args: Map<String, Value>,
    /// The `CNI_ARGS` of its ADD, which the result cache holds and not the state files.
    pub args: Option<Vec<(String, String)>>,
    /// How far its ADD or DEL has come.
    pub progress: Progress,
    /// Default routes that its plugins made and that another network replaces for as long as it requests the default route.
    pub displaced: Vec<Route>,
}

/// How far a delegate has come. Progress is written before the step, so `Started` may mean that nothing has happened yet. A record of an
/// earlier boot may lack the last steps, so its `Planned` is read as `Started`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// ADD was not begun, so there is nothing to undo.
    Planned,
    /// ADD was begun, so DEL is due.
    Started,
    /// ADD failed. DEL is tried for all plugins, but errors of those from position `attached` on do not count: they may have nothing to
    /// undo, or a configuration that they cannot read.
    Failed {
        /// The number of plugins that certainly have something to undo.
        attached: usize,
    },
    /// The progress was not recorded, as in upstream's file.
    Unknown,
    /// DEL has succeeded.
    Removed,
}

#[cfg(test)]
pub(crate) mod faults;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
