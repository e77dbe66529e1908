//! The built `multus-daemon` as a process, with fake plugins that record their calls, a fake API server, and a directory as the node.
//!
//! The tests need no root and only the loopback network: the pod's network namespace is the daemon's own, and delegates run where the daemon
//! runs. Namespaces, real runtimes and real clusters are left to the suites of `e2e`.

#![cfg(test)]

mod daemon;
mod node;
mod tcp_proxy;

mod api_load;
mod approve;
mod certificate;
mod cni_config;
mod definitions;
mod devices;
mod hotplug;
mod journal;
mod lifecycle;
mod logging;
mod networks;
mod pod_report;
mod publish;
mod reports;
mod requests;
mod rights;
mod serving;
mod spawner;
mod standalone;
mod startup;
mod status;
mod takeover;
mod token;
mod verify;

use std::time::{Duration, Instant};

/// The time limit of every wait, long enough for the slowest machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Polls until a condition returns a value.
#[track_caller]
fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        // Leaves the processor to the awaited process.
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
