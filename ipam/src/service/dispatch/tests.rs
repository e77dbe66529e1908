//! Requests of plugins reach the service that has their addresses.

mod moves;
mod orders;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use serde_json::json;

use super::super::ApiError;
use super::super::guest::tests::{Cluster, allocation, small};
use super::super::tests::turns::{self, Fate, Next};
use super::super::tests::{Server, TIMES, lost};
use super::*;
use crate::guest::mover::{
    self, MoveError, NAMESPACES, Namespace, Order, Report, Seen, Stored, Write,
};
use crate::guest::moving::{self, PodPlace, Reserved, StoredPool};
use crate::guest::pool::{ADOPTED, ADOPTING, NEW, RETURNING};
use crate::guest::record::Records;
use crate::guest::{Definition, POOLS, collection};
use crate::object::{self, AddressBlock, Mode};
use crate::request::want;
use crate::store::{Store, tests::disk};
use crate::wire::Allocation;

type Both = Services<Arc<Server>, Arc<Cluster>>;

fn services(dir: &tempfile::TempDir, cluster: Option<&Arc<Cluster>>) -> Both {
    services_of(dir, &Server::with_nodes(&["n"]), cluster)
}

fn services_of(
    dir: &tempfile::TempDir,
    server: &Arc<Server>,
    cluster: Option<&Arc<Cluster>>,
) -> Both {
    let store = Store::open_in_boot(dir.path(), "a").unwrap();
    let server = Arc::clone(server);
    let guest = cluster.map(|cluster| {
        let records = Records::open_in_boot(dir.path().join("guest"), "a").unwrap();
        Guest::resume(Arc::clone(cluster), records, "kube-system", "a", TIMES).unwrap()
    });
    Services::new(Service::resume(server, store, "n", TIMES).unwrap(), guest)
}

fn of_blocks() -> Allocation {
    let mut of = allocation(
        "b",
        "b",
        &json!({"type": "multus-ipam", "subnet": "10.9.0.0/24"}),
    );
    of.pod.uid = "u".to_owned();
    of
}

fn addresses(both: &Both) -> usize {
    both.counts().addresses.values().sum()
}

fn is_done(answer: &Answer) -> bool {
    matches!(answer, Answer::Done(_))
}

#[test]
fn each_request_reaches_the_service_of_its_addresses() {
    let dir = disk();
    let cluster = Arc::new(Cluster::default());
    let both = services(&dir, Some(&cluster));
    let of_pools = allocation("p", "p", &small());
    for of in [of_pools.clone(), of_blocks()] {
        assert!(is_done(&both.serve(&Ask::Allocate(of.clone()))), "{of:?}");
        assert!(is_done(&both.serve(&Ask::Check(of.attachment))));
    }
    assert_eq!(addresses(&both), 2);
    let attachments = [of_pools.attachment.clone(), of_blocks().attachment];
    let valid = Ask::Collect {
        network: "lan".to_owned(),
        valid: vec![of_pools.attachment.clone()],
    };
    assert!(is_done(&both.serve(&valid)));
    assert_eq!(addresses(&both), 1);
    assert!(is_done(&both.serve(&Ask::ReleaseFrom(of_pools))));
    for attachment in attachments {
        assert!(is_done(&both.serve(&Ask::Release(attachment.clone()))));
        assert!(!is_done(&both.serve(&Ask::Check(attachment))));
    }
    both.work();
    assert_eq!(addresses(&both), 0);
    cluster.assert_free();
}

#[test]
fn definitions_of_whereabouts_name_the_value_that_they_need() {
    let dir = disk();
    let blocks = services(&dir, None);
    assert!(is_done(&blocks.serve(&Ask::Allocate(of_blocks()))));
    for ask in [Ask::Allocate, Ask::ReleaseFrom] {
        let answer = blocks.serve(&ask(allocation("p", "p", &small())));
        let Answer::Failed { reason, .. } = answer else {
            panic!("{answer:?}")
        };
        assert!(
            reason.contains("set ipam.whereabouts in Multus' chart"),
            "{reason}"
        );
    }
}

/// The pools and the blocks of one API server.
struct World {
    server: Arc<Server>,
    cluster: Arc<Cluster>,
    /// The pools' namespace.
    namespaces: Arc<Cluster>,
    /// The pods of `shop`.
    pods: Mutex<BTreeMap<String, PodPlace>>,
    /// What the definitions of pods say of reservations, by their pools.
    wanted: Mutex<BTreeMap<String, BTreeSet<bool>>>,
    /// The pools that each definition names.
    joint: Mutex<BTreeSet<BTreeSet<String>>>,
    /// How often the command has listed the pools.
    lists: AtomicUsize,
}

impl World {
    fn new(nodes: &[&str]) -> Self {
        let (server, cluster) = (Server::with_nodes(nodes), Arc::new(Cluster::default()));
        *cluster.blocks.lock().unwrap() = Some(Arc::clone(&server));
        let namespaces = Arc::new(Cluster::default());
        let namespace = json!({"metadata": {"name": "kube-system", "labels": {}}});
        namespaces.create(NAMESPACES, &namespace).unwrap();
        Self {
            server,
            cluster,
            namespaces,
            pods: Mutex::default(),
            wanted: Mutex::default(),
            joint: Mutex::default(),
            lists: AtomicUsize::new(0),
        }
    }

    fn lists_of_pools(&self) -> usize {
        self.lists.load(Ordering::SeqCst)
    }

    /// Asks a node for an address of a new pod.
    fn add(&self, node: &str, both: &Both, pod: &str, ipam: &Value) -> Result<String, String> {
        let mut of = allocation(pod, pod, ipam);
        of.pod.uid = format!("uid-{pod}");
        let place = PodPlace {
            uid: of.pod.uid.clone(),
            node: node.to_owned(),
        };
        let name = format!("shop/{pod}");
        self.pods.lock().unwrap().insert(name, place);
        if let Ok(definition) = Definition::parse(&of.ipam) {
            let said = |pool| (pool, [definition.is_reserved].into());
            self.wanted
                .lock()
                .unwrap()
                .extend(definition.pools().map(said));
            let joint: BTreeSet<_> = definition.pools().collect();
            self.joint.lock().unwrap().insert(joint);
        }
        match both.serve(&Ask::Allocate(of)) {
            Answer::Done(grants) => Ok(grants[0].address.clone()),
            Answer::Failed { reason, .. } => Err(reason),
        }
    }

    fn all_pools(&self) -> Vec<StoredPool> {
        let pools = self.cluster.all("IPPool").into_iter();
        pools
            .map(|(_, pool)| StoredPool::parse(&pool).unwrap())
            .collect()
    }

    /// Returns the words of the pools' stamps.
    fn words(&self) -> Vec<String> {
        let pools = self.all_pools().into_iter();
        pools.map(|pool| pool.word).collect()
    }

    fn all_blocks(&self) -> Vec<AddressBlock> {
        let objects = self.server.objects.lock().unwrap();
        objects
            .values()
            .map(|one| AddressBlock::parse(one).unwrap())
            .collect()
    }

    /// Returns the owners in blocks.
    fn owners(&self) -> Vec<String> {
        let blocks = self.all_blocks().into_iter();
        let owners = blocks.flat_map(|block| match block.mode {
            Mode::Shared(slots) | Mode::Closed(slots) => slots,
            Mode::Node(_) => Vec::new(),
        });
        let owners = owners.map(|slot| slot.owner);
        owners.filter(|owner| !owner.is_empty()).collect()
    }

    fn write(&self, write: &Write<'_>) -> Result<Value, ApiError> {
        let (server, cluster) = (&self.server, &self.cluster);
        match *write {
            Write::Create(object::PATH, object) => server.create(object),
            Write::Patch(object::PATH, name, steps) => server.patch(name, steps),
            Write::Delete(object::PATH, name, uid) => {
                server.remove(name, uid).map(|()| Value::Null)
            }
            Write::Create(path, object) => cluster.create(path, object),
            Write::Delete(path, name, uid) => {
                let options = json!({"preconditions": {"uid": uid}});
                let deleted = cluster.delete(&format!("{path}/{name}"), &options);
                deleted.map(|()| Value::Null)
            }
            Write::Patch(NAMESPACES, name, steps) => self
                .namespaces
                .patch(&format!("{NAMESPACES}/{name}"), steps),
            Write::Patch(path, name, steps) => cluster.patch(&format!("{path}/{name}"), steps),
        }
    }
}

/// Waits until the command may read.
fn read() -> Result<(), String> {
    match turns::take(Next::Read) {
        None | Some(Fate::Made) => Ok(()),
        Some(_) => Err(lost().to_string()),
    }
}

impl mover::Cluster for World {
    async fn seen(&self, pools: Vec<StoredPool>) -> Result<Seen, String> {
        let blocks = self.blocks(None).await?;
        let Namespace { mark, .. } = self.namespace(&pools[0].namespace).await?;
        Ok(Seen {
            wanted: self.wanted.lock().unwrap().clone(),
            joint: self.joint.lock().unwrap().clone(),
            stored: Stored { pools, blocks },
            mark,
            reservations: BTreeMap::new(),
            pods: BTreeMap::new(),
            against_adoption: Vec::new(),
            against_return: Vec::new(),
        })
    }

    async fn home(&self) -> Result<String, String> {
        let pools = self.pools().await?;
        Ok(pools[0].namespace.clone())
    }

    async fn namespace(&self, name: &str) -> Result<Namespace, String> {
        let object = self.namespaces.get(&format!("{NAMESPACES}/{name}"));
        let object = object.map_err(|error| error.to_string())?;
        Ok(Namespace::parse(&object.unwrap()))
    }

    async fn pods(
        &self,
        names: Option<BTreeSet<&str>>,
    ) -> Result<BTreeMap<String, PodPlace>, String> {
        read()?;
        let mut pods = self.pods.lock().unwrap().clone();
        pods.retain(|name, _| {
            names
                .as_ref()
                .is_none_or(|names| names.contains(name.as_str()))
        });
        Ok(pods)
    }

    async fn pools(&self) -> Result<Vec<StoredPool>, String> {
        read()?;
        self.lists.fetch_add(1, Ordering::SeqCst);
        let pools = self.all_pools();
        if pools.is_empty() {
            return Err("there are no pools".to_owned());
        }
        Ok(pools)
    }

    async fn new_pools(&self) -> Result<Vec<StoredPool>, String> {
        read()?;
        let mut pools = self.all_pools();
        pools.retain(|pool| pool.word == NEW);
        Ok(pools)
    }

    async fn pool(&self, _: &str, name: &str) -> Result<Option<StoredPool>, String> {
        read()?;
        Ok(self.all_pools().into_iter().find(|pool| pool.name == name))
    }

    async fn blocks(&self, names: Option<&BTreeSet<String>>) -> Result<Vec<AddressBlock>, String> {
        read()?;
        let mut blocks = self.all_blocks();
        blocks.retain(|block| {
            let name = object::name(&block.space, block.block);
            names.is_none_or(|names| names.contains(&name))
        });
        Ok(blocks)
    }

    async fn reservations(&self) -> Result<BTreeMap<String, Reserved>, String> {
        read()?;
        let all = self.cluster.all("OverlappingRangeIPReservation");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let reserved = |one: &Value| Reserved {
            pod: text(&one["spec"]["podref"]),
            uid: text(&one["metadata"]["uid"]),
        };
        Ok(all
            .iter()
            .map(|(name, one)| (name.clone(), reserved(one)))
            .collect())
    }

    async fn write_all(&self, writes: Vec<Write<'_>>) -> Result<Vec<Option<Value>>, String> {
        let written = writes.iter().map(|write| match self.write(write) {
            Ok(object) => Ok(Some(object)),
            Err(ApiError::Refused(_)) => Ok(None),
            Err(error) => Err(error.to_string()),
        });
        written.collect()
    }

    async fn look_again(&self) {
        turns::take(Next::Pause);
    }
}

/// Returns the value of a future that waits for nothing.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

const MEANT: Order = Order {
    is_meant: true,
    without_leaked: false,
};

/// A world with one node.
struct Moved {
    world: World,
    both: Both,
    _dir: tempfile::TempDir,
}

impl Moved {
    fn new() -> Self {
        let dir = disk();
        let world = World::new(&["n"]);
        let both = services_of(&dir, &world.server, Some(&world.cluster));
        Self {
            world,
            both,
            _dir: dir,
        }
    }

    /// The adoption of the address of pod `a` was interrupted, and its last stamp is made late.
    fn interrupted() -> Self {
        let moved = Self::new();
        moved.add("a", &range()).unwrap();
        moved.world.cluster.set_fate(1, 1);
        ready(mover::adopt(&moved.world, MEANT)).unwrap_err();
        moved
    }

    fn add(&self, pod: &str, ipam: &Value) -> Result<String, String> {
        self.world.add("n", &self.both, pod, ipam)
    }

    fn del(&self, pod: &str, ipam: &Value) {
        let from = Ask::ReleaseFrom(allocation(pod, pod, ipam));
        assert!(is_done(&self.both.serve(&from)));
        self.work();
    }

    fn work(&self) {
        for _ in 0..10 {
            self.both.work();
        }
    }

    /// Stamps all pools, as the command does first.
    fn stamp(&self, word: &str) {
        for pool in self.world.all_pools() {
            let place = format!("{}/{}", collection(&pool.namespace, POOLS), pool.name);
            self.world.cluster.patch(&place, &pool.stamp(word)).unwrap();
        }
    }

    fn adopt(&self) {
        let report = ready(mover::adopt(&self.world, MEANT)).unwrap();
        assert!(report.is_done, "{report:?}");
    }

    fn give_back(&self) {
        for block in self.world.all_blocks() {
            if matches!(block.mode, Mode::Node(_)) {
                let name = object::name(&block.space, block.block);
                let wanted = want(&block, "/return");
                let wanted = self.world.server.patch(&name, &wanted).unwrap();
                self.both.changed(&wanted);
            }
        }
        self.work();
        let report = ready(mover::give_back(&self.world, MEANT)).unwrap();
        assert!(report.is_done, "{report:?}");
    }
}

fn range() -> Value {
    json!({"type": "whereabouts", "range": "10.40.0.0/24"})
}

#[test]
fn addresses_of_pools_stay_in_blocks_and_come_back() {
    let moved = Moved::new();
    assert_eq!(moved.add("a", &range()).unwrap(), "10.40.0.1/24");
    assert_eq!(moved.add("b", &range()).unwrap(), "10.40.0.2/24");
    moved.stamp(ADOPTING);
    let waits = moved.add("c", &range()).unwrap_err();
    assert!(waits.contains("are being moved"), "{waits}");
    moved.adopt();
    assert_eq!(moved.world.owners(), ["pool/a/net1", "pool/b/net1"]);
    let third = moved.add("d", &range()).unwrap();
    assert!(!["10.40.0.1/24", "10.40.0.2/24"].contains(&third.as_str()));
    assert_eq!(addresses(&moved.both), 3);
    // A range without a pool is in blocks as well: an overlapping one gives none of these addresses.
    let half = json!({"type": "whereabouts", "range": "10.40.0.0/30"});
    let full = moved.add("e", &half).unwrap_err();
    assert!(full.contains("has no free address"), "{full}");
    moved.del("a", &range());
    assert_eq!(moved.world.owners().len(), 2);
    moved.give_back();
    let (pools, reservations) = moved.world.cluster.taken();
    assert_eq!((pools.len(), reservations.len()), (2, 2), "{pools:?}");
    assert_eq!(moved.add("f", &range()).unwrap(), "10.40.0.1/24");
    for pod in ["b", "d", "f"] {
        moved.del(pod, &range());
    }
    moved.world.cluster.assert_free();
    assert_eq!(addresses(&moved.both), 0);
    assert_eq!(moved.both.take_conflicts(), 0);
}

#[test]
fn stamp_that_lands_while_an_adoption_is_given_up_stamps_nothing() {
    let moved = Moved::interrupted();
    let turns = turns::Turns::new(1);
    thread::scope(|scope| {
        let _end = turns.until_dropped();
        let world = &moved.world;
        turns.start(scope, 0, || {
            let report = ready(mover::give_back(world, MEANT)).unwrap();
            assert_eq!(report.done, "not adopted");
        });
        while turns.next() != [Next::Nothing] {
            if world.owners().is_empty() {
                world.cluster.land();
            }
            turns.go(0, Fate::Made);
        }
        assert!(world.all_pools().iter().all(StoredPool::is_open));
    });
}

#[test]
fn slots_are_not_freed_late_when_an_adoption_that_was_given_up_goes_on() {
    let moved = Moved::interrupted();
    // The write that frees the slots.
    moved.world.server.set_fate(1, 0);
    ready(mover::give_back(&moved.world, MEANT)).unwrap_err();
    moved.adopt();
    moved.world.land();
    assert_eq!(moved.world.owners(), ["pool/a/net1"]);
}

#[test]
fn two_runs_at_the_same_time_leave_no_pool_open_beside_one_in_blocks() {
    type Command = fn(&World) -> Result<Report, MoveError>;
    const ADOPT: Command = |world| ready(mover::adopt(world, MEANT));
    const RETURN: Command = |world| ready(mover::give_back(world, MEANT));
    for (is_adopted, first, next) in [
        (false, ADOPT, RETURN),
        (false, ADOPT, ADOPT),
        (true, RETURN, ADOPT),
    ] {
        let mut has_ended = false;
        for steps in 0.. {
            let moved = Moved::new();
            let world = &moved.world;
            moved.add("a", &range()).unwrap();
            // A pool without an address overlaps with the other one.
            let half = json!({"type": "whereabouts", "range": "10.40.0.0/25"});
            moved.add("b", &half).unwrap();
            moved.del("b", &half);
            if is_adopted {
                moved.adopt();
            }
            let turns = turns::Turns::new(1);
            thread::scope(|scope| {
                let _end = turns.until_dropped();
                turns.start(scope, 0, || drop(first(world)));
                turns.next();
                (0..steps).for_each(|_| turns.go(0, Fate::Made));
                has_ended = turns.next() == [Next::Nothing];
                let until_done = || {
                    let done = (0..9).find(|_| match next(world) {
                        // A run that has begun to move addresses has to end first.
                        Err(MoveError::Adopting) => ADOPT(world).is_err(),
                        Err(MoveError::Returning) => RETURN(world).is_err(),
                        done => done.is_ok_and(|report| report.is_done),
                    });
                    assert!(done.is_some(), "after {steps} steps");
                };
                until_done();
                while turns.next() != [Next::Nothing] {
                    turns.go(0, Fate::Made);
                }
                let words = || BTreeSet::from_iter(world.words());
                // A request of the first run that lands after the second one may stamp a pool; no pod gets an address of that pool then.
                let all = words();
                let is_mixed = all.contains("") && all.contains(ADOPTED);
                assert!(!is_mixed, "after {steps} steps: {all:?}");
                until_done();
                assert_eq!(words().len(), 1, "after {steps} steps");
            });
            if has_ended {
                break;
            }
        }
        assert!(has_ended);
    }
}

fn namespace(world: &World) -> mover::Namespace {
    ready(mover::Cluster::namespace(world, "kube-system")).unwrap()
}

#[test]
fn run_does_not_take_over_from_those_that_began_later() {
    for reads in 0..4 {
        let moved = Moved::new();
        let world = &moved.world;
        moved.add("a", &range()).unwrap();
        let began_at = namespace(world).version;
        let turns = turns::Turns::new(1);
        thread::scope(|scope| {
            let _end = turns.until_dropped();
            turns.start(scope, 0, || moved.adopt());
            turns.next();
            (0..reads).for_each(|_| turns.go(0, Fate::Made));
            assert_eq!(turns.next(), [Next::Read]);
            moved.adopt();
            moved.give_back();
            // What it has read is of before these two, so it begins again before it changes anything.
            while turns.next() != [Next::Nothing] {
                assert_ne!(namespace(world).run, began_at);
                turns.go(0, Fate::Made);
            }
        });
        assert_eq!(world.owners(), ["pool/a/net1"]);
    }
}

#[test]
fn mark_of_an_ended_run_fails_under_the_next_one() {
    let moved = Moved::new();
    let world = &moved.world;
    moved.add("a", &range()).unwrap();
    // The first change of the namespace takes over, the next one marks it.
    world.namespaces.set_fate(1, 1);
    ready(mover::adopt(world, MEANT)).unwrap_err();
    moved.adopt();
    moved.give_back();
    let mark = namespace(world).mark;
    world.namespaces.land();
    assert_eq!(namespace(world).mark, mark);
}

#[test]
fn run_begins_again_when_an_ended_one_has_changed_what_it_has_read() {
    let moved = Moved::new();
    let world = &moved.world;
    moved.add("a", &range()).unwrap();
    world.namespaces.set_fate(1, 0);
    ready(mover::adopt(world, MEANT)).unwrap_err();
    let turns = turns::Turns::new(1);
    thread::scope(|scope| {
        let _end = turns.until_dropped();
        turns.start(scope, 0, || moved.adopt());
        while turns.next() == [Next::Read] {
            turns.go(0, Fate::Made);
        }
        world.namespaces.land();
        while turns.next() != [Next::Nothing] {
            turns.go(0, Fate::Made);
        }
    });
    assert_eq!(world.owners(), ["pool/a/net1"]);
}

#[test]
fn pods_are_read_again_where_their_entries_are_others() {
    let moved = Moved::new();
    for pod in ["a", "b", "c"] {
        moved.add(pod, &range()).unwrap();
    }
    let pools = moved.world.all_pools();
    let mut seen = ready(mover::Cluster::seen(&moved.world, pools)).unwrap();
    seen.pods = moved.world.pods.lock().unwrap().clone();
    seen.pods.remove("shop/b");
    let next_container = Ask::Allocate(allocation("c2", "c", &range()));
    assert!(is_done(&moved.both.serve(&next_container)));
    moved.add("d", &range()).unwrap();
    let pools = moved.world.all_pools();
    let unknown: Vec<_> = seen.unknown_pods(&pools).into_iter().collect();
    assert_eq!(unknown, ["shop/b", "shop/c", "shop/d"]);
}

#[test]
fn reservations_say_the_space_of_pools_without_definitions() {
    let moved = Moved::new();
    let own =
        json!({"type": "whereabouts", "range": "10.41.0.0/24", "enable_overlapping_ranges": false});
    moved.add("a", &range()).unwrap();
    moved.add("b", &own).unwrap();
    moved.world.wanted.lock().unwrap().clear();
    moved.adopt();
    let pools = moved.world.all_pools();
    let spaces: Vec<_> = pools.iter().map(StoredPool::space).collect();
    assert_eq!(spaces, ["", "pool 10.41.0.0-24"]);
}

#[test]
fn ranges_of_pools_are_counted_wherever_their_addresses_are() {
    let moved = Moved::new();
    let counts = || {
        let ranges = moved.both.counts().ranges.into_iter();
        let ranges = ranges.map(|one| (one.space, one.range, one.used, one.size));
        ranges.collect::<Vec<_>>()
    };
    let of = |used| (String::new(), "10.40.0.1-10.40.0.254".to_owned(), used, 254);
    for pod in ["a", "b", "c"] {
        moved.add(pod, &range()).unwrap();
    }
    moved.del("c", &range());
    assert_eq!(counts(), [of(2)]);
    moved.adopt();
    moved.add("d", &range()).unwrap();
    assert_eq!(counts(), [of(3)]);
    moved.give_back();
    moved.del("a", &range());
    assert_eq!(counts(), [of(2)]);
    let named = json!({"type": "whereabouts", "range": "10.40.0.0/24", "network_name": "lab"});
    moved.add("e", &named).unwrap();
    let of_lab = ("lab".to_owned(), of(0).1, 1, 254);
    assert_eq!(counts(), [of(2), of_lab]);
}

#[test]
fn del_while_pools_are_moved_is_done_afterwards() {
    let moved = Moved::new();
    for pod in ["a", "b"] {
        moved.add(pod, &range()).unwrap();
    }
    moved.stamp(ADOPTING);
    moved.del("a", &range());
    moved.adopt();
    assert_eq!(moved.world.owners().len(), 2);
    moved.work();
    assert_eq!(moved.world.owners(), ["pool/b/net1"]);
    moved.add("c", &range()).unwrap();
    moved.stamp(RETURNING);
    moved.del("c", &range());
    moved.del("b", &range());
    assert_eq!(moved.world.owners(), ["pool/b/net1"]);
    moved.give_back();
    moved.work();
    moved.world.cluster.assert_free();
}

#[test]
fn node_that_does_not_know_that_pools_went_back_gives_no_address_of_blocks() {
    let moved = Moved::new();
    let large = json!({"type": "whereabouts", "range": "10.40.0.0/20"});
    moved.add("a", &large).unwrap();
    moved.stamp(ADOPTING);
    moved.adopt();
    let held = moved.add("b", &large).unwrap();
    assert!(
        moved
            .world
            .all_blocks()
            .iter()
            .any(|block| matches!(block.mode, Mode::Node(_)))
    );
    moved.give_back();
    let (pools, _) = moved.world.cluster.taken();
    assert_eq!(pools.len(), 2);
    let next = moved.add("c", &large).unwrap();
    assert_eq!(next, "10.40.0.2/20");
    assert_ne!(next, held);
}

#[test]
fn pools_with_something_that_would_be_lost_are_not_moved() {
    let moved = Moved::new();
    moved.add("a", &range()).unwrap();
    let of = json!({"type": "multus-ipam", "subnet": "10.40.0.0/24"});
    moved.add("own", &of).unwrap();
    let report = ready(mover::adopt(&moved.world, MEANT)).unwrap();
    let in_use = "10.40.0.1 of IPPool 10.40.0.0-24 is in block 10.40.0.0, of which definitions of multus-ipam give addresses";
    let [obstacle] = &report.obstacles[..] else {
        panic!("{report:?}")
    };
    assert!(obstacle.starts_with(in_use), "{obstacle}");
    assert!(!report.is_done && report.done.is_empty(), "{report:?}");
    let moved = Moved::new();
    moved.add("a", &range()).unwrap();
    moved.world.pods.lock().unwrap().clear();
    let report = ready(mover::adopt(&moved.world, MEANT)).unwrap();
    assert_eq!((report.leaked.len(), report.addresses), (1, 1));
    assert_eq!(moved.world.owners(), ["pool/a/net1"]);
}

#[test]
fn block_that_is_made_after_the_closed_ones_are_removed_gives_no_address() {
    let moved = Moved::new();
    moved.add("a", &range()).unwrap();
    moved.stamp(ADOPTING);
    moved.adopt();
    moved.add("b", &range()).unwrap();
    moved.give_back();
    moved.world.server.objects.lock().unwrap().clear();
    moved.add("c", &range()).unwrap();
    moved.work();
    assert_eq!(moved.world.owners(), [""; 0]);
    assert_eq!(moved.world.cluster.taken().0.len(), 3);
    assert_eq!(moved.both.take_conflicts(), 0);
}

#[test]
fn deletion_that_lands_late_leaves_the_next_reservation_of_the_address() {
    let moved = Moved::new();
    moved.add("a", &range()).unwrap();
    moved.adopt();
    moved.del("a", &range());
    // The pool is stamped, and then its reservation is the first that is deleted.
    moved.world.cluster.set_fate(1, 1);
    ready(mover::give_back(&moved.world, MEANT)).unwrap_err();
    moved.give_back();
    assert_eq!(moved.add("b", &range()).unwrap(), "10.40.0.1/24");
    moved.world.cluster.land();
    assert_eq!(moved.world.cluster.taken().1, ["10.40.0.1 shop/b"]);
}

#[test]
fn block_that_is_made_late_is_free_after_a_return() {
    let moved = Moved::new();
    moved.add("a", &range()).unwrap();
    moved.world.server.set_fate(1, 0);
    ready(mover::adopt(&moved.world, MEANT)).unwrap_err();
    moved.give_back();
    moved.world.server.land();
    assert_eq!(moved.world.owners(), ["pool/a/net1"]);
    moved.give_back();
    assert_eq!(moved.world.owners(), [""; 0]);
    assert_eq!(moved.world.cluster.taken().0, ["1 shop/a a"]);
}

#[test]
fn closed_block_that_an_interrupted_return_left_goes_when_the_next_adoption_is_stopped() {
    let moved = Moved::new();
    moved.add("a", &range()).unwrap();
    moved.adopt();
    let [block] = &moved.world.all_blocks()[..] else {
        panic!("one block has the pool's address")
    };
    let name = object::name(&block.space, block.block);
    let closed = moving::change_mode(block, "closed", None);
    let closed = moved.world.server.patch(&name, &closed).unwrap();
    moved.give_back();
    let mut objects = moved.world.server.objects.lock().unwrap();
    assert_eq!(objects.insert(name, closed), None);
    drop(objects);
    moved.stamp(ADOPTING);
    moved.give_back();
    assert_eq!(moved.world.owners(), [""; 0]);
    assert_eq!(moved.world.cluster.taken().0, ["1 shop/a a"]);
}

/// An adoption may open a closed block again that is about to be removed, and find one open that is about to be closed.
#[test]
fn writes_of_an_interrupted_return_close_and_remove_no_block_when_they_land_under_the_next_adoption()
 {
    let mut has_ended = false;
    for writes in 0..20 {
        let moved = Moved::new();
        moved.add("a", &range()).unwrap();
        moved.adopt();
        moved.world.server.set_fate(1, writes);
        has_ended = ready(mover::give_back(&moved.world, MEANT)).is_ok();
        if has_ended {
            break;
        }
        if ready(mover::adopt(&moved.world, MEANT)).is_err() {
            moved.give_back();
            moved.adopt();
        }
        moved.world.server.land();
        let owners = moved.world.owners();
        assert_eq!(owners, ["pool/a/net1"], "after {writes} requests");
        let blocks = moved.world.all_blocks();
        let mut closed = blocks
            .iter()
            .filter(|block| matches!(block.mode, Mode::Closed(_)));
        assert_eq!(closed.next(), None, "after {writes} requests");
    }
    assert!(has_ended);
}

#[test]
fn patches_of_moves_fail_where_the_block_is_another_one() {
    let moved = Moved::new();
    moved.add("a", &range()).unwrap();
    moved.adopt();
    let server = &moved.world.server;
    let block = || moved.world.all_blocks().remove(0);
    let name = object::name("", block().block);
    let with = |path: &str, value: Value| {
        *server
            .objects
            .lock()
            .unwrap()
            .get_mut(&name)
            .unwrap()
            .pointer_mut(path)
            .unwrap() = value;
    };
    let fails = |patch: &Value| {
        let failed = server.patch(&name, patch).unwrap_err();
        assert!(matches!(failed, ApiError::Refused(_)), "{failed}");
    };
    let shared = block();
    let Mode::Shared(slots) = &shared.mode else {
        panic!("it is shared after an adoption")
    };
    let close = moving::change_mode(&shared, "closed", None);
    let free = moving::change_mode(&shared, "shared", Some(slots));
    with("/metadata/resourceVersion", "another".into());
    fails(&free);
    with("/spec/mode", "closed".into());
    fails(&close);
    let let_go = moving::let_go(&block());
    let open = moving::change_mode(&block(), "shared", None);
    with("/metadata/uid", "another".into());
    for patch in [&let_go, &open] {
        fails(patch);
    }
    with("/spec/mode", "shared".into());
    fails(&close);
}

/// Lists of all pools take so long that a pool which pods come from has changed before it is stamped.
#[test]
fn pool_that_changes_after_each_list_is_adopted_nevertheless() {
    let moved = Moved::new();
    moved.add("a", &range()).unwrap();
    let turns = turns::Turns::new(1);
    thread::scope(|scope| {
        let _end = turns.until_dropped();
        let world = &moved.world;
        turns.start(scope, 0, || moved.adopt());
        for number in 0.. {
            assert!(number < 100, "it lists the pools for ever");
            let seen = world.lists_of_pools();
            match turns.next()[0] {
                Next::Nothing => break,
                _ => turns.go(0, Fate::Made),
            }
            if world.lists_of_pools() > seen && world.all_pools().iter().all(StoredPool::is_open) {
                moved.add(&format!("p{number}"), &range()).unwrap();
            }
        }
        assert!(world.owners().len() > 2);
    });
}

/// Moves pools of three ranges. Returns which of them have given an address with which stamp while some had this stamp and others were on their
/// way.
fn given_meanwhile(moved: &Moved, is_there: &str, on_its_way: &str) -> Vec<String> {
    let of = |range: &str| json!({"type": "whereabouts", "range": range});
    let ranges = ["10.40.0.0/24", "10.41.0.0/24", "10.42.0.0/24"];
    for (number, range) in ranges.into_iter().enumerate() {
        moved.add(&format!("first-{number}"), &of(range)).unwrap();
    }
    if is_there.is_empty() {
        moved.adopt();
    }
    let mut given = BTreeSet::new();
    let turns = turns::Turns::new(1);
    thread::scope(|scope| {
        let _end = turns.until_dropped();
        turns.start(scope, 0, || match is_there {
            ADOPTED => moved.adopt(),
            _ => moved.give_back(),
        });
        for number in 0.. {
            if turns.next() == [Next::Nothing] {
                break;
            }
            let pools = moved.world.all_pools();
            let is_one = |word: &str| pools.iter().any(|pool| pool.word == word);
            if is_one(is_there) && is_one(on_its_way) {
                let others = pools.iter();
                for pool in others.filter(|pool| ["", ADOPTED].contains(&&*pool.word)) {
                    let (name, word) = (&pool.name, &pool.word);
                    if given.insert(format!("{name} {word}")) {
                        let pod = format!("pod-{number}-{name}");
                        moved.add(&pod, &of(&pool.subnet.to_string())).unwrap();
                    }
                }
                // A new range may overlap with a pool that has not moved yet.
                let next = moved.add(&format!("new-{number}"), &of("10.43.0.0/24"));
                assert!(next.unwrap_err().contains("are being moved"));
            }
            turns.go(0, Fate::Made);
        }
    });
    assert_eq!(moved.both.take_conflicts(), 0);
    given.into_iter().collect()
}

#[test]
fn pods_wait_only_while_their_own_range_is_adopted() {
    let given = given_meanwhile(&Moved::new(), ADOPTED, ADOPTING);
    let expected = [
        "10.40.0.0-24 adopted",
        "10.41.0.0-24 adopted",
        "10.42.0.0-24 ",
        "10.42.0.0-24 adopted",
    ];
    assert_eq!(given, expected);
}

#[test]
fn pods_wait_only_while_their_own_range_goes_back() {
    let moved = Moved::new();
    let given = given_meanwhile(&moved, "", RETURNING);
    let expected = [
        "10.40.0.0-24 ",
        "10.41.0.0-24 ",
        "10.42.0.0-24 ",
        "10.42.0.0-24 adopted",
    ];
    assert_eq!(given, expected);
    let pods = moved.world.pods.lock().unwrap().clone();
    let waiting = pods.keys().filter(|pod| pod.starts_with("shop/new-"));
    let (entries, reservations) = moved.world.cluster.taken();
    assert_eq!(entries.len(), pods.len() - waiting.count(), "{entries:?}");
    assert_eq!(reservations.len(), entries.len());
}

#[test]
fn node_that_does_not_share_its_block_lets_no_pod_wait() {
    let moved = Moved::new();
    let large = json!({"type": "whereabouts", "range": "10.40.0.0/20"});
    moved.add("a", &large).unwrap();
    moved.adopt();
    moved.add("b", &large).unwrap();
    let held = ready(mover::give_back(&moved.world, MEANT));
    assert!(matches!(held, Err(MoveError::Held)), "{held:?}");
    moved.add("c", &large).unwrap();
    assert_eq!(moved.world.words(), [ADOPTED]);
    moved.give_back();
    assert_eq!(moved.world.cluster.taken().0.len(), 3);
}

/// The pools of one part are opened one after the other. A run that resumes must not write the reservations of an open one anew.
#[test]
fn resumed_return_leaves_the_reservations_of_open_pools() {
    let moved = Moved::new();
    let half = json!({"type": "whereabouts", "range": "10.40.0.0/25"});
    for (pod, ipam) in [("a", &range()), ("b", &half), ("c", &range())] {
        moved.add(pod, ipam).unwrap();
    }
    moved.adopt();
    // Both pools are stamped, and then the first one is opened.
    moved.world.cluster.set_fate(1, 3);
    ready(mover::give_back(&moved.world, MEANT)).unwrap_err();
    assert_eq!(moved.world.words(), ["", RETURNING]);
    let open = moved.world.all_pools().remove(0).subnet;
    let (own, gone) = if open.length() == 24 {
        (range(), "a")
    } else {
        (half, "b")
    };
    moved.del(gone, &own);
    let next = moved.add("d", &own).unwrap();
    moved.give_back();
    assert_eq!(moved.world.words(), ["", ""]);
    let (_, reservations) = moved.world.cluster.taken();
    let of_next = format!("{} shop/d", next.split('/').next().unwrap());
    assert!(reservations.contains(&of_next), "{reservations:?}");
    let of_gone = format!("shop/{gone}");
    assert!(
        !reservations.iter().any(|one| one.ends_with(&of_gone)),
        "{reservations:?}"
    );
    assert_eq!(reservations.len(), 3);
}

/// A request of the run before may open a pool while this run begins, and pods get addresses of it at once.
#[test]
fn return_leaves_the_reservations_of_pools_that_an_ended_one_opens_late() {
    let (mut has_ended, mut given) = (false, 0);
    for steps in 0.. {
        let moved = Moved::new();
        let world = &moved.world;
        moved.add("a", &range()).unwrap();
        moved.adopt();
        // The pool is stamped, and the request that opens it is made later.
        world.cluster.set_fate(1, 1);
        ready(mover::give_back(world, MEANT)).unwrap_err();
        assert_eq!(world.words(), [RETURNING]);
        let turns = turns::Turns::new(1);
        thread::scope(|scope| {
            let _end = turns.until_dropped();
            turns.start(scope, 0, || drop(ready(mover::give_back(world, MEANT))));
            turns.next();
            (0..steps).for_each(|_| turns.go(0, Fate::Made));
            has_ended = turns.next() == [Next::Nothing];
            world.cluster.land();
            let added = moved.add("b", &range());
            while turns.next() != [Next::Nothing] {
                turns.go(0, Fate::Made);
            }
            let (_, reservations) = world.cluster.taken();
            if let Ok(address) = added {
                given += 1;
                let own = format!("{} shop/b", address.split('/').next().unwrap());
                assert!(
                    reservations.contains(&own),
                    "after {steps} steps: {reservations:?}"
                );
            }
        });
        moved.give_back();
        assert_eq!(world.words(), [""]);
        if has_ended {
            break;
        }
    }
    assert!(given > 1, "{given}");
}

#[test]
fn pool_on_its_way_is_written_although_a_definition_joins_it_with_one_in_blocks() {
    let moved = Moved::new();
    let other = json!({"type": "whereabouts", "range": "10.41.0.0/24"});
    moved.add("a", &range()).unwrap();
    moved.add("b", &other).unwrap();
    // The block of the second pool is not made.
    moved.world.server.set_fate(2, 1);
    ready(mover::adopt(&moved.world, MEANT)).unwrap_err();
    assert_eq!(moved.world.words(), [ADOPTED, ADOPTING]);
    assert_eq!(moved.world.owners(), ["pool/a/net1"]);
    let both = ["10.40.0.0-24", "10.41.0.0-24"].map(str::to_owned);
    moved.world.joint.lock().unwrap().insert(both.into());
    moved.adopt();
    assert_eq!(moved.world.owners(), ["pool/a/net1", "pool/b/net1"]);
}

#[test]
fn stamp_that_lands_late_is_seen_before_blocks_are_written() {
    let moved = Moved::interrupted();
    let turns = turns::Turns::new(1);
    thread::scope(|scope| {
        let _end = turns.until_dropped();
        let world = &moved.world;
        turns.start(scope, 0, || moved.adopt());
        // The pools are read, and stamped anew after it.
        assert_eq!(turns.next(), [Next::Read]);
        turns.go(0, Fate::Made);
        world.cluster.land();
        moved.del("a", &range());
        assert_eq!(world.owners(), [""; 0]);
        while turns.next() != [Next::Nothing] {
            turns.go(0, Fate::Made);
        }
        assert_eq!(world.owners(), [""; 0]);
    });
}
