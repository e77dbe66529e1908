//! One network whose configuration comes with the request, as on `/delegate`. There another controller decides which networks a pod gets and
//! writes the pod's status, so the daemon does not. It keeps state, so that the container's DEL finds the network.

use cni::cache::Entry;
use cni::chain;
use cni::config::NetworkConfig;
use cni::types::CniError;
use plan::netconf::{Netconf, UnsupportedRequests};
use plan::{Attached, Attachment, PlanError, PodView, Requested, requests};
use serde_json::{Map, Value};

use super::{RunningContainer, delegate};
use crate::engine::invocation::DelegateContext;
use crate::engine::{ContainerRequest, Engine, Failure, cached_results};
use crate::state::{Delegate, PodRef, Progress, State};

impl Engine {
    /// Returns the attachment for a configuration that came with a request; `annotation_keys` are written as in an annotation.
    pub fn explicit_attachment(
        &self,
        netconf: &Netconf,
        pod: &PodView,
        config: &[u8],
        annotation_keys: &Map<String, Value>,
    ) -> Result<Attachment, PlanError> {
        plan::explicit_attachment(pod, config, annotation_keys, self.inputs(netconf))
    }

    /// Attaches the network under the interface that the request names. A failure leaves no trace of it.
    pub fn add_explicit(
        &self,
        request: &ContainerRequest,
        netconf: &Netconf,
        pod: &PodView,
        attachment: &Attachment,
    ) -> Result<Attached, Failure> {
        if request.netns.is_none() {
            let text = "required env variables [CNI_NETNS] missing";
            return Err(CniError::new(CniError::INVALID_ENVIRONMENT, text).into());
        }
        let mut new = delegate(attachment, request.ifname.clone(), netconf);
        // The annotation did not request it, so a changed annotation must not detach it.
        new.requested.annotation_keys = None;
        requests::check(
            std::slice::from_ref(attachment),
            netconf.unsupported_requests,
        )?;
        self.with_container(request, netconf, &pod.into(), |running, _| {
            running.refuse_taken(&new)?;
            running.check_plugins(&new)?;
            request.cancellation.check()?;
            running.name_all();
            let ifname = new.ifname.clone();
            let attached = running.attach(new).and_then(|mut attached| {
                request.cancellation.check()?;
                if netconf.unsupported_requests == UnsupportedRequests::Event {
                    let lacking = requests::unsupported(attachment);
                    attached.unsupported.extend(lacking);
                }
                Ok(attached)
            });
            attached.inspect_err(|_| running.undo(&[ifname]))
        })
    }

    /// Detaches the network. A failure is returned, since the sandbox is not deleted afterwards.
    pub fn del_explicit(
        &self,
        request: &ContainerRequest,
        netconf: &Netconf,
        pod: &PodView,
        config: &NetworkConfig,
    ) -> Result<(), Failure> {
        self.with_container(request, netconf, &pod.into(), |running, entries| {
            let is_meant = |delegate: &Delegate| {
                delegate.ifname == request.ifname && delegate.config.name == config.name
            };
            match running.state.delegates.iter().position(is_meant) {
                Some(0) if running.is_known => {
                    let text = format!(
                        "{} is the pod's default network: it can be detached with the pod only",
                        request.ifname
                    );
                    return Err(CniError::new(CniError::INVALID_NETWORK_CONFIG, text).into());
                }
                Some(_) => {}
                None => {
                    let delegates = &mut running.state.delegates;
                    delegates.push(cached_delegate(request, config, entries));
                }
            }
            running.name_all();
            running.detach(&request.ifname)?;
            running.restore_default_routes()
        })
    }

    /// Runs CHECK for the network.
    pub fn check_explicit(
        &self,
        request: &ContainerRequest,
        netconf: &Netconf,
        config: &NetworkConfig,
    ) -> Result<(), Failure> {
        self.with_container(request, netconf, &PodRef::default(), |running, entries| {
            let delegate = cached_delegate(request, config, entries);
            let invocation = running.context.invocation(&delegate, false);
            chain::check(&*self.exec, config, &invocation).map_err(|error| error.to_cni().into())
        })
    }

    /// Runs STATUS for the plugins of the network.
    pub fn status_explicit(
        &self,
        path: &[std::path::PathBuf],
        netconf: &Netconf,
        config: &NetworkConfig,
    ) -> Result<(), CniError> {
        let path = Self::search_path(netconf, path);
        chain::status(&*self.exec, config, &path).map_err(|error| error.to_cni())
    }

    fn with_container<T>(
        &self,
        request: &ContainerRequest,
        netconf: &Netconf,
        pod: &PodRef,
        work: impl FnOnce(&mut RunningContainer<'_>, &[Entry]) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (store, id) = (self.store(netconf), &request.container_id);
        let _guard = self.locks.lock(&store, id);
        request.cancellation.check()?;
        let cache = self.cache_dir(&store)?;
        let (state, entries) = Self::known(&store, &cache, id, netconf)?;
        let is_known = state.is_some();
        let state = state.unwrap_or_else(|| State {
            pod: pod.clone(),
            ..State::unknown(id, &request.ifname)
        });
        let pod = state.pod.clone();
        let context = DelegateContext::new(request, &pod, netconf, &cache);
        let mut running = RunningContainer {
            is_known,
            ..RunningContainer::new(self, context, &store, state, netconf)
        };
        work(&mut running, &entries)
    }
}

/// Returns a delegate for a network that state does not list, with the cached arguments of its ADD.
fn cached_delegate(
    request: &ContainerRequest,
    config: &NetworkConfig,
    entries: &[Entry],
) -> Delegate {
    let mut delegate = Delegate {
        name: config.name.clone(),
        ifname: request.ifname.clone(),
        config: config.clone().into(),
        requested: Requested::default(),
        capability_args: Map::new(),
        args: None,
        progress: Progress::Started,
        displaced: Vec::new(),
    };
    if let Some(entry) = entries
        .iter()
        .find(|entry| cached_results::is_of(entry, &delegate))
    {
        delegate.capability_args = entry.capability_args.clone();
        delegate.args = Some(entry.cni_args.clone()).filter(|args| !args.is_empty());
    }
    delegate
}
