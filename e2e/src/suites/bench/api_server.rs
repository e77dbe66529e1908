//! An API server with only the parts of Kubernetes that a daemon uses: a fixed set of pods and network definitions, and the blocks of addresses
//! that it makes. It uses next to no CPU, so that the measurements are of the daemon.
//!
//! It does no checks of a real API server: a patch of a block is made whatever it tests.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Bytes, Frame, Incoming},
    header::{ACCEPT, CONTENT_TYPE},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use ipam::object;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::pods;
use crate::{
    control_plane::{pki::Pki, tls_server},
    node::Node,
};

const JSON: &str = "application/json";

/// Serves on the node until the test ends.
pub(super) fn start(node: &Node, port: u16, pki: &Pki) -> anyhow::Result<()> {
    let server = Arc::new(Server {
        pods: pods::all(&node.name),
        definitions: pods::definitions(),
        blocks: Mutex::default(),
        version: AtomicU64::new(1000),
        watches: Mutex::default(),
    });
    tls_server::start(node, port, pki, move |stream, acceptor| {
        let server = Arc::clone(&server);
        async move {
            let stream = acceptor.accept(stream).await?;
            let service = service_fn(move |request| {
                let server = Arc::clone(&server);
                async move { Ok::<_, Infallible>(server.answer(request).await) }
            });
            let connection = auto::Builder::new(TokioExecutor::new());
            let connection = connection.serve_connection(TokioIo::new(stream), service);
            connection.await.map_err(|error| anyhow::anyhow!(error))
        }
    })
}

struct Server {
    pods: Vec<Value>,
    definitions: Vec<Value>,
    blocks: Mutex<BTreeMap<String, Value>>,
    version: AtomicU64,
    /// Watches of pods, each with whether it wants metadata only.
    watches: Mutex<Vec<(bool, UnboundedSender<Bytes>)>>,
}

/// A response body that is sent in parts.
struct Parts(UnboundedReceiver<Bytes>);

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.0.poll_recv(context);
        part.map(|part| part.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// The relevant parts of a request.
struct ApiRequest<'a> {
    path: Vec<&'a str>,
    query: &'a str,
    /// Whether the client requests metadata only.
    is_partial: bool,
}

impl Server {
    async fn answer(&self, request: Request<Incoming>) -> Response<Parts> {
        let (head, body) = request.into_parts();
        let accept = head
            .headers
            .get(ACCEPT)
            .and_then(|value| value.to_str().ok());
        let request = ApiRequest {
            path: head.uri.path().trim_matches('/').split('/').collect(),
            query: head.uri.query().unwrap_or_default(),
            is_partial: accept.is_some_and(|accept| accept.contains("as=PartialObjectMetadata")),
        };
        let is_read = head.method == Method::GET;
        match (request.path.as_slice(), is_read) {
            (["api", "v1", "pods"] | ["api", "v1", "namespaces", _, "pods"], true) => {
                self.list(&request, ("v1", "Pod"), &self.pods)
            }
            (["api", "v1", "namespaces", _, "pods", name, rest @ ..], _) => {
                drain(body).await;
                self.pod(name, is_read || rest.is_empty(), &request)
            }
            (["apis", "k8s.cni.cncf.io", "v1", rest @ ..], true) => {
                let kind = ("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition");
                match rest {
                    ["namespaces", _, "network-attachment-definitions", name] => {
                        let found = self
                            .definitions
                            .iter()
                            .find(|one| one["metadata"]["name"] == *name);
                        found.map_or_else(absent, one)
                    }
                    _ => self.list(&request, kind, &self.definitions),
                }
            }
            (["api", "v1", "nodes", name], true) => {
                one(&json!({"metadata": {"name": name, "uid": "bench"}}))
            }
            (["apis", object::GROUP, _, object::RESOURCE], true) => {
                let blocks: Vec<_> = self.blocks().values().cloned().collect();
                let version = format!("{}/{}", object::GROUP, object::VERSION);
                self.list(&request, (&version, object::KIND), &blocks)
            }
            (["apis", object::GROUP, _, object::RESOURCE, name @ ..], false) => {
                self.write_block(name.first().copied(), &drain(body).await)
            }
            (["apis", "apps", "v1", "namespaces", _, "daemonsets"], true) => {
                self.list(&request, ("apps/v1", "DaemonSet"), &[])
            }
            ([.., "events"], false) => {
                // The response is the client's own event, in the client's format.
                let kind = head
                    .headers
                    .get(CONTENT_TYPE)
                    .and_then(|value| value.to_str().ok());
                let kind = kind.unwrap_or(JSON).to_owned();
                let body = drain(body).await;
                respond(StatusCode::CREATED, &kind, body)
            }
            (["version"], true) => {
                one(&json!({"major": "1", "minor": "34", "gitVersion": "v1.34.4"}))
            }
            _ => absent(),
        }
    }

    /// Reads a pod, or accepts a write of its status and notifies the watches.
    fn pod(&self, name: &str, is_read: bool, request: &ApiRequest<'_>) -> Response<Parts> {
        let Some(pod) = self.pods.iter().find(|pod| pod["metadata"]["name"] == name) else {
            return absent();
        };
        if is_read {
            return one(&view(pod, request.is_partial));
        }
        let mut pod = pod.clone();
        let version = self.version.fetch_add(1, Ordering::SeqCst) + 1;
        pod["metadata"]["resourceVersion"] = json!(version.to_string());
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|(is_partial, watch)| {
            let event = event("MODIFIED", &view(&pod, *is_partial));
            watch.send(event).is_ok()
        });
        drop(watches);
        one(&view(&pod, request.is_partial))
    }

    fn blocks(&self) -> MutexGuard<'_, BTreeMap<String, Value>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a block, or changes the one of this name by a JSON patch.
    fn write_block(&self, name: Option<&str>, body: &[u8]) -> Response<Parts> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut blocks = self.blocks();
        let block = match name {
            None => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                let block = blocks.entry(name.to_owned()).or_insert(body.clone());
                block["metadata"]["uid"] = "bench".into();
                block
            }
            Some(name) => {
                let Some(block) = blocks.get_mut(name) else {
                    return absent();
                };
                for step in body.as_array().into_iter().flatten() {
                    let path = step["path"].as_str().unwrap_or_default();
                    if step["op"] != "test"
                        && let Some(place) = block.pointer_mut(path)
                    {
                        *place = step["value"].clone();
                    }
                }
                block
            }
        };
        let version = self.version.fetch_add(1, Ordering::SeqCst) + 1;
        block["metadata"]["resourceVersion"] = version.to_string().into();
        one(block)
    }

    /// Serves a list, a watch, or a watch with initial events.
    fn list(
        &self,
        request: &ApiRequest<'_>,
        (api_version, kind): (&str, &str),
        objects: &[Value],
    ) -> Response<Parts> {
        let has = |word: &str| request.query.split('&').any(|part| part == word);
        let version = self.version.load(Ordering::SeqCst).to_string();
        let views = objects.iter().map(|one| view(one, request.is_partial));
        let (list_kind, list_version) = if request.is_partial {
            ("PartialObjectMetadata", "meta.k8s.io/v1")
        } else {
            (kind, api_version)
        };
        if !has("watch=true") && !has("watch=1") {
            let items: Vec<_> = views.collect();
            return one(&json!({
                "kind": format!("{list_kind}List"), "apiVersion": list_version,
                "metadata": {"resourceVersion": version}, "items": items,
            }));
        }
        let (to, parts) = unbounded_channel();
        if has("sendInitialEvents=true") {
            let mark = json!({"kind": list_kind, "apiVersion": list_version, "metadata": {
                "resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}, "creationTimestamp": null,
            }});
            let added = views.map(|object| event("ADDED", &object));
            for event in added.chain([event("BOOKMARK", &mark)]) {
                // The client may have closed the connection.
                let _ = to.send(event);
            }
        }
        // A watch without events must stay open, too.
        if kind == "Pod" {
            let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
            watches.push((request.is_partial, to));
        } else {
            std::mem::forget(to);
        }
        stream(StatusCode::OK, JSON, parts)
    }
}

fn one(object: &Value) -> Response<Parts> {
    respond(StatusCode::OK, JSON, object.to_string().into())
}

fn absent() -> Response<Parts> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not here"});
    respond(StatusCode::NOT_FOUND, JSON, status.to_string().into())
}

fn respond(status: StatusCode, kind: &str, body: Bytes) -> Response<Parts> {
    let (to, parts) = unbounded_channel();
    let _ = to.send(body);
    stream(status, kind, parts)
}

fn stream(status: StatusCode, kind: &str, parts: UnboundedReceiver<Bytes>) -> Response<Parts> {
    let mut response = Response::new(Parts(parts));
    *response.status_mut() = status;
    if let Ok(kind) = kind.parse() {
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    response
}

/// Reads a request body to its end.
async fn drain(body: Incoming) -> Bytes {
    use http_body_util::BodyExt as _;
    body.collect()
        .await
        .map_or_else(|_| Bytes::new(), http_body_util::Collected::to_bytes)
}

/// Returns an object, or its metadata only.
fn view(object: &Value, is_partial: bool) -> Value {
    if is_partial {
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
    } else {
        object.clone()
    }
}

/// Returns a line of a watch.
fn event(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": kind, "object": object})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_objects_have_kind_and_metadata_only() {
        let pod = json!({"kind": "Pod", "metadata": {"name": "a"}, "spec": {}});
        let partial = view(&pod, true);
        assert_eq!(partial["kind"], "PartialObjectMetadata");
        assert_eq!(partial["metadata"], pod["metadata"]);
        assert!(partial["spec"].is_null());
        assert_eq!(view(&pod, false), pod);
        assert_eq!(
            event("ADDED", &json!({})),
            "{\"type\":\"ADDED\",\"object\":{}}\n"
        );
    }
}
