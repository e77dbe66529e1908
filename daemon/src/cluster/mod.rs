//! The API server as the daemon sees it: what watches keep, one look at a pod they do not have yet, status and events.

pub(crate) mod event;
mod ownership;
pub(crate) mod path;
mod queue;
mod recorder;
pub(crate) mod reflect;
pub(crate) mod retry;
mod split;
mod status;
mod store;
mod watch;

pub use ownership::{Own, Ownership};
pub use store::{Definitions, PodKey, Pods};
pub use watch::{follow_definitions, follow_pods};

use std::{cell::Cell, sync::Arc, time::Duration};

use cni::types::CniError;
use k8s_openapi::api::core::v1::ObjectReference;
use plan::{PodView, objects::PodMetadata};
use serde_json::Value;
use tokio::runtime::Handle;

use crate::{
    access::{Ask, Client, Failure},
    metrics::Metrics,
    state::PodRef,
};
use event::event;
use queue::Events;
use retry::patiently;

/// How long the watch may need until it shows a pod that the runtime already knows.
const WATCH_PATIENCE: Duration = Duration::from_millis(2500);
/// What is read is waited for no longer, all tries together.
const READ_PATIENCE: Duration = Duration::from_secs(5);
/// The status is written last, when all networks stand: before they are undone the API server gets this long. With what comes before
/// it an ADD is over within half a minute.
const STATUS_PATIENCE: Duration = Duration::from_secs(20);

/// Asks and tells the API server from threads that may block.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    runtime: Handle,
    pods: Arc<Pods>,
    events: Events,
    metrics: Arc<Metrics>,
}

impl Cluster {
    /// Requests run on `runtime`.
    pub fn new(client: Client, runtime: Handle, pods: Arc<Pods>, metrics: Arc<Metrics>) -> Self {
        let events = Events::start(client.clone(), &runtime, Arc::clone(&metrics));
        Self {
            client,
            runtime,
            pods,
            events,
            metrics,
        }
    }

    /// Access for requests of another kind.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The pod for an ADD: from the watch, which gets a moment to show it, else by one direct request.
    pub fn pod_for_add(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) -> Result<Arc<PodView>, CniError> {
        // A watch that still shows the pod's predecessor counts as one that does not show it.
        let current = |pod: &PodView| uid.is_none_or(|uid| pod.is_static || pod.uid == uid);
        if let Some(pod) = self.pods.wait(namespace, name, WATCH_PATIENCE, current) {
            return Ok(pod);
        }
        let ask = Ask::get(path::pod(namespace, name)).metadata();
        let asked = self.wait_for(READ_PATIENCE, ("get", "pods"), |time| {
            self.client.object::<PodMetadata>(&ask, time)
        });
        match asked {
            Ok(PodMetadata(pod)) => Ok(Arc::new(pod)),
            Err(failure) if failure.code() == Some(404) => Err(plan::pod_gone(namespace, name)),
            Err(reason) => Err(CniError::new(
                CniError::TRY_AGAIN_LATER,
                format!(
                    "error waiting for pod: {namespace}/{name} is not in the watch and the API server did not answer: {reason}"
                ),
            )),
        }
    }

    /// The pod as the watch has it, if it has.
    pub fn pod_known(&self, namespace: &str, name: &str) -> Option<Arc<PodView>> {
        self.pods.get(namespace, name)
    }

    /// The same, all of them.
    pub fn pods_known(&self) -> Vec<Arc<PodView>> {
        self.pods.all()
    }

    /// The pod with this uid, if the watch has it.
    pub fn pod_with(&self, uid: &str) -> Option<Arc<PodView>> {
        self.pods.all().into_iter().find(|pod| pod.uid == uid)
    }

    /// A pod was attached as it asked then; if it asks for something else by now, whoever follows annotations has to know.
    pub fn attached_as(&self, pod: &PodView) {
        let now = self.pods.get(&pod.namespace, &pod.name);
        if now.is_some_and(|now| now.networks() != pod.networks()) {
            self.pods.point_at(&pod.namespace, &pod.name);
        }
    }

    /// One object or list by its path; `None` where there is none.
    pub fn read(&self, path: &str) -> Result<Option<Value>, String> {
        let ask = Ask::get(path);
        let asked = self.wait_for(READ_PATIENCE, ("get", "other"), |time| {
            self.client.object::<Value>(&ask, time)
        });
        match asked {
            Ok(object) => Ok(Some(object)),
            Err(failure) if failure.code() == Some(404) => Ok(None),
            Err(failure) => Err(format!("cannot read {path}: {failure}")),
        }
    }

    /// Writes the network status into the pod; a pod that is gone is no error.
    pub fn write_status(&self, pod: &PodView, text: &str) -> Result<(), CniError> {
        let asked = self.wait_for(STATUS_PATIENCE, ("patch", "pods/status"), |time| {
            status::write(&self.client, pod, text, time)
        });
        asked.map_err(|reason| {
            CniError::new(
                CniError::TRY_AGAIN_LATER,
                format!(
                    "cannot write the network status of pod {}/{}: {reason}; the pod comes up once the API server takes it",
                    pod.namespace, pod.name
                ),
            )
        })
    }

    /// Sends an event about the pod and does not wait for it. One that was sent before is counted.
    pub fn event(&self, pod: &PodView, warning: bool, reason: &'static str, message: String) {
        self.event_about(&PodRef::from(pod), warning, reason, message);
    }

    /// The same for a pod that need not be there any more.
    pub fn event_about(&self, pod: &PodRef, warning: bool, reason: &'static str, message: String) {
        let about = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            uid: Some(pod.uid.clone()),
            ..ObjectReference::default()
        };
        let event = event("multus", about, warning, reason, message);
        self.events.send(event, reason);
    }

    /// Runs a request to its end, with further attempts that are counted as such for its verb and resource.
    fn wait_for<T, F>(
        &self,
        patience: Duration,
        (verb, resource): (&str, &str),
        attempt: impl Fn(Duration) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let is_first = Cell::new(true);
        let counted = |time| {
            if !is_first.replace(false) {
                self.metrics.api_retry(verb, resource);
            }
            attempt(time)
        };
        self.runtime.block_on(patiently(patience, counted))
    }
}
