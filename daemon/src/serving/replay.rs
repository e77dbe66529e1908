//! Replays the journal's entries for as long as the daemon runs: through the request queue like any DEL, a few at a time.

use std::{
    fmt::Display,
    hash::{BuildHasher, Hasher, RandomState},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use node::root::Root;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::{
    host::dir_watch::changed_or_never,
    journal::{Loaded, Subject, load, read, watch},
    readiness::{Gate, Readiness},
    serving::service::Service,
};

/// The period after which the journal is read again when the watch reported no change.
const PERIOD: Duration = Duration::from_mins(1);
/// The pause before a journal that cannot be read is read again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Reads the journals in the state directories that `cni_dirs` returns and replays their entries. `Gate::Journal` opens once they were
/// read.
pub(crate) async fn replay(
    root: Arc<Root>,
    cni_dirs: impl Fn() -> Vec<PathBuf>,
    service: Arc<Service>,
) {
    let mut running: JoinSet<()> = JoinSet::new();
    loop {
        let dirs = cni_dirs();
        // The watch begins before the journal is read, so that no entry is missed between the two.
        let watch = watch(&root, &dirs);
        let (tree, journal) = (Arc::clone(&root), Arc::clone(&service.journal));
        let reading = tokio::task::spawn_blocking(move || read(&tree, &dirs, &journal));
        let read_again = match reading.await {
            Ok(Ok(())) => {
                service.readiness.open(Gate::Journal);
                PERIOD
            }
            Ok(Err(error)) => read_failed(&service.readiness, &error.to_string()),
            Err(error) => read_failed(&service.readiness, &error.to_string()),
        };
        let read_again = tokio::time::sleep(read_again);
        let changed = async {
            tokio::select! {
                () = changed_or_never(watch) => {}
                () = read_again => {}
            }
        };
        let mut changed = std::pin::pin!(changed);
        loop {
            let urgent = service.journal.changed.notified();
            while let Some((path, subject)) = service.journal.pending().take(Instant::now()) {
                let (root, service) = (Arc::clone(&root), Arc::clone(&service));
                running.spawn(async move { replay_entry(root, service, path, subject).await });
            }
            let next = service.journal.pending().next(Instant::now());
            let due = async {
                match next {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = &mut changed => break,
                Some(_) = running.join_next() => {}
                () = due => {}
                () = urgent => {}
            }
        }
    }
}

/// Reports that the journal cannot be read, and returns the pause before the next attempt.
fn read_failed(readiness: &Readiness, reason: &str) -> Duration {
    readiness.close(Gate::Journal, reason);
    RETRY_PAUSE
}

async fn replay_entry(root: Arc<Root>, service: Arc<Service>, path: PathBuf, subject: Subject) {
    let done = attempt(root, &service, &path, &subject).await;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match done {
        Ok(()) => {
            info!(entry = %name, "replayed a DEL from the journal");
            service.journal.pending().done(&path);
        }
        Err(reason) => {
            let now = Instant::now();
            let is_first = service.journal.pending().failed(&path, now, jitter());
            // The service has logged the failure itself.
            debug!(entry = %name, reason, "a DEL from the journal failed; it will be retried");
            if let (Some(pod), true) = (&subject.pod, is_first) {
                service.report_entry(pod, &reason);
            }
        }
    }
    service.journal.changed.notify_waiters();
}

async fn attempt(
    root: Arc<Root>,
    service: &Arc<Service>,
    path: &Path,
    subject: &Subject,
) -> Result<(), String> {
    let turn = service.queue.turn(subject.entry()).await;
    let turn = turn.map_err(log)?;
    let (service, path) = (Arc::clone(service), path.to_owned());
    let attempt = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        match load(&root, &path).map_err(log)? {
            Loaded::Removed => return Ok(()),
            Loaded::Request(request) => service
                .replay(&request)
                .map_err(|error| error.to_string())?,
        }
        root.remove(&path).map(drop).map_err(log)
    });
    attempt.await.unwrap_or_else(|error| Err(log(error)))
}

/// Logs an error that the service has not logged, and returns its text.
fn log(error: impl Display) -> String {
    warn!(%error, "cannot replay a DEL from the journal");
    error.to_string()
}

/// Returns a number from 0 to 1 that differs from call to call and from node to node.
fn jitter() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(random >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}
