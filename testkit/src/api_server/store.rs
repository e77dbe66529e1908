//! The state of the server: objects with their history, switches of the test, and the recorded requests.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, MutexGuard},
    time::Duration,
};

use hyper::{StatusCode, body::Bytes};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use super::signer::Signer;

/// The kinds of objects that the server stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Pod,
    Node,
    /// `NetworkAttachmentDefinition`.
    Definition,
    DaemonSet,
    /// `CertificateSigningRequest`.
    SigningRequest,
    /// `ResourceClaim`.
    Claim,
    /// `ResourceSlice`.
    Slice,
}

pub(super) struct Shared {
    pub(super) store: Mutex<Store>,
    pub(super) changed: Condvar,
    /// Whether lists and watches are answered.
    pub(super) answers_lists: watch::Sender<bool>,
    /// With it every connection is TLS.
    pub(super) tls: Option<TlsAcceptor>,
}

/// A request as the server received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedRequest {
    /// The name in the client's certificate or the token; empty without either.
    pub user: String,
    /// The method and the path; a watch has the method `WATCH`.
    pub method_and_path: String,
    /// The query of the URL.
    pub query: String,
    /// The header `Accept`.
    pub accept: String,
    /// The header `Content-Type`.
    pub content_type: String,
    /// The body; `null` without one.
    pub body: Value,
    /// The number of the connection, from 1.
    pub connection: usize,
}

#[derive(Default)]
pub(super) struct Store {
    pub(super) version: u64,
    pub(super) objects: BTreeMap<(Kind, String, String), Value>,
    /// Every change, so that a watch can begin at any list.
    pub(super) changes: Vec<(u64, Kind, Bytes)>,
    pub(super) watchers: Vec<(Kind, mpsc::UnboundedSender<Bytes>)>,
    /// Set: the server answers these paths so, and every other path with 404.
    pub(super) fixed_answers: Option<BTreeMap<String, (StatusCode, Value)>>,
    /// Whether the cluster lacks the definitions' CRD.
    pub(super) has_no_definition_crd: bool,
    /// The status of refused patches, and how many more are refused.
    pub(super) patch_refusal: Option<(StatusCode, usize)>,
    /// `Retry-After` of refusals, in seconds.
    pub(super) retry_after: Option<u64>,
    /// How many of the next patches get no answer.
    pub(super) hung_patches: usize,
    /// Ends of paths that cannot be read, the status of the refusal, and how many more are refused.
    pub(super) unreadable: Vec<(String, StatusCode, usize)>,
    /// The end of paths whose answer is delayed, and the delay.
    pub(super) delayed: Option<(String, Duration)>,
    /// A watch that begins before this version is answered with 410.
    pub(super) compacted: u64,
    pub(super) connections: usize,
    pub(super) requests: Vec<ReceivedRequest>,
    pub(super) signer: Signer,
    pub(super) patches: Vec<(String, Value)>,
    pub(super) events: Vec<Value>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap()
    }
}

impl Store {
    pub(super) fn put(&mut self, kind: Kind, object: &mut Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let existed = self
            .objects
            .insert(key(kind, object), object.clone())
            .is_some();
        self.announce(kind, if existed { "MODIFIED" } else { "ADDED" }, object);
    }

    /// Stores an object without a change that a watch would report.
    pub(super) fn put_unseen(&mut self, kind: Kind, object: Value) {
        self.objects.insert(key(kind, &object), object);
    }

    pub(super) fn signing_request(&self, name: &str) -> (StatusCode, Value) {
        let key = (Kind::SigningRequest, String::new(), name.to_owned());
        let Some(mut request) = self.objects.get(&key).cloned() else {
            return not_found();
        };
        self.signer.sign(&mut request);
        (StatusCode::OK, request)
    }

    /// Stores a signing request with a decision, unless the request changed since the client read it.
    pub(super) fn decide(&mut self, mut request: Value) -> (StatusCode, Value) {
        if self.signer.conflicts > 0 {
            self.signer.conflicts -= 1;
            let stored = self.objects.get(&key(Kind::SigningRequest, &request));
            let mut stored = stored.unwrap().clone();
            self.put(Kind::SigningRequest, &mut stored);
        }
        let version = &request["metadata"]["resourceVersion"];
        match self.objects.get(&key(Kind::SigningRequest, &request)) {
            None => not_found(),
            Some(stored) if stored["metadata"]["resourceVersion"] != *version => {
                refusal(StatusCode::CONFLICT)
            }
            Some(_) => {
                self.put(Kind::SigningRequest, &mut request);
                (StatusCode::OK, request)
            }
        }
    }

    pub(super) fn announce(&mut self, kind: Kind, change: &str, object: &Value) {
        let line = Bytes::from(json!({"type": change, "object": object}).to_string() + "\n");
        self.changes.push((self.version, kind, line.clone()));
        self.watchers
            .retain(|(of, watcher)| *of != kind || watcher.send(line.clone()).is_ok());
    }
}

pub(super) fn not_found() -> (StatusCode, Value) {
    refusal(StatusCode::NOT_FOUND)
}

pub(super) fn refusal(status: StatusCode) -> (StatusCode, Value) {
    let reason = status
        .canonical_reason()
        .unwrap_or_default()
        .replace(' ', "");
    let answer = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "refused by the test", "reason": reason, "code": status.as_u16(),
    });
    (status, answer)
}

fn key(kind: Kind, object: &Value) -> (Kind, String, String) {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    (kind, text("namespace").to_owned(), text("name").to_owned())
}
