//! Hot plug attaches networks to a running container and detaches them from it. Each is attached and detached as by ADD and DEL, and
//! state is written before each step. A failure undoes what was attached with the failed network, and nothing that was there before.

mod explicit;
mod pending_status;
mod reconcile;

pub use reconcile::Reconciled;

use std::sync::PoisonError;

use cni::cache::{self, Entry};
use cni::env::{ContainerId, IfName};
use cni::types::CniError;
use plan::netconf::{Netconf, UnsupportedRequests};
use plan::{Attached, Attachment, requests};
use tracing::warn;

use super::del::Outcome;
use super::failure::{Failure, name_taken, not_found};
use super::invocation::{CacheDir, DelegateContext};
use super::stale::default_ifname;
use super::{Engine, cached_results, planned};
use crate::state::{Delegate, Progress, State, Store};

/// A locked container whose networks change.
struct RunningContainer<'a> {
    engine: &'a Engine,
    context: DelegateContext<'a>,
    store: &'a Store,
    state: State,
    /// Whether the container has state to keep up to date. A container that another program attached is only in the result cache.
    is_known: bool,
    /// The handling of requests that no plugin supports.
    unsupported_requests: UnsupportedRequests,
}

impl<'a> RunningContainer<'a> {
    /// Returns a container that has this state on disk.
    fn new(
        engine: &'a Engine,
        context: DelegateContext<'a>,
        store: &'a Store,
        state: State,
        netconf: &Netconf,
    ) -> Self {
        Self {
            engine,
            context,
            store,
            state,
            is_known: true,
            unsupported_requests: netconf.unsupported_requests,
        }
    }

    /// Records a network and attaches it. The caller has to undo what a failure leaves.
    fn attach(&mut self, delegate: Delegate) -> Result<Attached, Failure> {
        let engine = self.engine;
        engine.check_link(&self.context, &self.state.pod, &delegate)?;
        let delegates = &mut self.state.delegates;
        delegates.push(Delegate {
            progress: Progress::Started,
            ..delegate
        });
        let last = delegates.len() - 1;
        let recorded = {
            let _no_gc = engine
                .gc_lock
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            self.record()
        };
        if let Err(error) = recorded {
            self.state.delegates.pop();
            return Err(error.into());
        }
        let delegate = &mut self.state.delegates[last];
        let mut attached =
            engine.run_delegate(&self.context, delegate, false, self.unsupported_requests)?;
        if let (UnsupportedRequests::Event, Some(annotation_keys)) = (
            self.unsupported_requests,
            &delegate.requested.annotation_keys,
        ) {
            attached.unsupported.extend(requests::missing_capabilities(
                annotation_keys,
                &delegate.config,
            ));
        }
        Ok(attached)
    }

    /// Detaches a network and removes it from the state. One that cannot be detached stays in the state, and no longer counts as attached: some
    /// of its plugins may have undone their part, and its address may belong to another pod.
    fn detach(&mut self, ifname: &IfName) -> Result<(), Failure> {
        let Some(index) = self.position(ifname) else {
            return Ok(());
        };
        let mut outcome = Outcome::default();
        let delegate = &mut self.state.delegates[index];
        self.engine
            .remove_delegate(&self.context, delegate, index, &mut outcome);
        let Outcome {
            failures,
            uncertain,
        } = outcome;
        for one in uncertain {
            warn!(error = %one.failure, "DEL of a network that may never have been attached failed; it is not retried");
        }
        if failures.is_empty() {
            self.state.delegates.remove(index);
        } else if delegate.progress == Progress::Started {
            delegate.progress = Progress::Failed {
                attached: delegate.config.plugins.len(),
            };
            // Otherwise it would look like a failed ADD, and the container could not be changed any more. In upstream's state nothing else
            // says that the annotation requested it.
            if !std::mem::replace(&mut delegate.requested.plugged, true) {
                delegate.requested.annotation_keys.get_or_insert_default();
            }
        }
        let recorded = self.record();
        if !failures.is_empty() {
            let failures = failures.into_iter().map(|one| one.for_runtime(Some(true)));
            return Err(Failure::sum(failures.collect()));
        }
        recorded.map_err(Failure::from)
    }

    /// Detaches networks in reverse order. Failures are logged, and networks that cannot be detached stay in the state.
    fn undo(&mut self, ifnames: &[IfName]) {
        for ifname in ifnames.iter().rev() {
            if let Err(error) = self.detach(ifname) {
                warn!(%error, "cannot detach a network again after a failure");
            }
        }
    }

    /// Restores default routes that were lost to a network which no longer requests them.
    fn restore_default_routes(&mut self) -> Result<(), Failure> {
        let lost = |delegate: &Delegate| !delegate.displaced.is_empty();
        if !self.state.delegates.iter().any(lost) {
            return Ok(());
        }
        let mut all = self.networks();
        self.engine
            .restore_default_routes(&self.context, &mut self.state, &mut all, self.store)
    }

    /// Returns all networks of the container that have a cached result.
    fn networks(&self) -> Vec<Attached> {
        let mut all = Vec::new();
        for (index, delegate) in self.state.delegates.iter().enumerate() {
            let config = &delegate.config;
            let (id, ifname) = (&self.state.container_id, &delegate.ifname);
            let entry = cache::load(&self.context.cache.path, &config.name, id, ifname);
            let result = match entry {
                Ok(Some(entry)) => entry.parse_result(config.version()),
                Ok(None) => continue,
                Err(error) => {
                    warn!(%error, "cannot read the cached result of a network; the status omits it");
                    continue;
                }
            };
            match result {
                Ok(result) => {
                    let engine = self.engine;
                    all.push(engine.attached(&self.context, delegate, index == 0, result));
                }
                Err(error) => {
                    warn!(%error, "cannot read the cached result of a network; the status omits it");
                }
            }
        }
        all
    }

    fn position(&self, ifname: &IfName) -> Option<usize> {
        let mut delegates = self.state.delegates.iter();
        delegates.position(|delegate| delegate.ifname == *ifname)
    }

    fn record(&self) -> Result<(), CniError> {
        if self.is_known {
            self.store.record(&self.state)?;
        }
        Ok(())
    }

    /// Refuses a delegate of which a plugin is missing, or whose results could not be cached.
    fn check_plugins(&self, delegate: &Delegate) -> Result<(), Failure> {
        self.context.check_name(delegate)?;
        for plugin in &delegate.config.plugins {
            let found = self.engine.exec.find(&plugin.kind, &self.context.path);
            found.map_err(|error| not_found(&self.state.pod, delegate, &error))?;
        }
        Ok(())
    }

    /// Records every interface name explicitly: once networks are added and removed, names no longer follow from positions in the list.
    fn name_all(&mut self) {
        for delegate in self.state.delegates.iter_mut().skip(1) {
            let name = delegate.ifname.as_str();
            let requested = &mut delegate.requested.interface;
            requested.get_or_insert_with(|| name.to_owned());
        }
    }

    fn refuse_taken(&self, delegate: &Delegate) -> Result<(), Failure> {
        match self.position(&delegate.ifname) {
            Some(_) => Err(name_taken(&self.state.pod, delegate)),
            None => Ok(()),
        }
    }
}

impl Engine {
    /// Returns the state of a container, completed from the cached results, and these; `None` where there is no state.
    fn known(
        store: &Store,
        cache: &CacheDir,
        id: &ContainerId,
        netconf: &Netconf,
    ) -> Result<(Option<State>, Vec<Entry>), CniError> {
        let entries = cached_results::entries(&cache.path, id);
        let mut state = store.load(id, &default_ifname())?;
        if let Some(state) = &mut state {
            cached_results::complete(state, &entries, netconf);
        }
        Ok((state, entries))
    }
}

/// Returns a delegate for a running container.
fn delegate(attachment: &Attachment, ifname: IfName, netconf: &Netconf) -> Delegate {
    let mut delegate = planned::delegate(attachment, ifname, netconf);
    delegate.requested.interface = Some(delegate.ifname.to_string());
    delegate.requested.plugged = true;
    delegate
}
