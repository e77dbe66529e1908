//! The queue of pods to work on, to reconcile them or to write their statuses: one task at a time works on a pod, and a pod that fails waits
//! longer each time. How many run at once is up to the caller. Callers pass the time, so the queue reads no clock.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::{backoff::doubled, cluster::PodKey};

/// The pause after the first failure. Each further pause is twice as long.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_mins(1);

/// The pods to reconcile.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pods: HashMap<PodKey, Item>,
}

#[derive(Debug, Default)]
struct Item {
    /// The time of the next reconciliation, if one is due.
    due: Option<Instant>,
    is_running: bool,
    failures: u32,
}

impl Queue {
    /// Makes a pod due now and resets its backoff.
    pub(crate) fn put(&mut self, pod: PodKey, now: Instant) {
        let item = self.pods.entry(pod).or_default();
        item.due = Some(now);
        item.failures = 0;
    }

    /// Takes all pods that are due.
    pub(crate) fn take(&mut self, now: Instant) -> Vec<PodKey> {
        let mut taken = Vec::new();
        for (pod, item) in &mut self.pods {
            if item.due.is_some_and(|due| due <= now) && !item.is_running {
                item.due = None;
                item.is_running = true;
                taken.push(pod.clone());
            }
        }
        taken
    }

    /// Returns the time at which the next pod is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        let waiting = self.pods.values().filter(|item| !item.is_running);
        waiting.filter_map(|item| item.due).min()
    }

    /// Ends the reconciliation of a pod. A pod that failed becomes due after its backoff.
    pub(crate) fn done(&mut self, pod: &PodKey, succeeded: bool, now: Instant) {
        let Some(item) = self.pods.get_mut(pod) else {
            return;
        };
        item.is_running = false;
        if item.due.is_none() && !succeeded {
            item.failures += 1;
            item.due = Some(now + doubled(item.failures, MIN_BACKOFF, MAX_BACKOFF));
        }
        if item.due.is_none() {
            self.pods.remove(pod);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> PodKey {
        ("shop".to_owned(), name.to_owned())
    }

    #[test]
    fn pod_is_taken_by_one_task_at_a_time() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.put(key("a"), now);
        queue.put(key("a"), now);
        assert_eq!(queue.take(now), [key("a")]);
        assert!(queue.take(now).is_empty());
        // A pod that changes meanwhile is taken again afterwards.
        queue.put(key("a"), now);
        assert!(queue.take(now).is_empty() && queue.next().is_none());
        queue.done(&key("a"), true, now);
        assert_eq!(queue.take(now), [key("a")]);
        queue.done(&key("a"), true, now);
        assert!(queue.pods.is_empty());
    }

    #[test]
    fn backoff_doubles_up_to_a_minute_and_a_change_resets_it() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        queue.put(key("a"), now);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert_eq!(queue.take(now).len(), 1);
            queue.done(&key("a"), false, now);
            let next = queue.next().unwrap();
            pauses.push((next - now).as_secs());
            assert!(queue.take(now).is_empty());
            now = next;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        // A change makes the pod due at once.
        queue.put(key("a"), now.checked_sub(Duration::from_secs(1)).unwrap());
        assert_eq!(queue.take(now).len(), 1);
    }

    #[test]
    fn nothing_is_due_after_all_were_taken() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for number in 0..20 {
            queue.put(key(&number.to_string()), now);
        }
        assert_eq!(queue.take(now).len(), 20);
        // Otherwise the loop around the queue would spin until one is done.
        assert_eq!(queue.next(), None);
    }
}
