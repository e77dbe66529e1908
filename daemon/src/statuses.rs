//! Network statuses on their way into pods: the newest one of each pod. ADD and hot plug hand a status over while the container is locked, and
//! `serving::status_writer` writes it into the pod after the runtime has its answer, one after the other for each pod, so an older status never
//! replaces a newer one. It stays marked as pending in the container's state until it is written, so that the next daemon sends it again; a DEL
//! cancels it.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use cni::env::ContainerId;
use plan::PodView;
use tokio::sync::Notify;

use crate::{cluster::PodKey, pod_queue::Queue};

/// The status of a pod's networks.
#[derive(Debug, Clone)]
pub struct PodStatus {
    /// The pod, without its annotations.
    pub pod: Arc<PodView>,
    /// The container whose networks it reports.
    pub container: ContainerId,
    /// The directory of the container's state.
    pub cni_dir: PathBuf,
    /// The annotation's value.
    pub text: Arc<str>,
    /// Distinguishes it from every other status of the daemon.
    number: u64,
    failures: u32,
}

impl PodStatus {
    /// Returns the status that `text` reports about the container.
    pub fn new(pod: &PodView, container: ContainerId, cni_dir: PathBuf, text: String) -> Self {
        Self {
            pod: Arc::new(pod.without_annotations()),
            container,
            cni_dir,
            text: text.into(),
            number: 0,
            failures: 0,
        }
    }

    /// Returns the pod's namespace and name in one text.
    pub(crate) fn pod_name(&self) -> String {
        format!("{}/{}", self.pod.namespace, self.pod.name)
    }

    /// Returns whether writing it has failed before.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    fn key(&self) -> PodKey {
        (self.pod.namespace.clone(), self.pod.name.clone())
    }
}

/// All statuses that are not written yet.
#[derive(Debug, Default)]
pub struct Statuses {
    inner: Mutex<Inner>,
    changed: Notify,
    ended: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    queue: Queue,
    newest: HashMap<PodKey, PodStatus>,
    last_number: u64,
}

impl Statuses {
    /// Adds a status, which replaces the pod's former one. It is written after the next [`wake`](Self::wake), so that the caller can answer the
    /// runtime first.
    pub(crate) fn put(&self, status: PodStatus) {
        let mut inner = self.inner();
        inner.last_number += 1;
        let status = PodStatus {
            number: inner.last_number,
            ..status
        };
        inner.queue.put(status.key(), Instant::now());
        inner.newest.insert(status.key(), status);
    }

    /// Forgets the status of a container that is being detached.
    pub(crate) fn cancel(&self, container: &ContainerId) {
        let mut inner = self.inner();
        inner.newest.retain(|_, one| one.container != *container);
    }

    /// Returns whether this is still the pod's newest status, and forgets it then.
    pub(crate) fn finish(&self, status: &PodStatus) -> bool {
        let mut inner = self.inner();
        let is_newest = |newest: &PodStatus| newest.number == status.number;
        let is_newest = inner.newest.get(&status.key()).is_some_and(is_newest);
        if is_newest {
            inner.newest.remove(&status.key());
        }
        is_newest
    }

    /// Lets the writer look for statuses.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Returns whether all statuses are written.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner().newest.is_empty()
    }

    /// Waits for [`wake`](Self::wake).
    pub(crate) async fn woken(&self) {
        self.changed.notified().await;
    }

    /// Waits until an attempt to write a status ends.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Takes the statuses that are due, as many as may be written at once.
    pub(crate) fn take(&self, now: Instant) -> Vec<PodStatus> {
        let mut inner = self.inner();
        let mut taken = Vec::new();
        for pod in inner.queue.take(now) {
            match inner.newest.get(&pod) {
                Some(status) => taken.push(status.clone()),
                None => inner.queue.done(&pod, true, now),
            }
        }
        taken
    }

    /// Returns the time at which the next status is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.inner().queue.next()
    }

    /// Ends an attempt to write a status. A status that was not written becomes due after its backoff.
    pub(crate) fn done(&self, status: &PodStatus, is_written: bool, now: Instant) {
        let mut inner = self.inner();
        inner.queue.done(&status.key(), is_written, now);
        if let Some(newest) = inner.newest.get_mut(&status.key())
            && newest.number == status.number
        {
            newest.failures += 1;
        }
        drop(inner);
        self.ended.notify_one();
    }

    /// Every statement leaves the parts consistent, so a poisoned lock is safe to use.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn status(pod: &str, container: &str, text: &str) -> PodStatus {
        let pod = PodView {
            namespace: "shop".to_owned(),
            name: pod.to_owned(),
            ..PodView::default()
        };
        let container = container.parse().unwrap();
        PodStatus::new(&pod, container, "/state".into(), text.to_owned())
    }

    fn texts(taken: &[PodStatus]) -> Vec<&str> {
        taken.iter().map(|one| &*one.text).collect()
    }

    #[test]
    fn newer_status_waits_for_the_older_one_and_is_written_after_it() {
        let (statuses, now) = (Statuses::default(), Instant::now());
        statuses.put(status("cart", "c1", "old"));
        let now = now + Duration::from_secs(1);
        let old = statuses.take(now);
        assert_eq!(texts(&old), ["old"]);
        statuses.put(status("cart", "c1", "new"));
        assert!(
            statuses.take(now).is_empty(),
            "the old one is being written"
        );
        assert!(!statuses.finish(&old[0]), "the state has to stay pending");
        statuses.done(&old[0], true, now);
        let now = now + Duration::from_secs(1);
        let new = statuses.take(now);
        assert_eq!(texts(&new), ["new"]);
        assert!(statuses.finish(&new[0]));
        statuses.done(&new[0], true, now);
        assert!(statuses.is_empty() && statuses.next().is_none());
    }

    #[test]
    fn status_that_was_not_written_is_due_again() {
        let (statuses, now) = (Statuses::default(), Instant::now());
        statuses.put(status("cart", "c1", "text"));
        let now = now + Duration::from_secs(1);
        let taken = statuses.take(now);
        assert!(!taken[0].has_failed());
        statuses.done(&taken[0], false, now);
        assert!(statuses.take(now).is_empty());
        let taken = statuses.take(statuses.next().unwrap());
        assert_eq!(texts(&taken), ["text"]);
        assert!(taken[0].has_failed());
    }

    #[test]
    fn canceled_status_is_not_written_but_that_of_the_pods_next_container_is() {
        let (statuses, now) = (Statuses::default(), Instant::now());
        statuses.put(status("cart", "c1", "first"));
        statuses.cancel(&"c1".parse().unwrap());
        let now = now + Duration::from_secs(1);
        assert!(statuses.take(now).is_empty());
        statuses.put(status("cart", "c2", "second"));
        statuses.cancel(&"c1".parse().unwrap());
        let now = now + Duration::from_secs(1);
        assert_eq!(texts(&statuses.take(now)), ["second"]);
    }
}
