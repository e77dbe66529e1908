//! One verb at a time for each container; different containers never wait for one another.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use cni::env::ContainerId;

/// The containers that are being worked on.
#[derive(Debug, Default)]
pub(super) struct Locks {
    busy: Mutex<HashSet<ContainerId>>,
    freed: Condvar,
}

/// Holds a container until dropped.
#[derive(Debug)]
pub(super) struct Guard<'a> {
    locks: &'a Locks,
    id: ContainerId,
}

impl Locks {
    /// Waits until the container is free.
    pub(super) fn lock(&self, id: &ContainerId) -> Guard<'_> {
        let mut busy = self.busy();
        while busy.contains(id) {
            busy = self
                .freed
                .wait(busy)
                .unwrap_or_else(PoisonError::into_inner);
        }
        busy.insert(id.clone());
        self.guard(id)
    }

    /// The container, if it is free.
    pub(super) fn try_lock(&self, id: &ContainerId) -> Option<Guard<'_>> {
        self.busy().insert(id.clone()).then(|| self.guard(id))
    }

    fn guard(&self, id: &ContainerId) -> Guard<'_> {
        Guard {
            locks: self,
            id: id.clone(),
        }
    }

    /// The set is whole between any two statements, so a panic elsewhere does not spoil it.
    fn busy(&self) -> MutexGuard<'_, HashSet<ContainerId>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.locks.busy().remove(&self.id);
        self.locks.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn the_same_container_waits_another_does_not() {
        let locks = Locks::default();
        let (one, two) = ("c1".parse().unwrap(), "c2".parse().unwrap());
        let first = locks.lock(&one);
        assert!(locks.try_lock(&one).is_none());
        drop(locks.lock(&two));
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let locks = &locks;
            let one = &one;
            scope.spawn(move || {
                let _second = locks.lock(one);
                sender.send("second").unwrap();
            });
            assert!(receiver.try_recv().is_err());
            drop(first);
            assert_eq!(receiver.recv().unwrap(), "second");
        });
        assert!(locks.try_lock(&one).is_some());
    }
}
