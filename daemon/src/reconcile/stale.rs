//! Detaches stale containers at the daemon's start: those whose DEL was lost in a power cut, or with a runtime that forgot them.
//!
//! A container is stale when its network namespace was deleted and the runtime does not list it. A container that the runtime lists
//! gets the runtime's own DEL, and one with a namespace may be about to be listed.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use cni::env::ContainerId;
use node::{cri::Client, discover::Report};
use tracing::{info, warn};

use crate::{
    backoff::backoff,
    cluster::retry::random,
    engine::{HandOff, NetnsState},
    host::exec::open_netns,
    readiness::Gate,
    reconcile::node::NodeReconciler,
    serving::service::Service,
};

/// The pause before a runtime that did not answer is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// The pause before containers that could not be detached are tried again, doubled with each failure. A network that can never be detached is
/// abandoned at some time, as after any DEL.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(2);

/// Detaches the stale containers until none is left. It waits for the first pass over the journal, so that DELs that came earlier run first.
pub async fn detach_at_start(reconciler: Arc<NodeReconciler>, service: Arc<Service>) {
    reconciler
        .readiness
        .wait_open(&[Gate::Discovery, Gate::Journal, Gate::Socket])
        .await;
    service.journal.wait_for_first_pass().await;
    let mut failures = 0;
    loop {
        let report = reconciler.report().await;
        match listed_containers(&reconciler, &report).await {
            Ok(listed) => {
                let (reconciler, service) = (Arc::clone(&reconciler), Arc::clone(&service));
                let detached = tokio::task::spawn_blocking(move || {
                    detach(&reconciler, &service, &report, &listed)
                });
                match detached.await {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(error) => warn!(%error, "the search for stale containers ended early"),
                }
                failures += 1;
                tokio::time::sleep(backoff(failures, FIRST_PAUSE, LONGEST_PAUSE, random())).await;
            }
            Err(reason) => {
                warn!(
                    reason,
                    "cannot search for stale containers: the runtime does not list its containers"
                );
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// Returns the containers that the runtime lists; none where the daemon serves without a runtime.
async fn listed_containers(
    reconciler: &NodeReconciler,
    report: &Report,
) -> Result<BTreeSet<String>, String> {
    let Some(runtime) = &report.runtime else {
        return match &report.problem {
            None if reconciler.pod_uid.is_none() => Ok(BTreeSet::new()),
            problem => Err(problem
                .clone()
                .unwrap_or_else(|| "no runtime was found".to_owned())),
        };
    };
    let client = Client::connect(&reconciler.root, &runtime.socket).await;
    let mut client = client.map_err(|error| error.to_string())?;
    client.sandboxes().await.map_err(|error| error.to_string())
}

/// Returns whether nothing is left to do.
fn detach(
    reconciler: &NodeReconciler,
    service: &Service,
    report: &Report,
    listed: &BTreeSet<String>,
) -> bool {
    let netconf = match service.effective_netconf() {
        Ok(netconf) => netconf,
        Err(error) => {
            warn!(%error, "cannot search for stale containers: the configuration is invalid");
            return true;
        }
    };
    service.engine.revert_hand_off(&netconf);
    let is_stale =
        |id: &ContainerId, netns: NetnsState<'_>| self::is_stale(reconciler, listed, id, netns);
    let failures = service
        .engine
        .detach_stale(plugin_dirs(report), &netconf, &is_stale);
    for error in &failures {
        warn!(%error, "cannot detach a stale container; it is tried again");
    }
    info!("searched for stale containers");
    failures.is_empty()
}

/// Prepares the node for the time after an uninstall: detaches the stale containers and hands the others off to the runtime.
pub async fn hand_off(
    reconciler: Arc<NodeReconciler>,
    service: Arc<Service>,
) -> Result<HandOff, String> {
    let report = reconciler.enter_runtime().await?;
    let listed = listed_containers(&reconciler, &report).await?;
    let netconf = service.effective_netconf();
    let netconf = netconf.map_err(|error| error.to_string())?;
    let work = tokio::task::spawn_blocking(move || {
        let is_stale = |id: &ContainerId, netns: NetnsState<'_>| {
            self::is_stale(&reconciler, &listed, id, netns)
        };
        let engine = &service.engine;
        engine.hand_off(plugin_dirs(&report), &netconf, &is_stale)
    });
    work.await.map_err(|error| error.to_string())
}

fn plugin_dirs(report: &Report) -> &[PathBuf] {
    report.dirs.as_ref().map_or(&[][..], |dirs| &dirs.bin_dirs)
}

fn is_stale(
    reconciler: &NodeReconciler,
    listed: &BTreeSet<String>,
    id: &ContainerId,
    netns: NetnsState<'_>,
) -> bool {
    let exec_context = reconciler.exec.context();
    let exists = |netns: &str| match open_netns(&reconciler.root, &exec_context, netns) {
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    };
    let is_deleted = match netns {
        NetnsState::Unknown => false,
        NetnsState::Lost => true,
        NetnsState::At(netns) => !exists(netns),
    };
    is_deleted && !listed.contains(id.as_str())
}
