//! The daemon's metrics, for Prometheus and for `multus-daemon status`.
//!
//! All labels are bounded: their values come from the program, or their number is limited where they come from users.

mod ipam;
mod queue;
mod registry;
mod requests;
mod snapshot;
mod status;
#[cfg(test)]
mod tests;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use hyper::{Method, StatusCode};
use node::dirs::CniDirs;

pub use queue::{Queued, Working};
pub(crate) use requests::Pending;
pub use snapshot::{NodeValues, Process, Snapshot};
pub use status::{DhcpLeases, DurationSummary, Lane, Requests, SCHEMA, Status};

use self::ipam::Ipam;
use registry::{Counter, Family, Gauge, Histogram};

/// The number of plugin names that become labels. Networks need a handful, and users must not be able to fill the memory with names.
const PLUGINS: usize = 32;

/// All counters and measurements. Observing is cheap and never blocks for long.
#[derive(Debug)]
pub struct Metrics {
    requests: Family<3, Counter>,
    verbs: Family<2, Histogram>,
    delegates: Family<3, Histogram>,
    waiting: Family<1, Gauge>,
    working: Family<1, Gauge>,
    waited: Family<1, Histogram>,
    abandoned: Family<1, Counter>,
    api_requests: Family<3, Counter>,
    api_durations: Family<2, Histogram>,
    api_retries: Family<2, Counter>,
    events: Family<2, Counter>,
    replayed: Family<1, Counter>,
    networks_abandoned: Family<0, Counter>,
    dhcp_leases: Family<0, Gauge>,
    dhcp_events: Family<1, Counter>,
    ipam: Ipam,
    /// The highest measured CPU time of plugins in seconds.
    plugin_cpu: Mutex<f64>,
    /// The runtime's directories.
    runtime_dirs: Mutex<Option<RuntimeDirs>>,
    /// The definitions as `namespace/name`, each with the word of its verdict.
    networks: Mutex<Vec<(String, &'static str)>>,
}

/// The runtime's directories, and the source of this information.
#[derive(Debug, Clone)]
struct RuntimeDirs {
    runtime: String,
    bin_dir: String,
    conf_dir: String,
    source: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            requests: Family::new(
                "multus_server_request_total",
                "Counter of HTTP requests",
                ["code", "handler", "method"],
            ),
            verbs: Family::new(
                "multus_cni_duration_seconds",
                "Duration of CNI verbs without their time in the queue",
                ["command", "outcome"],
            ),
            delegates: Family::limited(
                "multus_delegate_duration_seconds",
                "Duration of delegates, by the type of their first plugin",
                ["plugin", "command", "outcome"],
                PLUGINS,
            ),
            waiting: Family::new(
                "multus_queue_waiting",
                "Requests that wait for their turn",
                ["lane"],
            ),
            working: Family::new(
                "multus_queue_working",
                "Requests that are being served",
                ["lane"],
            ),
            waited: Family::new(
                "multus_queue_wait_seconds",
                "Time that requests waited for their turn",
                ["lane"],
            ),
            abandoned: Family::new(
                "multus_queue_abandoned_total",
                "Requests whose caller disconnected before their turn",
                ["lane"],
            ),
            api_requests: Family::new(
                "multus_api_requests_total",
                "Requests to the API server by status code; error stands for a failed connection, canceled for an abandoned request",
                ["verb", "resource", "code"],
            ),
            api_durations: Family::new(
                "multus_api_request_duration_seconds",
                "Time until the API server answered",
                ["verb", "resource"],
            ),
            api_retries: Family::new(
                "multus_api_retries_total",
                "Requests to the API server that were sent again",
                ["verb", "resource"],
            ),
            events: Family::new(
                "multus_events_total",
                "Events about pods that were sent or dropped",
                ["reason", "outcome"],
            ),
            replayed: Family::new(
                "multus_journal_replayed_total",
                "Deletions from the journal that were tried",
                ["outcome"],
            ),
            networks_abandoned: Family::new(
                "multus_networks_abandoned_total",
                "Networks that stay attached because detaching them was abandoned",
                [],
            ),
            dhcp_leases: Family::new(
                "multus_dhcp_leases",
                "DHCP leases that the daemon holds",
                [],
            ),
            dhcp_events: Family::new(
                "multus_dhcp_lease_events_total",
                "Grants, renewals, releases, losses and failures of DHCP leases",
                ["event"],
            ),
            ipam: Ipam::default(),
            plugin_cpu: Mutex::default(),
            runtime_dirs: Mutex::default(),
            networks: Mutex::default(),
        };
        // An alert on the first increment needs a zero before it.
        metrics.networks_abandoned.with([]);
        metrics
    }
}

impl Metrics {
    /// Counts a request to the socket that was answered.
    pub fn request(&self, handler: &str, status: StatusCode, method: &Method) {
        let method = match *method {
            Method::GET => "get",
            Method::POST => "post",
            Method::PUT => "put",
            Method::DELETE => "delete",
            Method::HEAD => "head",
            _ => registry::OTHER,
        };
        self.requests
            .with([status.as_str(), handler, method])
            .increment();
    }

    /// Counts a verb that has ended.
    pub fn verb(&self, command: &str, done: bool, took: Duration) {
        self.verbs.with([command, outcome(done)]).observe(took);
    }

    /// Counts a delegate that has ended. `plugin` is the type of its first plugin.
    pub fn delegate(&self, plugin: &str, command: &str, done: bool, took: Duration) {
        self.delegates
            .with([plugin, command, outcome(done)])
            .observe(took);
    }

    /// Runs a delegate and counts it.
    pub fn timed_delegate<T, E>(
        &self,
        plugin: &str,
        command: &str,
        run: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let start = Instant::now();
        let answer = run();
        self.delegate(plugin, command, answer.is_ok(), start.elapsed());
        answer
    }

    /// Returns the highest CPU time of plugins that was measured. While a spawner is replaced, its share is missing until it has ended, and
    /// a counter must not go back.
    fn plugin_cpu(&self, measured: f64) -> f64 {
        let mut highest = self
            .plugin_cpu
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *highest = highest.max(measured);
        *highest
    }

    /// Counts a request as waiting until the returned value is dropped or started.
    pub fn queue_enter(&self, lane: &'static str) -> Queued {
        Queued::new(queue::Lane {
            waiting: self.waiting.with([lane]),
            working: self.working.with([lane]),
            waited: self.waited.with([lane]),
            abandoned: self.abandoned.with([lane]),
        })
    }

    /// Counts a request to the API server that has ended. `code` is a status code, `error` for a failed connection, or `canceled`.
    pub fn api_request(&self, verb: &str, resource: &str, code: &str, took: Duration) {
        self.api_requests.with([verb, resource, code]).increment();
        self.api_durations.with([verb, resource]).observe(took);
    }

    /// Counts a request to the API server that is sent again.
    pub fn api_retry(&self, verb: &str, resource: &str) {
        self.api_retries.with([verb, resource]).increment();
    }

    /// Counts an event that was sent or dropped.
    pub fn event(&self, reason: &'static str, is_sent: bool) {
        let outcome = if is_sent { "sent" } else { "dropped" };
        self.events.with([reason, outcome]).increment();
    }

    /// Counts an attempt at a deletion from the journal.
    pub fn replayed(&self, done: bool) {
        self.replayed.with([outcome(done)]).increment();
    }

    /// Counts a network that stays attached because detaching it was abandoned.
    pub fn network_abandoned(&self) {
        self.networks_abandoned.with([]).increment();
    }

    /// Sets the number of DHCP leases that are held.
    pub fn set_dhcp_leases(&self, leases: usize) {
        let leases = i64::try_from(leases).unwrap_or(i64::MAX);
        self.dhcp_leases.with([]).set(leases);
    }

    /// Counts something that has happened to a DHCP lease.
    pub fn dhcp_event(&self, event: &'static str) {
        self.dhcp_events.with([event]).increment();
    }

    /// Sets the runtime's current directories.
    pub fn set_runtime_dirs(&self, runtime: &str, dirs: &CniDirs) {
        let current = RuntimeDirs {
            runtime: runtime.to_owned(),
            bin_dir: dirs.install_dir.to_string_lossy().into_owned(),
            conf_dir: dirs.conf_dir.to_string_lossy().into_owned(),
            source: dirs.source.as_str(),
        };
        *self
            .runtime_dirs
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(current);
    }

    fn runtime_dirs(&self) -> Option<RuntimeDirs> {
        let current = self.runtime_dirs.lock();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets which definitions the node can serve; each as `namespace/name` with the word of its verdict.
    pub fn set_networks(&self, networks: Vec<(String, &'static str)>) {
        *self.networks() = networks;
    }

    fn networks(&self) -> MutexGuard<'_, Vec<(String, &'static str)>> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all counters in Prometheus' text format, version 0.0.4.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.requests.write(&mut out);
        self.verbs.write(&mut out);
        self.delegates.write(&mut out);
        self.waiting.write(&mut out);
        self.working.write(&mut out);
        self.waited.write(&mut out);
        self.abandoned.write(&mut out);
        self.api_requests.write(&mut out);
        self.api_durations.write(&mut out);
        self.api_retries.write(&mut out);
        self.events.write(&mut out);
        self.replayed.write(&mut out);
        self.networks_abandoned.write(&mut out);
        self.dhcp_leases.write(&mut out);
        self.dhcp_events.write(&mut out);
        self.ipam.write(&mut out);
        if let Some(current) = self.runtime_dirs() {
            let name = "multus_node_directories";
            let help = "The container runtime's directories of CNI plugins and configurations";
            registry::head(&mut out, name, help, "gauge");
            let labels = registry::labels([
                ("bin_dir", &*current.bin_dir),
                ("conf_dir", &*current.conf_dir),
                ("runtime", &*current.runtime),
                ("source", current.source),
            ]);
            registry::sample(&mut out, name, &labels, 1);
        }
        self.write_networks(&mut out);
        out
    }

    fn write_networks(&self, out: &mut String) {
        let networks = self.networks();
        if networks.is_empty() {
            return;
        }
        let name = "multus_networks";
        let help =
            "Network definitions, and whether this node can serve them: serves, cannot or unknown";
        registry::head(out, name, help, "gauge");
        for (network, state) in &*networks {
            let labels = [("network", network.as_str()), ("state", state)];
            registry::sample(out, name, &registry::labels(labels), 1);
        }
    }
}

fn outcome(done: bool) -> &'static str {
    if done { "done" } else { "failed" }
}
