//! Doing the journal's entries: through the queue as any DEL, a few at a time, for as long as the daemon lives.

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
    host::dir_watch::heard,
    journal::{About, Loaded, PATIENCE, Verdict, load, read, watch},
    readiness::{Part, Readiness},
    serving::service::{EntryFailure, Service},
};

/// So many entries at once; the queue has places for others beside them.
const AT_ONCE: usize = 4;
/// How often the journal is read again when nothing was reported of it.
const PERIOD: Duration = Duration::from_mins(1);
/// Pause before a journal that cannot be read is read again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Reads the journals in the directories that `cni_dirs` names and does what they hold. The part is well once they were read.
pub(crate) async fn replay(
    root: Arc<Root>,
    cni_dirs: impl Fn() -> Vec<PathBuf>,
    service: Arc<Service>,
) {
    let mut running: JoinSet<()> = JoinSet::new();
    loop {
        let dirs = cni_dirs();
        // Watched before it is read, so that no entry falls between the two.
        let watch = watch(&root, &dirs);
        let (tree, journal) = (Arc::clone(&root), Arc::clone(&service.journal));
        let reading = tokio::task::spawn_blocking(move || read(&tree, &dirs, &journal));
        let read_again = match reading.await {
            Ok(Ok(())) => {
                service.readiness.well(Part::Journal);
                PERIOD
            }
            Ok(Err(error)) => unread(&service.readiness, &error.to_string()),
            Err(error) => unread(&service.readiness, &error.to_string()),
        };
        let read_again = tokio::time::sleep(read_again);
        let changed = async {
            tokio::select! {
                () = heard(watch) => {}
                () = read_again => {}
            }
        };
        let mut changed = std::pin::pin!(changed);
        loop {
            let urgent = service.journal.changed.notified();
            while running.len() < AT_ONCE
                && let Some((path, about)) = service.journal.pending().take(Instant::now())
            {
                let (root, service) = (Arc::clone(&root), Arc::clone(&service));
                running.spawn(async move { one(root, service, path, about).await });
            }
            let next = service.journal.pending().next();
            let due = async {
                match next {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = &mut changed => break,
                Some(_) = running.join_next() => {}
                () = due, if running.len() < AT_ONCE => {}
                () = urgent => {}
            }
        }
    }
}

/// The journal cannot be read; when to try again.
fn unread(readiness: &Readiness, reason: &str) -> Duration {
    readiness.missing(Part::Journal, reason);
    TRY_AGAIN
}

/// Tries one entry.
async fn one(root: Arc<Root>, service: Arc<Service>, path: PathBuf, about: About) {
    let done = attempt(root, &service, &path, &about).await;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match done {
        Ok(()) => {
            info!(entry = %name, "replayed a DEL from the journal");
            service.journal.pending().done(&path);
        }
        Err(reason) => {
            let now = Instant::now();
            let verdict = service.journal.pending().failed(&path, now, chance());
            match verdict {
                // The service has logged the failure itself.
                Verdict::First | Verdict::Again => debug!(
                    entry = %name,
                    reason, "a DEL from the journal failed, it will be retried"
                ),
                Verdict::GivenUp => warn!(
                    entry = %name,
                    reason,
                    minutes = PATIENCE.as_secs() / 60,
                    "a DEL from the journal failed for too long, the next start tries it again"
                ),
            }
            let failure = match verdict {
                Verdict::First => Some(EntryFailure::First),
                Verdict::GivenUp => Some(EntryFailure::Last),
                Verdict::Again => None,
            };
            if let (Some(pod), Some(failure)) = (&about.pod, failure) {
                service.tell_of_entry(pod, failure, &reason);
            }
        }
    }
    service.journal.changed.notify_waiters();
}

async fn attempt(
    root: Arc<Root>,
    service: &Arc<Service>,
    path: &Path,
    about: &About,
) -> Result<(), String> {
    let turn = service.queue.turn(about.entry()).await;
    let turn = turn.map_err(logged)?;
    let (service, path) = (Arc::clone(service), path.to_owned());
    let attempt = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        match load(&root, &path).map_err(logged)? {
            Loaded::Gone => return Ok(()),
            Loaded::Request(request) => service
                .replay(&request)
                .map_err(|error| error.to_string())?,
        }
        root.remove(&path).map(drop).map_err(logged)
    });
    attempt.await.unwrap_or_else(|error| Err(logged(error)))
}

/// The text of an error that the service has not logged.
fn logged(error: impl Display) -> String {
    warn!(%error, "cannot replay a DEL of the journal");
    error.to_string()
}

/// A number from 0 to 1 that differs from call to call and from node to node.
fn chance() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(random >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}
