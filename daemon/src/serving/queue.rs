//! The queue as tasks see it: a turn is waited for without a thread, and given back by being dropped.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use super::fair::{Entry, Fair, Id, Limits};

/// The queue of all verbs of a daemon.
#[derive(Debug)]
pub struct Queue(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    fair: Fair,
    /// Those who wait for their turn.
    callers: HashMap<Id, oneshot::Sender<()>>,
}

/// There are too many verbs already.
#[derive(Debug, thiserror::Error)]
#[error("{0} requests wait already: the plugins of this node do not keep up")]
pub(crate) struct Full(usize);

/// A place in the queue, or at work; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    queue: Arc<Queue>,
    id: Id,
}

impl Queue {
    pub(crate) fn new(limits: Limits) -> Self {
        Self(Mutex::new(Inner {
            fair: Fair::new(limits),
            callers: HashMap::new(),
        }))
    }

    /// Returns when the entry may begin. Whoever stops waiting leaves the queue.
    pub(crate) async fn turn(self: &Arc<Self>, entry: Entry) -> Result<Turn, Full> {
        let (caller, called) = oneshot::channel();
        let turn = {
            let mut inner = self.inner();
            let waiting = inner.fair.waiting();
            let id = inner.fair.join(entry).ok_or(Full(waiting))?;
            inner.callers.insert(id, caller);
            inner.start();
            Turn {
                queue: Arc::clone(self),
                id,
            }
        };
        // The sender stays in the queue for as long as the turn.
        let _ = called.await;
        Ok(turn)
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.inner().fair.waiting()
    }

    /// How many are at work.
    pub fn at_work(&self) -> usize {
        self.inner().fair.at_work()
    }

    /// Every statement leaves it whole, so a panic elsewhere does not spoil it.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn start(&mut self) {
        for id in self.fair.start() {
            if let Some(caller) = self.callers.remove(&id) {
                // One that has gone meanwhile leaves when its turn is dropped.
                let _ = caller.send(());
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut inner = self.queue.inner();
        inner.callers.remove(&self.id);
        inner.fair.leave(self.id);
        inner.start();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::super::fair::Lane;
    use super::*;

    fn queue(waiting: usize) -> Arc<Queue> {
        Arc::new(Queue::new(Limits {
            changes: 1,
            checks: 1,
            statuses: 1,
            waiting,
        }))
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
    async fn the_next_begins_when_the_last_is_over() {
        let queue = queue(8);
        let first = queue.turn(entry("a")).await.unwrap();
        let mut second = Box::pin(queue.turn(entry("a")));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        drop(second.await.unwrap());
        assert_eq!(queue.waiting(), 0);
    }

    #[tokio::test]
    async fn who_stops_waiting_leaves_and_holds_nobody_up() {
        let queue = queue(8);
        let first = queue.turn(entry("a")).await.unwrap();
        let mut gone = Box::pin(queue.turn(entry("a")));
        assert!(gone.as_mut().now_or_never().is_none());
        let mut third = Box::pin(queue.turn(entry("b")));
        assert!(third.as_mut().now_or_never().is_none());
        drop(gone);
        assert_eq!(queue.waiting(), 1);
        drop(first);
        third.await.unwrap();
    }

    #[tokio::test]
    async fn who_goes_at_the_moment_of_its_turn_gives_it_on() {
        let queue = queue(8);
        let first = queue.turn(entry("a")).await.unwrap();
        let mut called = Box::pin(queue.turn(entry("a")));
        let mut third = Box::pin(queue.turn(entry("b")));
        assert!(called.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        // It was called, and has not looked yet.
        drop(called);
        third.await.unwrap();
    }

    #[tokio::test]
    async fn too_many_are_told() {
        let queue = queue(1);
        let _first = queue.turn(entry("a")).await.unwrap();
        let mut second = Box::pin(queue.turn(entry("a")));
        assert!(second.as_mut().now_or_never().is_none());
        let error = queue.turn(entry("a")).await.unwrap_err();
        assert!(error.to_string().starts_with("1 requests wait"), "{error}");
    }
}
