//! The metrics of the IPAM service.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ::ipam::service::{Counts, RangeCount};

use super::{
    Metrics, outcome,
    registry::{self, Counter, Family, Gauge, Histogram},
};

#[derive(Debug)]
pub(super) struct Ipam {
    addresses: Family<0, Gauge>,
    blocks: Family<0, Gauge>,
    ranges: Mutex<Vec<RangeCount>>,
    requests: Family<2, Counter>,
    waits: Family<0, Histogram>,
    api_requests: Family<2, Counter>,
    conflicts: Family<0, Counter>,
}

impl Default for Ipam {
    fn default() -> Self {
        let ipam = Self {
            addresses: Family::new(
                "multus_ipam_addresses",
                "Addresses of multus-ipam that pods of this node have",
                [],
            ),
            blocks: Family::new(
                "multus_ipam_blocks",
                "Blocks of addresses that this node holds",
                [],
            ),
            ranges: Mutex::default(),
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
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let Ipam {
            addresses,
            blocks,
            ranges,
            ..
        } = &self.ipam;
        addresses.with([]).set(number(counts.addresses));
        blocks.with([]).set(number(counts.held_blocks));
        *ranges.lock().unwrap_or_else(PoisonError::into_inner) = counts.ranges;
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
    pub(super) fn write(&self, out: &mut String) {
        self.addresses.write(out);
        self.blocks.write(out);
        self.write_ranges(out);
        self.requests.write(out);
        self.waits.write(out);
        self.api_requests.write(out);
        self.conflicts.write(out);
    }

    /// Appends the counts of ranges, whose numbers may have 128 bits.
    fn write_ranges(&self, out: &mut String) {
        let ranges = self.ranges.lock();
        let ranges = ranges.unwrap_or_else(PoisonError::into_inner);
        if ranges.is_empty() {
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
        } in &*ranges
        {
            for (state, count) in [("all", *size), ("used", *used as u128)] {
                let labels = [("space", &**space), ("range", range), ("state", state)];
                registry::sample(out, name, &registry::labels(labels), count);
            }
        }
    }
}
