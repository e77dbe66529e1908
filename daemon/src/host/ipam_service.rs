//! The IPAM service of this daemon: serves our plugins `multus-ipam`, which gives addresses of ranges that all nodes share, and
//! `whereabouts`. What it decides is in the crate `ipam`; here are its socket, its requests to the API server and its threads.

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        mpsc::{self, RecvTimeoutError, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use ipam::{
    claim::{self, Reference},
    guest::record::Records,
    object::{GROUP, KIND, NODE_LABEL, PATH, RESOURCE, VERSION},
    service::{
        Api, ApiError, Service, Times,
        dispatch::Services,
        guest::{self, Guest, Objects},
    },
    store::{self, BLOCKS, Store, is_over},
    wire::{self, Answer, Ask, Attachment},
};
use node::root::{Root, proc_path};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::{
    access::{self, ApiRequest},
    cluster::{
        Cluster, api_path,
        reflector::{Event, Resource, Selector, selector},
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

    /// Removes the socket while no daemon serves. Records stay, since the next daemon has to know what this node has given, but for those that
    /// only say which block is to be given back.
    pub fn remove(&self, seen: &Root) {
        // Best effort: what stays refuses connections.
        let _ = remove_socket(seen, &self.socket);
        let blocks = self.records.join(BLOCKS);
        for name in seen.list(&blocks).unwrap_or_default() {
            let path = blocks.join(name);
            if seen
                .read(&path, MAX_REQUEST)
                .is_ok_and(|text| is_over(&text))
            {
                // Best effort: what stays says nothing of a pod.
                let _ = seen.remove(&path);
            }
        }
    }
}

/// Returns the names of claims that have addresses of this node's pods, by container and interface. Records that cannot be read have none.
pub fn claims(seen: &Root, state_dir: &Path) -> BTreeMap<(String, String), String> {
    let blocks = Paths::new(state_dir).records.join(BLOCKS);
    let names = seen.list(&blocks).unwrap_or_default();
    let records = names
        .iter()
        .filter_map(|name| seen.read(blocks.join(name), MAX_REQUEST).ok());
    let uses = records.flat_map(|record| store::uses(&record));
    let claimed = uses.filter(|one| !one.is_asked).filter_map(|one| {
        let claim = Reference::parse(&one.owner)?;
        let Attachment { container, ifname } = one.attachment;
        Some(((container, ifname), claim.name))
    });
    claimed.collect()
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
    let api = || NodeApi {
        cluster: Arc::clone(&parts.cluster),
        metrics: Arc::clone(&parts.metrics),
    };
    let times = Times::default();
    let guest = parts.whereabouts.as_ref().map(|namespace| {
        let records = Records::open(dir.join(GUEST_RECORDS))?;
        Guest::resume(api(), records, namespace, &parts.node, times)
    });
    let blocks = Service::resume(api(), Store::open(dir)?, &parts.node, times)?;
    let service = Arc::new(Services::new(blocks, guest.transpose()?));
    info!("the IPAM service gives this node's addresses");
    let (wake, woken) = mpsc::sync_channel(1);
    let (worker, own, waker) = (Arc::clone(&service), parts.clone(), wake.clone());
    thread::Builder::new()
        .name("ipam-work".to_owned())
        .spawn(move || work(&worker, &own, &woken, &waker))?;
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
    let start = Instant::now();
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
    let is_done = matches!(answer, Answer::Done(_));
    metrics.ipam_request(verb, is_done, start.elapsed());
    let is_told = stream.write_all(&answer.document()).is_ok();
    if let Ask::Allocate(allocation) = ask
        && !is_told
    {
        // A failure leaves the addresses to the DEL that the runtime sends.
        let _ = service.del(&allocation.attachment);
    }
    report(service, metrics);
}

/// Sets the metrics to what the service has, and adds what contradicts it. Returns whether the node holds blocks.
fn report(service: &NodeIpam, metrics: &Metrics) -> bool {
    let counts = service.counts();
    let has_blocks = counts.held_blocks > 0;
    metrics.set_ipam(counts);
    let conflicts = service.take_conflicts();
    if conflicts > 0 {
        warn!(
            conflicts,
            "blocks give addresses of this node's pods to others: see kubectl multus ipam check"
        );
    }
    metrics.ipam_conflicts(conflicts);
    has_blocks
}

fn read(stream: &mut UnixStream) -> io::Result<Ask> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(REQUEST_TIME))?;
    let mut text = Vec::new();
    stream.take(MAX_REQUEST).read_to_end(&mut text)?;
    Ask::parse(&text).ok_or_else(|| io::Error::other("it is not a request of multus-ipam"))
}

/// Does what is due, whenever something is. Follows this node's blocks from the first one on, and claims from the first one whose slot this
/// node frees.
fn work(service: &Arc<NodeIpam>, parts: &Parts, woken: &mpsc::Receiver<()>, wake: &SyncSender<()>) {
    let (mut is_followed, mut are_claims_followed) = (false, false);
    loop {
        let next = service.work();
        let has_blocks = report(service, &parts.metrics);
        if has_blocks && !is_followed {
            is_followed = follow(service, parts, wake);
        }
        if service.has_claims() && !are_claims_followed {
            are_claims_followed = follow_claims(service, parts, wake);
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
fn follow(service: &Arc<NodeIpam>, parts: &Parts, wake: &SyncSender<()>) -> bool {
    let Some(cluster) = parts.cluster.get() else {
        return false;
    };
    let resource = Resource {
        what: RESOURCE,
        path: PATH,
        selector: Some(Selector::Label(selector(NODE_LABEL, &parts.node))),
        metadata_only: false,
    };
    let (service, wake) = (Arc::downgrade(service), wake.clone());
    cluster.follow(resource, move |object| {
        if let Some(service) = service.upgrade() {
            service.changed(object);
            // The service's own loop tries again what has failed.
            let _ = wake.try_send(());
        }
    });
    true
}

/// Follows claims: the slot of one that is gone is free.
fn follow_claims(service: &Arc<NodeIpam>, parts: &Parts, wake: &SyncSender<()>) -> bool {
    let Some(cluster) = parts.cluster.get() else {
        return false;
    };
    let resource = Resource {
        what: claim::RESOURCE,
        path: claim::PATH,
        selector: None,
        metadata_only: true,
    };
    let (service, wake) = (Arc::downgrade(service), wake.clone());
    cluster.follow_events(resource, move |event| {
        let Some(service) = service.upgrade() else {
            return;
        };
        let is_meant = match event {
            // A list does not say which claims are gone.
            Event::All(_) => service.claims_changed(""),
            Event::Put(claim) | Event::Remove(claim) => {
                let uid = claim.pointer("/metadata/uid").and_then(Value::as_str);
                uid.is_some_and(|uid| service.claims_changed(uid))
            }
            Event::UnknownKind => false,
        };
        if is_meant {
            let _ = wake.try_send(());
        }
    });
    true
}

/// The API server, as the service asks it.
struct NodeApi {
    cluster: Arc<OnceLock<Cluster>>,
    metrics: Arc<Metrics>,
}

impl NodeApi {
    /// Sends a request and counts it under its verb. The outer error is that nothing was sent.
    fn send(
        &self,
        verb: &'static str,
        request: &ApiRequest,
    ) -> Result<Result<Value, access::ApiError>, ApiError> {
        let cluster = self.cluster.get();
        let cluster =
            cluster.ok_or_else(|| ApiError::Failed("there is no access to it yet".to_owned()))?;
        let answer = cluster.request(request);
        let code = match &answer {
            Ok(_) => "200".to_owned(),
            Err(error) => error
                .code()
                .map_or_else(|| "error".to_owned(), |code| code.to_string()),
        };
        self.metrics.ipam_api_request(verb, &code);
        Ok(answer)
    }

    /// Creates an object in a collection; `no_kind` is the failure of a cluster that does not have it.
    fn create_in(
        &self,
        path: &str,
        object: &Value,
        no_kind: fn() -> ApiError,
    ) -> Result<Value, ApiError> {
        let created = self.send("create", &ApiRequest::post(path, object))?;
        created.map_err(|error| match error.code() {
            Some(404) => no_kind(),
            // The object does not pass the schema or a policy: trying again is of no use.
            Some(422) => ApiError::Failed(error.to_string()),
            _ => outcome(&error),
        })
    }

    /// Reads an object of a namespace. A name that no object can have is that of none.
    fn read_named(
        &self,
        namespace: &str,
        name: &str,
        path: impl FnOnce(&str, &str) -> String,
    ) -> Result<Option<Value>, ApiError> {
        if !api_path::is_name(namespace) || !api_path::is_name(name) {
            return Ok(None);
        }
        self.read("get", &path(namespace, name))
    }

    /// Sends a request that changes something.
    fn write(&self, verb: &'static str, request: &ApiRequest) -> Result<Value, ApiError> {
        let written = self.send(verb, request)?;
        written.map_err(|error| outcome(&error))
    }

    /// Returns an object, or `None` where there is none.
    fn read(&self, verb: &'static str, path: &str) -> Result<Option<Value>, ApiError> {
        match self.send(verb, &ApiRequest::get(path))? {
            Err(error) if error.code() == Some(404) => Ok(None),
            other => other.map(Some).map_err(|error| outcome(&error)),
        }
    }
}

/// The failure of a cluster without the kind of claims.
const NO_CLAIMS: &str = "the cluster has no ipamclaims.k8s.cni.cncf.io, which keep the addresses of \"sticky\": \"owner\": \
    install their CRD, or leave \"sticky\" out";

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
        self.read("get", &block(name))
    }

    fn list(&self, label: &str, value: &str) -> Result<Vec<Value>, ApiError> {
        let path = format!("{PATH}?labelSelector={}", selector(label, value));
        let mut list = self.read("list", &path)?.ok_or_else(no_kind)?;
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => Err(ApiError::Failed("the answer is not a list".to_owned())),
        }
    }

    fn create(&self, object: &Value) -> Result<Value, ApiError> {
        self.create_in(PATH, object, no_kind)
    }

    fn patch(&self, name: &str, patch: &Value) -> Result<Value, ApiError> {
        self.write("patch", &ApiRequest::json_patch(block(name), patch))
    }

    fn delete(&self, name: &str, uid: &str, version: &str) -> Result<Option<Value>, ApiError> {
        let preconditions = json!({"uid": uid, "resourceVersion": version});
        let options =
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
        let answer = self.write("delete", &ApiRequest::delete(block(name), &options))?;
        // A status says that the block is gone.
        Ok(Some(answer).filter(|answer| answer["kind"] == KIND))
    }

    fn node(&self, name: &str) -> Result<Option<String>, ApiError> {
        let node = self.read("get", &api_path::node(name))?;
        let uid = node
            .as_ref()
            .and_then(|node| node.pointer("/metadata/uid")?.as_str());
        Ok(uid.map(str::to_owned))
    }

    fn has_pods(&self, node: &str) -> Result<bool, ApiError> {
        let selector = selector("spec.nodeName", node);
        let path = format!("/api/v1/pods?limit=1&fieldSelector={selector}");
        let list = self.read("list", &path)?;
        let items = list.as_ref().and_then(|list| list.get("items")?.as_array());
        Ok(items.is_none_or(|items| !items.is_empty()))
    }

    fn pod(&self, namespace: &str, name: &str) -> Result<Option<Value>, ApiError> {
        self.read_named(namespace, name, api_path::pod)
    }

    fn machine(&self, namespace: &str, name: &str) -> Result<Option<Value>, ApiError> {
        self.read_named(namespace, name, |namespace, name| {
            format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}")
        })
    }

    fn claim(&self, namespace: &str, name: &str) -> Result<Option<Value>, ApiError> {
        self.read_named(namespace, name, claim::path)
    }

    fn create_claim(&self, namespace: &str, object: &Value) -> Result<(), ApiError> {
        let no_claims = || ApiError::Failed(NO_CLAIMS.to_owned());
        self.create_in(&claim::list_path(namespace), object, no_claims)
            .map(drop)
    }

    fn patch_claim(&self, namespace: &str, name: &str, patch: &Value) -> Result<(), ApiError> {
        let status = format!("{}/status", claim::path(namespace, name));
        self.write("patch", &ApiRequest::json_patch(status, patch))
            .map(drop)
    }
}

impl Objects for NodeApi {
    fn get(&self, path: &str) -> Result<Option<Value>, ApiError> {
        self.read("get", path)
    }

    fn create(&self, path: &str, object: &Value) -> Result<Value, ApiError> {
        self.create_in(path, object, guest::no_kind)
    }

    fn patch(&self, path: &str, steps: &Value) -> Result<Value, ApiError> {
        self.write("patch", &ApiRequest::json_patch(path, steps))
    }

    fn delete(&self, path: &str, options: &Value) -> Result<(), ApiError> {
        self.write("delete", &ApiRequest::delete(path, options))
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_the_installation_leaves_records_of_addresses() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let paths = Paths::new(Path::new("/state"));
        let blocks = dir
            .path()
            .join(paths.records.join(BLOCKS).strip_prefix("/").unwrap());
        std::fs::create_dir_all(&blocks).unwrap();
        let record = |ended: &str| {
            format!(
                r#"{{"schema":1,"boot":"b","name":"n","space":"","first":"10.0.0.0","held":null,"uses":[],"ended":[{ended}]}}"#
            )
        };
        std::fs::write(blocks.join("over.json"), record("")).unwrap();
        std::fs::write(blocks.join("ended.json"), record("\"pod/u/c/net1\"")).unwrap();
        std::fs::write(blocks.join("damaged.json"), "{").unwrap();
        paths.remove(&root);
        let mut left = root.list(paths.records.join(BLOCKS)).unwrap();
        left.sort();
        assert_eq!(left, ["damaged.json", "ended.json"]);
    }

    #[test]
    fn claims_of_pods_come_from_the_records() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let state_dir = Path::new("/state");
        assert_eq!(claims(&root, state_dir), BTreeMap::new());
        let blocks = Paths::new(state_dir).records.join(BLOCKS);
        let blocks = dir.path().join(blocks.strip_prefix("/").unwrap());
        std::fs::create_dir_all(&blocks).unwrap();
        let uses: Vec<_> = [
            ("a", "claim/c-1/shop/web-0.lan.net1/p-1/a/net1", false),
            ("b", "pod/p-2/b/net1", false),
            ("c", "claim/c-3/shop/web-2.lan.net1/p-3/c/net1", true),
        ]
        .into_iter()
        .map(|(container, owner, asked)| {
            json!({"slot": 1, "owner": owner, "container": container, "ifname": "net1", "network": "lan", "since": 1,
                "shared": true, "asked": asked, "pod": {"namespace": "shop", "name": "web-0", "uid": "p-1"}})
        })
        .collect();
        let record = json!({"schema": 1, "boot": "b", "name": "10.0.0.0", "space": "", "first": "10.0.0.0", "held": null, "uses": uses, "ended": []});
        std::fs::write(blocks.join("10.0.0.0.json"), record.to_string()).unwrap();
        std::fs::write(blocks.join("damaged.json"), "{").unwrap();
        let attachment = ("a".to_owned(), "net1".to_owned());
        let expected = [(attachment, "web-0.lan.net1".to_owned())];
        assert_eq!(claims(&root, state_dir), BTreeMap::from(expected));
    }
}
