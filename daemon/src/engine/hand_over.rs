//! What an uninstalled daemon leaves to others. After it the runtime detaches pods by its own list of networks alone: the default network,
//! for which its libcni looks up a result under that network's name, and no further network of any pod.

use std::path::{Path, PathBuf};

use cni::cache;
use cni::env::ContainerId;
use cni::types::CniError;
use node::root;
use plan::netconf::Netconf;
use tracing::{info, warn};

use super::sweep::{Gone, default_ifname, in_store, listed};
use super::{Engine, recall};
use crate::state::{PodRef, Progress, Store};

/// What is left on a node after [`Engine::hand_over`].
#[derive(Debug, Default)]
pub struct HandedOver {
    /// What could not be detached or handed over.
    pub errors: Vec<CniError>,
    /// Networks of running pods that nobody will detach without a daemon.
    pub kept: Vec<Kept>,
}

/// A further network of a pod that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The pod; empty where it is not known.
    pub pod: PodRef,
    /// The container.
    pub container_id: ContainerId,
    /// The network's name.
    pub network: String,
    /// The interface in the container.
    pub ifname: String,
}

impl Kept {
    /// What an operator has to know.
    pub fn sentence(&self) -> String {
        let Self {
            pod,
            container_id,
            network,
            ifname,
        } = self;
        let who = if pod.name.is_empty() {
            format!("container {container_id}")
        } else {
            format!("pod {}/{}", pod.namespace, pod.name)
        };
        format!(
            "{who} keeps network {network} on {ifname}: without a daemon nobody detaches it when the pod goes, and its address stays taken until multus is installed again; delete the pod first to free it"
        )
    }
}

impl HandedOver {
    /// For the log of a daemon that ends.
    pub fn log(&self) {
        for error in &self.errors {
            warn!(%error, "a leftover of a pod that is gone");
        }
        for one in &self.kept {
            warn!("{}", one.sentence());
        }
    }
}

impl Engine {
    /// Detaches the containers that `gone` says are, and gives the runtime's libcni the results of the default networks of all others.
    pub fn hand_over(&self, path: &[PathBuf], netconf: &Netconf, gone: Gone<'_>) -> HandedOver {
        let mut left = HandedOver {
            errors: self.sweep(path, netconf, gone),
            ..HandedOver::default()
        };
        let store = self.store(netconf);
        match in_store(&store) {
            Ok(ids) => {
                for id in ids {
                    if let Err(error) = self.hand_over_one(&store, netconf, &id, &mut left.kept) {
                        left.errors.push(error);
                    }
                }
            }
            Err(error) => left.errors.push(error),
        }
        left
    }

    fn hand_over_one(
        &self,
        store: &Store,
        netconf: &Netconf,
        id: &ContainerId,
        kept: &mut Vec<Kept>,
    ) -> Result<(), CniError> {
        let Some(_guard) = self.locks.try_lock(store, id) else {
            return Ok(());
        };
        let Some(mut state) = store.load(id, &default_ifname())? else {
            return Ok(());
        };
        let cache = self.cache_dir(store)?;
        let entries = recall::entries(&cache.path, id);
        recall::complete(&mut state, &entries, netconf);
        for (index, delegate) in state.delegates.iter().enumerate() {
            if delegate.progress == Progress::Removed {
                continue;
            }
            if index > 0 {
                kept.push(Kept {
                    pod: state.pod.clone(),
                    container_id: id.clone(),
                    network: delegate.name.clone(),
                    ifname: delegate.ifname.to_string(),
                });
            } else if let Some(entry) = entries.iter().find(|entry| recall::is_of(entry, delegate))
                && store.results_dir() != Path::new(recall::RUNTIME_RESULTS)
            {
                let dir = self.root.make_directory(recall::RUNTIME_RESULTS, 0o700);
                let dir = dir.map_err(|error| io_failure(&error))?;
                let stored = cache::store(&root::proc_path(&dir), entry);
                stored.map_err(|error| io_failure(&error))?;
                info!(container_id = %id, network = entry.network_name, "handed over to the runtime");
            }
        }
        Ok(())
    }

    /// Takes back what an earlier uninstall handed over: the runtime's DEL comes here again, and would leave those results behind.
    pub fn take_back(&self, netconf: &Netconf) {
        let store = self.store(netconf);
        if store.results_dir() == Path::new(recall::RUNTIME_RESULTS) {
            return;
        }
        let Ok(dir) = self.root.directory(recall::RUNTIME_RESULTS) else {
            return;
        };
        let own = match self.cache_dir(&store).and_then(|own| listed(&own.path)) {
            Ok(own) => own,
            Err(error) => return warn!(%error, "cached results"),
        };
        let theirs = root::proc_path(&dir);
        for entry in own {
            let (Ok(id), Ok(ifname)) = (entry.container_id.parse(), entry.if_name.parse()) else {
                continue;
            };
            let handed_over = cache::load(&theirs, &entry.network_name, &id, &ifname);
            if store.has_state(&id)
                && matches!(handed_over, Ok(Some(theirs)) if theirs == entry)
                && let Err(error) = cache::remove(&theirs, &entry.network_name, &id, &ifname)
            {
                warn!(%error, "a result that was handed over to the runtime");
            }
        }
    }
}

fn io_failure(error: &dyn std::error::Error) -> CniError {
    CniError::new(CniError::IO_FAILURE, error.to_string())
}
