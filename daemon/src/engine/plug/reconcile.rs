//! Reconciles a running pod with its annotation: networks that the annotation requests now are attached, those that it no longer requests
//! are detached.

use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::sync::PoisonError;

use cni::cache::Entry as Cached;
use cni::env::{ContainerId, IfName};
use cni::types::{CniError, CniResult};
use plan::diff::{Current, Desired, Diff, diff, free_name};
use plan::netconf::Netconf;
use plan::{Attached, Attachment, Inputs, PodView, Selection, requests};
use tracing::{info, warn};

use super::{RunningContainer, delegate};
use crate::engine::failure::name_taken;
use crate::engine::invocation::{self, DelegateContext};
use crate::engine::stale::in_store;
use crate::engine::{
    Cancellation, ContainerRequest, Engine, Failure, cached_results, planned, routes,
};
use crate::state::{Delegate, PodRef, Progress, State};

/// The outcome of one reconciliation of a container.
#[derive(Debug, Default)]
pub struct Reconciled {
    /// Networks that were attached.
    pub attached: Vec<Attached>,
    /// Networks that were detached: name and interface.
    pub detached: Vec<(String, String)>,
    /// All networks of the pod, when its status was handed over.
    pub networks: Option<Vec<Attached>>,
    /// Errors of networks that could not be detached.
    pub detach_errors: Vec<Failure>,
    /// The error for which no new network was attached.
    pub failure: Option<Failure>,
}

impl Engine {
    /// Returns the containers of a pod that have state on this node.
    pub fn containers_of(
        &self,
        netconf: &Netconf,
        pod: &PodView,
    ) -> Result<Vec<ContainerId>, CniError> {
        let store = self.store(netconf);
        let cache = self.cache_dir(&store)?;
        let ids = in_store(&store)?;
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.retain(|id, _| ids.contains(id));
        // The pod of a container never changes, so it is read once.
        for id in ids {
            if let Entry::Vacant(unknown) = owners.entry(id) {
                match Self::known(&store, &cache, unknown.key(), netconf) {
                    Ok((Some(state), _)) => drop(unknown.insert(state.pod)),
                    Ok((None, _)) => {}
                    Err(error) => {
                        warn!(%error, container_id = %unknown.key(), "cannot read which pod a container belongs to");
                    }
                }
            }
        }
        let owned = owners.iter().filter(|(_, owner)| is_of(owner, pod));
        Ok(owned.map(|(id, _)| id.clone()).collect())
    }

    /// Gives a container the networks that the pod's annotation requests; `path` returns the runtime's plugin directories.
    pub fn reconcile(
        &self,
        id: &ContainerId,
        netconf: &Netconf,
        pod: &PodView,
        path: impl FnOnce() -> Vec<PathBuf>,
    ) -> Result<Reconciled, Failure> {
        let store = self.store(netconf);
        let _guard = self.locks.lock(&store, id);
        let cache = self.cache_dir(&store)?;
        let (Some(mut state), entries) = Self::known(&store, &cache, id, netconf)? else {
            return Ok(Reconciled::default());
        };
        let Some(request) = self.running(&state, &entries, pod) else {
            let lost = state.delegates.iter().find(|one| {
                one.progress == Progress::Started
                    && !one.requested.plugged
                    && !is_complete(one, &entries)
            });
            if let Some(lost) = lost.filter(|_| is_of(&state.pod, pod)) {
                warn!(network = lost.name, ifname = %lost.ifname, "the networks of a running pod are not changed, since the result of one is not in the result cache: restart the pod");
            }
            return Ok(Reconciled::default());
        };
        let selections = plan::selections(pod, netconf)?;
        plan::check_selections(&selections)?;
        let (positions, current): (Vec<usize>, Vec<Current>) =
            annotated(&state, &entries, netconf).into_iter().unzip();
        let desired: Vec<Desired> = selections.iter().map(self::desired).collect();
        let diff = diff(&current, &desired);
        let routes_are_due = || {
            let result = |index: usize| cached_result(&state.delegates[index], &entries);
            !routes::families_to_restore(&state.delegates, result).is_empty()
        };
        if diff.is_empty() && !state.status_pending && !routes_are_due() {
            return Ok(Reconciled::default());
        }
        for (present, requested) in &diff.kept {
            let keys = desired[*requested].annotation_keys.clone();
            let delegate = &mut state.delegates[positions[*present]];
            delegate.requested.annotation_keys = Some(keys);
        }
        let request = ContainerRequest {
            path: path(),
            ..request
        };
        let plugins = self.plugins(netconf, &request.path);
        let inputs = self.inputs_with(netconf, &plugins);
        let steps = self.resolve(&state, &diff, &current, &selections, inputs, pod)?;
        let pod_ref = state.pod.clone();
        let context = DelegateContext::new(&request, &pod_ref, netconf, &cache);
        let mut running = RunningContainer::new(self, context, &store, state, netconf);
        running.check(&steps)?;
        running.state.status_pending = true;
        running.name_all();
        let mut reconciled = running.apply(steps);
        let networks = running.networks();
        self.put_status(&store, id, pod, &networks);
        reconciled.networks = Some(networks);
        Ok(reconciled)
    }

    /// Returns the request by which a container's networks are changed, or `None` unless it runs, belongs to this pod, and its ADD
    /// was completed.
    pub(super) fn running(
        &self,
        state: &State,
        entries: &[Cached],
        pod: &PodView,
    ) -> Option<ContainerRequest> {
        let is_complete = |delegate: &Delegate| {
            delegate.requested.plugged || self::is_complete(delegate, entries)
        };
        let default_network = state.delegates.first()?;
        if !is_of(&state.pod, pod) || !state.delegates.iter().all(is_complete) {
            return None;
        }
        let mut request = ContainerRequest {
            container_id: state.container_id.clone(),
            netns: state
                .netns
                .clone()
                .or_else(|| cached_results::netns(entries)),
            ifname: state.ifname.clone(),
            args: default_network.args.clone().unwrap_or_default(),
            path: Vec::new(),
            cancellation: Cancellation::default(),
            replayed: false,
        };
        let netns = self.existing_netns(&request)?;
        if planned::netns_process(&netns) != state.netns_process {
            warn!(
                netns,
                "the networks of a container are not changed: the process that names its namespace is another one, or was not recorded"
            );
            return None;
        }
        request.netns = Some(netns);
        Some(request)
    }

    /// Resolves everything that is to be attached, before anything is changed.
    fn resolve(
        &self,
        state: &State,
        diff: &Diff,
        current: &[Current],
        selections: &[Selection],
        inputs: Inputs<'_>,
        pod: &PodView,
    ) -> Result<Steps, Failure> {
        let netconf = inputs.netconf;
        let conflicting: Vec<IfName> = ifnames(current, &diff.remove_conflicting);
        let named = selections.iter().filter_map(|one| one.interface.clone());
        let mut taken: Vec<String> = named.collect();
        // Networks that are detached before others are attached free their devices.
        let mut staying = state.clone();
        staying
            .delegates
            .retain(|delegate| !conflicting.contains(&delegate.ifname));
        let new: Vec<usize> = diff
            .add
            .iter()
            .chain(&diff.add_conflicting)
            .copied()
            .collect();
        let mut attachments = Vec::new();
        for index in &new {
            let selection = selections[*index].clone();
            let attachment = plan::selected_attachment(pod, selection, &attachments, inputs);
            attachments.push(attachment?);
            let present = staying.delegates.iter().map(|delegate| &*delegate.config);
            plan::check_size(present, &attachments)?;
        }
        requests::check(&attachments, netconf.unsupported_requests)?;
        self.assign_devices(&mut attachments, pod, Some(&staying))?;
        let mut delegates =
            |attachments: &[Attachment], free: &[IfName]| -> Result<Vec<Delegate>, Failure> {
                let mut resolved = Vec::new();
                for attachment in attachments {
                    let selection = attachment.selection.as_ref();
                    let name = selection.and_then(|selection| selection.interface.clone());
                    let name = name.unwrap_or_else(|| {
                        free_name(|name| {
                            let has_name = |d: &Delegate| d.ifname.as_str() == name;
                            let is_freed = free.iter().any(|ifname| ifname.as_str() == name);
                            let is_used = state.delegates.iter().any(has_name) && !is_freed;
                            is_used || taken.iter().any(|other| other == name)
                        })
                    });
                    taken.push(name.clone());
                    let ifname = IfName::parse(&name).map_err(|error| {
                        CniError::new(CniError::INVALID_NETWORK_CONFIG, error.to_string())
                    })?;
                    resolved.push(delegate(attachment, ifname, netconf));
                }
                Ok(resolved)
            };
        let (add, add_conflicting) = attachments.split_at(diff.add.len());
        Ok(Steps {
            add: delegates(add, &[])?,
            add_conflicting: delegates(add_conflicting, &conflicting)?,
            remove: ifnames(current, &diff.remove),
            remove_conflicting: conflicting,
        })
    }
}

/// The steps of a change to one container's networks, in order.
struct Steps {
    /// Networks that are attached first.
    add: Vec<Delegate>,
    /// The interfaces of networks that are detached next.
    remove_conflicting: Vec<IfName>,
    /// Networks that are attached in their place.
    add_conflicting: Vec<Delegate>,
    /// The interfaces of networks that are detached last.
    remove: Vec<IfName>,
}

impl RunningContainer<'_> {
    /// Refuses what would fail later anyway, before anything is changed.
    fn check(&self, steps: &Steps) -> Result<(), Failure> {
        let all: Vec<&Delegate> = steps.add.iter().chain(&steps.add_conflicting).collect();
        for (index, new) in all.iter().enumerate() {
            self.check_plugins(new)?;
            if all[..index].iter().any(|other| other.ifname == new.ifname) {
                return Err(name_taken(&self.state.pod, new));
            }
            if !steps.remove_conflicting.contains(&new.ifname) {
                self.refuse_taken(new)?;
                self.engine
                    .check_link(&self.context, &self.state.pod, new)?;
            }
        }
        Ok(())
    }

    fn apply(&mut self, steps: Steps) -> Reconciled {
        let mut reconciled = Reconciled::default();
        match self.replace(
            steps.add,
            &steps.remove_conflicting,
            steps.add_conflicting,
            &steps.remove,
        ) {
            Ok(done) => reconciled = done,
            Err(error) => {
                reconciled.failure = Some(error);
                return reconciled;
            }
        }
        for ifname in &steps.remove {
            let name = self.name(ifname);
            match self.detach(ifname) {
                Ok(()) => reconciled.detached.push((name, ifname.to_string())),
                Err(error) => reconciled.detach_errors.push(error),
            }
        }
        if let Err(error) = self.restore_default_routes() {
            reconciled.detach_errors.push(error);
        }
        reconciled
    }

    /// Attaches the new networks, including those that take the place of others. If one of them fails, the pod keeps the networks that
    /// it had.
    fn replace(
        &mut self,
        add: Vec<Delegate>,
        remove_conflicting: &[IfName],
        add_conflicting: Vec<Delegate>,
        leaving: &[IfName],
    ) -> Result<Reconciled, Failure> {
        let mut reconciled = Reconciled::default();
        let mut added: Vec<IfName> = Vec::new();
        let mut detached: Vec<Delegate> = Vec::new();
        let attempt = |running: &mut Self| -> Result<(), Failure> {
            let mut attach =
                |running: &mut Self, delegates: Vec<Delegate>| -> Result<(), Failure> {
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
                        reconciled.attached.push(attached);
                    }
                    Ok(())
                };
            attach(running, add)?;
            for ifname in remove_conflicting {
                let old = running
                    .position(ifname)
                    .map(|at| running.state.delegates[at].clone());
                running.detach(ifname)?;
                detached.extend(old);
            }
            attach(running, add_conflicting)?;
            running.set_routes_of_added(&added, leaving)
        };
        if let Err(error) = attempt(self) {
            self.undo(&added);
            self.reattach(detached);
            if let Err(error) = self.restore_routes() {
                warn!(%error, "cannot restore the default routes after a failed change");
            }
            return Err(error);
        }
        let names = detached.into_iter().map(|d| (d.name, d.ifname.to_string()));
        reconciled.detached.extend(names);
        Ok(reconciled)
    }

    /// Sets the pod's default routes if one of the added networks requests them.
    fn set_routes_of_added(&mut self, added: &[IfName], leaving: &[IfName]) -> Result<(), Failure> {
        let has_route = |delegate: &Delegate| {
            added.contains(&delegate.ifname) && delegate.requested.default_route.is_some()
        };
        if self.state.delegates.iter().any(has_route) {
            self.set_routes(leaving)?;
        }
        Ok(())
    }

    fn set_routes(&mut self, leaving: &[IfName]) -> Result<(), Failure> {
        let mut all = self.networks();
        if all.len() != self.state.delegates.len() {
            let text = "cannot set default routes: they need the results of all networks of the pod, and some are not in the result cache";
            return Err(CniError::new(CniError::IO_FAILURE, text).into());
        }
        self.engine.apply_default_routes(
            &self.context,
            &mut self.state,
            &mut all,
            leaving,
            self.store,
        )
    }

    /// Sets the default routes again after a failed change.
    fn restore_routes(&mut self) -> Result<(), Failure> {
        let requests = |delegate: &Delegate| delegate.requested.default_route.is_some();
        if self.state.delegates.iter().any(requests) {
            self.set_routes(&[])?;
        }
        self.restore_default_routes()
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
}

/// Returns the networks that a container has because of the annotation, each with its position in the state.
fn annotated(state: &State, entries: &[Cached], netconf: &Netconf) -> Vec<(usize, Current)> {
    let known = |d: &Delegate| d.requested.annotation_keys.is_some() || d.requested.plugged;
    // Upstream's file does not say which networks the annotation requested. In it, a definition that is not a default network was the
    // annotation's.
    let is_upstreams = !state.delegates.iter().skip(1).any(known);
    let is_default = |name: &str| {
        let (namespace, defaults) = (&netconf.multus_namespace, &netconf.default_networks);
        defaults
            .iter()
            .any(|own| name == format!("{namespace}/{own}"))
    };
    let is_requested = |delegate: &Delegate| {
        let name = delegate.name.as_str();
        delegate.requested.annotation_keys.is_some()
            || (is_upstreams && name.contains('/') && !is_default(name))
    };
    let delegates = state.delegates.iter().enumerate().skip(1);
    delegates
        .filter(|(_, delegate)| is_requested(delegate))
        .map(|(index, delegate)| {
            let current = Current {
                network: delegate.name.clone(),
                ifname: delegate.ifname.to_string(),
                annotation_keys: delegate.requested.annotation_keys.clone(),
                is_complete: is_complete(delegate, entries),
            };
            (index, current)
        })
        .collect()
}

fn desired(selection: &Selection) -> Desired {
    Desired {
        network: format!("{}/{}", selection.namespace, selection.name),
        interface: selection.interface.clone(),
        annotation_keys: invocation::annotation_keys(selection),
    }
}

/// Returns the cached result of a network, if there is one.
fn cached_result(delegate: &Delegate, entries: &[Cached]) -> Option<CniResult> {
    let entry = entries
        .iter()
        .find(|entry| cached_results::is_of(entry, delegate))?;
    entry.parse_result(delegate.config.version()).ok()
}

/// Returns whether all plugins of a network have succeeded: only then is its last result cached.
fn is_complete(delegate: &Delegate, entries: &[Cached]) -> bool {
    delegate.progress == Progress::Started
        && entries
            .iter()
            .any(|entry| cached_results::is_of(entry, delegate) && !entry.incomplete)
}

fn ifnames(current: &[Current], positions: &[usize]) -> Vec<IfName> {
    let names = positions.iter().map(|index| &current[*index].ifname);
    names.filter_map(|name| IfName::parse(name).ok()).collect()
}

fn is_of(owner: &PodRef, pod: &PodView) -> bool {
    owner.namespace == pod.namespace
        && owner.name == pod.name
        && (pod.is_static || owner.uid == pod.uid)
}
