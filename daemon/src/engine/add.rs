//! ADD plans, checks everything that can be checked, writes state, runs the delegates in order, and undoes all of them on
//! the first failure.

use std::panic::resume_unwind;
use std::sync::PoisonError;
use std::thread;
use std::time::Instant;

use cni::chain;
use cni::types::{CniError, CniResult};
use plan::netconf::{Netconf, UnsupportedRequests};
use plan::{Attached, PlanError, PodView, requests};
use tracing::{debug, warn};

use super::del::Outcome;
use super::failure::{Failure, add_failed, failed, name_taken, not_found};
use super::invocation::DelegateContext;
use super::verb_exec::VerbExec;
use super::{ContainerRequest, Engine, planned};
use crate::readiness;
use crate::state::{AddRecord, Delegate, PodRef, Progress, State, Store};

/// The stack of a thread that makes one system call, in bytes.
const SYNC_STACK: usize = 64 << 10;

/// The outcome of a successful ADD.
#[derive(Debug, Clone)]
pub struct Added {
    /// The default network's result, for the runtime.
    pub result: CniResult,
    /// Every attached network in order, for status and events.
    pub attached: Vec<Attached>,
}

impl Engine {
    /// Attaches a pod to all its networks, or to none.
    pub fn add(
        &self,
        request: &ContainerRequest,
        netconf: &Netconf,
        pod: &PodView,
    ) -> Result<Added, Failure> {
        self.attach(request, netconf, pod)
            .map_err(|failure| failure.about(pod))
    }

    fn attach(
        &self,
        request: &ContainerRequest,
        netconf: &Netconf,
        pod: &PodView,
    ) -> Result<Added, Failure> {
        if request.netns.is_none() {
            let text = "required env variables [CNI_NETNS] missing";
            return Err(CniError::new(CniError::INVALID_ENVIRONMENT, text).into());
        }
        self.wait_until_ready(netconf)?;
        let plugins = self.plugins(netconf, &request.path);
        let inputs = self.inputs_with(netconf, &plugins);
        let planned = plan::attachments(Some(pod), inputs);
        let attachments = planned.and_then(|mut attachments| {
            requests::check(&attachments, netconf.unsupported_requests)?;
            self.assign_devices(&mut attachments, pod, None)?;
            Ok(attachments)
        })?;
        let store = self.store(netconf);
        let _guard = self.locks.lock(&store, &request.container_id);
        request.cancellation.check()?;
        refuse_known(&store, request)?;
        let mut state =
            planned::state(request, netconf, pod, &attachments, self.statuses.is_some())?;
        let cache = self.cache_dir(&store)?;
        let pod_ref = state.pod.clone();
        let context = DelegateContext::new(request, &pod_ref, netconf, &cache);
        self.check_before(&context, &state)?;
        state.delegates[0].progress = Progress::Started;
        let begun = {
            let _no_gc = self.gc_lock.read().unwrap_or_else(PoisonError::into_inner);
            store.begin(&state)
        };
        let begun = begun.inspect_err(|_| {
            // Nothing ran, so a partly written record serves no purpose.
            let _ = store.remove(&request.container_id);
        })?;
        match self.run_delegates(
            &context,
            &mut state,
            &store,
            &begun,
            netconf.unsupported_requests,
        ) {
            Ok(mut attached) => {
                if netconf.unsupported_requests == UnsupportedRequests::Event {
                    for (attached, attachment) in attached.iter_mut().zip(&attachments) {
                        let others = requests::unsupported(attachment);
                        attached.unsupported.extend(others);
                    }
                }
                self.put_status(&store, &state.container_id, pod, &attached);
                Ok(Added {
                    result: attached[0].result.clone(),
                    attached,
                })
            }
            Err(failure) => {
                let keep = netconf.retry_delete_on_error == Some(true);
                self.roll_back(&context, &mut state, &store, &failure, keep);
                Err(failure)
            }
        }
    }

    /// Refuses what would fail later anyway: a missing plugin, an interface name that is taken.
    fn check_before(&self, context: &DelegateContext<'_>, state: &State) -> Result<(), Failure> {
        for delegate in &state.delegates {
            context.check_name(delegate)?;
            for plugin in &delegate.config.plugins {
                self.exec
                    .find(&plugin.kind, &context.path)
                    .map_err(|error| not_found(&state.pod, delegate, &error))?;
            }
        }
        let names = state
            .delegates
            .iter()
            .map(|delegate| delegate.ifname.as_str());
        let repeated = plan::first_duplicate(names);
        for (index, delegate) in state.delegates.iter().enumerate() {
            if repeated == Some(index) {
                return Err(name_taken(&state.pod, delegate));
            }
            self.check_link(context, &state.pod, delegate)?;
        }
        Ok(())
    }

    pub(super) fn check_link(
        &self,
        context: &DelegateContext<'_>,
        pod: &PodRef,
        delegate: &Delegate,
    ) -> Result<(), Failure> {
        let netns = context.request.netns.as_deref().unwrap_or_default();
        match context.has_interface(&*self.links, delegate.ifname.as_str()) {
            Ok(false) => Ok(()),
            Ok(true) => Err(name_taken(pod, delegate)),
            Err(error) => {
                let text =
                    format!("cannot list the interfaces of network namespace {netns}: {error}");
                let error = CniError::new(CniError::INVALID_NETNS, text);
                Err(failed(pod, delegate, error.into()))
            }
        }
    }

    /// Runs the delegates in order. State records a delegate as started before its plugins run.
    fn run_delegates(
        &self,
        context: &DelegateContext<'_>,
        state: &mut State,
        store: &Store,
        begun: &AddRecord,
        unsupported_requests: UnsupportedRequests,
    ) -> Result<Vec<Attached>, Failure> {
        let mut attached = Vec::new();
        for index in 0..state.delegates.len() {
            let is_default = index == 0;
            if !is_default {
                // A delegate before this one may have made an interface of that name.
                self.check_link(context, &state.pod, &state.delegates[index])?;
                begun.start(index)?;
                state.delegates[index].progress = Progress::Started;
            }
            let delegate = &mut state.delegates[index];
            let mut run = || self.run_delegate(context, delegate, is_default, unsupported_requests);
            attached.push(if is_default {
                while_synced(begun, run)?
            } else {
                run()?
            });
            context.request.cancellation.check()?;
        }
        self.apply_default_routes(context, state, &mut attached, &[], store)?;
        Ok(attached)
    }

    /// Runs one delegate, which the caller has recorded as started.
    pub(super) fn run_delegate(
        &self,
        context: &DelegateContext<'_>,
        delegate: &mut Delegate,
        is_default: bool,
        unsupported_requests: UnsupportedRequests,
    ) -> Result<Attached, Failure> {
        let invocation = context.invocation(delegate, is_default);
        self.copy_device_info(delegate, &context.request.container_id);
        debug!(network = delegate.name, ifname = %delegate.ifname, "running ADD of a delegate");
        let kind = delegate.config.kind();
        let exec = VerbExec::attaching(&*self.exec, context);
        let start = Instant::now();
        let added = chain::add(&exec, &delegate.config, &invocation);
        let took = start.elapsed();
        self.metrics.delegate(kind, "ADD", added.is_ok(), took);
        let result = match added {
            Ok(result) => result,
            Err(error) => {
                if let Some(attached) = error.attached() {
                    delegate.progress = Progress::Failed { attached };
                }
                return Err(add_failed(context.pod, delegate, &error));
            }
        };
        let container = &context.request.container_id;
        (self.durations).note(container, &delegate.ifname, context.pod, took);
        let missing = match unsupported_requests {
            UnsupportedRequests::Silent => Vec::new(),
            _ => requests::unassigned_addresses(&delegate.requested, &delegate.config, &result),
        };
        if unsupported_requests == UnsupportedRequests::Error && !missing.is_empty() {
            let error = PlanError::Unsupported {
                network: delegate.name.clone(),
                requests: missing.join(", "),
            };
            return Err(failed(context.pod, delegate, error.into()));
        }
        Ok(Attached {
            unsupported: missing.into_iter().map(str::to_owned).collect(),
            ..self.attached(context, delegate, is_default, result)
        })
    }

    /// The report about a delegate that returned this result.
    pub(super) fn attached(
        &self,
        context: &DelegateContext<'_>,
        delegate: &Delegate,
        is_default: bool,
        result: CniResult,
    ) -> Attached {
        Attached {
            name: delegate.name.clone(),
            ifname: delegate.ifname.to_string(),
            is_default,
            result,
            unsupported: Vec::new(),
            device_info: self.device_info(delegate, &context.request.container_id),
        }
    }

    /// Undoes the delegates that were started, the failing one first. A delegate that cannot be undone stays in the state for the
    /// runtime's DEL. One whose plugin refuses DEL with the error of its ADD has done nothing and is dropped, unless `keep` says
    /// that every failure is retried.
    fn roll_back(
        &self,
        context: &DelegateContext<'_>,
        state: &mut State,
        store: &Store,
        add: &Failure,
        keep: bool,
    ) {
        // The failure of this delegate has to be on record even if the daemon ends before the rollback does.
        let mut written = vec![store.record(state)];
        let Outcome {
            failures,
            mut uncertain,
        } = self.remove_started(context, state);
        uncertain.retain(|one| keep || !one.matches(add));
        for one in failures.iter().chain(&uncertain) {
            warn!(error = %one.failure, "cannot undo a delegate of a failed ADD");
        }
        written.push(if failures.is_empty() && uncertain.is_empty() {
            store.remove(&state.container_id)
        } else {
            store.record(state)
        });
        for error in written.into_iter().filter_map(Result::err) {
            warn!(%error, "cannot write the state of a failed ADD");
        }
    }

    fn wait_until_ready(&self, netconf: &Netconf) -> Result<(), CniError> {
        let Some(indicator) = &netconf.readiness_indicator_file else {
            return Ok(());
        };
        for attempt in 0..self.readiness_polling.attempts {
            if attempt > 0 {
                std::thread::sleep(self.readiness_polling.interval);
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

/// Runs the first delegate while its record reaches the disk, and returns when both are done.
fn while_synced<T>(
    record: &AddRecord,
    run: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    if record.is_synced() {
        return run();
    }
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(SYNC_STACK);
        let Ok(sync) = thread.spawn_scoped(scope, || record.sync()) else {
            record.sync()?;
            return run();
        };
        let done = run()?;
        sync.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok(done)
    })
}

/// Refuses an ADD for a container that has attachments: the new record would replace theirs, and no DEL would find them.
fn refuse_known(store: &Store, request: &ContainerRequest) -> Result<(), CniError> {
    let id = &request.container_id;
    match store.load(id, &request.ifname)? {
        None => Ok(()),
        Some(_) => Err(CniError::new(
            CniError::TRY_AGAIN_LATER,
            format!(
                "container {id} has attachments already: the runtime has to send DEL before it sends ADD again"
            ),
        )),
    }
}
