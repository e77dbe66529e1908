//! What is known on disk about each container's attachments.
//!
//! Two files a container: the one that upstream Multus reads and writes too, and a sidecar with what more is needed.
//! The sidecar counts only as long as it belongs to exactly that file, so either program can take over from the other.
//!
//! What waits for the disk (`store` says why at each step):
//!
//! | step | waits for |
//! |---|---|
//! | first record of an ADD | content and name of the sidecar, which is complete in itself |
//! | upstream's file of that record | nothing: after a power cut the sidecar of an earlier boot counts without it |
//! | progress of an ADD | nothing: after a reboot everything in the record counts as begun |
//! | networks of a running pod that change | both files |
//! | what else changes in a record | content of the sidecar, so that the old one or the new one is there |
//! | removal by a DEL | the removal of upstream's file, after that of both |
//! | any other removal | the removal of upstream's file, before and after that of the sidecar |
//!
//! The result cache, locks and device information wait for nothing.

mod boot;
pub mod pod_report;
mod sidecar;
mod store;
mod takeover;
mod upstream;

pub(crate) use boot::boot_id;
pub use store::{Begun, StateError, Store, remove_locks};

use cni::config::NetworkConfig;
use cni::env::{ContainerId, IfName};
use cni::types::Route;
use plan::{PodView, Requested};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The attachments of one container.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// The container.
    pub container_id: ContainerId,
    /// The interface that the runtime asked for.
    pub ifname: IfName,
    /// The network namespace that the runtime gave, if it is known.
    pub netns: Option<String>,
    /// The pod, if it is known.
    pub pod: PodRef,
    /// In the order in which they were run; the first is the default network.
    pub delegates: Vec<Delegate>,
    /// Whether the pod's status is still to be told of a change.
    pub untold: bool,
    /// When a DEL of it failed first, in seconds since the kernel was started.
    pub failing_since: Option<u64>,
    /// Whether the kernel was started anew since this was written: the network namespace is gone with everything in it.
    pub rebooted: bool,
}

impl State {
    /// A container of which nothing is known.
    pub fn unknown(container_id: &ContainerId, ifname: &IfName) -> Self {
        Self {
            container_id: container_id.clone(),
            ifname: ifname.clone(),
            netns: None,
            pod: PodRef::default(),
            delegates: Vec::new(),
            untold: false,
            failing_since: None,
            rebooted: false,
        }
    }
}

/// A pod's identity; empty where only upstream's file is there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
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
    /// What status and events call it.
    pub name: String,
    /// The interface it has in the container.
    pub ifname: IfName,
    /// Its complete configuration.
    pub config: NetworkConfig,
    /// What the pod asked for.
    pub requested: Requested,
    /// The capability arguments that it got at ADD.
    pub capability_args: Map<String, Value>,
    /// `CNI_ARGS` that it got at ADD; not kept here, but in the result cache.
    pub args: Option<Vec<(String, String)>>,
    /// How far it is.
    pub progress: Progress,
    /// Default routes that its plugins made, and that are another network's as long as that asks for them.
    pub displaced: Vec<Route>,
}

/// How far a delegate is. Written before the step, so `Started` may mean that nothing has happened yet. That of an earlier boot
/// of the kernel is not certain to be the last: there, what was `Planned` is read as `Started`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// ADD was not begun: nothing is to be undone.
    Planned,
    /// ADD was begun: DEL is due.
    Started,
    /// ADD came back with an error, for the plugins from this position on: DEL is tried, but what it says does not
    /// matter, as they may never have had anything to undo, nor a configuration that they can read.
    Failed {
        /// How many plugins have something to undo for sure.
        attached: usize,
    },
    /// Nobody wrote down how far it was.
    Unknown,
    /// DEL has succeeded.
    Removed,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[cfg(test)]
pub(crate) mod faults;
#[cfg(test)]
mod tests;
