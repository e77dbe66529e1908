//! An API server with as much of Kubernetes as the daemon asks for: list and watch, one pod, status patches, events.
//! It checks nothing that a real one checks; it remembers what it was told.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex, MutexGuard},
};

use futures::stream;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    sync::{mpsc, watch},
};

use crate::PATIENCE;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Pod,
    Definition,
    DaemonSet,
}

/// Answers until it is dropped.
pub(crate) struct ApiServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

struct Shared {
    kept: Mutex<Kept>,
    changed: Condvar,
    /// Whether lists are answered.
    answering: watch::Sender<bool>,
}

#[derive(Default)]
struct Kept {
    version: u64,
    objects: BTreeMap<(Kind, String, String), Value>,
    /// Every change, so that a watch can begin at any list.
    changes: Vec<(u64, Kind, Bytes)>,
    watchers: Vec<(Kind, mpsc::UnboundedSender<Bytes>)>,
    /// Whether the cluster knows no definitions at all.
    no_definitions: bool,
    /// The answer to so many patches, other than success.
    refusal: Option<(StatusCode, usize)>,
    asked: Vec<String>,
    patches: Vec<(String, Value)>,
    events: Vec<Value>,
}

impl ApiServer {
    /// One that answers.
    pub(crate) fn start() -> Self {
        let server = Self::start_silent();
        server.answer();
        server
    }

    /// One that takes connections and leaves lists unanswered until it is told to [`answer`](Self::answer).
    pub(crate) fn start_silent() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let shared = Arc::new(Shared {
            kept: Mutex::default(),
            changed: Condvar::new(),
            answering: watch::Sender::new(false),
        });
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(serve(listener, Arc::clone(&shared)));
        Self {
            shared,
            address,
            runtime: Some(runtime),
        }
    }

    pub(crate) fn answer(&self) {
        self.shared.answering.send_replace(true);
    }

    /// Ends it: connections break, new ones are refused.
    pub(crate) fn shut_down(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(PATIENCE);
        }
    }

    /// A kubeconfig that leads here.
    pub(crate) fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{}", self.address)}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "users": [{"name": "test", "user": {}}],
        })
        .to_string()
    }

    /// Adds an object or changes it.
    pub(crate) fn put(&self, kind: Kind, mut object: Value) {
        let mut kept = self.shared.lock();
        kept.version += 1;
        object["metadata"]["resourceVersion"] = json!(kept.version.to_string());
        let key = key(kind, &object);
        let known = kept.objects.insert(key, object.clone()).is_some();
        kept.announce(kind, if known { "MODIFIED" } else { "ADDED" }, &object);
    }

    pub(crate) fn delete(&self, kind: Kind, namespace: &str, name: &str) {
        let mut kept = self.shared.lock();
        let key = (kind, namespace.to_owned(), name.to_owned());
        let mut object = kept.objects.remove(&key).unwrap();
        kept.version += 1;
        object["metadata"]["resourceVersion"] = json!(kept.version.to_string());
        kept.announce(kind, "DELETED", &object);
    }

    /// From now on the cluster does not know the kind.
    pub(crate) fn forget_definitions(&self) {
        self.shared.lock().no_definitions = true;
    }

    /// From now on patches are answered so; `None` takes them again.
    pub(crate) fn refuse_patches(&self, status: Option<u16>) {
        self.shared.lock().refusal = None;
        if let Some(status) = status {
            self.refuse_some_patches(status, usize::MAX);
        }
    }

    /// The next patches are answered so.
    pub(crate) fn refuse_some_patches(&self, status: u16, times: usize) {
        let status = StatusCode::from_u16(status).unwrap();
        self.shared.lock().refusal = Some((status, times));
    }

    /// Waits until somebody has listed objects of this kind and hears of their changes.
    pub(crate) fn wait_for_watch(&self, kind: Kind) {
        drop(self.wait_until(&format!("a watch of {kind:?}"), |kept| {
            kept.watchers.iter().any(|(of, _)| *of == kind)
        }));
    }

    /// Method and path of every request so far that was no list and no watch.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.shared.lock().asked.clone()
    }

    /// What was patched into a pod's status so far.
    pub(crate) fn patches(&self) -> Vec<(String, Value)> {
        self.shared.lock().patches.clone()
    }

    /// The first events, once there are so many, as `reason: message`.
    pub(crate) fn events(&self, count: usize) -> Vec<String> {
        let kept = self.wait_until("events", |kept| kept.events.len() >= count);
        let text = |event: &Value, key: &str| event[key].as_str().unwrap().to_owned();
        kept.events
            .iter()
            .map(|event| format!("{}: {}", text(event, "reason"), text(event, "message")))
            .collect()
    }

    #[track_caller]
    fn wait_until(&self, what: &str, is_so: impl Fn(&Kept) -> bool) -> MutexGuard<'_, Kept> {
        let changed = &self.shared.changed;
        let (kept, waited) = changed
            .wait_timeout_while(self.shared.lock(), PATIENCE, |kept| !is_so(kept))
            .unwrap();
        // Dropped before a failure, lest the server's threads fail, too.
        let seen = (!waited.timed_out()).then_some(kept);
        seen.unwrap_or_else(|| panic!("waited in vain for {what}"))
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap()
    }
}

impl Kept {
    fn announce(&mut self, kind: Kind, what: &str, object: &Value) {
        let line = Bytes::from(json!({"type": what, "object": object}).to_string() + "\n");
        self.changes.push((self.version, kind, line.clone()));
        self.watchers
            .retain(|(of, watcher)| *of != kind || watcher.send(line.clone()).is_ok());
    }
}

fn key(kind: Kind, object: &Value) -> (Kind, String, String) {
    let word = |key: &str| object["metadata"][key].as_str().unwrap().to_owned();
    (kind, word("namespace"), word("name"))
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let shared = Arc::clone(&shared);
        let service = service_fn(move |request| {
            let shared = Arc::clone(&shared);
            async move { Ok::<_, Infallible>(route(&shared, request).await) }
        });
        // A client may go whenever it likes.
        tokio::spawn(async move {
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn route(shared: &Shared, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
    let body: Value = match body.collect().await {
        Ok(body) => serde_json::from_slice(&body.to_bytes()).unwrap_or_default(),
        Err(_) => Value::Null,
    };
    let words: Vec<&str> = path.split('/').skip(1).collect();
    let listed = match words.as_slice() {
        ["api", "v1", "pods"] => Some(Kind::Pod),
        [
            "apis",
            "k8s.cni.cncf.io",
            "v1",
            "network-attachment-definitions",
        ] => Some(Kind::Definition),
        ["apis", "apps", "v1", "namespaces", _, "daemonsets"] => Some(Kind::DaemonSet),
        _ => None,
    };
    if let Some(kind) = listed {
        let mut answering = shared.answering.subscribe();
        let _ = answering.wait_for(|answering| *answering).await;
        return if kind == Kind::Definition && shared.lock().no_definitions {
            reply(absent())
        } else if query.contains("watch=true") {
            follow(shared, kind, query)
        } else {
            list(shared, kind, query)
        };
    }
    let mut kept = shared.lock();
    kept.asked.push(format!("{} {path}", head.method));
    let answer = match (head.method, words.as_slice()) {
        (Method::GET, ["api", "v1", "namespaces", namespace, "pods", name]) => {
            pod(&kept, namespace, name)
        }
        (Method::PATCH, ["api", "v1", "namespaces", namespace, "pods", name, "status"]) => {
            if let Some((status, times)) = &mut kept.refusal
                && *times > 0
            {
                *times -= 1;
                refused(*status)
            } else {
                kept.patches.push((format!("{namespace}/{name}"), body));
                pod(&kept, namespace, name)
            }
        }
        (Method::POST, ["api", "v1", "namespaces", _, "events"]) => {
            kept.events.push(body.clone());
            (StatusCode::CREATED, body)
        }
        _ => absent(),
    };
    shared.changed.notify_all();
    reply(answer)
}

fn list(shared: &Shared, kind: Kind, query: &str) -> Response<Body> {
    let kept = shared.lock();
    let items: Vec<&Value> = kept
        .objects
        .iter()
        .filter(|((of, ..), object)| *of == kind && is_selected(object, query))
        .map(|(_, object)| object)
        .collect();
    let version = kept.version.to_string();
    reply((
        StatusCode::OK,
        json!({"metadata": {"resourceVersion": version}, "items": items}),
    ))
}

fn follow(shared: &Shared, kind: Kind, query: &str) -> Response<Body> {
    let since: u64 = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("resourceVersion="))
        .and_then(|version| version.parse().ok())
        .unwrap_or_default();
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut kept = shared.lock();
    for (version, of, line) in &kept.changes {
        if *version > since && *of == kind {
            sender.send(line.clone()).unwrap();
        }
    }
    kept.watchers.push((kind, sender));
    shared.changed.notify_all();
    let lines = stream::unfold(receiver, |mut receiver| async move {
        let line = receiver.recv().await?;
        Some((Ok(Frame::data(line)), receiver))
    });
    Response::new(StreamBody::new(lines).boxed_unsync())
}

/// Of field selectors the node's alone: a list holds no pod of another node. Tests change no such pod while it is watched.
fn is_selected(object: &Value, query: &str) -> bool {
    let Some((_, node)) = query.split_once("spec.nodeName%3D") else {
        return true;
    };
    let node = node.split('&').next().unwrap_or_default();
    object["spec"]["nodeName"] == node
}

fn pod(kept: &Kept, namespace: &str, name: &str) -> (StatusCode, Value) {
    let key = (Kind::Pod, namespace.to_owned(), name.to_owned());
    kept.objects
        .get(&key)
        .map_or_else(absent, |pod| (StatusCode::OK, pod.clone()))
}

fn absent() -> (StatusCode, Value) {
    refused(StatusCode::NOT_FOUND)
}

fn refused(status: StatusCode) -> (StatusCode, Value) {
    let reason = status
        .canonical_reason()
        .unwrap_or_default()
        .replace(' ', "");
    let answer = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "told to refuse", "reason": reason, "code": status.as_u16(),
    });
    (status, answer)
}

fn reply((status, answer): (StatusCode, Value)) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())).boxed_unsync());
    *response.status_mut() = status;
    response
}
