//! Hands the containers of a node off to the runtime when the daemon is uninstalled. From then on the runtime detaches pods by its own
//! list of networks: only the default network, whose result its libcni looks up under that network's name, and no other network of a pod.

use std::path::{Path, PathBuf};

use cni::cache;
use cni::env::ContainerId;
use cni::types::CniError;
use node::root;
use plan::netconf::Netconf;
use tracing::{info, warn};

use super::stale::{IsStale, all_entries, default_ifname, in_store};
use super::{Engine, cached_results};
use crate::state::{PodRef, Progress, Store};

/// The outcome of [`Engine::hand_off`].
#[derive(Debug, Default)]
pub struct HandOff {
    /// Failures to detach a stale container or to hand off another.
    pub errors: Vec<CniError>,
    /// Networks of running pods that only a daemon can detach.
    pub kept: Vec<KeptNetwork>,
}

/// A network of a running pod other than its default network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptNetwork {
    /// The pod; empty if it is not known.
    pub pod: PodRef,
    pub container_id: ContainerId,
    /// The network's name.
    pub network: String,
    /// The interface in the container.
    pub ifname: String,
}

impl KeptNetwork {
    /// Returns the warning for the operator.
    pub fn warning(&self) -> String {
        let Self {
            pod,
            container_id,
            network,
            ifname,
        } = self;
        let owner = if pod.name.is_empty() {
            format!("container {container_id}")
        } else {
            format!("pod {}/{}", pod.namespace, pod.name)
        };
        format!(
            "{owner} keeps network {network} on {ifname}: without a daemon the network is not detached when the pod is deleted, and its address stays allocated until multus is installed again; delete the pod first to free it"
        )
    }
}

impl HandOff {
    /// Logs the outcome, for a daemon that ends.
    pub fn log(&self) {
        for error in &self.errors {
            warn!(%error, "cannot detach a stale container or hand off another");
        }
        for one in &self.kept {
            warn!("{}", one.warning());
        }
    }
}

impl Engine {
    /// Detaches the deleted containers, as `is_stale` says, and gives the runtime's libcni the results of the default networks of all others.
    pub fn hand_off(&self, path: &[PathBuf], netconf: &Netconf, is_stale: IsStale<'_>) -> HandOff {
        let mut outcome = HandOff {
            errors: self.detach_stale(path, netconf, is_stale),
            ..HandOff::default()
        };
        let store = self.store(netconf);
        match in_store(&store) {
            Ok(ids) => {
                for id in ids {
                    if let Err(error) = self.hand_off_one(&store, netconf, &id, &mut outcome.kept) {
                        outcome.errors.push(error);
                    }
                }
            }
            Err(error) => outcome.errors.push(error),
        }
        outcome
    }

    fn hand_off_one(
        &self,
        store: &Store,
        netconf: &Netconf,
        id: &ContainerId,
        kept: &mut Vec<KeptNetwork>,
    ) -> Result<(), CniError> {
        let Some(_guard) = self.locks.try_lock(store, id) else {
            return Ok(());
        };
        let Some(mut state) = store.load(id, &default_ifname())? else {
            return Ok(());
        };
        let cache = self.cache_dir(store)?;
        let entries = cached_results::entries(&cache.path, id);
        cached_results::complete(&mut state, &entries, netconf);
        for (index, delegate) in state.delegates.iter().enumerate() {
            if delegate.progress == Progress::Removed {
                continue;
            }
            if index > 0 {
                kept.push(KeptNetwork {
                    pod: state.pod.clone(),
                    container_id: id.clone(),
                    network: delegate.name.clone(),
                    ifname: delegate.ifname.to_string(),
                });
            } else if let Some(entry) = entries
                .iter()
                .find(|entry| cached_results::is_of(entry, delegate))
                && store.results_dir() != Path::new(cached_results::RUNTIME_RESULTS)
            {
                let dir = self
                    .root
                    .make_directory(cached_results::RUNTIME_RESULTS, 0o700);
                let dir = dir.map_err(|error| io_failure(&error))?;
                let stored = cache::store(&root::proc_path(&dir), entry);
                stored.map_err(|error| io_failure(&error))?;
                info!(container_id = %id, network = entry.network_name, "handed the default network off to the runtime");
            }
        }
        Ok(())
    }

    /// Removes the results that an earlier uninstall handed off: the runtime's DEL comes to the daemon again, and would leave those
    /// results behind.
    pub fn revert_hand_off(&self, netconf: &Netconf) {
        let store = self.store(netconf);
        if store.results_dir() == Path::new(cached_results::RUNTIME_RESULTS) {
            return;
        }
        let Ok(dir) = self.root.directory(cached_results::RUNTIME_RESULTS) else {
            return;
        };
        let entries = match self
            .cache_dir(&store)
            .and_then(|cache| all_entries(&cache.path))
        {
            Ok(entries) => entries,
            Err(error) => return warn!(%error, "cannot read the daemon's cached results"),
        };
        let runtime_cache = root::proc_path(&dir);
        for entry in entries {
            let (Ok(id), Ok(ifname)) = (entry.container_id.parse(), entry.if_name.parse()) else {
                continue;
            };
            let handed_off = cache::load(&runtime_cache, &entry.network_name, &id, &ifname);
            if store.has_state(&id)
                && matches!(handed_off, Ok(Some(handed_off)) if handed_off == entry)
                && let Err(error) = cache::remove(&runtime_cache, &entry.network_name, &id, &ifname)
            {
                warn!(%error, "cannot remove a result that was handed off to the runtime");
            }
        }
    }
}

fn io_failure(error: &dyn std::error::Error) -> CniError {
    CniError::new(CniError::IO_FAILURE, error.to_string())
}
