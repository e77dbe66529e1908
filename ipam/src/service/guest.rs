//! The guest of a node: takes addresses from the pools of `whereabouts` for the pods of this node, and frees them.
//!
//! What is asked for is on disk before the request. An unknown outcome is settled by reading again: a write to a pool tests its version, so
//! one that was given up on either shows there or lands no more once the pool has changed. Addresses are freed by what is on disk, as long
//! as a request that was given up on may still land.

#[cfg(test)]
pub(super) mod tests;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::choice::hash;
use super::counts::{AddressState, Addresses, Lists, RangeCount, by_network};
use super::{ApiError, Failure, Times};
use crate::guest::pool::{ADOPTED, NEW, STAMP};
use crate::guest::record::{Record, Records, State as Progress, Use};
use crate::guest::{
    self, API_VERSION, Definition, Owner, POOLS, Pool, RESERVATIONS, Reservation, SLICES, Stamp,
    collection,
};
use crate::guest::{pool, reservation};
use crate::object::{self, AddressBlock, Mode};
use crate::range::{Block, Range, Subnet};
use crate::request::free;
use crate::wire::{Allocation, Attachment, Grant};

/// What the guest asks the API server for, by the paths of objects.
pub trait Objects: Send + Sync {
    /// Reads an object or a list from etcd; `None` is an object or a kind that does not exist.
    fn get(&self, path: &str) -> Result<Option<Value>, ApiError>;
    /// Creates an object in a collection.
    fn create(&self, path: &str, object: &Value) -> Result<Value, ApiError>;
    /// Applies a JSON patch (RFC 6902).
    fn patch(&self, path: &str, steps: &Value) -> Result<Value, ApiError>;
    /// Removes an object under the preconditions of these options.
    fn delete(&self, path: &str, options: &Value) -> Result<(), ApiError>;
}

/// The node's service of blocks, which has the addresses of adopted pools.
pub trait Blocks {
    /// Gives an address of each range in its space, or none.
    fn add(
        &self,
        allocation: &Allocation,
        ranges: &[(String, Range)],
    ) -> Result<Vec<Grant>, Failure>;
    /// Ends what an attachment has got.
    fn end(&self, attachment: &Attachment);
    /// Returns how many answers of the API server about blocks of this node there were.
    fn answers(&self) -> u64;
}

/// The guest of a node.
pub struct Guest<A> {
    api: A,
    times: Times,
    /// The namespace of the pools.
    namespace: String,
    /// The name of the node, which has slices of ranges.
    node: String,
    records: Records,
    state: Mutex<State>,
    /// Notified when an interface or a pool is no longer worked on.
    turned: Condvar,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<Attachment, Entry>,
    /// The interfaces and the pools that a thread works on.
    active: BTreeSet<Attachment>,
    pools: BTreeSet<String>,
    /// Whether the pools are known to be in no other namespace.
    is_at_home: bool,
    /// The spaces of pools that were in blocks when they were read.
    adopted: BTreeMap<String, String>,
    /// How many answers about blocks there were before pools were read that were adopted. What the node has got of blocks since then is
    /// perhaps from after a return, which does not see it.
    read_at: u64,
    /// The names of reservations that were another pod's when they were read: they are read before their address is taken.
    foreign: BTreeSet<String>,
    /// Blocks in which slots were freed that are perhaps the last.
    freed: BTreeSet<(String, Block)>,
    lists: Lists,
}

#[derive(Clone)]
struct Entry {
    record: Record,
    /// Until when a request that was given up on may land.
    settled: Option<Instant>,
    /// When its addresses are to be freed.
    due: Option<Instant>,
}

/// One address that is asked for, or freed.
struct Exchange<'a> {
    attachment: &'a Attachment,
    owner: Owner,
    one: Use,
    deadline: Instant,
    /// Whether a request to take something has no known outcome.
    is_open: Cell<bool>,
    /// How often the pool had changed when it was written.
    refusals: Cell<u32>,
}

/// Where the addresses of a range are.
#[derive(PartialEq)]
enum Place {
    Pool,
    /// In the blocks of this space.
    Blocks(String),
    /// On their way.
    Moving,
}

impl Place {
    fn space(self) -> Option<String> {
        match self {
            Self::Blocks(space) => Some(space),
            Self::Pool | Self::Moving => None,
        }
    }
}

/// What became of the attempt to reserve an address.
enum Reserved {
    Done,
    /// Another pod has it, by another pool.
    Foreign,
}

impl<A: Objects> Guest<A> {
    /// Goes on with the records of a directory.
    pub fn resume(
        api: A,
        records: Records,
        namespace: &str,
        node: &str,
        times: Times,
    ) -> std::io::Result<Self> {
        let now = Instant::now();
        let entries = records.all()?.into_iter().map(|record| {
            let is_ended = record.state == Progress::Ended;
            let entry = Entry {
                record,
                settled: Some(now + times.settled),
                due: is_ended.then_some(now),
            };
            (entry.record.attachment.clone(), entry)
        });
        let state = State {
            entries: entries.collect(),
            ..State::default()
        };
        Ok(Self {
            api,
            times,
            namespace: namespace.to_owned(),
            node: node.to_owned(),
            records,
            state: Mutex::new(state),
            turned: Condvar::new(),
        })
    }

    /// Gives an address of each range, or none.
    pub fn add(
        &self,
        allocation: &Allocation,
        blocks: &impl Blocks,
    ) -> Result<Vec<Grant>, Failure> {
        let definition = Definition::parse(&allocation.ipam)?;
        if allocation.pod.name.is_empty() || allocation.pod.namespace.is_empty() {
            return Err(Failure::NoPod);
        }
        let attachment = &allocation.attachment;
        let deadline = Instant::now() + self.times.patience;
        self.check_namespace()?;
        let definition = self.own_slice(definition, &allocation.network)?;
        self.lock().note_ranges(&definition);
        let _turn = self.turn(attachment, deadline)?;
        let granted = self.begin(allocation, &definition).and_then(|()| {
            if let Some(spaces) = self.remembered(&definition) {
                let granted = self.add_of_blocks(allocation, &definition, spaces, blocks);
                if !matches!(granted, Err(Failure::Full(_) | Failure::Moving)) {
                    return granted;
                }
                // Blocks are closed once the pools have gone back.
                blocks.end(attachment);
                self.lock().adopted.clear();
            }
            let granted = self.add_of_pools(attachment, &definition, deadline);
            if !matches!(granted, Err(Failure::Moving)) {
                return granted;
            }
            if definition.has_slices {
                return Err(Failure::SlicesInBlocks);
            }
            match self.spaces(&definition, deadline, blocks)? {
                Some(spaces) => self.add_of_blocks(allocation, &definition, spaces, blocks),
                None => self.add_of_pools(attachment, &definition, deadline),
            }
        });
        if granted.is_err() {
            blocks.end(attachment);
        }
        self.finish(attachment, granted)
    }

    /// Returns what this node gives of a definition for a network: where it has slices, that of the node.
    fn own_slice(&self, definition: Definition, network: &str) -> Result<Definition, Failure> {
        let Some(name) = definition.slices(network) else {
            return Ok(definition);
        };
        let slices = self.api.get(&path(&self.namespace, SLICES, &name))?;
        let own = slices.map(|slices| definition.of_node(&slices, &self.node));
        let node = self.node.clone();
        own.transpose()?
            .flatten()
            .ok_or(Failure::NoSlice { name, node })
    }

    /// Returns the pool of this node's slice; `None` where it has none, and so no pod has an address of it that could be found.
    fn with_slice(&self, one: &Use) -> Result<Option<Use>, Failure> {
        if one.slices.is_empty() {
            return Ok(Some(one.clone()));
        }
        let slices = self.api.get(&path(&one.namespace, SLICES, &one.slices))?;
        let subnet = slices.and_then(|slices| guest::slice_of(&slices, &self.node)?.parse().ok());
        Ok(subnet.map(|subnet| Use {
            subnet,
            node: self.node.clone(),
            ..one.clone()
        }))
    }

    /// Gives addresses of ranges whose pools give them.
    fn add_of_pools(
        &self,
        attachment: &Attachment,
        definition: &Definition,
        deadline: Instant,
    ) -> Result<Vec<Grant>, Failure> {
        let ranges = definition.ranges.iter();
        ranges
            .map(|range| self.grant(attachment, definition, range, deadline))
            .collect()
    }

    /// Gives addresses of ranges that are in blocks. The record of the interface has them, too, since the blocks may go back to pools.
    fn add_of_blocks(
        &self,
        allocation: &Allocation,
        definition: &Definition,
        spaces: Vec<String>,
        blocks: &impl Blocks,
    ) -> Result<Vec<Grant>, Failure> {
        let ranges = definition.ranges.iter().cloned();
        let ranges: Vec<_> = spaces.into_iter().zip(ranges).collect();
        let mut granted = blocks.add(allocation, &ranges)?;
        let answers = blocks.answers();
        if self.lock().read_at != answers {
            if !self.are_in(&ranges, definition)? {
                return Err(Failure::Moving);
            }
            self.lock().read_at = answers;
        }
        for (grant, range) in granted.iter_mut().zip(&definition.ranges) {
            let gateway = definition.gateway(range);
            grant.gateway = gateway.map(|it| it.to_string()).unwrap_or_default();
        }
        let addresses: Vec<_> = granted.iter().filter_map(address).collect();
        self.change(&allocation.attachment, |entry| {
            let uses = entry.iter_mut().flat_map(|entry| &mut entry.record.uses);
            for one in uses {
                let of_pool = addresses.iter().copied();
                let of_pool = of_pool.filter(|address| one.subnet.contains(*address));
                one.addresses = of_pool.collect();
            }
        })?;
        Ok(granted)
    }

    /// Returns the spaces of the ranges, if all of them were in blocks when their pools were read last.
    fn remembered(&self, definition: &Definition) -> Option<Vec<String>> {
        let state = self.lock();
        let spaces = self.pool_paths(definition);
        spaces
            .iter()
            .map(|path| state.adopted.get(path).cloned())
            .collect()
    }

    /// Returns the spaces of the ranges, whose pools are in blocks; `None` where the pools give addresses again. Waits while they are being
    /// moved.
    fn spaces(
        &self,
        definition: &Definition,
        deadline: Instant,
        blocks: &impl Blocks,
    ) -> Result<Option<Vec<String>>, Failure> {
        let deadline = deadline.min(Instant::now() + self.times.moving);
        let paths = self.pool_paths(definition);
        loop {
            let answers = blocks.answers();
            let places = paths.iter().zip(&definition.ranges);
            let places = places.map(|(path, range)| self.place(path, definition, range));
            let places = places.collect::<Result<Vec<_>, _>>()?;
            if places.iter().all(|place| *place == Place::Pool) {
                return Ok(None);
            }
            if let Some(spaces) = places
                .into_iter()
                .map(Place::space)
                .collect::<Option<Vec<_>>>()
            {
                let known = paths.into_iter().zip(spaces.iter().cloned());
                let mut state = self.lock();
                state.adopted.extend(known);
                state.read_at = answers;
                return Ok(Some(spaces));
            }
            if Instant::now() > deadline {
                return Err(Failure::Moving);
            }
            std::thread::sleep(self.times.look_again);
        }
    }

    /// Returns where the addresses of a range are. Where there is no pool, or a new one, the others decide.
    fn place(&self, path: &str, definition: &Definition, range: &Range) -> Result<Place, Failure> {
        let pool = self.api.get(path)?;
        let pool = pool.map(|object| Pool::parse(&object, range.subnet()));
        let pool = pool.transpose()?;
        if pool.is_none() {
            // A return gives the addresses to it.
            self.create_pool(&self.namespace, &definition.pool(range), range.subnet())?;
        }
        let is_new = pool
            .as_ref()
            .is_none_or(|pool| pool.stamp() == Some(&Stamp::New));
        let stamp = if is_new {
            self.stamp_of_others()?
        } else {
            pool.and_then(|pool| pool.stamp().cloned())
        };
        Ok(match stamp {
            None => Place::Pool,
            Some(Stamp::Adopted(_)) if is_new => Place::Blocks(definition.space(range)),
            Some(Stamp::Adopted(space)) => Place::Blocks(space),
            Some(Stamp::New | Stamp::Moving) => Place::Moving,
        })
    }

    /// Reads whether ranges are still in blocks of these spaces.
    fn are_in(&self, ranges: &[(String, Range)], definition: &Definition) -> Result<bool, Failure> {
        let paths = self.pool_paths(definition);
        for (path, (space, range)) in paths.iter().zip(ranges) {
            if self.place(path, definition, range)?.space().as_ref() != Some(space) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the stamp of a pool that is not a new one, if any has one: that of a pool on its way, if there is one. A node that first finds a
    /// pool in blocks, and then none on its way, knows that all pools are in blocks.
    fn stamp_of_others(&self) -> Result<Option<Stamp>, Failure> {
        let label = STAMP.replace('/', "%2F");
        let first = |selector: &str| -> Result<Option<Stamp>, Failure> {
            let pools = collection(&self.namespace, POOLS);
            let path = format!("{pools}?limit=1&labelSelector={label}{selector}");
            let list = self.api.get(&path)?.ok_or_else(no_kind)?;
            Ok(list.pointer("/items/0").and_then(pool::stamp))
        };
        let adopted = first(&format!("%3D{ADOPTED}"))?;
        let moving = first(&format!("%2C{label}+notin+%28{NEW}%2C{ADOPTED}%29"))?;
        Ok(moving.or(adopted))
    }

    fn pool_paths(&self, definition: &Definition) -> Vec<String> {
        let names = definition.pools();
        names
            .map(|name| path(&self.namespace, POOLS, &name))
            .collect()
    }

    /// Writes that the addresses are asked for.
    fn begin(&self, allocation: &Allocation, definition: &Definition) -> Result<(), Failure> {
        self.change(&allocation.attachment, |entry| {
            let entry = entry.get_or_insert_with(|| Entry::of(allocation, Progress::Asked));
            entry.record.pod = allocation.pod.clone();
            entry.record.state = Progress::Asked;
            entry.record.add_pools(&self.namespace, definition);
            entry.due = None;
        })
    }

    /// Writes that the addresses are given, or that they are to be freed.
    fn finish(
        &self,
        attachment: &Attachment,
        granted: Result<Vec<Grant>, Failure>,
    ) -> Result<Vec<Grant>, Failure> {
        let mut granted = granted;
        let is_ok = granted.is_ok();
        let outcome = self.change(attachment, |entry| {
            let Some(entry) = entry else { return };
            match entry.record.state {
                // A DEL has come meanwhile.
                Progress::Ended => {}
                _ if is_ok => entry.record.state = Progress::Given,
                _ => entry.end(),
            }
        });
        if is_ok && (outcome.is_err() || !self.is_given(attachment)) {
            granted = outcome.and(Err(Failure::Cancelled));
        }
        granted
    }

    fn grant(
        &self,
        attachment: &Attachment,
        definition: &Definition,
        range: &Range,
        deadline: Instant,
    ) -> Result<Grant, Failure> {
        let (owner, one) = {
            let state = self.lock();
            let record = &state.entries[attachment].record;
            let mut uses = record.uses.iter();
            let one = uses.find(|one| one.subnet == range.subnet());
            (record.owner(), one.expect("it was added").clone())
        };
        let mut exchange = Exchange {
            attachment,
            owner,
            one,
            deadline,
            is_open: Cell::new(false),
            refusals: Cell::new(0),
        };
        let _turn = self.pool_turn(&exchange)?;
        let taken = self.take(&mut exchange, range);
        if exchange.is_open.get() {
            let settled = Instant::now() + self.times.settled;
            self.change(attachment, |entry| {
                if let Some(entry) = entry {
                    entry.settled = Some(settled);
                }
            })?;
        }
        let gateway = definition.gateway(range);
        Ok(Grant {
            address: format!("{}/{}", taken?, definition.length(range)),
            gateway: gateway.map(|it| it.to_string()).unwrap_or_default(),
        })
    }

    /// Takes an address of a pool and reserves it.
    fn take(&self, exchange: &mut Exchange<'_>, range: &Range) -> Result<IpAddr, Failure> {
        let mut refused = BTreeSet::new();
        loop {
            self.check_time(exchange)?;
            let Some(pool) = self.pool(&exchange.one)? else {
                let one = &exchange.one;
                self.create_pool(&one.namespace, &one.pool(), one.subnet)?;
                continue;
            };
            match pool.stamp() {
                None => {}
                Some(Stamp::New) if self.stamp_of_others()?.is_none() => {
                    written(self.api.patch(&pool_path(&exchange.one), &pool.open()))?;
                    continue;
                }
                // The runtime tries again, and then it is known where the addresses are.
                Some(_) => return Err(Failure::Moving),
            }
            let choice = pool.choose(range, &exchange.owner, |address| refused.contains(&address));
            let choice = choice.ok_or_else(|| full(&exchange.one, &pool, range, refused.len()))?;
            let address = choice.address;
            let name = reservation::name(&exchange.one.network_name, address);
            let is_read = self.lock().foreign.contains(&name);
            let seen = if is_read {
                self.reservation(&exchange.one, address)?
            } else {
                None
            };
            if seen
                .as_ref()
                .is_some_and(|seen| !seen.is_of_pod(&exchange.owner))
            {
                refused.insert(address);
                continue;
            }
            self.lock().foreign.remove(&name);
            self.note_address(exchange, address)?;
            if !choice.is_taken {
                let patch = pool.take(address, &exchange.owner);
                match self.api.patch(&pool_path(&exchange.one), &patch) {
                    Ok(_) => {}
                    Err(ApiError::Refused(_)) => {
                        self.give_way(exchange);
                        continue;
                    }
                    Err(ApiError::Unknown(_)) => {
                        exchange.is_open.set(true);
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            match self.reserve(exchange, address, seen)? {
                Reserved::Done => return Ok(address),
                Reserved::Foreign => {
                    self.lock().foreign.insert(name);
                    self.free_entries(exchange)?;
                    refused.insert(address);
                }
            }
        }
    }

    /// Makes the pool's reservation of an address the owner's.
    fn reserve(
        &self,
        exchange: &Exchange<'_>,
        address: IpAddr,
        mut seen: Option<Reservation>,
    ) -> Result<Reserved, Failure> {
        let Exchange { one, owner, .. } = exchange;
        if !one.is_reserved {
            return Ok(Reserved::Done);
        }
        let name = reservation::name(&one.network_name, address);
        loop {
            let outcome = match &seen {
                Some(seen) if seen.is_of(owner) => return Ok(Reserved::Done),
                Some(seen) if !seen.is_of_pod(owner) => return Ok(Reserved::Foreign),
                Some(seen) => {
                    let path = path(&one.namespace, RESERVATIONS, &name);
                    self.api.patch(&path, &seen.take_over(owner))
                }
                None => {
                    let object = reservation::object(&one.namespace, &name, owner);
                    self.api
                        .create(&collection(&one.namespace, RESERVATIONS), &object)
                }
            };
            match outcome {
                Ok(_) => return Ok(Reserved::Done),
                Err(ApiError::Refused(_)) => {}
                Err(ApiError::Unknown(_)) => exchange.is_open.set(true),
                Err(error) => return Err(error.into()),
            }
            self.check_time(exchange)?;
            seen = self.reservation(one, address)?;
        }
    }

    /// Returns whether the interface has, or may have, addresses of pools.
    pub fn knows(&self, attachment: &Attachment) -> bool {
        self.lock().entries.contains_key(attachment)
    }

    /// Fails unless the interface has its addresses.
    pub fn check(&self, attachment: &Attachment) -> Result<(), Failure> {
        if self.is_given(attachment) {
            return Ok(());
        }
        Err(Failure::Unassigned(attachment.text()))
    }

    /// Writes that the use of an interface has ended. Its addresses are freed by [`Self::work`]. What has no record here, because the
    /// reference has given it, is looked for in the pools of the definition.
    pub fn del(&self, attachment: &Attachment, of: Option<&Allocation>) -> Result<(), Failure> {
        // The reference could not read such a definition either.
        let definition = of.map(|of| Definition::parse(&of.ipam));
        let definition = definition.and_then(Result::ok);
        if !self.knows(attachment) && definition.is_none() {
            return Ok(());
        }
        self.change(attachment, |entry| {
            if entry.is_none() {
                *entry = of.map(|of| Entry::of(of, Progress::Ended));
            }
            if let Some(entry) = entry {
                if let Some(definition) = &definition {
                    entry.record.add_pools(&self.namespace, definition);
                }
                entry.end();
            }
        })
    }

    /// Ends the uses of a network's interfaces but those of the valid ones, and those that are under way.
    pub fn collect(&self, network: &str, valid: &[Attachment]) -> Result<(), Failure> {
        let over: Vec<_> = {
            let state = self.lock();
            let of_network = state.entries.values().map(|entry| &entry.record);
            let over = of_network.filter(|record| record.network == network);
            over.map(|record| &record.attachment)
                .filter(|one| !valid.contains(one) && !state.active.contains(one))
                .cloned()
                .collect()
        };
        over.iter().try_for_each(|one| self.del(one, None))
    }

    /// Frees what is due. Returns when there is more to do, or `None` when nothing is. An interface with something in blocks waits for them:
    /// what is not free there when they are closed goes back to the pool, where it is freed.
    pub fn work(&self, is_in_blocks: impl Fn(&Attachment) -> bool) -> Option<Duration> {
        let now = Instant::now();
        let due: Vec<Attachment> = {
            let state = self.lock();
            let due = state.entries.iter();
            due.filter(|(one, entry)| {
                entry.due.is_some_and(|due| due <= now) && !state.active.contains(one)
            })
            .map(|(one, _)| one.clone())
            .collect()
        };
        for attachment in due {
            if is_in_blocks(&attachment) {
                self.postpone(|one| *one == attachment);
                continue;
            }
            if let Err(failure) = self.free(&attachment) {
                if matches!(failure, Failure::Api(ApiError::Unknown(_))) {
                    // The others would wait for the same server.
                    self.postpone(|_| true);
                    break;
                }
                self.postpone(|one| *one == attachment);
            }
        }
        let state = self.lock();
        let due = state.entries.iter();
        let due = due.filter(|(one, _)| !state.active.contains(one));
        let next = due.filter_map(|(_, entry)| entry.due).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Puts off what is due of some interfaces, since a request has failed.
    fn postpone(&self, of: impl Fn(&Attachment) -> bool) {
        let again = Instant::now() + self.times.again;
        for (one, entry) in &mut self.lock().entries {
            if of(one) {
                entry.due = entry.due.map(|due| due.max(again));
            }
        }
    }

    /// Frees the addresses of an interface, and forgets it unless a request of it may still land.
    fn free(&self, attachment: &Attachment) -> Result<(), Failure> {
        let begin = Instant::now();
        let deadline = begin + self.times.patience;
        let _turn = self.turn(attachment, deadline)?;
        let Some(entry) = self.lock().entries.get(attachment).cloned() else {
            return Ok(());
        };
        if entry.record.state != Progress::Ended {
            return Ok(());
        }
        for one in &entry.record.uses {
            let Some(one) = self.with_slice(one)? else {
                continue;
            };
            let exchange = Exchange {
                attachment,
                owner: entry.record.owner(),
                one,
                deadline,
                is_open: Cell::new(false),
                refusals: Cell::new(0),
            };
            let _turn = self.pool_turn(&exchange)?;
            self.free_use(&exchange)?;
        }
        self.change(attachment, |entry| {
            let settled = entry.as_ref().and_then(|entry| entry.settled);
            match (settled.filter(|settled| *settled > begin), &mut *entry) {
                (Some(settled), Some(entry)) => entry.due = Some(settled),
                _ => *entry = None,
            }
        })
    }

    /// Frees what an owner has of one pool: first the reservation, then the pool's entry, so that whoever finds the entry gone finds the
    /// address free.
    fn free_use(&self, exchange: &Exchange<'_>) -> Result<(), Failure> {
        let Exchange { owner, one, .. } = exchange;
        let mut freed = BTreeSet::new();
        loop {
            exchange.check_deadline()?;
            let pool = self.pool(one)?;
            let own = pool
                .as_ref()
                .map(|pool| pool.of(&owner.container, &owner.ifname));
            let own = own.unwrap_or_default();
            let noted = one.addresses.iter().filter(|noted| !own.contains(noted));
            let mut addresses = own.clone();
            addresses.extend(noted);
            match pool.as_ref().and_then(Pool::stamp) {
                Some(Stamp::Adopted(space)) => {
                    let mut all = addresses.iter();
                    return all.try_for_each(|address| self.free_slot(exchange, space, *address));
                }
                Some(Stamp::Moving) => return Err(Failure::Moving),
                Some(Stamp::New) | None => {}
            }
            for address in addresses.into_iter().filter(|_| one.is_reserved) {
                let next = pool.as_ref().and_then(|pool| pool.owner(address));
                match next.filter(|next| next.pod == owner.pod && next.container != owner.container)
                {
                    // The pod's next container has the address, and with it the reservation.
                    Some(next) if freed.contains(&address) => self.restore(one, address, next)?,
                    Some(_) => {}
                    None if freed.contains(&address) => {}
                    None => {
                        let is_own = own.contains(&address);
                        if self.free_reservation(exchange, address, is_own)? {
                            freed.insert(address);
                        }
                    }
                }
            }
            let Some(pool) = pool.filter(|_| !own.is_empty()) else {
                return Ok(());
            };
            match self.api.patch(&pool_path(one), &pool.free(&own)) {
                Ok(_) => return Ok(()),
                Err(ApiError::Refused(_)) => self.give_way(exchange),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Frees the address in its block, if it came there with the pool for this interface.
    fn free_slot(
        &self,
        exchange: &Exchange<'_>,
        space: &str,
        address: IpAddr,
    ) -> Result<(), Failure> {
        let Owner {
            container, ifname, ..
        } = &exchange.owner;
        let owner = guest::slot_owner(container, ifname);
        let block = Block::of(address);
        let place = format!("{}/{}", object::PATH, object::name(space, block));
        loop {
            exchange.check_deadline()?;
            let Some(object) = self.api.get(&place)? else {
                return Ok(());
            };
            let seen = AddressBlock::parse(&object)?;
            let slots = match &seen.mode {
                Mode::Shared(slots) => slots,
                Mode::Closed(_) => return Err(Failure::Moving),
                Mode::Node(_) => return Ok(()),
            };
            let slot = block.slot(address).unwrap_or_default() as usize;
            let is_own = slots.get(slot).is_some_and(|slot| slot.owner == owner);
            let Some(patch) = free(&seen, slot).filter(|_| is_own) else {
                return Ok(());
            };
            match self.api.patch(&place, &patch) {
                Ok(_) => {
                    let freed = (space.to_owned(), block);
                    self.lock().freed.insert(freed);
                    return Ok(());
                }
                Err(ApiError::Refused(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the blocks with slots that were freed since the last call.
    pub fn take_freed(&self) -> BTreeSet<(String, Block)> {
        std::mem::take(&mut self.lock().freed)
    }

    /// Removes the reservation of an address if it is the owner's. Returns whether it was.
    fn free_reservation(
        &self,
        exchange: &Exchange<'_>,
        address: IpAddr,
        is_in_pool: bool,
    ) -> Result<bool, Failure> {
        let Exchange { owner, one, .. } = exchange;
        let name = reservation::name(&one.network_name, address);
        loop {
            exchange.check_deadline()?;
            let seen = self.reservation(one, address)?;
            let is_own = |seen: &Reservation| {
                seen.is_of(owner) || (is_in_pool && seen.is_of_reference(owner))
            };
            let Some(seen) = seen.filter(is_own) else {
                return Ok(false);
            };
            let path = path(&one.namespace, RESERVATIONS, &name);
            match self.api.delete(&path, &seen.delete_options()) {
                Ok(()) => return Ok(true),
                Err(ApiError::Refused(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes the reservation again that was removed while the pod's next container took the address over by the pool.
    fn restore(&self, one: &Use, address: IpAddr, next: &Owner) -> Result<(), Failure> {
        let name = reservation::name(&one.network_name, address);
        let object = reservation::object(&one.namespace, &name, next);
        let made = self
            .api
            .create(&collection(&one.namespace, RESERVATIONS), &object);
        match made {
            // It has made one itself.
            Ok(_) | Err(ApiError::Refused(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the owner's entries from the pool.
    fn free_entries(&self, exchange: &Exchange<'_>) -> Result<(), Failure> {
        let Exchange { owner, one, .. } = exchange;
        loop {
            exchange.check_deadline()?;
            let Some(pool) = self.pool(one)? else {
                return Ok(());
            };
            if pool.stamp().is_some() {
                return Err(Failure::Moving);
            }
            let own = pool.of(&owner.container, &owner.ifname);
            if own.is_empty() {
                return Ok(());
            }
            match self.api.patch(&pool_path(one), &pool.free(&own)) {
                Ok(_) => return Ok(()),
                Err(ApiError::Refused(_)) => self.give_way(exchange),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Lets others write the pool first. Where all that were refused write again at once, each time all but one are refused.
    fn give_way(&self, exchange: &Exchange<'_>) {
        let refusals = exchange.refusals.get() + 1;
        exchange.refusals.set(refusals);
        let container = &exchange.owner.container;
        std::thread::sleep(pause(self.times.look_again, container, refusals));
    }

    /// Fails while pools are in another namespace: the same ranges would be given twice, here and there.
    fn check_namespace(&self) -> Result<(), Failure> {
        if self.lock().is_at_home {
            return Ok(());
        }
        let others = format!(
            "/apis/{API_VERSION}/{POOLS}?limit=1&fieldSelector=metadata.namespace%21%3D{}",
            self.namespace
        );
        let list = self.api.get(&others)?.ok_or_else(no_kind)?;
        let other = list.pointer("/items/0/metadata/namespace");
        if let Some(found) = other.and_then(Value::as_str) {
            return Err(Failure::OtherNamespace {
                found: found.to_owned(),
                own: self.namespace.clone(),
            });
        }
        self.lock().is_at_home = true;
        Ok(())
    }

    fn pool(&self, one: &Use) -> Result<Option<Pool>, Failure> {
        let object = self.api.get(&pool_path(one))?;
        let pool = object.map(|object| Pool::parse(&object, one.subnet));
        Ok(pool.transpose()?)
    }

    fn create_pool(&self, namespace: &str, name: &str, subnet: Subnet) -> Result<(), Failure> {
        let object = pool::object(namespace, name, subnet);
        // Whoever has made it: it is read next. It has no address yet, so nobody has to know the outcome.
        written(self.api.create(&collection(namespace, POOLS), &object))
    }

    fn reservation(&self, one: &Use, address: IpAddr) -> Result<Option<Reservation>, Failure> {
        if !one.is_reserved {
            return Ok(None);
        }
        let name = reservation::name(&one.network_name, address);
        let object = self.api.get(&path(&one.namespace, RESERVATIONS, &name))?;
        Ok(object.as_ref().map(Reservation::parse))
    }

    /// Writes which address is asked for, before it is. Others stay while a request for one may still land.
    fn note_address(&self, exchange: &mut Exchange<'_>, address: IpAddr) -> Result<(), Failure> {
        let addresses = &mut exchange.one.addresses;
        if addresses.last() == Some(&address) {
            return Ok(());
        }
        addresses.retain(|other| exchange.is_open.get() && *other != address);
        addresses.push(address);
        let pool = exchange.one.pool();
        self.change(exchange.attachment, |entry| {
            let uses = entry.iter_mut().flat_map(|entry| &mut entry.record.uses);
            uses.filter(|one| one.pool() == pool)
                .for_each(|one| one.addresses.clone_from(&exchange.one.addresses));
        })
    }

    /// Changes what is known of an interface, and its record. When that cannot be written, nothing has changed.
    fn change(
        &self,
        attachment: &Attachment,
        change: impl FnOnce(&mut Option<Entry>),
    ) -> Result<(), Failure> {
        let mut state = self.lock();
        let before = state.entries.get(attachment).cloned();
        let mut entry = before.clone();
        change(&mut entry);
        let written = match &entry {
            Some(after) if before.as_ref().is_some_and(|it| it.record == after.record) => Ok(()),
            Some(after) => self.records.keep(&after.record),
            None => self.records.forget(attachment),
        };
        written.map_err(|source| Failure::Record {
            name: format!("of {}", attachment.text()),
            source,
        })?;
        match entry {
            Some(entry) => state.entries.insert(attachment.clone(), entry),
            None => state.entries.remove(attachment),
        };
        Ok(())
    }

    fn is_given(&self, attachment: &Attachment) -> bool {
        let state = self.lock();
        let entry = state.entries.get(attachment);
        entry.is_some_and(|entry| entry.record.state == Progress::Given)
    }

    /// Returns how many addresses pods of this node have of pools or have asked for, also where these are in blocks.
    pub fn addresses(&self) -> Addresses {
        let state = self.lock();
        let records = state.entries.values().map(|entry| &entry.record);
        by_network(records.filter_map(|record| {
            let state = match record.state {
                Progress::Asked => AddressState::Asked,
                Progress::Given => AddressState::Given,
                Progress::Ended => return None,
            };
            Some((&record.network, state, record.uses.len()))
        }))
    }

    /// Returns the ranges of which pods of this node have asked for an address since the service started.
    pub fn ranges(&self) -> Vec<RangeCount> {
        let state = self.lock();
        state
            .lists
            .counts(|name, list| used(name, list, &state.entries))
    }

    /// Fails when an ADD has no time left, or was ended by a DEL.
    fn check_time(&self, exchange: &Exchange<'_>) -> Result<(), Failure> {
        let state = self.lock();
        let entry = state.entries.get(exchange.attachment);
        if entry.is_none_or(|entry| entry.record.state == Progress::Ended) {
            return Err(Failure::Cancelled);
        }
        drop(state);
        exchange.check_deadline()
    }

    /// Waits until no other thread works on an interface.
    fn turn(&self, attachment: &Attachment, deadline: Instant) -> Result<Turn<'_, A>, Failure> {
        let taken = |state: &mut State| state.active.insert(attachment.clone());
        let key = Key::Interface(attachment.clone());
        self.wait(taken, key, deadline, || attachment.text())
    }

    /// Waits until no other thread of this node works on a pool: these would only fail at each other's writes.
    fn pool_turn(&self, exchange: &Exchange<'_>) -> Result<Turn<'_, A>, Failure> {
        let path = pool_path(&exchange.one);
        let taken = |state: &mut State| state.pools.insert(path.clone());
        let key = Key::Pool(path.clone());
        self.wait(taken, key, exchange.deadline, || path.clone())
    }

    fn wait(
        &self,
        taken: impl Fn(&mut State) -> bool,
        key: Key,
        deadline: Instant,
        what: impl Fn() -> String,
    ) -> Result<Turn<'_, A>, Failure> {
        let mut state = self.lock();
        while !taken(&mut state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::Busy(what()));
            }
            let waited = self.turned.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(Turn { guest: self, key })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a thread works on until this is dropped.
struct Turn<'a, A> {
    guest: &'a Guest<A>,
    key: Key,
}

enum Key {
    Interface(Attachment),
    Pool(String),
}

impl<A> Drop for Turn<'_, A> {
    fn drop(&mut self) {
        let mut state = self
            .guest
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match &self.key {
            Key::Interface(attachment) => state.active.remove(attachment),
            Key::Pool(path) => state.pools.remove(path),
        };
        drop(state);
        self.guest.turned.notify_all();
    }
}

impl Exchange<'_> {
    fn check_deadline(&self) -> Result<(), Failure> {
        if Instant::now() > self.deadline {
            return Err(Failure::Busy(format!("IPPool {}", self.one.pool())));
        }
        Ok(())
    }
}

impl State {
    /// A pod asks for an address of each range of a definition.
    fn note_ranges(&mut self, definition: &Definition) {
        let Self { lists, entries, .. } = self;
        let ranges = definition.ranges.iter();
        let noted = ranges.map(|range| (&*definition.network_name, std::slice::from_ref(range)));
        lists.note(noted, |name, list| used(name, list, entries));
    }
}

/// Returns how many addresses of ranges pods of this node have, of pools of networks with this name.
fn used(name: &str, list: &[Range], entries: &BTreeMap<Attachment, Entry>) -> usize {
    let records = entries.values().map(|entry| &entry.record);
    let given = records.filter(|record| record.state == Progress::Given);
    let uses = given.flat_map(|record| &record.uses);
    let addresses = uses
        .filter(|one| one.network_name == name)
        .filter_map(|one| one.addresses.last());
    addresses
        .filter(|address| list.iter().any(|range| range.contains(**address)))
        .count()
}

impl Entry {
    fn of(allocation: &Allocation, state: Progress) -> Self {
        let Allocation {
            attachment,
            pod,
            network,
            ..
        } = allocation;
        Self {
            record: Record::new(attachment.clone(), pod.clone(), network, state),
            settled: None,
            due: None,
        }
    }

    fn end(&mut self) {
        self.record.state = Progress::Ended;
        self.due = Some(Instant::now());
    }
}

/// A write that somebody else was faster with, or whose outcome is unknown, is seen when the object is read again.
fn written(outcome: Result<Value, ApiError>) -> Result<(), Failure> {
    match outcome {
        Ok(_) | Err(ApiError::Refused(_) | ApiError::Unknown(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns for how long a container waits after a write was refused so often: for any time up to a longest one. That grows at first, so that
/// fewer write at once, and then falls, so that one that has waited for long goes before those that came later.
fn pause(look_again: Duration, container: &str, refusals: u32) -> Duration {
    let most = look_again * refusals.min(8_u32.saturating_sub(refusals)).max(1) / 2;
    let share = hash(&[container, &refusals.to_string()]) % u128::from(u16::MAX);
    most * u32::try_from(share).unwrap_or_default() / u32::from(u16::MAX)
}

fn address(grant: &Grant) -> Option<IpAddr> {
    let (address, _) = grant.address.split_once('/')?;
    address.parse().ok()
}

/// Returns the name of the pool that a definition has an address of.
pub(super) fn pool_of(ipam: &Map<String, Value>, address: IpAddr) -> Option<String> {
    if !serves(ipam) {
        return None;
    }
    let definition = Definition::parse(ipam).ok()?;
    let mut ranges = definition.ranges.iter();
    let range = ranges.find(|range| range.contains(address))?;
    Some(definition.pool(range))
}

/// Returns whether a definition's addresses are those of pools.
pub fn serves(ipam: &Map<String, Value>) -> bool {
    ipam.get("type").and_then(Value::as_str) == Some(guest::TYPE)
}

fn pool_path(one: &Use) -> String {
    path(&one.namespace, POOLS, &one.pool())
}

fn path(namespace: &str, resource: &str, name: &str) -> String {
    format!("{}/{name}", collection(namespace, resource))
}

/// Returns the failure of a request for a kind that the cluster does not have.
pub fn no_kind() -> ApiError {
    ApiError::Failed(format!(
        "the cluster has no {POOLS} or {RESERVATIONS} of {API_VERSION}: install the resource definitions of whereabouts, correct ipam.whereaboutsNamespace, or use the type multus-ipam"
    ))
}

fn full(one: &Use, pool: &Pool, range: &Range, refused: usize) -> Failure {
    let (subnet, used) = (one.subnet, pool.used(range));
    let elsewhere = match refused {
        0 => String::new(),
        refused => format!(", {refused} reserved by pods of other ranges"),
    };
    let name = one.pool();
    Failure::Full(format!(
        "{subnet} has no free address: {used} in use by IPPool {name}{elsewhere}"
    ))
}
