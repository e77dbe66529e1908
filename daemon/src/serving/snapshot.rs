//! Takes the snapshot for `/metrics` and `/status`: counters, and the content of the node's files.

use std::{sync::Arc, time::Duration};

use api::journal;

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
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let own = Arc::clone(service);
    // On a thread of its own: verbs may occupy all threads for blocking work.
    let look = move || {
        // The receiver is dropped after the time limit.
        let _ = sender.send(node(&own));
    };
    let started = std::thread::Builder::new()
        .name("snapshot".to_owned())
        .spawn(look);
    let node = match started {
        Ok(_) => tokio::time::timeout(PATIENCE, receiver).await,
        Err(_) => Ok(Ok(NodeValues::default())),
    };
    Snapshot {
        problem: service.readiness.problem(),
        node: node.map(Result::unwrap_or_default).unwrap_or_default(),
    }
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
