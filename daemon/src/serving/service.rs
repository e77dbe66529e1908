//! One request of the socket, from its JSON to its answer. Blocks; whoever calls it brings a thread.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use api::{Request, Response};
use cni::{env::Command, types::CniError};
use plan::{Attached, PodView, daemon_config::Config, netconf::Netconf, network_status};
use tokio::sync::watch;
use tracing::{debug, info, info_span, warn};

use crate::{
    call::Call,
    cluster::Cluster,
    config_manager,
    engine::{self, AddError, Added, Engine},
    errors::{failure::Failure, recent::Failures},
    journal::{self, Journal},
    metrics::Metrics,
    readiness::{Part, Readiness},
    serving::{Bodies, Queue},
    state::PodRef,
};

/// Serves requests.
pub struct Service {
    /// Runs the verbs.
    pub engine: Engine,
    /// The API server, once there is access to it.
    pub cluster: Arc<OnceLock<Cluster>>,
    /// The daemon's file.
    pub config: Arc<Config>,
    /// What is missing.
    pub readiness: Arc<Readiness>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What went wrong of late.
    pub failures: Failures,
    /// How many verbs are under way.
    pub busy: watch::Sender<usize>,
    /// Whether shims find another daemon, or none, instead of this one that ends.
    pub withdrawn: watch::Sender<bool>,
    /// Which verb begins when.
    pub queue: Arc<Queue>,
    /// What large requests share.
    pub bodies: Bodies,
    /// DELs that were written down.
    pub journal: Arc<Journal>,
}

/// A failure of a DEL that was written down, as its pod's owner hears of it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EntryFailure {
    /// The first of a row.
    First,
    /// The last: it is not tried any more.
    Last,
}

/// Counts a verb for as long as it lives.
pub struct Busy(watch::Sender<usize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.send_modify(|verbs| *verbs -= 1);
    }
}

impl Service {
    /// One more verb is under way.
    pub fn busy(&self) -> Busy {
        self.busy.send_modify(|verbs| *verbs += 1);
        Busy(self.busy.clone())
    }

    /// Serves `/cni`: the body of a 200, or the error that becomes a 400.
    pub(crate) fn cni(&self, call: &Call, asked: &Request) -> Result<Vec<u8>, CniError> {
        self.observed(call, || self.dispatch(call, asked))
    }

    /// Does what was written down earlier.
    pub fn replay(&self, request: &Request) -> Result<(), CniError> {
        let mut call = Call::parse(request)?;
        if let Some(request) = &mut call.request {
            request.replayed = true;
        }
        let done = self.cni(&call, request);
        self.metrics.replayed(done.is_ok());
        done.map(drop)
    }

    /// Tells the pod's owner of a DEL that was written down and fails: at the beginning and at the end, not at every attempt.
    pub(crate) fn tell_of_entry(&self, pod: &PodRef, failure: EntryFailure, reason: &str) {
        let message = match failure {
            EntryFailure::First => format!("{reason}; it is tried again"),
            EntryFailure::Last => format!("{reason}; given up until the next start of the daemon"),
        };
        if let Some(cluster) = self.cluster.get() {
            cluster.event_about(pod, true, "FailedDelNetwork", message);
        }
    }

    /// One verb, logged and counted.
    pub(crate) fn observed(
        &self,
        call: &Call,
        serve: impl FnOnce() -> Result<Vec<u8>, CniError>,
    ) -> Result<Vec<u8>, CniError> {
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
        let answer = serve();
        self.metrics
            .verb(call.command.as_str(), answer.is_ok(), start.elapsed());
        if answer.is_ok() {
            debug!("done");
            if call.command == Command::Add {
                self.failures.forget(&pod_name);
            }
        }
        answer.map_err(|error| {
            let failure = Failure::new(call, error);
            let verb = call.command.as_str();
            self.failures
                .note(&failure.id, &pod_name, verb, &failure.error);
            warn!(
                id = failure.id,
                code = failure.error.code,
                msg = failure.error.msg,
                details = failure.error.details,
                "failed"
            );
            failure.for_runtime()
        })
    }

    fn dispatch(&self, call: &Call, asked: &Request) -> Result<Vec<u8>, CniError> {
        let netconf = self.config.netconf(&asked.config)?;
        if call.command != Command::Status
            && let Err(reason) = self.readiness.once_well(Part::Discovery)
        {
            // Where delegates run is not known, and a pod must be able to go all the same.
            if let (Command::Del, Some(request)) = (call.command, &call.request) {
                return self.del_later(asked, request, &reason);
            }
            return Err(not_known_yet(&reason));
        }
        if matches!(call.command, Command::Add | Command::Check) {
            netconf.check_prev_result()?;
        }
        match (call.command, &call.request) {
            (Command::Add, Some(request)) => self.add(call, request, &netconf),
            (Command::Del, Some(request)) => self.del(call, request, &netconf),
            (Command::Check, Some(request)) => {
                self.engine.check(request, &netconf).map(|()| Vec::new())
            }
            (Command::Gc, _) => self.engine.gc(&call.path, &netconf).map(|()| Vec::new()),
            (Command::Status, _) => self.status(call, &netconf),
            (command, _) => Err(CniError::new(
                CniError::INVALID_ENVIRONMENT,
                format!("{command} is not served here"),
            )),
        }
    }

    /// The configuration that pods are attached by.
    pub(crate) fn standing_netconf(&self) -> Result<Netconf, CniError> {
        config_manager::standing_netconf(self.engine.root(), &self.config)
    }

    /// Where delegates run is known.
    pub(crate) fn on_known_node(&self) -> Result<(), CniError> {
        let known = self.readiness.once_well(Part::Discovery);
        known.map_err(|reason| not_known_yet(&reason))
    }

    fn status(&self, call: &Call, netconf: &Netconf) -> Result<Vec<u8>, CniError> {
        if let Some(problem) = self.readiness.problem() {
            return Err(CniError::new(CniError::PLUGIN_NOT_AVAILABLE, problem));
        }
        self.engine.status(&call.path, netconf).map(|()| Vec::new())
    }

    fn add(
        &self,
        call: &Call,
        request: &engine::Request,
        netconf: &Netconf,
    ) -> Result<Vec<u8>, CniError> {
        let (cluster, pod) = self.pod_for_add(call)?;
        let attached = self.engine.add(request, netconf, &pod).and_then(|added| {
            tell(cluster, &pod, &added).inspect_err(|_| self.undo(request, netconf))?;
            Ok(added)
        });
        let added = attached.map_err(|AddError { error, event }| {
            let failure = Failure::new(call, error);
            let (reason, message) =
                event.unwrap_or_else(|| ("FailedAddNetwork", failure.error.msg.clone()));
            cluster.event(&pod, true, reason, failure.for_event(&message));
            failure.error
        })?;
        cluster.attached_as(&pod);
        info!(networks = added.attached.len(), "attached");
        Ok(Response::new(added.result).to_json())
    }

    /// The pod of a request that attaches, and who knows it: once everything is there that an attachment needs.
    pub(crate) fn pod_for_add(&self, call: &Call) -> Result<(&Cluster, Arc<PodView>), CniError> {
        for (part, first) in [
            (Part::Journal, "earlier deletions come first"),
            (Part::Watches, "pods and networks are not known yet"),
        ] {
            // The request was held until they were there, unless its time was over.
            self.readiness.once_well(part).map_err(|reason| {
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
        call: &Call,
        request: &engine::Request,
        netconf: &Netconf,
    ) -> Result<Vec<u8>, CniError> {
        let pod = self.pod_for_del(call);
        let detached = self.engine.del(request, netconf, pod.as_deref());
        let told = detached.map_err(|error| {
            let failure = Failure::new(call, error);
            // What was written down is tried again and again; its failures are told elsewhere.
            if let (Some(cluster), Some(pod), false) =
                (self.cluster.get(), &call.pod, request.replayed)
            {
                let message = failure.for_event(&failure.error.msg);
                cluster.event_about(&pod.about(), true, "FailedDelNetwork", message);
            }
            failure.error
        });
        told.map(|()| Vec::new())
    }

    /// Leaves a DEL to the journal, as the shim does while nobody answers.
    fn del_later(
        &self,
        asked: &Request,
        request: &engine::Request,
        reason: &str,
    ) -> Result<Vec<u8>, CniError> {
        let netns = request.netns.as_deref().unwrap_or_default();
        let name = api::journal::file_name(&request.container_id, &request.ifname, netns);
        journal::put(self.engine.root(), &self.config.cni_dir, &name, asked).map_err(|error| {
            let text = format!(
                "this node is not known yet: {reason}; and DEL cannot be written down: {error}"
            );
            CniError::new(CniError::TRY_AGAIN_LATER, text)
        })?;
        warn!(reason, "this node is not known yet: DEL is written down");
        Ok(Vec::new())
    }

    /// The runtime is about to hear of a failure: it gets no half of an ADD.
    fn undo(&self, request: &engine::Request, netconf: &Netconf) {
        if let Err(error) = self.engine.del(request, netconf, None) {
            warn!(%error, "undoing a failed ADD");
        }
    }

    /// For a container without state; a pod with another uid is another pod.
    fn pod_for_del(&self, call: &Call) -> Option<Arc<PodView>> {
        let name = call.pod.as_ref()?;
        let pod = self.cluster.get()?.pod_known(&name.namespace, &name.name)?;
        pod.check_uid(name.uid.as_deref()).ok().map(|()| pod)
    }
}

/// What the pod's owner gets to know.
fn tell(cluster: &Cluster, pod: &PodView, added: &Added) -> Result<(), CniError> {
    if let Some(status) = network_status::build(&added.attached) {
        cluster.write_status(pod, &status)?;
    }
    tell_of_attached(cluster, pod, &added.attached);
    Ok(())
}

pub(crate) fn tell_of_attached(cluster: &Cluster, pod: &PodView, attached: &[Attached]) {
    for message in attached.iter().filter_map(Attached::event) {
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
