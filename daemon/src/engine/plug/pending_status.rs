//! The status of a container's networks, from the moment at which they are known until it is written into the pod. The container's state says
//! in between that it is pending.

use std::path::Path;
use std::sync::Arc;

use cni::env::ContainerId;
use cni::types::CniError;
use plan::netconf::Netconf;
use plan::{Attached, PodView, network_status};
use tracing::warn;

use super::RunningContainer;
use crate::engine::Engine;
use crate::engine::invocation::DelegateContext;
use crate::engine::stale::{default_ifname, in_store};
use crate::state::{PodRef, Store};
use crate::statuses::PodStatus;

impl Engine {
    /// Hands over the status of a locked container. Networks without a status leave nothing to write.
    pub(in crate::engine) fn put_status(
        &self,
        store: &Store,
        id: &ContainerId,
        pod: &PodView,
        networks: &[Attached],
    ) {
        let Some(statuses) = &self.statuses else {
            return;
        };
        match network_status::build(networks) {
            Some(text) => {
                let dir = store.dir().to_owned();
                statuses.put(PodStatus::new(pod, id.clone(), dir, text));
            }
            None => {
                if let Err(error) = store.clear_status_pending(id) {
                    warn!(%error, "cannot record that a container has no network status");
                }
            }
        }
    }

    /// Returns the containers whose status is pending, with their pods.
    pub fn pending_statuses(
        &self,
        netconf: &Netconf,
    ) -> Result<Vec<(ContainerId, PodRef)>, CniError> {
        let store = self.store(netconf);
        let pending = |id: ContainerId| {
            // Damage is reported by the verbs that need the state.
            let state = store.load(&id, &default_ifname()).ok().flatten()?;
            state.status_pending.then_some((id, state.pod))
        };
        Ok(in_store(&store)?.into_iter().filter_map(pending).collect())
    }

    /// Hands over the pending status of a container once more, unless its ADD was never completed, or it belongs to another pod. Returns
    /// false where another verb works on the container.
    pub fn resend_status(
        &self,
        id: &ContainerId,
        netconf: &Netconf,
        pod: &PodView,
    ) -> Result<bool, CniError> {
        let store = self.store(netconf);
        let Some(_guard) = self.locks.try_lock(&store, id) else {
            return Ok(false);
        };
        let cache = self.cache_dir(&store)?;
        let (Some(state), entries) = Self::known(&store, &cache, id, netconf)? else {
            return Ok(true);
        };
        if !state.status_pending {
            return Ok(true);
        }
        let Some(request) = self.running(&state, &entries, pod) else {
            return Ok(true);
        };
        let pod_ref = state.pod.clone();
        let context = DelegateContext::new(&request, &pod_ref, netconf, &cache);
        let running = RunningContainer::new(self, context, &store, state, netconf);
        self.put_status(&store, id, pod, &running.networks());
        Ok(true)
    }

    /// Records that a status was written, unless there is a newer one. While another verb works on the container the record stays: that
    /// verb hands over a newer status, or the next search repeats this one.
    pub fn status_written(&self, status: &PodStatus) -> Result<(), CniError> {
        let store = self.store_in(&status.cni_dir);
        let guard = self.locks.try_lock(&store, &status.container);
        let statuses = self.statuses.as_ref();
        let is_newest = statuses.is_none_or(|statuses| statuses.finish(status));
        if guard.is_some() && is_newest {
            store.clear_status_pending(&status.container)?;
        }
        Ok(())
    }

    /// Returns whether the container's state still says that a status is pending.
    pub fn is_status_pending(&self, status: &PodStatus) -> bool {
        let store = self.store_in(&status.cni_dir);
        let state = store.load(&status.container, &default_ifname());
        state.is_ok_and(|state| state.is_some_and(|state| state.status_pending))
    }

    fn store_in(&self, dir: &Path) -> Store {
        Store::new(Arc::clone(&self.root), dir).in_boot(self.boot_id())
    }
}
