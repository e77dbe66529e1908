//! Detaches stale containers: those that were deleted without a DEL, as after a power cut, or whose runtime forgot them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cni::cache::{self, Entry};
use cni::env::{ContainerId, IfName};
use cni::types::CniError;
use plan::netconf::Netconf;
use tracing::info;

use super::del::{PartialState, Removal};
use super::failure::Failure;
use super::{Cancellation, ContainerRequest, Engine, cached_results};
use crate::state::Store;

/// What is known of a container's network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetnsState<'a> {
    /// Nothing is known.
    Unknown,
    /// A reboot deleted it; a namespace at its path is another one.
    Lost,
    /// Its path on the node.
    At(&'a str),
}

/// Says by a container's ID and its network namespace whether the container was deleted.
pub type IsStale<'a> = &'a dyn Fn(&ContainerId, NetnsState<'_>) -> bool;

impl Engine {
    /// Detaches and forgets every deleted container, as `is_stale` says, among all that have any file here: state, a sidecar, cached
    /// results, files that were never completed. Goes on after failures and returns all of them.
    ///
    /// `is_stale` has to be certain: a runtime may list a container only some time after its ADD. It is called with the
    /// container's lock held.
    pub fn detach_stale(
        &self,
        path: &[PathBuf],
        netconf: &Netconf,
        is_stale: IsStale<'_>,
    ) -> Vec<CniError> {
        let store = self.store(netconf);
        let known = || -> Result<BTreeSet<ContainerId>, CniError> {
            let mut known = in_store(&store)?;
            let cache = self.cache_dir(&store)?;
            cache::remove_empty(&cache.path).map_err(|error| cache_error(&error))?;
            let entries = all_entries(&cache.path)?;
            known.extend(entries.iter().filter_map(|e| e.container_id.parse().ok()));
            Ok(known)
        };
        match known() {
            Ok(known) => {
                let failures = self.detach_stale_among(path, netconf, &known, is_stale);
                failures.into_iter().map(CniError::from).collect()
            }
            Err(error) => vec![error],
        }
    }

    /// Detaches the deleted containers of `known`, except for those that another verb is working on.
    pub(super) fn detach_stale_among(
        &self,
        path: &[PathBuf],
        netconf: &Netconf,
        known: &BTreeSet<ContainerId>,
        is_stale: IsStale<'_>,
    ) -> Vec<Failure> {
        let store = self.store(netconf);
        let detach = |id| self.detach(path, netconf, &store, id, is_stale).err();
        known.iter().filter_map(detach).collect()
    }

    fn detach(
        &self,
        path: &[PathBuf],
        netconf: &Netconf,
        store: &Store,
        id: &ContainerId,
        is_stale: IsStale<'_>,
    ) -> Result<(), Failure> {
        let Some(_guard) = self.locks.try_lock(store, id) else {
            return Ok(());
        };
        let cache = self.cache_dir(store)?;
        let entries = cached_results::entries(&cache.path, id);
        let PartialState {
            mut state,
            complete,
            ..
        } = Self::load_partial(store, id, &default_ifname())?;
        let netns = state
            .netns
            .clone()
            .or_else(|| cached_results::netns(&entries));
        let namespace = match netns.as_deref() {
            _ if state.rebooted => NetnsState::Lost,
            Some(netns) => NetnsState::At(netns),
            None => NetnsState::Unknown,
        };
        // A container that another program detached leaves only files of ours. While this lock is held they can be removed.
        let may_be_attached = state.rebooted || store.has_state(id) || !entries.is_empty();
        if may_be_attached && !is_stale(id, namespace) {
            return Ok(());
        }
        info!(container_id = %id, "detaching a stale container");
        let netns = if state.rebooted { None } else { netns };
        let mut request = ContainerRequest {
            container_id: id.clone(),
            netns,
            ifname: state.ifname.clone(),
            args: Vec::new(),
            path: path.to_vec(),
            cancellation: Cancellation::default(),
            replayed: true,
        };
        request.netns = self.existing_netns(&request);
        let removal = Removal {
            request: &request,
            netconf,
            store,
            cache,
            entries,
            is_known: true,
        };
        if !complete {
            self.add_guesses(&removal, &mut state, None);
        }
        let detached = self.remove(&removal, state);
        let cleaned = cache::remove_temporary(&removal.cache.path, id);
        detached.and(cleaned.map_err(|error| cache_error(&error).into()))
    }
}

/// Returns all containers with a file in the state directory.
pub(super) fn in_store(store: &Store) -> Result<BTreeSet<ContainerId>, CniError> {
    Ok(store.known()?)
}

/// Returns all cached results.
pub(super) fn all_entries(cache: &Path) -> Result<Vec<Entry>, CniError> {
    cache::list(cache).map_err(|error| cache_error(&error))
}

/// The interface that runtimes request.
pub(super) fn default_ifname() -> IfName {
    "eth0".parse().expect("a valid interface name")
}

fn cache_error(error: &cache::CacheError) -> CniError {
    CniError::new(CniError::IO_FAILURE, error.to_string())
}
