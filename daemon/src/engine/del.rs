//! DEL: undo what state says was begun, all of it, going on after failures. It needs neither pod nor definitions; only
//! where there is no state are they asked what may have been attached.

use std::path::Path;
use std::time::{Duration, Instant};

use cni::cache::{self, Entry};
use cni::chain::{self, ChainError};
use cni::env::{ContainerId, IfName};
use cni::exec::ExecError;
use cni::types::CniError;
use plan::netconf::Netconf;
use plan::{Attachment, PodView};
use tracing::{debug, error, info, warn};

use super::expiry::{self, Obstacle, Verdict};
use super::invocation::{CacheDir, Call};
use super::{Engine, Request, planned, recall};
use crate::state::{Delegate, PodRef, Progress, State, StateError, Store};

/// A container that is to be detached, and what is known of it besides its state.
pub(super) struct Removal<'a> {
    pub(super) request: &'a Request,
    pub(super) netconf: &'a Netconf,
    pub(super) store: &'a Store,
    pub(super) cache: CacheDir,
    pub(super) entries: Vec<Entry>,
    /// Whether anything says that it was attached; otherwise its networks are guesses.
    pub(super) is_known: bool,
}

/// A network that is not detached, and that nobody will detach any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abandoned {
    /// Its name.
    pub network: String,
    /// The interface in the container.
    pub ifname: String,
    /// The addresses that it was given, as far as they are known.
    pub ips: Vec<String>,
    /// Why it could not be detached.
    pub error: CniError,
}

impl Engine {
    /// Detaches a container from whatever it is attached to. Asked again, it succeeds again.
    pub fn del(
        &self,
        request: &Request,
        netconf: &Netconf,
        pod: Option<&PodView>,
    ) -> Result<(), CniError> {
        let request = &Request {
            netns: self.netns_left(request),
            ..request.clone()
        };
        let id = &request.container_id;
        let store = &self.store(netconf);
        let _guard = self.locks.lock(store, id);
        let cache = self.cache_dir(store)?;
        let mut entries = recall::entries(&cache.path, id);
        let mut state = Self::state_left(store, id, &request.ifname)?;
        if !state.complete && store.results_dir() != Path::new(recall::RUNTIME_RESULTS) {
            entries.extend(recall::adopt(&self.root, &cache.path, id, &request.ifname));
        }
        let removal = Removal {
            request,
            netconf,
            store,
            cache,
            is_known: state.is_known || !entries.is_empty(),
            entries,
        };
        if !state.complete
            && let Some(pod) = pod
        {
            self.add_guesses(&removal, &mut state.state, pod);
        }
        self.remove(&removal, state.state)
    }

    /// The network namespace of a container that is to be detached, if it is still there. In a request of another time, one
    /// that is named by a process id is not taken: the id may be another process's by now.
    pub(super) fn netns_left(&self, request: &Request) -> Option<String> {
        let netns = request.netns.as_deref()?;
        let is_gone = if netns.starts_with("/proc/") {
            request.replayed || matches!(Path::new(netns).try_exists(), Ok(false))
        } else {
            matches!(self.root.kind(netns), Ok(None))
        };
        (!is_gone).then(|| netns.to_owned())
    }

    /// The state of a container, or what is left of it.
    pub(super) fn state_left(
        store: &Store,
        id: &ContainerId,
        ifname: &IfName,
    ) -> Result<Left, CniError> {
        let (state, complete, is_known) = match store.load(id, ifname) {
            Ok(Some(state)) => (state, true, true),
            Ok(None) => (State::unknown(id, ifname), false, false),
            Err(damaged @ StateError::Damaged { .. }) => {
                error!(error = %damaged, "leases and links of this container may be left behind");
                let StateError::Damaged { left, .. } = damaged else {
                    unreachable!("matched above")
                };
                (*left, false, true)
            }
            Err(io) => return Err(io.into()),
        };
        Ok(Left {
            state,
            complete,
            is_known,
        })
    }

    /// Detaches what `state` and the cache list and forgets it; what fails stays known, so that the runtime can ask again.
    pub(super) fn remove(&self, removal: &Removal<'_>, mut state: State) -> Result<(), CniError> {
        let Removal {
            request,
            netconf,
            store,
            ..
        } = removal;
        recall::complete(&mut state, &removal.entries, netconf);
        if state.delegates.is_empty() {
            info!("nothing is known of this container");
        }
        let pod = state.pod.clone();
        let call = Call::new(request, &pod, netconf, &removal.cache);
        let Outcome {
            mut failures,
            given_up,
        } = self.remove_started(&call, &mut state);
        let retry = netconf.retry_delete_on_error;
        let abandon = |state: &State, failure: Failure| {
            (self.given_up)(&pod, &failure.abandoned(state, &removal.entries));
        };
        for failure in given_up {
            match retry {
                Some(true) => failures.push(failure),
                _ if removal.is_known => abandon(&state, failure),
                _ => debug!(error = %failure.error, "a guess: nothing says that it was attached"),
            }
        }
        if failures.is_empty() {
            return forget(store, &state, request);
        }
        if retry == Some(false) {
            let errors = failures.iter().map(|failure| failure.error.clone());
            let mut errors: Vec<_> = errors.collect();
            forget_results(&removal.cache, &state.delegates, &state.container_id);
            for failure in failures {
                abandon(&state, failure);
            }
            errors.extend(forget(store, &state, request).err());
            return Err(together(errors));
        }
        if retry.is_none() {
            let now = (self.clock)();
            let since = state.failing_since.map(Duration::from_secs);
            let since = since.filter(|since| *since <= now).unwrap_or(now);
            state.failing_since = Some(since.as_secs());
            let (expired, others) = failures
                .into_iter()
                .partition(|one| expiry::decide(since, now, one.obstacle) == Verdict::GiveUp);
            failures = others;
            for mut failure in expired {
                let delegate = &mut state.delegates[failure.delegate];
                delegate.progress = Progress::Removed;
                forget_results(&removal.cache, [&*delegate], &request.container_id);
                failure.error = failure.error.context(&format!(
                    "DEL has failed for {} minutes",
                    failure.obstacle.patience().as_secs() / 60
                ));
                abandon(&state, failure);
            }
            if failures.is_empty() {
                return forget(store, &state, request);
            }
        }
        if let Err(error) = store.record(&state) {
            warn!(%error, "what is left to remove could not be written; all of it will be removed again");
        }
        let errors = failures.into_iter().map(|one| one.for_runtime(retry));
        Err(together(errors.collect()))
    }

    /// Adds what the pod would get today to a state that is lost, as far as nothing better is known of those interfaces.
    /// Nobody knows whether it was attached, so that a failure there is no reason to ask again.
    fn add_guesses(&self, removal: &Removal<'_>, state: &mut State, pod: &PodView) {
        let attachments = self.guess(removal, pod);
        match planned::state(removal.request, removal.netconf, pod, &attachments) {
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
            Err(error) => debug!(%error, "networks of a container without state"),
        }
    }

    fn guess(&self, removal: &Removal<'_>, pod: &PodView) -> Vec<Attachment> {
        let netconf = removal.netconf;
        let plugins = self.plugins(netconf, &removal.request.path);
        let plain = pod.without_annotations();
        for pod in [pod, &plain] {
            match plan::attachments(Some(pod), self.inputs_with(netconf, &plugins)) {
                Ok(attachments) => return attachments,
                Err(error) => debug!(%error, "networks of a container without state"),
            }
        }
        Vec::new()
    }

    /// DEL for every delegate that may have been run, the last one first, going on after failures.
    pub(super) fn remove_started(&self, call: &Call<'_>, state: &mut State) -> Outcome {
        let mut outcome = Outcome::default();
        for (index, delegate) in state.delegates.iter_mut().enumerate().rev() {
            self.remove_one(call, delegate, index, &mut outcome);
        }
        outcome
    }

    /// DEL for one of them, the default network being the first.
    pub(super) fn remove_one(
        &self,
        call: &Call<'_>,
        delegate: &mut Delegate,
        index: usize,
        outcome: &mut Outcome,
    ) {
        let config = &delegate.config;
        let attached = match delegate.progress {
            Progress::Planned | Progress::Removed => return,
            Progress::Started => config.plugins.len(),
            Progress::Unknown => 0,
            Progress::Failed { attached } => attached,
        };
        let invocation = call.invocation(delegate, index == 0);
        let netns = call.request.netns.as_deref();
        let failed = |error: &ChainError| Failure {
            delegate: index,
            obstacle: Obstacle::of(error, netns),
            cause: plugins_own(error).cloned(),
            error: failed(call.pod, &config.name, error),
        };
        let start = Instant::now();
        let removed = chain::del_partly(&*self.exec, config, &invocation, attached);
        let done = removed.as_ref().is_ok_and(Vec::is_empty);
        self.metrics
            .delegate(config.kind(), "DEL", done, start.elapsed());
        match removed {
            Ok(given_up) if given_up.is_empty() => delegate.progress = Progress::Removed,
            Ok(given_up) => outcome.given_up.extend(given_up.iter().map(failed)),
            Err(error) => outcome.failures.push(failed(&error)),
        }
        self.forget_device_info(delegate, &call.request.container_id);
    }
}

/// What could not be detached.
#[derive(Default)]
pub(super) struct Outcome {
    /// Of what was attached.
    pub(super) failures: Vec<Failure>,
    /// Of what may never have been attached.
    pub(super) given_up: Vec<Failure>,
}

/// A network that could not be detached.
pub(super) struct Failure {
    /// Its place in the state.
    pub(super) delegate: usize,
    /// What is in the way.
    pub(super) obstacle: Obstacle,
    /// The plugin's own words, if it ran.
    cause: Option<CniError>,
    /// All of it, with pod and network.
    pub(super) error: CniError,
}

impl Failure {
    /// The error with what helps against it while it is retried.
    pub(super) fn for_runtime(self, retry: Option<bool>) -> CniError {
        let mut error = self.error;
        if self.obstacle == Obstacle::PluginMissing {
            let msg = &mut error.msg;
            msg.push_str(
                "; put the plugin back into one of them, the container is detached at the next try",
            );
            if retry.is_none() {
                let minutes = (self.obstacle.patience().as_secs() / 60).to_string();
                msg.extend([" (given up after ", &minutes, " minutes)"]);
            }
        }
        error
    }

    /// Whether the plugin refuses DEL in the very words in which it refused ADD: it cannot work with its configuration, and has
    /// done nothing.
    pub(super) fn is_like(&self, add: &CniError) -> bool {
        self.cause.as_ref().is_some_and(|cause| {
            cause.code == add.code && !cause.msg.is_empty() && add.msg.contains(&cause.msg)
        })
    }

    fn abandoned(self, state: &State, entries: &[Entry]) -> Abandoned {
        let delegate = &state.delegates[self.delegate];
        let entry = entries.iter().find(|entry| recall::is_of(entry, delegate));
        let result = entry.and_then(|entry| entry.parse_result(delegate.config.version()).ok());
        Abandoned {
            network: delegate.config.name.clone(),
            ifname: delegate.ifname.to_string(),
            ips: result
                .into_iter()
                .flat_map(|result| result.ips)
                .map(|ip| ip.address)
                .collect(),
            error: self.error,
        }
    }
}

/// What is left of a state.
pub(super) struct Left {
    pub(super) state: State,
    /// Whether it is all of it.
    pub(super) complete: bool,
    /// Whether there was any.
    pub(super) is_known: bool,
}

fn forget(store: &Store, state: &State, request: &Request) -> Result<(), CniError> {
    let id = &state.container_id;
    // A runtime asks again for what was not answered. What was found at a start may be known to no runtime.
    let removed = if request.replayed {
        store.remove(id)
    } else {
        store.remove_on_request(id)
    };
    Ok(removed?)
}

/// Cached results are remembered at the next DEL: who wants no second try has to lose them, too.
fn forget_results<'a>(
    cache: &CacheDir,
    delegates: impl IntoIterator<Item = &'a Delegate>,
    id: &ContainerId,
) {
    for delegate in delegates {
        let network = &delegate.config.name;
        let removed = cache::remove(&cache.path, network, id, &delegate.ifname);
        if let Err(error) = removed {
            warn!(%error, "the result of what could not be detached");
        }
    }
}

/// What the plugin itself answered.
fn plugins_own(error: &ChainError) -> Option<&CniError> {
    match error {
        ChainError::Plugin {
            source: ExecError::Plugin(error),
            ..
        } => Some(error),
        _ => None,
    }
}

fn failed(pod: &PodRef, network: &str, error: &ChainError) -> CniError {
    error.to_cni().context(&format!(
        "[{}/{}/{}:{network}]: error removing container from network \"{network}\"",
        pod.namespace, pod.name, pod.uid
    ))
}

/// All errors in one, with the code of the first.
pub(super) fn together(mut errors: Vec<CniError>) -> CniError {
    if errors.len() == 1 {
        return errors.remove(0);
    }
    let texts: Vec<_> = errors.iter().map(|error| error.msg.as_str()).collect();
    let details: Vec<_> = errors
        .iter()
        .map(|error| error.details.as_str())
        .filter(|details| !details.is_empty())
        .collect();
    let code = errors
        .first()
        .map_or(CniError::INTERNAL, |error| error.code);
    CniError::new(code, format!("errors: {}", texts.join(" / "))).with_details(details.join(" / "))
}
