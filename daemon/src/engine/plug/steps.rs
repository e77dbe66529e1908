//! The steps of a change to one container's networks, which are undone when one of them fails.

use cni::cache;
use cni::env::IfName;
use cni::types::CniError;
use plan::Attached;
use tracing::{info, warn};

use super::{Followed, Running, failed, name_taken};
use crate::state::{Delegate, Progress};

/// The steps of a change to one container's networks, in order.
pub(super) struct Work {
    /// Networks that are attached first.
    pub(super) first: Vec<Delegate>,
    /// The interfaces of networks that are detached next.
    pub(super) out: Vec<IfName>,
    /// Networks that are attached in their place.
    pub(super) replacing: Vec<Delegate>,
    /// The interfaces of networks that are detached last.
    pub(super) last: Vec<IfName>,
}

impl Running<'_> {
    /// Refuses what would fail later anyway, before anything is changed.
    pub(super) fn check(&self, work: &Work) -> Result<(), CniError> {
        let all: Vec<&Delegate> = work.first.iter().chain(&work.replacing).collect();
        for (index, new) in all.iter().enumerate() {
            self.check_plugins(new)?;
            if all[..index].iter().any(|other| other.ifname == new.ifname) {
                return Err(failed(&self.state.pod, new, name_taken(new)));
            }
            if !work.out.contains(&new.ifname) {
                self.refuse_taken(new)?;
                self.engine.check_link(&self.call, &self.state.pod, new)?;
            }
        }
        Ok(())
    }

    pub(super) fn apply(&mut self, work: Work) -> Followed {
        let mut followed = Followed::default();
        match self.replace(work.first, &work.out, work.replacing, &work.last) {
            Ok(done) => followed = done,
            Err(error) => {
                followed.failure = Some(error.into());
                return followed;
            }
        }
        for ifname in &work.last {
            let name = self.name(ifname);
            match self.detach(ifname) {
                Ok(()) => followed.detached.push((name, ifname.to_string())),
                Err(error) => followed.stuck.push(error),
            }
        }
        if let Err(error) = self.give_routes_back() {
            followed.stuck.push(error);
        }
        followed
    }

    /// Attaches the new networks, including those that take the place of others. If one of them fails, the pod keeps the networks that
    /// it had.
    fn replace(
        &mut self,
        first: Vec<Delegate>,
        out: &[IfName],
        replacing: Vec<Delegate>,
        leaving: &[IfName],
    ) -> Result<Followed, CniError> {
        let mut followed = Followed::default();
        let mut added: Vec<IfName> = Vec::new();
        let mut detached: Vec<Delegate> = Vec::new();
        let steps = |running: &mut Self| -> Result<(), CniError> {
            let mut attach =
                |running: &mut Self, delegates: Vec<Delegate>| -> Result<(), CniError> {
                    for delegate in delegates {
                        added.push(delegate.ifname.clone());
                        let attached = running.attach(delegate).inspect_err(|_| {
                            // The interface of a delegate that was not even recorded is not ours to undo.
                            if added
                                .last()
                                .is_some_and(|name| running.position(name).is_none())
                            {
                                added.pop();
                            }
                        })?;
                        followed.attached.push(attached);
                    }
                    Ok(())
                };
            attach(running, first)?;
            for ifname in out {
                let old = running
                    .position(ifname)
                    .map(|at| running.state.delegates[at].clone());
                running.detach(ifname)?;
                detached.extend(old);
            }
            attach(running, replacing)?;
            running.set_routes_of_added(&added, leaving)
        };
        if let Err(error) = steps(self) {
            self.undo(&added);
            self.reattach(detached);
            if let Err(error) = self.restore_routes() {
                warn!(%error, "cannot restore the default routes after a failed change");
            }
            return Err(error);
        }
        let names = detached.into_iter().map(|d| (d.name, d.ifname.to_string()));
        followed.detached.extend(names);
        Ok(followed)
    }

    /// Sets the pod's default routes if one of the added networks requests them.
    fn set_routes_of_added(
        &mut self,
        added: &[IfName],
        leaving: &[IfName],
    ) -> Result<(), CniError> {
        let has_route = |delegate: &Delegate| {
            added.contains(&delegate.ifname) && delegate.requested.default_route.is_some()
        };
        if self.state.delegates.iter().any(has_route) {
            self.set_routes(leaving)?;
        }
        Ok(())
    }

    fn set_routes(&mut self, leaving: &[IfName]) -> Result<(), CniError> {
        let mut all = self.now();
        if all.len() != self.state.delegates.len() {
            let text = "cannot set default routes: they need the results of all networks of the pod, and some are not in the result cache";
            return Err(CniError::new(CniError::IO_FAILURE, text));
        }
        self.engine
            .settle_routes(&self.call, &mut self.state, &mut all, leaving, self.store)
    }

    /// Restores default routes that were lost to a network which no longer requests them.
    pub(super) fn give_routes_back(&mut self) -> Result<(), CniError> {
        let lost = |delegate: &Delegate| !delegate.displaced.is_empty();
        if !self.state.delegates.iter().any(lost) {
            return Ok(());
        }
        let mut all = self.now();
        self.engine
            .give_routes_back(&self.call, &mut self.state, &mut all, self.store)
    }

    /// Sets the default routes again after a failed change.
    fn restore_routes(&mut self) -> Result<(), CniError> {
        let requests = |delegate: &Delegate| delegate.requested.default_route.is_some();
        if self.state.delegates.iter().any(requests) {
            self.set_routes(&[])?;
        }
        self.give_routes_back()
    }

    /// Attaches networks again that were detached for a change that failed.
    fn reattach(&mut self, detached: Vec<Delegate>) {
        for delegate in detached
            .into_iter()
            .filter(|one| one.progress == Progress::Started)
        {
            let ifname = delegate.ifname.clone();
            match self.attach(delegate) {
                Ok(_) => info!(%ifname, "attached a network again, as its replacement failed"),
                Err(error) => {
                    warn!(%error, "cannot attach a network again whose replacement failed");
                    self.undo(&[ifname]);
                }
            }
        }
    }

    fn name(&self, ifname: &IfName) -> String {
        let at = self.position(ifname);
        at.map_or_else(String::new, |at| self.state.delegates[at].name.clone())
    }

    /// Returns all networks of the container that have a cached result.
    pub(super) fn now(&self) -> Vec<Attached> {
        let mut all = Vec::new();
        for (index, delegate) in self.state.delegates.iter().enumerate() {
            let config = &delegate.config;
            let (id, ifname) = (&self.state.container_id, &delegate.ifname);
            let entry = cache::load(&self.call.cache.path, &config.name, id, ifname);
            let result = match entry {
                Ok(Some(entry)) => entry.parse_result(config.version()),
                Ok(None) => continue,
                Err(error) => {
                    warn!(%error, "cannot read the cached result of a network, the status omits it");
                    continue;
                }
            };
            match result {
                Ok(result) => {
                    let engine = self.engine;
                    all.push(engine.attached(&self.call, delegate, index == 0, result));
                }
                Err(error) => {
                    warn!(%error, "cannot read the cached result of a network, the status omits it");
                }
            }
        }
        all
    }
}
