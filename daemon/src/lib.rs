//! `multus-daemon`: serves the shim's requests by running delegates, and keeps the node ready for them. What a pod gets is decided
//! in the crate `plan`.

#![allow(
    clippy::result_large_err,
    reason = "a failure is the end of a verb that ran processes, and moves a few times"
)]

pub mod app;
pub mod commands;

pub mod serving;

mod backoff;
mod call;
pub mod engine;
pub mod errors;
pub mod journal;
pub mod state;

pub mod config_manager;
pub mod hotplug;
mod pod_queue;
pub mod reconcile;
pub mod statuses;

pub mod access;
pub mod certificate;
pub mod cluster;
pub mod devices;

pub mod host;

pub mod logging;
pub mod metrics;
pub mod networks;
pub mod readiness;
pub mod watchdog;

#[cfg(any(test, fuzzing))]
pub mod fuzz;
