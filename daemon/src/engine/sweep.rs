//! Containers that are gone without a DEL: of a node that lost its power, or of a runtime that forgot them.

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
    /// Nothing.
    Unknown,
    /// The kernel was started anew since, and forgot it; whatever has its path now is another one.
    Lost,
    /// Its path on the node.
    At(&'a str),
}

/// Whether a container is gone, by its id and its network namespace.
pub type Gone<'a> = &'a dyn Fn(&ContainerId, Namespace<'_>) -> bool;

impl Engine {
    /// Detaches and forgets every container that `gone` says is, of all that have left anything here: state, a sidecar,
    /// cached results, files that were never completed. Goes on after failures and returns all of them.
    ///
    /// `gone` has to be sure: a runtime may list a container only some time after its ADD. It is asked while nobody else is
    /// at that container.
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

    /// Detaches those of `known` that are gone; who is busy is not.
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
        // What another program has detached leaves only files of ours, which are nobody's while nobody is at the container.
        let may_be_attached = state.rebooted || store.has_state(id) || !entries.is_empty();
        if may_be_attached && !gone(id, namespace) {
            return Ok(());
        }
        info!(container_id = %id, "detaching a container that is gone");
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

/// All containers with a file in the state directory.
pub(super) fn in_store(store: &Store) -> Result<BTreeSet<ContainerId>, CniError> {
    Ok(store.known()?)
}

/// All cached results.
pub(super) fn listed(cache: &Path) -> Result<Vec<Entry>, CniError> {
    cache::list(cache).map_err(|error| cache_error(&error))
}

/// What a runtime asks for, as a rule.
pub(super) fn default_ifname() -> IfName {
    "eth0".parse().expect("a valid interface name")
}

fn cache_error(error: &cache::CacheError) -> CniError {
    CniError::new(CniError::IO_FAILURE, error.to_string())
}
