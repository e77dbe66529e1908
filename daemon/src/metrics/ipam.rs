//! The metrics of the IPAM service.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ::ipam::service::{Counts, RangeCount};

use super::{
    Metrics, outcome,
    registry::{self, Counter, Family, Histogram},
};

#[derive(Debug)]
pub(super) struct Ipam {
    counts: Mutex<Counts>,
    requests: Family<2, Counter>,
    waits: Family<0, Histogram>,
    api_requests: Family<2, Counter>,
    conflicts: Family<0, Counter>,
}

impl Default for Ipam {
    fn default() -> Self {
        let ipam = Self {
            counts: Mutex::default(),
            requests: Family::new(
                "multus_ipam_requests_total",
                "Requests of the plugin multus-ipam",
                ["verb", "outcome"],
            ),
            waits: Family::new(
                "multus_ipam_wait_seconds",
                "Time that ADDs waited for their addresses of multus-ipam",
                [],
            ),
            api_requests: Family::new(
                "multus_ipam_api_requests_total",
                "Requests of the IPAM service to the API server by status code; error stands for a failed connection",
                ["verb", "code"],
            ),
            conflicts: Family::new(
                "multus_ipam_conflicts_total",
                "Addresses of pods of this node whose block gives them to somebody else, or to nobody",
                [],
            ),
        };
        // An alert on the first increment needs a zero before it.
        ipam.conflicts.with([]);
        ipam
    }
}

impl Metrics {
    /// Sets what the node has of multus-ipam.
    pub fn set_ipam(&self, counts: Counts) {
        *self.ipam.counts() = counts;
    }

    /// Counts a request of the plugin multus-ipam, which took so long to serve.
    pub fn ipam_request(&self, verb: &'static str, done: bool, took: Duration) {
        self.ipam.requests.with([verb, outcome(done)]).increment();
        if verb == "add" {
            self.ipam.waits.with([]).observe(took);
        }
    }

    /// Counts a request of the IPAM service to the API server. `code` is a status code, or `error` for a failed connection.
    pub fn ipam_api_request(&self, verb: &'static str, code: &str) {
        self.ipam.api_requests.with([verb, code]).increment();
    }

    /// Counts addresses of this node's pods whose block gives them to somebody else.
    pub fn ipam_conflicts(&self, count: u64) {
        self.ipam.conflicts.with([]).add(count);
    }
}

impl Ipam {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self, out: &mut String) {
        self.write_counts(out);
        self.requests.write(out);
        self.waits.write(out);
        self.api_requests.write(out);
        self.conflicts.write(out);
    }

    /// Appends what the node has. The numbers of ranges may have 128 bits.
    fn write_counts(&self, out: &mut String) {
        let counts = self.counts();
        let name = "multus_ipam_addresses";
        let help =
            "Addresses of multus-ipam that pods of this node have, or that have no answer yet";
        registry::head(out, name, help, "gauge");
        for ((network, state), count) in &counts.addresses {
            let labels = registry::labels([("network", &**network), ("state", state.word())]);
            registry::sample(out, name, &labels, count);
        }
        let name = "multus_ipam_blocks";
        let help = "Blocks that this node holds, and shared ones of which its pods have addresses";
        registry::head(out, name, help, "gauge");
        for (mode, count) in [
            ("node", counts.held_blocks),
            ("shared", counts.shared_blocks),
        ] {
            let labels = registry::labels([("mode", mode)]);
            registry::sample(out, name, &labels, count);
        }
        if counts.ranges.is_empty() {
            return;
        }
        let name = "multus_ipam_range_addresses";
        let help = "Addresses of ranges that pods of this node have asked for: all, and those that pods of this node use";
        registry::head(out, name, help, "gauge");
        for RangeCount {
            space,
            range,
            used,
            size,
        } in &counts.ranges
        {
            for (state, count) in [("all", *size), ("used", *used as u128)] {
                let labels = [("space", &**space), ("range", range), ("state", state)];
                registry::sample(out, name, &registry::labels(labels), count);
            }
        }
    }
}
