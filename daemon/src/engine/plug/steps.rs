//! What is done to one container, step by step, and undone when one of them fails.

use cni::cache;
use cni::env::IfName;
use cni::types::CniError;
use plan::Attached;
use tracing::{info, warn};

use super::{Followed, Running, failed, name_taken};
use crate::state::{Delegate, Progress};

/// What is to be done to one container.
pub(super) struct Work {
    /// Attached first.
    pub(super) first: Vec<Delegate>,
    /// Detached next, by interface.
    pub(super) out: Vec<IfName>,
    /// Attached in their place.
    pub(super) replacing: Vec<Delegate>,
    /// Detached last.
    pub(super) last: Vec<IfName>,
}

impl Running<'_> {
    /// What would fail later anyway fails now, while nothing was touched.
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

    /// Attaches what is new, and what comes in the place of others; all of it, or the pod keeps what it had.
    fn replace(
        &mut self,
        first: Vec<Delegate>,
        out: &[IfName],
        replacing: Vec<Delegate>,
        leaving: &[IfName],
    ) -> Result<Followed, CniError> {
        let mut followed = Followed::default();
        let mut fresh: Vec<IfName> = Vec::new();
        let mut gone: Vec<Delegate> = Vec::new();
        let steps = |running: &mut Self| -> Result<(), CniError> {
            let mut attach =
                |running: &mut Self, delegates: Vec<Delegate>| -> Result<(), CniError> {
                    for delegate in delegates {
                        fresh.push(delegate.ifname.clone());
                        let attached = running.attach(delegate).inspect_err(|_| {
                            // A name that turned out to be taken is somebody else's.
                            if fresh
                                .last()
                                .is_some_and(|name| running.position(name).is_none())
                            {
                                fresh.pop();
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
                gone.extend(old);
            }
            attach(running, replacing)?;
            running.settle(&fresh, leaving)
        };
        if let Err(error) = steps(self) {
            self.undo(&fresh);
            self.restore(gone);
            if let Err(error) = self.routes_as_before() {
                warn!(%error, "the default routes of before");
            }
            return Err(error);
        }
        let names = gone.into_iter().map(|d| (d.name, d.ifname.to_string()));
        followed.detached.extend(names);
        Ok(followed)
    }

    /// The pod's default routes, where a network that is new has them.
    fn settle(&mut self, fresh: &[IfName], leaving: &[IfName]) -> Result<(), CniError> {
        let has_route = |delegate: &Delegate| {
            fresh.contains(&delegate.ifname) && delegate.requested.default_route.is_some()
        };
        if self.state.delegates.iter().any(has_route) {
            self.settle_all(leaving)?;
        }
        Ok(())
    }

    fn settle_all(&mut self, leaving: &[IfName]) -> Result<(), CniError> {
        let mut all = self.now();
        if all.len() != self.state.delegates.len() {
            let text = "default routes need the results of all networks of the pod, and some were not kept";
            return Err(CniError::new(CniError::IO_FAILURE, text));
        }
        self.engine
            .settle_routes(&self.call, &mut self.state, &mut all, leaving, self.store)
    }

    /// Default routes that were another network's as long as that asked for them.
    pub(super) fn give_routes_back(&mut self) -> Result<(), CniError> {
        let lost = |delegate: &Delegate| !delegate.displaced.is_empty();
        if !self.state.delegates.iter().any(lost) {
            return Ok(());
        }
        let mut all = self.now();
        self.engine
            .give_routes_back(&self.call, &mut self.state, &mut all, self.store)
    }

    /// What a change that failed may have done to them.
    fn routes_as_before(&mut self) -> Result<(), CniError> {
        let asks = |delegate: &Delegate| delegate.requested.default_route.is_some();
        if self.state.delegates.iter().any(asks) {
            self.settle_all(&[])?;
        }
        self.give_routes_back()
    }

    /// Attaches once more what has gone in vain.
    fn restore(&mut self, gone: Vec<Delegate>) {
        for delegate in gone
            .into_iter()
            .filter(|one| one.progress == Progress::Started)
        {
            let ifname = delegate.ifname.clone();
            match self.attach(delegate) {
                Ok(_) => info!(%ifname, "attached again, as its successor could not be"),
                Err(error) => {
                    warn!(%error, "a network cannot be attached again, nor its successor");
                    self.undo(&[ifname]);
                }
            }
        }
    }

    fn name(&self, ifname: &IfName) -> String {
        let at = self.position(ifname);
        at.map_or_else(String::new, |at| self.state.delegates[at].name.clone())
    }

    /// All networks of the container, by the results that were kept.
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
                    warn!(%error, "the status will not tell of a network");
                    continue;
                }
            };
            match result {
                Ok(result) => {
                    let engine = self.engine;
                    all.push(engine.attached(&self.call, delegate, index == 0, result));
                }
                Err(error) => warn!(%error, "the status will not tell of a network"),
            }
        }
        all
    }
}
