//! A request from its bytes to the moment its work begins: it is read, held until this daemon can serve it, and queued.
//!
//! A waiting request is a task of its connection: it has no thread, and it ends as soon as its client disconnects.

pub mod server;
pub mod socket;

mod body;
pub(crate) mod delegate;
mod fair;
mod hold;
pub mod metrics_port;
mod networks;
mod queue;
pub(crate) mod replay;
mod response;
pub mod service;
mod snapshot;
pub mod status_writer;
mod verb;

use std::{thread::available_parallelism, time::Duration};

use cni::env::Command;

use self::fair::{Entry, Lane, Limits, UTMOST_PER_SLOT};
use crate::{
    call::{CniCall, PodName},
    journal::Subject,
};

pub use body::Bodies;
pub use queue::Queue;
pub(crate) use verb::{Endpoint, verb};

/// The slots for ADDs and DELs: for each processor, and at least.
const PER_PROCESSOR: usize = 4;
const LEAST: usize = 8;
/// The slots for CHECKs and GCs, for STATUSes, and for reconciliations of running pods.
const CHECKS: usize = 4;
const STATUSES: usize = 4;
const HOT_PLUGS: usize = 8;
/// The time after which a request gives its slot back: longer than any plugin works that does not wait.
const SLOT_TIME: Duration = Duration::from_secs(3);
/// The most waiting requests; a node usually has up to 110 pods, rarely more than 250.
const WAITING: usize = 2000;
/// Threads for work outside the queue: files, reading the journal.
const OTHER_THREADS: usize = 32;

/// The slots for ADDs and DELs, unless the daemon's file sets another number.
fn changes(configured: Option<usize>) -> usize {
    let processors = available_parallelism().map_or(1, usize::from);
    configured.unwrap_or_else(|| (processors * PER_PROCESSOR).max(LEAST))
}

/// The limits of the queue.
pub(crate) fn limits(configured: Option<usize>) -> Limits {
    Limits {
        changes: changes(configured),
        checks: CHECKS,
        statuses: STATUSES,
        hot_plugs: HOT_PLUGS,
        waiting: WAITING,
        slot_time: SLOT_TIME,
    }
}

/// The most blocking threads at one time.
pub fn threads(configured: Option<usize>) -> usize {
    let slots = changes(configured).saturating_add(CHECKS + STATUSES + HOT_PLUGS);
    slots
        .saturating_mul(UTMOST_PER_SLOT)
        .saturating_add(OTHER_THREADS)
}

fn lane(command: Command) -> Lane {
    match command {
        Command::Add | Command::Del => Lane::Change,
        Command::Check | Command::Gc => Lane::Check,
        Command::Status | Command::Version => Lane::Status,
    }
}

/// The entry of a call in the queue.
fn entry(call: &CniCall) -> Entry {
    let container = call.request.as_ref();
    Entry {
        lane: lane(call.command),
        namespace: call
            .pod
            .as_ref()
            .map_or_else(String::new, |pod| pod.namespace.clone()),
        verb: call.command.as_str(),
        container: container.map(|request| request.container_id.to_string()),
    }
}

/// The entry of a running pod that is reconciled with its annotations.
pub(crate) fn hot_plug_entry(namespace: &str) -> Entry {
    Entry {
        lane: Lane::HotPlug,
        namespace: namespace.to_owned(),
        verb: "hot plug",
        container: None,
    }
}

impl Subject {
    /// The container and pod of a call.
    pub(crate) fn of(call: &CniCall) -> Self {
        let container = call.request.as_ref();
        Self {
            container: container.map_or_else(String::new, |one| one.container_id.to_string()),
            pod: call.pod.as_ref().map(PodName::pod_ref),
        }
    }

    /// The entry of a journaled DEL in the queue.
    pub(crate) fn entry(&self) -> Entry {
        let namespace = self.pod.as_ref().map(|pod| pod.namespace.clone());
        Entry {
            lane: Lane::Change,
            namespace: namespace.unwrap_or_default(),
            verb: Command::Del.as_str(),
            container: (!self.container.is_empty()).then(|| self.container.clone()),
        }
    }
}
