//! The built `multus-daemon` on its socket: fake plugins that remember their calls, a fake API server, a directory as the node.
//!
//! No root, no network but loopback: the pod's network namespace is the daemon's own, and delegates run where the daemon runs.
//! What needs namespaces, a real runtime or a real cluster is not tried here.

#![cfg(test)]

mod daemon;
mod node;
mod wire;

mod add;
mod approve;
mod certificate;
mod chain;
mod configuration;
mod definitions;
mod del;
mod devices;
mod gc;
mod hotplug;
mod journal;
mod life;
mod load;
mod logging;
mod pod;
mod ready;
mod requests;
mod rights;
mod rollback;
mod serving;
mod spawner;
mod takeover;
mod token;
mod verbs;
mod verify;

use std::time::{Duration, Instant};

/// Nothing that is waited for takes longer on the slowest machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Looks until there is something to see.
#[track_caller]
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        // Leaves the processor to whom is waited for.
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
