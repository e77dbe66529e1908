//! Serves one request of the socket, from its JSON to its response. Blocks: the caller provides a thread.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use api::{Request, Response};
use cni::{env::Command, types::CniError};
use plan::{Attached, PodView, daemon_config::Config, netconf::Netconf};
use tokio::sync::{Semaphore, watch};
use tracing::{debug, info, info_span, warn};

use crate::{
    call::CniCall,
    cluster::Cluster,
    config_manager,
    engine::{self, Engine, Failure},
    errors::{
        failure::{Report, VerbError},
        recent::RecentFailures,
    },
    host::exec::RuntimeExec,
    journal::{self, Journal},
    metrics::Metrics,
    networks::Networks,
    readiness::{Gate, Readiness},
    serving::{Bodies, Queue},
    state::PodRef,
    statuses::Statuses,
};

/// Serves CNI requests.
pub struct Service {
    /// Runs the verbs.
    pub engine: Engine,
    /// Runs the plugins.
    pub exec: Arc<RuntimeExec>,
    /// Unset until the daemon has access to the API server.
    pub cluster: Arc<OnceLock<Cluster>>,
    /// The daemon's file.
    pub config: Arc<Config>,
    /// The state of the daemon's gates.
    pub readiness: Arc<Readiness>,
    /// The daemon's metrics.
    pub metrics: Arc<Metrics>,
    /// Recent failures, for `kubectl multus`.
    pub failures: RecentFailures,
    /// The number of verbs in flight.
    pub busy: watch::Sender<usize>,
    /// True while shims connect to another daemon, or to none because this one is shutting down.
    pub withdrawn: watch::Sender<bool>,
    /// The network statuses that are not written yet.
    pub statuses: Arc<Statuses>,
    /// Decides when each verb begins.
    pub queue: Arc<Queue>,
    /// The memory that large requests share.
    pub bodies: Bodies,
    /// DELs that wait for their replay.
    pub journal: Arc<Journal>,
    /// Finds out which definitions the node can serve.
    pub networks: Networks,
    /// The right to read the node's files for a snapshot.
    pub snapshots: Arc<Semaphore>,
}

/// Gets the answer to a request, once.
pub(crate) type Answer<'a> = &'a mut dyn FnMut(Result<Vec<u8>, CniError>);

/// The outcome of a verb that succeeded.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// The body of the answer.
    pub(crate) body: Vec<u8>,
    /// The networks that were attached, and their pod.
    pub(crate) attached: Option<(Arc<PodView>, Vec<Attached>)>,
}

/// Counts a verb as in flight until it is dropped.
pub struct Busy(watch::Sender<usize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.send_modify(|verbs| *verbs -= 1);
    }
}

impl Service {
    /// Counts one more verb in flight.
    pub fn busy(&self) -> Busy {
        self.busy.send_modify(|verbs| *verbs += 1);
        Busy(self.busy.clone())
    }

    /// Serves `/cni`; see [`observed`](Self::observed).
    pub(crate) fn cni(&self, call: &CniCall, raw_request: &Request, answer: Answer<'_>) {
        self.observed(call, answer, || self.dispatch(call, raw_request));
    }

    /// Replays a journaled DEL.
    pub fn replay(&self, request: &Request) -> Result<(), CniError> {
        let mut call = CniCall::parse(request)?;
        if let Some(request) = &mut call.request {
            request.replayed = true;
        }
        let mut done = Ok(());
        self.cni(&call, request, &mut |answer| done = answer.map(drop));
        self.metrics.replayed(done.is_ok());
        done
    }

    /// Reports the first failure of a DEL of the journal in an event.
    pub(crate) fn report_entry(&self, pod: &PodRef, reason: &str) {
        let message = format!("{reason}; it is retried");
        if let Some(cluster) = self.cluster.get() {
            cluster.event_about(pod, true, "FailedDelNetwork", message);
        }
    }

    /// Serves one verb, logs and counts its outcome, and reports a failure under one id. `answer` gets the body of a 200, or the error that becomes
    /// a 400, before the pod's events are written: nothing that the runtime does not need delays it.
    pub(crate) fn observed(
        &self,
        call: &CniCall,
        answer: Answer<'_>,
        serve: impl FnOnce() -> Result<Served, VerbError>,
    ) {
        let (id, ifname) = call
            .request
            .as_ref()
            .map_or(("", ""), |r| (r.container_id.as_str(), r.ifname.as_str()));
        let pod_name = call
            .pod
            .as_ref()
            .map_or_else(String::new, |pod| format!("{}/{}", pod.namespace, pod.name));
        let _span =
            info_span!("cni", command = %call.command, container_id = id, ifname, pod = pod_name)
                .entered();
        let start = Instant::now();
        let outcome = serve();
        self.metrics
            .verb(call.command.as_str(), outcome.is_ok(), start.elapsed());
        let VerbError { failure, event } = match outcome {
            Ok(Served { body, attached }) => {
                answer(Ok(body));
                debug!("request served");
                if call.command == Command::Add {
                    self.failures.forget(&pod_name);
                }
                if let (Some(cluster), Some((pod, attached))) = (self.cluster.get(), attached) {
                    self.statuses.wake();
                    report_attached(cluster, &pod, &attached);
                    cluster.notify_if_annotation_changed(&pod);
                }
                return;
            }
            Err(error) => error,
        };
        let report = Report::new(call, failure);
        let failure = &report.failure;
        if let (Some(cluster), Some((pod, reason))) = (self.cluster.get(), event) {
            cluster.failure_event(&pod, reason, failure.cause, report.event());
        }
        let verb = call.command.as_str();
        self.failures.note(&report.id, &pod_name, verb, failure);
        warn!(
            id = report.id,
            cause = %failure.cause,
            code = failure.error.code,
            msg = %failure,
            details = failure.error.details,
            "request failed"
        );
        answer(Err(report.answer()));
    }

    fn dispatch(&self, call: &CniCall, raw_request: &Request) -> Result<Served, VerbError> {
        let netconf = self.config.netconf(&raw_request.config);
        let netconf = netconf.map_err(CniError::from)?;
        if call.command != Command::Status
            && let Err(reason) = self.readiness.was_open(Gate::Discovery)
        {
            // Delegates cannot run before the runtime is known, but the runtime must still be able to delete a pod.
            if let (Command::Del, Some(request)) = (call.command, &call.request) {
                self.journal_del(raw_request, request, &reason)?;
                return Ok(Served::default());
            }
            return Err(not_known_yet(&reason).into());
        }
        if matches!(call.command, Command::Add | Command::Check) {
            netconf.check_prev_result().map_err(CniError::from)?;
        }
        match (call.command, &call.request) {
            (Command::Add, Some(request)) => self.add(call, request, &netconf),
            (Command::Del, Some(request)) => self.del(call, request, &netconf),
            (Command::Check, Some(request)) => {
                self.engine.check(request, &netconf)?;
                Ok(Served::default())
            }
            (Command::Gc, _) => {
                self.engine.gc(&call.path, &netconf)?;
                Ok(Served::default())
            }
            (Command::Status, _) => {
                self.status(call, &netconf)?;
                Ok(Served::default())
            }
            (command, _) => {
                let text = format!("{command} is not served here");
                Err(CniError::new(CniError::INVALID_ENVIRONMENT, text).into())
            }
        }
    }

    /// The netconf of attachments that no request of the runtime brings: hot plug and cleanup.
    pub(crate) fn effective_netconf(&self) -> Result<Netconf, CniError> {
        config_manager::effective_netconf(self.engine.root(), &self.config)
    }

    /// Fails until discovery has found where delegates run.
    pub(crate) fn on_known_node(&self) -> Result<(), CniError> {
        let known = self.readiness.was_open(Gate::Discovery);
        known.map_err(|reason| not_known_yet(&reason))
    }

    fn status(&self, call: &CniCall, netconf: &Netconf) -> Result<(), CniError> {
        if self.readiness.is_restarting(Instant::now()) {
            return Ok(());
        }
        if let Some(problem) = self.readiness.problem() {
            return Err(CniError::new(CniError::PLUGIN_NOT_AVAILABLE, problem));
        }
        self.engine.status(&call.path, netconf)
    }

    fn add(
        &self,
        call: &CniCall,
        request: &engine::ContainerRequest,
        netconf: &Netconf,
    ) -> Result<Served, VerbError> {
        let (_, pod) = self.pod_for_add(call)?;
        let added = self.engine.add(request, netconf, &pod);
        let added = added.map_err(|error| VerbError::add(&pod, error))?;
        Ok(Served {
            body: Response::new(added.result).to_json(),
            attached: Some((pod, added.attached)),
        })
    }

    /// The pod of a request that attaches, and access to the API server, or an error while the daemon is not ready to attach.
    pub(crate) fn pod_for_add(&self, call: &CniCall) -> Result<(&Cluster, Arc<PodView>), Failure> {
        for (gate, first) in [
            (Gate::Journal, "earlier deletions come first"),
            (Gate::Watches, "pods and networks are not known yet"),
        ] {
            // The request was held until both were open, unless it timed out.
            self.readiness.was_open(gate).map_err(|reason| {
                CniError::new(CniError::TRY_AGAIN_LATER, format!("{first}: {reason}"))
            })?;
        }
        let name = call.pod.as_ref().ok_or_else(no_pod_name)?;
        let cluster = self.cluster.get().ok_or_else(|| {
            CniError::new(
                CniError::TRY_AGAIN_LATER,
                "the daemon has no access to the API server: see its log",
            )
        })?;
        let pod = cluster.pod_for_add(&name.namespace, &name.name, name.uid.as_deref())?;
        pod.check_uid(name.uid.as_deref())?;
        Ok((cluster, pod))
    }

    fn del(
        &self,
        call: &CniCall,
        request: &engine::ContainerRequest,
        netconf: &Netconf,
    ) -> Result<Served, VerbError> {
        let pod = self.pod_for_del(call);
        let detached = self.engine.del(request, netconf, pod.as_deref());
        detached.map_err(|failure| match &call.pod {
            // A journaled DEL is retried many times; `report_entry` reports its failures.
            Some(pod) if !request.replayed => VerbError::del(pod.pod_ref(), failure),
            _ => failure.into(),
        })?;
        Ok(Served::default())
    }

    /// Journals a DEL for a later replay, as the shim does while no daemon answers.
    fn journal_del(
        &self,
        raw_request: &Request,
        request: &engine::ContainerRequest,
        reason: &str,
    ) -> Result<(), CniError> {
        let netns = request.netns.as_deref().unwrap_or_default();
        let name = api::journal::file_name(&request.container_id, &request.ifname, netns);
        journal::put(self.engine.root(), &self.config.cni_dir, &name, raw_request).map_err(
            |error| {
                let text = format!(
                    "this node is not known yet: {reason}; and DEL cannot be journaled: {error}"
                );
                CniError::new(CniError::TRY_AGAIN_LATER, text)
            },
        )?;
        warn!(
            reason,
            "this node is not known yet: DEL journaled for replay"
        );
        Ok(())
    }

    /// The pod of a container without state. A pod with another uid is a different pod.
    fn pod_for_del(&self, call: &CniCall) -> Option<Arc<PodView>> {
        let name = call.pod.as_ref()?;
        let pod = self
            .cluster
            .get()?
            .watched_pod(&name.namespace, &name.name)?;
        pod.check_uid(name.uid.as_deref()).ok().map(|()| pod)
    }
}

/// Logs which networks were attached to a pod, and reports them in one event.
pub(crate) fn report_attached(cluster: &Cluster, pod: &PodView, attached: &[Attached]) {
    info!(networks = attached.len(), "attached");
    for message in plan::added_events(attached) {
        cluster.event(pod, false, "AddedInterface", message);
    }
    for message in attached.iter().filter_map(Attached::warning) {
        cluster.event(pod, true, "CapabilityNotServed", message);
    }
}

fn not_known_yet(reason: &str) -> CniError {
    let text = format!("this node is not known yet: {reason}");
    CniError::new(CniError::TRY_AGAIN_LATER, text)
}

fn no_pod_name() -> CniError {
    CniError::new(
        CniError::INVALID_ENVIRONMENT,
        "CNI_ARGS holds no K8S_POD_NAMESPACE and K8S_POD_NAME: multus serves pods only",
    )
}
