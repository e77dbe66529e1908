//! An API server with the part of Kubernetes that the daemon and the kubectl plugin use: lists and watches, single objects, patches of a
//! pod's status, events, and requests for certificates. It validates nothing and records every request.

mod routes;
mod signer;
mod store;

use std::{
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime::Runtime, sync::watch};

use crate::authority::to_pem;
use routes::serve;
use store::{Shared, Store};

pub use signer::Signer;
pub use store::{Kind, ReceivedRequest};

/// Nothing that a test waits for takes longer on the slowest machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A fake API server on loopback, which runs until it is dropped.
pub struct ApiServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl ApiServer {
    /// A server over plain HTTP.
    pub fn start() -> Self {
        let server = Self::start_without_lists();
        server.answer_lists();
        server
    }

    /// A server over plain HTTP that leaves lists and watches unanswered until [`answer_lists`](Self::answer_lists) is called.
    pub fn start_without_lists() -> Self {
        Self::start_with(false, false)
    }

    /// A server that speaks TLS with HTTP/1, and authenticates clients.
    pub fn start_secure() -> Self {
        let server = Self::start_with(true, false);
        server.answer_lists();
        server
    }

    /// The same with HTTP/2, as real ones do.
    pub fn start_http2() -> Self {
        let server = Self::start_with(true, true);
        server.answer_lists();
        server
    }

    /// A server over plain HTTP that answers these paths with these statuses and bodies, and all others with 404.
    pub fn start_with_answers(answers: &[(&str, u16, Value)]) -> Self {
        let server = Self::start();
        let answers = answers.iter().map(|(path, status, body)| {
            let status = StatusCode::from_u16(*status).unwrap();
            ((*path).to_owned(), (status, body.clone()))
        });
        server.shared.lock().fixed_answers = Some(answers.collect());
        server
    }

    fn start_with(tls: bool, http2: bool) -> Self {
        let store = Store::default();
        let runtime = runtime();
        let shared = Arc::new(Shared {
            tls: tls.then(|| store.signer.acceptor(http2)),
            store: Mutex::new(store),
            changed: Condvar::new(),
            answers_lists: watch::Sender::new(false),
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

    /// From now on lists and watches are answered, also those that wait already.
    pub fn answer_lists(&self) {
        self.shared.answers_lists.send_replace(true);
    }

    /// Ends the server: connections break, new ones are refused.
    pub fn shut_down(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(PATIENCE);
        }
    }

    /// Ends the server and starts it again at the same address, with everything that it stored.
    pub fn restart(&mut self) {
        self.shut_down();
        self.shared.lock().watchers.clear();
        let runtime = runtime();
        let listener = runtime.block_on(TcpListener::bind(self.address)).unwrap();
        runtime.spawn(serve(listener, Arc::clone(&self.shared)));
        self.runtime = Some(runtime);
    }

    /// A kubeconfig for plain HTTP, without a user.
    pub fn kubeconfig(&self) -> String {
        let cluster = json!({"server": format!("http://{}", self.address)});
        kubeconfig(&cluster, &json!({}))
    }

    /// A kubeconfig for TLS, with the token of this user.
    pub fn kubeconfig_of(&self, user: &str) -> String {
        self.kubeconfig_at(self.address, user)
    }

    /// The same for a client that reaches the server at another address.
    pub fn kubeconfig_at(&self, address: SocketAddr, user: &str) -> String {
        let authority = self.shared.lock().signer.authority.certificate();
        let authority = BASE64_STANDARD.encode(to_pem("CERTIFICATE", &authority));
        let server = format!("https://{address}");
        let cluster = json!({"server": server, "certificate-authority-data": authority});
        kubeconfig(&cluster, &json!({"token": user}))
    }

    /// The address on loopback.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes how certificates are issued and checked.
    pub fn configure_signer(&self, change: impl FnOnce(&mut Signer)) {
        change(&mut self.shared.lock().signer);
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.lock().requests.clone()
    }

    /// The stored objects of this kind.
    pub fn objects(&self, kind: Kind) -> Vec<Value> {
        let store = self.shared.lock();
        let all = store.objects.iter().filter(|((of, ..), _)| *of == kind);
        all.map(|(_, object)| object.clone()).collect()
    }

    /// Creates an object or changes it.
    pub fn put(&self, kind: Kind, mut object: Value) {
        self.shared.lock().put(kind, &mut object);
    }

    /// Creates an object or changes it, and no watch reports that.
    pub fn put_unseen(&self, kind: Kind, object: Value) {
        self.shared.lock().put_unseen(kind, object);
    }

    /// Deletes an object, which has to exist.
    pub fn delete(&self, kind: Kind, namespace: &str, name: &str) {
        let mut store = self.shared.lock();
        let key = (kind, namespace.to_owned(), name.to_owned());
        let mut object = store.objects.remove(&key).unwrap();
        store.version += 1;
        object["metadata"]["resourceVersion"] = json!(store.version.to_string());
        store.announce(kind, "DELETED", &object);
    }

    /// From now on the cluster does not know definitions as a kind.
    pub fn remove_definition_crd(&self) {
        self.shared.lock().has_no_definition_crd = true;
    }

    /// From now on patches are refused with this status; with `None` they are accepted again.
    pub fn refuse_patches(&self, status: Option<u16>) {
        self.shared.lock().patch_refusal = None;
        if let Some(status) = status {
            self.refuse_next_patches(status, usize::MAX);
        }
    }

    /// The next patches are refused with this status.
    pub fn refuse_next_patches(&self, status: u16, times: usize) {
        let status = StatusCode::from_u16(status).unwrap();
        self.shared.lock().patch_refusal = Some((status, times));
    }

    /// From now on refusals carry `Retry-After`.
    pub fn retry_after(&self, seconds: u64) {
        self.shared.lock().retry_after = Some(seconds);
    }

    /// The next patches get no answer.
    pub fn hang_next_patches(&self, times: usize) {
        self.shared.lock().hung_patches = times;
    }

    /// From now on reads of paths with this end are answered after this time.
    pub fn delay_reads(&self, end: &str, delay: Duration) {
        self.shared.lock().delayed = Some((end.to_owned(), delay));
    }

    /// From now on reads of paths with this end are refused with this status.
    pub fn refuse_reads(&self, end: &str, status: u16) {
        self.refuse_next_reads(end, status, usize::MAX);
    }

    /// The next reads of paths with this end are refused with this status.
    pub fn refuse_next_reads(&self, end: &str, status: u16, times: usize) {
        let status = StatusCode::from_u16(status).unwrap();
        let mut store = self.shared.lock();
        store.unreadable.push((end.to_owned(), status, times));
    }

    /// Ends all watches. They can continue at their version.
    pub fn end_watches(&self) {
        self.shared.lock().watchers.clear();
    }

    /// Drops the history of changes, as a compaction of etcd does, and ends all watches.
    pub fn compact_history(&self) {
        let mut store = self.shared.lock();
        store.version += 1;
        store.compacted = store.version;
        store.watchers.clear();
    }

    /// How many connections were opened so far.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections
    }

    /// Waits for a request whose path has this end.
    pub fn wait_for_request(&self, end: &str) {
        drop(self.wait_until(&format!("a request for {end}"), |store| {
            let mut requests = store.requests.iter();
            requests.any(|request| request.method_and_path.ends_with(end))
        }));
    }

    /// Waits until a client watches objects of this kind.
    pub fn wait_for_watch(&self, kind: Kind) {
        drop(self.wait_until(&format!("a watch of {kind:?}"), |store| {
            store.watchers.iter().any(|(of, _)| *of == kind)
        }));
    }

    /// The accepted patches of pods' statuses so far, each with `namespace/name` of its pod.
    pub fn patches(&self) -> Vec<(String, Value)> {
        self.shared.lock().patches.clone()
    }

    /// Waits for `count` accepted patches of pods' statuses, which may come after the answers to ADDs.
    pub fn wait_for_patches(&self, count: usize) -> Vec<(String, Value)> {
        let store = self.wait_until("patches", |store| store.patches.len() >= count);
        store.patches.clone()
    }

    /// Waits for `count` events. Returns all events as `reason: message`.
    pub fn wait_for_events(&self, count: usize) -> Vec<String> {
        let store = self.wait_until("events", |store| store.events.len() >= count);
        let text = |event: &Value, key: &str| event[key].as_str().unwrap().to_owned();
        let events = store.events.iter();
        events
            .map(|event| format!("{}: {}", text(event, "reason"), text(event, "message")))
            .collect()
    }

    /// Waits until the counts of all events add up to `sum`. Returns the count of each event.
    pub fn wait_for_event_counts(&self, sum: u64) -> Vec<u64> {
        let counts = |store: &Store| -> Vec<u64> {
            let events = store.events.iter();
            events
                .map(|event| event["count"].as_u64().unwrap())
                .collect()
        };
        let store = self.wait_until("counted events", |store| {
            counts(store).iter().sum::<u64>() >= sum
        });
        counts(&store)
    }

    /// Deletes all events, as the API server does when they are too old.
    pub fn expire_events(&self) {
        self.shared.lock().events.clear();
    }

    #[track_caller]
    fn wait_until(&self, what: &str, is_so: impl Fn(&Store) -> bool) -> MutexGuard<'_, Store> {
        let changed = &self.shared.changed;
        let (store, waited) = changed
            .wait_timeout_while(self.shared.lock(), PATIENCE, |store| !is_so(store))
            .unwrap();
        // The lock is released before the panic, lest the server's threads find it poisoned and fail, too.
        let store = (!waited.timed_out()).then_some(store);
        store.unwrap_or_else(|| panic!("waited in vain for {what}"))
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
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
