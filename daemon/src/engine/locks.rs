//! One verb at a time for each container; different containers never wait for one another.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use cni::env::ContainerId;
use node::lock::FileLock;
use tracing::warn;

use crate::state::Store;

/// The containers that are being worked on.
#[derive(Debug, Default)]
pub(super) struct Locks {
    busy: Mutex<HashSet<ContainerId>>,
    freed: Condvar,
}

/// Holds a container until dropped; other processes first, then the threads of this one.
#[derive(Debug)]
pub(super) struct Guard<'a> {
    among_processes: Option<FileLock>,
    /// Given up by being dropped.
    _among_threads: Among<'a>,
}

#[derive(Debug)]
struct Among<'a> {
    locks: &'a Locks,
    id: ContainerId,
}

impl Locks {
    /// Waits until the container is free.
    pub(super) fn lock(&self, store: &Store, id: &ContainerId) -> Guard<'_> {
        let among_threads = self.wait(id);
        // Without a place for the file there is no second daemon that could write state either; removing has to go on.
        let among_processes = store.lock(id);
        Guard {
            among_processes: among_processes
                .inspect_err(|error| warn!(%error, "no lock between daemons"))
                .ok(),
            _among_threads: among_threads,
        }
    }

    /// The container, if it is free.
    pub(super) fn try_lock(&self, store: &Store, id: &ContainerId) -> Option<Guard<'_>> {
        let among_threads = self.busy().insert(id.clone()).then(|| self.among(id))?;
        let among_processes = match store.try_lock(id) {
            Ok(None) => return None,
            Ok(held) => held,
            Err(error) => {
                warn!(%error, "no lock between daemons");
                None
            }
        };
        Some(Guard {
            among_processes,
            _among_threads: among_threads,
        })
    }

    fn wait(&self, id: &ContainerId) -> Among<'_> {
        let mut busy = self.busy();
        while busy.contains(id) {
            busy = self
                .freed
                .wait(busy)
                .unwrap_or_else(PoisonError::into_inner);
        }
        busy.insert(id.clone());
        self.among(id)
    }

    fn among(&self, id: &ContainerId) -> Among<'_> {
        Among {
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
        // Before the next thread asks for it.
        drop(self.among_processes.take());
    }
}

impl Drop for Among<'_> {
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
    fn the_same_container_waits_another_does_not() {
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
    fn two_daemons_of_one_node_take_turns() {
        let (_dir, store) = store();
        let (mine, theirs) = (Locks::default(), Locks::default());
        let id = "c1".parse().unwrap();
        let held = mine.lock(&store, &id);
        assert!(theirs.try_lock(&store, &id).is_none());
        assert!(
            theirs.try_lock(&store, &id).is_none(),
            "trying left it as it was"
        );
        drop(held);
        drop(theirs.lock(&store, &id));
        assert!(mine.try_lock(&store, &id).is_some());
    }
}
