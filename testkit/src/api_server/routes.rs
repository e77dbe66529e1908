//! Connections, and the answer to each request.

use std::{convert::Infallible, sync::Arc};

use futures::stream;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Frame, Incoming},
    header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER},
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::mpsc,
};

use super::{
    signer::{Peer, peer},
    store::{Kind, ReceivedRequest, Shared, Store, not_found, refusal},
};

const SIGNING_REQUESTS: &[&str] = &[
    "apis",
    "certificates.k8s.io",
    "v1",
    "certificatesigningrequests",
];

type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let shared = Arc::clone(&shared);
        let number = {
            let mut store = shared.lock();
            store.connections += 1;
            store.connections
        };
        tokio::spawn(async move {
            let Some(acceptor) = &shared.tls else {
                return serve_connection(&shared, stream, None, number, false).await;
            };
            // The handshake fails for a client with an expired certificate, which then connects again.
            if let Ok(stream) = acceptor.accept(stream).await {
                let session = stream.get_ref().1;
                let peer = peer(session);
                let is_http2 = session.alpn_protocol() == Some(b"h2");
                serve_connection(&shared, stream, peer, number, is_http2).await;
            }
        });
    }
}

async fn serve_connection(
    shared: &Arc<Shared>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Option<Peer>,
    number: usize,
    is_http2: bool,
) {
    let shared = Arc::clone(shared);
    let service = service_fn(move |request| {
        let (shared, peer) = (Arc::clone(&shared), peer.clone());
        async move { Ok::<_, Infallible>(route(&shared, peer.as_ref(), number, request).await) }
    });
    // A client may close the connection at any time.
    if is_http2 {
        let _ = http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
    } else {
        let _ = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }
}

#[expect(clippy::too_many_lines, reason = "a table of all paths")]
async fn route(
    shared: &Shared,
    peer: Option<&Peer>,
    connection: usize,
    request: Request<Incoming>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
    let body: Value = match body.collect().await {
        Ok(body) => serde_json::from_slice(&body.to_bytes()).unwrap_or_default(),
        Err(_) => Value::Null,
    };
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let (is_list_form, delay, hangs);
    let user = {
        let mut store = shared.lock();
        let user = match store.signer.user(peer, &head.headers) {
            Ok(user) => user,
            Err(status) => return reply(refusal(status)),
        };
        let method = if query.contains("watch=true") {
            "WATCH"
        } else {
            head.method.as_str()
        };
        let header = |name| {
            let value = head.headers.get(name);
            value.map_or("", |text| text.to_str().unwrap()).to_owned()
        };
        let received = ReceivedRequest {
            user,
            method_and_path: format!("{method} {path}"),
            query: query.to_owned(),
            accept: header(ACCEPT),
            content_type: header(CONTENT_TYPE),
            body: body.clone(),
            connection,
        };
        store.requests.push(received.clone());
        shared.changed.notify_all();
        // Whoever has seen this request decides only about later ones.
        let is_status = head.method == Method::PATCH && path.ends_with("/status");
        hangs = is_status && store.hung_patches > 0;
        store.hung_patches -= usize::from(hangs);
        let mut unreadable = store.unreadable.iter_mut();
        let is_meant =
            |(end, _, times): &&mut (String, _, usize)| path.ends_with(end.as_str()) && *times > 0;
        if let Some((_, status, times)) = unreadable.find(is_meant) {
            *times -= 1;
            return reply(refusal(*status));
        }
        if let Some(answers) = &store.fixed_answers {
            return reply(answers.get(path).cloned().unwrap_or_else(not_found));
        }
        is_list_form = received.accept.contains("PartialObjectMetadataList");
        let delayed = store.delayed.as_ref();
        delay = delayed.and_then(|(end, delay)| path.ends_with(end).then_some(*delay));
        received.user
    };
    if let Some(delay) = delay {
        tokio::time::sleep(delay).await;
    }
    if hangs {
        std::future::pending::<()>().await;
    }
    let listed = match segments.as_slice() {
        ["api", "v1", "pods"] | ["api", "v1", "namespaces", _, "pods"] => Some(Kind::Pod),
        [
            "apis",
            "k8s.cni.cncf.io",
            "v1",
            "network-attachment-definitions",
        ] => Some(Kind::Definition),
        ["apis", "apps", "v1", "namespaces", _, "daemonsets"] => Some(Kind::DaemonSet),
        SIGNING_REQUESTS if head.method == Method::GET => Some(Kind::SigningRequest),
        ["apis", "resource.k8s.io", "v1", "resourceslices"] => Some(Kind::Slice),
        ["api", "v1", "nodes"] => Some(Kind::Node),
        _ => None,
    };
    if let Some(kind) = listed {
        let mut answers_lists = shared.answers_lists.subscribe();
        let _ = answers_lists.wait_for(|answers| *answers).await;
        return if kind == Kind::Definition && shared.lock().has_no_definition_crd {
            reply(not_found())
        } else if query.contains("watch=true") && is_list_form {
            // As in a real API server: an object cannot be sent in the form of a list, so the watch ends.
            reply((StatusCode::OK, Value::Null))
        } else if query.contains("watch=true") {
            watch(shared, kind, query)
        } else {
            list(shared, kind, query)
        };
    }
    let mut store = shared.lock();
    let answer = match (head.method, segments.as_slice()) {
        (Method::GET, ["api", "v1", "namespaces", namespace, "pods", name]) => {
            object(&store, Kind::Pod, namespace, name)
        }
        (Method::GET, ["api", "v1", "nodes", name]) => object(&store, Kind::Node, "", name),
        (Method::PATCH, ["api", "v1", "nodes", name]) => patch_labels(&mut store, name, &body),
        (
            Method::GET,
            [
                "apis",
                "resource.k8s.io",
                "v1",
                "namespaces",
                namespace,
                "resourceclaims",
                name,
            ],
        ) => object(&store, Kind::Claim, namespace, name),
        (
            Method::GET,
            [
                "apis",
                "k8s.cni.cncf.io",
                "v1",
                "namespaces",
                namespace,
                "network-attachment-definitions",
                name,
            ],
        ) => object(&store, Kind::Definition, namespace, name),
        (
            Method::PATCH | Method::PUT,
            ["api", "v1", "namespaces", namespace, "pods", name, "status"],
        ) => {
            if let Some((status, times)) = &mut store.patch_refusal
                && *times > 0
            {
                *times -= 1;
                refusal(*status)
            } else {
                store.patches.push((format!("{namespace}/{name}"), body));
                object(&store, Kind::Pod, namespace, name)
            }
        }
        (Method::POST, ["api", "v1", "namespaces", _, "events"]) => {
            let mut event = body;
            let name = &event["metadata"]["name"];
            let mut known = store.events.iter();
            if !name.is_null() && known.any(|one| one["metadata"]["name"] == *name) {
                return reply(refusal(StatusCode::CONFLICT));
            }
            if name.is_null() {
                event["metadata"]["name"] = json!(format!("event-{}", store.events.len()));
            }
            store.events.push(event.clone());
            (StatusCode::CREATED, event)
        }
        (Method::PATCH, ["api", "v1", "namespaces", _, "events", name]) => {
            patch_event(&mut store, name, body)
        }
        (Method::POST, SIGNING_REQUESTS) => {
            let mut request = store.signer.complete(body, &user, store.version);
            store.put(Kind::SigningRequest, &mut request);
            (StatusCode::CREATED, request)
        }
        (Method::GET, [one @ .., name]) if *one == *SIGNING_REQUESTS => store.signing_request(name),
        (Method::PUT, [one @ .., _, "approval"]) if *one == *SIGNING_REQUESTS => store.decide(body),
        _ => not_found(),
    };
    let retry_after = store.retry_after;
    drop(store);
    shared.changed.notify_all();
    let mut response = reply(answer);
    if let Some(seconds) = retry_after.filter(|_| !response.status().is_success()) {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// Changes the labels of a Node; nothing else of one is patched.
fn patch_labels(store: &mut Store, name: &str, patch: &Value) -> (StatusCode, Value) {
    let (StatusCode::OK, mut node) = object(store, Kind::Node, "", name) else {
        return not_found();
    };
    for (key, value) in patch["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
    {
        node["metadata"]["labels"][key] = value.clone();
    }
    if let Some(labels) = node["metadata"]["labels"].as_object_mut() {
        labels.retain(|_, value| !value.is_null());
    }
    store.put(Kind::Node, &mut node);
    (StatusCode::OK, node)
}

/// Patches an event, unless it has expired.
fn patch_event(store: &mut Store, name: &str, patch: Value) -> (StatusCode, Value) {
    let mut events = store.events.iter_mut();
    let event = events.find(|event| event["metadata"]["name"] == name);
    let (Some(event), Value::Object(patch)) = (event, patch) else {
        return not_found();
    };
    for (key, value) in patch {
        event[key] = value;
    }
    (StatusCode::OK, event.clone())
}

fn list(shared: &Shared, kind: Kind, query: &str) -> Response<Body> {
    let store = shared.lock();
    assert!(
        !query.contains("limit="),
        "older releases read etcd then: {query}"
    );
    let items: Vec<&Value> = store
        .objects
        .iter()
        .filter(|((of, ..), object)| *of == kind && is_selected(object, query))
        .map(|(_, object)| object)
        .collect();
    let version = store.version.to_string();
    reply((
        StatusCode::OK,
        json!({"metadata": {"resourceVersion": version}, "items": items}),
    ))
}

fn watch(shared: &Shared, kind: Kind, query: &str) -> Response<Body> {
    let since: u64 = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("resourceVersion="))
        .and_then(|version| version.parse().ok())
        .unwrap_or_default();
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut store = shared.lock();
    if since < store.compacted {
        return reply(refusal(StatusCode::GONE));
    }
    for (version, of, line) in &store.changes {
        if *version > since && *of == kind {
            sender.send(line.clone()).unwrap();
        }
    }
    store.watchers.push((kind, sender));
    shared.changed.notify_all();
    let lines = stream::unfold(receiver, |mut receiver| async move {
        let line = receiver.recv().await?;
        Some((Ok(Frame::data(line)), receiver))
    });
    Response::new(StreamBody::new(lines).boxed_unsync())
}

/// Knows three field selectors, a Node's name, a pod's node and the phases that it must not have: a list holds no other object. Tests change no
/// other one while they are watched.
fn is_selected(object: &Value, query: &str) -> bool {
    let ends = |text: &str| text.split(['&', '%']).next().unwrap_or_default().to_owned();
    let selected = |key: &str| query.split_once(key).map(|(_, rest)| ends(rest));
    let (name, node) = (selected("metadata.name%3D"), selected("spec.nodeName%3D"));
    let mut phases = query.split("status.phase%21%3D").skip(1).map(ends);
    name.is_none_or(|name| object["metadata"]["name"] == name)
        && node.is_none_or(|node| object["spec"]["nodeName"] == node)
        && phases.all(|phase| object["status"]["phase"] != phase)
}

fn object(store: &Store, kind: Kind, namespace: &str, name: &str) -> (StatusCode, Value) {
    let key = (kind, namespace.to_owned(), name.to_owned());
    store
        .objects
        .get(&key)
        .map_or_else(not_found, |object| (StatusCode::OK, object.clone()))
}

fn reply((status, answer): (StatusCode, Value)) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())).boxed_unsync());
    *response.status_mut() = status;
    response
}
