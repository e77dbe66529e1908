//! What went wrong of late, kept in memory and bounded: the log has all of it, but who asks about one pod wants that pod's.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use api::pod_report::Remembered;
use cni::types::CniError;

/// So many failures are remembered.
const KEPT: usize = 200;

/// Failures, the newest last.
#[derive(Debug, Default)]
pub struct Failures(Mutex<VecDeque<Remembered>>);

impl Failures {
    /// Remembers a failure; one that comes again is counted. What is about no pod is nobody's.
    pub(crate) fn note(&self, id: &str, pod: &str, verb: &str, error: &CniError) {
        if pod.is_empty() {
            return;
        }
        let mut all = self.all();
        let known = all.iter().position(|one| one.id == id && one.pod == pod);
        let before = known.and_then(|index| all.remove(index));
        all.push_back(Remembered {
            id: id.to_owned(),
            pod: pod.to_owned(),
            verb: verb.to_owned(),
            code: error.code,
            msg: error.msg.clone(),
            details: error.details.clone(),
            at: now(),
            count: before.map_or(1, |before| before.count.saturating_add(1)),
        });
        if all.len() > KEPT {
            all.pop_front();
        }
    }

    /// All is well with this pod.
    pub(crate) fn forget(&self, pod: &str) {
        self.all().retain(|one| one.pod != pod);
    }

    /// All that is remembered, as JSON.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&*self.all()).expect("plain values always serialise")
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(failures: &Failures) -> Vec<(String, String, u32)> {
        let all: Vec<Remembered> = serde_json::from_slice(&failures.to_json()).unwrap();
        let brief = all.into_iter().map(|one| (one.pod, one.id, one.count));
        brief.collect()
    }

    #[test]
    fn what_comes_again_is_counted_and_what_is_well_is_forgotten() {
        let failures = Failures::default();
        let error = CniError::new(11, "no luck").with_details("at all");
        failures.note("a", "shop/cart", "ADD", &error);
        failures.note("b", "shop/other", "ADD", &error);
        failures.note("a", "shop/cart", "ADD", &error);
        failures.note("c", "", "STATUS", &error);
        let entry = |pod: &str, id: &str, count| (pod.to_owned(), id.to_owned(), count);
        assert_eq!(
            told(&failures),
            [entry("shop/other", "b", 1), entry("shop/cart", "a", 2)]
        );
        failures.forget("shop/cart");
        assert_eq!(told(&failures), [entry("shop/other", "b", 1)]);
    }

    #[test]
    fn no_more_than_so_many_are_kept() {
        let failures = Failures::default();
        for number in 0..=KEPT {
            failures.note("a", &format!("shop/{number}"), "ADD", &CniError::new(7, ""));
        }
        let told = told(&failures);
        assert_eq!(told.len(), KEPT);
        assert_eq!(told[0].0, "shop/1");
    }
}
