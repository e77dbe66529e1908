//! Nodes with an API server in memory, which applies patches as the real one does, and loses answers and delays writes on demand.

mod claims;
pub(super) mod turns;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use serde_json::{Map, json};

use self::turns::{Fate, Next, Turns};
use super::*;
use crate::store::tests::disk;
use crate::wire::Pod;

/// A write that changes a block.
#[derive(Clone)]
enum Write {
    Create(Value),
    Patch(Value),
    /// A deletion, with the uid and the version that it tests.
    Delete(String, Option<String>),
}

#[derive(Default)]
pub(super) struct Server {
    pub(super) objects: Mutex<BTreeMap<String, Value>>,
    /// By namespace and name.
    claims: Mutex<BTreeMap<String, Value>>,
    pods: Mutex<BTreeMap<String, Value>>,
    /// What happens before the next write of a claim.
    at_claim_write: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Node and uid.
    nodes: Mutex<BTreeMap<String, String>>,
    /// Nodes with pods.
    bound: Mutex<BTreeSet<String>>,
    fates: Mutex<Vec<Fate>>,
    late: Mutex<Vec<(String, Write)>>,
    requests: Mutex<Vec<String>>,
    count: AtomicU64,
    watchers: Mutex<Vec<(String, mpsc::Sender<Value>)>>,
    /// A directory of records, and where its state at the time of a kill is kept.
    disks: Mutex<Option<(PathBuf, PathBuf)>>,
}

/// What etcd had at some time.
struct Backup {
    objects: BTreeMap<String, Value>,
    claims: BTreeMap<String, Value>,
    nodes: BTreeMap<String, String>,
}

fn child<'a>(value: &'a mut Value, key: &str) -> &'a mut Value {
    match value {
        Value::Array(list) => &mut list[key.parse::<usize>().unwrap()],
        other => other
            .as_object_mut()
            .unwrap()
            .entry(key)
            .or_insert(Value::Null),
    }
}

/// Applies a JSON patch; `None` when a test fails.
pub(crate) fn patched(object: &Value, patch: &Value) -> Option<Value> {
    let mut object = object.clone();
    for step in patch.as_array().unwrap() {
        let place = step["path"].as_str().unwrap();
        match step["op"].as_str().unwrap() {
            "test" => {
                let value = object.pointer(place).unwrap_or(&Value::Null);
                if *value != step["value"] {
                    return None;
                }
            }
            op => {
                let (parent, key) = place.rsplit_once('/').unwrap();
                let key = key.replace("~1", "/").replace("~0", "~");
                let parent = object.pointer_mut(parent)?;
                match op {
                    "remove" => drop(parent.as_object_mut().unwrap().remove(&key)?),
                    "replace" | "add" => *child(parent, &key) = step["value"].clone(),
                    other => panic!("unknown operation {other}"),
                }
            }
        }
    }
    Some(object)
}

impl Server {
    pub(super) fn with_nodes(nodes: &[&str]) -> Arc<Self> {
        let server = Self::default();
        for node in nodes {
            server.register(node, "1");
        }
        Arc::new(server)
    }

    fn register(&self, node: &str, uid: &str) {
        self.nodes
            .lock()
            .unwrap()
            .insert(node.to_owned(), uid.to_owned());
    }

    pub(super) fn add_node(&self, node: &str) {
        self.register(node, "1");
        self.bound.lock().unwrap().insert(node.to_owned());
    }

    /// Decides what becomes of the next request, after some that are made.
    pub(super) fn set_fate(&self, roll: u64, before: usize) {
        let fate = match roll {
            0 => Fate::Lost,
            1 => Fate::Late,
            2 => Fate::Away,
            _ => Fate::Made,
        };
        *self.fates.lock().unwrap() = [vec![fate], vec![Fate::Made; before]].concat();
    }

    fn fate(&self, what: &str, name: &str) -> Fate {
        let reads = ["get", "list", "node"].contains(&what);
        let turn = turns::take(if reads { Next::Read } else { Next::Write });
        self.requests.lock().unwrap().push(format!("{what} {name}"));
        let fate = turn.or_else(|| self.fates.lock().unwrap().pop());
        fate.unwrap_or(Fate::Made)
    }

    /// Returns what etcd has.
    fn backup(&self) -> Backup {
        Backup {
            objects: self.objects.lock().unwrap().clone(),
            claims: self.claims.lock().unwrap().clone(),
            nodes: self.nodes.lock().unwrap().clone(),
        }
    }

    /// Puts a backup in place of what etcd has. Writes under way are lost.
    fn restore(&self, backup: &Backup) {
        self.objects.lock().unwrap().clone_from(&backup.objects);
        self.claims.lock().unwrap().clone_from(&backup.claims);
        self.nodes.lock().unwrap().clone_from(&backup.nodes);
        self.late.lock().unwrap().clear();
    }

    pub(super) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }

    fn store(&self, objects: &mut BTreeMap<String, Value>, name: &str, mut object: Value) -> Value {
        let version = self.count.fetch_add(1, Ordering::Relaxed).to_string();
        object["metadata"]["resourceVersion"] = version.into();
        let is_over = object["metadata"].get("deletionTimestamp").is_some()
            && object["metadata"].get("finalizers").is_none();
        if is_over {
            objects.remove(name);
        } else {
            objects.insert(name.to_owned(), object.clone());
        }
        self.watchers.lock().unwrap().retain(|(node, watcher)| {
            !is_of(&object, node) || watcher.send(object.clone()).is_ok()
        });
        object
    }

    /// Makes a write. A block without finalizers that is deleted is gone, and not returned.
    fn apply(&self, name: &str, write: &Write) -> Result<Option<Value>, ApiError> {
        if name.starts_with(claims::PREFIX) {
            return self.apply_to_claim(name, write);
        }
        let mut objects = self.objects.lock().unwrap();
        let refused = || ApiError::Refused("a test failed".to_owned());
        let seen = objects.get(name);
        let changed = match (write, seen) {
            (Write::Create(_), Some(_)) => {
                return Err(ApiError::Refused("it exists".to_owned()));
            }
            (Write::Create(object), None) => {
                let mut object = object.clone();
                object["metadata"]["uid"] =
                    format!("uid-{}", self.count.load(Ordering::Relaxed)).into();
                object
            }
            (_, None) => return Err(refused()),
            (Write::Patch(patch), Some(seen)) => patched(seen, patch).ok_or_else(refused)?,
            (Write::Delete(uid, version), Some(seen)) => {
                let metadata = &seen["metadata"];
                let mut version = version.iter();
                if metadata["uid"] != **uid
                    || version.any(|version| metadata["resourceVersion"] != **version)
                {
                    return Err(refused());
                }
                deleted(seen)
            }
        };
        // A server writes nothing where nothing changes.
        if objects.get(name) == Some(&changed) {
            return Ok(Some(changed));
        }
        let made = self.store(&mut objects, name, changed);
        let is_deletion = matches!(write, Write::Delete(..));
        Ok(Some(made).filter(|_| !is_deletion || objects.contains_key(name)))
    }

    /// Makes a write as its fate says.
    fn write(&self, what: &str, name: &str, write: Write) -> Result<Option<Value>, ApiError> {
        match self.fate(what, name) {
            Fate::Made => self.apply(name, &write),
            Fate::Lost => self.apply(name, &write).and(Err(lost())),
            Fate::Killed => {
                let disks = self.disks.lock().unwrap();
                let (disk, kept) = disks.as_ref().unwrap();
                copy_dir(disk, kept);
                self.apply(name, &write).and(Err(lost()))
            }
            Fate::Away => Err(lost()),
            Fate::Late => {
                self.late.lock().unwrap().push((name.to_owned(), write));
                Err(lost())
            }
            fate => panic!("no write of a block is {fate:?}"),
        }
    }

    /// Deletes a block whatever it has, as the command does.
    pub(super) fn remove(&self, name: &str, uid: &str) -> Result<(), ApiError> {
        let write = Write::Delete(uid.to_owned(), None);
        self.write("delete", name, write).map(drop)
    }

    /// Makes a change of an operator.
    fn edit(&self, name: &str, patch: Value) {
        self.apply(name, &Write::Patch(patch)).unwrap();
    }

    /// Node `b` wants a block of another node.
    fn want(&self, name: &str) {
        let wanted = json!([{"op": "add", "path": "/spec/wanted", "value": ["b"]}]);
        self.edit(name, wanted);
    }

    /// Returns how many slots of a block have an owner.
    fn owned(&self, name: &str) -> usize {
        let slots = self.objects.lock().unwrap()[name]["spec"]["slots"].clone();
        let slots = slots.as_array().unwrap().iter();
        slots.filter(|slot| slot["owner"] != "").count()
    }

    /// Returns how many addresses of a definition any node can take at once: blocks that nodes hold are theirs.
    fn free(&self, definition: &Value) -> u32 {
        let definition = config::parse(definition.as_object().unwrap()).unwrap();
        let objects = self.objects.lock().unwrap();
        let ranges = definition.lists.iter().flatten();
        let blocks = ranges.flat_map(|range| {
            let blocks = (0..range.block_count()).filter_map(|place| range.block_at(place));
            blocks.map(|block| (block, range.slots(block)))
        });
        let free = blocks.map(|(block, usable)| {
            let Some(object) = objects.get(&object::name("", block)) else {
                return usable.count_ones();
            };
            let known = AddressBlock::parse(object).unwrap();
            let object::Mode::Shared(slots) = &known.mode else {
                return 0;
            };
            if known.is_deleted {
                return 0;
            }
            (object::free_slots(slots) & usable).count_ones()
        });
        free.sum()
    }

    /// Makes the writes that were delayed.
    pub(super) fn land(&self) {
        for (name, write) in self.late.lock().unwrap().drain(..) {
            let _ = self.apply(&name, &write);
        }
    }

    fn delete_by_hand(&self, name: &str) {
        let mut objects = self.objects.lock().unwrap();
        let object = deleted(&objects[name]);
        self.store(&mut objects, name, object);
    }

    /// Returns what a node hears of its blocks.
    pub(super) fn watch(&self, node: &str) -> mpsc::Receiver<Value> {
        let (sender, events) = mpsc::channel();
        let objects = self.objects.lock().unwrap();
        for object in objects.values().filter(|object| is_of(object, node)) {
            sender.send(object.clone()).unwrap();
        }
        self.watchers
            .lock()
            .unwrap()
            .push((node.to_owned(), sender));
        events
    }

    fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }
}

/// Returns whether a block is one that a node hears of.
fn is_of(object: &Value, node: &str) -> bool {
    object["metadata"]["labels"][object::NODE_LABEL] == *node
}

fn deleted(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    object
}

pub(super) fn lost() -> ApiError {
    ApiError::Unknown("no answer".to_owned())
}

impl Api for Arc<Server> {
    fn get(&self, name: &str) -> Result<Option<Value>, ApiError> {
        match self.fate("get", name) {
            Fate::Made => Ok(self.objects.lock().unwrap().get(name).cloned()),
            _ => Err(lost()),
        }
    }

    fn list(&self, label: &str, value: &str) -> Result<Vec<Value>, ApiError> {
        if self.fate("list", value) != Fate::Made {
            return Err(lost());
        }
        let objects = self.objects.lock().unwrap();
        let all = objects.values();
        let is_meant = |object: &&Value| object["metadata"]["labels"][label] == *value;
        Ok(all.filter(is_meant).cloned().collect())
    }

    fn create(&self, object: &Value) -> Result<Value, ApiError> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let made = self.write("create", name, Write::Create(object.clone()))?;
        Ok(made.expect("a creation returns its object"))
    }

    fn patch(&self, name: &str, patch: &Value) -> Result<Value, ApiError> {
        let made = self.write("patch", name, Write::Patch(patch.clone()))?;
        Ok(made.expect("a patch returns its object"))
    }

    fn delete(&self, name: &str, uid: &str, version: &str) -> Result<Option<Value>, ApiError> {
        let write = Write::Delete(uid.to_owned(), Some(version.to_owned()));
        self.write("delete", name, write)
    }

    fn node(&self, name: &str) -> Result<Option<String>, ApiError> {
        match self.fate("node", name) {
            Fate::Made => Ok(self.nodes.lock().unwrap().get(name).cloned()),
            _ => Err(lost()),
        }
    }

    fn has_pods(&self, node: &str) -> Result<bool, ApiError> {
        Ok(self.bound.lock().unwrap().contains(node))
    }

    fn pod(&self, namespace: &str, name: &str) -> Result<Option<Value>, ApiError> {
        let pods = self.pods.lock().unwrap();
        Ok(pods.get(&format!("{namespace}/{name}")).cloned())
    }

    fn machine(&self, _: &str, _: &str) -> Result<Option<Value>, ApiError> {
        Ok(None)
    }

    fn claim(&self, namespace: &str, name: &str) -> Result<Option<Value>, ApiError> {
        let name = claims::key(namespace, name);
        match self.fate("get", &name) {
            Fate::Made => Ok(self.claims.lock().unwrap().get(&name).cloned()),
            _ => Err(lost()),
        }
    }

    fn create_claim(&self, namespace: &str, object: &Value) -> Result<(), ApiError> {
        self.create_claim_object(namespace, object)
    }

    fn patch_claim(&self, namespace: &str, name: &str, patch: &Value) -> Result<(), ApiError> {
        let happens = self.at_claim_write.lock().unwrap().take();
        if let Some(happens) = happens {
            happens();
        }
        let write = Write::Patch(patch.clone());
        self.write("patch", &claims::key(namespace, name), write)
            .map(drop)
    }
}

/// The times of tests: nothing has to be awaited.
pub(super) const TIMES: Times = Times {
    patience: Duration::from_secs(20),
    sharing: Duration::from_secs(5),
    moving: Duration::from_millis(50),
    look_again: Duration::from_millis(1),
    gone: Duration::ZERO,
    settled: Duration::ZERO,
    report: Duration::ZERO,
    unused: Duration::from_hours(1),
    node: Duration::from_hours(1),
    again: Duration::ZERO,
};

struct Machine {
    dir: tempfile::TempDir,
    boot: u32,
    times: Times,
    name: &'static str,
    server: Arc<Server>,
    service: Arc<Service<Arc<Server>>>,
}

impl Machine {
    fn new(server: &Arc<Server>, name: &'static str) -> Self {
        Self::with_times(server, name, TIMES)
    }

    fn with_times(server: &Arc<Server>, name: &'static str, times: Times) -> Self {
        let dir = disk();
        let service = Self::start(server, name, &dir, 0, times);
        Self {
            dir,
            boot: 0,
            times,
            name,
            server: Arc::clone(server),
            service,
        }
    }

    fn start(
        server: &Arc<Server>,
        name: &str,
        dir: &tempfile::TempDir,
        boot: u32,
        times: Times,
    ) -> Arc<Service<Arc<Server>>> {
        let store = Store::open_in_boot(dir.path(), &boot.to_string()).unwrap();
        Arc::new(Service::resume(Arc::clone(server), store, name, times).unwrap())
    }

    /// Ends the process and starts the next one.
    fn restart(&mut self) {
        self.service = Self::start(&self.server, self.name, &self.dir, self.boot, self.times);
    }

    /// Cuts the power and starts the machine.
    fn boot(&mut self) {
        self.boot += 1;
        self.restart();
    }

    fn add(&self, pod: &str, ipam: &Value) -> Result<Vec<String>, String> {
        self.allocate(&allocation(pod, ipam))
    }

    fn allocate(&self, allocation: &Allocation) -> Result<Vec<String>, String> {
        let grants = self.service.add(allocation);
        let addresses = |grants: Vec<Grant>| grants.into_iter().map(|grant| grant.address);
        let grants = grants.map(|grants| addresses(grants).collect());
        grants.map_err(|failure| failure.to_string())
    }

    fn del(&self, pod: &str) {
        self.service.del(&attachment(pod)).unwrap();
    }

    /// Does all that is due.
    fn work(&self) {
        for _ in 0..100 {
            if self.service.work() != Some(Duration::ZERO) {
                return;
            }
        }
        panic!("there is always more to do");
    }

    /// Returns how many addresses its pods have.
    fn addresses(&self) -> usize {
        self.service.counts(true).addresses.values().sum()
    }

    /// Returns the number of records on disk.
    fn records(&self) -> usize {
        let blocks = self.dir.path().join("blocks");
        std::fs::read_dir(blocks).unwrap().count()
    }

    /// Hears of all blocks.
    fn hear(&self) {
        let objects: Vec<_> = self
            .server
            .objects
            .lock()
            .unwrap()
            .values()
            .cloned()
            .collect();
        for object in &objects {
            self.service.changed(object);
        }
    }

    /// Follows its own blocks, as the daemon does, until the server has no watchers any more.
    fn follow(&self) -> thread::JoinHandle<()> {
        let events = self.server.watch(self.name);
        let service = Arc::clone(&self.service);
        thread::spawn(move || events.iter().for_each(|object| service.changed(&object)))
    }
}

fn attachment(pod: &str) -> Attachment {
    Attachment {
        container: format!("c-{pod}"),
        ifname: "net1".to_owned(),
    }
}

fn allocation(pod: &str, ipam: &Value) -> Allocation {
    Allocation {
        attachment: attachment(pod),
        pod: Pod {
            namespace: "shop".to_owned(),
            name: pod.to_owned(),
            uid: format!("u-{pod}"),
        },
        network: "lan".to_owned(),
        ipam: ipam.as_object().unwrap().clone(),
        addresses: Vec::new(),
        claim: String::new(),
    }
}

fn ipam(subnet: &str) -> Value {
    json!({"type": "multus-ipam", "subnet": subnet})
}

#[test]
fn address_of_a_held_block_costs_no_request() {
    let server = Server::with_nodes(&["a"]);
    let machine = Machine::new(&server, "a");
    let lan = ipam("10.20.0.0/16");
    let mut given = BTreeSet::new();
    assert!(given.insert(machine.add("0", &lan).unwrap()));
    let first = server.requests();
    assert_eq!(first.len(), 2, "the Node and the block: {first:?}");
    for pod in 1..32 {
        assert!(given.insert(machine.add(&pod.to_string(), &lan).unwrap()));
    }
    assert_eq!(server.requests(), Vec::<String>::new());
    // The block is full now, unless it is the one with the subnet's own address and its gateway.
    for pod in 32..34 {
        assert!(given.insert(machine.add(&pod.to_string(), &lan).unwrap()));
    }
    assert_eq!(server.requests().len(), 1, "one more block");
    assert_eq!(
        machine.add("5", &lan).unwrap(),
        machine.add("5", &lan).unwrap()
    );
    assert_eq!(machine.service.counts(true).held_blocks, 2);
    machine.work();
    let objects = server.objects.lock().unwrap();
    let blocks = objects
        .values()
        .map(|object| AddressBlock::parse(object).unwrap());
    let used: u32 = blocks.map(|block| block.used.unwrap().count_ones()).sum();
    assert_eq!(used, 34);
}

#[test]
fn what_was_read_before_an_answer_says_nothing() {
    let server = Server::with_nodes(&["a"]);
    let a = Machine::new(&server, "a");
    let own = a.service.own().unwrap();
    let before = a.service.answers();
    a.add("1", &ipam("10.20.0.0/16")).unwrap();
    let name = server
        .objects
        .lock()
        .unwrap()
        .keys()
        .next()
        .unwrap()
        .clone();
    a.service.seen(&own, &name, None, before).unwrap();
    assert_eq!(a.service.counts(true).held_blocks, 1);
    // What is read now counts: somebody has taken the block away.
    a.service
        .seen(&own, &name, None, a.service.answers())
        .unwrap();
    assert_eq!(a.service.counts(true).held_blocks, 0);
    assert_eq!(a.addresses(), 1, "the pod goes on");
}

#[test]
fn small_range_serves_as_many_pods_as_it_has_addresses() {
    let server = Server::with_nodes(&["a", "b"]);
    let machines = [Machine::new(&server, "a"), Machine::new(&server, "b")];
    let lan = json!({"type": "multus-ipam", "ranges": [[{"subnet": "10.30.0.0/28"}], [{"subnet": "fd00::/64"}]]});
    let mut given = BTreeSet::new();
    for pod in 0..13 {
        let machine = &machines[pod % 2];
        let addresses = machine.add(&pod.to_string(), &lan).unwrap();
        assert_eq!(addresses.len(), 2);
        assert!(addresses[0].ends_with("/28") && addresses[1].ends_with("/64"));
        assert!(addresses.into_iter().all(|address| given.insert(address)));
    }
    let full = machines[0].add("13", &lan).unwrap_err();
    assert_eq!(
        full,
        "network lan: 10.30.0.0/28 has no free address: 13 in use"
    );
    assert_eq!(
        machines[0].addresses(),
        14,
        "none is left of the pod that failed"
    );
    server.requests();
    machines[1].del("3");
    machines[1].del("3");
    assert_eq!(server.requests().len(), 0, "a DEL waits for nobody");
    machines[1].work();
    let freed = server.requests().into_iter();
    let freed = freed.filter(|request| request == "patch 10.30.0.0").count();
    assert_eq!(freed, 1, "one request frees the slot");
    machines[0].add("13", &lan).unwrap();
    // A node whose pods need an address frees what it has not freed yet.
    machines[1].del("5");
    machines[1].add("14", &lan).unwrap();
}

#[test]
fn pods_that_come_and_go_do_not_use_up_a_range_whose_slots_are_still_to_be_freed() {
    let server = Server::with_nodes(&["a"]);
    let machine = Machine::new(&server, "a");
    // Nothing is freed in between but by the ADDs.
    for pod in 0..100 {
        machine
            .add(&pod.to_string(), &ipam("10.30.0.0/25"))
            .unwrap();
        machine.del(&pod.to_string());
    }
    let names = server.names();
    let owned: usize = names.iter().map(|name| server.owned(name)).sum();
    assert!(owned <= 16, "{owned} slots wait for being freed");
}

#[test]
fn add_of_a_full_range_waits_for_the_thread_that_frees_its_slots() {
    let server = Server::with_nodes(&["a"]);
    let machine = Machine::new(&server, "a");
    let lan = ipam("10.30.0.0/29");
    let pods: Vec<_> = (1..=5).map(|pod| pod.to_string()).collect();
    for pod in &pods {
        machine.add(pod, &lan).unwrap();
    }
    for pod in &pods {
        machine.del(pod);
    }
    let turns = Turns::new(1);
    thread::scope(|scope| {
        let _end = turns.until_dropped();
        let work = turns.start(scope, 0, || machine.work());
        while turns.next() != [Next::Write] {
            turns.go(0, Fate::Made);
        }
        // Nothing is written before the first slot is freed.
        let add = scope.spawn(|| machine.add("6", &lan));
        while !machine.service.lock().active.contains_key(&attachment("6")) {
            thread::yield_now();
        }
        while turns.next() != [Next::Nothing] {
            turns.go(0, Fate::Made);
        }
        work.join().unwrap();
        add.join().unwrap().unwrap();
    });
}

#[test]
fn range_is_used_up_by_nodes_that_compete() {
    let nodes = ["a", "b", "c"];
    for (subnet, count) in [("10.40.0.0/25", 125), ("10.41.0.0/23", 509)] {
        let server = Server::with_nodes(&nodes);
        let machines = nodes.map(|name| Machine::new(&server, name));
        for machine in &machines {
            drop(machine.follow());
        }
        let given = Mutex::new(BTreeSet::new());
        let next = AtomicU64::new(0);
        thread::scope(|scope| {
            for machine in machines.iter().cycle().take(6) {
                scope.spawn(|| {
                    loop {
                        let pod = next.fetch_add(1, Ordering::Relaxed);
                        if pod >= count {
                            return;
                        }
                        let addresses = machine.add(&pod.to_string(), &ipam(subnet)).unwrap();
                        assert!(given.lock().unwrap().insert(addresses));
                    }
                });
            }
        });
        assert_eq!(given.lock().unwrap().len() as u64, count);
        let full = machines[0].add("full", &ipam(subnet)).unwrap_err();
        assert!(full.contains("has no free address"), "{full}");
    }
}

#[test]
fn nodes_that_know_of_each_other_take_different_slots_although_none_reads_the_block_again() {
    let nodes = ["a", "b", "c", "d"];
    let server = Server::with_nodes(&nodes);
    let machines = nodes.map(|name| Machine::new(&server, name));
    let lan = ipam("10.30.0.0/27");
    let take = |round: &str| {
        for machine in &machines {
            let pod = format!("{}-{round}", machine.name);
            machine.add(&pod, &lan).unwrap();
        }
    };
    take("first");
    for machine in &machines {
        let own = machine.service.own().unwrap();
        machine.service.read(&own, "10.30.0.0").unwrap();
    }
    server.requests();
    for round in 0..3 {
        take(&round.to_string());
    }
    assert_eq!(server.requests(), ["patch 10.30.0.0"; 12]);
    // A node also gets the slots that the hash gives to others, once it has none of its own.
    for pod in 0..13 {
        machines[0].add(&format!("more-{pod}"), &lan).unwrap();
    }
}

#[test]
fn nodes_begin_at_different_blocks_of_a_small_range() {
    let nodes = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let server = Server::with_nodes(&nodes);
    let machines = nodes.map(|name| Machine::new(&server, name));
    let lan = ipam("10.30.0.0/24");
    let mut requests = Vec::new();
    for round in 0..4 {
        for machine in &machines {
            let pod = format!("{}-{round}", machine.name);
            machine.add(&pod, &lan).unwrap();
        }
        requests.push(server.requests().len());
    }
    let names = server.names();
    let most = names.iter().map(|name| server.owned(name)).max().unwrap();
    assert!(most <= 12, "a block has {most} of 32 addresses");
    assert_eq!(requests[1..], [8; 3], "each address costs one request");
}

#[test]
fn slot_that_another_node_has_taken_costs_one_more_request() {
    let requests = |pod: &str| {
        let server = Server::with_nodes(&["a", "b"]);
        let [a, b] = ["a", "b"].map(|name| Machine::new(&server, name));
        let lan = ipam("10.30.0.0/27");
        a.add("first", &lan).unwrap();
        for pod in 0..10 {
            b.add(&pod.to_string(), &lan).unwrap();
        }
        server.requests();
        // The node takes each slot for free that the other one has, and for its own, since it knows of no other node.
        a.add(pod, &lan).unwrap();
        server.requests()
    };
    let all: BTreeSet<_> = (10..30).map(|pod| requests(&pod.to_string())).collect();
    let patch = || "patch 10.30.0.0".to_owned();
    assert!(all.contains(&vec![patch()]), "{all:?}");
    assert!(all.contains(&vec![patch(); 2]), "{all:?}");
    // The second one was taken, too.
    let read = vec![patch(), patch(), "get 10.30.0.0".to_owned(), patch()];
    assert!(all.contains(&read) && all.len() == 3, "{all:?}");
}

#[test]
fn node_reads_the_block_with_which_it_goes_on_when_its_own_is_full() {
    let server = Server::with_nodes(&["a", "c"]);
    let [a, c] = ["a", "c"].map(|name| Machine::new(&server, name));
    let lan = ipam("10.30.0.0/26");
    c.add("other", &lan).unwrap();
    let requests = (0..40).map(|pod| {
        server.requests();
        a.add(&pod.to_string(), &lan).unwrap();
        server.requests()
    });
    let mut longer = requests.skip(1).filter(|requests| requests.len() > 1);
    let expected = ["get 10.30.0.32", "patch 10.30.0.32"];
    assert_eq!(longer.next().unwrap(), expected);
}

#[test]
fn next_daemon_knows_all_addresses() {
    let server = Server::with_nodes(&["a", "b"]);
    let (mut a, b) = (Machine::new(&server, "a"), Machine::new(&server, "b"));
    for lan in [ipam("10.20.0.0/16"), ipam("10.30.0.0/29")] {
        let first = a.add("1", &lan).unwrap();
        a.restart();
        assert_eq!(a.add("1", &lan).unwrap(), first, "an ADD that is repeated");
        assert_ne!(a.add("2", &lan).unwrap(), first);
        a.service.check(&attachment("1")).unwrap();
        a.restart();
        a.del("1");
        a.service.check(&attachment("1")).unwrap_err();
        a.work();
        assert_ne!(b.add("3", &lan).unwrap(), a.add("2", &lan).unwrap());
        for pod in ["2", "3"] {
            a.del(pod);
            b.del(pod);
        }
    }
}

#[test]
fn next_daemon_gives_from_held_blocks_while_the_server_is_away() {
    let server = Server::with_nodes(&["a"]);
    let mut a = Machine::new(&server, "a");
    let lan = ipam("10.20.0.0/16");
    let first = a.add("1", &lan).unwrap();
    a.restart();
    *server.fates.lock().unwrap() = vec![Fate::Away; 20];
    assert_ne!(a.add("2", &lan).unwrap(), first);
    a.del("2");
    assert!(
        server
            .requests()
            .iter()
            .skip(2)
            .all(|request| request == "node a")
    );
}

#[test]
fn nothing_is_given_after_a_boot_before_the_turn_was_raised() {
    let server = Server::with_nodes(&["a"]);
    let mut a = Machine::new(&server, "a");
    let lan = ipam("10.20.0.0/16");
    let first = a.add("1", &lan).unwrap();
    a.boot();
    let text = std::fs::read_dir(a.dir.path().join("blocks")).unwrap();
    let text = text.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    assert!(
        text.collect::<String>().contains("\"uses\":[]"),
        "they are over"
    );
    a.work();
    a.service.own().unwrap();
    // The block is read, and the patch that raises its turn gets no answer.
    *server.fates.lock().unwrap() = vec![Fate::Away, Fate::Made];
    let failed = a.add("2", &lan).unwrap_err();
    assert!(failed.contains("no answer"), "{failed}");
    // The record was written in this boot by now, and that is not enough.
    a.restart();
    let mut given = BTreeSet::new();
    for pod in 0..32 {
        given.extend(a.add(&pod.to_string(), &lan).unwrap());
    }
    assert!(given.contains(&first[0]), "the boot has ended its use");
    let objects = server.objects.lock().unwrap();
    let turns: BTreeSet<_> = objects
        .values()
        .map(|object| object["spec"]["turn"].as_u64())
        .collect();
    assert!(turns.contains(&Some(2)), "{turns:?}");
}

#[test]
fn slot_whose_grant_nobody_heard_of_is_freed() {
    let lan = ipam("10.30.0.0/28");
    for fate in [Fate::Lost, Fate::Late, Fate::Away, Fate::Killed] {
        let kept = disk();
        let server = Server::with_nodes(&["a", "b"]);
        let (mut a, b) = (Machine::new(&server, "a"), Machine::new(&server, "b"));
        a.add("0", &lan).unwrap();
        *server.fates.lock().unwrap() = vec![fate];
        let disks = (a.dir.path().to_owned(), kept.path().to_owned());
        *server.disks.lock().unwrap() = Some(disks);
        a.add("1", &lan).unwrap_err();
        if fate == Fate::Killed {
            copy_dir(kept.path(), a.dir.path());
            a.restart();
        }
        if fate == Fate::Lost {
            // The process ends before it has freed the slot.
            a.restart();
        }
        a.del("1");
        server.land();
        a.work();
        let mut given = BTreeSet::new();
        for pod in 1..13 {
            given.extend(b.add(&format!("b{pod}"), &lan).unwrap());
        }
        assert_eq!(given.len(), 12, "{fate:?}");
        assert!(!given.contains(&a.add("0", &lan).unwrap()[0]), "{fate:?}");
    }
}

#[test]
fn slot_of_a_pod_that_was_deleted_without_the_server_is_freed_later() {
    let server = Server::with_nodes(&["a"]);
    let a = Machine::new(&server, "a");
    let lan = ipam("10.30.0.0/29");
    a.add("1", &lan).unwrap();
    for fate in [Fate::Away, Fate::Late, Fate::Lost] {
        *server.fates.lock().unwrap() = vec![fate; 4];
        a.del("1");
        server.fates.lock().unwrap().clear();
        server.land();
        a.work();
        let objects = server.objects.lock().unwrap();
        let slots = objects["10.30.0.0"]["spec"]["slots"].as_array().unwrap();
        assert!(
            slots.iter().all(|slot| slot["owner"] == ""),
            "{fate:?}: {slots:?}"
        );
        drop(objects);
        a.add("1", &lan).unwrap();
    }
}

#[test]
fn block_whose_creation_nobody_heard_of_is_used() {
    for restarts in [false, true] {
        let server = Server::with_nodes(&["a"]);
        let mut a = Machine::new(&server, "a");
        let lan = ipam("10.20.0.0/16");
        *server.fates.lock().unwrap() = vec![Fate::Lost, Fate::Made];
        a.add("1", &lan).unwrap_err();
        if restarts {
            a.restart();
        }
        a.work();
        a.add("1", &lan).unwrap();
        assert_eq!(server.objects.lock().unwrap().len(), 1);
    }
}

#[test]
fn block_of_a_node_that_is_gone_is_taken_when_nothing_is_left_of_it() {
    let lan = json!({"type": "multus-ipam", "subnet": "10.20.0.0/23", "rangeEnd": "10.20.1.3"});
    let server = Server::with_nodes(&["a", "b"]);
    let a = Machine::new(&server, "a");
    let b = Machine::with_times(
        &server,
        "b",
        Times {
            sharing: Duration::ZERO,
            ..TIMES
        },
    );
    let fill = |machine: &Machine, name: &str| {
        (0..1_000)
            .take_while(|pod| machine.add(&format!("{name}{pod}"), &lan).is_ok())
            .count()
    };
    let of_a = fill(&a, "a");
    assert_eq!(of_a, 258, "all of the range");
    assert!(b.add("x", &lan).is_err(), "the Node is there");
    server.nodes.lock().unwrap().remove("a");
    server.bound.lock().unwrap().insert("a".to_owned());
    assert!(b.add("x", &lan).is_err(), "a pod is bound to it");
    server.bound.lock().unwrap().clear();
    let long = Machine::with_times(
        &server,
        "b",
        Times {
            gone: Duration::from_mins(10),
            sharing: Duration::ZERO,
            ..TIMES
        },
    );
    let failed = long.add("x", &lan).unwrap_err();
    assert!(
        failed.contains("of them by node a, whose Node is gone: they are free in 10 min"),
        "{failed}"
    );
    let of_b = fill(&b, "b");
    assert_eq!(of_b, 258, "what the node has left, held and shared");
    let objects = server.objects.lock().unwrap();
    let held = objects.values().filter(|one| one["spec"]["mode"] == "node");
    let turns: Vec<_> = held.map(|one| &one["spec"]["turn"]).collect();
    assert!(!turns.is_empty());
    assert!(turns.iter().all(|turn| **turn == 2), "{turns:?}");
}

#[test]
fn node_that_was_made_anew_holds_its_blocks_under_the_new_uid() {
    for restarts in [false, true] {
        let server = Server::with_nodes(&["a"]);
        let mut a = Machine::with_times(
            &server,
            "a",
            Times {
                node: if restarts { TIMES.node } else { Duration::ZERO },
                ..TIMES
            },
        );
        let lan = ipam("10.20.0.0/16");
        let first = a.add("1", &lan).unwrap();
        a.work();
        server.register("a", "2");
        if restarts {
            a.restart();
        }
        a.work();
        let name = server.names().remove(0);
        let object = server.objects.lock().unwrap()[&name].clone();
        assert_eq!(object["spec"]["holder"]["uid"], "2");
        assert_eq!(object["spec"]["turn"], 2);
        let slot = first[0].split('/').next().unwrap().parse().unwrap();
        let slot = crate::range::Block::of(slot).slot(slot).unwrap();
        assert_eq!(object["spec"]["used"], format!("{:08x}", 1_u32 << slot));
        server.requests();
        assert_ne!(a.add("2", &lan).unwrap(), first);
        assert_eq!(a.add("1", &lan).unwrap(), first);
        assert_eq!(server.requests(), [""; 0], "nothing more is to be asked");
        assert_eq!(server.names(), [name]);
    }
}

#[test]
fn uid_of_a_node_does_not_change_under_a_request() {
    let server = Server::with_nodes(&["a"]);
    let a = Machine::new(&server, "a");
    a.add("1", &ipam("10.20.0.0/16")).unwrap();
    let share = |state: &mut State| {
        let mut entries = state.entries.values_mut();
        entries.find_map(|entry| entry.node.share()).unwrap()
    };
    share(&mut a.service.lock());
    server.register("a", "2");
    a.service.read_own().unwrap_err();
    assert_eq!(a.service.store().node(), Some("1"));
}

#[test]
fn node_that_was_made_anew_gives_nothing_of_what_was_taken_meanwhile() {
    let lan = json!({"type": "multus-ipam", "subnet": "10.20.0.0/23", "rangeEnd": "10.20.1.3"});
    let server = Server::with_nodes(&["a", "b"]);
    let mut a = Machine::new(&server, "a");
    let b = Machine::new(&server, "b");
    a.add("1", &lan).unwrap();
    server.register("a", "2");
    let taken = (0..258).map(|pod| b.add(&format!("b{pod}"), &lan).unwrap());
    assert_eq!(taken.collect::<BTreeSet<_>>().len(), 258);
    a.restart();
    let full = a.add("2", &lan).unwrap_err();
    assert!(full.contains("no free address"), "{full}");
}

#[test]
fn emptied_directory_gives_nothing_of_its_blocks_before_a_boot() {
    // Also where the Node was made again under its name.
    for (first, count, uid, has_new_disk) in [
        ("10.20.1.0", 255, "1", false),
        ("10.20.0.2", 509, "1", false),
        ("10.20.0.2", 509, "2", false),
        ("10.20.1.0", 255, "1", true),
        ("10.20.0.2", 509, "1", true),
        ("10.20.0.2", 509, "2", true),
    ] {
        let server = Server::with_nodes(&["a"]);
        let mut a = Machine::new(&server, "a");
        let lan = json!({"type": "multus-ipam", "subnet": "10.20.0.0/23", "rangeStart": first});
        let pods: Vec<String> = (0..6).map(|pod| format!("p{pod}")).collect();
        let before: BTreeSet<_> = pods.iter().map(|pod| a.add(pod, &lan).unwrap()).collect();
        std::fs::remove_dir_all(a.dir.path()).unwrap();
        a.restart();
        a.work();
        let after = a.add("new", &lan).unwrap();
        assert!(!before.contains(&after), "{after:?} is in use");
        server.register("a", uid);
        if has_new_disk {
            std::fs::remove_dir_all(a.dir.path()).unwrap();
        }
        a.boot();
        a.work();
        let mut given = BTreeSet::new();
        for pod in 0..count {
            given.extend(a.add(&format!("b{pod}"), &lan).unwrap());
        }
        assert_eq!(given.len(), count, "the boot has ended every use");
    }
}

#[test]
fn daemon_that_is_killed_while_it_takes_the_blocks_of_a_former_directory_takes_them_later() {
    let server = Server::with_nodes(&["a"]);
    let mut a = Machine::new(&server, "a");
    a.add("1", &ipam("10.20.0.0/16")).unwrap();
    a.work();
    std::fs::remove_dir_all(a.dir.path()).unwrap();
    a.boot();
    server.requests();
    *server.fates.lock().unwrap() = vec![Fate::Away, Fate::Made, Fate::Made, Fate::Made];
    a.service.work();
    let seen = server.requests();
    assert!(seen[3].starts_with("patch ") && a.service.store().has_to_adopt());
    a.restart();
    a.work();
    assert_is_held_anew(&server, &a);
}

#[test]
fn block_that_a_request_of_a_former_directory_makes_late_is_taken() {
    let server = Server::with_nodes(&["a"]);
    let mut a = Machine::new(&server, "a");
    *server.fates.lock().unwrap() = vec![Fate::Away, Fate::Late, Fate::Made];
    a.times.patience = Duration::from_millis(50);
    a.restart();
    a.add("1", &ipam("10.20.0.0/16")).unwrap_err();
    server.fates.lock().unwrap().clear();
    std::fs::remove_dir_all(a.dir.path()).unwrap();
    a.times.settled = Duration::from_millis(100);
    a.boot();
    a.work();
    assert_eq!(server.names(), [""; 0]);
    server.land();
    let end = Instant::now() + Duration::from_secs(20);
    while a.service.store().is_open() {
        assert!(Instant::now() < end, "it is not looked for");
        a.service.work();
    }
    assert_is_held_anew(&server, &a);
}

/// Fails unless the only block has the node's directory as its holder, under a new turn, and no address that is used.
#[track_caller]
fn assert_is_held_anew(server: &Server, machine: &Machine) {
    let name = server.names().remove(0);
    let object = server.objects.lock().unwrap()[&name].clone();
    let incarnation = machine.service.store().incarnation().to_owned();
    assert_eq!(object["spec"]["holder"]["incarnation"], *incarnation);
    assert_eq!(object["spec"]["turn"], 2);
    assert_eq!(object["spec"]["used"], "00000000");
}

#[test]
fn record_that_cannot_be_written_is_no_address() {
    let server = Server::with_nodes(&["a"]);
    let mut a = Machine::new(&server, "a");
    for lan in [ipam("10.20.0.0/16"), ipam("10.30.0.0/29")] {
        let first = a.add("1", &lan).unwrap();
        let blocks = a.dir.path().join("blocks");
        let away = a.dir.path().join("away");
        std::fs::rename(&blocks, &away).unwrap();
        let failed = a.add("2", &lan).unwrap_err();
        assert!(
            failed.starts_with("cannot write the record of block 10."),
            "{failed}"
        );
        a.service.del(&attachment("1")).unwrap_err();
        std::fs::rename(&away, &blocks).unwrap();
        a.service.check(&attachment("1")).unwrap();
        assert_ne!(a.add("2", &lan).unwrap(), first);
        a.del("1");
        a.restart();
        a.service.check(&attachment("1")).unwrap_err();
        a.del("2");
    }
}

#[test]
fn block_that_was_edited_and_mended_is_used_again() {
    let server = Server::with_nodes(&["a"]);
    let a = Machine::new(&server, "a");
    let own = a.service.own().unwrap();
    let lan = json!({"type": "multus-ipam", "subnet": "10.20.0.0/16", "space": "lab"});
    let first = a.add("1", &lan).unwrap();
    let name = server.names().remove(0);
    let mode = |mode: &str| json!([{"op": "replace", "path": "/spec/mode", "value": mode}]);
    server.edit(&name, mode("mine"));
    a.service.read(&own, &name).unwrap();
    a.add("2", &lan).unwrap();
    assert_eq!(server.names().len(), 2, "the spoilt one gives nothing");
    server.edit(&name, mode("node"));
    a.hear();
    let given = (3..60).map(|pod| a.add(&pod.to_string(), &lan).unwrap());
    let given: BTreeSet<_> = given.collect();
    assert_eq!(server.names().len(), 2, "it gives again");
    assert!(!given.contains(&first));
    // One that cannot be mended is deleted, and its place is free.
    server.edit(&name, mode("mine"));
    a.service.read(&own, &name).unwrap();
    server.objects.lock().unwrap().remove(&name);
    a.service
        .list(&own, object::SPACE_LABEL, &object::space_label("lab"))
        .unwrap();
    assert!(a.service.lock().unusable.spoilt.is_empty());
}

#[test]
fn slots_of_a_block_that_was_mended_after_a_boot_are_free() {
    let server = Server::with_nodes(&["a"]);
    let mut a = Machine::new(&server, "a");
    let lan = ipam("10.30.0.0/28");
    a.add("1", &lan).unwrap();
    let mode = |mode: &str| json!([{"op": "replace", "path": "/spec/mode", "value": mode}]);
    server.edit("10.30.0.0", mode("mine"));
    std::fs::remove_dir_all(a.dir.path()).unwrap();
    a.boot();
    a.work();
    assert!(a.add("2", &lan).is_err(), "the block cannot be read");
    server.edit("10.30.0.0", mode("shared"));
    a.add("2", &lan).unwrap();
    a.work();
    assert_eq!(server.owned("10.30.0.0"), 1);
}

#[test]
fn edited_and_deleted_blocks_are_not_used() {
    let server = Server::with_nodes(&["a", "b"]);
    let (a, b) = (Machine::new(&server, "a"), Machine::new(&server, "b"));
    let lan = ipam("10.30.0.0/28");
    a.add("1", &lan).unwrap();
    let spoil = json!([{"op": "replace", "path": "/spec/slots", "value": []}]);
    let sound = server.objects.lock().unwrap()["10.30.0.0"]["spec"]["slots"].clone();
    server.edit("10.30.0.0", spoil);
    let failed = b.add("2", &lan).unwrap_err();
    assert!(failed.contains("spec.slots has 0 entries"), "{failed}");
    let mend = json!([{"op": "replace", "path": "/spec/slots", "value": sound}]);
    server.edit("10.30.0.0", mend);
    b.add("2", &lan).unwrap();
    server.delete_by_hand("10.30.0.0");
    // Also the one that has not heard of it gives nothing.
    a.add("3", &lan).unwrap_err();
    b.add("4", &lan).unwrap_err();
    a.add("1", &lan).expect("the pod had its address");
    a.del("1");
    b.del("2");
    a.work();
    b.work();
    assert!(
        server.objects.lock().unwrap().is_empty(),
        "the last one lets it go"
    );
}

#[test]
fn addresses_that_a_block_gives_to_others_are_conflicts() {
    let server = Server::with_nodes(&["a"]);
    let a = Machine::new(&server, "a");
    let read = |name: &str| {
        a.service.read(&a.service.own().unwrap(), name).unwrap();
        a.service.take_conflicts()
    };
    let change = |name: &str, path: &str, value: Value| {
        let patch = json!([{"op": "replace", "path": path, "value": value}]);
        server.apply(name, &Write::Patch(patch)).unwrap();
    };
    let (few, lan) = (ipam("10.30.0.0/28"), ipam("10.20.0.0/16"));
    for pod in ["1", "2"] {
        a.add(pod, &few).unwrap();
        a.add(&format!("held-{pod}"), &lan).unwrap();
    }
    let objects = server.objects.lock().unwrap().clone();
    let held = objects
        .keys()
        .find(|name| name.starts_with("10.20."))
        .unwrap();
    let slots = objects["10.30.0.0"]["spec"]["slots"].as_array().unwrap();
    let slot = slots
        .iter()
        .position(|slot| slot["owner"] == "pod/u-1/c-1/net1");
    let slot = slot.unwrap();
    let path = format!("/spec/slots/{slot}");
    assert_eq!(read("10.30.0.0") + read(held), 0);
    change("10.30.0.0", &format!("{path}/owner"), json!("pod/u/c/net1"));
    // Each is counted once, and again only after the block was right.
    assert_eq!([read("10.30.0.0"), read("10.30.0.0")], [1, 0]);
    change("10.30.0.0", &path, slots[slot].clone());
    assert_eq!(read("10.30.0.0"), 0);
    change("10.30.0.0", &path, json!({"owner": "", "pods": []}));
    assert_eq!(read("10.30.0.0"), 1);
    a.del("1");
    assert_eq!(read("10.30.0.0"), 0);
    change(held, "/spec/holder/node", json!("b"));
    assert_eq!(read(held), 2);
    server.objects.lock().unwrap().clear();
    assert_eq!(read("10.30.0.0"), 1);
}

#[test]
fn lists_of_ranges_are_counted_as_pods_have_asked_for_them() {
    let server = Server::with_nodes(&["a"]);
    let a = Machine::new(&server, "a");
    let both = json!({"type": "multus-ipam", "ranges": [[{"subnet": "10.30.0.0/28"}], [{"subnet": "fd00::/64"}]]});
    let low = json!({"type": "multus-ipam", "subnet": "10.30.0.0/28", "rangeEnd": "10.30.0.2"});
    let apart = json!({"type": "multus-ipam", "subnet": "10.30.0.0/28", "space": "lab"});
    for (pod, ipam) in [("1", &low), ("2", &both), ("3", &both), ("4", &apart)] {
        a.add(pod, ipam).unwrap();
    }
    a.del("3");
    let counts = a.service.counts(true).ranges.into_iter();
    let counts: Vec<_> = counts
        .map(|one| (one.space, one.range, one.used, one.size))
        .collect();
    let expected = [
        ("", "10.30.0.2-10.30.0.14", 2, 13),
        ("", "10.30.0.2-10.30.0.2", 1, 1),
        ("", "fd00::2-fd00::ffff:ffff:ffff:ffff", 1, (1 << 64) - 2),
        ("lab", "10.30.0.2-10.30.0.14", 1, 13),
    ];
    let expected =
        expected.map(|(space, range, used, size)| (space.to_owned(), range.to_owned(), used, size));
    assert_eq!(counts, expected);
    // Lists that no pod uses make room for others.
    for number in 0..99 {
        let pod = format!("p-{number}");
        a.add(&pod, &ipam(&format!("10.31.{number}.0/28"))).unwrap();
        a.del(&pod);
    }
    let counts = a.service.counts(true).ranges;
    assert!((4..=32).contains(&counts.len()), "{counts:?}");
    assert_eq!(counts.iter().map(|one| one.used).sum::<usize>(), 5);
}

#[test]
fn deleted_block_of_a_node_goes_with_its_last_pod() {
    let server = Server::with_nodes(&["a"]);
    let a = Machine::new(&server, "a");
    let lan = ipam("10.20.0.0/16");
    let first = a.add("1", &lan).unwrap();
    let name = server
        .objects
        .lock()
        .unwrap()
        .keys()
        .next()
        .unwrap()
        .clone();
    server.delete_by_hand(&name);
    let deleted = server.objects.lock().unwrap()[&name].clone();
    a.service.changed(&deleted);
    assert_ne!(
        a.add("2", &lan).unwrap()[0].split('.').nth(3),
        first[0].split('.').nth(3)
    );
    assert!(
        server.objects.lock().unwrap().contains_key(&name),
        "it is in use"
    );
    a.del("1");
    a.work();
    assert!(!server.objects.lock().unwrap().contains_key(&name));
}

/// Times with which a block is given back as soon as nobody uses it.
const AT_ONCE: Times = Times {
    unused: Duration::ZERO,
    ..TIMES
};

#[test]
fn block_is_given_back_when_it_was_unused_for_a_while() {
    for lan in [ipam("10.20.0.0/16"), ipam("10.30.0.0/28")] {
        let server = Server::with_nodes(&["a"]);
        let mut a = Machine::new(&server, "a");
        a.add("1", &lan).unwrap();
        let names = server.names();
        a.del("1");
        a.work();
        let next = a.service.work().unwrap();
        assert!(next > Duration::from_mins(59), "{next:?}");
        a.add("2", &lan).unwrap();
        assert_eq!(server.names(), names, "the block was kept");
        a.work();
        assert_eq!(a.service.work(), None, "and is in use");
        a.times = AT_ONCE;
        a.restart();
        a.work();
        a.del("2");
        server.requests();
        a.work();
        let (last, others) = (server.requests(), names[0].as_str());
        let removed = [format!("delete {others}"), format!("patch {others}")];
        assert_eq!(last[last.len() - 2..], removed, "{last:?}");
        assert_eq!(server.names(), [""; 0]);
        assert_eq!(a.records(), 0);
    }
}

#[test]
fn block_that_is_used_again_is_not_given_back() {
    let server = Server::with_nodes(&["a", "b"]);
    let a = Machine::with_times(&server, "a", AT_ONCE);
    let b = Machine::new(&server, "b");
    let lan = ipam("10.30.0.0/28");
    a.add("1", &lan).unwrap();
    a.del("1");
    a.service.work();
    assert_eq!(a.records(), 1, "it has to remove the block");
    let given = b.add("2", &lan).unwrap();
    server.requests();
    a.work();
    assert_eq!(server.requests()[0], "delete 10.30.0.0");
    assert_eq!(a.records(), 0);
    b.service.check(&attachment("2")).unwrap();
    assert_ne!(a.add("3", &lan).unwrap(), given);
    let objects = server.objects.lock().unwrap();
    let block = AddressBlock::parse(&objects["10.30.0.0"]).unwrap();
    assert!(!block.is_deleted);
}

#[test]
fn block_whose_removal_nobody_heard_of_is_no_address_for_two() {
    use Fate::{Away, Killed, Late, Lost, Made};
    for lan in [ipam("10.20.0.0/27"), ipam("10.20.0.0/16")] {
        for fate in [Lost, Late, Away, Killed] {
            for before in 0..3 {
                let kept = disk();
                let server = Server::with_nodes(&["a", "b"]);
                let mut a = Machine::with_times(&server, "a", AT_ONCE);
                let b = Machine::new(&server, "b");
                a.add("1", &lan).unwrap();
                a.work();
                a.del("1");
                let disks = (a.dir.path().to_owned(), kept.path().to_owned());
                *server.disks.lock().unwrap() = Some(disks);
                // The number of used addresses is written, or the slot freed, and then the block is removed.
                *server.fates.lock().unwrap() = [vec![fate], vec![Made; before]].concat();
                a.service.work();
                a.service.work();
                if fate == Killed {
                    copy_dir(kept.path(), a.dir.path());
                    a.restart();
                }
                server.fates.lock().unwrap().clear();
                let mut given = a.add("2", &lan).unwrap();
                server.land();
                given.extend(b.add("3", &lan).unwrap());
                given.extend(a.add("4", &lan).unwrap());
                given.sort();
                given.dedup();
                assert_eq!(given.len(), 3, "{fate:?} after {before}");
                for (machine, pod) in [(&a, "2"), (&b, "3"), (&a, "4")] {
                    machine.service.check(&attachment(pod)).unwrap();
                    machine.del(pod);
                }
                a.work();
                b.work();
                a.work();
                let left = server.names();
                assert!(left.len() < 2, "only that of b: {left:?}");
            }
        }
    }
}

#[test]
fn shared_block_that_an_earlier_release_left_goes_after_a_boot() {
    let server = Server::with_nodes(&["a", "b"]);
    let mut a = Machine::with_times(&server, "a", AT_ONCE);
    a.work();
    let b = Machine::new(&server, "b");
    b.add("1", &ipam("10.30.0.0/28")).unwrap();
    b.del("1");
    b.work();
    a.work();
    assert_eq!(server.names(), ["10.30.0.0"]);
    a.boot();
    a.work();
    assert_eq!(server.names(), [""; 0]);
}

#[test]
fn container_that_goes_on_after_a_boot_leaves_no_slot_of_before() {
    let server = Server::with_nodes(&["a"]);
    let mut a = Machine::with_times(&server, "a", AT_ONCE);
    let lan = ipam("10.30.0.0/28");
    let first = a.add("1", &lan).unwrap();
    // The machine has a new disk.
    std::fs::remove_dir_all(a.dir.path()).unwrap();
    a.boot();
    let second = a.add("1", &lan).unwrap();
    assert_ne!(second, first);
    a.work();
    a.del("1");
    a.work();
    assert_eq!(server.names(), [""; 0]);
}

#[test]
fn block_that_was_to_be_given_back_gives_only_under_a_new_turn() {
    for wants in [false, true] {
        let server = Server::with_nodes(&["a", "b"]);
        let mut a = Machine::with_times(&server, "a", AT_ONCE);
        let lan = ipam("10.20.0.0/16");
        a.add("1", &lan).unwrap();
        a.work();
        a.del("1");
        let name = server.names().remove(0);
        a.service.work();
        // The deletion is made too late.
        *server.fates.lock().unwrap() = vec![Fate::Late];
        a.service.work();
        let text = std::fs::read_to_string(a.dir.path().join(format!("blocks/{name}.json")));
        assert!(text.unwrap().contains("\"frozen\":true"));
        if wants {
            server.want(&name);
        }
        a.times = TIMES;
        a.restart();
        a.add("2", &lan).unwrap();
        server.land();
        let object = server.objects.lock().unwrap()[&name].clone();
        let block = AddressBlock::parse(&object).unwrap();
        let is_shared = matches!(block.mode, object::Mode::Shared(_));
        assert_eq!((block.turn, is_shared), (2, wants));
        assert!(!block.is_deleted);
    }
}

#[test]
fn block_whose_sharing_nobody_heard_of_is_frozen_on_disk() {
    let kept = disk();
    let server = Server::with_nodes(&["a", "b"]);
    let mut a = Machine::new(&server, "a");
    let lan = ipam("10.20.0.0/16");
    a.add("1", &lan).unwrap();
    a.work();
    let name = server.names().remove(0);
    server.want(&name);
    // The block is read, and the process ends when it is shared.
    *server.fates.lock().unwrap() = vec![Fate::Killed, Fate::Made];
    let disks = (a.dir.path().to_owned(), kept.path().to_owned());
    *server.disks.lock().unwrap() = Some(disks);
    a.hear();
    copy_dir(kept.path(), a.dir.path());
    a.restart();
    a.add("2", &lan).unwrap();
    let own = a.service.own().unwrap();
    a.service.read(&own, &name).unwrap();
    assert_eq!(a.service.take_conflicts(), 0);
    let slots = server.objects.lock().unwrap()[&name]["spec"]["slots"].clone();
    assert!(slots.is_array(), "it was shared");
}

#[test]
fn block_that_could_not_be_shared_is_shared_later() {
    for (fates, is_deleted) in [
        (vec![Fate::Away], false),
        (vec![Fate::Away, Fate::Made], false),
        (vec![], true),
    ] {
        let server = Server::with_nodes(&["a", "b"]);
        let a = Machine::new(&server, "a");
        a.add("1", &ipam("10.20.0.0/16")).unwrap();
        a.work();
        let name = server.names().remove(0);
        if is_deleted {
            server.delete_by_hand(&name);
        }
        server.want(&name);
        *server.fates.lock().unwrap() = fates;
        a.hear();
        assert_eq!(server.fates.lock().unwrap().len(), 0);
        a.work();
        let mode = server.objects.lock().unwrap()[&name]["spec"]["mode"].clone();
        assert_eq!(mode, "shared", "deleted: {is_deleted}");
    }
}

#[test]
fn slots_of_a_former_boot_are_freed_although_pods_ask_for_others_while_they_are_looked_for() {
    let server = Server::with_nodes(&["a"]);
    let mut a = Machine::new(&server, "a");
    let lan = ipam("10.30.0.0/27");
    a.add("former", &lan).unwrap();
    std::fs::remove_dir_all(a.dir.path()).unwrap();
    a.boot();
    let turns = Turns::new(1);
    let mut added = 0;
    thread::scope(|scope| {
        let _end = turns.until_dropped();
        turns.start(scope, 0, || a.work());
        while turns.next() != [Next::Nothing] {
            if turns.next() == [Next::Read] {
                a.add(&format!("new-{added}"), &lan).unwrap();
                added += 1;
            }
            turns.go(0, Fate::Made);
        }
    });
    assert_eq!(server.owned("10.30.0.0"), added);
}

#[test]
fn outcome_that_is_unknown_since_the_boot_stays_open_when_former_slots_are_looked_for() {
    let server = Server::with_nodes(&["a", "b"]);
    let lan = ipam("10.30.0.0/28");
    let b = Machine::new(&server, "b");
    b.add("b", &lan).unwrap();
    let mut a = Machine::new(&server, "a");
    a.add("1", &lan).unwrap();
    a.times.settled = Duration::from_hours(1);
    a.boot();
    // The slot of the former pod is not looked for yet: the list gets no answer.
    *server.fates.lock().unwrap() = vec![Fate::Away, Fate::Made];
    a.service.work();
    assert!(a.service.store().has_to_adopt());
    *server.fates.lock().unwrap() = vec![Fate::Late, Fate::Made];
    a.add("2", &lan).unwrap_err();
    a.del("2");
    a.work();
    assert!(!a.service.store().has_to_adopt());
    server.land();
    assert_eq!(server.owned("10.30.0.0"), 2);
    a.times = TIMES;
    a.restart();
    a.work();
    assert_eq!(server.owned("10.30.0.0"), 1);
}

#[test]
fn deleted_block_of_a_node_that_is_gone_is_let_go() {
    let server = Server::with_nodes(&["a", "b"]);
    let a = Machine::new(&server, "a");
    let b = Machine::new(&server, "b");
    let lan = json!({"type": "multus-ipam", "subnet": "10.20.0.0/23", "rangeEnd": "10.20.1.3"});
    for pod in 0..258 {
        a.add(&format!("a{pod}"), &lan).unwrap();
    }
    server.nodes.lock().unwrap().remove("a");
    let names = server.names();
    for name in &names {
        server.delete_by_hand(name);
    }
    b.add("1", &lan).unwrap();
    let left: Vec<_> = server.names();
    assert!(left.len() < names.len(), "{left:?}");
}

#[test]
fn gc_frees_what_no_attachment_of_the_network_has() {
    let server = Server::with_nodes(&["a"]);
    let a = Machine::new(&server, "a");
    for pod in ["1", "2"] {
        a.add(pod, &ipam("10.20.0.0/16")).unwrap();
    }
    a.service.collect("other", &[]).unwrap();
    assert_eq!(a.addresses(), 2);
    a.service.collect("lan", &[attachment("2")]).unwrap();
    a.service.check(&attachment("1")).unwrap_err();
    a.service.check(&attachment("2")).unwrap();
}

#[test]
fn del_ends_an_add_that_is_under_way() {
    let server = Server::with_nodes(&["a"]);
    let a = Machine::new(&server, "a");
    let lan = ipam("10.30.0.0/28");
    a.add("1", &lan).unwrap();
    let blocks = server.objects.lock().unwrap();
    thread::scope(|scope| {
        // The server answers when its lock is free.
        let add = scope.spawn(|| a.add("2", &lan));
        let asked = ("lan".to_owned(), AddressState::Asked);
        while a.service.counts(true).addresses.get(&asked) != Some(&1) {
            thread::yield_now();
        }
        scope.spawn(|| a.del("2"));
        while a.service.lock().active.get(&attachment("2")) == Some(&false) {
            thread::yield_now();
        }
        drop(blocks);
        let outcome = add.join().unwrap();
        assert_eq!(outcome.unwrap_err(), "the container was deleted meanwhile");
    });
    a.work();
    assert_eq!(a.addresses(), 1);
    assert_eq!(server.owned("10.30.0.0"), 1);
}

#[test]
fn bad_requests_say_what_is_wrong() {
    let server = Server::with_nodes(&[]);
    let a = Machine::new(&server, "a");
    let failed = a.add("1", &ipam("10.20.0.0/16")).unwrap_err();
    assert_eq!(
        failed,
        "cannot reach the API server: the cluster has no Node \"a\""
    );
    let answer = a.service.serve(&Ask::Allocate(Allocation {
        pod: Pod::default(),
        ..allocation("1", &ipam("10.20.0.0/16"))
    }));
    let Answer::Failed {
        reason,
        is_temporary,
    } = answer
    else {
        panic!("{answer:?}")
    };
    assert!(reason.contains("K8S_POD_UID") && !is_temporary, "{reason}");
    let answer = a.service.serve(&Ask::Allocate(Allocation {
        ipam: Map::new(),
        ..allocation("1", &ipam("10.20.0.0/16"))
    }));
    assert!(matches!(
        answer,
        Answer::Failed {
            is_temporary: false,
            ..
        }
    ));
}

/// A sequence of numbers that a seed decides (xorshift).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// Returns a place among so many.
    pub(super) fn choose(&mut self, among: usize) -> usize {
        usize::try_from(self.roll(among as u64)).unwrap()
    }

    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Makes a directory equal to another one.
fn copy_dir(from: &Path, to: &Path) {
    use std::fs;
    let blocks = to.join("blocks");
    let _ = fs::remove_dir_all(&blocks);
    fs::create_dir_all(&blocks).unwrap();
    for entry in fs::read_dir(from.join("blocks")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), blocks.join(entry.file_name())).unwrap();
    }
    fs::copy(from.join("identity.json"), to.join("identity.json")).unwrap();
}

/// Starts a machine after a power cut, perhaps with an older disk or a new one.
fn boot_with_a_disk(machine: &mut Machine, older: Option<tempfile::TempDir>, dice: &mut Dice) {
    match (older, dice.roll(4)) {
        (Some(older), 0 | 1) => copy_dir(older.path(), machine.dir.path()),
        (_, 2) => std::fs::remove_dir_all(machine.dir.path()).unwrap(),
        _ => {}
    }
    machine.boot();
}

/// Network and address, with machine and pod.
type Uses = BTreeMap<(usize, String), (usize, String)>;

/// A small and a large range, for so many nodes.
fn networks(nodes: usize) -> [Value; 2] {
    if nodes > 3 {
        [ipam("10.30.0.0/28"), ipam("10.20.0.0/20")]
    } else {
        let large =
            json!({"type": "multus-ipam", "subnet": "10.20.0.0/23", "rangeEnd": "10.20.1.40"});
        [ipam("10.30.0.0/28"), large]
    }
}

/// Lets nodes get and free addresses, lose answers, end their processes and their power, and delays writes. No address is used twice, and
/// none is lost. Returns how many were given.
fn random_history(seed: u64, nodes: usize, steps: u32) -> usize {
    let mut dice = Dice(seed);
    let mut given = 0;
    let names: Vec<&str> = (0..nodes).map(|node| &*format!("n{node}").leak()).collect();
    let server = Server::with_nodes(&names);
    // Holders hear at random of what others want of them. A delayed write may be made until the end.
    let times = Times {
        sharing: Duration::ZERO,
        settled: Duration::from_hours(1),
        node: Duration::ZERO,
        ..AT_ONCE
    };
    server
        .bound
        .lock()
        .unwrap()
        .extend(names.iter().map(|name| (*name).to_owned()));
    let machines = names.iter();
    let machines = machines.map(|name| Machine::with_times(&server, name, times));
    let mut machines: Vec<_> = machines.collect();
    let lans = networks(nodes);
    // What a power cut may leave: the disk as it was some time ago.
    let mut disks: Vec<Option<tempfile::TempDir>> = names.iter().map(|_| None).collect();
    let mut uses = Uses::new();
    let mut claims = claims::History::new(&server, &lans);
    let mut backup = server.backup();
    for step in 0..steps {
        let at = dice.choose(nodes);
        let roll = dice.roll(12);
        server.set_fate(roll, dice.choose(3));
        // Pods come for some time, and go for some time.
        let phase = step as usize / (34 * nodes);
        let share_of_adds = if phase.is_multiple_of(2) { 11 } else { 3 };
        match dice.roll(32) {
            26..30 => {
                let pod = format!("{seed}-{step}");
                given += usize::from(claims.add(&machines[at], at, &pod, &mut dice));
            }
            30 => claims.del(&machines[at], at, &mut dice),
            31 => claims.remove(&machines, &mut dice),
            roll if roll < share_of_adds => {
                let lan = usize::from(dice.roll(u64::from(nodes.ilog2()) + 1) > 0);
                let pod = format!("{seed}-{step}");
                match machines[at].add(&pod, &lans[lan]) {
                    Ok(addresses) => {
                        given += 1;
                        let key = (lan, addresses[0].clone());
                        let other = uses.insert(key, (at, pod.clone()));
                        assert_eq!(other, None, "{addresses:?} in step {step} of {seed}");
                    }
                    // The runtime deletes a container that has failed.
                    Err(failed) => {
                        check_refusal(&server, &lans[lan], &failed, seed);
                        machines[at].del(&pod);
                    }
                }
            }
            0..15 => {
                if uses.is_empty() {
                    continue;
                }
                let chosen = dice.choose(uses.len());
                let key = uses.keys().nth(chosen).unwrap().clone();
                let (on, pod) = uses.remove(&key).unwrap();
                machines[on].del(&pod);
            }
            15 => machines[at].restart(),
            16 => {
                uses.retain(|_, (on, _)| *on != at);
                claims.end_all(at);
                boot_with_a_disk(&mut machines[at], disks[at].take(), &mut dice);
            }
            19 => {
                let disk = disk();
                copy_dir(machines[at].dir.path(), disk.path());
                disks[at] = Some(disk);
            }
            17 => server.land(),
            21 => server.register(names[at], &step.to_string()),
            18 => machines[at].hear(),
            20 => {
                let names = server.names();
                if !names.is_empty() && dice.roll(4) == 0 {
                    let chosen = dice.choose(names.len());
                    server.delete_by_hand(&names[chosen]);
                }
            }
            22 if dice.roll(2) == 0 => backup = server.backup(),
            // The machines are started anew afterwards, as docs/addresses.md says.
            22 if dice.roll(4 * nodes as u64) == 0 => {
                server.restore(&backup);
                uses.clear();
                claims.restored();
                for machine in &mut machines {
                    machine.boot();
                }
            }
            _ => drop(machines[at].service.work()),
        }
        claims.check(&uses, step);
        let conflicts = machines[at].service.take_conflicts();
        assert_eq!(conflicts, 0, "step {step} of {seed}");
    }
    end_history(&server, &mut machines, &lans, (uses, claims), seed);
    given
}

/// Fails if a pod was refused for want of a free address although its network has some.
fn check_refusal(server: &Server, lan: &Value, failed: &str, seed: u64) {
    if failed.contains("has no free address") {
        let free = server.free(lan);
        assert_eq!(free, 0, "{failed}, but {free} are free in {seed}");
    }
}

/// Fails unless the blocks that nodes hold say which of their addresses are used. The nodes have done what is due; a request about an open block
/// has no known outcome, so nothing is said about it.
fn check_reports(server: &Server, uses: &Uses, open: &BTreeSet<String>, seed: u64) {
    let mut blocks: BTreeMap<String, u32> = BTreeMap::new();
    for (_, address) in uses.keys() {
        let address = address.split('/').next().unwrap().parse().unwrap();
        let block = crate::range::Block::of(address);
        let slots = blocks.entry(object::name("", block)).or_default();
        *slots |= 1 << block.slot(address).unwrap();
    }
    for (name, object) in &*server.objects.lock().unwrap() {
        let block = AddressBlock::parse(object).unwrap();
        // A deleted one gives nothing; the end of the history shows that it goes.
        let is_settled = !block.is_deleted && !open.contains(name);
        if matches!(block.mode, object::Mode::Node(_)) && is_settled {
            let expected = blocks.get(name).copied().unwrap_or_default();
            assert_eq!(block.used, Some(expected), "{name} after {seed}: {object}");
        }
    }
}

/// What nobody uses can be given again, and nothing is left when nobody uses anything.
fn end_history(
    server: &Server,
    machines: &mut [Machine],
    lans: &[Value],
    (mut uses, claims): (Uses, claims::History<'_>),
    seed: u64,
) {
    server.fates.lock().unwrap().clear();
    server.land();
    // The second round shows each node what the others have changed in the first one.
    for machine in machines.iter().chain(&*machines) {
        machine.hear();
        machine.work();
    }
    let open = machines.iter().flat_map(|machine| {
        let state = machine.service.lock();
        let open = state.entries.values();
        let open = open.filter(|entry| entry.open_until.is_some());
        open.map(|entry| entry.name.clone()).collect::<Vec<_>>()
    });
    check_reports(server, &uses, &open.collect(), seed);
    let end = |machine: &mut Machine, times: Times| {
        machine.times = times;
        machine.restart();
        machine.hear();
        machine.work();
    };
    let mut followers = Vec::new();
    for machine in &mut *machines {
        end(machine, TIMES);
        followers.push(machine.follow());
    }
    claims.end(machines);
    // A deleted block goes with its last pod.
    uses.retain(|(_, address), (on, pod)| {
        let address = address.split('/').next().unwrap().parse().unwrap();
        let objects = server.objects.lock().unwrap();
        let block = &objects[&object::name("", crate::range::Block::of(address))];
        let is_kept = block["metadata"].get("deletionTimestamp").is_none();
        drop(objects);
        if !is_kept {
            machines[*on].del(pod);
        }
        is_kept
    });
    machines.iter().for_each(Machine::work);
    for (lan, text) in lans.iter().enumerate() {
        let definition = config::parse(text.as_object().unwrap()).unwrap();
        let count: u128 = definition.lists[0].iter().map(Range::count).sum();
        // An ADD looks at a few claims only, and a node with a new disk knows of none.
        machines[0].free_abandoned();
        if count > 300 {
            // To use it up takes too long, and a boot finds blocks that are left.
            machines[0].boot();
            continue;
        }
        let taken = uses.keys().filter(|(of, _)| *of == lan).count();
        let mut free = 0;
        while machines[0]
            .add(&format!("last-{lan}-{free}"), &lans[lan])
            .is_ok()
        {
            free += 1;
        }
        for pod in 0..free {
            machines[0].del(&format!("last-{lan}-{pod}"));
        }
        assert_eq!((taken + free) as u128, count, "{seed}");
    }
    for (on, pod) in uses.values() {
        machines[*on].del(pod);
    }
    // A process that has ended writes nothing any more.
    server.watchers.lock().unwrap().clear();
    for follower in followers {
        follower.join().unwrap();
    }
    for machine in &mut *machines {
        end(machine, AT_ONCE);
    }
    let left = server.objects.lock().unwrap();
    assert!(left.is_empty(), "{left:?} in {seed}");
    for machine in machines {
        assert_eq!(machine.records(), 0, "{seed}");
    }
}

/// Runs a history of each seed at a time. Each has a thread of its own, whose name says how to run it again.
fn random_histories(seeds: std::ops::Range<u64>, nodes: usize, steps: u32) -> usize {
    thread::scope(|scope| {
        let start = |seed: u64| {
            let thread = thread::Builder::new().name(format!("history {seed}"));
            let history =
                move || random_history(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), nodes, steps);
            thread.spawn_scoped(scope, history).unwrap()
        };
        let all: Vec<_> = seeds.map(start).collect();
        all.into_iter().map(|history| history.join().unwrap()).sum()
    })
}

#[test]
fn random_histories_give_no_address_twice_and_lose_none() {
    random_histories(1..9, 3, 1_500);
}

#[test]
#[ignore = "minutes"]
fn many_random_histories_give_no_address_twice_and_lose_none() {
    for first in (100..500).step_by(8) {
        random_histories(first..first + 8, 3, 3_000);
    }
}

/// `IPAM_SEED` repeats a run from its first history on.
#[test]
#[ignore = "minutes, with --release"]
fn million_simulated_allocations_of_128_nodes_give_no_address_twice_and_lose_none() {
    let seed = std::env::var("IPAM_SEED").map(|seed| seed.parse().unwrap());
    let mut seed: u64 = seed.unwrap_or_else(|_| now() << 16);
    let mut given = 0;
    while given < 1_000_000 {
        println!("{given} allocations, IPAM_SEED={seed}");
        given += random_histories(seed..seed + 4, 128, 20_000);
        seed += 4;
    }
}
