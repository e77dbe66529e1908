//! Recent failures, a limited number in memory: the log has all of them, but `kubectl multus` needs those of one pod.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use api::pod_report::RecentFailure;

use super::render;
use crate::engine::Failure;

/// The number of failures that are kept.
const KEPT: usize = 200;

/// Failures of pods, the newest last.
#[derive(Debug, Default)]
pub struct RecentFailures(Mutex<VecDeque<RecentFailure>>);

impl RecentFailures {
    /// Keeps a failure, or counts it if it is known. A failure without a pod is not kept.
    pub(crate) fn note(&self, id: &str, pod: &str, verb: &str, failure: &Failure) {
        if pod.is_empty() {
            return;
        }
        let mut all = self.all();
        let known = all.iter().position(|one| one.id == id && one.pod == pod);
        let before = known.and_then(|index| all.remove(index));
        all.push_back(RecentFailure {
            id: id.to_owned(),
            pod: pod.to_owned(),
            verb: verb.to_owned(),
            cause: failure.cause,
            code: failure.error.code,
            msg: render::kept(&failure.to_string()),
            details: render::kept(&failure.error.details),
            at: now(),
            count: before.map_or(1, |before| before.count.saturating_add(1)),
        });
        if all.len() > KEPT {
            all.pop_front();
        }
    }

    /// Forgets the failures of a pod, after a success.
    pub(crate) fn forget(&self, pod: &str) {
        self.all().retain(|one| one.pod != pod);
    }

    /// Returns all failures as JSON.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&*self.all()).expect("plain values always serialise")
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<RecentFailure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use cni::types::CniError;

    use super::*;

    fn failure(code: u32, text: impl Into<String>, details: impl Into<String>) -> Failure {
        CniError::new(code, text).with_details(details).into()
    }

    fn kept(failures: &RecentFailures) -> Vec<(String, String, u32)> {
        let all: Vec<RecentFailure> = serde_json::from_slice(&failures.to_json()).unwrap();
        let all = all.into_iter();
        all.map(|one| (one.pod, one.id, one.count)).collect()
    }

    #[test]
    fn repeated_failure_is_counted_until_the_pod_succeeds() {
        let failures = RecentFailures::default();
        let error = failure(11, "no luck", "at all");
        failures.note("a", "shop/cart", "ADD", &error);
        failures.note("b", "shop/other", "ADD", &error);
        failures.note("a", "shop/cart", "ADD", &error);
        failures.note("c", "", "STATUS", &error);
        let entry = |pod: &str, id: &str, count| (pod.to_owned(), id.to_owned(), count);
        assert_eq!(
            kept(&failures),
            [entry("shop/other", "b", 1), entry("shop/cart", "a", 2)]
        );
        failures.forget("shop/cart");
        assert_eq!(kept(&failures), [entry("shop/other", "b", 1)]);
    }

    #[test]
    fn long_texts_are_cut() {
        let failures = RecentFailures::default();
        let long = "ä".repeat(100_000);
        let error = failure(7, long.clone(), long);
        failures.note("a", "shop/cart", "ADD", &error);
        assert!(failures.to_json().len() < 9000);
    }

    #[test]
    fn oldest_failure_is_dropped_at_the_limit() {
        let failures = RecentFailures::default();
        for number in 0..=KEPT {
            failures.note("a", &format!("shop/{number}"), "ADD", &failure(7, "", ""));
        }
        let kept = kept(&failures);
        assert_eq!(kept.len(), KEPT);
        assert_eq!(kept[0].0, "shop/1");
    }
}
