//! Locks that allow one verb at a time for each container. Verbs of different containers never wait for each other.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use cni::env::ContainerId;
use node::lock::FileLock;
use tracing::warn;

use crate::state::Store;

/// The containers that are locked.
#[derive(Debug, Default)]
pub(super) struct Locks {
    busy: Mutex<HashSet<ContainerId>>,
    freed: Condvar,
}

/// Locks a container until it is dropped. It releases the lock between processes first, then the one between threads.
#[derive(Debug)]
pub(super) struct Guard<'a> {
    process_lock: Option<FileLock>,
    _thread_lock: ThreadLock<'a>,
}

/// Locks a container among the threads of this process.
#[derive(Debug)]
struct ThreadLock<'a> {
    locks: &'a Locks,
    id: ContainerId,
}

impl Locks {
    /// Waits until the container is unlocked, and locks it.
    pub(super) fn lock(&self, store: &Store, id: &ContainerId) -> Guard<'_> {
        let thread_lock = self.lock_among_threads(id);
        // Where the lock file cannot be made, no second daemon can write state either, and DEL has to go on.
        let process_lock = store.lock(id);
        Guard {
            process_lock: process_lock
                .inspect_err(|error| warn!(%error, "cannot lock the container between daemons"))
                .ok(),
            _thread_lock: thread_lock,
        }
    }

    /// Locks the container, or returns `None` when it is locked.
    pub(super) fn try_lock(&self, store: &Store, id: &ContainerId) -> Option<Guard<'_>> {
        let thread_lock = self
            .busy()
            .insert(id.clone())
            .then(|| self.thread_lock(id))?;
        let process_lock = match store.try_lock(id) {
            Ok(None) => return None,
            Ok(lock) => lock,
            Err(error) => {
                warn!(%error, "cannot lock the container between daemons");
                None
            }
        };
        Some(Guard {
            process_lock,
            _thread_lock: thread_lock,
        })
    }

    fn lock_among_threads(&self, id: &ContainerId) -> ThreadLock<'_> {
        let mut busy = self.busy();
        while busy.contains(id) {
            busy = self
                .freed
                .wait(busy)
                .unwrap_or_else(PoisonError::into_inner);
        }
        busy.insert(id.clone());
        self.thread_lock(id)
    }

    fn thread_lock(&self, id: &ContainerId) -> ThreadLock<'_> {
        ThreadLock {
            locks: self,
            id: id.clone(),
        }
    }

    /// Ignores poisoning: the set is consistent after every statement, so a panic of another thread does no harm to it.
    fn busy(&self) -> MutexGuard<'_, HashSet<ContainerId>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // The next thread of this process must not find the file still locked.
        drop(self.process_lock.take());
    }
}

impl Drop for ThreadLock<'_> {
    fn drop(&mut self) {
        self.locks.busy().remove(&self.id);
        self.locks.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};

    use node::root::Root;

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        (dir, Store::new(root, "/state"))
    }

    #[test]
    fn lock_excludes_the_same_container_only() {
        let (_dir, store) = store();
        let locks = Locks::default();
        let (one, two) = ("c1".parse().unwrap(), "c2".parse().unwrap());
        let first = locks.lock(&store, &one);
        assert!(locks.try_lock(&store, &one).is_none());
        drop(locks.lock(&store, &two));
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let (locks, store, one) = (&locks, &store, &one);
            scope.spawn(move || {
                let _second = locks.lock(store, one);
                sender.send("second").unwrap();
            });
            assert!(receiver.try_recv().is_err());
            drop(first);
            assert_eq!(receiver.recv().unwrap(), "second");
        });
        assert!(locks.try_lock(&store, &one).is_some());
    }

    #[test]
    fn lock_excludes_another_daemon_of_the_node() {
        let (_dir, store) = store();
        let (mine, theirs) = (Locks::default(), Locks::default());
        let id = "c1".parse().unwrap();
        let held = mine.lock(&store, &id);
        assert!(theirs.try_lock(&store, &id).is_none());
        assert!(
            theirs.try_lock(&store, &id).is_none(),
            "a failed attempt keeps the lock of the other daemon"
        );
        drop(held);
        drop(theirs.lock(&store, &id));
        assert!(mine.try_lock(&store, &id).is_some());
    }
}
