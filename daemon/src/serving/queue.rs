//! The queue for tasks: a task waits for its turn without a thread, and ends the turn by dropping it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::oneshot;

use super::fair::{Entry, FairQueue, Id, Limits};

/// The queue of all verbs of a daemon.
#[derive(Debug)]
pub struct Queue(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    fair: FairQueue,
    /// Wakes the tasks that wait for their turn.
    wakers: HashMap<Id, oneshot::Sender<()>>,
    /// Whether a task starts entries as soon as others give their slots back.
    has_timer: bool,
}

/// Too many requests wait already.
#[derive(Debug, thiserror::Error)]
#[error("{0} requests are waiting already: the plugins of this node are too slow for them")]
pub(crate) struct Full(usize);

/// A place in the queue, or the right to run; released when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    queue: Arc<Queue>,
    id: Id,
}

impl Queue {
    pub(crate) fn new(limits: Limits) -> Self {
        Self(Mutex::new(Inner {
            fair: FairQueue::new(limits),
            wakers: HashMap::new(),
            has_timer: false,
        }))
    }

    /// Returns when the entry may begin. A dropped future leaves the queue.
    pub(crate) async fn turn(self: &Arc<Self>, entry: Entry) -> Result<Turn, Full> {
        let (waker, begin) = oneshot::channel();
        let turn = {
            let mut inner = self.inner();
            let waiting = inner.fair.waiting();
            let id = inner.fair.join(entry).ok_or(Full(waiting))?;
            inner.wakers.insert(id, waker);
            inner.start(Instant::now());
            if inner.fair.waiting() > 0 && !inner.has_timer {
                inner.has_timer = true;
                tokio::spawn(Arc::clone(self).start_over_time());
            }
            Turn {
                queue: Arc::clone(self),
                id,
            }
        };
        // It cannot fail: the queue keeps the sender until the turn is dropped.
        let _ = begin.await;
        Ok(turn)
    }

    /// Starts entries as soon as others give their slots back, for as long as any wait.
    async fn start_over_time(self: Arc<Self>) {
        loop {
            let next = {
                let (mut inner, now) = (self.inner(), Instant::now());
                inner.start(now);
                if inner.fair.waiting() == 0 {
                    inner.has_timer = false;
                    return;
                }
                inner.fair.next_free_slot(now)
            };
            tokio::time::sleep_until(next.into()).await;
        }
    }

    /// The number of waiting entries.
    pub fn waiting(&self) -> usize {
        self.inner().fair.waiting()
    }

    /// Every statement leaves the queue consistent, so a poisoned lock is safe to use.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn start(&mut self, now: Instant) {
        for id in self.fair.start(now) {
            if let Some(waker) = self.wakers.remove(&id) {
                // A task that was dropped meanwhile leaves the queue with its turn.
                let _ = waker.send(());
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut inner = self.queue.inner();
        inner.wakers.remove(&self.id);
        inner.fair.leave(self.id);
        inner.start(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::super::fair::Lane;
    use super::*;

    const LIMITS: Limits = Limits {
        changes: 1,
        checks: 1,
        statuses: 1,
        hot_plugs: 1,
        waiting: 8,
        slot_time: Duration::from_mins(10),
    };

    fn queue(waiting: usize) -> Arc<Queue> {
        Arc::new(Queue::new(Limits { waiting, ..LIMITS }))
    }

    fn entry(namespace: &str) -> Entry {
        Entry {
            lane: Lane::Change,
            namespace: namespace.to_owned(),
            verb: "ADD",
            container: None,
        }
    }

    #[tokio::test]
    async fn next_entry_begins_when_the_running_one_ends() {
        let queue = queue(8);
        let first = queue.turn(entry("a")).await.unwrap();
        let mut second = Box::pin(queue.turn(entry("a")));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        drop(second.await.unwrap());
        assert_eq!(queue.waiting(), 0);
    }

    #[tokio::test]
    async fn next_entries_begin_while_others_run_for_long() {
        let queue = Arc::new(Queue::new(Limits {
            slot_time: Duration::from_millis(10),
            ..LIMITS
        }));
        let turns = async {
            // The timer ends when no entry waits, and begins again.
            for namespace in ["a", "b"] {
                let both = [0; 2].map(|_| queue.turn(entry(namespace)));
                drop(futures::future::join_all(both).await);
            }
        };
        let begun = tokio::time::timeout(Duration::from_mins(1), turns).await;
        assert!(begun.is_ok());
    }

    #[tokio::test]
    async fn dropped_entry_leaves_the_queue() {
        let queue = queue(8);
        let first = queue.turn(entry("a")).await.unwrap();
        let mut dropped = Box::pin(queue.turn(entry("a")));
        assert!(dropped.as_mut().now_or_never().is_none());
        let mut third = Box::pin(queue.turn(entry("b")));
        assert!(third.as_mut().now_or_never().is_none());
        drop(dropped);
        assert_eq!(queue.waiting(), 1);
        drop(first);
        third.await.unwrap();
    }

    #[tokio::test]
    async fn entry_dropped_at_its_turn_passes_it_on() {
        let queue = queue(8);
        let first = queue.turn(entry("a")).await.unwrap();
        let mut called = Box::pin(queue.turn(entry("a")));
        let mut third = Box::pin(queue.turn(entry("b")));
        assert!(called.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        // It was woken, and has not been polled since.
        drop(called);
        third.await.unwrap();
    }

    #[tokio::test]
    async fn full_queue_is_an_error() {
        let queue = queue(1);
        let _first = queue.turn(entry("a")).await.unwrap();
        let mut second = Box::pin(queue.turn(entry("a")));
        assert!(second.as_mut().now_or_never().is_none());
        let error = queue.turn(entry("a")).await.unwrap_err();
        assert!(
            error.to_string().starts_with("1 requests are waiting"),
            "{error}"
        );
    }
}
