//! DEL: undo what state says was begun, all of it, going on after failures. It needs neither pod nor definitions; only
//! where there is no state are they asked what may have been attached.

use cni::chain::{self, ChainError};
use cni::exec::ExecError;
use cni::types::CniError;
use cni::version::Version;
use serde_json::Map;
use tracing::{error, info, warn};

use super::add::{new_state, state_error};
use super::invocation::Call;
use super::{Engine, Request};
use crate::netconf::Netconf;
use crate::plan::{self, Attachment, PodView};
use crate::state::{PodRef, Progress, State, StateError, Store};

impl Engine {
    /// Detaches a container from whatever it is attached to. Asked again, it succeeds again.
    pub fn del(
        &self,
        request: &Request,
        netconf: &Netconf,
        pod: Option<&PodView>,
    ) -> Result<(), CniError> {
        let store = self.store(netconf);
        let _guard = self.locks.lock(&store, &request.container_id);
        match store.load(&request.container_id, &request.ifname) {
            Ok(Some(state)) => self.remove(request, netconf, &store, state),
            Ok(None) => self.remove_guessed(request, netconf, &store, pod),
            Err(damaged @ StateError::Damaged { .. }) => {
                error!(error = %damaged, "leases and links of this container may be left behind");
                if let Err(error) = self.remove_guessed(request, netconf, &store, pod) {
                    error!(%error, "removing what the pod would have today");
                }
                forget(&store, request)
            }
            Err(io) => Err(state_error(&io)),
        }
    }

    /// Detaches what `state` lists and forgets it; what fails stays known, so that the runtime can ask again.
    pub(super) fn remove(
        &self,
        request: &Request,
        netconf: &Netconf,
        store: &Store,
        mut state: State,
    ) -> Result<(), CniError> {
        complete(&mut state, netconf);
        let cache = self.cache_dir(store)?;
        let pod = state.pod.clone();
        let call = Call {
            request,
            pod: &pod,
            path: Self::search_path(netconf, &request.path),
            cache: &cache,
        };
        let Outcome {
            mut errors,
            given_up,
        } = self.remove_started(&call, &mut state);
        if netconf.retry_delete_on_error == Some(true) {
            errors.extend(given_up);
        } else {
            for error in given_up {
                warn!(%error, "given up, as nothing may have been attached there");
            }
        }
        if errors.is_empty() {
            return forget(store, request);
        }
        if netconf.retry_delete_on_error == Some(false) {
            let forgotten = forget(store, request);
            errors.extend(forgotten.err());
        } else if let Err(error) = store.record(&state) {
            warn!(%error, "what is left to remove could not be written; all of it will be removed again");
        }
        Err(together(errors))
    }

    /// No state: DEL for what the pod would get today, as far as that can be told. Nobody knows whether it was attached,
    /// so that a failure here is no reason to ask again.
    fn remove_guessed(
        &self,
        request: &Request,
        netconf: &Netconf,
        store: &Store,
        pod: Option<&PodView>,
    ) -> Result<(), CniError> {
        let Some(pod) = pod else {
            info!("nothing is known of this container");
            return forget(store, request);
        };
        let attachments = self.guess(netconf, pod);
        match new_state(request, netconf, pod, &attachments) {
            Ok(mut state) => {
                for delegate in &mut state.delegates {
                    delegate.progress = Progress::Failed { attached: 0 };
                }
                self.remove(request, netconf, store, state)
            }
            Err(error) => {
                warn!(%error, "networks of a container without state");
                forget(store, request)
            }
        }
    }

    fn guess(&self, netconf: &Netconf, pod: &PodView) -> Vec<Attachment> {
        let plain = pod.without_annotations();
        for pod in [pod, &plain] {
            match plan::attachments(Some(pod), self.inputs(netconf)) {
                Ok(attachments) => return attachments,
                Err(error) => warn!(%error, "networks of a container without state"),
            }
        }
        Vec::new()
    }

    /// DEL for every delegate that may have been run, the last one first, going on after failures.
    pub(super) fn remove_started(&self, call: &Call<'_>, state: &mut State) -> Outcome {
        let mut outcome = Outcome::default();
        for (index, delegate) in state.delegates.iter_mut().enumerate().rev() {
            let config = &delegate.config;
            let attached = match delegate.progress {
                Progress::Planned | Progress::Removed => continue,
                Progress::Started | Progress::Unknown => config.plugins.len(),
                Progress::Failed { attached } => attached,
            };
            let invocation = call.invocation(delegate, index == 0);
            let failed = |error| failed(call.pod, &config.name, error);
            match chain::del_partly(&*self.exec, config, &invocation, attached) {
                Ok(given_up) if given_up.is_empty() => delegate.progress = Progress::Removed,
                Ok(given_up) => outcome.given_up.extend(given_up.iter().map(failed)),
                Err(error) => outcome.errors.push(failed(&error)),
            }
        }
        outcome
    }
}

/// What could not be detached.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Of what was attached.
    pub(super) errors: Vec<CniError>,
    /// Of what may never have been attached.
    pub(super) given_up: Vec<CniError>,
}

/// Fills in what upstream's file does not keep.
pub(super) fn complete(state: &mut State, netconf: &Netconf) {
    for (index, delegate) in state.delegates.iter_mut().enumerate() {
        let config = &delegate.config;
        if config.is_list
            && config.cni_version.is_empty()
            && let Ok(version) = netconf.cni_version.parse::<Version>()
        {
            delegate.config = config.with_version(version);
        }
        if index == 0 && delegate.capability_args == Map::new() {
            delegate.capability_args.clone_from(&netconf.runtime_config);
        }
    }
}

fn forget(store: &Store, request: &Request) -> Result<(), CniError> {
    store
        .remove(&request.container_id)
        .map_err(|error| state_error(&error))
}

fn failed(pod: &PodRef, network: &str, error: &ChainError) -> CniError {
    let mut cause = error.to_cni();
    if let ChainError::Plugin {
        source: ExecError::NotFound { .. },
        ..
    } = error
    {
        cause.msg.push_str(
            "; put the plugin back into one of them, the container is detached at the next try (or set retryDeleteOnError to false: then nothing is tried again)",
        );
    }
    cause.context(&format!(
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
