//! A failure as it is reported: complete in the log, shortened for the runtime and for events, all under one id.

use std::sync::{Arc, OnceLock};

use cni::{env::Command, types::CniError};
use plan::PodView;
use tracing::warn;

use crate::{
    call::CniCall,
    cluster::Cluster,
    engine::{Abandoned, AddError, OnAbandoned},
    errors::shorten,
    metrics::Metrics,
    state::PodRef,
};

/// An error of a verb that has no id yet, and the event that reports it to the pod's owner.
pub(crate) struct VerbError {
    pub(crate) error: CniError,
    pub(crate) event: Option<Box<FailureEvent>>,
}

pub(crate) struct FailureEvent {
    pub(crate) pod: PodRef,
    pub(crate) reason: &'static str,
    /// `None` for the text of the error.
    pub(crate) message: Option<String>,
}

impl VerbError {
    /// A failed ADD: the event is the engine's own, or `FailedAddNetwork`.
    pub(crate) fn of_add(pod: &PodView, AddError { error, event }: AddError) -> Self {
        let (reason, message) = match event {
            Some((reason, message)) => (reason, Some(message)),
            None => ("FailedAddNetwork", None),
        };
        let pod = PodRef::from(pod);
        Self {
            error,
            event: Some(Box::new(FailureEvent {
                pod,
                reason,
                message,
            })),
        }
    }

    /// A failed DEL.
    pub(crate) fn of_del(pod: PodRef, error: CniError) -> Self {
        Self {
            error,
            event: Some(Box::new(FailureEvent {
                pod,
                reason: "FailedDelNetwork",
                message: None,
            })),
        }
    }
}

impl From<CniError> for VerbError {
    fn from(error: CniError) -> Self {
        Self { error, event: None }
    }
}

/// An error with its pod, and the id under which the log has the complete text.
pub(crate) struct Failure {
    pub(crate) id: String,
    pod: String,
    pub(crate) error: CniError,
}

impl Failure {
    /// Adds the pod and the id to the error of a call.
    pub(crate) fn new(call: &CniCall, error: CniError) -> Self {
        let pod = call.pod.as_ref();
        let pod = pod.map_or_else(String::new, |pod| format!("{}/{}", pod.namespace, pod.name));
        let error = with_pod_context(call, &pod, error);
        let changing = call.request.as_ref().map_or(["", ""], |request| {
            let netns = request.netns.as_deref().unwrap_or_default();
            [netns, request.container_id.as_str()]
        });
        Self {
            id: shorten::id(&pod, &error, &changing),
            pod,
            error,
        }
    }

    /// Returns the shortened error for the runtime.
    pub(crate) fn for_runtime(&self) -> CniError {
        shorten::error(&self.error, &self.id, &self.pod)
    }

    /// Returns a text about the failure, shortened for an event.
    pub(crate) fn for_event(&self, message: &str) -> String {
        shorten::event(message, &self.id, &self.pod)
    }
}

/// Adds upstream's prefix, which names the pod and which operators search for, unless the error names the pod already.
fn with_pod_context(call: &CniCall, pod: &str, error: CniError) -> CniError {
    let is_about_pod = matches!(call.command, Command::Add | Command::Check | Command::Del);
    if pod.is_empty() || !is_about_pod || error.msg.contains(pod) {
        return error;
    }
    error.context(&format!("error configuring pod [{pod}] networking"))
}

/// Returns the callback that reports abandoned networks, which are no longer retried, in the log, an event and a metric.
pub(crate) fn report_abandoned_networks(
    cluster: Arc<OnceLock<Cluster>>,
    metrics: Arc<Metrics>,
) -> Box<OnAbandoned> {
    Box::new(move |pod, abandoned| {
        let error = &abandoned.error;
        metrics.network_abandoned();
        let name = format!("{}/{}", pod.namespace, pod.name);
        let id = shorten::id(&name, error, &[]);
        warn!(
            id,
            pod = name,
            network = abandoned.network,
            ifname = abandoned.ifname,
            ips = abandoned.ips.join(" "),
            msg = error.msg,
            details = error.details,
            "network abandoned: its addresses may have to be freed by hand"
        );
        if let (Some(cluster), false) = (cluster.get(), pod.name.is_empty()) {
            let message = format!("abandoned: {}; {}", error.msg, left_behind(abandoned));
            let message = shorten::event_in_full(&message, &id, &name);
            cluster.event_about(pod, true, "NetworkAbandoned", message);
        }
    })
}

/// Describes what may be left of an abandoned network.
fn left_behind(abandoned: &Abandoned) -> String {
    let Abandoned { ifname, ips, .. } = abandoned;
    let addresses = match ips.as_slice() {
        [] => "its address".to_owned(),
        ips => ips.join(", "),
    };
    format!("interface {ifname} and {addresses} may have to be freed by hand")
}
