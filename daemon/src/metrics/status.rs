//! The status that `multus-daemon status` shows: JSON from the daemon's socket, rendered as a few lines.

use std::fmt::Write as _;

use cmdline::counted;
use serde::{Deserialize, Serialize};

/// The version of the JSON. It rises when the meaning of a field changes.
pub const SCHEMA: u32 = 1;
/// The daemon's status. Fields that a reader does not know come from a newer daemon.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The version, which is [`SCHEMA`].
    pub schema: u32,
    /// The program's version.
    pub version: String,
    /// Why pods are not served; absent when they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The container runtime, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// The runtime's plugin directory with the shim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bin_dir: Option<String>,
    /// The runtime's directory of configurations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf_dir: Option<String>,
    /// The verbs since the start.
    pub verbs: Vec<DurationSummary>,
    /// The delegates since the start.
    pub delegates: Vec<DurationSummary>,
    pub queue: Vec<Lane>,
    /// Requests to the API server.
    pub api: Requests,
    /// Events that could not be sent.
    pub events_dropped: u64,
    /// Networks that stay attached because detaching them was abandoned.
    pub networks_abandoned: u64,
    /// The DHCP leases; absent unless the daemon holds leases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<DhcpLeases>,
    /// Containers with networks; absent when the node's state could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub containers: Option<usize>,
    /// Deletions that wait in the journal; absent when it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal_pending: Option<usize>,
}

/// The number and durations of verbs or delegates with the same outcome.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DurationSummary {
    /// The type of a delegate's first plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// The verb.
    pub command: String,
    /// `done` or `failed`.
    pub outcome: String,
    /// The number of them.
    pub count: u64,
    /// The median in seconds, estimated from buckets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_seconds: Option<f64>,
    /// The 99th percentile in seconds, estimated from buckets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_seconds: Option<f64>,
    /// The sum of all durations in seconds.
    pub total_seconds: f64,
}

/// One lane of the queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lane {
    /// The lane's name.
    pub lane: String,
    /// Requests that wait for their turn.
    pub waiting: i64,
    /// Requests that are being served.
    pub working: i64,
    /// Requests whose caller disconnected before their turn.
    pub abandoned: u64,
    /// The 99th percentile of waiting times in seconds, estimated from buckets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_wait_seconds: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DhcpLeases {
    /// Leases that are held now.
    pub held: i64,
    /// Leases that were granted.
    pub granted: u64,
    /// Renewals.
    pub renewed: u64,
    /// Searches without a lease, and leases that were not renewed.
    pub failed: u64,
}

/// Requests to the API server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Requests {
    /// All ended requests.
    pub requests: u64,
    /// Requests without an answer, or with a status from 400 on.
    pub failed: u64,
    /// Requests that were sent again.
    pub retries: u64,
}

impl Status {
    /// Renders the status in a few lines.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, text: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{name:<12}{text}");
        };
        line("version", self.version.clone());
        let state = match &self.problem {
            None => "pods are served".to_owned(),
            Some(problem) => format!("pods are not served: {problem}"),
        };
        line("state", state);
        if let Some(runtime) = &self.runtime {
            line("runtime", runtime.clone());
        }
        if let Some(dir) = &self.bin_dir {
            line("shim in", dir.clone());
        }
        if let Some(dir) = &self.conf_dir {
            line("config in", dir.clone());
        }
        if let Some(containers) = self.containers {
            line("containers", containers.to_string());
        }
        for lane in &self.queue {
            let wait = lane.p99_wait_seconds.map_or_else(String::new, |seconds| {
                format!(", waiting p99 {}", duration(seconds))
            });
            let text = format!(
                "{}: {} at work, {} waiting, {} abandoned{wait}",
                lane.lane, lane.working, lane.waiting, lane.abandoned
            );
            line("queue", text);
        }
        for verb in &self.verbs {
            line("verb", verb.to_text());
        }
        for delegate in &self.delegates {
            line("delegate", delegate.to_text());
        }
        if let Some(pending) = self.journal_pending {
            line(
                "journal",
                format!("{} pending", counted(pending, "deletion")),
            );
        }
        let Requests {
            requests,
            failed,
            retries,
        } = self.api;
        let text = format!(
            "{}, {failed} failed, {}",
            counted(requests, "request"),
            counted(retries, "retry")
        );
        line("API server", text);
        if let Some(dhcp) = self.dhcp {
            let held = usize::try_from(dhcp.held).unwrap_or_default();
            let text = format!(
                "{}, {} granted, {} renewed, {} failed",
                counted(held, "lease"),
                dhcp.granted,
                dhcp.renewed,
                dhcp.failed
            );
            line("dhcp", text);
        }
        if self.events_dropped > 0 {
            line("events", format!("{} dropped", self.events_dropped));
        }
        if self.networks_abandoned > 0 {
            let text = format!("{} abandoned, see the log", self.networks_abandoned);
            line("networks", text);
        }
        out
    }
}

impl DurationSummary {
    fn to_text(&self) -> String {
        let Self {
            plugin,
            command,
            outcome,
            count,
            ..
        } = self;
        let subject = match plugin {
            Some(plugin) => format!("{plugin} {command}"),
            None => command.clone(),
        };
        let quantile = |name: &str, seconds: Option<f64>| {
            seconds.map_or_else(String::new, |seconds| {
                format!(", {name} {}", duration(seconds))
            })
        };
        format!(
            "{subject} {outcome}: {count}{}{}",
            quantile("p50", self.p50_seconds),
            quantile("p99", self.p99_seconds)
        )
    }
}

/// Renders an estimated duration. More digits would pretend a precision that it does not have.
fn duration(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{:.1} ms", seconds * 1000.0)
    } else {
        format!("{seconds:.1} s")
    }
}
