//! Requests of plugins reach the service that has their addresses.

mod moves;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::super::guest::tests::{Cluster, allocation, small};
use super::super::tests::{Server, TIMES};
use super::*;
use crate::guest::moving::{self, StoredPool};
use crate::guest::pool::{ADOPTED, ADOPTING, RETURNING};
use crate::guest::record::Records;
use crate::guest::{API_VERSION, POOLS, RESERVATIONS, reservation};
use crate::object::{self, AddressBlock, Mode};
use crate::request::want;
use crate::store::Store;
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
        Guest::resume(Arc::clone(cluster), records, "kube-system", TIMES).unwrap()
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

fn is_done(answer: &Answer) -> bool {
    matches!(answer, Answer::Done(_))
}

#[test]
fn each_request_reaches_the_service_of_its_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Arc::new(Cluster::default());
    let both = services(&dir, Some(&cluster));
    let of_pools = allocation("p", "p", &small());
    for of in [of_pools.clone(), of_blocks()] {
        assert!(is_done(&both.serve(&Ask::Allocate(of.clone()))), "{of:?}");
        assert!(is_done(&both.serve(&Ask::Check(of.attachment))));
    }
    assert_eq!(both.counts().addresses, 2);
    let attachments = [of_pools.attachment.clone(), of_blocks().attachment];
    let valid = Ask::Collect {
        network: "lan".to_owned(),
        valid: vec![of_pools.attachment.clone()],
    };
    assert!(is_done(&both.serve(&valid)));
    assert_eq!(both.counts().addresses, 1);
    assert!(is_done(&both.serve(&Ask::ReleaseFrom(of_pools))));
    for attachment in attachments {
        assert!(is_done(&both.serve(&Ask::Release(attachment.clone()))));
        assert!(!is_done(&both.serve(&Ask::Check(attachment))));
    }
    both.work();
    assert_eq!(both.counts().addresses, 0);
    cluster.assert_free();
}

#[test]
fn definitions_of_whereabouts_name_the_value_that_they_need() {
    let dir = tempfile::tempdir().unwrap();
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

/// A node, the pools, and the blocks of one API server.
struct Moved {
    server: Arc<Server>,
    cluster: Arc<Cluster>,
    both: Both,
    _dir: tempfile::TempDir,
}

impl Moved {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (server, cluster) = (Server::with_nodes(&["n"]), Arc::new(Cluster::default()));
        *cluster.blocks.lock().unwrap() = Some(Arc::clone(&server));
        let both = services_of(&dir, &server, Some(&cluster));
        Self {
            server,
            cluster,
            both,
            _dir: dir,
        }
    }

    fn add(&self, pod: &str, ipam: &Value) -> Result<String, String> {
        let mut of = allocation(pod, pod, ipam);
        of.pod.uid = format!("uid-{pod}");
        match self.both.serve(&Ask::Allocate(of)) {
            Answer::Done(grants) => Ok(grants[0].address.clone()),
            Answer::Failed { reason, .. } => Err(reason),
        }
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

    fn pools(&self) -> Vec<StoredPool> {
        let pools = self.cluster.all("IPPool").into_iter();
        pools
            .map(|(_, pool)| StoredPool::parse(&pool).unwrap())
            .collect()
    }

    fn blocks(&self) -> Vec<AddressBlock> {
        let objects = self.server.objects.lock().unwrap();
        objects
            .values()
            .map(|one| AddressBlock::parse(one).unwrap())
            .collect()
    }

    /// Stamps all pools, as the command does first.
    fn stamp(&self, word: &str) {
        for pool in self.pools() {
            self.patch(&pool, &pool.stamp(word));
        }
    }

    fn patch(&self, pool: &StoredPool, patch: &Value) {
        let place = format!(
            "/apis/{API_VERSION}/namespaces/{}/{POOLS}/{}",
            pool.namespace, pool.name
        );
        self.cluster.patch(&place, patch).unwrap();
    }

    /// Returns the pods of reservations by their names.
    fn reservations(&self) -> BTreeMap<String, String> {
        let reservations = self.cluster.all("OverlappingRangeIPReservation");
        let reservations = reservations.into_iter();
        reservations
            .map(|(name, one)| (name, one["spec"]["podref"].as_str().unwrap().to_owned()))
            .collect()
    }

    fn spaces(&self) -> Vec<String> {
        let (reservations, none) = (self.reservations(), BTreeMap::new());
        let pools = self.pools().into_iter();
        pools
            .map(|pool| pool.space_to_be(&reservations, &none))
            .collect()
    }

    fn plan(&self) -> moving::Adoption {
        let place = |pod: &str| {
            let uid = format!("uid-{}", pod.split_once('/').unwrap().1);
            let node = "n".to_owned();
            Some(moving::PodPlace { uid, node })
        };
        moving::adopt(
            &self.pools(),
            &self.spaces(),
            &self.reservations(),
            place,
            &self.blocks(),
        )
    }

    /// Writes the blocks, and then the last stamps.
    fn adopt(&self) {
        let plan = self.plan();
        assert_eq!(plan.obstacles, []);
        for ((space, block), slots) in &plan.blocks {
            let object = moving::block(space, *block, slots);
            self.server.create(&object).unwrap();
        }
        for (pool, space) in self.pools().iter().zip(self.spaces()) {
            self.patch(pool, &pool.assign(ADOPTED, &space));
        }
    }

    /// Closes the blocks, and writes the pools.
    fn give_back(&self) {
        self.stamp(RETURNING);
        for block in self.blocks() {
            if matches!(block.mode, Mode::Node(_)) {
                let name = object::name(&block.space, block.block);
                let wanted = self.server.patch(&name, &want(&block, "/return")).unwrap();
                self.both.changed(&wanted);
            }
        }
        for block in self.blocks() {
            let name = object::name(&block.space, block.block);
            let closed = moving::change_mode(&block, "closed", None);
            self.server.patch(&name, &closed).unwrap();
        }
        let pools = self.pools();
        let back = moving::give_back(&pools, &self.blocks());
        assert_eq!(back.obstacles, []);
        self.cluster.remove_all("OverlappingRangeIPReservation");
        for (name, owner) in &back.reservations {
            let object = reservation::object("kube-system", name, owner);
            let path = format!("/apis/{API_VERSION}/namespaces/kube-system/{RESERVATIONS}");
            self.cluster.create(&path, &object).unwrap();
        }
        for (pool, entries) in pools.iter().zip(&back.allocations) {
            self.patch(pool, &pool.reopen(Some(entries)));
        }
    }

    /// Returns the owners in blocks.
    fn owners(&self) -> Vec<String> {
        let owners = self
            .blocks()
            .into_iter()
            .flat_map(|block| match block.mode {
                Mode::Shared(slots) | Mode::Closed(slots) => slots,
                Mode::Node(_) => Vec::new(),
            });
        let owners = owners.map(|slot| slot.owner);
        owners.filter(|owner| !owner.is_empty()).collect()
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
    assert_eq!(moved.owners(), ["pool/a/net1", "pool/b/net1"]);
    let third = moved.add("d", &range()).unwrap();
    assert!(!["10.40.0.1/24", "10.40.0.2/24"].contains(&third.as_str()));
    assert_eq!(moved.both.counts().addresses, 3);
    // A range without a pool is in blocks as well: an overlapping one gives none of these addresses.
    let half = json!({"type": "whereabouts", "range": "10.40.0.0/30"});
    let full = moved.add("e", &half).unwrap_err();
    assert!(full.contains("has no free address"), "{full}");
    moved.del("a", &range());
    assert_eq!(moved.owners().len(), 2);
    moved.give_back();
    let (pools, reservations) = moved.cluster.taken();
    assert_eq!((pools.len(), reservations.len()), (2, 2), "{pools:?}");
    assert_eq!(moved.add("f", &range()).unwrap(), "10.40.0.1/24");
    for pod in ["b", "d", "f"] {
        moved.del(pod, &range());
    }
    moved.cluster.assert_free();
    assert_eq!(moved.both.counts().addresses, 0);
    assert_eq!(moved.both.take_conflicts(), 0);
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
    assert_eq!(moved.owners().len(), 2);
    moved.work();
    assert_eq!(moved.owners(), ["pool/b/net1"]);
    moved.add("c", &range()).unwrap();
    moved.stamp(RETURNING);
    moved.del("c", &range());
    moved.del("b", &range());
    assert_eq!(moved.owners(), ["pool/b/net1"]);
    moved.give_back();
    moved.work();
    moved.cluster.assert_free();
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
            .blocks()
            .iter()
            .any(|block| matches!(block.mode, Mode::Node(_)))
    );
    moved.give_back();
    let (pools, _) = moved.cluster.taken();
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
    let plan = moved.plan();
    let in_use = "10.40.0.1 of IPPool 10.40.0.0-24 is in block 10.40.0.0, of which definitions of multus-ipam give addresses";
    let obstacle = plan.obstacles[0].to_string();
    assert!(obstacle.starts_with(in_use), "{obstacle}");
    let lost = |_: &str| None;
    let plan = moving::adopt(
        &moved.pools(),
        &moved.spaces(),
        &moved.reservations(),
        lost,
        &[],
    );
    assert_eq!((plan.leaked.len(), plan.addresses), (1, 1));
    let [slots] = &plan.blocks.into_values().collect::<Vec<_>>()[..] else {
        panic!("there is one block")
    };
    assert_eq!((&*slots[1].owner, slots[1].pods.len()), ("pool/a/net1", 0));
}

#[test]
fn block_that_is_made_after_the_closed_ones_are_removed_gives_no_address() {
    let moved = Moved::new();
    moved.add("a", &range()).unwrap();
    moved.stamp(ADOPTING);
    moved.adopt();
    moved.add("b", &range()).unwrap();
    moved.give_back();
    moved.server.objects.lock().unwrap().clear();
    moved.add("c", &range()).unwrap();
    moved.work();
    assert_eq!(moved.owners(), [""; 0]);
    assert_eq!(moved.cluster.taken().0.len(), 3);
    assert_eq!(moved.both.take_conflicts(), 0);
}
