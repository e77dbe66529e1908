//! Metrics.

use super::{Source::Upstream, Subject, should};

pub(super) const SUBJECT: Subject = Subject {
    name: "metrics",
    title: "Metrics",
    introduction: "The daemon counts the requests of its socket and publishes the counters for Prometheus.",
    rules: &[
        should("metrics.endpoint", "`metricsPort` serves `/metrics` on all addresses of the node.", Upstream),
        should("metrics.requests", "`multus_server_request_total` counts requests by handler, status code and method.", Upstream),
        should("metrics.profiles", "`enablePprof` adds profiles of the process to the port of the metrics.", Upstream).unshown("the profiles are those of the Go runtime, which this implementation does not have; its daemon reports at its start that the key has no effect"),
    ],
};
