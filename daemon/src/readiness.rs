//! Why the daemon is not ready, if it is not: one reason per part, shown by `/readyz`, `status --ready` and the log.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use tracing::{info, warn};

/// The parts that must be well before pods are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The runtime and its CNI directories.
    Discovery,
    /// Replayed DELs.
    Journal,
    /// The node's own certificate, where it is to have one.
    Certificate,
    /// The watches of pods and definitions.
    Watches,
    /// The name under which shims find the daemon.
    Socket,
    /// The shim in the runtime's directory.
    Shim,
    /// The primary configuration and ours.
    Configuration,
    /// The process is about to end.
    Shutdown,
}

/// Reasons by part.
#[derive(Debug)]
pub struct Readiness {
    parts: Mutex<Parts>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Parts {
    reasons: BTreeMap<Part, String>,
    /// Those that were not well from the beginning on.
    never_well: BTreeSet<Part>,
    /// Another daemon serves this node's pods.
    is_standby: bool,
    /// What an operator should know although pods are served.
    notes: BTreeMap<&'static str, String>,
}

impl Part {
    /// What is the business of the daemon that shims find, and of no other.
    fn is_of_holder(self) -> bool {
        matches!(self, Self::Socket | Self::Shim | Self::Configuration)
    }
}

impl Parts {
    /// Whether a part may be missing without anything being wrong: at a start, what waits for the socket, and at the end.
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
    /// Nothing is ready yet but what is not in `missing`.
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

    /// The part is well.
    pub fn well(&self, part: Part) {
        let mut parts = self.parts();
        parts.never_well.remove(&part);
        if parts.reasons.remove(&part).is_some() {
            info!(?part, "ready");
            self.changed.notify_waiters();
        }
    }

    /// The part is not, for this reason.
    pub fn missing(&self, part: Part, reason: impl Into<String>) {
        self.missing_with(part, reason.into(), |parts| parts.is_expected(part));
    }

    /// The same where the reason is a step of every start, unless the part was well before.
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

    /// While another daemon of the node serves its pods, this one is ready when it could do so, too: an update goes on then.
    pub fn standby(&self, is_standby: bool) {
        let before = std::mem::replace(&mut self.parts().is_standby, is_standby);
        if before != is_standby {
            self.changed.notify_waiters();
        }
    }

    /// Well without a reason, else missing for it.
    pub fn set(&self, part: Part, reason: Option<String>) {
        match reason {
            None => self.well(part),
            Some(reason) => self.missing(part, reason),
        }
    }

    /// What an operator should know about a subject although pods are served; `None` takes it back.
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

    /// All notes, one a line.
    pub fn notes(&self) -> String {
        let parts = self.parts();
        let lines: Vec<&str> = parts.notes.values().map(String::as_str).collect();
        lines.join("\n")
    }

    /// Nothing when all is well, else all reasons in one line.
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

    /// The reason of one part.
    pub fn reason(&self, part: Part) -> Option<String> {
        self.parts().reasons.get(&part).cloned()
    }

    /// Whether the part was well once, whatever has become of it since; else the reason.
    pub fn once_well(&self, part: Part) -> Result<(), String> {
        let parts = self.parts();
        if parts.never_well.contains(&part) {
            return Err(parts.reasons.get(&part).cloned().unwrap_or_default());
        }
        Ok(())
    }

    /// Returns once nothing is missing.
    pub async fn wait_for_all(&self) {
        self.until(|| self.problem().is_none()).await;
    }

    /// Returns once each of these parts was well at some time.
    pub async fn wait_for_once(&self, parts: &[Part]) {
        self.until(|| parts.iter().all(|part| self.once_well(*part).is_ok()))
            .await;
    }

    /// Returns once all these parts are well.
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

/// What is said while the default network's own indicator is missing, in the words that operators look for.
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
    fn ready_once_every_part_is_well() {
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
    fn only_what_is_missing_at_every_start_is_expected() {
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
    async fn what_was_well_once_is_waited_for_and_remembered() {
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
    async fn standby_ends_the_wait_for_what_the_other_daemon_has() {
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
    fn on_standby_only_what_serving_takes_counts() {
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
