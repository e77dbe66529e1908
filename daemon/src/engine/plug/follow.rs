//! The annotation of a pod that runs, followed: what it asks for by now is attached, what it does not ask for any more is detached.

use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::sync::PoisonError;

use cni::cache::Entry as Cached;
use cni::env::{ContainerId, IfName};
use cni::types::{CniError, CniResult};
use plan::Attached;
use plan::diff::{Changes, Has, Wants, changes, free_name};
use plan::netconf::Netconf;
use plan::{Attachment, Inputs, PlanError, PodView, Selection, requests};
use tracing::warn;

use super::super::invocation::{self, Call};
use super::super::sweep::in_store;
use super::super::{Engine, Request, Waiting, recall, routes};
use super::steps::Work;
use super::{Running, delegate};
use crate::engine::AddError;
use crate::state::{Delegate, PodRef, Progress, State};

/// What came of it.
#[derive(Debug, Default)]
pub struct Followed {
    /// Networks that are new.
    pub attached: Vec<Attached>,
    /// Networks that have gone: name and interface.
    pub detached: Vec<(String, String)>,
    /// All networks of the pod, when its status has to be written.
    pub now: Option<Vec<Attached>>,
    /// Networks that could not be detached.
    pub stuck: Vec<CniError>,
    /// Why nothing new was attached.
    pub failure: Option<AddError>,
}

impl Engine {
    /// The containers of a pod, as far as they were attached here.
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
        // Whose a container is never changes.
        for id in ids {
            if let Entry::Vacant(unknown) = owners.entry(id) {
                match Self::known(&store, &cache, unknown.key(), netconf) {
                    Ok((Some(state), _)) => drop(unknown.insert(state.pod)),
                    Ok((None, _)) => {}
                    Err(error) => {
                        warn!(%error, container_id = %unknown.key(), "whose container it is");
                    }
                }
            }
        }
        let of_pod = owners.iter().filter(|(_, owner)| is_of(owner, pod));
        Ok(of_pod.map(|(id, _)| id.clone()).collect())
    }

    /// Makes a container have what the pod's annotation asks for; `path` is where the runtime looks for plugins.
    pub fn follow(
        &self,
        id: &ContainerId,
        netconf: &Netconf,
        pod: &PodView,
        path: impl FnOnce() -> Vec<PathBuf>,
    ) -> Result<Followed, AddError> {
        let store = self.store(netconf);
        let _guard = self.locks.lock(&store, id);
        let cache = self.cache_dir(&store)?;
        let (Some(mut state), entries) = Self::known(&store, &cache, id, netconf)? else {
            return Ok(Followed::default());
        };
        let Some(request) = self.running(&state, &entries, pod) else {
            return Ok(Followed::default());
        };
        let selections = plan::selections(pod, netconf).map_err(refused)?;
        plan::check_selections(&selections).map_err(refused)?;
        let (positions, has): (Vec<usize>, Vec<Has>) =
            annotated(&state, &entries, netconf).into_iter().unzip();
        let wants: Vec<Wants> = selections.iter().map(wanted).collect();
        let todo = changes(&has, &wants);
        let owes_routes = || {
            let result = |index: usize| kept_result(&state.delegates[index], &entries);
            !routes::owed(&state.delegates, result).is_empty()
        };
        if todo.is_empty() && !state.untold && !owes_routes() {
            return Ok(Followed::default());
        }
        for (there, wanted) in &todo.kept {
            let requested = &mut state.delegates[positions[*there]].requested;
            requested.wishes = Some(wants[*wanted].wishes.clone());
        }
        let request = Request {
            path: path(),
            ..request
        };
        let plugins = self.plugins(netconf, &request.path);
        let inputs = self.inputs_with(netconf, &plugins);
        let work = self.work(&state, &todo, &has, &selections, inputs, pod)?;
        let pod_ref = state.pod.clone();
        let mut running = Running {
            engine: self,
            call: Call::new(&request, &pod_ref, netconf, &cache),
            store: &store,
            state,
            is_known: true,
            unserved: netconf.unserved,
        };
        running.check(&work)?;
        running.state.untold = true;
        running.name_all();
        let mut followed = running.apply(work);
        followed.now = Some(running.now());
        Ok(followed)
    }

    /// The pod's status was written.
    pub fn told(&self, id: &ContainerId, netconf: &Netconf) -> Result<(), CniError> {
        let store = self.store(netconf);
        let _guard = self.locks.lock(&store, id);
        match store.load(id, &super::super::sweep::default_ifname())? {
            Some(mut state) if state.untold => {
                state.untold = false;
                Ok(store.record(&state)?)
            }
            _ => Ok(()),
        }
    }

    /// The request that a container's networks are changed by; `None` unless it runs, is this pod's, and was attached as a whole.
    fn running(&self, state: &State, entries: &[Cached], pod: &PodView) -> Option<Request> {
        let is_whole =
            |delegate: &Delegate| delegate.requested.plugged || self::is_whole(delegate, entries);
        let master = state.delegates.first()?;
        if !is_of(&state.pod, pod) || !state.delegates.iter().all(is_whole) {
            return None;
        }
        let mut request = Request {
            container_id: state.container_id.clone(),
            netns: state.netns.clone().or_else(|| recall::netns(entries)),
            ifname: state.ifname.clone(),
            args: master.args.clone().unwrap_or_default(),
            path: Vec::new(),
            waiting: Waiting::default(),
            replayed: false,
        };
        request.netns = self.netns_left(&request);
        request.netns.is_some().then_some(request)
    }

    /// Everything that is to be attached, resolved before anything is touched.
    fn work(
        &self,
        state: &State,
        todo: &Changes,
        has: &[Has],
        selections: &[Selection],
        inputs: Inputs<'_>,
        pod: &PodView,
    ) -> Result<Work, AddError> {
        let netconf = inputs.netconf;
        let out: Vec<IfName> = ifnames(has, &todo.out);
        let named = selections.iter().filter_map(|one| one.interface.clone());
        let mut taken: Vec<String> = named.collect();
        // Devices of those that go first are free again.
        let mut staying = state.clone();
        staying
            .delegates
            .retain(|delegate| !out.contains(&delegate.ifname));
        let new: Vec<usize> = todo.first.iter().chain(&todo.replacing).copied().collect();
        let mut attachments = Vec::new();
        for index in &new {
            let selection = selections[*index].clone();
            attachments.push(plan::selected(pod, selection, inputs).map_err(refused)?);
        }
        requests::check(&attachments, netconf.unserved).map_err(refused)?;
        self.give_devices(&mut attachments, pod, Some(&staying))
            .map_err(refused)?;
        let mut resolve =
            |attachments: &[Attachment], free: &[IfName]| -> Result<Vec<Delegate>, AddError> {
                let mut delegates = Vec::new();
                for attachment in attachments {
                    let asked = attachment.selection.as_ref();
                    let name = asked.and_then(|selection| selection.interface.clone());
                    let name = name.unwrap_or_else(|| {
                        free_name(|name| {
                            let holds = |d: &Delegate| d.ifname.as_str() == name;
                            let is_freed = free.iter().any(|ifname| ifname.as_str() == name);
                            let is_held = state.delegates.iter().any(holds) && !is_freed;
                            is_held || taken.iter().any(|other| other == name)
                        })
                    });
                    taken.push(name.clone());
                    let ifname = IfName::parse(&name).map_err(|error| {
                        CniError::new(CniError::INVALID_NETWORK_CONFIG, error.to_string())
                    })?;
                    delegates.push(delegate(attachment, ifname, netconf));
                }
                Ok(delegates)
            };
        let (first, replacing) = attachments.split_at(todo.first.len());
        Ok(Work {
            first: resolve(first, &[])?,
            replacing: resolve(replacing, &out)?,
            last: ifnames(has, &todo.last),
            out,
        })
    }
}

/// What a container has because the annotation asked for it, and where in the state.
fn annotated(state: &State, entries: &[Cached], netconf: &Netconf) -> Vec<(usize, Has)> {
    let known = |d: &Delegate| d.requested.wishes.is_some() || d.requested.plugged;
    // Written by a program that did not remember who asked: a definition that is no default network was the annotation's.
    let nobody_knows = !state.delegates.iter().skip(1).any(known);
    let is_default = |name: &str| {
        let (namespace, defaults) = (&netconf.multus_namespace, &netconf.default_networks);
        defaults
            .iter()
            .any(|own| name == format!("{namespace}/{own}"))
    };
    let is_asked = |delegate: &Delegate| {
        let name = delegate.name.as_str();
        delegate.requested.wishes.is_some()
            || (nobody_knows && name.contains('/') && !is_default(name))
    };
    let delegates = state.delegates.iter().enumerate().skip(1);
    delegates
        .filter(|(_, delegate)| is_asked(delegate))
        .map(|(index, delegate)| {
            let has = Has {
                network: delegate.name.clone(),
                ifname: delegate.ifname.to_string(),
                wishes: delegate.requested.wishes.clone(),
                is_whole: is_whole(delegate, entries),
            };
            (index, has)
        })
        .collect()
}

fn wanted(selection: &Selection) -> Wants {
    Wants {
        network: format!("{}/{}", selection.namespace, selection.name),
        interface: selection.interface.clone(),
        wishes: invocation::wishes(selection),
    }
}

/// What a network gave, as far as it was kept.
fn kept_result(delegate: &Delegate, entries: &[Cached]) -> Option<CniResult> {
    let entry = entries
        .iter()
        .find(|entry| recall::is_of(entry, delegate))?;
    entry.parse_result(delegate.config.version()).ok()
}

/// A result is cached when the last plugin has succeeded.
fn is_whole(delegate: &Delegate, entries: &[Cached]) -> bool {
    delegate.progress == Progress::Started
        && entries.iter().any(|entry| recall::is_of(entry, delegate))
}

fn ifnames(has: &[Has], positions: &[usize]) -> Vec<IfName> {
    let names = positions.iter().map(|index| &has[*index].ifname);
    names.filter_map(|name| IfName::parse(name).ok()).collect()
}

fn is_of(owner: &PodRef, pod: &PodView) -> bool {
    owner.namespace == pod.namespace
        && owner.name == pod.name
        && (pod.is_static || owner.uid == pod.uid)
}

fn refused(error: PlanError) -> AddError {
    AddError {
        event: error.event(),
        error: error.into(),
    }
}
