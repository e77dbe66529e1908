//! A block of which this node has something: the protocol's state, and who the pods are.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Instant;

use super::{guest, now};
use crate::claim::{MOST_PODS, Usage};
use crate::node::{self, Answer, Change, Mode, Node, Outcome, Record as Held, Request};
use crate::object::{self, AddressBlock, SlotPod};
use crate::range::{BLOCK_SIZE, Block, parse_address};
use crate::request::Id;
use crate::store::{self, Record, Use};
use crate::wire::{Allocation, Attachment};

const SLOTS: usize = BLOCK_SIZE as usize;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    /// The name of the block's object.
    pub(super) name: String,
    pub(super) space: String,
    pub(super) block: Block,
    pub(super) node: Node<Id>,
    /// Who has an address, or has asked for one.
    pub(super) uses: Vec<Use>,
    /// Owners that may still have a slot of the shared block although their use has ended.
    pub(super) ended: Vec<String>,
    /// Claims without a pod whose slots this node frees once they are gone, as owners of slots.
    pub(super) claims: BTreeSet<String>,
    /// Until when an outcome that nobody knows may still change.
    pub(super) open_until: Option<Instant>,
    /// When the block is to be read for slots of owners that have ended.
    pub(super) sweep_due: Option<Instant>,
    /// When the number of used addresses is to be written.
    pub(super) report_due: Option<Instant>,
    /// When the block is tried to be shared again that others want.
    pub(super) share_due: Option<Instant>,
    /// When the block is given back, unless it is used before.
    pub(super) give_back_due: Option<Instant>,
    /// The slot that is tried first: an address that was just freed is not given at once.
    next_slot: usize,
    /// The number of the last answer about this block: what was read before says nothing about it.
    pub(super) answered_at: u64,
}

impl Entry {
    pub(super) fn new(node: Id, space: &str, block: Block) -> Self {
        Self {
            name: object::name(space, block),
            space: space.to_owned(),
            block,
            node: Node::new(node, SLOTS),
            uses: Vec::new(),
            ended: Vec::new(),
            claims: BTreeSet::new(),
            open_until: None,
            sweep_due: None,
            report_due: None,
            share_due: None,
            give_back_due: None,
            next_slot: 0,
            answered_at: 0,
        }
    }

    /// Goes on with a record; `is_current` says that it is of this boot. `None` is one that names another block than its file.
    pub(super) fn resume(
        node: Id,
        record: &Record,
        is_current: bool,
        settled: Instant,
    ) -> Option<Self> {
        let block = Block::of(parse_address(&record.first).ok()?);
        let mut entry = Self::new(node, &record.space, block);
        if entry.name != record.name {
            return None;
        }
        let mut pods = vec![None; SLOTS];
        for one in &record.uses {
            let (slot, owner) = (one.slot as usize, Id::from(one.owner.as_str()));
            if one.is_shared {
                entry.node.shared.push((slot, owner));
            } else {
                *pods.get_mut(slot)? = Some(owner);
            }
        }
        entry.node.record = record.held.as_ref().map(|held| Held {
            uid: held.uid.as_str().into(),
            turn: held.turn,
            frozen: held.frozen,
            confirmed: is_current && held.confirmed,
            pods,
        });
        // What was given last was perhaps not reported.
        entry.report_due = record.held.as_ref().map(|_| Instant::now());
        entry.uses.clone_from(&record.uses);
        entry.ended.clone_from(&record.ended);
        entry.claims = record.claims.iter().cloned().collect();
        // Without a use the file says that the block was asked for.
        if !entry.ended.is_empty() || (record.held.is_none() && record.uses.is_empty()) {
            entry.open_until = Some(settled);
        }
        if entry.open_until.is_some() || !entry.claims.is_empty() {
            entry.sweep_due = Some(Instant::now());
        }
        Some(entry)
    }

    /// Returns what is written to disk.
    pub(super) fn record(&self) -> Record {
        let mut record = Record::new(&self.name, &self.space, &self.block.first().to_string());
        record.held = self.node.record.as_ref().map(|held| store::Held {
            uid: held.uid.to_string(),
            turn: held.turn,
            frozen: held.frozen,
            confirmed: held.confirmed,
        });
        record.uses.clone_from(&self.uses);
        record.ended.clone_from(&self.ended);
        record.claims = self.claims.iter().cloned().collect();
        record
    }

    /// Returns whether nothing of this node is left.
    pub(super) fn is_empty(&self) -> bool {
        let Node {
            record, pending, ..
        } = &self.node;
        record.is_none()
            && pending.is_none()
            && self.uses.is_empty()
            && self.ended.is_empty()
            && self.claims.is_empty()
            && self.open_until.is_none()
    }

    /// Returns whether nobody uses the block, as far as this node knows.
    pub(super) fn is_unused(&self, known: Option<&AddressBlock>) -> bool {
        let is_idle = self.node.pending.is_none() && self.uses.is_empty();
        is_idle && (self.node.record.is_some() || known.is_some_and(AddressBlock::is_unused))
    }

    /// Returns whether the block has pods, and its holder is perhaps a Node that was made anew since.
    pub(super) fn has_to_be_confirmed(&self) -> bool {
        let record = self.node.record.as_ref();
        let is_unconfirmed = record.is_some_and(|record| !record.confirmed);
        is_unconfirmed && self.node.pending.is_none() && !self.uses.is_empty()
    }

    /// Gives an address of the block that this node holds.
    pub(super) fn grant(
        &mut self,
        owner: &Id,
        allocation: &Allocation,
        slots: u32,
        report: Instant,
    ) -> Option<usize> {
        let slots = self.order(slots);
        let Answer::Granted(slot) = self.node.add(None, None, owner, &slots, false, |_| false)
        else {
            return None;
        };
        self.next_slot = slot + 1;
        self.report_due.get_or_insert(report);
        let new = self.new_use(slot, owner, allocation, false);
        self.uses.push(new);
        Some(slot)
    }

    /// Returns the request that gets the block or one of its addresses.
    pub(super) fn ask(
        &mut self,
        seen: Option<&crate::node::Block<Id>>,
        owner: &Id,
        allocation: &Allocation,
        slots: u32,
        shares: bool,
        is_gone: bool,
    ) -> Option<Request<Id>> {
        let slots = self.order(slots);
        let claim = Usage::parse(owner).map(|usage| usage.owner.into());
        let claim = claim.as_ref();
        let answer = (self.node).add(seen, claim, owner, &slots, shares, |_| is_gone);
        let Answer::Send(request) = answer else {
            return None;
        };
        let slot = match &request.change {
            Change::Slot(slot, Some(_)) => Some(*slot),
            Change::Create(Mode::Shared(owners)) => owners.iter().position(Option::is_some),
            _ => None,
        };
        let new = slot.map(|slot| self.new_use(slot, owner, allocation, true));
        self.uses.extend(new);
        Some(request)
    }

    /// Returns whether a use of this owner is still to be ended: what was sent for that must not end the next one.
    pub(super) fn ends(&self, owner: &str) -> bool {
        self.ended.iter().any(|ended| ended == owner)
    }

    /// Returns the request that adds the pod to those of a claim's slot.
    pub(super) fn hold(
        &mut self,
        seen: &node::Block<Id>,
        slot: usize,
        owner: &Id,
        allocation: &Allocation,
    ) -> Option<Request<Id>> {
        let request = self.node.hold(seen, slot, owner, MOST_PODS)?;
        let new = self.new_use(slot, owner, allocation, true);
        self.uses.push(new);
        Some(request)
    }

    fn new_use(&self, slot: usize, owner: &Id, allocation: &Allocation, is_asked: bool) -> Use {
        Use {
            slot: u32::try_from(slot).expect("a block has few slots"),
            owner: owner.to_string(),
            attachment: allocation.attachment.clone(),
            pod: allocation.pod.clone(),
            network: allocation.network.clone(),
            since: now(),
            is_shared: is_asked,
            is_asked,
            pool: guest::pool_of(&allocation.ipam, self.address(slot)).unwrap_or_default(),
        }
    }

    /// Returns the address of a slot.
    pub(super) fn address(&self, slot: usize) -> IpAddr {
        self.block
            .address(u32::try_from(slot).expect("a block has few slots"))
    }

    /// Takes back what was given or asked for last: it could not be written to disk.
    pub(super) fn withdraw(&mut self, owner: &Id) {
        self.node.give_up();
        self.node.del(owner);
        self.uses.retain(|one| *one.owner != **owner);
    }

    /// Returns the slots of a set, beginning with the one after the last that was given.
    fn order(&self, slots: u32) -> Vec<usize> {
        let all = (0..SLOTS).map(|offset| (self.next_slot + offset) % SLOTS);
        all.filter(|slot| slots & (1 << slot) != 0).collect()
    }

    /// The pending request was answered. Returns the slot that a pod has got.
    pub(super) fn answered(&mut self, outcome: Outcome<'_, Id>) -> Option<usize> {
        let slot = self.node.answered(outcome);
        if let Some(slot) = slot {
            self.next_slot = slot + 1;
            let asked = self.uses.iter_mut().find(|one| one.is_asked);
            if let Some(asked) = asked {
                asked.is_asked = false;
            }
        }
        // What was asked for and refused has nothing.
        self.uses.retain(|one| !one.is_asked);
        if !self.ended.is_empty() {
            self.sweep_due = Some(Instant::now());
        }
        self.assign();
        if self.node.record.is_some() && self.used() != 0 {
            // The request that raises a block's turn sets the number of used addresses to 0.
            self.report_due.get_or_insert_with(Instant::now);
        }
        slot
    }

    /// The outcome of the pending request is unknown until then.
    pub(super) fn give_up(&mut self, settled: Instant) {
        self.node.give_up();
        self.open_until = Some(settled);
        self.sweep_due = Some(settled);
        let (asked, uses) = self.uses.drain(..).partition(|one| one.is_asked);
        self.uses = uses;
        let asked: Vec<Use> = asked;
        self.ended.extend(asked.into_iter().map(|one| one.owner));
    }

    /// The block was read, after all that was answered.
    pub(super) fn read(&mut self, seen: Option<&crate::node::Block<Id>>) {
        self.node.read(seen);
        self.assign();
    }

    /// Says of each use whether it is one of the shared block.
    fn assign(&mut self) {
        for one in &mut self.uses {
            let used = (one.slot as usize, Id::from(one.owner.as_str()));
            one.is_shared = one.is_asked || self.node.shared.contains(&used);
        }
    }

    /// Ends the uses of an attachment. Returns whether there was one.
    pub(super) fn end(&mut self, attachment: &Attachment, report: Instant) -> bool {
        let is_over = |one: &Use| one.attachment == *attachment && !one.is_asked;
        let (over, uses): (Vec<_>, Vec<_>) = self.uses.drain(..).partition(is_over);
        self.uses = uses;
        let record = self.node.record.as_ref();
        // The request to share it has the owners of before.
        let is_frozen = record.is_some_and(|record| record.frozen);
        for one in &over {
            self.node.del(&one.owner.as_str().into());
            if one.is_shared || is_frozen {
                self.ended.push(one.owner.clone());
                self.sweep_due = Some(Instant::now());
            } else {
                self.report_due.get_or_insert(report);
            }
        }
        !over.is_empty()
    }

    /// Returns the pod of an owner, for a slot of the shared block.
    pub(super) fn pod(&self, owner: &str) -> Option<SlotPod> {
        let one = self.uses.iter().find(|one| one.owner == owner)?;
        Some(SlotPod {
            namespace: one.pod.namespace.clone(),
            name: one.pod.name.clone(),
            uid: one.pod.uid.clone(),
            node: self.node.name.to_string(),
            // The request says it.
            boot: String::new(),
            interface: Usage::parse(owner)
                .map_or_else(String::new, |usage| usage.interface.to_owned()),
            pool: one.pool.clone(),
        })
    }

    /// Returns the address that an owner has.
    pub(super) fn slot(&self, owner: &str) -> Option<u32> {
        let mut uses = self.uses.iter();
        let found = uses.find(|one| one.owner == owner && !one.is_asked)?;
        Some(found.slot)
    }

    /// Returns the slots of the held block that are in use.
    pub(super) fn used(&self) -> u32 {
        let held = self.uses.iter().filter(|one| !one.is_shared);
        held.fold(0, |set, one| set | 1 << one.slot)
    }
}
