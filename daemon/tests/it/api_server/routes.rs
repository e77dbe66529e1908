//! What it answers to whom.

use std::{convert::Infallible, sync::Arc};

use futures::stream;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Frame, Incoming},
    header::{ACCEPT, RETRY_AFTER},
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

use super::{Ask, Kept, Kind, Shared};
use crate::signing::{self, Peer};

const REQUESTS: &[&str] = &[
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
            let mut kept = shared.lock();
            kept.connections += 1;
            kept.connections
        };
        tokio::spawn(async move {
            let Some(acceptor) = &shared.tls else {
                return converse(&shared, stream, None, number, false).await;
            };
            // A client whose certificate is too old is told so, and comes again.
            if let Ok(stream) = acceptor.accept(stream).await {
                let session = stream.get_ref().1;
                let peer = signing::peer(session);
                let is_http2 = session.alpn_protocol() == Some(b"h2");
                converse(&shared, stream, peer, number, is_http2).await;
            }
        });
    }
}

async fn converse(
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
    // A client may go whenever it likes.
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
    let words: Vec<&str> = path.split('/').skip(1).collect();
    let is_list_form;
    let user = {
        let mut kept = shared.lock();
        let user = match kept.signer.user(peer, &head.headers) {
            Ok(user) => user,
            Err(status) => return reply(refused(status)),
        };
        let watches = query.contains("watch=true");
        let method = if watches {
            "WATCH"
        } else {
            head.method.as_str()
        };
        let what = format!("{method} {path}");
        let accept = head.headers.get(ACCEPT);
        let ask = Ask {
            user,
            what,
            query: query.to_owned(),
            accept: accept.map_or("", |text| text.to_str().unwrap()).to_owned(),
            connection,
        };
        kept.asks.push(ask.clone());
        shared.changed.notify_all();
        let mut unreadable = kept.unreadable.iter();
        if let Some((_, status)) = unreadable.find(|(end, _)| path.ends_with(end)) {
            return reply(refused(*status));
        }
        is_list_form = ask.accept.contains("PartialObjectMetadataList");
        ask.user
    };
    let hangs = head.method == Method::PATCH && path.ends_with("/status") && {
        let mut kept = shared.lock();
        let hangs = kept.hung_patches > 0;
        kept.hung_patches = kept.hung_patches.saturating_sub(1);
        hangs
    };
    if hangs {
        std::future::pending::<()>().await;
    }
    let listed = match words.as_slice() {
        ["api", "v1", "pods"] | ["api", "v1", "namespaces", _, "pods"] => Some(Kind::Pod),
        [
            "apis",
            "k8s.cni.cncf.io",
            "v1",
            "network-attachment-definitions",
        ] => Some(Kind::Definition),
        ["apis", "apps", "v1", "namespaces", _, "daemonsets"] => Some(Kind::DaemonSet),
        REQUESTS if head.method == Method::GET => Some(Kind::SigningRequest),
        ["apis", "resource.k8s.io", "v1", "resourceslices"] => Some(Kind::Slice),
        _ => None,
    };
    if let Some(kind) = listed {
        let mut answering = shared.answering.subscribe();
        let _ = answering.wait_for(|answering| *answering).await;
        return if kind == Kind::Definition && shared.lock().no_definitions {
            reply(absent())
        } else if query.contains("watch=true") && is_list_form {
            // As the real one: an object cannot be sent in the form of a list, so the watch ends.
            reply((StatusCode::OK, Value::Null))
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
            object(&kept, Kind::Pod, namespace, name)
        }
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
        ) => object(&kept, Kind::Claim, namespace, name),
        (
            Method::PATCH | Method::PUT,
            ["api", "v1", "namespaces", namespace, "pods", name, "status"],
        ) => {
            if let Some((status, times)) = &mut kept.refusal
                && *times > 0
            {
                *times -= 1;
                refused(*status)
            } else {
                kept.patches.push((format!("{namespace}/{name}"), body));
                object(&kept, Kind::Pod, namespace, name)
            }
        }
        (Method::POST, ["api", "v1", "namespaces", _, "events"]) => {
            let mut event = body;
            event["metadata"]["name"] = json!(format!("event-{}", kept.events.len()));
            kept.events.push(event.clone());
            (StatusCode::CREATED, event)
        }
        (Method::PATCH, ["api", "v1", "namespaces", _, "events", name]) => {
            count(&mut kept, name, body)
        }
        (Method::POST, REQUESTS) => {
            let mut request = kept.signer.complete(body, &user, kept.version);
            kept.put(Kind::SigningRequest, &mut request);
            (StatusCode::CREATED, request)
        }
        (Method::GET, [one @ .., name]) if *one == *REQUESTS => kept.signing_request(name),
        (Method::PUT, [one @ .., _, "approval"]) if *one == *REQUESTS => kept.judged(body),
        _ => absent(),
    };
    let retry_after = kept.retry_after;
    drop(kept);
    shared.changed.notify_all();
    let mut response = reply(answer);
    if let Some(seconds) = retry_after.filter(|_| !response.status().is_success()) {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// Writes what is new into an event, as long as it is remembered.
fn count(kept: &mut Kept, name: &str, patch: Value) -> (StatusCode, Value) {
    let mut events = kept.events.iter_mut();
    let event = events.find(|event| event["metadata"]["name"] == name);
    let (Some(event), Value::Object(patch)) = (event, patch) else {
        return absent();
    };
    for (key, value) in patch {
        event[key] = value;
    }
    (StatusCode::OK, event.clone())
}

fn list(shared: &Shared, kind: Kind, query: &str) -> Response<Body> {
    let kept = shared.lock();
    assert!(
        !query.contains("limit="),
        "older releases ask etcd then: {query}"
    );
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
    if since < kept.forgotten {
        return reply(refused(StatusCode::GONE));
    }
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
    let node = node.split(['&', '%']).next().unwrap_or_default();
    object["spec"]["nodeName"] == node
}

fn object(kept: &Kept, kind: Kind, namespace: &str, name: &str) -> (StatusCode, Value) {
    let key = (kind, namespace.to_owned(), name.to_owned());
    kept.objects
        .get(&key)
        .map_or_else(absent, |pod| (StatusCode::OK, pod.clone()))
}

pub(super) fn absent() -> (StatusCode, Value) {
    refused(StatusCode::NOT_FOUND)
}

pub(super) fn refused(status: StatusCode) -> (StatusCode, Value) {
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
