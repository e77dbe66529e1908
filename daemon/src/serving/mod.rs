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
mod queue;
pub(crate) mod replay;
mod response;
pub mod service;
mod snapshot;
mod verb;

use std::thread::available_parallelism;

use cni::env::Command;

use self::fair::{Entry, Lane, Limits};
use crate::{
    call::{CniCall, PodName},
    journal::Subject,
};

pub use body::Bodies;
pub use queue::Queue;
pub(crate) use verb::{Endpoint, verb};

/// The number of ADDs and DELs that run at once: for each processor, and at least.
const PER_PROCESSOR: usize = 4;
const LEAST: usize = 8;
/// The number of CHECKs and GCs, and of STATUSes, that run at once.
const CHECKS: usize = 4;
const STATUSES: usize = 4;
/// The most waiting requests; a node usually has up to 110 pods, rarely more than 250.
const WAITING: usize = 2000;
/// Threads for work outside the queue: inspecting running pods, files, reading the journal.
const OTHER_THREADS: usize = 32;

/// The most ADDs and DELs at once, unless the daemon's file sets another number.
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
        waiting: WAITING,
    }
}

/// The most blocking threads at one time.
pub fn threads(configured: Option<usize>) -> usize {
    changes(configured).saturating_add(CHECKS + STATUSES + OTHER_THREADS)
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
