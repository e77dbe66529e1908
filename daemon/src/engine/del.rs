//! DEL undoes every delegate that state records as begun, and goes on after failures. It needs neither pod nor definitions;
//! only for a container without state do they tell which networks may have been attached.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::plugins::PLUGIN_DIR;
use cni::cache::{self, Entry};
use cni::chain::{self, ChainError, Invocation};
use cni::config::NetworkConfig;
use cni::env::{ContainerId, IfName};
use cni::exec::{Exec, ExecError};
use cni::types::CniError;
use plan::netconf::Netconf;
use plan::{Attachment, PodView};
use serde_json::{Map, Value};
use tracing::{debug, error, info, warn};

use super::expiry::{self, Obstacle, Verdict};
use super::failure::Failure;
use super::invocation::{CacheDir, DelegateContext};
use super::verb_exec::VerbExec;
use super::{ContainerRequest, Engine, cached_results, planned};
use crate::state::{Delegate, Progress, State, StateError, Store};

/// The step of DEL in texts.
const REMOVING: &str = "removing container from";

/// A container that is to be detached, with everything known of it besides its state.
pub(super) struct Removal<'a> {
    pub(super) request: &'a ContainerRequest,
    pub(super) netconf: &'a Netconf,
    pub(super) store: &'a Store,
    pub(super) cache: CacheDir,
    pub(super) entries: Vec<Entry>,
    /// Whether state or cache show that it was attached; otherwise its networks are guesses.
    pub(super) is_known: bool,
}

/// A network that could not be detached and is no longer retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abandoned {
    /// The network's name.
    pub network: String,
    /// The interface in the container.
    pub ifname: String,
    /// The addresses that its plugins allocated, as far as they are known.
    pub ips: Vec<String>,
    /// Why it could not be detached.
    pub failure: Failure,
}

impl Engine {
    /// Detaches a container from all of its networks. A repeated DEL succeeds.
    pub fn del(
        &self,
        request: &ContainerRequest,
        netconf: &Netconf,
        pod: Option<&PodView>,
    ) -> Result<(), Failure> {
        let request = &ContainerRequest {
            netns: self.existing_netns(request),
            ..request.clone()
        };
        let id = &request.container_id;
        let store = &self.store(netconf);
        let _guard = self.locks.lock(store, id);
        let cache = self.cache_dir(store)?;
        let mut entries = cached_results::entries(&cache.path, id);
        let mut state = Self::load_partial(store, id, &request.ifname)?;
        if !state.complete && store.results_dir() != Path::new(cached_results::RUNTIME_RESULTS) {
            entries.extend(cached_results::adopt(
                &self.root,
                &cache.path,
                id,
                &request.ifname,
            ));
        }
        let removal = Removal {
            request,
            netconf,
            store,
            cache,
            is_known: state.is_known || !entries.is_empty(),
            entries,
        };
        if !state.complete {
            self.add_guesses(&removal, &mut state.state, pod);
        }
        self.remove(&removal, state.state)
    }

    /// Returns the network namespace of a container that is to be detached, if it still exists. A replayed request's namespace
    /// that is named by a process id is not used, since the id may belong to another process by then.
    pub(super) fn existing_netns(&self, request: &ContainerRequest) -> Option<String> {
        let netns = request.netns.as_deref()?;
        let is_deleted = if netns.starts_with("/proc/") {
            request.replayed || matches!(Path::new(netns).try_exists(), Ok(false))
        } else {
            matches!(self.root.kind(netns), Ok(None))
        };
        (!is_deleted).then(|| netns.to_owned())
    }

    /// Loads the state of a container, or as much of it as can be read.
    pub(super) fn load_partial(
        store: &Store,
        id: &ContainerId,
        ifname: &IfName,
    ) -> Result<PartialState, CniError> {
        let (state, complete, is_known) = match store.load(id, ifname) {
            Ok(Some(state)) => (state, true, true),
            Ok(None) => (State::unknown(id, ifname), false, false),
            Err(damaged @ StateError::Damaged { .. }) => {
                error!(error = %damaged, "state is damaged; leases and links of the container may stay behind");
                let StateError::Damaged { partial, .. } = damaged else {
                    unreachable!("matched above")
                };
                (*partial, false, true)
            }
            Err(io) => return Err(io.into()),
        };
        Ok(PartialState {
            state,
            complete,
            is_known,
        })
    }

    /// Detaches every network that `state` and the cache list, and forgets it. A network that fails stays known, so that the
    /// runtime's next DEL finds it.
    pub(super) fn remove(&self, removal: &Removal<'_>, mut state: State) -> Result<(), Failure> {
        let Removal {
            request,
            netconf,
            store,
            ..
        } = removal;
        if let Some(statuses) = &self.statuses {
            statuses.cancel(&request.container_id);
        }
        cached_results::complete(&mut state, &removal.entries, netconf);
        if state.delegates.is_empty() {
            info!("DEL found no state or cached result of the container");
        }
        let pod = state.pod.clone();
        let context = DelegateContext::new(request, &pod, netconf, &removal.cache);
        let Outcome {
            mut failures,
            uncertain,
        } = self.remove_started(&context, &mut state);
        let retry = netconf.retry_delete_on_error;
        let abandon = |state: &State, removal_failure: RemovalFailure| {
            (self.on_abandoned)(&pod, &removal_failure.abandoned(state, &removal.entries));
        };
        for failure in uncertain {
            match retry {
                Some(true) => failures.push(failure),
                _ if removal.is_known => abandon(&state, failure),
                _ => {
                    debug!(error = %failure.failure, "DEL of a network that may never have been attached failed");
                }
            }
        }
        if failures.is_empty() {
            return Ok(forget(store, &state, request)?);
        }
        if retry == Some(false) {
            let errors = failures.iter().map(|one| one.failure.clone());
            let mut errors: Vec<_> = errors.collect();
            for failure in failures {
                self.remove_rest(&context, &state.delegates[failure.delegate], &failure);
                abandon(&state, failure);
            }
            forget_results(&removal.cache, &state.delegates, &state.container_id);
            errors.extend(forget(store, &state, request).err().map(Failure::from));
            return Err(Failure::sum(errors));
        }
        if retry.is_none() {
            let now = (self.clock)();
            let since = state.failing_since.map(Duration::from_secs);
            let since = since.filter(|since| *since <= now).unwrap_or(now);
            state.failing_since = Some(since.as_secs());
            let (expired, others) = failures
                .into_iter()
                .partition(|one| expiry::decide(since, now, one.obstacle) == Verdict::Abandon);
            failures = others;
            for mut failure in expired {
                let delegate = &mut state.delegates[failure.delegate];
                self.remove_rest(&context, delegate, &failure);
                delegate.progress = Progress::Removed;
                forget_results(&removal.cache, [&*delegate], &request.container_id);
                failure.failure.context = format!(
                    "DEL has failed for {} minutes: ",
                    failure.obstacle.retry_period().as_secs() / 60
                );
                abandon(&state, failure);
            }
            if failures.is_empty() {
                return Ok(forget(store, &state, request)?);
            }
        }
        if let Err(error) = store.record(&state) {
            warn!(%error, "cannot record the networks that remain attached; the next DEL repeats all of them");
        }
        let failures = failures.into_iter().map(|one| one.for_runtime(retry));
        Err(Failure::sum(failures.collect()))
    }

    /// Adds the networks that the pod would get today to a state that was lost, except for interfaces that state or cache know.
    /// They may never have been attached, so a failed DEL of one is not retried. Without a pod there is nothing to add, unless a power cut took
    /// the record of an ADD while its default network was attached.
    pub(super) fn add_guesses(
        &self,
        removal: &Removal<'_>,
        state: &mut State,
        pod: Option<&PodView>,
    ) {
        let unknown = PodView::default();
        let Some(pod) = pod.or(state.rebooted.then_some(&unknown)) else {
            return;
        };
        let attachments = self.guess(removal, pod);
        match planned::state(removal.request, removal.netconf, pod, &attachments, false) {
            Ok(guessed) => {
                state.pod = guessed.pod;
                for mut delegate in guessed.delegates {
                    let in_cache = removal
                        .entries
                        .iter()
                        .any(|entry| entry.if_name == delegate.ifname.as_str());
                    let known = state.delegates.iter().any(|d| d.ifname == delegate.ifname);
                    if !in_cache && !known {
                        delegate.progress = Progress::Unknown;
                        state.delegates.push(delegate);
                    }
                }
            }
            Err(error) => debug!(%error, "cannot guess the networks of a container without state"),
        }
    }

    fn guess(&self, removal: &Removal<'_>, pod: &PodView) -> Vec<Attachment> {
        let netconf = removal.netconf;
        let plugins = self.plugins(netconf, &removal.request.path);
        let plain = pod.without_annotations();
        for pod in [pod, &plain] {
            match plan::attachments(Some(pod), self.inputs_with(netconf, &plugins)) {
                Ok(attachments) => return attachments,
                Err(error) => {
                    debug!(%error, "cannot guess the networks of a container without state");
                }
            }
        }
        Vec::new()
    }

    /// Runs DEL for every delegate that may have been run, in reverse order, and goes on after failures.
    pub(super) fn remove_started(
        &self,
        context: &DelegateContext<'_>,
        state: &mut State,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        for (index, delegate) in state.delegates.iter_mut().enumerate().rev() {
            self.remove_delegate(context, delegate, index, &mut outcome);
        }
        outcome
    }

    /// Runs DEL for one delegate; the one at index 0 is the default network.
    pub(super) fn remove_delegate(
        &self,
        context: &DelegateContext<'_>,
        delegate: &mut Delegate,
        index: usize,
        outcome: &mut Outcome,
    ) {
        let config = &delegate.config;
        (self.durations).forget(&context.request.container_id, &delegate.ifname);
        let attached = match delegate.progress {
            Progress::Planned | Progress::Removed => return,
            Progress::Started => config.plugins.len(),
            Progress::Unknown => 0,
            Progress::Failed { attached } => attached,
        };
        let invocation = context.invocation(delegate, index == 0);
        let netns = context.request.netns.as_deref();
        let failed = |error: &ChainError| RemovalFailure {
            delegate: index,
            obstacle: Obstacle::of(error, netns),
            plugins_before: match error {
                ChainError::Plugin { index, .. } => *index,
                _ => 0,
            },
            plugin_error: plugin_error(error).cloned(),
            failure: Failure::from_chain(context.pod, &config.name, REMOVING, error),
        };
        let start = Instant::now();
        let exec = VerbExec::detaching(&*self.exec, context, index == 0);
        let removed = chain::del_partly(&exec, config, &invocation, attached);
        let done = removed.as_ref().is_ok_and(|done| done.failed.is_empty());
        self.metrics
            .delegate(config.kind(), "DEL", done, start.elapsed());
        match removed {
            Ok(done) => {
                if let Some(error) = done.cache_error {
                    warn!(%error, "cannot remove the cached result of a detached network");
                }
                outcome.uncertain.extend(done.failed.iter().map(failed));
                if done.failed.is_empty() {
                    if netns.is_none() {
                        remove_host_rules(&exec, delegate, &invocation);
                    }
                    delegate.progress = Progress::Removed;
                }
            }
            Err(error) => outcome.failures.push(failed(&error)),
        }
        self.remove_device_info(delegate, &context.request.container_id);
    }

    /// Runs DEL for the plugins before the one that failed, which have waited for it, when the network is abandoned: they hold addresses.
    fn remove_rest(
        &self,
        context: &DelegateContext<'_>,
        delegate: &Delegate,
        failure: &RemovalFailure,
    ) {
        let mut config = NetworkConfig::clone(&delegate.config);
        config.plugins.truncate(failure.plugins_before);
        let is_default = failure.delegate == 0;
        let invocation = context.invocation(delegate, is_default);
        let exec = VerbExec::detaching(&*self.exec, context, is_default);
        // None of them counts as attached, so that each of them runs.
        match chain::del_partly(&exec, &config, &invocation, 0) {
            Ok(done) => {
                for error in done.failed {
                    warn!(%error, "cannot undo a plugin of an abandoned network");
                }
            }
            Err(error) => warn!(%error, "cannot undo an abandoned network"),
        }
    }
}

/// Runs DEL of our own `bridge` or `ptp` after another program of that name has succeeded without a network namespace. The reference's
/// programs then leave the chain of `ipMasq` on the node for ever; ours find it by network and container.
fn remove_host_rules(exec: &dyn Exec, delegate: &Delegate, invocation: &Invocation) {
    let own = vec![PathBuf::from(PLUGIN_DIR)];
    for plugin in &delegate.config.plugins {
        let has_rules = matches!(plugin.kind.as_str(), "bridge" | "ptp")
            && ["ipMasq", "macspoofchk"]
                .iter()
                .any(|key| plugin.value.get(*key) == Some(&Value::Bool(true)));
        let (Ok(found), Ok(ours)) = (
            exec.find(&plugin.kind, &invocation.path),
            exec.find(&plugin.kind, &own),
        ) else {
            continue;
        };
        if !has_rules || found == ours {
            continue;
        }
        let mut value = plugin.value.clone();
        // Its addresses are released already.
        value.insert("ipam".to_owned(), Value::Object(Map::new()));
        value.insert("name".to_owned(), delegate.config.name.clone().into());
        value.insert(
            "cniVersion".to_owned(),
            delegate.config.cni_version.clone().into(),
        );
        let invocation = Invocation {
            path: own.clone(),
            ..invocation.clone()
        };
        let removed = NetworkConfig::parse(Value::Object(value).to_string().as_bytes())
            .map_err(|error| error.to_string())
            .and_then(|config| {
                chain::del(exec, &config, &invocation).map_err(|error| error.to_string())
            });
        if let Err(error) = removed {
            warn!(
                error,
                plugin = plugin.kind,
                "cannot remove the node's rules of a detached network"
            );
        }
    }
}

/// The failures of a series of DELs.
#[derive(Default)]
pub(super) struct Outcome {
    /// Failures of networks that were attached.
    pub(super) failures: Vec<RemovalFailure>,
    /// Failures of networks that may never have been attached.
    pub(super) uncertain: Vec<RemovalFailure>,
}

/// A network that could not be detached.
pub(super) struct RemovalFailure {
    /// The position of the delegate in the state.
    pub(super) delegate: usize,
    /// The kind of failure, which decides how long it is retried.
    pub(super) obstacle: Obstacle,
    /// The number of plugins that have not run, since DEL ends at the one that fails.
    plugins_before: usize,
    /// The plugin's own error, if it ran.
    plugin_error: Option<CniError>,
    /// The failure with pod and network.
    pub(super) failure: Failure,
}

impl RemovalFailure {
    /// Returns the failure with a hint where one helps while DEL is retried.
    pub(super) fn for_runtime(self, retry: Option<bool>) -> Failure {
        let mut failure = self.failure;
        if self.obstacle == Obstacle::PluginMissing {
            let hint = &mut failure.hint;
            hint.push_str(
                "put the plugin back into one of them: the runtime's next DEL then detaches the container",
            );
            if retry.is_none() {
                let minutes = (self.obstacle.retry_period().as_secs() / 60).to_string();
                hint.extend([" (retries end after ", &minutes, " minutes)"]);
            }
        }
        failure
    }

    /// Returns whether the plugin refuses DEL with the same error as ADD: it then rejects its configuration and has done nothing.
    pub(super) fn matches(&self, add: &Failure) -> bool {
        self.plugin_error
            .as_ref()
            .is_some_and(|error| !error.msg.is_empty() && *error == add.error)
    }

    fn abandoned(self, state: &State, entries: &[Entry]) -> Abandoned {
        let delegate = &state.delegates[self.delegate];
        let entry = entries
            .iter()
            .find(|entry| cached_results::is_of(entry, delegate));
        let result = entry.and_then(|entry| entry.parse_result(delegate.config.version()).ok());
        Abandoned {
            network: delegate.config.name.clone(),
            ifname: delegate.ifname.to_string(),
            ips: result
                .into_iter()
                .flat_map(|result| result.ips)
                .map(|ip| ip.address)
                .collect(),
            failure: self.failure,
        }
    }
}

/// The state of a container as far as it could be read.
pub(super) struct PartialState {
    pub(super) state: State,
    /// Whether nothing of the state is missing.
    pub(super) complete: bool,
    /// Whether there was any state.
    pub(super) is_known: bool,
}

fn forget(store: &Store, state: &State, request: &ContainerRequest) -> Result<(), CniError> {
    let id = &state.container_id;
    // A runtime repeats a DEL that was not answered. No runtime may know of a container that was found at a start or in the journal.
    let removed = if request.replayed {
        store.remove(id)
    } else {
        store.remove_on_request(id)
    };
    Ok(removed?)
}

/// Removes the delegates' cached results, without which the next DEL does not find them again.
fn forget_results<'a>(
    cache: &CacheDir,
    delegates: impl IntoIterator<Item = &'a Delegate>,
    id: &ContainerId,
) {
    for delegate in delegates {
        let network = &delegate.config.name;
        let removed = cache::remove(&cache.path, network, id, &delegate.ifname);
        if let Err(error) = removed {
            warn!(%error, "cannot remove the cached result of an abandoned network");
        }
    }
}

/// Returns the error that the plugin itself printed.
fn plugin_error(error: &ChainError) -> Option<&CniError> {
    match error {
        ChainError::Plugin {
            source: ExecError::Plugin(error),
            ..
        } => Some(error),
        _ => None,
    }
}
