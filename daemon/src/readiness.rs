//! The gates that must be open before pods are served; a closed gate has a reason, shown by `/readyz`, `status --ready` and the log.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use tracing::{info, warn};

/// A precondition of serving pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
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
    /// Closed once the process is shutting down.
    Shutdown,
}

/// The state of all gates.
#[derive(Debug)]
pub struct Readiness {
    parts: Mutex<Parts>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Parts {
    reasons: BTreeMap<Part, String>,
    /// The gates that were never ready since the start.
    never_well: BTreeSet<Part>,
    /// True while another daemon serves this node's pods.
    is_standby: bool,
    /// Notes for operators, by subject; pods are served all the same.
    notes: BTreeMap<&'static str, String>,
}

impl Part {
    /// True for gates that concern only the daemon that shims connect to.
    fn is_of_holder(self) -> bool {
        matches!(self, Self::Socket | Self::Shim | Self::Configuration)
    }
}

impl Parts {
    /// Returns whether the gate is closed in normal operation: at a start while it waits for the socket, and during the shutdown.
    fn is_expected(&self, part: Part) -> bool {
        let is_first = self.never_well.contains(&part);
        match part {
            Part::Shutdown => true,
            Part::Shim | Part::Configuration => {
                is_first && self.reasons.contains_key(&Part::Socket)
            }
            Part::Socket | Part::Discovery | Part::Journal | Part::Certificate | Part::Watches => {
                false
            }
        }
    }
}

impl Readiness {
    /// All gates in `missing` start as not ready.
    pub fn new(missing: &[Part]) -> Self {
        let reasons = missing
            .iter()
            .map(|part| (*part, "not started yet".to_owned()))
            .collect();
        Self {
            parts: Mutex::new(Parts {
                reasons,
                never_well: missing.iter().copied().collect(),
                is_standby: false,
                notes: BTreeMap::new(),
            }),
            changed: Notify::new(),
        }
    }

    /// Marks a gate as ready.
    pub fn well(&self, part: Part) {
        let mut parts = self.parts();
        parts.never_well.remove(&part);
        if parts.reasons.remove(&part).is_some() {
            info!(?part, "ready");
            self.changed.notify_waiters();
        }
    }

    /// Marks a gate as not ready.
    pub fn missing(&self, part: Part, reason: impl Into<String>) {
        self.missing_with(part, reason.into(), |parts| parts.is_expected(part));
    }

    /// Like [`missing`](Self::missing), for a reason that is a step of every start: no warning is logged unless the gate was ready before.
    pub fn waiting(&self, part: Part, reason: impl Into<String>) {
        self.missing_with(part, reason.into(), |parts| {
            parts.never_well.contains(&part)
        });
    }

    fn missing_with(&self, part: Part, reason: String, is_expected: impl Fn(&Parts) -> bool) {
        let mut parts = self.parts();
        let is_expected = is_expected(&parts);
        if parts.reasons.get(&part) == Some(&reason) {
            return;
        }
        if is_expected {
            info!(?part, reason, "not ready yet");
        } else {
            warn!(?part, reason, "not ready");
        }
        parts.reasons.insert(part, reason);
    }

    /// While another daemon of the node serves its pods, this one counts as ready when it could serve them, so that a rolling update goes on.
    pub fn standby(&self, is_standby: bool) {
        let before = std::mem::replace(&mut self.parts().is_standby, is_standby);
        if before != is_standby {
            self.changed.notify_waiters();
        }
    }

    /// Marks a gate as not ready for a reason, or as ready without one.
    pub fn set(&self, part: Part, reason: Option<String>) {
        match reason {
            None => self.well(part),
            Some(reason) => self.missing(part, reason),
        }
    }

    /// Sets or removes the note about a subject.
    pub fn note(&self, subject: &'static str, text: Option<String>) {
        let mut parts = self.parts();
        let before = match &text {
            Some(text) => parts.notes.insert(subject, text.clone()),
            None => parts.notes.remove(subject),
        };
        if let Some(text) = text.filter(|text| before.as_ref() != Some(text)) {
            warn!("{text}");
        }
    }

    /// Returns all notes, one per line.
    pub fn notes(&self) -> String {
        let parts = self.parts();
        let lines: Vec<&str> = parts.notes.values().map(String::as_str).collect();
        lines.join("\n")
    }

    /// Returns the reasons of all gates that are not ready in one line, or `None` when the daemon is ready.
    pub fn problem(&self) -> Option<String> {
        let parts = self.parts();
        let counts = |part: Part| !(parts.is_standby && part.is_of_holder());
        let lines: Vec<String> = parts
            .reasons
            .iter()
            .filter(|(part, _)| counts(**part))
            .map(|(part, reason)| format!("{part:?}: {reason}").to_lowercase_first())
            .collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }

    /// Returns why a gate is not ready now, or `None` when it is.
    pub fn reason(&self, part: Part) -> Option<String> {
        self.parts().reasons.get(&part).cloned()
    }

    /// Succeeds if the gate was ready once, even if it is not ready now; else fails with the reason.
    pub fn once_well(&self, part: Part) -> Result<(), String> {
        let parts = self.parts();
        if parts.never_well.contains(&part) {
            return Err(parts.reasons.get(&part).cloned().unwrap_or_default());
        }
        Ok(())
    }

    /// Returns once the daemon is ready.
    pub async fn wait_for_all(&self) {
        self.until(|| self.problem().is_none()).await;
    }

    /// Returns once each of these gates was ready at some time.
    pub async fn wait_for_once(&self, parts: &[Part]) {
        self.until(|| parts.iter().all(|part| self.once_well(*part).is_ok()))
            .await;
    }

    /// Returns once all these gates are ready at the same time.
    pub async fn wait_for(&self, parts: &[Part]) {
        self.until(|| parts.iter().all(|part| self.reason(*part).is_none()))
            .await;
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so() {
                return;
            }
            changed.await;
        }
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
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
        let readiness = Readiness::new(&[Part::Watches, Part::Discovery]);
        readiness.missing(Part::Discovery, "no runtime");
        assert_eq!(
            readiness.problem().unwrap(),
            "discovery: no runtime; watches: not started yet"
        );
        readiness.well(Part::Discovery);
        readiness.well(Part::Watches);
        assert_eq!(readiness.problem(), None);
        readiness.missing(Part::Shutdown, "shutting down");
        assert_eq!(readiness.reason(Part::Shutdown).unwrap(), "shutting down");
    }

    #[test]
    fn gates_that_wait_for_the_socket_log_no_warning() {
        let readiness = Readiness::new(&[Part::Socket, Part::Shim, Part::Watches]);
        let is_expected = |part| readiness.parts().is_expected(part);
        for part in [Part::Shim, Part::Shutdown] {
            assert!(is_expected(part), "{part:?}");
        }
        assert!(!is_expected(Part::Watches) && !is_expected(Part::Socket));
        readiness.well(Part::Socket);
        assert!(!is_expected(Part::Shim));
    }

    #[tokio::test]
    async fn gate_that_was_ready_once_stays_so() {
        let readiness = Readiness::new(&[Part::Watches]);
        readiness.missing(Part::Watches, "no answer");
        assert_eq!(readiness.once_well(Part::Watches).unwrap_err(), "no answer");
        assert_eq!(readiness.once_well(Part::Shim), Ok(()));
        let well = async { readiness.well(Part::Watches) };
        tokio::join!(readiness.wait_for_once(&[Part::Watches]), well);
        readiness.missing(Part::Watches, "no answer");
        assert_eq!(readiness.once_well(Part::Watches), Ok(()));
        readiness.wait_for_once(&[Part::Watches]).await;
    }

    #[tokio::test]
    async fn standby_does_not_wait_for_the_socket() {
        let readiness = Readiness::new(&[Part::Socket]);
        let standby = async { readiness.standby(true) };
        tokio::join!(readiness.wait_for_all(), standby);
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
        let readiness = Readiness::new(&[Part::Watches, Part::Socket, Part::Shim]);
        readiness.standby(true);
        assert_eq!(readiness.problem().unwrap(), "watches: not started yet");
        readiness.well(Part::Watches);
        assert_eq!(readiness.problem(), None);
        assert!(readiness.reason(Part::Socket).is_some());
        readiness.standby(false);
        assert!(readiness.problem().unwrap().starts_with("socket: "));
    }
}
