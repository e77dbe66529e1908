//! All pools become addresses of blocks, or pools again, under running pods.
//!
//! Whoever moves them stamps every pool first, so that a write of a guest that has read a pool before fails, and writes the last stamp when
//! everything else is written. In between nobody gives or frees an address of a pool, so it may end at any place and be begun again. What is
//! to be written is decided here, over values.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::pool::{ADOPTED, ADOPTING, NEW, Pool, PoolError, RETURNING, SPACE, STAMP, place};
use super::{Owner, own_space, reservation, slot_owner};
use crate::object::{self, AddressBlock, Mode, POOL_OWNER, Slot, SlotPod};
use crate::range::{BLOCK_SIZE, Block, Subnet};
use crate::request::{add, replace, shared, test, written};

/// A pool as it was read.
#[derive(Clone, Debug)]
pub struct StoredPool {
    pub namespace: String,
    pub name: String,
    pub subnet: Subnet,
    /// The word of its stamp; empty without one.
    pub word: String,
    network_name: String,
    has_labels: bool,
    has_annotations: bool,
    /// The space of an adopted pool.
    space: Option<String>,
    pool: Pool,
}

/// Where a pod is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodPlace {
    pub uid: String,
    pub node: String,
}

/// A reservation as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Namespace and name of its pod.
    pub pod: String,
    pub uid: String,
}

/// What is not moved, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    #[error(
        "{address} is in use by {pod} of IPPool {pool}, and by {other} of another one: run the command again in two minutes, since one of them may be ending, or delete one of the pods"
    )]
    Twice {
        address: IpAddr,
        pool: String,
        pod: String,
        other: String,
    },
    #[error(
        "{address} of IPPool {pool} is in block {block}, of which definitions of multus-ipam give addresses: delete the pods there, or give one of the networks another range or space"
    )]
    InUse {
        address: IpAddr,
        pool: String,
        block: String,
    },
    #[error(
        "IPPool {pool} was made after the others were adopted, and has addresses: delete its pods, and then the pool"
    )]
    Late { pool: String },
    #[error(
        "{address} of block {block} belongs to claim {claim}, and pools have no claims: delete it, or its machine"
    )]
    Claimed {
        address: IpAddr,
        block: String,
        claim: String,
    },
    #[error(
        "{address} of block {block} is that of IPPool {pool}, which does not exist: delete the pod that has it"
    )]
    NoPool {
        address: IpAddr,
        block: String,
        pool: String,
    },
}

/// The blocks that pools become.
#[derive(Debug, Default)]
pub struct Adoption {
    /// The slots of each block by space and block.
    pub blocks: BTreeMap<(String, Block), Vec<Slot>>,
    pub addresses: usize,
    /// The addresses of pods that do not exist. Such a pod was perhaps deleted a moment ago, and its address is freed in the block.
    pub leaked: BTreeSet<(String, IpAddr)>,
    pub obstacles: Vec<Obstacle>,
}

/// The pools that blocks become.
#[derive(Debug, Default)]
pub struct Return {
    /// The entries of each pool by their offsets, by its place among the pools.
    pub allocations: Vec<Map<String, Value>>,
    /// The reservations of all addresses: name and owner.
    pub reservations: BTreeMap<String, Owner>,
    pub addresses: usize,
    pub obstacles: Vec<Obstacle>,
}

impl StoredPool {
    pub fn parse(object: &Value) -> Result<Self, PoolError> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        let own = |path: &str| text(path).unwrap_or_default().to_owned();
        let name = own("/metadata/name");
        let missing = || PoolError::Field {
            name: name.clone(),
            field: "spec.range",
            expected: "a subnet",
        };
        let range = text("/spec/range").and_then(|range| range.parse::<Subnet>().ok());
        let subnet = range.ok_or_else(missing)?;
        let pool = Pool::parse(object, subnet)?;
        let unnamed = super::pool::name("", "", subnet);
        let network_name = name.strip_suffix(&unnamed).ok_or_else(missing)?;
        let network_name = network_name.strip_suffix('-').unwrap_or(network_name);
        let labels = object.pointer("/metadata/labels");
        let word = labels.and_then(|labels| labels.get(STAMP)?.as_str());
        let annotations = object.pointer("/metadata/annotations");
        let space = annotations.and_then(|all| all.get(SPACE)?.as_str());
        Ok(Self {
            namespace: own("/metadata/namespace"),
            subnet,
            word: word.unwrap_or_default().to_owned(),
            network_name: network_name.to_owned(),
            has_labels: labels.is_some(),
            has_annotations: annotations.is_some(),
            space: space.map(str::to_owned),
            pool,
            name,
        })
    }

    /// Returns whether nobody has stamped it, so that it gives addresses or will do so.
    pub fn is_open(&self) -> bool {
        ["", NEW].contains(&self.word.as_str())
    }

    /// Returns whether its addresses are being written into blocks.
    pub fn is_adopting(&self) -> bool {
        self.has_word(ADOPTING)
    }

    /// Returns whether its addresses are being written into it.
    pub fn is_returning(&self) -> bool {
        self.has_word(RETURNING)
    }

    /// Returns whether it has this word, with or without a turn.
    fn has_word(&self, word: &str) -> bool {
        let rest = self.word.strip_prefix(word);
        rest.is_some_and(|turn| turn.is_empty() || turn.starts_with('-'))
    }

    /// Returns the patch that changes the stamp of a pool that is on its way: patches that were made before fail after it.
    pub fn renew(&self) -> Value {
        let (word, turn) = self.word.split_once('-').unwrap_or((&self.word, ""));
        let turn = turn.parse().unwrap_or(1_u32).wrapping_add(1);
        self.stamp(&format!("{word}-{turn}"))
    }

    /// Returns the patch that stamps it, unless it has changed since it was read.
    pub fn stamp(&self, word: &str) -> Value {
        let mut steps: Vec<_> = self.pool.unchanged().collect();
        if !self.has_labels {
            steps.push(add("/metadata/labels", json!({})));
        }
        steps.push(add(&place("labels", STAMP), word));
        steps.into()
    }

    /// Returns the patch that stamps it as one whose addresses get to the blocks of a space, or are there.
    pub fn assign(&self, word: &str, space: &str) -> Value {
        let mut steps = self.stamp(word);
        let list = steps.as_array_mut().expect("it is a list");
        if !self.has_annotations {
            list.push(add("/metadata/annotations", json!({})));
        }
        list.push(add(&place("annotations", SPACE), space));
        steps
    }

    /// Returns the patch by which it gives addresses again, with these entries where they are given.
    pub fn reopen(&self, allocations: Option<&Map<String, Value>>) -> Value {
        let entries = allocations.map(|entries| replace("/spec/allocations", entries.clone()));
        let mut steps: Vec<_> = self.pool.unchanged().chain(entries).collect();
        steps.push(json!({"op": "remove", "path": place("labels", STAMP)}));
        if self.space.is_some() {
            steps.push(json!({"op": "remove", "path": place("annotations", SPACE)}));
        }
        steps.into()
    }

    /// Returns whether a subnet has addresses of its range.
    pub fn has(&self, subnet: Subnet) -> bool {
        self.subnet.contains(subnet.first()) || subnet.contains(self.subnet.first())
    }

    /// Returns whether a block has addresses of it.
    pub fn has_block(&self, block: &AddressBlock) -> bool {
        let last = block.block.address(BLOCK_SIZE - 1);
        let has_addresses = self.subnet.contains(block.block.first())
            || self.subnet.contains(last)
            || block.block.slot(self.subnet.first()).is_some();
        // A pool that was made after the others were adopted has no annotation.
        has_addresses && (block.space == self.space() || block.space == own_space(&self.name))
    }

    /// Returns the names of the blocks that may have addresses of it, as [`Self::has_block`] finds them.
    pub fn block_names(&self) -> impl Iterator<Item = String> {
        let own = own_space(&self.name);
        let offsets = (0..).step_by(BLOCK_SIZE as usize);
        let blocks = offsets.map_while(|offset| self.subnet.at(offset).map(Block::of));
        blocks.flat_map(move |block| {
            let spaces = [self.space(), own.as_str()];
            spaces.map(|space| object::name(space, block))
        })
    }

    /// Returns whether another pool of the same name of a network has addresses of the same block, so that they may have the same space.
    pub fn shares_blocks(&self, other: &Self) -> bool {
        let (network, first, last) = self.place();
        let (other_network, other_first, other_last) = other.place();
        network == other_network && first <= other_last && other_first <= last
    }

    /// Returns the name of its network, and its first and last block. In this order a pool that has a block in common with one before it has
    /// one in common with the one before it that ends last.
    pub fn place(&self) -> (&str, Block, Block) {
        let [first, last] = [self.subnet.first(), self.subnet.last()].map(Block::of);
        (&self.network_name, first, last)
    }

    /// Returns the space of an adopted pool.
    pub fn space(&self) -> &str {
        self.space.as_deref().unwrap_or(&self.network_name)
    }

    /// Returns the space that its addresses get to, which an interrupted adoption has written. `wanted` is what its definitions say of
    /// reservations; where they say both or nothing, its entries decide.
    pub fn space_to_be(
        &self,
        reservations: &BTreeMap<String, Reserved>,
        wanted: &BTreeMap<String, BTreeSet<bool>>,
    ) -> String {
        self.known_space(wanted).unwrap_or_else(|| {
            let mut entries = self.pool.entries();
            let is_reserved =
                entries.any(|(address, owner)| self.is_reserved_for(address, owner, reservations));
            self.space_of(is_reserved)
        })
    }

    /// Returns the space that its addresses get to; `None` where its entries decide.
    pub fn known_space(&self, wanted: &BTreeMap<String, BTreeSet<bool>>) -> Option<String> {
        if self.space.is_some() {
            return self.space.clone();
        }
        let wanted = wanted.get(&self.name).filter(|wanted| wanted.len() == 1);
        let is_reserved = match wanted.and_then(BTreeSet::first) {
            Some(is_reserved) => *is_reserved,
            None if self.is_empty() => true,
            None => return None,
        };
        Some(self.space_of(is_reserved))
    }

    fn space_of(&self, is_reserved: bool) -> String {
        if is_reserved {
            return self.network_name.clone();
        }
        own_space(&self.name)
    }

    /// Returns whether its space was written.
    pub(super) fn says_space(&self) -> bool {
        self.space.is_some()
    }

    /// Returns who has its addresses.
    pub(super) fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.pool.entries().map(|(_, owner)| owner)
    }

    fn is_reserved_for(
        &self,
        address: IpAddr,
        owner: &Owner,
        reservations: &BTreeMap<String, Reserved>,
    ) -> bool {
        let name = reservation::name(&self.network_name, address);
        reservations
            .get(&name)
            .is_some_and(|one| one.pod == owner.pod)
    }

    /// Leaves out the entries of other addresses and pods.
    pub fn retain(&mut self, is_kept: impl Fn(IpAddr, &str) -> bool) {
        self.pool.retain(is_kept);
    }

    /// Returns whether nobody has an address of it.
    pub fn is_empty(&self) -> bool {
        self.pool.entries().next().is_none()
    }

    /// Returns whether a reservation with this name is one of an address of it.
    pub fn reserves(&self, name: &str) -> bool {
        let address = match self.network_name.as_str() {
            "" => Some(name),
            network => name
                .strip_prefix(network)
                .and_then(|rest| rest.strip_prefix('-')),
        };
        let address = address.and_then(reservation::address);
        self.space() == self.network_name
            && address.is_some_and(|address| self.subnet.contains(address))
    }
}

/// Returns the blocks that pools become, each of which gets to a space. `reservations` are all by their names, `place` finds
/// a pod by namespace and name, and `blocks` are those that exist but for other pools'.
pub fn adopt(
    pools: &[&StoredPool],
    spaces: &[String],
    reservations: &BTreeMap<String, Reserved>,
    place: impl Fn(&str) -> Option<PodPlace>,
    blocks: &[&AddressBlock],
) -> Adoption {
    let mut adoption = Adoption::default();
    let mut users: BTreeMap<(String, IpAddr), (&str, bool)> = BTreeMap::new();
    for (pool, space) in pools.iter().zip(spaces) {
        let name = || pool.name.clone();
        for (address, owner) in pool.pool.entries() {
            let place = place(&owner.pod);
            if place.is_none() {
                adoption.leaked.insert((pool.name.clone(), address));
            }
            let is_reserved = pool.is_reserved_for(address, owner, reservations);
            match users.get(&(space.clone(), address)) {
                // It is being freed: first the reservation goes, and then the entry.
                Some((_, true)) if !is_reserved => continue,
                Some((other, was_reserved)) if *was_reserved == is_reserved => {
                    adoption.obstacles.push(Obstacle::Twice {
                        address,
                        pool: name(),
                        pod: owner.pod.clone(),
                        other: (*other).to_owned(),
                    });
                    continue;
                }
                Some(_) => {}
                None => adoption.addresses += 1,
            }
            users.insert((space.clone(), address), (&owner.pod, is_reserved));
            let block = Block::of(address);
            if let Some(taken) = blocks
                .iter()
                .find(|one| (&one.space, one.block) == (space, block))
                .filter(|one| !is_free_for_pools(one))
            {
                adoption.obstacles.push(Obstacle::InUse {
                    address,
                    pool: name(),
                    block: object::name(&taken.space, taken.block),
                });
                continue;
            }
            let slots = adoption.blocks.entry((space.clone(), block));
            let slots = slots.or_insert_with(|| vec![Slot::default(); BLOCK_SIZE as usize]);
            let (namespace, pod) = owner.pod.split_once('/').unwrap_or_default();
            let pod = place.map(|PodPlace { uid, node }| SlotPod {
                namespace: namespace.to_owned(),
                name: pod.to_owned(),
                uid,
                node,
                boot: String::new(),
                interface: String::new(),
                pool: pool.name.clone(),
            });
            slots[block.slot(address).unwrap_or_default() as usize] = Slot {
                owner: slot_owner(&owner.container, &owner.ifname),
                pods: pod.into_iter().collect(),
            };
        }
    }
    // What was closed when pools went back, or begun and not finished, is written anew.
    for one in blocks.iter().filter(|one| is_free_for_pools(one)) {
        if spaces.contains(&one.space) {
            let slots = adoption.blocks.entry((one.space.clone(), one.block));
            slots.or_insert_with(|| vec![Slot::default(); BLOCK_SIZE as usize]);
        }
    }
    adoption
}

/// Returns whether a block has no address but those that came with pools, and no node gives any of it.
fn is_free_for_pools(block: &AddressBlock) -> bool {
    match &block.mode {
        Mode::Node(_) => false,
        Mode::Closed(_) => true,
        Mode::Shared(slots) => {
            let mut slots = slots.iter();
            slots.all(|slot| slot.owner.is_empty() || slot.owner.starts_with(POOL_OWNER))
        }
    }
}

/// Returns the object of a shared block with these slots that nobody has made yet.
pub fn block(space: &str, block: Block, slots: &[Slot]) -> Value {
    shared(space, block, written(slots))
}

/// Returns the patch that gives a block which is not one node's this mode under a new turn, and other slots where these are given, unless it
/// has changed since it was read. Without slots it may have: pods come and go.
pub fn change_mode(seen: &AddressBlock, mode: &str, slots: Option<&[Slot]>) -> Value {
    let before = match seen.mode {
        Mode::Node(_) => "node",
        Mode::Shared(_) => "shared",
        Mode::Closed(_) => "closed",
    };
    let mut steps = vec![
        test("/metadata/uid", &*seen.uid),
        test("/spec/mode", before),
        // A request that is made late finds another turn, also where nothing else was changed.
        test("/spec/turn", seen.turn),
        replace("/spec/turn", seen.turn + 1),
        replace("/spec/mode", mode),
    ];
    if let Some(slots) = slots {
        steps.insert(
            0,
            test("/metadata/resourceVersion", &*seen.resource_version),
        );
        steps.push(replace("/spec/slots", written(slots)));
    }
    steps.into()
}

/// Returns the patch that takes the finalizer from a closed block, unless it has been opened again.
pub fn let_go(closed: &AddressBlock) -> Value {
    json!([
        test("/metadata/uid", &*closed.uid),
        test("/spec/mode", "closed"),
        {"op": "remove", "path": "/metadata/finalizers"}
    ])
}

/// Returns the pools that closed blocks become. An address goes to the pool that its slot names, or else to the one that had it before.
pub fn give_back<'a>(
    pools: &[StoredPool],
    blocks: impl IntoIterator<Item = &'a AddressBlock>,
) -> Return {
    let mut back = Return {
        allocations: vec![Map::new(); pools.len()],
        ..Return::default()
    };
    for block in blocks {
        let (Mode::Closed(slots) | Mode::Shared(slots)) = &block.mode else {
            continue;
        };
        let is_of_pools = pools.iter().any(|pool| pool.has_block(block));
        let slots = (0..BLOCK_SIZE).zip(slots);
        for (number, slot) in slots.filter(|(_, slot)| is_of_pools && !slot.owner.is_empty()) {
            let address = block.block.address(number);
            let name = || object::name(&block.space, block.block);
            let Some((container, ifname)) = interface(&slot.owner) else {
                back.obstacles.push(Obstacle::Claimed {
                    address,
                    block: name(),
                    claim: slot.owner.clone(),
                });
                continue;
            };
            let before = pools.iter().enumerate().find_map(|(place, pool)| {
                let owner = pool.pool.owner(address).filter(|_| pool.has_block(block))?;
                let is_same = (&*owner.container, &*owner.ifname) == (container, ifname);
                is_same.then(|| (place, owner.clone()))
            });
            let user = slot.pods.first();
            let named = user.map_or("", |user| &user.pool);
            let place = pools.iter().position(|pool| pool.name == named);
            let place = place.or(before.as_ref().map(|(place, _)| *place));
            let Some(place) = place else {
                back.obstacles.push(Obstacle::NoPool {
                    address,
                    block: name(),
                    pool: named.to_owned(),
                });
                continue;
            };
            let owner = before.map_or_else(
                || Owner {
                    container: container.to_owned(),
                    pod: user.map(pod).unwrap_or_default(),
                    ifname: ifname.to_owned(),
                },
                |(_, owner)| owner,
            );
            let pool = &pools[place];
            let offset = pool.subnet.offset(address).unwrap_or_default();
            let entry = json!({"id": owner.container, "podref": owner.pod, "ifname": owner.ifname});
            back.allocations[place].insert(offset.to_string(), entry);
            back.addresses += 1;
            if block.space == pool.network_name {
                let name = reservation::name(&pool.network_name, address);
                back.reservations.insert(name, owner);
            }
        }
    }
    back
}

fn pod(of: &SlotPod) -> String {
    format!("{}/{}", of.namespace, of.name)
}

/// Returns container and interface of a slot's owner, if it is no claim.
fn interface(owner: &str) -> Option<(&str, &str)> {
    let of_pod = owner.strip_prefix("pod/");
    let of_pod = of_pod.and_then(|owner| owner.split_once('/').map(|(_, rest)| rest));
    of_pod
        .or_else(|| owner.strip_prefix(POOL_OWNER))?
        .split_once('/')
}

/// Returns what keeps pools from being adopted that were made after the others were.
pub fn late(pools: &[StoredPool]) -> Vec<Obstacle> {
    let is_adopted = pools.iter().any(|pool| pool.word == ADOPTED);
    let late = pools
        .iter()
        .filter(|pool| is_adopted && pool.is_open() && !pool.is_empty());
    late.map(|pool| Obstacle::Late {
        pool: pool.name.clone(),
    })
    .collect()
}
