//! ADD: plan, check everything that can be checked, write state, run delegates in order, undo all on the first failure.

use std::sync::PoisonError;

use cni::chain;
use cni::types::{CniError, CniResult};
use plan::netconf::{Netconf, Unserved};
use plan::{Attached, PlanError, PodView, requests};
use tracing::{debug, warn};

use super::del::Outcome;
use super::failure::{failed, name_taken};
use super::invocation::Call;
use super::{Engine, Request, planned};
use crate::readiness;
use crate::state::{Begun, Delegate, PodRef, Progress, State, Store};

/// What an ADD gave.
#[derive(Debug, Clone)]
pub struct Added {
    /// The default network's result, for the runtime.
    pub result: CniResult,
    /// Every network in order, for status and events.
    pub attached: Vec<Attached>,
}

/// Why an ADD failed, and the warning event that the pod deserves for it.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct AddError {
    /// The answer to the runtime.
    pub error: CniError,
    /// Reason and message.
    pub event: Option<(&'static str, String)>,
}

impl From<CniError> for AddError {
    fn from(error: CniError) -> Self {
        Self { error, event: None }
    }
}

impl From<AddError> for CniError {
    fn from(error: AddError) -> Self {
        error.error
    }
}

impl Engine {
    /// Attaches a pod to all its networks, or to none.
    pub fn add(
        &self,
        request: &Request,
        netconf: &Netconf,
        pod: &PodView,
    ) -> Result<Added, AddError> {
        self.attach(request, netconf, pod).map_err(|mut failure| {
            failure.error = failure.error.context(&format!(
                "error configuring pod [{}/{}] networking",
                pod.namespace, pod.name
            ));
            failure
        })
    }

    fn attach(
        &self,
        request: &Request,
        netconf: &Netconf,
        pod: &PodView,
    ) -> Result<Added, AddError> {
        if request.netns.is_none() {
            let text = "required env variables [CNI_NETNS] missing";
            return Err(CniError::new(CniError::INVALID_ENVIRONMENT, text).into());
        }
        self.wait_until_ready(netconf)?;
        let plugins = self.plugins(netconf, &request.path);
        let inputs = self.inputs_with(netconf, &plugins);
        let planned = plan::attachments(Some(pod), inputs);
        let attachments = planned.and_then(|mut attachments| {
            requests::check(&attachments, netconf.unserved)?;
            self.give_devices(&mut attachments, pod, None)?;
            Ok(attachments)
        });
        let attachments = attachments.map_err(|error| AddError {
            event: PlanError::event(&error),
            error: error.into(),
        })?;
        let store = self.store(netconf);
        let _guard = self.locks.lock(&store, &request.container_id);
        request.waiting.or_give_up()?;
        refuse_known(&store, request)?;
        let mut state = planned::state(request, netconf, pod, &attachments)?;
        let cache = self.cache_dir(&store)?;
        let pod_ref = state.pod.clone();
        let call = Call::new(request, &pod_ref, netconf, &cache);
        self.check_before(&call, &state)?;
        state.delegates[0].progress = Progress::Started;
        let begun = {
            let _no_gc = self.adding.read().unwrap_or_else(PoisonError::into_inner);
            store.begin(&state)
        };
        let begun = begun.map_err(|error| {
            // Nothing ran, so what was written of the state is of no use to anyone.
            let _ = store.remove(&request.container_id);
            CniError::from(error)
        })?;
        match self.run_all(&call, &mut state, &store, &begun, netconf.unserved) {
            Ok(mut attached) => {
                if netconf.unserved == Unserved::Event {
                    for (attached, attachment) in attached.iter_mut().zip(&attachments) {
                        let others = requests::without_capability(attachment);
                        attached.unserved.extend(others);
                    }
                }
                Ok(Added {
                    result: attached[0].result.clone(),
                    attached,
                })
            }
            Err(error) => {
                let keep = netconf.retry_delete_on_error == Some(true);
                self.roll_back(&call, &mut state, &store, &error, keep);
                Err(error.into())
            }
        }
    }

    /// Everything that would fail later anyway: a plugin that is missing, an interface name that is taken.
    fn check_before(&self, call: &Call<'_>, state: &State) -> Result<(), CniError> {
        for delegate in &state.delegates {
            for plugin in &delegate.config.plugins {
                self.exec.find(&plugin.kind, &call.path).map_err(|error| {
                    let cause = error.to_cni();
                    failed(&state.pod, delegate, cause)
                })?;
            }
        }
        let names = state
            .delegates
            .iter()
            .map(|delegate| delegate.ifname.as_str());
        let repeated = plan::repeated(names);
        for (index, delegate) in state.delegates.iter().enumerate() {
            if repeated == Some(index) {
                return Err(failed(&state.pod, delegate, name_taken(delegate)));
            }
            self.check_link(call, &state.pod, delegate)?;
        }
        Ok(())
    }

    pub(super) fn check_link(
        &self,
        call: &Call<'_>,
        pod: &PodRef,
        delegate: &Delegate,
    ) -> Result<(), CniError> {
        let netns = call.request.netns.as_deref().unwrap_or_default();
        match call.has_interface(&*self.links, delegate.ifname.as_str()) {
            Ok(false) => Ok(()),
            Ok(true) => Err(failed(pod, delegate, name_taken(delegate))),
            Err(error) => {
                let text = format!("cannot look into network namespace {netns}: {error}");
                Err(failed(
                    pod,
                    delegate,
                    CniError::new(CniError::INVALID_NETNS, text),
                ))
            }
        }
    }

    /// Runs the delegates in order. State says that a delegate is started before it is.
    fn run_all(
        &self,
        call: &Call<'_>,
        state: &mut State,
        store: &Store,
        begun: &Begun,
        unserved: Unserved,
    ) -> Result<Vec<Attached>, CniError> {
        let mut attached = Vec::new();
        for index in 0..state.delegates.len() {
            let master = index == 0;
            if !master {
                // A delegate before this one may have made an interface of that name.
                self.check_link(call, &state.pod, &state.delegates[index])?;
                begun.start(index)?;
                state.delegates[index].progress = Progress::Started;
            }
            let delegate = &mut state.delegates[index];
            attached.push(self.run_one(call, delegate, master, unserved)?);
            call.request.waiting.or_give_up()?;
        }
        self.settle_routes(call, state, &mut attached, &[], store)?;
        Ok(attached)
    }

    /// Runs one delegate, which state says is started.
    pub(super) fn run_one(
        &self,
        call: &Call<'_>,
        delegate: &mut Delegate,
        master: bool,
        unserved: Unserved,
    ) -> Result<Attached, CniError> {
        let invocation = call.invocation(delegate, master);
        self.bring_device_info(delegate, &call.request.container_id);
        debug!(network = delegate.name, ifname = %delegate.ifname, "adding");
        let kind = delegate.config.kind();
        let add = || chain::add(&*self.exec, &delegate.config, &invocation);
        let result = match self.metrics.timed_delegate(kind, "ADD", add) {
            Ok(result) => result,
            Err(error) => {
                if let Some(attached) = error.attached() {
                    delegate.progress = Progress::Failed { attached };
                }
                return Err(failed(call.pod, delegate, error.to_cni()));
            }
        };
        let missing = match unserved {
            Unserved::Silent => Vec::new(),
            _ => requests::not_given(&delegate.requested, &delegate.config, &result),
        };
        if unserved == Unserved::Error && !missing.is_empty() {
            let error = PlanError::Unserved {
                network: delegate.name.clone(),
                requests: missing.join(", "),
            };
            return Err(failed(call.pod, delegate, error.into()));
        }
        Ok(Attached {
            unserved: missing.into_iter().map(str::to_owned).collect(),
            ..self.attached(call, delegate, master, result)
        })
    }

    /// What there is to tell of a delegate that gave this result.
    pub(super) fn attached(
        &self,
        call: &Call<'_>,
        delegate: &Delegate,
        master: bool,
        result: CniResult,
    ) -> Attached {
        Attached {
            name: delegate.name.clone(),
            ifname: delegate.ifname.to_string(),
            master,
            result,
            unserved: Vec::new(),
            device_info: self.device_info(delegate, &call.request.container_id),
        }
    }

    /// Undoes what was started, the failing one first. What cannot be undone stays in the state for the runtime's DEL; not so a plugin
    /// that refuses DEL as it refused ADD, for it has done nothing, unless `keep` says that every failure is retried.
    fn roll_back(
        &self,
        call: &Call<'_>,
        state: &mut State,
        store: &Store,
        add: &CniError,
        keep: bool,
    ) {
        // That this delegate failed is to be known even if the rest is cut off.
        let mut written = vec![store.record(state)];
        let Outcome {
            failures,
            mut given_up,
        } = self.remove_started(call, state);
        given_up.retain(|one| keep || !one.is_like(add));
        for one in failures.iter().chain(&given_up) {
            warn!(error = %one.error, "undoing a failed ADD");
        }
        written.push(if failures.is_empty() && given_up.is_empty() {
            store.remove(&state.container_id)
        } else {
            store.record(state)
        });
        for error in written.into_iter().filter_map(Result::err) {
            warn!(%error, "state after a failed ADD");
        }
    }

    fn wait_until_ready(&self, netconf: &Netconf) -> Result<(), CniError> {
        let Some(indicator) = &netconf.readiness_indicator_file else {
            return Ok(());
        };
        for attempt in 0..self.readiness.attempts {
            if attempt > 0 {
                std::thread::sleep(self.readiness.interval);
            }
            if self.is_ready(indicator) {
                return Ok(());
            }
        }
        Err(CniError::new(
            CniError::TRY_AGAIN_LATER,
            readiness::waiting_for(indicator),
        ))
    }
}

/// An ADD for a container with attachments would lose track of them.
fn refuse_known(store: &Store, request: &Request) -> Result<(), CniError> {
    let id = &request.container_id;
    match store.load(id, &request.ifname)? {
        None => Ok(()),
        Some(_) => Err(CniError::new(
            CniError::TRY_AGAIN_LATER,
            format!(
                "container {id} has attachments already: the runtime has to DEL it before it adds it again"
            ),
        )),
    }
}
