//! One network whose configuration somebody else made, as `/delegate` has it: another controller decides what a pod gets, and tells
//! the pod. So nothing is written into the pod's status here; state is kept, so that the container's DEL finds what it left.

use cni::cache::Entry;
use cni::chain;
use cni::config::NetworkConfig;
use cni::types::CniError;
use plan::Attached;
use plan::Requested;
use plan::netconf::{Netconf, Unserved};
use plan::{Attachment, PlanError, PodView, requests};
use serde_json::{Map, Value};

use super::super::invocation::Call;
use super::super::{Engine, Request, recall};
use super::{Running, delegate};
use crate::engine::AddError;
use crate::state::{Delegate, PodRef, Progress, State};

impl Engine {
    /// The attachment for a configuration that came with a request, and wishes as an annotation writes them.
    pub fn given(
        &self,
        netconf: &Netconf,
        pod: &PodView,
        config: &[u8],
        wishes: &Map<String, Value>,
    ) -> Result<Attachment, PlanError> {
        plan::given(pod, config, wishes, self.inputs(netconf))
    }

    /// Attaches it under the interface that the request names, or leaves no trace of it.
    pub fn plug(
        &self,
        request: &Request,
        netconf: &Netconf,
        pod: &PodView,
        attachment: &Attachment,
    ) -> Result<Attached, AddError> {
        if request.netns.is_none() {
            let text = "required env variables [CNI_NETNS] missing";
            return Err(CniError::new(CniError::INVALID_ENVIRONMENT, text).into());
        }
        let mut new = delegate(attachment, request.ifname.clone(), netconf);
        // No annotation asked for it, so none takes it away.
        new.requested.wishes = None;
        requests::check(std::slice::from_ref(attachment), netconf.unserved)
            .map_err(CniError::from)?;
        self.with_container(request, netconf, &pod.into(), |running, _| {
            running.refuse_taken(&new)?;
            running.check_plugins(&new)?;
            request.waiting.or_give_up()?;
            running.name_all();
            let ifname = new.ifname.clone();
            let attached = running.attach(new).and_then(|mut attached| {
                request.waiting.or_give_up()?;
                if netconf.unserved == Unserved::Event {
                    let lacking = requests::without_capability(attachment);
                    attached.unserved.extend(lacking);
                }
                Ok(attached)
            });
            attached.inspect_err(|_| running.undo(&[ifname]))
        })
        .map_err(AddError::from)
    }

    /// Detaches it. A failure is returned, as no sandbox goes after it.
    pub fn unplug(
        &self,
        request: &Request,
        netconf: &Netconf,
        pod: &PodView,
        config: &NetworkConfig,
    ) -> Result<(), CniError> {
        self.with_container(request, netconf, &pod.into(), |running, entries| {
            let is_meant = |delegate: &Delegate| {
                delegate.ifname == request.ifname && delegate.config.name == config.name
            };
            match running.state.delegates.iter().position(is_meant) {
                Some(0) if running.is_known => {
                    let text = format!(
                        "{} is the pod's default network: it goes with the pod",
                        request.ifname
                    );
                    return Err(CniError::new(CniError::INVALID_NETWORK_CONFIG, text));
                }
                Some(_) => {}
                None => {
                    let delegates = &mut running.state.delegates;
                    delegates.push(remembered(request, config, entries));
                }
            }
            running.name_all();
            running.detach(&request.ifname)?;
            running.give_routes_back()
        })
    }

    /// Verifies it.
    pub fn check_plugged(
        &self,
        request: &Request,
        netconf: &Netconf,
        config: &NetworkConfig,
    ) -> Result<(), CniError> {
        self.with_container(request, netconf, &PodRef::default(), |running, entries| {
            let delegate = remembered(request, config, entries);
            let invocation = running.call.invocation(&delegate, false);
            chain::check(&*self.exec, config, &invocation).map_err(|error| error.to_cni())
        })
    }

    /// Asks its plugins whether they could serve.
    pub fn status_of(
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
        request: &Request,
        netconf: &Netconf,
        pod: &PodRef,
        work: impl FnOnce(&mut Running<'_>, &[Entry]) -> Result<T, CniError>,
    ) -> Result<T, CniError> {
        let (store, id) = (self.store(netconf), &request.container_id);
        let _guard = self.locks.lock(&store, id);
        request.waiting.or_give_up()?;
        let cache = self.cache_dir(&store)?;
        let (state, entries) = Self::known(&store, &cache, id, netconf)?;
        let is_known = state.is_some();
        let state = state.unwrap_or_else(|| State {
            pod: pod.clone(),
            ..State::unknown(id, &request.ifname)
        });
        let pod = state.pod.clone();
        let mut running = Running {
            engine: self,
            call: Call::new(request, &pod, netconf, &cache),
            store: &store,
            state,
            is_known,
            unserved: netconf.unserved,
        };
        work(&mut running, &entries)
    }
}

/// What was attached, with the arguments that it was attached with.
fn remembered(request: &Request, config: &NetworkConfig, entries: &[Entry]) -> Delegate {
    let mut delegate = Delegate {
        name: config.name.clone(),
        ifname: request.ifname.clone(),
        config: config.clone(),
        requested: Requested::default(),
        capability_args: Map::new(),
        args: None,
        progress: Progress::Started,
        displaced: Vec::new(),
    };
    if let Some(entry) = entries.iter().find(|entry| recall::is_of(entry, &delegate)) {
        delegate.capability_args = entry.capability_args.clone();
        delegate.args = Some(entry.cni_args.clone()).filter(|args| !args.is_empty());
    }
    delegate
}
