//! A failure as it is reported: complete in the log, shortened for the runtime and for events, all under one id.

use std::sync::{Arc, OnceLock};

use cni::{env::Command, types::CniError};
use plan::PodView;
use tracing::warn;

use crate::{
    call::CniCall,
    cluster::Cluster,
    engine::{Abandoned, Failure, OnAbandoned},
    errors::render,
    metrics::Metrics,
    state::PodRef,
};

/// A failure of a verb that has no id yet, and the event that reports it to the pod's owner.
pub(crate) struct VerbError {
    pub(crate) failure: Failure,
    /// The pod and the reason of the event.
    pub(crate) event: Option<(PodRef, &'static str)>,
}

impl VerbError {
    /// A failed ADD: the event is the failure's own, or `FailedAddNetwork`.
    pub(crate) fn add(pod: &PodView, failure: Failure) -> Self {
        let reason = failure.event.unwrap_or("FailedAddNetwork");
        let event = Some((PodRef::from(pod), reason));
        Self { failure, event }
    }

    /// A failed DEL.
    pub(crate) fn del(pod: PodRef, failure: Failure) -> Self {
        let event = Some((pod, "FailedDelNetwork"));
        Self { failure, event }
    }
}

impl<E: Into<Failure>> From<E> for VerbError {
    fn from(error: E) -> Self {
        Self {
            failure: error.into(),
            event: None,
        }
    }
}

/// A failure with the id under which the log has the complete text.
pub(crate) struct Report {
    pub(crate) id: String,
    pub(crate) failure: Failure,
}

impl Report {
    /// Adds the id to the failure of a call, and upstream's words about its pod, unless the failure names the pod already.
    pub(crate) fn new(call: &CniCall, failure: Failure) -> Self {
        let is_about_pod = matches!(call.command, Command::Add | Command::Check | Command::Del);
        let pod = call.pod.as_ref();
        let pod = pod.map_or_else(String::new, |pod| format!("{}/{}", pod.namespace, pod.name));
        let names_pod = failure.pod.is_some() || failure.names_pod;
        let failure = match &call.pod {
            Some(pod) if is_about_pod && !names_pod => failure.about(pod.pod_ref()),
            _ => failure,
        };
        let changing = call.request.as_ref().map_or(["", ""], |request| {
            let netns = request.netns.as_deref().unwrap_or_default();
            [netns, request.container_id.as_str()]
        });
        Self {
            id: render::id(&pod, &failure, &changing),
            failure,
        }
    }

    /// Returns the shortened error for the runtime.
    pub(crate) fn answer(&self) -> CniError {
        render::answer(&self.failure, &self.id)
    }

    /// Returns the shortened text for an event with this reason. One of the failure's own reason is about the network, not about a verb.
    pub(crate) fn event(&self) -> String {
        let failure = Failure {
            is_about_pod: self.failure.is_about_pod && self.failure.event.is_none(),
            ..self.failure.clone()
        };
        render::event(&failure, &self.id)
    }
}

/// Returns the callback that reports abandoned networks, which are no longer retried, in the log, an event and a metric.
pub(crate) fn report_abandoned_networks(
    cluster: Arc<OnceLock<Cluster>>,
    metrics: Arc<Metrics>,
) -> Box<OnAbandoned> {
    Box::new(move |pod, abandoned| {
        let failure = &abandoned.failure;
        metrics.network_abandoned();
        let name = format!("{}/{}", pod.namespace, pod.name);
        let id = render::id(&name, failure, &[]);
        warn!(
            id,
            pod = name,
            network = abandoned.network,
            ifname = abandoned.ifname,
            ips = abandoned.ips.join(" "),
            cause = %failure.cause,
            msg = %failure,
            details = failure.error.details,
            "network abandoned: its addresses may have to be freed by hand"
        );
        if let (Some(cluster), false) = (cluster.get(), pod.name.is_empty()) {
            let failure = Failure {
                context: format!("abandoned: {}", failure.context),
                hint: [failure.hint.as_str(), &left_behind(abandoned)]
                    .into_iter()
                    .filter(|part| !part.is_empty())
                    .collect::<Vec<_>>()
                    .join("; "),
                ..failure.clone()
            };
            let message = render::event_in_full(&failure, &id);
            cluster.failure_event(pod, "NetworkAbandoned", failure.cause, message);
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
