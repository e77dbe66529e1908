//! Access to the user's cluster by their kubeconfig, and the few kinds of objects that the commands read.

use std::{
    collections::btree_map::Entry,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use api::cause::{self, Cause};
use cmdline::error_line;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use ipam::guest::mover::Write;
use kube::{
    Api, Client, Config,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
        Preconditions,
    },
    config::{KubeConfigOptions, Kubeconfig},
    core::{GroupVersionKind, Request},
};
use plan::{Nad, objects};
use serde_json::Value;

use crate::{object::DEFINITION, pod_state::seconds, validate::KnownDefinitions};

/// An API server that can be reached accepts a connection within milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// No answer takes longer.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const NOT_FOUND: u16 = 404;
/// The statuses of a patch of an object that is another one than the client has read.
const CHANGED: [u16; 3] = [NOT_FOUND, 409, 422];
/// So many objects are read at once.
const READS: usize = 16;
/// So many are written at once: more take as long together, and the API server has to answer pods meanwhile.
const WRITES: usize = 4;
const JSON_PATCH: &str = "application/json-patch+json";
/// The number of objects in one page of a list.
const PAGE_SIZE: u32 = 500;

/// The options that select cluster, user and namespace.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Path of the kubeconfig [default: KUBECONFIG, then ~/.kube/config]
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// Namespace [default: that of the context]
    #[arg(long, short = 'n', global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
}

/// A client of the cluster and the namespace to use.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// The namespace of names that are written without one.
    pub(crate) namespace: String,
    /// When the command began.
    pub(crate) begun: Instant,
}

/// One Kubernetes event about a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) is_warning: bool,
    /// The cause that the daemon wrote into its annotation.
    pub(crate) cause: Option<Cause>,
    pub(crate) count: u64,
    /// The time of its last occurrence, in seconds since 1970.
    pub(crate) at: u64,
}

impl Cluster {
    /// Reads the kubeconfig; no connection is opened yet.
    pub(crate) async fn new(options: &Options) -> anyhow::Result<Self> {
        let kubeconfig = match &options.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let kubeconfig = kubeconfig.map_err(|error| {
            anyhow::anyhow!(
                "cannot read the kubeconfig: {}: name one with --kubeconfig",
                error_line(&error)
            )
        })?;
        let chosen = KubeConfigOptions {
            context: options.context.clone(),
            ..KubeConfigOptions::default()
        };
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &chosen)
            .await
            .map_err(|error| {
                anyhow::anyhow!("cannot use the kubeconfig: {}", error_line(&error))
            })?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = Some(READ_TIMEOUT);
        let default = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|error| {
            anyhow::anyhow!("cannot use the kubeconfig: {}", error_line(&error))
        })?;
        Ok(Self {
            client,
            namespace: options.namespace.clone().unwrap_or(default),
            begun: Instant::now(),
        })
    }

    /// Reads a pod of the namespace.
    pub(crate) async fn pod(&self, name: &str) -> anyhow::Result<Value> {
        let namespace = &self.namespace;
        let title = format!("pod {namespace}/{name}");
        let pods = resource("", "v1", "Pod", "pods");
        let pod = self.get(&pods, namespace, name).await;
        let pod = pod.with_context(|| format!("cannot read {title}"))?;
        pod.with_context(|| format!("there is no {title}: name another namespace with -n"))
    }

    /// Reads the named definitions that `known` does not have yet. After an error `known` is not marked as complete.
    pub(crate) async fn complete(
        &self,
        known: &mut KnownDefinitions,
        names: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), String> {
        let kind = resource(
            "k8s.cni.cncf.io",
            "v1",
            DEFINITION,
            "network-attachment-definitions",
        );
        for (namespace, name) in names {
            if known.nads.contains_key(&(namespace.clone(), name.clone())) {
                continue;
            }
            let found = self.get(&kind, &namespace, &name).await;
            let found = found.map_err(|error| {
                format!("cannot read network-attachment-definition {namespace}/{name}: {error}")
            })?;
            if let Some(object) = found {
                let nad: Arc<Nad> = objects::definition(object)?;
                known.add(&nad);
            } else if let Entry::Vacant(others) = known.other_names.entry(namespace) {
                // The names only serve a suggestion; without the right to list definitions there is none.
                let params = ListParams::default();
                let listed = self.list(&kind, Some(others.key()), &params).await;
                let names = listed.unwrap_or_default();
                let names = names.iter().filter_map(|object| {
                    let name = object.pointer("/metadata/name")?;
                    Some(name.as_str()?.to_owned())
                });
                others.insert(names.collect());
            }
        }
        known.is_complete = true;
        Ok(())
    }

    /// Reads all definitions that `known` does not have yet. One that cannot be parsed is left out, as by a daemon.
    pub(crate) async fn complete_all(&self, known: &mut KnownDefinitions) -> Result<(), String> {
        let kind = "network-attachment-definitions";
        let listed = self
            .all(("k8s.cni.cncf.io", "v1"), DEFINITION, kind)
            .await?;
        for nad in listed.into_iter().flatten().flat_map(objects::definition) {
            let name = (nad.namespace.clone(), nad.name.clone());
            known.nads.entry(name).or_insert(nad);
        }
        Ok(())
    }

    /// Reads the events about a pod, the oldest first.
    pub(crate) async fn events(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<Vec<Event>, String> {
        let kind = resource("", "v1", "Event", "events");
        let fields = format!("involvedObject.kind=Pod,involvedObject.name={name}");
        let params = ListParams::default().fields(&fields);
        let listed = self.list(&kind, Some(namespace), &params).await?;
        Ok(events_about(listed.iter(), uid))
    }

    /// Reads the events about the pods of a namespace, or of all, page by page.
    pub(crate) async fn all_events(&self, namespace: Option<&str>) -> Result<Vec<Value>, String> {
        let kind = resource("", "v1", "Event", "events");
        let params = ListParams::default().fields("involvedObject.kind=Pod");
        let listed = pages(&self.api(namespace, &kind), params).await?;
        Ok(listed.unwrap_or_default())
    }

    /// Reads the pods of a node, of one namespace or of all.
    pub(crate) async fn pods_of_node(
        &self,
        node: &str,
        namespace: Option<&str>,
    ) -> Result<Vec<Value>, String> {
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = resource("", "v1", "Pod", "pods");
        self.list(&pods, namespace, &params).await
    }

    /// Reads the pods that match a label selector, of one namespace or of all.
    pub(crate) async fn labelled_pods(
        &self,
        labels: &str,
        namespace: Option<&str>,
    ) -> Result<Vec<Value>, String> {
        let params = ListParams::default().labels(labels);
        let pods = resource("", "v1", "Pod", "pods");
        self.list(&pods, namespace, &params).await
    }

    /// Reads all objects of a kind in all namespaces, page by page; `None` when the cluster does not know the kind.
    pub(crate) async fn all(
        &self,
        (group, version): (&str, &str),
        kind: &str,
        plural: &str,
    ) -> Result<Option<Vec<Value>>, String> {
        let resource = resource(group, version, kind, plural);
        pages(&self.api(None, &resource), ListParams::default()).await
    }

    /// Reads one object of a kind in any namespace; `None` when there is none, or the cluster does not know the kind.
    pub(crate) async fn first(
        &self,
        (group, version): (&str, &str),
        kind: &str,
        plural: &str,
    ) -> Result<Option<Value>, String> {
        let resource = resource(group, version, kind, plural);
        let params = ListParams::default().limit(1);
        let listed = known(self.api(None, &resource).list(&params).await)?;
        let first = listed.and_then(|listed| listed.items.into_iter().next());
        Ok(first.map(to_value))
    }

    /// Reads the pods of a namespace, or of all, page by page.
    pub(crate) async fn pods(&self, namespace: Option<&str>) -> Result<Vec<Value>, String> {
        let kind = resource("", "v1", "Pod", "pods");
        let listed = pages(&self.api(namespace, &kind), ListParams::default()).await?;
        Ok(listed.unwrap_or_default())
    }

    /// Reads those of the named pods that exist, some at a time. A name is `namespace/name`; others are names of no pod.
    pub(crate) async fn pods_of(
        &self,
        names: impl IntoIterator<Item = &str>,
    ) -> Result<Vec<Value>, String> {
        let names = names.into_iter().filter_map(|name| name.split_once('/'));
        let names = names.filter(|(_, name)| !name.contains('/'));
        self.existing(("", "v1"), "Pod", "pods", names).await
    }

    /// Reads those of the objects with these namespaces and names that exist, some at a time.
    pub(crate) async fn existing(
        &self,
        (group, version): (&str, &str),
        kind: &str,
        plural: &str,
        names: impl IntoIterator<Item = (&str, &str)>,
    ) -> Result<Vec<Value>, String> {
        let kind = resource(group, version, kind, plural);
        let names = names.into_iter();
        let reads = names.map(|(namespace, name)| self.get(&kind, namespace, name));
        let found = stream::iter(reads).buffer_unordered(READS);
        let found = found.try_collect::<Vec<_>>().await;
        let found = found.map_err(|refusal| refusal.to_string())?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Reads an object, of the whole cluster when the namespace is empty; `None` when it does not exist.
    pub(crate) async fn object(
        &self,
        (group, version): (&str, &str),
        kind: &str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, String> {
        let kind = resource(group, version, kind, plural);
        let found = self.get(&kind, namespace, name).await;
        found.map_err(|refusal| refusal.to_string())
    }

    /// Reads the objects of a kind, of one namespace or of all, that match a label selector.
    pub(crate) async fn labelled(
        &self,
        (group, version): (&str, &str),
        kind: &str,
        plural: &str,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<Vec<Value>, String> {
        let kind = resource(group, version, kind, plural);
        let params = ListParams::default().labels(labels);
        self.list(&kind, namespace, &params).await
    }

    /// Reads the secrets of a namespace that match a label selector.
    pub(crate) async fn secrets(
        &self,
        namespace: &str,
        labels: &str,
    ) -> Result<Vec<Value>, String> {
        let namespace = Some(namespace);
        self.labelled(("", "v1"), "Secret", "secrets", namespace, labels)
            .await
    }

    /// Makes a change. Returns the object as it is then.
    pub(crate) async fn write(&self, write: Write<'_>) -> Result<Value, PatchError> {
        send(self.client.clone(), request(&write)?).await
    }

    /// Makes changes, some at a time. Returns the first failure, or otherwise each object as it is then; `None` where nothing was changed,
    /// since the object was another one.
    pub(crate) async fn write_all(
        &self,
        writes: Vec<Write<'_>>,
    ) -> Result<Vec<Option<Value>>, String> {
        let sent = stream::iter(writes).map(|write| self.write(write));
        let written = sent.buffered(WRITES).map(|outcome| match outcome {
            Ok(object) => Ok(Some(object)),
            Err(PatchError::Changed(_)) => Ok(None),
            Err(PatchError::Failed(reason)) => Err(reason),
        });
        written.try_collect().await
    }

    /// Reads the version of the API server, such as `v1.32.3+k3s1`.
    pub(crate) async fn version(&self) -> Result<String, String> {
        let info = self.client.apiserver_version().await;
        let info = info.map_err(|error| refusal(&error))?;
        Ok(info.git_version)
    }

    /// Returns whether the API server says that it has a kind in a group and version.
    pub(crate) async fn has_kind(&self, group_version: &str, kind: &str) -> bool {
        let kinds = self.client.list_api_group_resources(group_version).await;
        kinds.is_ok_and(|kinds| kinds.resources.iter().any(|one| one.kind == kind))
    }

    async fn get(
        &self,
        kind: &ApiResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, Refusal> {
        let client = self.client.clone();
        let api: Api<DynamicObject> = match namespace {
            "" => Api::all_with(client, kind),
            namespace => Api::namespaced_with(client, namespace, kind),
        };
        match api.get(name).await {
            Ok(object) => Ok(Some(to_value(object))),
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(None),
            Err(error) => Err(Refusal(refusal(&error))),
        }
    }

    async fn list(
        &self,
        kind: &ApiResource,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<Vec<Value>, String> {
        let listed = self.api(namespace, kind).list(params).await;
        let listed = listed.map_err(|error| refusal(&error))?;
        Ok(listed.items.into_iter().map(to_value).collect())
    }

    /// Returns the objects of a kind, of one namespace or of all.
    fn api(&self, namespace: Option<&str>, kind: &ApiResource) -> Api<DynamicObject> {
        let client = self.client.clone();
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, kind),
            None => Api::all_with(client, kind),
        }
    }
}

/// Returns what the API server has answered; `None` when it does not know the kind.
fn known<T>(answer: kube::Result<T>) -> Result<Option<T>, String> {
    match answer {
        Ok(listed) => Ok(Some(listed)),
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(None),
        Err(error) => Err(refusal(&error)),
    }
}

/// Reads all objects of a kind, page by page; `None` when the cluster does not know the kind.
async fn pages(api: &Api<DynamicObject>, params: ListParams) -> Result<Option<Vec<Value>>, String> {
    let mut params = params.limit(PAGE_SIZE);
    let mut objects = Vec::new();
    loop {
        let Some(listed) = known(api.list(&params).await)? else {
            return Ok(None);
        };
        objects.extend(listed.items.into_iter().map(to_value));
        let rest = listed.metadata.continue_.filter(|token| !token.is_empty());
        let Some(token) = rest else {
            return Ok(Some(objects));
        };
        params = params.continue_token(&token);
    }
}

fn request(write: &Write<'_>) -> Result<http::Request<Vec<u8>>, PatchError> {
    let request = match write {
        Write::Create(collection, object) => {
            let body = serde_json::to_vec(object).expect("a value is JSON");
            Request::new(*collection).create(&PostParams::default(), body)
        }
        Write::Patch(collection, name, operations) => {
            // Kube's own JSON patches are behind a feature with another crate.
            let patch = Patch::Merge(operations);
            let request = Request::new(*collection).patch(name, &PatchParams::default(), &patch);
            request.map(|mut request| {
                let json_patch = JSON_PATCH.parse().expect("a constant of ASCII");
                request.headers_mut().insert("content-type", json_patch);
                request
            })
        }
        Write::Delete(collection, name, uid) => {
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: Some((*uid).to_owned()),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            Request::new(*collection).delete(name, &params)
        }
    };
    request.map_err(|error| PatchError::Failed(error_line(&error)))
}

async fn send(client: Client, request: http::Request<Vec<u8>>) -> Result<Value, PatchError> {
    let answer = client.request(request).await;
    answer.map_err(|error| match &error {
        kube::Error::Api(status) if CHANGED.contains(&status.code) => {
            PatchError::Changed(refusal(&error))
        }
        _ => PatchError::Failed(refusal(&error)),
    })
}

/// Why a patch changed nothing, with the API server's message or the error of the connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatchError {
    /// A test of the patch did not hold, or the object no longer exists, or exists already.
    #[error("{0}")]
    Changed(String),
    #[error("{0}")]
    Failed(String),
}

/// The reason why a request failed, as [`refusal`] words it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

/// Returns the API server's message, or the error of the connection.
pub(crate) fn refusal(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        error => error_line(error),
    }
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

fn to_value(object: DynamicObject) -> Value {
    serde_json::to_value(object).expect("an object that was read as JSON")
}

/// Returns false for events about an earlier pod of the same name, which had another uid.
/// For static pods the kubelet writes a uid of its own, which has no `-`.
fn is_about(event: &Value, uid: &str) -> bool {
    let about = event.pointer("/involvedObject/uid").and_then(Value::as_str);
    about.is_none_or(|about| about.is_empty() || about == uid || !about.contains('-'))
}

/// Returns those of these events that are about the pod with this uid, the oldest first.
pub(crate) fn events_about<'a>(events: impl Iterator<Item = &'a Value>, uid: &str) -> Vec<Event> {
    let about = events.filter(|event| is_about(event, uid));
    let mut events: Vec<_> = about.map(event).collect();
    events.sort_by_key(|event| event.at);
    events
}

fn event(object: &Value) -> Event {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let times = [
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/eventTime",
        "/metadata/creationTimestamp",
    ];
    let at = times
        .iter()
        .find_map(|time| seconds(object.pointer(time)?.as_str()?));
    Event {
        reason: text("reason"),
        message: text("message"),
        is_warning: text("type") == "Warning",
        cause: object["metadata"]["annotations"][cause::ANNOTATION]
            .as_str()
            .and_then(Cause::from_word),
        count: object["count"].as_u64().unwrap_or(1),
        at: at.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn event_times_are_read_from_both_event_apis() {
        let old = json!({"reason": "A", "message": "m", "type": "Warning", "count": 3, "lastTimestamp": "1970-01-01T00:01:00Z"});
        let new = json!({"reason": "B", "eventTime": "1970-01-01T00:02:00.000000Z", "lastTimestamp": null});
        let expected = Event {
            reason: "A".to_owned(),
            message: "m".to_owned(),
            is_warning: true,
            cause: None,
            count: 3,
            at: 60,
        };
        assert_eq!(event(&old), expected);
        assert_eq!((event(&new).at, event(&new).count), (120, 1));
        let caused = json!({"metadata": {"annotations": {"multus-rs/cause": "plugin-missing"}}});
        assert_eq!(event(&caused).cause, Some(Cause::PluginMissing));
    }

    #[test]
    fn events_of_an_earlier_pod_of_the_name_are_left_out() {
        let of = |uid: &str| is_about(&json!({"involvedObject": {"uid": uid}}), "a-1");
        assert!(of("a-1") && of("") && of("0f1e2d"));
        assert!(!of("b-2"));
        assert!(is_about(&json!({}), "a-1"));
    }

    #[test]
    fn deletion_names_the_uid_of_its_object() {
        let request = request(&Write::Delete("/apis/g/v1/things", "one", "u-1")).unwrap();
        assert_eq!(request.uri(), "/apis/g/v1/things/one?");
        let options: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(options["preconditions"]["uid"], "u-1");
    }
}
