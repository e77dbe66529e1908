//! What a start finds of pods that are gone: their DEL was lost with a power failure, or with a runtime that forgot them.
//!
//! A container is gone when its network namespace is, and the runtime does not know it. What the runtime knows is left to the runtime,
//! which sends its own DEL; what has a namespace may be about to become known.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use cni::env::ContainerId;
use node::{cri::Client, discover::Report};
use tracing::{info, warn};

use crate::{
    engine::{HandedOver, Namespace},
    host::exec::open_netns,
    readiness::Part,
    reconcile::node::Upkeep,
    serving::service::Service,
};

/// Pause before a runtime that did not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Detaches, once, the containers that are gone; earlier deletions come first.
pub async fn remove(upkeep: Arc<Upkeep>, service: Arc<Service>) {
    upkeep
        .readiness
        .wait_for(&[Part::Discovery, Part::Journal, Part::Socket])
        .await;
    service.journal.wait_for_first_pass().await;
    loop {
        let report = upkeep.report().await;
        match known(&upkeep, &report).await {
            Ok(known) => {
                let swept = tokio::task::spawn_blocking(move || {
                    sweep(&upkeep, &service, &report, &known);
                });
                if let Err(error) = swept.await {
                    warn!(%error, "looking for leftovers of pods that are gone");
                }
                return;
            }
            Err(reason) => {
                warn!(reason, "cannot look for leftovers of pods that are gone");
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
    }
}

/// The containers that the runtime knows; none where no runtime is to be asked.
async fn known(upkeep: &Upkeep, report: &Report) -> Result<BTreeSet<String>, String> {
    let Some(runtime) = &report.runtime else {
        return match &report.problem {
            None if upkeep.pod_uid.is_none() => Ok(BTreeSet::new()),
            problem => Err(problem
                .clone()
                .unwrap_or_else(|| "no runtime was found".to_owned())),
        };
    };
    let client = Client::connect(&upkeep.root, &runtime.socket).await;
    let mut client = client.map_err(|error| error.to_string())?;
    client.sandboxes().await.map_err(|error| error.to_string())
}

fn sweep(upkeep: &Upkeep, service: &Service, report: &Report, known: &BTreeSet<String>) {
    let netconf = match service.standing_netconf() {
        Ok(netconf) => netconf,
        Err(error) => return warn!(%error, "looking for leftovers of pods that are gone"),
    };
    service.engine.take_back(&netconf);
    let gone = |id: &ContainerId, netns: Namespace<'_>| is_gone(upkeep, known, id, netns);
    for error in service.engine.sweep(plugin_dirs(report), &netconf, &gone) {
        warn!(%error, "a leftover of a pod that is gone");
    }
    info!("looked for leftovers of pods that are gone");
}

/// Before the daemon is gone for good: detaches the containers that are gone, and leaves the runtime what it needs for the others.
pub async fn hand_over(upkeep: Arc<Upkeep>, service: Arc<Service>) -> Result<HandedOver, String> {
    let report = upkeep.enter_runtime().await?;
    let known = known(&upkeep, &report).await?;
    let netconf = service.standing_netconf();
    let netconf = netconf.map_err(|error| error.to_string())?;
    let work = tokio::task::spawn_blocking(move || {
        let gone = |id: &ContainerId, netns: Namespace<'_>| is_gone(&upkeep, &known, id, netns);
        let engine = &service.engine;
        engine.hand_over(plugin_dirs(&report), &netconf, &gone)
    });
    work.await.map_err(|error| error.to_string())
}

fn plugin_dirs(report: &Report) -> &[PathBuf] {
    report.dirs.as_ref().map_or(&[][..], |dirs| &dirs.bin_dirs)
}

fn is_gone(
    upkeep: &Upkeep,
    known: &BTreeSet<String>,
    id: &ContainerId,
    netns: Namespace<'_>,
) -> bool {
    let place = upkeep.exec.place();
    let is_there = |netns: &str| match open_netns(&upkeep.root, &place, netns) {
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    };
    let is_lost = match netns {
        Namespace::Unknown => false,
        Namespace::Lost => true,
        Namespace::At(netns) => !is_there(netns),
    };
    is_lost && !known.contains(id.as_str())
}
