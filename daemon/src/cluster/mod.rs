//! The daemon's side of the API server: the stores that watches fill, a direct request for a pod that no watch has yet, the network
//! status and events.

pub(crate) mod api_path;
pub(crate) mod event;
mod event_queue;
mod event_recorder;
mod line_splitter;
mod ownership;
pub(crate) mod reflector;
pub(crate) mod retry;
mod status;
mod store;
mod watch;

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

pub use ownership::{OwnObjects, Ownership};
pub use store::{Definitions, PodKey, Pods};
pub use watch::{watch_definitions, watch_pods};

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use api::cause::{ANNOTATION, Cause};
use k8s_openapi::api::core::v1::ObjectReference;
use plan::{
    Nad, PlanError, PodView,
    objects::{self, Definition, PodMetadata},
};
use serde_json::Value;
use tokio::runtime::Handle;

use crate::{
    access::{ApiError, ApiRequest, Client},
    metrics::Metrics,
    state::PodRef,
};
use event::event;
use event_queue::EventQueue;
use reflector::{Event, Resource};
use retry::with_retries;

/// How long an ADD waits for the watch to show a pod that the runtime already knows.
const WATCH_TIMEOUT: Duration = Duration::from_millis(2500);
/// The time limit of a read with all its tries.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit of writing a status with all its tries, before the writer takes what may be a newer one.
const STATUS_TIMEOUT: Duration = Duration::from_secs(20);

/// Access to the API server for threads that may block.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    runtime: Handle,
    pods: Arc<Pods>,
    events: EventQueue,
    metrics: Arc<Metrics>,
}

impl Cluster {
    /// Creates the access; its requests run on `runtime`.
    pub fn new(client: Client, runtime: Handle, pods: Arc<Pods>, metrics: Arc<Metrics>) -> Self {
        let events = EventQueue::start(client.clone(), &runtime, Arc::clone(&metrics));
        Self {
            client,
            runtime,
            pods,
            events,
            metrics,
        }
    }

    /// Returns the client, for requests that have no method here.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the pod for an ADD: from the watch, if that shows it within [`WATCH_TIMEOUT`], else by a direct request.
    pub fn pod_for_add(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) -> Result<Arc<PodView>, PlanError> {
        // A watch that still shows an earlier pod of that name does not show this one.
        let is_current = |pod: &PodView| uid.is_none_or(|uid| pod.is_static || pod.uid == uid);
        if let Some(pod) = self.pods.wait(namespace, name, WATCH_TIMEOUT, is_current) {
            return Ok(pod);
        }
        let request = ApiRequest::get(api_path::pod(namespace, name)).metadata();
        let response = self.wait_for(READ_TIMEOUT, ("get", "pods"), |time| {
            self.client.object::<PodMetadata>(&request, time)
        });
        let pod = || format!("{namespace}/{name}");
        match response {
            Ok(PodMetadata(pod)) => Ok(Arc::new(pod)),
            Err(failure) if failure.code() == Some(404) => {
                Err(PlanError::PodNotFound { pod: pod() })
            }
            Err(reason) => Err(PlanError::UnreadPod {
                pod: pod(),
                reason: reason.to_string(),
            }),
        }
    }

    /// Returns a definition that the watch does not show, or `None` where it does not exist. A role of one's own may lack this right; then
    /// the watch decides.
    pub fn definition(&self, namespace: &str, name: &str) -> Result<Option<Arc<Nad>>, String> {
        // An annotation may hold any text, which must not become another path.
        if ![namespace, name].into_iter().all(api_path::is_name) {
            return Ok(None);
        }
        let request = ApiRequest::get(api_path::definition(namespace, name));
        let verb = ("get", "network-attachment-definitions");
        let response = self.wait_for(READ_TIMEOUT, verb, |time| {
            self.client.object::<Definition>(&request, time)
        });
        match response {
            Ok(definition) => Ok(Some(objects::nad(definition))),
            Err(failure) if matches!(failure.code(), Some(403 | 404)) => Ok(None),
            Err(failure) => Err(failure.to_string()),
        }
    }

    /// Returns the pod from the watch, or `None` where the watch has no such pod.
    pub fn watched_pod(&self, namespace: &str, name: &str) -> Option<Arc<PodView>> {
        self.pods.get(namespace, name)
    }

    /// Returns all pods from the watch.
    pub fn watched_pods(&self) -> Vec<Arc<PodView>> {
        self.pods.all()
    }

    /// Returns the pod with this UID from the watch.
    pub fn watched_pod_by_uid(&self, uid: &str) -> Option<Arc<PodView>> {
        self.pods.all().into_iter().find(|pod| pod.uid == uid)
    }

    /// Compares the annotation by which a pod was attached with its current one. When they differ, the listener for changed annotations
    /// gets the pod.
    pub fn notify_if_annotation_changed(&self, pod: &PodView) {
        let now = self.pods.get(&pod.namespace, &pod.name);
        if now.is_some_and(|now| now.networks() != pod.networks()) {
            self.pods.notify_listener(&pod.namespace, &pod.name);
        }
    }

    /// Returns one object or list by its path, or `None` where it does not exist.
    pub fn read(&self, path: &str) -> Result<Option<Value>, String> {
        let request = ApiRequest::get(path);
        let response = self.wait_for(READ_TIMEOUT, ("get", "other"), |time| {
            self.client.object::<Value>(&request, time)
        });
        match response {
            Ok(object) => Ok(Some(object)),
            Err(failure) if failure.code() == Some(404) => Ok(None),
            Err(failure) => Err(format!("cannot read {path}: {failure}")),
        }
    }

    /// Sends a request once.
    pub(crate) fn request(&self, request: &ApiRequest) -> Result<Value, ApiError> {
        self.runtime
            .block_on(self.client.object(request, READ_TIMEOUT))
    }

    /// Follows objects with a selector for ever, and passes each that is there or changes to `handle`, on threads that may block.
    pub(crate) fn follow(
        &self,
        resource: Resource,
        handle: impl Fn(&Value) + Clone + Send + Sync + 'static,
    ) {
        self.follow_events(resource, move |event| match event {
            Event::All(all) => all.iter().for_each(&handle),
            Event::Put(object) => handle(&object),
            Event::Remove(_) | Event::UnknownKind => {}
        });
    }

    /// Follows objects as [`Self::follow`] does, and passes each event.
    pub(crate) fn follow_events(
        &self,
        resource: Resource,
        handle: impl Fn(Event<Value>) + Clone + Send + Sync + 'static,
    ) {
        let client = self.client.clone();
        self.runtime
            .spawn(reflector::run(client, resource, move |event| {
                let handle = handle.clone();
                tokio::task::spawn_blocking(move || handle(event));
            }));
    }

    /// Writes the network status into the pod. A deleted pod is not an error.
    pub(crate) async fn write_status(&self, pod: &PodView, text: &str) -> Result<(), ApiError> {
        let request = ("patch", "pods/status");
        let write = |time| status::write(&self.client, pod, text, time);
        self.retried(STATUS_TIMEOUT, request, write).await
    }

    /// Queues an event about the pod and returns at once. A repeated event raises the count of the first one.
    pub fn event(&self, pod: &PodView, warning: bool, reason: &'static str, message: String) {
        self.event_about(&PodRef::from(pod), warning, reason, message);
    }

    /// Queues an event about a pod that may be deleted already.
    pub fn event_about(&self, pod: &PodRef, warning: bool, reason: &'static str, message: String) {
        self.send_event(pod, warning, reason, message, None);
    }

    /// Queues the warning event of a failure, whose annotation has the cause.
    pub fn failure_event(&self, pod: &PodRef, reason: &'static str, cause: Cause, message: String) {
        self.send_event(pod, true, reason, message, Some(cause));
    }

    fn send_event(
        &self,
        pod: &PodRef,
        warning: bool,
        reason: &'static str,
        message: String,
        cause: Option<Cause>,
    ) {
        let about = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            uid: Some(pod.uid.clone()),
            ..ObjectReference::default()
        };
        let mut event = event("multus", about, warning, reason, message);
        event.metadata.annotations =
            cause.map(|cause| [(ANNOTATION.to_owned(), cause.to_string())].into());
        self.events.send(event, reason);
    }

    /// Runs a request with retries to its end and blocks meanwhile.
    fn wait_for<T, F>(
        &self,
        timeout: Duration,
        request: (&str, &str),
        attempt: impl Fn(Duration) -> F,
    ) -> Result<T, ApiError>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        self.runtime
            .block_on(self.retried(timeout, request, attempt))
    }

    /// Runs a request with retries. The retries are counted in the metrics of its verb and resource.
    async fn retried<T, F>(
        &self,
        timeout: Duration,
        (verb, resource): (&str, &str),
        attempt: impl Fn(Duration) -> F,
    ) -> Result<T, ApiError>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        let is_first = AtomicBool::new(true);
        let counted = |time| {
            if !is_first.swap(false, Ordering::Relaxed) {
                self.metrics.api_retry(verb, resource);
            }
            attempt(time)
        };
        with_retries(timeout, counted).await
    }
}
