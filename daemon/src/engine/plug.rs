//! Hot plug: networks for a container that runs already, and networks that it loses. Each is attached and detached as by ADD and DEL,
//! and state tells of it before it is done. A failure takes along what came with it and leaves alone what was there before.

mod follow;
mod given;
mod steps;

pub use follow::Followed;

use std::sync::PoisonError;

use cni::cache::Entry;
use cni::env::{ContainerId, IfName};
use cni::types::CniError;
use plan::netconf::{Netconf, Unserved};
use plan::{Attached, Attachment, requests};
use tracing::warn;

use super::del::{Failure, Outcome, together};
use super::failure::{failed, name_taken};
use super::invocation::{CacheDir, Call};
use super::{Engine, planned, recall};
use crate::state::{Delegate, Progress, State, Store};

/// A container that is held while its networks change.
struct Running<'a> {
    engine: &'a Engine,
    call: Call<'a>,
    store: &'a Store,
    state: State,
    /// Whether there is state to be kept. Of a container that nobody attached through us the result cache alone knows.
    is_known: bool,
    /// What comes of requests that nobody serves.
    unserved: Unserved,
}

impl Running<'_> {
    /// Attaches a network and makes it known first. What a failure leaves is for the caller to undo.
    fn attach(&mut self, delegate: Delegate) -> Result<Attached, CniError> {
        let engine = self.engine;
        engine.check_link(&self.call, &self.state.pod, &delegate)?;
        let delegates = &mut self.state.delegates;
        delegates.push(Delegate {
            progress: Progress::Started,
            ..delegate
        });
        let last = delegates.len() - 1;
        let recorded = {
            let _no_gc = engine.adding.read().unwrap_or_else(PoisonError::into_inner);
            self.record()
        };
        if let Err(error) = recorded {
            self.state.delegates.pop();
            return Err(error);
        }
        let delegate = &mut self.state.delegates[last];
        let mut attached = engine.run_one(&self.call, delegate, false, self.unserved)?;
        if let (Unserved::Event, Some(wishes)) = (self.unserved, &delegate.requested.wishes) {
            attached
                .unserved
                .extend(requests::lacking(wishes, &delegate.config));
        }
        Ok(attached)
    }

    /// Detaches a network and forgets it; one that cannot be detached stays known.
    fn detach(&mut self, ifname: &IfName) -> Result<(), CniError> {
        let Some(index) = self.position(ifname) else {
            return Ok(());
        };
        let mut outcome = Outcome::default();
        let delegate = &mut self.state.delegates[index];
        self.engine
            .remove_one(&self.call, delegate, index, &mut outcome);
        let Outcome { failures, given_up } = outcome;
        for Failure { error, .. } in given_up {
            warn!(%error, "given up, as nothing may have been attached there");
        }
        if failures.is_empty() {
            self.state.delegates.remove(index);
        }
        let recorded = self.record();
        if !failures.is_empty() {
            let errors = failures.into_iter().map(|one| one.for_runtime(Some(true)));
            return Err(together(errors.collect()));
        }
        recorded
    }

    /// The same for what is undone: its failures are told, and what they leave stays known.
    fn undo(&mut self, ifnames: &[IfName]) {
        for ifname in ifnames.iter().rev() {
            if let Err(error) = self.detach(ifname) {
                warn!(%error, "undoing what was plugged");
            }
        }
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

    /// Everything that would fail later anyway.
    fn check_plugins(&self, delegate: &Delegate) -> Result<(), CniError> {
        for plugin in &delegate.config.plugins {
            let found = self.engine.exec.find(&plugin.kind, &self.call.path);
            found.map_err(|error| failed(&self.state.pod, delegate, error.to_cni()))?;
        }
        Ok(())
    }

    /// Every name is said outright from now on: with networks that come and go, places in the list mean nothing.
    fn name_all(&mut self) {
        for delegate in self.state.delegates.iter_mut().skip(1) {
            let name = delegate.ifname.as_str();
            let requested = &mut delegate.requested.interface;
            requested.get_or_insert_with(|| name.to_owned());
        }
    }

    fn refuse_taken(&self, delegate: &Delegate) -> Result<(), CniError> {
        match self.position(&delegate.ifname) {
            Some(_) => Err(failed(&self.state.pod, delegate, name_taken(delegate))),
            None => Ok(()),
        }
    }
}

impl Engine {
    /// What is known of a container, completed with what the cache knows, and that; `None` where nothing is.
    fn known(
        store: &Store,
        cache: &CacheDir,
        id: &ContainerId,
        netconf: &Netconf,
    ) -> Result<(Option<State>, Vec<Entry>), CniError> {
        let entries = recall::entries(&cache.path, id);
        let mut state = store.load(id, &super::sweep::default_ifname())?;
        if let Some(state) = &mut state {
            recall::complete(state, &entries, netconf);
        }
        Ok((state, entries))
    }
}

/// A delegate that is plugged.
fn delegate(attachment: &Attachment, ifname: IfName, netconf: &Netconf) -> Delegate {
    let mut delegate = planned::delegate(attachment, ifname, netconf);
    delegate.requested.interface = Some(delegate.ifname.to_string());
    delegate.requested.plugged = true;
    delegate
}
