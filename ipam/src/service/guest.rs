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

use super::{ApiError, Failure, Times};
use crate::guest::record::{Record, Records, State as Progress, Use};
use crate::guest::{self, API_VERSION, Definition, Owner, POOLS, Pool, RESERVATIONS, Reservation};
use crate::guest::{pool, reservation};
use crate::range::Range;
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

/// The guest of a node.
pub struct Guest<A> {
    api: A,
    times: Times,
    /// The namespace of the pools.
    namespace: String,
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
            records,
            state: Mutex::new(state),
            turned: Condvar::new(),
        })
    }

    /// Gives an address of each range, or none.
    pub fn add(&self, allocation: &Allocation) -> Result<Vec<Grant>, Failure> {
        let definition = Definition::parse(&allocation.ipam)?;
        if allocation.pod.name.is_empty() || allocation.pod.namespace.is_empty() {
            return Err(Failure::NoPod);
        }
        let attachment = &allocation.attachment;
        let deadline = Instant::now() + self.times.patience;
        self.check_namespace()?;
        let _turn = self.turn(attachment, deadline)?;
        let granted = self.begin(allocation, &definition).and_then(|()| {
            let ranges = definition.ranges.iter();
            ranges
                .map(|range| self.grant(attachment, &definition, range, deadline))
                .collect()
        });
        self.finish(attachment, granted)
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
            address: format!("{}/{}", taken?, range.subnet().length()),
            gateway: gateway.map(|it| it.to_string()).unwrap_or_default(),
        })
    }

    /// Takes an address of a pool and reserves it.
    fn take(&self, exchange: &mut Exchange<'_>, range: &Range) -> Result<IpAddr, Failure> {
        let mut refused = BTreeSet::new();
        loop {
            self.check_time(exchange)?;
            let Some(pool) = self.pool(&exchange.one)? else {
                self.create_pool(&exchange.one)?;
                continue;
            };
            let choice = pool.choose(range, &exchange.owner, |address| refused.contains(&address));
            let choice = choice.ok_or_else(|| full(&exchange.one, &pool, range, refused.len()))?;
            let address = choice.address;
            let seen = self.reservation(&exchange.one, address)?;
            if seen
                .as_ref()
                .is_some_and(|seen| !seen.is_of_pod(&exchange.owner))
            {
                refused.insert(address);
                continue;
            }
            self.note_address(exchange, address)?;
            if !choice.is_taken {
                let patch = pool.take(address, &exchange.owner);
                match self.api.patch(&pool_path(&exchange.one), &patch) {
                    Ok(_) => {}
                    Err(ApiError::Refused(_)) => continue,
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

    /// Frees what is due. Returns when there is more to do, or `None` when nothing is.
    pub fn work(&self) -> Option<Duration> {
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
            let exchange = Exchange {
                attachment,
                owner: entry.record.owner(),
                one: one.clone(),
                deadline,
                is_open: Cell::new(false),
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
            for address in addresses.into_iter().filter(|_| one.is_reserved) {
                let next = pool.as_ref().and_then(|pool| pool.owner(address));
                match next.filter(|next| next.pod == owner.pod && next.container != owner.container)
                {
                    // The pod's next container has the address, and with it the reservation.
                    Some(next) if freed.contains(&address) => self.restore(one, address, next)?,
                    Some(_) => {}
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
                Err(ApiError::Refused(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
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
            let own = pool.of(&owner.container, &owner.ifname);
            if own.is_empty() {
                return Ok(());
            }
            match self.api.patch(&pool_path(one), &pool.free(&own)) {
                Ok(_) => return Ok(()),
                Err(ApiError::Refused(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
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

    fn create_pool(&self, one: &Use) -> Result<(), Failure> {
        let object = pool::object(&one.namespace, &one.pool(), one.subnet);
        let created = self.api.create(&collection(&one.namespace, POOLS), &object);
        match created {
            // Whoever has made it: it is read next. It has no address yet, so nobody has to know the outcome.
            Ok(_) | Err(ApiError::Refused(_) | ApiError::Unknown(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
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

    /// Returns how many addresses pods of this node have of pools.
    pub fn count(&self) -> usize {
        let state = self.lock();
        let given = state.entries.values().map(|entry| &entry.record);
        let given = given.filter(|record| record.state == Progress::Given);
        given.map(|record| record.uses.len()).sum()
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

/// Returns whether a definition's addresses are those of pools.
pub fn serves(ipam: &Map<String, Value>) -> bool {
    ipam.get("type").and_then(Value::as_str) == Some(guest::TYPE)
}

fn collection(namespace: &str, resource: &str) -> String {
    format!("/apis/{API_VERSION}/namespaces/{namespace}/{resource}")
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
