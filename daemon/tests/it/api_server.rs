//! An API server with as much of Kubernetes as the daemon asks for: list and watch, one pod, status patches, events, and requests for
//! certificates.
//! It checks nothing that a real one checks; it remembers what it was told.

mod routes;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex, MutexGuard},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hyper::{StatusCode, body::Bytes};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    sync::{mpsc, watch},
};
use tokio_rustls::TlsAcceptor;

use crate::{PATIENCE, authority::in_pem, signing::Signer};
use routes::{absent, refused, serve};

/// What it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Pod,
    Definition,
    DaemonSet,
    SigningRequest,
    Claim,
    Slice,
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
    /// With it everything is said over TLS.
    tls: Option<TlsAcceptor>,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) user: String,
    /// Method and path; a watch has the method `WATCH`.
    pub(crate) what: String,
    pub(crate) query: String,
    pub(crate) accept: String,
    /// Which connection it came on, from 1.
    pub(crate) connection: usize,
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
    /// What it says of the time until a refused request may come again, in seconds.
    retry_after: Option<u64>,
    /// How many of the next patches are never answered.
    hung_patches: usize,
    /// Paths that end so cannot be read, for this reason.
    unreadable: Vec<(String, StatusCode)>,
    /// Watches from before this version are told that it is gone.
    forgotten: u64,
    connections: usize,
    asked: Vec<String>,
    asks: Vec<Ask>,
    signer: Signer,
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
        Self::start_as(false)
    }

    /// One that speaks TLS with HTTP/1, and knows who asks.
    pub(crate) fn start_secure() -> Self {
        let server = Self::start_as(true);
        server.answer();
        server
    }

    /// The same with HTTP/2, as real ones do.
    pub(crate) fn start_http2() -> Self {
        let server = Self::start_with(true, true);
        server.answer();
        server
    }

    fn start_as(secure: bool) -> Self {
        Self::start_with(secure, false)
    }

    fn start_with(secure: bool, http2: bool) -> Self {
        let kept = Kept::default();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let shared = Arc::new(Shared {
            tls: secure.then(|| kept.signer.acceptor(http2)),
            kept: Mutex::new(kept),
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
        let cluster = json!({"server": format!("http://{}", self.address)});
        kubeconfig(&cluster, &json!({}))
    }

    /// One that leads here over TLS, and is this user's.
    pub(crate) fn kubeconfig_of(&self, user: &str) -> String {
        let authority = self.shared.lock().signer.authority.certificate();
        let authority = BASE64_STANDARD.encode(in_pem("CERTIFICATE", &authority));
        let server = format!("https://{}", self.address);
        let cluster = json!({"server": server, "certificate-authority-data": authority});
        kubeconfig(&cluster, &json!({"token": user}))
    }

    /// Changes how certificates are made and looked at.
    pub(crate) fn signing(&self, change: impl FnOnce(&mut Signer)) {
        change(&mut self.shared.lock().signer);
    }

    /// Every request so far.
    pub(crate) fn asks(&self) -> Vec<Ask> {
        self.shared.lock().asks.clone()
    }

    /// Objects of this kind.
    pub(crate) fn objects(&self, kind: Kind) -> Vec<Value> {
        let kept = self.shared.lock();
        let all = kept.objects.iter().filter(|((of, ..), _)| *of == kind);
        all.map(|(_, object)| object.clone()).collect()
    }

    /// Adds an object or changes it.
    pub(crate) fn put(&self, kind: Kind, mut object: Value) {
        self.shared.lock().put(kind, &mut object);
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

    /// From now on a refused request is told to wait.
    pub(crate) fn retry_after(&self, seconds: u64) {
        self.shared.lock().retry_after = Some(seconds);
    }

    /// The next patches are never answered.
    pub(crate) fn hang_patches(&self, times: usize) {
        self.shared.lock().hung_patches = times;
    }

    /// From now on paths that end so cannot be read.
    pub(crate) fn refuse_reads(&self, end: &str, status: u16) {
        let status = StatusCode::from_u16(status).unwrap();
        let mut kept = self.shared.lock();
        kept.unreadable.push((end.to_owned(), status));
    }

    /// Forgets its history and ends all watches.
    pub(crate) fn forget_history(&self) {
        let mut kept = self.shared.lock();
        kept.version += 1;
        kept.forgotten = kept.version;
        kept.watchers.clear();
    }

    /// How many connections were opened so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.lock().connections
    }

    /// Waits until somebody asked for a path that ends so.
    pub(crate) fn wait_for_ask(&self, end: &str) {
        drop(self.wait_until(&format!("a request for {end}"), |kept| {
            kept.asks.iter().any(|ask| ask.what.ends_with(end))
        }));
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

    /// Waits until the events were sent so often in all; how often each.
    pub(crate) fn counts(&self, sent: u64) -> Vec<u64> {
        let counts = |kept: &Kept| -> Vec<u64> {
            let events = kept.events.iter();
            events
                .map(|event| event["count"].as_u64().unwrap())
                .collect()
        };
        let kept = self.wait_until("counted events", |kept| {
            counts(kept).iter().sum::<u64>() >= sent
        });
        counts(&kept)
    }

    /// The events are too old to be remembered.
    pub(crate) fn forget_events(&self) {
        self.shared.lock().events.clear();
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
    fn put(&mut self, kind: Kind, object: &mut Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let known = self
            .objects
            .insert(key(kind, object), object.clone())
            .is_some();
        self.announce(kind, if known { "MODIFIED" } else { "ADDED" }, object);
    }

    fn signing_request(&self, name: &str) -> (StatusCode, Value) {
        let key = (Kind::SigningRequest, String::new(), name.to_owned());
        let Some(mut request) = self.objects.get(&key).cloned() else {
            return absent();
        };
        self.signer.sign(&mut request);
        (StatusCode::OK, request)
    }

    /// A request with a decision, unless it was changed meanwhile.
    fn judged(&mut self, mut request: Value) -> (StatusCode, Value) {
        if self.signer.conflicts > 0 {
            self.signer.conflicts -= 1;
            let known = self.objects.get(&key(Kind::SigningRequest, &request));
            let mut known = known.unwrap().clone();
            self.put(Kind::SigningRequest, &mut known);
        }
        let version = &request["metadata"]["resourceVersion"];
        match self.objects.get(&key(Kind::SigningRequest, &request)) {
            None => absent(),
            Some(known) if known["metadata"]["resourceVersion"] != *version => {
                refused(StatusCode::CONFLICT)
            }
            Some(_) => {
                self.put(Kind::SigningRequest, &mut request);
                (StatusCode::OK, request)
            }
        }
    }

    fn announce(&mut self, kind: Kind, what: &str, object: &Value) {
        let line = Bytes::from(json!({"type": what, "object": object}).to_string() + "\n");
        self.changes.push((self.version, kind, line.clone()));
        self.watchers
            .retain(|(of, watcher)| *of != kind || watcher.send(line.clone()).is_ok());
    }
}

fn key(kind: Kind, object: &Value) -> (Kind, String, String) {
    let word = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    (kind, word("namespace").to_owned(), word("name").to_owned())
}

fn kubeconfig(cluster: &Value, user: &Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": user}],
    })
    .to_string()
}
