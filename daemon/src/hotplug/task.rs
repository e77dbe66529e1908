//! Follows the annotations of running pods: hears of changes, and looks once at all pods when this daemon begins to serve.

use std::{sync::Arc, time::Instant};

use cni::CniError;
use plan::{PodView, network_status};
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinSet};
use tracing::{info, info_span, warn};

use super::queue::Queue;
use crate::{
    cluster::{Cluster, PodKey},
    engine::{AddError, Followed},
    errors::brief,
    readiness::Part,
    reconcile::node::Upkeep,
    serving::service::{Service, tell_of_attached},
};

/// What was asked for where no verb was.
const HOT_PLUG: &str = "hot plug";

/// What a look needs.
pub struct Follower {
    /// Runs the verbs.
    pub service: Arc<Service>,
    /// Knows where the runtime looks for plugins.
    pub upkeep: Arc<Upkeep>,
}

/// Follows for ever. Another daemon of this node that serves pods follows them, too, so it begins with this one's turn.
pub async fn run(follower: Follower, mut changed: UnboundedReceiver<PodKey>) {
    let follower = Arc::new(follower);
    let parts = [Part::Discovery, Part::Journal, Part::Watches, Part::Socket];
    follower.service.readiness.wait_for(&parts).await;
    let mut queue = Queue::default();
    // What was changed while nobody was here to see it.
    let cluster = follower.service.cluster.get();
    for pod in cluster.map(Cluster::pods_known).unwrap_or_default() {
        queue.put((pod.namespace.clone(), pod.name.clone()), Instant::now());
    }
    let mut looks: JoinSet<(PodKey, bool)> = JoinSet::new();
    loop {
        for pod in queue.take(Instant::now()) {
            let follower = Arc::clone(&follower);
            looks.spawn(async move {
                let is_well = look(follower, pod.clone()).await;
                (pod, is_well)
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
            Some(Ok((pod, is_well))) = looks.join_next() => queue.done(&pod, is_well, Instant::now()),
            () = pause => {}
        }
    }
}

/// One look at a pod: whether all is as it should be.
async fn look(follower: Arc<Follower>, (namespace, name): PodKey) -> bool {
    let runtime = tokio::runtime::Handle::current();
    let looked = tokio::task::spawn_blocking(move || {
        let _busy = follower.service.busy();
        let _span = info_span!("follow", pod = format!("{namespace}/{name}")).entered();
        let path = || {
            let report = runtime.block_on(follower.upkeep.report());
            report.dirs.map(|dirs| dirs.bin_dirs).unwrap_or_default()
        };
        let Some(cluster) = follower.service.cluster.get() else {
            return false;
        };
        match cluster.pod_known(&namespace, &name) {
            Some(pod) => follow(&follower.service, cluster, &pod, &path),
            None => true,
        }
    });
    looked.await.unwrap_or_else(|error| {
        warn!(%error, "a look at a pod ended early");
        false
    })
}

fn follow(
    service: &Service,
    cluster: &Cluster,
    pod: &PodView,
    path: &dyn Fn() -> Vec<std::path::PathBuf>,
) -> bool {
    let engine = &service.engine;
    let netconf = service.standing_netconf();
    let containers =
        netconf.and_then(|netconf| Ok((engine.containers_of(&netconf, pod)?, netconf)));
    let (containers, netconf) = match containers {
        Ok(found) => found,
        Err(error) => {
            warn!(%error, "cannot look at a running pod");
            return false;
        }
    };
    let (mut is_well, is_here) = (true, !containers.is_empty());
    for id in containers {
        match engine.follow(&id, &netconf, pod, path) {
            Err(failure) => {
                is_well = false;
                tell_of_failure(service, cluster, pod, failure);
            }
            Ok(followed) => {
                let status = followed.now.as_deref().and_then(network_status::build);
                is_well &= tell(service, cluster, pod, followed);
                if let Some(status) = status {
                    let written = cluster.write_status(pod, &status);
                    let told = written.and_then(|()| engine.told(&id, &netconf));
                    is_well &= told
                        .inspect_err(|error| warn!(%error, "the status of a running pod"))
                        .is_ok();
                }
            }
        }
    }
    // An ADD that failed is no business of this look.
    if is_well && is_here {
        let name = format!("{}/{}", pod.namespace, pod.name);
        service.failures.forget(&name);
    }
    is_well
}

/// What the pod's owner gets to know; whether there is nothing left to do.
fn tell(service: &Service, cluster: &Cluster, pod: &PodView, followed: Followed) -> bool {
    tell_of_attached(cluster, pod, &followed.attached);
    for attached in &followed.attached {
        info!(network = attached.name, ifname = attached.ifname, "plugged");
    }
    for (name, ifname) in &followed.detached {
        info!(network = name, ifname, "unplugged");
        let message = format!("Remove {ifname} from {name}");
        cluster.event(pod, false, "RemovedInterface", message);
    }
    for error in &followed.stuck {
        warn_of(service, cluster, pod, "FailedDelNetwork", &error.msg, error);
    }
    let is_well = followed.stuck.is_empty() && followed.failure.is_none();
    if let Some(failure) = followed.failure {
        tell_of_failure(service, cluster, pod, failure);
    }
    is_well
}

fn tell_of_failure(
    service: &Service,
    cluster: &Cluster,
    pod: &PodView,
    AddError { error, event }: AddError,
) {
    let failed = || ("FailedAddNetwork", error.msg.clone());
    let (reason, message) = event.unwrap_or_else(failed);
    warn_of(service, cluster, pod, reason, &message, &error);
}

/// In whole to the log, in short to the pod, under one id.
fn warn_of(
    service: &Service,
    cluster: &Cluster,
    pod: &PodView,
    reason: &'static str,
    message: &str,
    error: &CniError,
) {
    let name = format!("{}/{}", pod.namespace, pod.name);
    let id = brief::id(&name, error, &[]);
    service.failures.note(&id, &name, HOT_PLUG, error);
    let details = &error.details;
    warn!(id, reason, details, %error, "the networks of a running pod; it is tried again");
    cluster.event(pod, true, reason, brief::event(message, &id, &name));
}
