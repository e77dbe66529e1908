//! Whose turn it is: one look at a pod at a time, a pod that failed waits longer each time. It knows no clock but the one it is told.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::cluster::PodKey;

/// The first pause after a failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// No pause is longer.
const LAST_PAUSE: Duration = Duration::from_mins(1);
/// So many pods at once.
const AT_ONCE: usize = 8;

/// Pods to look at.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pods: HashMap<PodKey, Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    /// When to look; `None` when there is no reason to.
    due: Option<Instant>,
    is_running: bool,
    failures: u32,
}

impl Queue {
    /// There is a reason to look at a pod now.
    pub(super) fn put(&mut self, pod: PodKey, now: Instant) {
        let turn = self.pods.entry(pod).or_default();
        turn.due = Some(now);
        turn.failures = 0;
    }

    /// The pods whose turn it is, as many as there may be at once.
    pub(super) fn take(&mut self, now: Instant) -> Vec<PodKey> {
        let running = self.pods.values().filter(|turn| turn.is_running).count();
        let mut taken = Vec::new();
        for (pod, turn) in &mut self.pods {
            let is_due = turn.due.is_some_and(|due| due <= now) && !turn.is_running;
            if is_due && running + taken.len() < AT_ONCE {
                turn.due = None;
                turn.is_running = true;
                taken.push(pod.clone());
            }
        }
        taken
    }

    /// When the next turn comes, unless something happens before.
    pub(super) fn next(&self) -> Option<Instant> {
        let waiting = self.pods.values().filter(|turn| !turn.is_running);
        waiting.filter_map(|turn| turn.due).min()
    }

    /// A look is over.
    pub(super) fn done(&mut self, pod: &PodKey, is_well: bool, now: Instant) {
        let Some(turn) = self.pods.get_mut(pod) else {
            return;
        };
        turn.is_running = false;
        if turn.due.is_none() && !is_well {
            let doubled = FIRST_PAUSE.saturating_mul(1 << turn.failures.min(16));
            turn.due = Some(now + doubled.min(LAST_PAUSE));
            turn.failures += 1;
        }
        if turn.due.is_none() {
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
    fn a_pod_is_looked_at_once_at_a_time() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.put(key("a"), now);
        queue.put(key("a"), now);
        assert_eq!(queue.take(now), [key("a")]);
        assert!(queue.take(now).is_empty());
        // What comes meanwhile is looked at afterwards.
        queue.put(key("a"), now);
        assert!(queue.take(now).is_empty() && queue.next().is_none());
        queue.done(&key("a"), true, now);
        assert_eq!(queue.take(now), [key("a")]);
        queue.done(&key("a"), true, now);
        assert!(queue.pods.is_empty());
    }

    #[test]
    fn a_failure_is_tried_again_later_and_later() {
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
        // Something new is looked at at once.
        queue.put(key("a"), now.checked_sub(Duration::from_secs(1)).unwrap());
        assert_eq!(queue.take(now).len(), 1);
    }

    #[test]
    fn there_are_never_too_many_at_once() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for number in 0..20 {
            queue.put(key(&number.to_string()), now);
        }
        let first = queue.take(now);
        assert_eq!((first.len(), queue.take(now).len()), (AT_ONCE, 0));
        queue.done(&first[0], true, now);
        assert_eq!(queue.take(now).len(), 1);
    }
}
