//! The task that writes statuses, and the search for those that an earlier daemon did not write.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cmdline::error_line;
use cni::types::CniError;
use tokio::{
    sync::Semaphore,
    task::{self, JoinSet},
};
use tracing::{debug, info_span, warn};

use crate::{
    backoff::doubled,
    cluster::Cluster,
    engine::Failure,
    errors::render,
    readiness::Gate,
    serving::service::Service,
    state::PodRef,
    statuses::{PodStatus, Statuses},
};

/// The pauses before the state of all containers is searched for pending statuses again. The first one is longer than a daemon that was
/// replaced takes to end.
const SEARCH_AGAIN: [Duration; 2] = [Duration::from_mins(1), Duration::from_mins(10)];
/// The pause after a search that met a locked container, which doubles while such searches follow each other.
const SEARCH_LOCKED_AGAIN: Duration = Duration::from_millis(200);
/// The statuses that are written at once.
const CONCURRENCY: usize = 8;
/// Stands for the verb in failures of a status.
const STATUS: &str = "network status";

/// Writes statuses for ever.
pub async fn write(service: Arc<Service>) {
    let statuses = Arc::clone(&service.statuses);
    let mut tasks = JoinSet::new();
    let slots = Arc::new(Semaphore::new(CONCURRENCY));
    service.readiness.wait_open(&[Gate::Watches]).await;
    loop {
        if let Some(cluster) = service.cluster.get() {
            for status in statuses.take(Instant::now()) {
                let (service, cluster) = (Arc::clone(&service), cluster.clone());
                let slots = Arc::clone(&slots);
                tasks.spawn(async move {
                    // Nothing closes the semaphore.
                    let _slot = slots.acquire().await;
                    write_one(&service, &cluster, status).await;
                });
            }
        }
        let due = async {
            match statuses.next() {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = statuses.woken() => {}
            Some(_) = tasks.join_next() => {}
            () = due => {}
        }
    }
}

/// Returns when there is no status left to write.
pub async fn all_written(statuses: &Statuses) {
    while !statuses.is_empty() {
        statuses.ended().await;
    }
}

async fn write_one(service: &Arc<Service>, cluster: &Cluster, status: PodStatus) {
    if status.has_failed() && !is_pending(service, &status).await {
        service.statuses.finish(&status);
        service.statuses.done(&status, true, Instant::now());
        return;
    }
    let written = cluster.write_status(&status.pod, &status.text).await;
    let is_written = written.is_ok();
    match written {
        Ok(()) => {
            if status.has_failed() {
                service.failures.forget(&status.pod_name());
            }
            let (service, status) = (Arc::clone(service), status.clone());
            let recorded =
                task::spawn_blocking(move || service.engine.status_written(&status)).await;
            if let Ok(Err(error)) = recorded {
                warn!(%error, "cannot record that a network status was written; it is written again later");
            }
        }
        Err(error) => report(service, cluster, &status, &error_line(&error)),
    }
    service.statuses.done(&status, is_written, Instant::now());
}

/// Returns whether the container still waits for this status. Another daemon of the node may have detached it meanwhile.
async fn is_pending(service: &Arc<Service>, status: &PodStatus) -> bool {
    let (service, status) = (Arc::clone(service), status.clone());
    let is_pending = task::spawn_blocking(move || service.engine.is_status_pending(&status));
    is_pending.await.unwrap_or(true)
}

/// Reports a failure: the first one in a warning and an event, each one to `kubectl multus`.
fn report(service: &Service, cluster: &Cluster, status: &PodStatus, reason: &str) {
    let pod = status.pod_name();
    let _span = info_span!("status", pod, container_id = %status.container).entered();
    let text = format!("cannot write the network status of pod {pod}: {reason}");
    let failure = Failure {
        hint: "it is retried".to_owned(),
        ..CniError::new(CniError::TRY_AGAIN_LATER, text).into()
    };
    let id = render::id(&pod, &failure, &[]);
    service.failures.note(&id, &pod, STATUS, &failure);
    if status.has_failed() {
        debug!(id, reason, "cannot write a network status; it is retried");
    } else {
        warn!(id, reason, "cannot write a network status; it is retried");
        let message = render::event(&failure, &id);
        let about = PodRef::from(&*status.pod);
        cluster.failure_event(&about, "FailedNetworkStatus", failure.cause, message);
    }
}

/// Sends the statuses that are pending in the state of running containers: at the start of this daemon, and now and then for what a daemon
/// left that ended after it.
pub async fn resend(service: Arc<Service>) {
    let gates = [Gate::Discovery, Gate::Journal, Gate::Watches, Gate::Socket];
    service.readiness.wait_open(&gates).await;
    let mut searches = Searches::default();
    loop {
        let searching = Arc::clone(&service);
        let outcome = task::spawn_blocking(move || search(&searching)).await;
        let met_locked = outcome.unwrap_or_else(|error| {
            warn!(%error, "the search for pending network statuses ended early");
            false
        });
        service.statuses.wake();
        tokio::time::sleep(searches.pause(met_locked)).await;
    }
}

/// The searches so far.
#[derive(Default)]
struct Searches {
    /// Those that met no locked container.
    complete: usize,
    /// Those since then that met one.
    locked: u32,
}

impl Searches {
    /// Returns the pause after a search. The verb that works on a locked container, perhaps a CHECK, need not hand over its status.
    fn pause(&mut self, met_locked: bool) -> Duration {
        let last = SEARCH_AGAIN.len() - 1;
        let pause = SEARCH_AGAIN[self.complete.min(last)];
        if met_locked {
            self.locked += 1;
            return doubled(self.locked, SEARCH_LOCKED_AGAIN, pause);
        }
        self.locked = 0;
        self.complete += 1;
        pause
    }
}

/// Returns whether a container with a pending status was locked.
fn search(service: &Service) -> bool {
    let Some(cluster) = service.cluster.get() else {
        return false;
    };
    let mut met_locked = false;
    let mut search = || -> Result<(), CniError> {
        let netconf = service.effective_netconf()?;
        for (id, owner) in service.engine.pending_statuses(&netconf)? {
            if let Some(pod) = cluster.watched_pod(&owner.namespace, &owner.name) {
                met_locked |= !service.engine.resend_status(&id, &netconf, &pod)?;
            }
        }
        Ok(())
    };
    if let Err(error) = search() {
        warn!(%error, "cannot search for pending network statuses");
    }
    met_locked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_containers_are_searched_soon_and_the_others_seldom() {
        let mut searches = Searches::default();
        let pauses = [true, true, false, false, true, false].map(|it| searches.pause(it));
        let millis = pauses.map(|pause| pause.as_millis());
        assert_eq!(millis, [200, 400, 60_000, 600_000, 200, 600_000]);
        let mut searches = Searches::default();
        let last = (0..30).map(|_| searches.pause(true)).last();
        assert_eq!(last, Some(SEARCH_AGAIN[0]));
    }
}
