//! The API server as the daemon sees it: what watches keep, one look at a pod they do not have yet, status and events.

pub(crate) mod event;
mod ownership;
mod recorder;
pub(crate) mod request;
mod status;
mod store;
mod types;
mod watch;

pub use ownership::Ownership;
pub use store::{Definitions, PodKey, Pods};
#[cfg(test)]
pub(crate) use types::read_definition;
pub use types::{definition, pod_view};
pub use watch::{follow_daemon_set, follow_definitions, follow_pods};

use std::{sync::Arc, time::Duration};

use cni::types::CniError;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::{Api, Client, core::PartialObjectMeta};
use serde_json::Value;
use tokio::runtime::Handle;
use tracing::warn;

use crate::{
    metrics::Metrics,
    plan::{self, PodView},
    state::PodRef,
};
use event::event;
use recorder::Recorder;
use request::{Failure, bounded};

/// How long the watch may need until it shows a pod that the runtime already knows.
const WATCH_PATIENCE: Duration = Duration::from_millis(2500);
/// How often the same is asked, and the pause before the second time; each further one is twice as long.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// No request takes longer, all its tries together.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);

/// Asks and tells the API server from threads that may block.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    runtime: Handle,
    pods: Arc<Pods>,
    recorder: Recorder,
    metrics: Arc<Metrics>,
}

impl Cluster {
    /// Requests run on `runtime`.
    pub fn new(client: Client, runtime: Handle, pods: Arc<Pods>) -> Self {
        Self {
            client,
            runtime,
            pods,
            recorder: Recorder::default(),
            metrics: Arc::default(),
        }
    }

    /// The same with somebody who counts retries and events.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = metrics;
        self
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
        let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(self.client.clone(), namespace);
        let asked = self.wait_for(again(
            || self.metrics.api_retry("get", "pods"),
            async || api.get_opt(name).await,
        ));
        match asked {
            Ok(Some(pod)) => Ok(Arc::new(types::pod_view(pod.metadata))),
            Ok(None) => Err(plan::pod_gone(namespace, name)),
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

    /// A pod was attached as it asked then; if it asks for something else by now, whoever follows annotations has to know.
    pub fn attached_as(&self, pod: &PodView) {
        let now = self.pods.get(&pod.namespace, &pod.name);
        if now.is_some_and(|now| now.networks() != pod.networks()) {
            self.pods.point_at(&pod.namespace, &pod.name);
        }
    }

    /// One object or list by its path; `None` where there is none.
    pub fn read(&self, path: &str) -> Result<Option<Value>, String> {
        let retried = || self.metrics.api_retry("get", "other");
        let asked = self.wait_for(again(retried, async || {
            let request = hyper::Request::get(path).body(Vec::new());
            let request = request.map_err(kube::Error::HttpError)?;
            self.client.request::<Value>(request).await
        }));
        match asked {
            Ok(object) => Ok(Some(object)),
            Err(failure) if failure.code == Some(404) => Ok(None),
            Err(failure) => Err(format!("cannot read {path}: {failure}")),
        }
    }

    /// Writes the network status into the pod; a pod that is gone is no error.
    pub fn write_status(&self, pod: &PodView, text: &str) -> Result<(), CniError> {
        let asked = self.wait_for(again(
            || self.metrics.api_retry("patch", "pods/status"),
            async || status::write(&self.client, pod, text).await,
        ));
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
        let (client, recorder) = (self.client.clone(), self.recorder.clone());
        let metrics = Arc::clone(&self.metrics);
        self.runtime.spawn(async move {
            let sent = recorder.send(&client, event, REQUEST_PATIENCE).await;
            metrics.event(reason, sent.is_ok());
            if let Err(error) = sent {
                warn!(%error, reason, "cannot send an event");
            }
        });
    }

    fn wait_for<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
        self.runtime.block_on(bounded(REQUEST_PATIENCE, request))
    }
}

/// Asks again, a few times, when the answer was no more than "not now"; `retried` hears of each further time.
async fn again<T>(retried: impl Fn(), ask: impl AsyncFn() -> kube::Result<T>) -> kube::Result<T> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..TRIES {
        match ask().await {
            Err(kube::Error::Api(answer)) if matches!(answer.code, 409 | 429 | 500..=599) => {}
            Err(kube::Error::HyperError(_) | kube::Error::Service(_)) => {}
            other => return other,
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
        retried();
    }
    ask().await
}
