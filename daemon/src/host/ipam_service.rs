//! The IPAM service of this daemon: serves our plugins `multus-ipam`, which gives addresses of ranges that all nodes share, and
//! `whereabouts`. What it decides is in the crate `ipam`; here are its socket, its requests to the API server and its threads.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        mpsc::{self, RecvTimeoutError, SyncSender},
    },
    thread,
    time::Duration,
};

use ipam::{
    guest::record::Records,
    object::{GROUP, NODE_LABEL, PATH, RESOURCE, VERSION},
    service::{
        Api, ApiError, Service, Times,
        dispatch::Services,
        guest::{self, Guest, Objects},
    },
    store::Store,
    wire::{self, Answer, Ask},
};
use node::root::{Root, proc_path};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::Value;
use tracing::{info, warn};

use crate::{
    access::{self, ApiRequest},
    cluster::{
        Cluster, api_path,
        reflector::{Resource, Selector, selector},
    },
    host::node_service::{DIR_MODE, NodeService, Turn, remove_socket},
    metrics::Metrics,
    state,
};

/// How long a plugin may take to write its request; it does so at once.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// More than any request: a GC names every attachment of a node.
const MAX_REQUEST: u64 = 4 << 20;

/// The paths of the service on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The socket that our plugin connects to.
    pub socket: PathBuf,
    /// The directory of the records, which survives a reboot.
    pub records: PathBuf,
}

impl Paths {
    /// Returns the paths with this directory of state.
    pub fn new(state_dir: &Path) -> Self {
        Self {
            socket: wire::SOCKET.into(),
            records: state::own_dir(state_dir).join("ipam"),
        }
    }

    /// Removes the socket while no daemon serves. The records stay: the next daemon has to know what this node has given.
    pub fn remove(&self, seen: &Root) {
        remove_socket(seen, &self.socket);
    }
}

/// The parts of the daemon that the service needs.
#[derive(Clone)]
pub struct Parts {
    pub root: Arc<Root>,
    pub metrics: Arc<Metrics>,
    /// The name of this node's Node.
    pub node: String,
    /// The namespace of the pools of whereabouts, if these are served.
    pub whereabouts: Option<String>,
    /// Unset until there is access to the API server.
    pub cluster: Arc<OnceLock<Cluster>>,
}

/// Takes the socket and starts the thread, which serves as soon as no other daemon does. `seen` is the file tree of plugins.
pub fn start(parts: Parts, paths: &Paths, seen: &Root) -> anyhow::Result<NodeService> {
    let records = parts.root.make_directory(&paths.records, DIR_MODE)?;
    NodeService::start("ipam", seen, &paths.socket, records, move |turn| {
        serve(&parts, &turn)
    })
}

type NodeIpam = Services<NodeApi, NodeApi>;

/// The directory, below that of the records, of those about pools of whereabouts.
const GUEST_RECORDS: &str = "whereabouts";

/// Serves until the service is stopped.
fn serve(parts: &Parts, turn: &Turn) -> io::Result<()> {
    let dir = proc_path(&turn.dir);
    let api = || NodeApi(Arc::clone(&parts.cluster));
    let times = Times::default();
    let guest = parts.whereabouts.as_ref().map(|namespace| {
        let records = Records::open(dir.join(GUEST_RECORDS))?;
        Guest::resume(api(), records, namespace, times)
    });
    let blocks = Service::resume(api(), Store::open(dir)?, &parts.node, times)?;
    let service = Arc::new(Services::new(blocks, guest.transpose()?));
    info!("the IPAM service gives this node's addresses");
    let (wake, woken) = mpsc::sync_channel(1);
    let (worker, own) = (Arc::clone(&service), parts.clone());
    thread::Builder::new()
        .name("ipam-work".to_owned())
        .spawn(move || work(&worker, &own, &woken))?;
    accept(&service, parts, turn, &wake)
}

/// Serves each caller on a thread of its own, until the service is stopped.
fn accept(
    service: &Arc<NodeIpam>,
    parts: &Parts,
    turn: &Turn,
    wake: &SyncSender<()>,
) -> io::Result<()> {
    loop {
        let mut fds = [
            PollFd::new(&turn.listener, PollFlags::IN),
            PollFd::new(&turn.stopped, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        if !fds[1].revents().is_empty() {
            return Ok(());
        }
        let Some(stream) = next_caller(&turn.listener)? else {
            continue;
        };
        let (service, wake) = (Arc::clone(service), wake.clone());
        let metrics = Arc::clone(&parts.metrics);
        let serve = move || {
            serve_caller(&service, &metrics, stream);
            // A full channel wakes the worker, too.
            let _ = wake.try_send(());
        };
        thread::Builder::new()
            .name("ipam-caller".to_owned())
            .spawn(serve)?;
    }
}

fn next_caller(listener: &UnixListener) -> io::Result<Option<UnixStream>> {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    match listener.accept() {
        Ok((stream, _)) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Reads a request, serves it and answers. What a caller has got that is gone again is given back.
fn serve_caller(service: &NodeIpam, metrics: &Metrics, mut stream: UnixStream) {
    let ask = match read(&mut stream) {
        Ok(ask) => ask,
        Err(error) => return warn!(%error, "a request for addresses cannot be read"),
    };
    let answer = service.serve(&ask);
    let verb = match ask {
        Ask::Allocate(_) => "add",
        Ask::Check(_) => "check",
        Ask::Release(_) | Ask::ReleaseFrom(_) => "del",
        Ask::Collect { .. } => "gc",
    };
    if let Answer::Failed { reason, .. } = &answer {
        warn!(verb, reason, "a request for addresses has failed");
    }
    metrics.ipam_request(verb, matches!(answer, Answer::Done(_)));
    let is_told = stream.write_all(&answer.document()).is_ok();
    if let Ask::Allocate(allocation) = ask
        && !is_told
    {
        // A failure leaves the addresses to the DEL that the runtime sends.
        let _ = service.del(&allocation.attachment);
    }
    metrics.set_ipam(service.counts());
}

fn read(stream: &mut UnixStream) -> io::Result<Ask> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(REQUEST_TIME))?;
    let mut text = Vec::new();
    stream.take(MAX_REQUEST).read_to_end(&mut text)?;
    Ask::parse(&text).ok_or_else(|| io::Error::other("it is not a request of multus-ipam"))
}

/// Does what is due, whenever something is, and follows this node's blocks from the first one on.
fn work(service: &Arc<NodeIpam>, parts: &Parts, woken: &mpsc::Receiver<()>) {
    let mut is_followed = false;
    loop {
        let next = service.work();
        let counts = service.counts();
        parts.metrics.set_ipam(counts);
        if counts.held_blocks > 0 && !is_followed {
            is_followed = follow(service, parts);
        }
        let outcome = match next {
            Some(pause) => woken.recv_timeout(pause),
            None => woken.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        if outcome == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

/// Follows the blocks of this node as long as the service lives. Returns false while there is no access to the API server.
fn follow(service: &Arc<NodeIpam>, parts: &Parts) -> bool {
    let Some(cluster) = parts.cluster.get() else {
        return false;
    };
    let resource = Resource {
        what: RESOURCE,
        path: PATH,
        selector: Some(Selector::Label(selector(NODE_LABEL, &parts.node))),
        metadata_only: false,
    };
    let service = Arc::downgrade(service);
    cluster.follow(resource, move |object| {
        if let Some(service) = service.upgrade() {
            service.changed(object);
        }
    });
    true
}

/// The API server, as the service asks it.
struct NodeApi(Arc<OnceLock<Cluster>>);

impl NodeApi {
    fn cluster(&self) -> Result<&Cluster, ApiError> {
        let cluster = self.0.get();
        cluster.ok_or_else(|| ApiError::Failed("there is no access to it yet".to_owned()))
    }

    /// Sends a request that changes something.
    fn write(&self, request: &ApiRequest) -> Result<Value, ApiError> {
        let written = self.cluster()?.request(request);
        written.map_err(|error| outcome(&error))
    }

    /// Creates an object in a collection; `no_kind` says what a cluster lacks that does not have it.
    fn created(
        &self,
        path: &str,
        object: &Value,
        no_kind: fn() -> ApiError,
    ) -> Result<Value, ApiError> {
        let created = self.cluster()?.request(&ApiRequest::post(path, object));
        created.map_err(|error| match error.code() {
            Some(404) => no_kind(),
            // The object does not pass the schema or a policy: trying again is of no use.
            Some(422) => ApiError::Failed(error.to_string()),
            _ => outcome(&error),
        })
    }

    /// Returns an object, or `None` where there is none.
    fn read(&self, path: &str) -> Result<Option<Value>, ApiError> {
        match self.cluster()?.request(&ApiRequest::get(path)) {
            Err(error) if error.code() == Some(404) => Ok(None),
            other => other.map(Some).map_err(|error| outcome(&error)),
        }
    }
}

/// Returns what a failure says of the request: a server that has no time, or that broke off, may have made the change.
fn outcome(error: &access::ApiError) -> ApiError {
    let text = error.to_string();
    match error.code() {
        Some(404 | 409 | 422) => ApiError::Refused(text),
        Some(code) if code < 500 => ApiError::Failed(text),
        _ => ApiError::Unknown(text),
    }
}

/// Returns the failure of a request for a kind that the cluster does not have.
fn no_kind() -> ApiError {
    ApiError::Failed(format!(
        "the cluster has no {RESOURCE}.{GROUP}/{VERSION}: install the CRD chart of this release"
    ))
}

fn block(name: &str) -> String {
    format!("{PATH}/{name}")
}

impl Api for NodeApi {
    fn get(&self, name: &str) -> Result<Option<Value>, ApiError> {
        self.read(&block(name))
    }

    fn list(&self, label: &str, value: &str) -> Result<Vec<Value>, ApiError> {
        let path = format!("{PATH}?labelSelector={}", selector(label, value));
        let mut list = self.read(&path)?.ok_or_else(no_kind)?;
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => Err(ApiError::Failed("the answer is not a list".to_owned())),
        }
    }

    fn create(&self, object: &Value) -> Result<Value, ApiError> {
        self.created(PATH, object, no_kind)
    }

    fn patch(&self, name: &str, patch: &Value) -> Result<Value, ApiError> {
        self.write(&ApiRequest::json_patch(block(name), patch))
    }

    fn node(&self, name: &str) -> Result<Option<String>, ApiError> {
        let node = self.read(&api_path::node(name))?;
        let uid = node
            .as_ref()
            .and_then(|node| node.pointer("/metadata/uid")?.as_str());
        Ok(uid.map(str::to_owned))
    }

    fn has_pods(&self, node: &str) -> Result<bool, ApiError> {
        let selector = selector("spec.nodeName", node);
        let list = self.read(&format!("/api/v1/pods?limit=1&fieldSelector={selector}"))?;
        let items = list.as_ref().and_then(|list| list.get("items")?.as_array());
        Ok(items.is_none_or(|items| !items.is_empty()))
    }
}

impl Objects for NodeApi {
    fn get(&self, path: &str) -> Result<Option<Value>, ApiError> {
        self.read(path)
    }

    fn create(&self, path: &str, object: &Value) -> Result<Value, ApiError> {
        self.created(path, object, guest::no_kind)
    }

    fn patch(&self, path: &str, steps: &Value) -> Result<Value, ApiError> {
        self.write(&ApiRequest::json_patch(path, steps))
    }

    fn delete(&self, path: &str, options: &Value) -> Result<(), ApiError> {
        self.write(&ApiRequest::delete(path, options)).map(drop)
    }
}
