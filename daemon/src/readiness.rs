//! The gates that must be open before pods are served; a closed gate has a reason, shown by `/readyz`, `status --ready` and the log.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use api::presence::GRACE;
use tokio::sync::Notify;
use tracing::{info, warn};

/// The purpose of a daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Purpose {
    /// It serves pods.
    #[default]
    Multiplexer,
    /// It installs plugins and serves no pods.
    Plugins,
}

/// A precondition of serving pods. A gate is closed for a reason, or open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// The runtime and its CNI directories.
    Discovery,
    /// The replay of journaled DELs.
    Journal,
    /// The node's own certificate, if it is configured.
    Certificate,
    /// The watches of pods and definitions.
    Watches,
    /// The socket name that shims connect to.
    Socket,
    /// The shim in the runtime's directory.
    Shim,
    /// The configuration of the default network and ours.
    Configuration,
    /// The plugins in the runtime's directory, for a daemon that serves no pods.
    Plugins,
    /// Closed once the process is shutting down.
    Shutdown,
}

/// The state of all gates. "Open" is a gate now, "was open" is a gate at any time since the start, and "ready" is the daemon: all gates are
/// open, or on standby those that do not belong to the serving daemon.
#[derive(Debug)]
pub struct Readiness {
    purpose: Purpose,
    gates: Mutex<Gates>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Gates {
    closed: BTreeMap<Gate, String>,
    /// The gates that were never open since the start.
    never_open: BTreeSet<Gate>,
    /// True while another daemon serves this node's pods.
    is_standby: bool,
    /// Until then the start of this daemon is the restart of one that served a moment ago.
    restarts_until: Option<Instant>,
    /// Notes for operators, by subject; pods are served all the same.
    notes: BTreeMap<&'static str, String>,
}

impl Gate {
    /// True for gates that concern only the daemon that shims connect to.
    fn is_of_serving_daemon(self) -> bool {
        matches!(self, Self::Socket | Self::Shim | Self::Configuration)
    }
}

impl Gates {
    /// Returns whether the gate is closed in normal operation: at a start while it waits for the socket, and during the shutdown.
    fn is_expected(&self, gate: Gate) -> bool {
        let is_first = self.never_open.contains(&gate);
        match gate {
            Gate::Shutdown => true,
            Gate::Shim | Gate::Configuration => is_first && self.closed.contains_key(&Gate::Socket),
            Gate::Socket
            | Gate::Discovery
            | Gate::Journal
            | Gate::Certificate
            | Gate::Watches
            | Gate::Plugins => false,
        }
    }
}

impl Readiness {
    /// Closes these gates; all others are open.
    pub fn new(closed: &[Gate]) -> Self {
        let reasons = closed
            .iter()
            .map(|gate| (*gate, "not started yet".to_owned()))
            .collect();
        Self {
            purpose: Purpose::Multiplexer,
            gates: Mutex::new(Gates {
                closed: reasons,
                never_open: closed.iter().copied().collect(),
                is_standby: false,
                restarts_until: None,
                notes: BTreeMap::new(),
            }),
            changed: Notify::new(),
        }
    }

    /// The same for a daemon that never serves pods: gates of the serving daemon stay open.
    pub fn for_plugins(closed: &[Gate]) -> Self {
        let purpose = Purpose::Plugins;
        let readiness = Self::new(closed);
        Self {
            purpose,
            ..readiness
        }
    }

    /// Returns the daemon's purpose.
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    pub fn open(&self, gate: Gate) {
        let mut gates = self.gates();
        gates.never_open.remove(&gate);
        if gates.closed.remove(&gate).is_some() {
            info!(part = ?gate, "ready");
            self.changed.notify_waiters();
        }
    }

    pub fn close(&self, gate: Gate, reason: impl Into<String>) {
        self.close_with(gate, reason.into(), |gates| gates.is_expected(gate));
    }

    /// Like [`close`](Self::close), for a reason that is a step of every start: no warning is logged unless the gate was open before.
    pub fn close_while_starting(&self, gate: Gate, reason: impl Into<String>) {
        self.close_with(gate, reason.into(), |gates| {
            gates.never_open.contains(&gate)
        });
    }

    fn close_with(&self, gate: Gate, reason: String, is_expected: impl Fn(&Gates) -> bool) {
        let mut gates = self.gates();
        if self.purpose == Purpose::Plugins && gate.is_of_serving_daemon() {
            return;
        }
        let is_expected = is_expected(&gates);
        if gates.closed.get(&gate) == Some(&reason) {
            return;
        }
        if is_expected {
            info!(part = ?gate, reason, "not ready yet");
        } else {
            warn!(part = ?gate, reason, "not ready");
        }
        gates.closed.insert(gate, reason);
    }

    /// While another daemon of the node serves its pods, this one is ready when it could serve them, so that a rolling update goes on.
    pub fn standby(&self, is_standby: bool) {
        let before = std::mem::replace(&mut self.gates().is_standby, is_standby);
        if before != is_standby {
            self.changed.notify_waiters();
        }
    }

    /// Closes a gate for a reason, or opens it without one.
    pub fn set(&self, gate: Gate, reason: Option<String>) {
        match reason {
            None => self.open(gate),
            Some(reason) => self.close(gate, reason),
        }
    }

    /// Sets or removes the note about a subject.
    pub fn note(&self, subject: &'static str, text: Option<String>) {
        let mut gates = self.gates();
        let before = match &text {
            Some(text) => gates.notes.insert(subject, text.clone()),
            None => gates.notes.remove(subject),
        };
        if let Some(text) = text.filter(|text| before.as_ref() != Some(text)) {
            warn!("{text}");
        }
    }

    /// Returns all notes, one per line.
    pub fn notes(&self) -> String {
        let gates = self.gates();
        let lines: Vec<&str> = gates.notes.values().map(String::as_str).collect();
        lines.join("\n")
    }

    /// Returns why the daemon is not ready, all reasons in one line, or `None` when it is.
    pub fn problem(&self) -> Option<String> {
        let gates = self.gates();
        let counts = |gate: Gate| !(gates.is_standby && gate.is_of_serving_daemon());
        let lines: Vec<String> = gates
            .closed
            .iter()
            .filter(|(gate, _)| counts(**gate))
            .map(|(gate, reason)| format!("{gate:?}: {reason}").to_lowercase_first())
            .collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }

    /// Remembers that a daemon before this one served pods a moment ago.
    pub(crate) fn begin_restart(&self, now: Instant) {
        self.gates().restarts_until = Some(now + GRACE);
    }

    /// Returns whether nothing but a restart keeps the daemon from being ready: its end, or for a short time its start. The runtime is
    /// not told of it, since a node whose STATUS fails becomes `NotReady`, with all its pods.
    pub(crate) fn is_restarting(&self, now: Instant) -> bool {
        let gates = self.gates();
        let is_start = gates.restarts_until.is_some_and(|until| now < until);
        let passes =
            |gate: &Gate| *gate == Gate::Shutdown || (is_start && gates.never_open.contains(gate));
        !gates.closed.is_empty() && gates.closed.keys().all(passes)
    }

    /// Returns why a gate is closed, or `None` when it is open.
    pub fn reason_closed(&self, gate: Gate) -> Option<String> {
        self.gates().closed.get(&gate).cloned()
    }

    /// Succeeds if the gate was open once, even if it is closed now; else fails with the reason.
    pub fn was_open(&self, gate: Gate) -> Result<(), String> {
        let gates = self.gates();
        if gates.never_open.contains(&gate) {
            return Err(gates.closed.get(&gate).cloned().unwrap_or_default());
        }
        Ok(())
    }

    /// Returns once the daemon is ready.
    pub async fn wait_ready(&self) {
        self.until(|| self.problem().is_none()).await;
    }

    /// Returns once each of these gates was open at some time.
    pub async fn wait_was_open(&self, gates: &[Gate]) {
        self.until(|| gates.iter().all(|gate| self.was_open(*gate).is_ok()))
            .await;
    }

    /// Returns once all these gates are open at the same time.
    pub async fn wait_open(&self, gates: &[Gate]) {
        self.until(|| gates.iter().all(|gate| self.reason_closed(*gate).is_none()))
            .await;
    }

    async fn until(&self, condition: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            if condition() {
                return;
            }
            changed.await;
        }
    }

    fn gates(&self) -> MutexGuard<'_, Gates> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason while the default network's own indicator is missing, in upstream's words, which operators search for.
pub(crate) fn waiting_for(indicator: &Path) -> String {
    format!(
        "have you checked that your default network is ready? still waiting for readinessindicatorfile @ {}",
        indicator.display()
    )
}

trait LowercaseFirst {
    fn to_lowercase_first(&self) -> String;
}

impl LowercaseFirst for String {
    fn to_lowercase_first(&self) -> String {
        let mut chars = self.chars();
        chars.next().map_or_else(Self::new, |first| {
            first.to_lowercase().chain(chars).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemon_is_ready_once_every_gate_is() {
        let readiness = Readiness::new(&[Gate::Watches, Gate::Discovery]);
        readiness.close(Gate::Discovery, "no runtime");
        assert_eq!(
            readiness.problem().unwrap(),
            "discovery: no runtime; watches: not started yet"
        );
        readiness.open(Gate::Discovery);
        readiness.open(Gate::Watches);
        assert_eq!(readiness.problem(), None);
        readiness.close(Gate::Shutdown, "shutting down");
        assert_eq!(
            readiness.reason_closed(Gate::Shutdown).unwrap(),
            "shutting down"
        );
    }

    #[test]
    fn gates_that_wait_for_the_socket_log_no_warning() {
        let readiness = Readiness::new(&[Gate::Socket, Gate::Shim, Gate::Watches]);
        let is_expected = |gate| readiness.gates().is_expected(gate);
        for gate in [Gate::Shim, Gate::Shutdown] {
            assert!(is_expected(gate), "{gate:?}");
        }
        assert!(!is_expected(Gate::Watches) && !is_expected(Gate::Socket));
        readiness.open(Gate::Socket);
        assert!(!is_expected(Gate::Shim));
    }

    #[tokio::test]
    async fn gate_that_was_ready_once_stays_so() {
        let readiness = Readiness::new(&[Gate::Watches]);
        readiness.close(Gate::Watches, "no answer");
        assert_eq!(readiness.was_open(Gate::Watches).unwrap_err(), "no answer");
        assert_eq!(readiness.was_open(Gate::Shim), Ok(()));
        let open = async { readiness.open(Gate::Watches) };
        tokio::join!(readiness.wait_was_open(&[Gate::Watches]), open);
        readiness.close(Gate::Watches, "no answer");
        assert_eq!(readiness.was_open(Gate::Watches), Ok(()));
        readiness.wait_was_open(&[Gate::Watches]).await;
    }

    #[test]
    fn only_start_and_end_are_a_restart() {
        let now = Instant::now();
        let readiness = Readiness::new(&[Gate::Watches, Gate::Shim]);
        assert!(!readiness.is_restarting(now), "no daemon was before it");
        readiness.begin_restart(now);
        readiness.close(Gate::Watches, "no answer");
        assert!(readiness.is_restarting(now));
        assert!(!readiness.is_restarting(now + GRACE), "it takes too long");
        readiness.open(Gate::Watches);
        assert!(readiness.is_restarting(now));
        readiness.open(Gate::Shim);
        assert!(!readiness.is_restarting(now), "it is ready");
        readiness.close(Gate::Shutdown, "shutting down");
        assert!(readiness.is_restarting(now + GRACE));
        readiness.close(Gate::Shim, "no space");
        assert!(!readiness.is_restarting(now), "it was ready before");
    }

    #[tokio::test]
    async fn standby_does_not_wait_for_the_socket() {
        let readiness = Readiness::new(&[Gate::Socket]);
        let standby = async { readiness.standby(true) };
        tokio::join!(readiness.wait_ready(), standby);
    }

    #[test]
    fn notes_leave_the_daemon_ready() {
        let readiness = Readiness::new(&[]);
        readiness.note("crd", Some("it is not there".to_owned()));
        readiness.note("a", Some("first".to_owned()));
        assert_eq!(readiness.notes(), "first\nit is not there");
        assert_eq!(readiness.problem(), None);
        readiness.note("a", None);
        readiness.note("crd", None);
        assert_eq!(readiness.notes(), "");
    }

    #[test]
    fn standby_ignores_gates_of_the_serving_daemon() {
        let readiness = Readiness::new(&[Gate::Watches, Gate::Socket, Gate::Shim]);
        readiness.standby(true);
        assert_eq!(readiness.problem().unwrap(), "watches: not started yet");
        readiness.open(Gate::Watches);
        assert_eq!(readiness.problem(), None);
        assert!(readiness.reason_closed(Gate::Socket).is_some());
        readiness.standby(false);
        assert!(readiness.problem().unwrap().starts_with("socket: "));
    }
}
