//! Takes the snapshot for `/metrics` and `/status`: counters, and the content of the node's files.

use std::{sync::Arc, time::Duration};

use api::journal;
use tokio::sync::Semaphore;

use super::service::Service;
use crate::{
    config_manager,
    metrics::{NodeValues, Process, Snapshot},
    state::Store,
};

/// Limit for reading the node's files; a snapshot does not wait for a hanging disk.
const PATIENCE: Duration = Duration::from_secs(1);

/// Takes a snapshot of the daemon and its node, in a limited time.
pub(super) async fn take(service: &Arc<Service>) -> Snapshot {
    let own = Arc::clone(service);
    let node = within(PATIENCE, &service.snapshots, move || node(&own)).await;
    Snapshot {
        problem: service.readiness.problem(),
        node: node.unwrap_or_default(),
    }
}

/// Runs one of these functions at a time, each on a thread of its own: verbs may occupy all threads for blocking work. Returns `None` after
/// the time limit; while the disk hangs no further thread is started.
pub(super) async fn within<T: Send + 'static>(
    time_limit: Duration,
    turns: &Arc<Semaphore>,
    look: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let look = async {
        // Nothing closes the semaphore.
        let turn = Arc::clone(turns).acquire_owned().await.ok()?;
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let look = move || {
            let _turn = turn;
            // The receiver is dropped after the time limit.
            let _ = sender.send(look());
        };
        std::thread::Builder::new()
            .name("snapshot".to_owned())
            .spawn(look)
            .ok()?;
        receiver.await.ok()
    };
    tokio::time::timeout(time_limit, look).await.ok().flatten()
}

fn node(service: &Service) -> NodeValues {
    let root = service.engine.shared_root();
    let (mut containers, mut entries) = (Some(0), Some(0));
    for dir in config_manager::state_dirs(&root, &service.config) {
        let known = Store::new(Arc::clone(&root), &dir).known();
        let known = known.ok().map(|ids| ids.len());
        containers = containers.zip(known).map(|(sum, count)| sum + count);
        let pending = match root.list(journal::dir(&dir)) {
            Ok(names) => Some(names.iter().filter(|name| journal::is_entry(name)).count()),
            Err(error) if error.is_not_found() => Some(0),
            Err(_) => None,
        };
        entries = entries.zip(pending).map(|(sum, count)| sum + count);
    }
    NodeValues {
        containers,
        journal: entries,
        process: Process::own(service.exec.plugin_cpu()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn no_further_thread_starts_while_one_hangs() {
        let turns = Arc::new(Semaphore::new(1));
        let (release, hangs) = mpsc::channel::<()>();
        let short = Duration::from_millis(20);
        let hanging = within(short, &turns, move || hangs.recv()).await;
        assert!(hanging.is_none());
        assert_eq!(within(short, &turns, || 7).await, None);
        drop(release);
        let long = Duration::from_mins(1);
        assert_eq!(within(long, &turns, || 7).await, Some(7));
    }
}
