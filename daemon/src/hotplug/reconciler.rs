//! Reconciles running pods with their annotations: all pods once when this daemon begins to serve, then each pod that changes.

use std::{sync::Arc, time::Instant};

use plan::PodView;
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinSet};
use tracing::{info, info_span, warn};

use crate::{
    cluster::{Cluster, PodKey},
    engine::{Failure, Reconciled},
    errors::render,
    pod_queue::Queue,
    readiness::Gate,
    reconcile::node::NodeReconciler,
    serving::{
        self,
        service::{Service, report_attached},
    },
    state::PodRef,
};

/// Stands for the verb in failures of a reconciliation.
const HOT_PLUG: &str = "hot plug";

/// The parts of the daemon that reconciliation needs.
pub struct PodReconciler {
    /// Runs the verbs.
    pub service: Arc<Service>,
    /// Knows the runtime's plugin directories.
    pub reconciler: Arc<NodeReconciler>,
}

/// Reconciles pods for ever. It starts once this daemon has the socket, since until then another daemon of the node serves pods and
/// reconciles them.
pub async fn run(pod_reconciler: PodReconciler, mut changed: UnboundedReceiver<PodKey>) {
    let pod_reconciler = Arc::new(pod_reconciler);
    let parts = [Gate::Discovery, Gate::Journal, Gate::Watches, Gate::Socket];
    pod_reconciler.service.readiness.wait_open(&parts).await;
    let mut queue = Queue::default();
    // Pods may have changed while no daemon ran.
    let cluster = pod_reconciler.service.cluster.get();
    for pod in cluster.map(Cluster::watched_pods).unwrap_or_default() {
        queue.put((pod.namespace.clone(), pod.name.clone()), Instant::now());
    }
    let mut tasks: JoinSet<(PodKey, bool)> = JoinSet::new();
    loop {
        for pod in queue.take(Instant::now()) {
            let pod_reconciler = Arc::clone(&pod_reconciler);
            tasks.spawn(async move {
                let entry = serving::hot_plug_entry(&pod.0);
                let succeeded = match pod_reconciler.service.queue.turn(entry).await {
                    Ok(_turn) => reconcile(pod_reconciler, pod.clone()).await,
                    Err(error) => {
                        warn!(%error, "cannot reconcile a running pod yet; it is retried");
                        false
                    }
                };
                (pod, succeeded)
            });
        }
        let pause = async {
            match queue.next() {
                Some(next) => tokio::time::sleep_until(next.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(pod) = changed.recv() => queue.put(pod, Instant::now()),
            Some(Ok((pod, succeeded))) = tasks.join_next() => queue.done(&pod, succeeded, Instant::now()),
            () = pause => {}
        }
    }
}

/// Reconciles a pod on a blocking thread. Returns whether nothing is left to do.
async fn reconcile(pod_reconciler: Arc<PodReconciler>, (namespace, name): PodKey) -> bool {
    let runtime = tokio::runtime::Handle::current();
    let outcome = tokio::task::spawn_blocking(move || {
        let _busy = pod_reconciler.service.busy();
        let _span = info_span!("reconcile", pod = format!("{namespace}/{name}")).entered();
        let path = || {
            let report = runtime.block_on(pod_reconciler.reconciler.report());
            report.dirs.map(|dirs| dirs.bin_dirs).unwrap_or_default()
        };
        let Some(cluster) = pod_reconciler.service.cluster.get() else {
            return false;
        };
        match cluster.watched_pod(&namespace, &name) {
            Some(pod) => reconcile_containers(&pod_reconciler.service, cluster, &pod, &path),
            None => true,
        }
    });
    outcome.await.unwrap_or_else(|error| {
        warn!(%error, "the reconciliation of a running pod ended early");
        false
    })
}

fn reconcile_containers(
    service: &Service,
    cluster: &Cluster,
    pod: &PodView,
    path: &dyn Fn() -> Vec<std::path::PathBuf>,
) -> bool {
    let engine = &service.engine;
    let netconf = service.effective_netconf();
    let containers =
        netconf.and_then(|netconf| Ok((engine.containers_of(&netconf, pod)?, netconf)));
    let (containers, netconf) = match containers {
        Ok(found) => found,
        Err(error) => {
            warn!(%error, "cannot find the containers of a running pod");
            return false;
        }
    };
    let (mut succeeded, is_here) = (true, !containers.is_empty());
    for id in containers {
        match engine.reconcile(&id, &netconf, pod, path) {
            Err(failure) => {
                succeeded = false;
                report_failure(service, cluster, pod, "FailedAddNetwork", &failure);
            }
            Ok(reconciled) => {
                service.statuses.wake();
                succeeded &= report(service, cluster, pod, &reconciled);
            }
        }
    }
    // The failure of a pod without containers here is that of its ADD, which stays.
    if succeeded && is_here {
        let name = format!("{}/{}", pod.namespace, pod.name);
        service.failures.forget(&name);
    }
    succeeded
}

/// Reports the outcome in the log and in events. Returns whether nothing is left to do.
fn report(service: &Service, cluster: &Cluster, pod: &PodView, reconciled: &Reconciled) -> bool {
    report_attached(cluster, pod, &reconciled.attached);
    for attached in &reconciled.attached {
        info!(
            network = attached.name,
            ifname = attached.ifname,
            "attached a network to a running pod"
        );
    }
    for (name, ifname) in &reconciled.detached {
        info!(
            network = name,
            ifname, "detached a network from a running pod"
        );
        let message = format!("Remove {ifname} from {name}");
        cluster.event(pod, false, "RemovedInterface", message);
    }
    for failure in &reconciled.detach_errors {
        report_failure(service, cluster, pod, "FailedDelNetwork", failure);
    }
    if let Some(failure) = &reconciled.failure {
        report_failure(service, cluster, pod, "FailedAddNetwork", failure);
    }
    reconciled.detach_errors.is_empty() && reconciled.failure.is_none()
}

/// Writes the complete failure to the log and a short one to an event, under one id.
fn report_failure(
    service: &Service,
    cluster: &Cluster,
    pod: &PodView,
    reason: &'static str,
    failure: &Failure,
) {
    let reason = failure.event.unwrap_or(reason);
    let name = format!("{}/{}", pod.namespace, pod.name);
    let id = render::id(&name, failure, &[]);
    service.failures.note(&id, &name, HOT_PLUG, failure);
    let (cause, details) = (failure.cause, &failure.error.details);
    warn!(id, reason, %cause, details, error = %failure, "cannot reconcile the networks of a running pod; it is retried");
    let message = render::event(failure, &id);
    cluster.failure_event(&PodRef::from(pod), reason, cause, message);
}
