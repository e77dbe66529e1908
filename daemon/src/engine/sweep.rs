//! Detaches stale containers: those that were deleted without a DEL, as after a power cut, or whose runtime forgot them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cni::cache::{self, Entry};
use cni::env::{ContainerId, IfName};
use cni::types::CniError;
use plan::netconf::Netconf;
use tracing::info;

use super::del::Removal;
use super::{Engine, Request, Waiting, recall};
use crate::state::Store;

/// What is known of a container's network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace<'a> {
    /// Nothing is known.
    Unknown,
    /// A reboot deleted it; a namespace at its path is another one.
    Lost,
    /// Its path on the node.
    At(&'a str),
}

/// Says by a container's ID and its network namespace whether the container was deleted.
pub type Gone<'a> = &'a dyn Fn(&ContainerId, Namespace<'_>) -> bool;

impl Engine {
    /// Detaches and forgets every deleted container, as `gone` says, among all that have any file here: state, a sidecar, cached
    /// results, files that were never completed. Goes on after failures and returns all of them.
    ///
    /// `gone` has to be certain: a runtime may list a container only some time after its ADD. It is called with the
    /// container's lock held.
    pub fn sweep(&self, path: &[PathBuf], netconf: &Netconf, gone: Gone<'_>) -> Vec<CniError> {
        let store = self.store(netconf);
        let known = || -> Result<BTreeSet<ContainerId>, CniError> {
            let mut known = in_store(&store)?;
            let cache = self.cache_dir(&store)?;
            cache::remove_empty(&cache.path).map_err(|error| cache_error(&error))?;
            let entries = listed(&cache.path)?;
            known.extend(entries.iter().filter_map(|e| e.container_id.parse().ok()));
            Ok(known)
        };
        match known() {
            Ok(known) => self.detach_all(path, netconf, &known, gone),
            Err(error) => vec![error],
        }
    }

    /// Detaches the deleted containers of `known`, except for those that another verb is working on.
    pub(super) fn detach_all(
        &self,
        path: &[PathBuf],
        netconf: &Netconf,
        known: &BTreeSet<ContainerId>,
        gone: Gone<'_>,
    ) -> Vec<CniError> {
        let store = self.store(netconf);
        let detach = |id| self.detach(path, netconf, &store, id, gone).err();
        known.iter().filter_map(detach).collect()
    }

    fn detach(
        &self,
        path: &[PathBuf],
        netconf: &Netconf,
        store: &Store,
        id: &ContainerId,
        gone: Gone<'_>,
    ) -> Result<(), CniError> {
        let Some(_guard) = self.locks.try_lock(store, id) else {
            return Ok(());
        };
        let cache = self.cache_dir(store)?;
        let entries = recall::entries(&cache.path, id);
        let state = Self::state_left(store, id, &default_ifname())?.state;
        let netns = state.netns.clone().or_else(|| recall::netns(&entries));
        let namespace = match netns.as_deref() {
            _ if state.rebooted => Namespace::Lost,
            Some(netns) => Namespace::At(netns),
            None => Namespace::Unknown,
        };
        // A container that another program detached leaves only files of ours. While this lock is held they can be removed.
        let may_be_attached = state.rebooted || store.has_state(id) || !entries.is_empty();
        if may_be_attached && !gone(id, namespace) {
            return Ok(());
        }
        info!(container_id = %id, "detaching a stale container");
        let netns = if state.rebooted { None } else { netns };
        let mut request = Request {
            container_id: id.clone(),
            netns,
            ifname: state.ifname.clone(),
            args: Vec::new(),
            path: path.to_vec(),
            waiting: Waiting::default(),
            replayed: true,
        };
        request.netns = self.netns_left(&request);
        let removal = Removal {
            request: &request,
            netconf,
            store,
            cache,
            entries,
            is_known: true,
        };
        let detached = self.remove(&removal, state);
        let cleaned = cache::clean(&removal.cache.path, id);
        detached.and(cleaned.map_err(|error| cache_error(&error)))
    }
}

/// Returns all containers with a file in the state directory.
pub(super) fn in_store(store: &Store) -> Result<BTreeSet<ContainerId>, CniError> {
    Ok(store.known()?)
}

/// Returns all cached results.
pub(super) fn listed(cache: &Path) -> Result<Vec<Entry>, CniError> {
    cache::list(cache).map_err(|error| cache_error(&error))
}

/// The interface that runtimes request.
pub(super) fn default_ifname() -> IfName {
    "eth0".parse().expect("a valid interface name")
}

fn cache_error(error: &cache::CacheError) -> CniError {
    CniError::new(CniError::IO_FAILURE, error.to_string())
}
