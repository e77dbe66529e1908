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
            Ok(Some(state)) => self.remove_known(request, netconf, &store, state),
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
    pub(super) fn remove_known(
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
        let errors = self.remove_started(&call, &mut state);
        if errors.is_empty() {
            return forget(store, request);
        }
        if let Err(error) = store.record(&state) {
            warn!(%error, "what is left to remove could not be written; all of it will be removed again");
        }
        Err(together(errors))
    }

    /// No state: DEL for what the pod would get today, as far as that can be told. Plugins take a DEL for something that
    /// is not there as success; one that is not installed cannot have been run.
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
        let mut state = new_state(request, netconf, pod, &attachments)?;
        let path = Self::search_path(netconf, &request.path);
        for delegate in &mut state.delegates {
            let mut plugins = delegate.config.plugins.iter();
            if plugins.all(|plugin| self.exec.find(&plugin.kind, &path).is_ok()) {
                delegate.progress = Progress::Started;
            }
        }
        let cache = self.cache_dir(store)?;
        let call = Call {
            request,
            pod: &state.pod.clone(),
            path,
            cache: &cache,
        };
        let errors = self.remove_started(&call, &mut state);
        if errors.is_empty() {
            forget(store, request)
        } else {
            Err(together(errors))
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

    /// DEL for every delegate that was started, the last one first; returns what failed.
    pub(super) fn remove_started(&self, call: &Call<'_>, state: &mut State) -> Vec<CniError> {
        let mut errors = Vec::new();
        for (index, delegate) in state.delegates.iter_mut().enumerate().rev() {
            if delegate.progress != Progress::Started {
                continue;
            }
            let invocation = call.invocation(delegate, index == 0);
            match chain::del(&*self.exec, &delegate.config, &invocation) {
                Ok(()) => delegate.progress = Progress::Removed,
                Err(error) => errors.push(failed(call.pod, &delegate.config.name, &error)),
            }
        }
        errors
    }
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
            "; put the plugin back into one of them, the container is detached at the next try",
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
