//! From a request's bytes to the moment at which its work begins: reading, and being held until this daemon can serve.
//!
//! A request that waits is a task of its connection: it has no thread, and it is gone as soon as its caller is.

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
    call::{Call, PodName},
    journal::About,
};

pub use body::Bodies;
pub use queue::Queue;
pub(crate) use verb::{Path, verb};

/// ADDs and DELs at work at once for each processor, and the least of them.
const PER_PROCESSOR: usize = 4;
const LEAST: usize = 8;
/// CHECKs and GCs, and STATUSes, at work at once.
const CHECKS: usize = 4;
const STATUSES: usize = 4;
/// Requests that wait; a node has 110 pods, as a rule, and rarely more than 250.
const WAITING: usize = 2000;
/// Threads for what has no place in the queue: looks at running pods, files, what the journal reads.
const OTHER_THREADS: usize = 32;

/// So many ADDs and DELs at once, unless the daemon's file says otherwise.
fn changes(configured: Option<usize>) -> usize {
    let processors = available_parallelism().map_or(1, usize::from);
    configured.unwrap_or_else(|| (processors * PER_PROCESSOR).max(LEAST))
}

/// What the queue lets through at once.
pub(crate) fn limits(configured: Option<usize>) -> Limits {
    Limits {
        changes: changes(configured),
        checks: CHECKS,
        statuses: STATUSES,
        waiting: WAITING,
    }
}

/// The most threads that block at one time.
pub fn threads(configured: Option<usize>) -> usize {
    changes(configured).saturating_add(CHECKS + STATUSES + OTHER_THREADS)
}

/// Where a verb waits and works.
fn lane(command: Command) -> Lane {
    match command {
        Command::Add | Command::Del => Lane::Change,
        Command::Check | Command::Gc => Lane::Check,
        Command::Status | Command::Version => Lane::Status,
    }
}

/// The place of a call in the queue.
fn entry(call: &Call) -> Entry {
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

impl About {
    /// The container and pod of a call.
    pub(crate) fn of(call: &Call) -> Self {
        let container = call.request.as_ref();
        Self {
            container: container.map_or_else(String::new, |one| one.container_id.to_string()),
            pod: call.pod.as_ref().map(PodName::about),
        }
    }

    /// The place of an entry of the journal in the queue.
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
