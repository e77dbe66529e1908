//! A failure as it is told: in whole to the log, in short to the runtime and in events, all under one id.

use std::sync::{Arc, OnceLock};

use cni::{env::Command, types::CniError};
use tracing::warn;

use crate::{
    call::Call,
    cluster::Cluster,
    engine::{Abandoned, Witness},
    errors::brief,
    metrics::Metrics,
};

/// An error with whom it is about, and the id by which the log has all of it.
pub(crate) struct Failure {
    pub(crate) id: String,
    pod: String,
    pub(crate) error: CniError,
}

impl Failure {
    /// The error of a call.
    pub(crate) fn new(call: &Call, error: CniError) -> Self {
        let pod = call.pod.as_ref();
        let pod = pod.map_or_else(String::new, |pod| format!("{}/{}", pod.namespace, pod.name));
        let error = in_upstreams_words(call, &pod, error);
        let changing = call.request.as_ref().map_or(["", ""], |request| {
            let netns = request.netns.as_deref().unwrap_or_default();
            [netns, request.container_id.as_str()]
        });
        Self {
            id: brief::id(&pod, &error, &changing),
            pod,
            error,
        }
    }

    /// As the runtime gets it.
    pub(crate) fn for_runtime(&self) -> CniError {
        brief::error(&self.error, &self.id, &self.pod)
    }

    /// A text about it as an event gets it.
    pub(crate) fn for_event(&self, message: &str) -> String {
        brief::event(message, &self.id, &self.pod)
    }
}

/// What operators look for in events: which pod, before the cause.
fn in_upstreams_words(call: &Call, pod: &str, error: CniError) -> CniError {
    let is_about_pod = matches!(call.command, Command::Add | Command::Check | Command::Del);
    if pod.is_empty() || !is_about_pod || error.msg.contains(pod) {
        return error;
    }
    error.context(&format!("error configuring pod [{pod}] networking"))
}

/// Tells the pod's owner of networks that nobody will detach any more.
pub(crate) fn tell_of_networks_given_up(
    cluster: Arc<OnceLock<Cluster>>,
    metrics: Arc<Metrics>,
) -> Box<Witness> {
    Box::new(move |pod, abandoned| {
        let error = &abandoned.error;
        metrics.network_given_up();
        let name = format!("{}/{}", pod.namespace, pod.name);
        let id = brief::id(&name, error, &[]);
        warn!(
            id,
            pod = name,
            network = abandoned.network,
            ifname = abandoned.ifname,
            ips = abandoned.ips.join(" "),
            msg = error.msg,
            details = error.details,
            "network given up: what it has of this pod may have to be freed by hand"
        );
        if let (Some(cluster), false) = (cluster.get(), pod.name.is_empty()) {
            let message = format!("given up: {}; {}", error.msg, left_behind(abandoned));
            let message = brief::event_in_full(&message, &id, &name);
            cluster.event_about(pod, true, "NetworkGivenUp", message);
        }
    })
}

/// What may be left of a network that was given up.
fn left_behind(abandoned: &Abandoned) -> String {
    let Abandoned { ifname, ips, .. } = abandoned;
    let addresses = match ips.as_slice() {
        [] => "its address".to_owned(),
        ips => ips.join(", "),
    };
    format!("interface {ifname} and {addresses} may have to be freed by hand")
}
