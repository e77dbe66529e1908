//! A snapshot of the daemon: its metrics, and values that are read from the node at that moment. It is rendered as Prometheus' text and
//! as the JSON that `multus-daemon status` reads.

use std::collections::BTreeMap;

use super::{
    DhcpLeases, DurationSummary, Lane, Metrics, SCHEMA, Status,
    registry::{self, Histogram},
};

/// Units of times in `/proc/PID/stat`: a constant of the kernel's interface on every supported architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// The daemon at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// Why pods are not served.
    pub problem: Option<String>,
    /// The values from the node.
    pub node: NodeValues,
}

/// The values that are read from the node. Those that cannot be read in time are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NodeValues {
    /// The number of containers with state.
    pub containers: Option<usize>,
    /// The number of deletions in the journals.
    pub journal: Option<usize>,
    /// The daemon's own use of resources.
    pub process: Option<Process>,
}

/// A process's use of resources.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Process {
    /// CPU time in seconds.
    pub cpu: f64,
    /// CPU time of ended children in seconds, with that of plugins.
    pub children_cpu: f64,
    /// Resident memory in bytes.
    pub memory: Option<u64>,
    /// Open files.
    pub files: Option<usize>,
}

impl Snapshot {
    /// Returns metrics and values from the node in Prometheus' text format.
    pub fn text(&self, metrics: &Metrics) -> String {
        let mut out = metrics.text();
        let mut gauge = |name: &str, help: &str, kind: &str, labels: &str, value: Option<f64>| {
            if let Some(value) = value {
                registry::head(&mut out, name, help, kind);
                registry::sample(&mut out, name, labels, value);
            }
        };
        let version = registry::labels([("version", env!("CARGO_PKG_VERSION"))]);
        gauge(
            "multus_build_info",
            "The program that runs",
            "gauge",
            &version,
            Some(1.0),
        );
        gauge(
            "multus_ready",
            "Whether pods are served",
            "gauge",
            "",
            Some(f64::from(u8::from(self.problem.is_none()))),
        );
        let NodeValues {
            containers,
            journal,
            process,
        } = self.node;
        gauge(
            "multus_state_containers",
            "Containers with state on the node",
            "gauge",
            "",
            containers.map(as_float),
        );
        gauge(
            "multus_journal_pending",
            "Deletions that wait in the journal",
            "gauge",
            "",
            journal.map(as_float),
        );
        gauge(
            "multus_plugin_cpu_seconds_total",
            "CPU time of plugins that have ended",
            "counter",
            "",
            process.map(|process| metrics.plugin_cpu(process.children_cpu)),
        );
        gauge(
            "process_cpu_seconds_total",
            "CPU time of the daemon",
            "counter",
            "",
            process.map(|process| process.cpu),
        );
        gauge(
            "process_resident_memory_bytes",
            "Resident memory of the daemon",
            "gauge",
            "",
            process.and_then(|process| process.memory).map(bytes),
        );
        gauge(
            "process_open_fds",
            "Open files of the daemon",
            "gauge",
            "",
            process.and_then(|process| process.files).map(as_float),
        );
        out
    }

    /// Returns the status for `multus-daemon status`.
    pub fn status(&self, metrics: &Metrics) -> Status {
        let current = metrics.runtime_dirs();
        let mut status = Status {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            problem: self.problem.clone(),
            containers: self.node.containers,
            journal_pending: self.node.journal,
            ..Status::default()
        };
        if let Some(current) = current {
            status.runtime = Some(current.runtime).filter(|name| !name.is_empty());
            status.bin_dir = Some(current.bin_dir);
            status.conf_dir = Some(current.conf_dir);
        }
        metrics.verbs.for_each(|[command, outcome], histogram| {
            status
                .verbs
                .push(summary(None, command, outcome, histogram));
        });
        metrics
            .delegates
            .for_each(|[plugin, command, outcome], histogram| {
                let one = summary(Some(plugin), command, outcome, histogram);
                status.delegates.push(one);
            });
        let mut lanes: BTreeMap<String, Lane> = BTreeMap::new();
        let mut lane = |name: &str, set: &dyn Fn(&mut Lane)| {
            let lane = lanes.entry(name.to_owned()).or_insert_with(|| Lane {
                lane: name.to_owned(),
                ..Lane::default()
            });
            set(lane);
        };
        metrics
            .waiting
            .for_each(|[name], gauge| lane(name, &|lane| lane.waiting = gauge.get()));
        metrics
            .working
            .for_each(|[name], gauge| lane(name, &|lane| lane.working = gauge.get()));
        metrics
            .abandoned
            .for_each(|[name], counter| lane(name, &|lane| lane.abandoned = counter.get()));
        metrics.waited.for_each(|[name], histogram| {
            lane(name, &|lane| {
                lane.p99_wait_seconds = histogram.quantile(0.99);
            });
        });
        status.queue = lanes.into_values().collect();
        metrics.api_requests.for_each(|[_, _, code], counter| {
            status.api.requests += counter.get();
            let is_answer = code.parse::<u16>().is_ok_and(|code| code < 400);
            status.api.failed += if is_answer { 0 } else { counter.get() };
        });
        metrics
            .api_retries
            .for_each(|_, counter| status.api.retries += counter.get());
        metrics.events.for_each(|[_, outcome], counter| {
            if outcome == "dropped" {
                status.events_dropped += counter.get();
            }
        });
        metrics
            .networks_abandoned
            .for_each(|[], counter| status.networks_abandoned += counter.get());
        metrics.dhcp_leases.for_each(|[], held| {
            let dhcp = status.dhcp.get_or_insert_default();
            dhcp.held = held.get();
        });
        metrics.dhcp_events.for_each(|[event], counter| {
            let dhcp: &mut DhcpLeases = status.dhcp.get_or_insert_default();
            match event {
                "granted" => dhcp.granted = counter.get(),
                "renewed" => dhcp.renewed = counter.get(),
                "failed" => dhcp.failed = counter.get(),
                _ => {}
            }
        });
        status
    }
}

impl Process {
    /// Reads the use of resources of a process from `/proc`, or returns `None` when that cannot be parsed.
    pub(crate) fn read(pid: &str) -> Option<Self> {
        let proc = std::path::Path::new("/proc").join(pid);
        let stat = std::fs::read_to_string(proc.join("stat")).ok()?;
        let status = std::fs::read_to_string(proc.join("status")).ok();
        Self::parse(&stat, &status.unwrap_or_default())
    }

    /// Reads the daemon's own use of resources; its plugins are not its children.
    pub(crate) fn own(plugin_cpu: f64) -> Option<Self> {
        let mut process = Self::read("self")?;
        let files = std::fs::read_dir("/proc/self/fd").ok();
        process.children_cpu += plugin_cpu;
        // One of them is the descriptor of the directory itself.
        process.files = files.map(|files| files.count().saturating_sub(1));
        Some(process)
    }

    /// Parses times from `stat` and memory from `status` (proc(5)).
    fn parse(stat: &str, status: &str) -> Option<Self> {
        // The name in parentheses may have any characters.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace().skip(11);
        let mut seconds = || {
            let ticks: u32 = fields.next()?.parse().ok()?;
            Some(f64::from(ticks) / TICKS_PER_SECOND)
        };
        let [user, system, children_user, children_system] =
            [seconds()?, seconds()?, seconds()?, seconds()?];
        let memory = status.lines().find_map(|line| {
            let kilobytes = line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?;
            Some(kilobytes.parse::<u64>().ok()? * 1024)
        });
        Some(Self {
            cpu: user + system,
            children_cpu: children_user + children_system,
            memory,
            files: None,
        })
    }
}

fn summary(
    plugin: Option<&str>,
    command: &str,
    outcome: &str,
    histogram: &Histogram,
) -> DurationSummary {
    DurationSummary {
        plugin: plugin.map(str::to_owned),
        command: command.to_owned(),
        outcome: outcome.to_owned(),
        count: histogram.count(),
        p50_seconds: histogram.quantile(0.5),
        p99_seconds: histogram.quantile(0.99),
        total_seconds: histogram.sum(),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a node has fewer than 2^52 of anything"
)]
fn as_float(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "no process uses 2^52 bytes")]
fn bytes(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_process_is_parsed_whatever_its_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 20 5 20 0 1 0 9 1 1";
        let process = Process::parse(stat, "Name:\ta\nVmRSS:\t    12 kB\n").unwrap();
        let expected = Process {
            cpu: 2.0,
            children_cpu: 0.25,
            memory: Some(12 << 10),
            files: None,
        };
        assert_eq!(process, expected);
        assert_eq!(Process::parse("7 (a", ""), None);
        assert!(Process::own(0.0).unwrap().files.unwrap() > 0);
    }

    #[test]
    fn a_status_is_rendered_in_lines() {
        let metrics = Metrics::default();
        metrics.verb("ADD", true, Duration::from_millis(15));
        metrics.delegate("bridge", "ADD", true, Duration::from_secs(2));
        metrics.api_request("get", "pods", "200", Duration::ZERO);
        metrics.api_request("get", "pods", "503", Duration::ZERO);
        metrics.api_request("get", "pods", "error", Duration::ZERO);
        metrics.api_retry("get", "pods");
        metrics.event("AddedInterface", false);
        metrics.set_dhcp_leases(1);
        metrics.dhcp_event("granted");
        metrics.dhcp_event("renewed");
        let waiting = metrics.queue_enter("add");
        let working = metrics.queue_enter("add").start();
        let snapshot = Snapshot {
            problem: Some("watches: no answer".to_owned()),
            node: NodeValues {
                containers: Some(3),
                journal: Some(2),
                process: None,
            },
        };
        let status = snapshot.status(&metrics);
        drop((waiting, working));
        for line in [
            "state       pods are not served: watches: no answer\n",
            "containers  3\n",
            "queue       add: 1 at work, 1 waiting, 0 abandoned, waiting p99 1.0 ms\n",
            "verb        ADD done: 1, p50 17.5 ms, p99 24.9 ms\n",
            "delegate    bridge ADD done: 1, p50 1.8 s, p99 2.5 s\n",
            "journal     2 deletions pending\n",
            "API server  3 requests, 2 failed, 1 retry\n",
            "dhcp        1 lease, 1 granted, 1 renewed, 0 failed\n",
            "events      1 dropped\n",
        ] {
            let text = status.to_text();
            assert!(text.contains(line), "{line}{text}");
        }
        let json = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), status);
        assert_eq!(snapshot.status(&metrics).queue[0].abandoned, 1);
    }
}
