//! Guests and nodes of the reference at the same pools, with an API server in memory that loses answers and delays writes on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::json;

use super::super::Api as _;
use super::super::tests::turns::{self, Fate, Next};
use super::super::tests::{Server, TIMES, lost, patched};
use super::*;
use crate::guest::pool::RETURNING;
use crate::store::tests::disk;
use crate::wire::Pod;

/// The times of nodes that wait for nobody and give back at once.
pub(in crate::service) const TIMES_AT_ONCE: Times = Times {
    unused: Duration::ZERO,
    moving: Duration::ZERO,
    sharing: Duration::ZERO,
    patience: Duration::from_millis(200),
    ..TIMES
};

/// Objects by their paths.
type Stored = BTreeMap<String, Value>;
type Write = Box<dyn Fn(&Cluster) -> Result<Value, ApiError> + Send>;

/// A connection to an API server with the two kinds.
#[derive(Default)]
pub(in crate::service) struct Cluster {
    objects: Arc<Mutex<Stored>>,
    /// The fates of requests that change something; the last one is next.
    fates: Mutex<Vec<Fate>>,
    is_away: Mutex<bool>,
    late: Mutex<Vec<Write>>,
    rival: Mutex<Option<fn(&mut Stored)>>,
    requests: Mutex<Vec<String>>,
    count: Arc<AtomicU64>,
    has_no_kind: bool,
    /// The server of blocks.
    pub(in crate::service) blocks: Mutex<Option<Arc<Server>>>,
}

fn refused() -> ApiError {
    ApiError::Refused("nothing changed".to_owned())
}

impl Cluster {
    /// Another connection to the same server.
    fn connect(&self) -> Arc<Self> {
        Arc::new(Self {
            objects: Arc::clone(&self.objects),
            count: Arc::clone(&self.count),
            ..Self::default()
        })
    }

    fn note(&self, verb: &str, path: &str) -> Result<(), ApiError> {
        let name = path.rsplit('/').next().unwrap();
        self.requests.lock().unwrap().push(format!("{verb} {name}"));
        if *self.is_away.lock().unwrap() {
            return Err(lost());
        }
        Ok(())
    }

    pub(in crate::service) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }

    fn write(
        &self,
        write: impl Fn(&Self) -> Result<Value, ApiError> + Send + 'static,
    ) -> Result<Value, ApiError> {
        let fate = turns::take(Next::Write).or_else(|| self.fates.lock().unwrap().pop());
        match fate.unwrap_or(Fate::Made) {
            Fate::Made => write(self),
            Fate::Lost => write(self).and(Err(lost())),
            fate @ (Fate::Late | Fate::Cut) => {
                self.late.lock().unwrap().push(Box::new(write));
                *self.is_away.lock().unwrap() |= fate == Fate::Cut;
                Err(lost())
            }
            Fate::Away => Err(lost()),
            Fate::Beaten => {
                let rival = self.rival.lock().unwrap().take().unwrap();
                rival(&mut self.objects.lock().unwrap());
                write(self)
            }
            Fate::Killed => panic!("no process ends here"),
        }
    }

    /// Decides what becomes of the next request that changes something, after some that are made.
    pub(in crate::service) fn set_fate(&self, roll: u64, before: usize) {
        let fate = match roll {
            0 => Fate::Lost,
            1 => Fate::Late,
            2 => Fate::Away,
            _ => Fate::Made,
        };
        *self.fates.lock().unwrap() = [vec![fate], vec![Fate::Made; before]].concat();
    }

    fn blocks(&self) -> Arc<Server> {
        let blocks = self.blocks.lock().unwrap();
        Arc::clone(blocks.as_ref().unwrap())
    }

    /// Makes the writes that were delayed.
    pub(in crate::service) fn land(&self) {
        for write in self.late.lock().unwrap().drain(..) {
            let _ = write(self);
        }
    }

    fn put(&self, objects: &mut Stored, path: &str, mut object: Value) -> Value {
        // A server writes nothing where nothing changes.
        if objects.get(path) == Some(&object) {
            return object;
        }
        let count = self.count.fetch_add(1, Ordering::Relaxed).to_string();
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata
            .entry("uid")
            .or_insert_with(|| format!("uid-{count}").into());
        metadata.insert("resourceVersion".to_owned(), count.into());
        objects.insert(path.to_owned(), object.clone());
        object
    }

    /// Returns all objects of a kind by their names.
    pub(in crate::service) fn all(&self, kind: &str) -> BTreeMap<String, Value> {
        let objects = self.objects.lock().unwrap();
        let all = objects.values().filter(|object| object["kind"] == kind);
        let named = all.map(|one| {
            (
                one["metadata"]["name"].as_str().unwrap().to_owned(),
                one.clone(),
            )
        });
        named.collect()
    }

    /// Returns what the pools and the reservations say: offset or name, and the pod.
    pub(in crate::service) fn taken(&self) -> (Vec<String>, Vec<String>) {
        let (mut pools, mut reservations) = (Vec::new(), Vec::new());
        for object in self.objects.lock().unwrap().values() {
            let name = object["metadata"]["name"].as_str().unwrap();
            if object["kind"] == "IPPool" {
                let entries = object["spec"]["allocations"].as_object().unwrap();
                pools.extend(entries.iter().map(|(key, entry)| {
                    format!(
                        "{key} {} {}",
                        entry["podref"].as_str().unwrap(),
                        entry["id"].as_str().unwrap()
                    )
                }));
            } else {
                reservations.push(format!(
                    "{name} {}",
                    object["spec"]["podref"].as_str().unwrap()
                ));
            }
        }
        (pools, reservations)
    }

    #[track_caller]
    pub(in crate::service) fn assert_free(&self) {
        assert_eq!(self.taken(), (vec![], vec![]));
    }
}

impl Objects for Arc<Cluster> {
    fn get(&self, path: &str) -> Result<Option<Value>, ApiError> {
        self.note("get", path)?;
        if let Some(block) = path.strip_prefix(&format!("{}/", object::PATH)) {
            return self.blocks().get(block);
        }
        if turns::take(Next::Read).is_some_and(|fate| fate != Fate::Made) {
            return Err(lost());
        }
        let objects = self.objects.lock().unwrap();
        let list = |matches: &dyn Fn(&Value) -> bool| {
            let found: Vec<_> = objects
                .values()
                .filter(|one| matches(one))
                .take(1)
                .collect();
            Ok((!self.has_no_kind).then(|| json!({"items": found})))
        };
        if let Some((_, own)) = path.split_once("namespace%21%3D") {
            return list(&|object| object["metadata"]["namespace"] != own);
        }
        if path.contains("labelSelector") {
            let is_adopted = path.ends_with(&format!("%3D{ADOPTED}"));
            return list(&|one| match pool::stamp(one) {
                None | Some(Stamp::New) => false,
                Some(Stamp::Adopted(_)) => is_adopted,
                Some(Stamp::Moving) => !is_adopted,
            });
        }
        Ok(objects.get(path).cloned())
    }

    fn create(&self, path: &str, object: &Value) -> Result<Value, ApiError> {
        self.note("create", path)?;
        let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
        let object = object.clone();
        self.write(move |cluster| {
            let mut objects = cluster.objects.lock().unwrap();
            if objects.contains_key(&path) {
                return Err(refused());
            }
            Ok(cluster.put(&mut objects, &path, object.clone()))
        })
    }

    fn patch(&self, path: &str, steps: &Value) -> Result<Value, ApiError> {
        self.note("patch", path)?;
        if let Some(block) = path.strip_prefix(&format!("{}/", object::PATH)) {
            return self.blocks().patch(block, steps);
        }
        let (path, steps) = (path.to_owned(), steps.clone());
        self.write(move |cluster| {
            let mut objects = cluster.objects.lock().unwrap();
            let object = objects.get(&path).ok_or_else(refused)?;
            let changed = patched(object, &steps).ok_or_else(refused)?;
            Ok(cluster.put(&mut objects, &path, changed))
        })
    }

    fn delete(&self, path: &str, options: &Value) -> Result<(), ApiError> {
        self.note("delete", path)?;
        let (path, options) = (path.to_owned(), options.clone());
        let deleted = self.write(move |cluster| {
            let mut objects = cluster.objects.lock().unwrap();
            let object = objects.get(&path).ok_or_else(refused)?;
            let tested = options["preconditions"].as_object().unwrap();
            if tested
                .iter()
                .any(|(key, value)| object["metadata"][key] != *value)
            {
                return Err(refused());
            }
            Ok(objects.remove(&path).unwrap())
        });
        deleted.map(drop)
    }
}

/// A node with a guest.
struct Machine {
    dir: tempfile::TempDir,
    cluster: Arc<Cluster>,
    times: Times,
    guest: Guest<Arc<Cluster>>,
}

fn resume(
    dir: &tempfile::TempDir,
    cluster: &Arc<Cluster>,
    times: Times,
    boot: &str,
) -> Guest<Arc<Cluster>> {
    let records = Records::open_in_boot(dir.path(), boot).unwrap();
    Guest::resume(Arc::clone(cluster), records, "kube-system", "a", times).unwrap()
}

impl Machine {
    fn new(cluster: &Arc<Cluster>) -> Self {
        Self::with_times(cluster, TIMES)
    }

    fn with_times(cluster: &Arc<Cluster>, times: Times) -> Self {
        let dir = disk();
        Self {
            guest: resume(&dir, cluster, times, "a"),
            cluster: Arc::clone(cluster),
            times,
            dir,
        }
    }

    /// The next daemon goes on, after a boot if its name is another one.
    fn restart(&mut self, boot: &str) {
        self.guest = resume(&self.dir, &self.cluster, self.times, boot);
    }

    fn add(&self, pod: &str, ipam: &Value) -> Result<String, String> {
        let grants = self.guest.add(&allocation(pod, pod, ipam), &NoBlocks);
        let grants = grants.map_err(|failure| failure.to_string())?;
        Ok(grants
            .into_iter()
            .map(|grant| grant.address)
            .collect::<Vec<_>>()
            .join(" "))
    }

    fn del(&self, container: &str) {
        self.guest.del(&attachment(container), None).unwrap();
    }

    /// Makes the pool of a definition, without addresses.
    fn make_pool(&self, ipam: &Value) {
        self.make(&used(ipam));
    }

    fn make(&self, one: &Use) {
        self.guest
            .create_pool(&one.namespace, &one.pool(), one.subnet)
            .unwrap();
        let pool = self.guest.pool(one).unwrap().unwrap();
        self.cluster.patch(&pool_path(one), &pool.open()).unwrap();
    }

    /// Makes the pool of the node's slice of a definition, without addresses.
    fn make_slice(&self, ipam: &Value) {
        let one = self.guest.with_slice(&used(ipam)).unwrap().unwrap();
        self.make(&one);
    }

    /// Does all that is due now.
    fn work(&self) {
        self.guest.work(not_in_blocks);
    }

    fn files(&self) -> usize {
        std::fs::read_dir(self.dir.path()).unwrap().count()
    }
}

/// No pool here is in blocks.
struct NoBlocks;

impl Blocks for NoBlocks {
    fn add(&self, _: &Allocation, _: &[(String, Range)]) -> Result<Vec<Grant>, Failure> {
        Err(Failure::Moving)
    }

    fn end(&self, _: &Attachment) {}

    fn answers(&self) -> u64 {
        0
    }
}

fn not_in_blocks(_: &Attachment) -> bool {
    false
}

fn attachment(container: &str) -> Attachment {
    Attachment {
        container: container.to_owned(),
        ifname: "net1".to_owned(),
    }
}

pub(in crate::service) fn allocation(container: &str, pod: &str, ipam: &Value) -> Allocation {
    Allocation {
        addresses: Vec::new(),
        claim: String::new(),
        attachment: attachment(container),
        pod: Pod {
            namespace: "shop".to_owned(),
            name: pod.to_owned(),
            uid: String::new(),
        },
        network: "lan".to_owned(),
        ipam: ipam.as_object().unwrap().clone(),
    }
}

pub(in crate::service) fn small() -> Value {
    json!({"type": "whereabouts", "range": "10.0.0.0/29"})
}

/// A range that has the addresses of [`small`], and a pool of its own.
fn wide() -> Value {
    json!({"type": "whereabouts", "range": "10.0.0.0/24"})
}

/// A node of the reference: pool, reservation, in its order. Returns the address, or `None` when an attempt has failed.
fn reference_add(
    cluster: &Arc<Cluster>,
    container: &str,
    pod: &str,
    ipam: &Value,
) -> Option<IpAddr> {
    let definition = Definition::parse(ipam.as_object().unwrap()).unwrap();
    let range = &definition.ranges[0];
    let name = definition.pool(range);
    let own = Owner {
        container: container.to_owned(),
        pod: format!("shop/{pod}"),
        ifname: "net1".to_owned(),
    };
    let at = path("kube-system", POOLS, &name);
    let Some(object) = cluster.get(&at).unwrap() else {
        let object = pool::object("kube-system", &name, range.subnet());
        let _ = cluster.create(&collection("kube-system", POOLS), &object);
        return None;
    };
    let pool = Pool::parse(&object, range.subnet()).unwrap();
    let reserved = |address| {
        let name = reservation::name(&definition.network_name, address);
        cluster
            .get(&path("kube-system", RESERVATIONS, &name))
            .unwrap()
    };
    let is_own = Cell::new(false);
    let is_foreign = |address| {
        let seen = reserved(address);
        is_own.set(seen.is_some());
        seen.is_some_and(|seen| seen["spec"]["podref"] != own.pod)
    };
    let choice = pool.choose(range, &own, is_foreign)?;
    cluster.patch(&at, &pool.take(choice.address, &own)).ok()?;
    if !is_own.get() {
        let name = reservation::name(&definition.network_name, choice.address);
        let mut object = reservation::object("kube-system", &name, &own);
        object["spec"]
            .as_object_mut()
            .unwrap()
            .remove("containerid");
        let reservations = collection("kube-system", RESERVATIONS);
        if cluster.create(&reservations, &object).is_err() {
            // Its DEL would remove the reservation whosever it is, and nothing on our side could prevent that.
            reference_del(cluster, container, ipam, false);
            return None;
        }
    }
    Some(choice.address)
}

fn reference_del(cluster: &Arc<Cluster>, container: &str, ipam: &Value, with_reservation: bool) {
    let definition = Definition::parse(ipam.as_object().unwrap()).unwrap();
    let subnet = definition.ranges[0].subnet();
    let at = path("kube-system", POOLS, &pool::name("", "", subnet));
    loop {
        let pool = Pool::parse(&cluster.get(&at).unwrap().unwrap(), subnet).unwrap();
        let own = pool.of(container, "net1");
        if own.is_empty() {
            return;
        }
        if cluster.patch(&at, &pool.free(&own)).is_ok() {
            let name = reservation::name("", own[0]);
            let at = path("kube-system", RESERVATIONS, &name);
            if with_reservation {
                cluster.objects.lock().unwrap().remove(&at);
            }
            return;
        }
    }
}

#[test]
fn address_is_in_the_pool_and_reserved_and_free_after_del() {
    let cluster = Arc::new(Cluster::default());
    let machine = Machine::new(&cluster);
    assert_eq!(machine.add("web", &small()).unwrap(), "10.0.0.1/29");
    let first = cluster.requests();
    let expected = [
        "get ippools?limit=1&fieldSelector=metadata.namespace%21%3Dkube-system",
        "get 10.0.0.0-29",
        "create ippools",
        "get 10.0.0.0-29",
        "get ippools?limit=1&labelSelector=ipam.multus-rs.cni.cncf.io%2Fpool%3Dadopted",
        "get ippools?limit=1&labelSelector=ipam.multus-rs.cni.cncf.io%2Fpool%2Cipam.multus-rs.cni.cncf.io%2Fpool+notin+%28new%2Cadopted%29",
        "patch 10.0.0.0-29",
        "get 10.0.0.0-29",
        "patch 10.0.0.0-29",
        "create overlappingrangeipreservations",
    ];
    assert_eq!(first, expected);
    assert_eq!(machine.add("db", &small()).unwrap(), "10.0.0.2/29");
    assert_eq!(cluster.requests().len(), 3);
    let (pools, reservations) = cluster.taken();
    assert_eq!(pools, ["1 shop/web web", "2 shop/db db"]);
    assert_eq!(reservations, ["10.0.0.1 shop/web", "10.0.0.2 shop/db"]);
    let expected = [(("lan".to_owned(), AddressState::Given), 2)];
    assert_eq!(machine.guest.addresses(), Addresses::from(expected));
    machine.guest.check(&attachment("web")).unwrap();
    for _ in 0..2 {
        machine.del("web");
        machine.del("db");
    }
    assert_eq!(cluster.requests(), [""; 0], "a DEL waits for nobody");
    assert!(machine.guest.check(&attachment("web")).is_err());
    machine.work();
    let freed = cluster.requests();
    let expected = [
        "get 10.0.0.0-29",
        "get 10.0.0.2",
        "delete 10.0.0.2",
        "patch 10.0.0.0-29",
    ];
    assert_eq!(freed[..4], expected);
    cluster.assert_free();
    assert_eq!(
        (machine.files(), machine.guest.work(not_in_blocks)),
        (0, None)
    );
}

#[test]
fn each_range_gives_an_address_with_its_gateway_and_all_are_freed() {
    let cluster = Arc::new(Cluster::default());
    let machine = Machine::new(&cluster);
    let both = json!({"type": "whereabouts", "ipRanges": [{"range": "10.0.0.0/29"}, {"range": "fd00:20::/64"}],
        "gateway": "fd00:20::1", "network_name": "blue"});
    let grants = machine
        .guest
        .add(&allocation("web", "web", &both), &NoBlocks)
        .unwrap();
    let grant = |at: usize| (grants[at].address.as_str(), grants[at].gateway.as_str());
    assert_eq!(grant(0), ("10.0.0.1/29", ""));
    assert_eq!(grant(1), ("fd00:20::2/64", "fd00:20::1"));
    let paths: Vec<_> = cluster.objects.lock().unwrap().keys().cloned().collect();
    let base = "/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system";
    let expected = [
        format!("{base}/ippools/blue-10.0.0.0-29"),
        format!("{base}/ippools/blue-fd00-20---64"),
        format!("{base}/overlappingrangeipreservations/blue-10.0.0.1"),
        format!("{base}/overlappingrangeipreservations/blue-fd00-20--2"),
    ];
    assert_eq!(paths, expected);
    machine.del("web");
    machine.work();
    cluster.assert_free();
}

#[test]
fn full_range_names_the_pool_and_leaves_nothing() {
    let cluster = Arc::new(Cluster::default());
    let machine = Machine::new(&cluster);
    let wide_too = json!({"type": "whereabouts", "ipRanges": [{"range": "10.1.0.0/24"}, {"range": "10.0.0.0/29"}]});
    machine.add("other", &wide()).unwrap();
    for pod in 0..5 {
        machine.add(&format!("pod-{pod}"), &small()).unwrap();
    }
    let full = machine.add("last", &wide_too).unwrap_err();
    let expected = "10.0.0.0/29 has no free address: 5 in use by IPPool 10.0.0.0-29, 1 reserved by pods of other ranges";
    assert_eq!(full, expected);
    machine.work();
    assert!(!cluster.taken().0.iter().any(|entry| entry.contains("last")));
    assert_eq!(machine.files(), 6);
}

#[test]
fn ranges_that_overlap_share_addresses_by_reservations() {
    let cluster = Arc::new(Cluster::default());
    let machine = Machine::new(&cluster);
    assert_eq!(machine.add("a", &small()).unwrap(), "10.0.0.1/29");
    assert_eq!(machine.add("b", &wide()).unwrap(), "10.0.0.2/24");
    assert_eq!(machine.add("c", &small()).unwrap(), "10.0.0.3/29");
    // The node reads the reservation of another pod before it takes that address again, and so writes no pool for it.
    machine.del("b");
    machine.work();
    cluster.requests();
    assert_eq!(machine.add("b", &wide()).unwrap(), "10.0.0.2/24");
    let expected = [
        "get 10.0.0.0-24",
        "get 10.0.0.1",
        "get 10.0.0.0-24",
        "get 10.0.0.2",
        "patch 10.0.0.0-24",
        "create overlappingrangeipreservations",
    ];
    assert_eq!(cluster.requests(), expected);
    machine.del("a");
    machine.work();
    assert_eq!(machine.add("a", &wide()).unwrap(), "10.0.0.1/24");
    let mut alone = wide();
    alone["enable_overlapping_ranges"] = json!(false);
    assert_eq!(machine.add("d", &alone).unwrap(), "10.0.0.3/24");
    for pod in ["a", "b", "c", "d"] {
        machine.del(pod);
    }
    machine.work();
    cluster.assert_free();
}

#[test]
fn every_lost_and_late_write_is_settled() {
    let fates = [Fate::Made, Fate::Lost, Fate::Late, Fate::Away];
    for (first, second) in fates
        .iter()
        .flat_map(|first| fates.map(|second| (*first, second)))
    {
        let cluster = Arc::new(Cluster::default());
        let machine = Machine::new(&cluster);
        machine.add("other", &small()).unwrap();
        *cluster.fates.lock().unwrap() = vec![second, first];
        let address = machine.add("web", &small());
        assert_eq!(address.unwrap(), "10.0.0.2/29", "{first:?} {second:?}");
        cluster.land();
        let taken = vec!["1 shop/other other".to_owned(), "2 shop/web web".to_owned()];
        assert_eq!(cluster.taken().0, taken, "{first:?} {second:?}");
        *cluster.fates.lock().unwrap() = vec![second, first];
        machine.del("web");
        machine.del("other");
        for _ in 0..6 {
            machine.work();
            cluster.land();
        }
        cluster.assert_free();
        assert_eq!(machine.files(), 0);
    }
}

#[test]
fn del_without_the_server_is_done_later_also_by_the_next_daemon() {
    let cluster = Arc::new(Cluster::default());
    let mut machine = Machine::new(&cluster);
    machine.add("web", &small()).unwrap();
    *cluster.is_away.lock().unwrap() = true;
    machine.del("web");
    machine.work();
    assert_eq!((machine.files(), cluster.taken().0.len()), (1, 1));
    machine.restart("a");
    assert!(machine.add("db", &small()).is_err());
    machine.del("db");
    machine.work();
    *cluster.is_away.lock().unwrap() = false;
    machine.work();
    cluster.assert_free();
    assert_eq!(machine.files(), 0);
}

#[test]
fn request_that_may_still_land_keeps_the_record_until_it_is_settled() {
    let cluster = Arc::new(Cluster::default());
    let settled = Duration::from_mins(2);
    let mut machine = Machine::with_times(&cluster, Times { settled, ..TIMES });
    machine.make_pool(&small());
    *cluster.fates.lock().unwrap() = vec![Fate::Cut];
    let error = machine.add("web", &small()).unwrap_err();
    assert_eq!(error, "cannot reach the API server: no answer");
    *cluster.is_away.lock().unwrap() = false;
    machine.work();
    let later = machine
        .guest
        .work(not_in_blocks)
        .expect("the write may land");
    assert!(later > Duration::from_mins(1), "{later:?}");
    cluster.land();
    assert_eq!(cluster.taken().0, ["1 shop/web web"]);
    machine.times = TIMES;
    machine.restart("a");
    machine.work();
    cluster.assert_free();
    assert_eq!(machine.files(), 0);
}

#[test]
fn reservation_that_lands_later_is_removed_by_what_is_on_disk() {
    let cluster = Arc::new(Cluster::default());
    let settled = Duration::from_mins(2);
    let mut machine = Machine::with_times(&cluster, Times { settled, ..TIMES });
    machine.make_pool(&small());
    *cluster.fates.lock().unwrap() = vec![Fate::Cut, Fate::Made];
    machine.add("web", &small()).unwrap_err();
    machine.restart("a");
    *cluster.is_away.lock().unwrap() = false;
    machine.work();
    cluster.assert_free();
    cluster.land();
    machine.times = TIMES;
    machine.restart("a");
    machine.work();
    cluster.assert_free();
}

#[test]
fn address_that_another_pool_gives_meanwhile_is_left_to_it() {
    let cluster = Arc::new(Cluster::default());
    let machine = Machine::new(&cluster);
    machine.make_pool(&small());
    *cluster.rival.lock().unwrap() = Some(|objects| {
        let path = path("kube-system", RESERVATIONS, "10.0.0.1");
        let of =
            json!({"kind": "", "metadata": {"name": "10.0.0.1"}, "spec": {"podref": "shop/other"}});
        objects.insert(path, of);
    });
    *cluster.fates.lock().unwrap() = vec![Fate::Beaten, Fate::Made];
    assert_eq!(machine.add("web", &small()).unwrap(), "10.0.0.2/29");
    let (pools, reservations) = cluster.taken();
    assert_eq!(pools, ["2 shop/web web"]);
    assert_eq!(reservations, ["10.0.0.1 shop/other", "10.0.0.2 shop/web"]);
}

#[test]
fn reservation_is_made_again_when_the_next_container_came_between() {
    let cluster = Arc::new(Cluster::default());
    let machine = Machine::new(&cluster);
    machine.add("web", &small()).unwrap();
    machine.del("web");
    // The reference takes the pod's address over after our reservation is removed, and before the pool's entry is.
    *cluster.rival.lock().unwrap() = Some(|objects| {
        let pool = objects
            .get_mut(&path("kube-system", POOLS, "10.0.0.0-29"))
            .unwrap();
        pool["spec"]["allocations"]["1"]["id"] = "web-again".into();
        pool["metadata"]["resourceVersion"] = "again".into();
    });
    *cluster.fates.lock().unwrap() = vec![Fate::Beaten, Fate::Made];
    machine.work();
    let kept = (
        vec!["1 shop/web web-again".to_owned()],
        vec!["10.0.0.1 shop/web".to_owned()],
    );
    assert_eq!(cluster.taken(), kept);
    assert_eq!(machine.files(), 0);
}

#[test]
fn node_gives_addresses_of_its_slice_alone_and_frees_those_of_its_former_program() {
    let cluster = Arc::new(Cluster::default());
    let machine = Machine::new(&cluster);
    let sliced = json!({"type": "whereabouts", "range": "10.0.0.0/16", "node_slice_size": "/29"});
    let error = machine.add("web", &sliced).unwrap_err();
    assert!(
        error.starts_with("NodeSlicePool lan has no slice for node a: "),
        "{error}"
    );
    assert_eq!(machine.files(), 0);
    let pool_of_slices = json!({"kind": "NodeSlicePool", "metadata": {"name": "lan"}, "status": {"allocations": [
        {"nodeName": "b", "sliceRange": "10.0.0.0/29"}, {"nodeName": "a", "sliceRange": "10.0.0.8/29"}]}});
    let at = path("kube-system", SLICES, "lan");
    cluster.put(&mut cluster.objects.lock().unwrap(), &at, pool_of_slices);
    machine.make_slice(&sliced);
    assert_eq!(machine.add("web", &sliced).unwrap(), "10.0.0.9/16");
    let entries = |cluster: &Cluster| {
        let pool = cluster.all("IPPool").remove("a-10.0.0.8-29").unwrap();
        assert_eq!(pool["spec"]["range"], "10.0.0.8/29");
        pool["spec"]["allocations"].as_object().unwrap().len()
    };
    assert_eq!(entries(&cluster), 1);
    let web = allocation("web", "web", &sliced);
    machine.guest.del(&web.attachment, Some(&web)).unwrap();
    machine.work();
    assert_eq!(entries(&cluster), 0);
    // Of what the former program has given there is no record.
    let entry = json!({"id": "old", "podref": "shop/old", "ifname": "net1"});
    let place = path("kube-system", POOLS, "a-10.0.0.8-29");
    let patch = json!([{"op": "add", "path": "/spec/allocations/2", "value": entry}]);
    cluster.patch(&place, &patch).unwrap();
    let old = allocation("old", "old", &sliced);
    *cluster.is_away.lock().unwrap() = true;
    machine.guest.del(&old.attachment, Some(&old)).unwrap();
    machine.work();
    assert_eq!(entries(&cluster), 1);
    *cluster.is_away.lock().unwrap() = false;
    thread::sleep(TIMES.again);
    machine.work();
    assert_eq!((entries(&cluster), machine.files()), (0, 0));
    // Blocks have no slices.
    let stamp = json!([{"op": "add", "path": "/metadata/labels", "value": {STAMP: "adopting"}}]);
    cluster.patch(&place, &stamp).unwrap();
    let error = machine.add("web", &sliced).unwrap_err();
    assert!(error.contains("take node_slice_size out"), "{error}");
}

#[test]
fn pod_that_waits_for_a_return_gets_its_address_once_the_pool_gives_addresses() {
    let cluster = Arc::new(Cluster::default());
    let minute = Duration::from_mins(1);
    let times = Times {
        moving: minute,
        patience: minute,
        ..TIMES
    };
    let machine = Machine::with_times(&cluster, times);
    machine.make_pool(&small());
    let pool = pool_path(&used(&small()));
    let stamp = json!([{"op": "add", "path": "/metadata/labels", "value": {STAMP: RETURNING}}]);
    cluster.patch(&pool, &stamp).unwrap();
    cluster.requests();
    thread::scope(|scope| {
        let adding = scope.spawn(|| machine.add("web", &small()));
        // The first read finds the stamp, and further ones look whether it is gone.
        let mut reads = 0;
        while reads < 3 {
            let requests = cluster.requests();
            reads += requests
                .iter()
                .filter(|one| one.starts_with("get 10.0.0.0"))
                .count();
            thread::yield_now();
        }
        let open = json!([{"op": "remove", "path": "/metadata/labels"}]);
        cluster.patch(&pool, &open).unwrap();
        assert_eq!(adding.join().unwrap().unwrap(), "10.0.0.1/29");
    });
}

fn used(ipam: &Value) -> Use {
    let mut record = Record::new(attachment("x"), Pod::default(), "lan", Progress::Asked);
    let definition = Definition::parse(ipam.as_object().unwrap()).unwrap();
    record.add_pools("kube-system", &definition);
    record.uses.remove(0)
}

#[test]
fn killed_request_is_ended_by_the_next_daemon_and_a_boot_ends_all() {
    let cluster = Arc::new(Cluster::default());
    let mut machine = Machine::new(&cluster);
    machine.add("web", &small()).unwrap();
    machine.add("db", &small()).unwrap();
    let of_db = allocation("db", "db", &small());
    let definition = Definition::parse(&of_db.ipam).unwrap();
    machine.guest.begin(&of_db, &definition).unwrap();
    machine.restart("a");
    machine.work();
    assert_eq!(cluster.taken().0, ["1 shop/web web"]);
    machine.guest.check(&attachment("web")).unwrap();
    machine.restart("b");
    machine.work();
    cluster.assert_free();
    assert_eq!(machine.files(), 0);
}

#[test]
fn the_same_request_again_has_the_same_address() {
    let cluster = Arc::new(Cluster::default());
    let mut machine = Machine::new(&cluster);
    machine.add("other", &small()).unwrap();
    let address = machine.add("web", &small()).unwrap();
    machine.del("other");
    assert_eq!(machine.add("web", &small()).unwrap(), address);
    // The plugin repeats a request that a killed daemon did not answer.
    let again = allocation("web", "web", &small());
    let definition = Definition::parse(&again.ipam).unwrap();
    machine.guest.begin(&again, &definition).unwrap();
    machine.restart("a");
    assert_eq!(machine.add("web", &small()).unwrap(), address);
    machine.work();
    assert_eq!(
        cluster.taken(),
        (
            vec!["2 shop/web web".to_owned()],
            vec!["10.0.0.2 shop/web".to_owned()]
        )
    );
}

#[test]
fn del_ends_a_request_that_is_under_way() {
    let cluster = Arc::new(Cluster::default());
    let machine = Machine::new(&cluster);
    let asked = allocation("web", "web", &small());
    let definition = Definition::parse(&asked.ipam).unwrap();
    machine.guest.begin(&asked, &definition).unwrap();
    let turn = machine
        .guest
        .turn(&asked.attachment, Instant::now())
        .unwrap();
    machine.del("web");
    let range = &definition.ranges[0];
    let granted = machine.guest.grant(
        &asked.attachment,
        &definition,
        range,
        Instant::now() + TIMES.patience,
    );
    for granted in [granted.map(|grant| vec![grant]), Ok(Vec::new())] {
        let granted = machine.guest.finish(&asked.attachment, granted);
        assert!(matches!(granted, Err(Failure::Cancelled)), "{granted:?}");
    }
    assert_eq!(
        machine.guest.work(not_in_blocks),
        None,
        "the request is still under way"
    );
    drop(turn);
    machine.work();
    assert_eq!(machine.files(), 0);
}

#[test]
fn address_of_a_request_that_may_still_land_stays_on_the_record() {
    let cluster = Arc::new(Cluster::default());
    let machine = Machine::new(&cluster);
    let asked = allocation("web", "web", &small());
    let definition = Definition::parse(&asked.ipam).unwrap();
    machine.guest.begin(&asked, &definition).unwrap();
    let mut exchange = Exchange {
        attachment: &asked.attachment,
        owner: Record::new(
            asked.attachment.clone(),
            asked.pod.clone(),
            "",
            Progress::Asked,
        )
        .owner(),
        one: used(&small()),
        deadline: Instant::now(),
        is_open: Cell::new(false),
        refusals: Cell::new(0),
    };
    for (is_open, address, expected) in [
        (false, "10.0.0.1", &["10.0.0.1"][..]),
        (false, "10.0.0.2", &["10.0.0.2"]),
        (true, "10.0.0.3", &["10.0.0.2", "10.0.0.3"]),
        (true, "10.0.0.2", &["10.0.0.3", "10.0.0.2"]),
    ] {
        exchange.is_open.set(is_open);
        machine
            .guest
            .note_address(&mut exchange, address.parse().unwrap())
            .unwrap();
        let records = Records::open_in_boot(machine.dir.path(), "a").unwrap();
        let record = records.all().unwrap().remove(0);
        let noted = record.uses[0].addresses.iter().map(IpAddr::to_string);
        assert_eq!(noted.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn gc_frees_what_is_not_valid() {
    let cluster = Arc::new(Cluster::default());
    let machine = Machine::new(&cluster);
    machine.add("web", &small()).unwrap();
    machine.add("db", &small()).unwrap();
    machine.guest.collect("other", &[]).unwrap();
    machine.guest.collect("lan", &[attachment("db")]).unwrap();
    machine.work();
    assert_eq!(cluster.taken().0, ["2 shop/db db"]);
}

#[test]
fn addresses_of_the_reference_are_freed_by_a_del_with_its_definition() {
    let cluster = Arc::new(Cluster::default());
    let machine = Machine::new(&cluster);
    let given = (0..2).filter_map(|_| reference_add(&cluster, "web", "web", &small()));
    assert_eq!(given.count(), 1);
    let from = allocation("web", "web", &small());
    machine.guest.del(&from.attachment, Some(&from)).unwrap();
    assert_eq!(machine.files(), 1);
    machine.work();
    cluster.assert_free();
    // A definition that nobody can read has given nothing.
    let unreadable = allocation("web", "web", &json!({"type": "whereabouts", "range": "x"}));
    machine
        .guest
        .del(&from.attachment, Some(&unreadable))
        .unwrap();
    assert_eq!(machine.files(), 0);
}

#[test]
fn next_container_of_a_pod_keeps_the_address_when_the_former_one_is_freed() {
    for is_reference in [false, true] {
        let cluster = Arc::new(Cluster::default());
        let (former, next) = (Machine::new(&cluster), Machine::new(&cluster));
        former.add("web", &small()).unwrap();
        former.del("web");
        let address = if is_reference {
            reference_add(&cluster, "web-again", "web", &small())
                .map(|address| format!("{address}/29"))
        } else {
            let grants = next
                .guest
                .add(&allocation("web-again", "web", &small()), &NoBlocks)
                .unwrap();
            Some(grants[0].address.clone())
        };
        assert_eq!(address.as_deref(), Some("10.0.0.1/29"));
        former.work();
        let kept = (
            vec!["1 shop/web web-again".to_owned()],
            vec!["10.0.0.1 shop/web".to_owned()],
        );
        assert_eq!(cluster.taken(), kept, "{is_reference}");
        next.del("web-again");
        next.work();
        assert_eq!(cluster.taken().0.is_empty(), !is_reference);
    }
}

#[test]
fn second_interface_of_a_container_has_an_address_of_its_own() {
    let cluster = Arc::new(Cluster::default());
    let machine = Machine::new(&cluster);
    let mut second = allocation("web", "web", &small());
    second.attachment.ifname = "net2".to_owned();
    machine.add("web", &small()).unwrap();
    assert_eq!(
        machine.guest.add(&second, &NoBlocks).unwrap()[0].address,
        "10.0.0.2/29"
    );
    machine.del("web");
    machine.work();
    assert_eq!(cluster.taken().0, ["2 shop/web web"]);
}

#[test]
fn cluster_that_is_not_ready_for_pools_says_what_to_do() {
    let cluster = Arc::new(Cluster {
        has_no_kind: true,
        ..Cluster::default()
    });
    let error = Machine::new(&cluster).add("web", &small()).unwrap_err();
    assert!(
        error.contains("install the resource definitions of whereabouts"),
        "{error}"
    );
    let cluster = Arc::new(Cluster::default());
    let object = pool::object("whereabouts", "10.9.0.0-24", "10.9.0.0/24".parse().unwrap());
    cluster
        .create(&collection("whereabouts", POOLS), &object)
        .unwrap();
    let error = Machine::new(&cluster).add("web", &small()).unwrap_err();
    let expected = "IPPools are in namespace whereabouts, but this node's are in kube-system: set ipam.whereaboutsNamespace";
    assert!(error.starts_with(expected), "{error}");
    let nobody = Allocation {
        pod: Pod::default(),
        ..allocation("web", "web", &small())
    };
    let failure = Machine::new(&cluster)
        .guest
        .add(&nobody, &NoBlocks)
        .unwrap_err();
    assert!(matches!(failure, Failure::NoPod));
}

#[test]
fn edited_pool_gives_nothing_and_its_neighbours_go_on() {
    let cluster = Arc::new(Cluster::default());
    let machine = Machine::new(&cluster);
    machine.add("a", &small()).unwrap();
    machine
        .add("b", &json!({"type": "whereabouts", "range": "10.1.0.0/24"}))
        .unwrap();
    let edit = |range: &str| {
        let mut objects = cluster.objects.lock().unwrap();
        let pool = objects
            .get_mut(&path("kube-system", POOLS, "10.0.0.0-29"))
            .unwrap();
        pool["spec"]["range"] = range.into();
    };
    edit("10.0.0.0/28");
    assert!(
        machine
            .add("c", &small())
            .unwrap_err()
            .contains("restore it")
    );
    for pod in ["a", "b", "c"] {
        machine.del(pod);
    }
    machine.work();
    assert_eq!(cluster.taken().0, ["1 shop/a a"]);
    edit("10.0.0.0/29");
    machine.work();
    cluster.assert_free();
}

/// Two guests and two nodes of the reference give and free addresses of two ranges that overlap, while answers to the guests are lost and
/// their writes late. Whoever has got an address must be the only one until it is freed.
#[test]
fn guests_and_the_reference_never_give_an_address_twice() {
    const ROUNDS: usize = 150;
    let server = Cluster::default();
    let in_use: Mutex<BTreeSet<IpAddr>> = Mutex::default();
    let given = AtomicU64::default();
    let hold = |address: IpAddr| {
        assert!(in_use.lock().unwrap().insert(address), "{address} twice");
        thread::yield_now();
        assert!(in_use.lock().unwrap().remove(&address));
        given.fetch_add(1, Ordering::Relaxed);
    };
    let ranges = [small(), wide()];
    let lines = [server.connect(), server.connect()];
    let machines: Vec<_> = lines.iter().map(Machine::new).collect();
    thread::scope(|scope| {
        for (number, machine) in machines.iter().enumerate() {
            for (worker, ipam) in ranges.iter().enumerate() {
                let hold = &hold;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let pod = format!("guest-{number}-{worker}-{round}");
                        let fates = [Fate::Lost, Fate::Made, Fate::Late, Fate::Made, Fate::Made];
                        let cluster = &machine.cluster;
                        cluster
                            .fates
                            .lock()
                            .unwrap()
                            .push(fates[round % fates.len()]);
                        if let Ok(text) = machine.add(&pod, ipam) {
                            hold(text.split('/').next().unwrap().parse().unwrap());
                        }
                        cluster.land();
                        machine.del(&pod);
                        machine.work();
                    }
                });
            }
        }
        for (number, ipam) in ranges.iter().enumerate() {
            let (hold, line) = (&hold, server.connect());
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let pod = format!("reference-{number}-{round}");
                    if let Some(address) = reference_add(&line, &pod, &pod, ipam) {
                        hold(address);
                    }
                    reference_del(&line, &pod, ipam, true);
                }
            });
        }
    });
    for mut machine in machines {
        machine.cluster.fates.lock().unwrap().clear();
        machine.restart("b");
        machine.work();
        assert_eq!(machine.files(), 0);
    }
    server.assert_free();
    assert!(given.into_inner() > 4 * ROUNDS as u64);
}

#[test]
fn containers_wait_for_different_times_after_a_refused_write() {
    let look_again = Duration::from_millis(200);
    let of = |refusals| {
        let containers = (0..50).map(|number| format!("c{number}"));
        let pauses = containers.map(|container| pause(look_again, &container, refusals));
        pauses.collect::<BTreeSet<_>>()
    };
    for (refusals, most) in [(1, 100), (2, 200), (4, 400), (6, 200), (100, 100)] {
        let (pauses, most) = (of(refusals), Duration::from_millis(most));
        assert!(pauses.len() > 45, "{pauses:?}");
        assert!(*pauses.first().unwrap() < most / 8, "{pauses:?}");
        assert!(*pauses.last().unwrap() > most * 7 / 8, "{pauses:?}");
        assert!(*pauses.last().unwrap() <= most, "{pauses:?}");
    }
}
