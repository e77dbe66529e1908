//! Takes the snapshot that `/metrics` and `/status` report: what is counted, and what the node's files hold.

use std::{sync::Arc, time::Duration};

use api::journal;

use super::service::Service;
use crate::{
    config_manager,
    metrics::{OnNode, Process, Snapshot},
    state::Store,
};

/// The longest time that reading the node's files may take; a snapshot does not wait for a disk that hangs.
const PATIENCE: Duration = Duration::from_secs(1);

/// Looks at the daemon and its node, for a bounded time.
pub(super) async fn take(service: &Arc<Service>) -> Snapshot {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let own = Arc::clone(service);
    // Not on the runtime's threads for blocking work: verbs may hold all of them.
    let look = move || {
        // Nobody listens any more when it took too long.
        let _ = sender.send(on_node(&own));
    };
    let started = std::thread::Builder::new()
        .name("snapshot".to_owned())
        .spawn(look);
    let on_node = match started {
        Ok(_) => tokio::time::timeout(PATIENCE, receiver).await,
        Err(_) => Ok(Ok(OnNode::default())),
    };
    Snapshot {
        problem: service.readiness.problem(),
        on_node: on_node.map(Result::unwrap_or_default).unwrap_or_default(),
    }
}

fn on_node(service: &Service) -> OnNode {
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
    OnNode {
        containers,
        journal: entries,
        process: Process::own(),
    }
}
