//! What is to be done next for a pod without an address. Nothing here waits or asks anybody.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::claims::Abandoned;
use super::entry::Entry;
use super::{State, Take, Times};
use crate::claim::ClaimError;
use crate::node::{self, Change, Request, User};
use crate::object::{self, Holder, Mode, Slot};
use crate::range::{BLOCK_SIZE, Block, Range};
use crate::request::{Id, Own, want};

/// Blocks of a range of up to so many addresses are shared from the start.
const SMALL: u128 = 256;

/// So many slots of this node whose use has ended wait at most for being freed while it takes others: pods that come and go would else take
/// all of them, and requests that find no free slot would leave the API server no time for those that free some.
const MOST_ENDED: usize = 16;

/// So many holders may leave a pod without an answer until it fails.
const SILENT: u32 = 2;

/// The next step of an ADD.
#[derive(Debug)]
pub(super) enum Step {
    /// The pod had this address before.
    Had(IpAddr),
    /// The pod has this address of this block now.
    Granted(String, IpAddr),
    /// The request that the block's entry has pending is to be sent.
    Exchange(String, Request<Id>),
    /// The use of a pod whose node is gone is to end.
    Free(String, Request<Id>),
    /// Claims are to be read, and slots of those that are gone to be freed.
    AskForClaims(Vec<Abandoned>),
    /// The block is to be read.
    Read(String),
    /// All blocks of the space are to be read.
    List,
    /// The holder of the block is to be asked to share it.
    Want(String, Value),
    /// The block is to be read after a pause.
    LookAgain(String),
    /// The Nodes of these names are to be read.
    ReadNodes(BTreeSet<Id>),
    /// Slots whose use has ended are to be freed in these blocks, which are let go where they are deleted.
    Sweep(Vec<String>),
    /// Another ADD has a request under way for such a block.
    Wait,
    /// There is no address.
    Full(String),
    /// The claim gives the pod none.
    Refused(ClaimError),
}

impl State {
    pub(super) fn next(&mut self, take: &mut Take<'_>, own: &Own, times: &Times) -> Step {
        if let Some(step) = self.has_already(take) {
            return step;
        }
        let is_claimed = take.claim.is_some();
        let held = if is_claimed {
            self.take_claimed(take, own, times)
        } else {
            self.take_held(take, own, times)
        };
        if let Some(step) = held {
            return step;
        }
        if !std::mem::replace(&mut take.has_caught_up, true) {
            let ended = self.ended_entries(take).map(|entry| entry.ended.len());
            if ended.sum::<usize>() >= MOST_ENDED {
                return Step::Sweep(self.ended(take));
            }
        }
        let total: u128 = take.list.iter().map(Range::block_count).sum();
        let is_all_shared = take.list.iter().map(Range::count).sum::<u128>() <= SMALL;
        let is_small = is_claimed || is_all_shared;
        // A node makes the block with which it begins in a small range, unless another node has made it, although other blocks have free
        // addresses: where all nodes take slots of one block, each request makes older what the others know of it.
        let is_tried = if is_small {
            is_all_shared
                && take.is_listed
                && !self.is_known(&name_at(take, self.home(take, own, total)))
        } else {
            !take.is_listed
        };
        if is_tried
            && !std::mem::replace(&mut take.has_tried, true)
            && let Some(step) = self.create(take, own, total, is_small)
        {
            return step;
        }
        if is_small && let Some(step) = self.take_shared(take, own, total) {
            return step;
        }
        if !std::mem::replace(&mut take.is_listed, true) {
            // The list reads all blocks again.
            take.reread.clear();
            return look(take, total);
        }
        let taken = self.blocks(take).len() as u128;
        if !is_small
            && taken * 4 < total * 3
            && let Some(step) = self.create(take, own, total, false)
        {
            return step;
        }
        if let Some(step) = self.take_shared(take, own, total) {
            return step;
        }
        if let Some(step) = self.create(take, own, total, true) {
            return step;
        }
        if is_claimed && let Some(step) = self.share_own(take, own) {
            return step;
        }
        if let Some(step) = self.take_what_is_left(take, own, times) {
            return step;
        }
        if !std::mem::replace(&mut take.has_asked_for_claims, true) {
            let abandoned = self.abandoned(take);
            if !abandoned.is_empty() {
                return Step::AskForClaims(abandoned);
            }
        }
        if let Some(step) = self.want_others(take, own, times) {
            return step;
        }
        if !std::mem::replace(&mut take.has_swept, true) {
            return Step::Sweep(self.ended(take));
        }
        Step::Full(self.text(take, times))
    }

    /// Returns the blocks of this ADD in which slots of this node are to be freed.
    fn ended_entries(&self, take: &Take<'_>) -> impl Iterator<Item = &Entry> {
        let entries = self.entries.values();
        entries
            .filter(|entry| !entry.ended.is_empty() && take.slots(&entry.space, entry.block) != 0)
    }

    /// Returns the names of these blocks, and of those that are to be let go.
    fn ended(&self, take: &Take<'_>) -> Vec<String> {
        let ended = self.ended_entries(take);
        let known = self.known.iter();
        let deleted = known
            .filter(|(_, block)| block.is_deleted && take.slots(&block.space, block.block) != 0);
        let deleted = deleted.map(|(name, _)| name);
        ended
            .map(|entry| &entry.name)
            .chain(deleted)
            .cloned()
            .collect()
    }

    /// An ADD that is repeated has its address.
    fn has_already(&self, take: &Take<'_>) -> Option<Step> {
        self.entries.values().find_map(|entry| {
            let slot = entry
                .slot(&take.owner)
                .filter(|_| entry.space == take.space)?;
            let address = entry.block.address(slot);
            let is_listed = take.list.iter().any(|range| range.contains(address));
            is_listed.then_some(Step::Had(address))
        })
    }

    fn take_held(&mut self, take: &mut Take<'_>, own: &Own, times: &Times) -> Option<Step> {
        let report = Instant::now() + times.report;
        let (mut is_pending, mut open) = (false, None);
        for (name, entry) in &mut self.entries {
            let slots = take.slots(&entry.space, entry.block);
            let known = self.known.get(name);
            let is_deleted = known.is_some_and(|known| known.is_deleted);
            if slots == 0 || is_deleted || self.unusable.why(name).is_some() {
                continue;
            }
            let is_shared = known.is_some_and(|known| matches!(known.mode, Mode::Shared(_)));
            match &entry.node {
                // Other blocks are shared, too.
                node if node.pending.is_some() && is_shared => {}
                node if node.pending.is_some() => is_pending = true,
                node if node.record.is_none() && entry.open_until.is_none() => {}
                node if node
                    .record
                    .as_ref()
                    .is_some_and(|record| record.confirmed && !record.frozen) =>
                {
                    if let Some(slot) = entry.grant(&take.owner, take.allocation, slots, report) {
                        return Some(Step::Granted(name.clone(), entry.address(slot)));
                    }
                }
                _ => open = open.or(Some(name.clone())),
            }
        }
        if is_pending {
            return Some(Step::Wait);
        }
        let name = open?;
        if take.read.insert(name.clone()) {
            return Some(Step::Read(name));
        }
        let known = self.known.get(&name)?;
        let (view, is_wanted) = (own.view(known), !known.wanted.is_empty());
        let entry = self.entries.get_mut(&name)?;
        // A frozen block was to be shared or given back, and was not. Under a new turn it gives again, unless others still want it.
        let share = if is_wanted { entry.node.share() } else { None };
        let request = share.or_else(|| entry.node.confirm(&view));
        Some(Step::Exchange(name, request?))
    }

    /// Takes a slot of a shared block. Nodes begin at different blocks, and leave slots of a block to each other, so that two of them seldom
    /// choose the same one. A node goes on with the block of its newest answer as long as that has slots which are left to it, and reads
    /// another block first: what it knows of that one is older.
    fn take_shared(&mut self, take: &mut Take<'_>, own: &Own, total: u128) -> Option<Step> {
        let mut is_pending = false;
        let home = name_at(take, self.home(take, own, total));
        let names = self.blocks(take);
        let offers =
            rotated(&names, &own.holder.node).filter_map(|name| self.offer(name, take, own));
        let mut offers: Vec<_> = offers.collect();
        offers.sort_by_key(|offer| {
            (
                offer.share == 0,
                Reverse(offer.answered_at),
                *offer.name != home,
            )
        });
        let newest = names.iter().map(|name| self.answered_at(name)).max();
        let newest = newest.flatten();
        for Offer {
            name,
            free,
            share,
            answered_at,
        } in offers
        {
            let is_old = !take.reread.is_empty() || (answered_at < newest && !take.is_listed);
            // After a refused slot of a block another one is tried unread only where it is left to this node.
            let is_doubtful = share == 0 && take.refused_in(name) != 0;
            if (is_old || is_doubtful) && take.reread.insert(name.clone()) {
                return Some(Step::Read(name.clone()));
            }
            if free == 0 {
                continue;
            }
            let block = &self.known[name];
            let view = own.view(block);
            let entry = entry(&mut self.entries, name, own, block.block, take.space);
            let ends = entry.ends(&take.owner);
            if ends && take.read.insert(name.clone()) {
                return Some(Step::Sweep(vec![name.clone()]));
            }
            if ends || entry.node.pending.is_some() {
                is_pending = true;
                continue;
            }
            let slot = one_of(if share == 0 { free } else { share }, hash(&[&take.owner]));
            let asked = entry.ask(Some(&view), &take.owner, take.allocation, slot, true, false);
            if let Some(request) = asked {
                return Some(Step::Exchange(name.clone(), request));
            }
        }
        is_pending.then_some(Step::Wait)
    }

    /// Returns what a shared block offers an ADD; `None` is one that is full.
    fn offer<'a>(&self, name: &'a String, take: &Take<'_>, own: &Own) -> Option<Offer<'a>> {
        let block = &self.known[name];
        let Mode::Shared(slots) = &block.mode else {
            return None;
        };
        let free = object::free_slots(slots) & take.slots(&block.space, block.block);
        let is_usable = free != 0 && !block.is_deleted;
        let free = free & !take.refused_in(name);
        is_usable.then(|| Offer {
            name,
            free,
            share: share(free, slots, name, &own.holder.node),
            answered_at: self.answered_at(name),
        })
    }

    /// Returns the number of the last answer about a block, if there was one.
    fn answered_at(&self, name: &str) -> Option<u64> {
        self.entries.get(name).map(|entry| entry.answered_at)
    }

    /// Returns the place of the block with which this node begins: of two places, which differ from node to node, the one with fewer addresses
    /// in use as far as this node knows.
    fn home(&self, take: &Take<'_>, own: &Own, total: u128) -> u128 {
        let used = |start: &u128| match self
            .known
            .get(&name_at(take, *start))
            .map(|block| &block.mode)
        {
            None => 0,
            Some(Mode::Shared(slots)) => object::free_slots(slots).count_zeros(),
            Some(Mode::Node(_) | Mode::Closed(_)) => BLOCK_SIZE,
        };
        let starts = ["", "second"].map(|salt| hash(&[salt, &own.holder.node]) % total.max(1));
        starts.into_iter().min_by_key(used).unwrap_or_default()
    }

    /// Returns whether there is such a block, or something in its place that cannot be used.
    fn is_known(&self, name: &str) -> bool {
        self.known.contains_key(name) || self.unusable.why(name).is_some()
    }

    /// Creates a block at a place that is free as far as this node knows.
    fn create(&mut self, take: &Take<'_>, own: &Own, total: u128, shares: bool) -> Option<Step> {
        let Unusable { damaged, spoilt } = &self.unusable;
        let known = (self.known.len() + damaged.len() + spoilt.len()) as u128;
        let start = self.home(take, own, total);
        for offset in 0..total.min(known + 1) {
            let block = place(take.list, (start + offset) % total)?;
            let name = object::name(take.space, block);
            if self.is_known(&name) {
                continue;
            }
            let slots = take.slots(take.space, block);
            let entry = entry(&mut self.entries, &name, own, block, take.space);
            if entry.node.pending.is_some() {
                return Some(Step::Wait);
            }
            if entry.node.record.is_some() {
                continue;
            }
            let asked = entry.ask(None, &take.owner, take.allocation, slots, shares, false);
            if let Some(request) = asked {
                return Some(Step::Exchange(name, request));
            }
        }
        None
    }

    /// Takes what nodes have left behind whose Nodes are gone for long enough.
    fn take_what_is_left(&mut self, take: &mut Take<'_>, own: &Own, times: &Times) -> Option<Step> {
        let names = self.blocks(take);
        if !std::mem::replace(&mut take.has_asked_for_nodes, true) {
            let blocks = names.iter().map(|name| &self.known[name].mode);
            let nodes: BTreeSet<Id> = blocks.flat_map(nodes).collect();
            let others: BTreeSet<_> = nodes
                .into_iter()
                .filter(|node| *node != own.holder.node)
                .collect();
            return (!others.is_empty()).then_some(Step::ReadNodes(others));
        }
        for name in &names {
            let block = &self.known[name];
            let slots = take.slots(&block.space, block.block);
            let view = own.view(block);
            match &block.mode {
                // A block that is being deleted is taken as well: only its holder lets it go.
                Mode::Node(holder) if self.is_missing(&holder_key(holder), times.gone) => {
                    let entry = entry(&mut self.entries, name, own, block.block, take.space);
                    let view = Some(&view);
                    let asked = entry.ask(view, &take.owner, take.allocation, slots, false, true);
                    if let Some(request) = asked {
                        return Some(Step::Exchange(name.clone(), request));
                    }
                }
                Mode::Shared(_) => {
                    if let Some((_, request)) = self.left(&view, own, times).next() {
                        return Some(Step::Free(name.clone(), request));
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Returns what pods of nodes have left in a block whose Nodes are gone for long enough.
    pub(super) fn left(
        &self,
        view: &node::Block<Id>,
        own: &Own,
        times: &Times,
    ) -> impl Iterator<Item = (User<Id>, Request<Id>)> + use<> {
        let none = node::Node::new(own.holder.node.clone(), 32);
        let all = none.free(view, |node| self.is_missing(node, times.gone));
        let own = own.holder.node.clone();
        all.into_iter().filter(move |(user, _)| user.node != own)
    }

    /// Asks another node to share a block that has free addresses.
    fn want_others(&mut self, take: &mut Take<'_>, own: &Own, times: &Times) -> Option<Step> {
        if let Some((until, name)) = &take.wanted {
            let known = self.known.get(name).map(|block| &block.mode);
            let is_awaited = matches!(known, Some(Mode::Node(_)));
            if is_awaited && Instant::now() < *until {
                return Some(Step::LookAgain(name.clone()));
            }
            take.silent += u32::from(is_awaited);
            take.wanted = None;
        }
        if take.silent > SILENT {
            return None;
        }
        let names = self.blocks(take);
        let has_free = |name: &&String| {
            let block = &self.known[*name];
            let slots = take.slots(&block.space, block.block);
            let is_other =
                !matches!(own.view(block).mode, node::Mode::Node(node) if node == own.holder.node);
            matches!(block.mode, Mode::Node(_))
                && is_other
                && !take.asked.contains(*name)
                && !block.is_deleted
                && block.used.is_none_or(|used| used & slots != slots)
        };
        let name = rotated(&names, &take.owner).find(has_free)?.clone();
        let patch = want(&self.known[&name], &own.holder.node);
        take.asked.insert(name.clone());
        take.wanted = Some((Instant::now() + times.sharing, name.clone()));
        Some(Step::Want(name, patch))
    }

    /// Returns whether a Node is missing for so long, by its holder or by its name alone.
    pub(super) fn is_missing(&self, key: &Id, time: Duration) -> bool {
        let since = self.missing.get(key);
        since.is_some_and(|since| since.elapsed() >= time)
    }

    /// Returns the names of the known blocks with an address for this ADD.
    pub(super) fn blocks(&self, take: &Take<'_>) -> Vec<String> {
        let known = self.known.iter();
        let usable = known.filter(|(_, block)| take.slots(&block.space, block.block) != 0);
        let mut names: Vec<_> = usable.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Returns why there is no address.
    fn text(&self, take: &Take<'_>, times: &Times) -> String {
        match take.list {
            [range] if range.count() == 1 => self.text_of_one(range.first(), take),
            _ => self.text_of_all(take, times),
        }
    }

    /// Returns who has the one address that is asked for.
    fn text_of_one(&self, address: IpAddr, take: &Take<'_>) -> String {
        let name = object::name(take.space, Block::of(address));
        let slot = Block::of(address).slot(address).unwrap_or_default();
        let place = slot as usize;
        let user = match self.known.get(&name).map(|block| &block.mode) {
            Some(Mode::Shared(slots) | Mode::Closed(slots)) => {
                let one = &slots[place];
                let pods = one.pods.iter();
                let pods: Vec<_> = pods
                    .map(|pod| format!("pod {}/{} on node {}", pod.namespace, pod.name, pod.node))
                    .collect();
                if pods.is_empty() {
                    one.owner.clone()
                } else {
                    pods.join(" and ")
                }
            }
            Some(Mode::Node(holder)) => {
                let entry = self.entries.get(&name);
                let mut uses = entry.iter().flat_map(|entry| &entry.uses);
                let pod = uses.find(|one| one.slot == slot).map(|one| &one.pod);
                let node = &holder.node;
                match pod {
                    Some(pod) => format!("pod {}/{} on node {node}", pod.namespace, pod.name),
                    None => format!("node {node}, which holds block {name} and has not shared it"),
                }
            }
            None => format!("something that cannot be read: block {name}"),
        };
        let network = &take.allocation.network;
        let mut text = format!("network {network}: {address} is in use by {user}");
        if let Some(why) = self.unusable.why(&name) {
            let _ = write!(text, "; {why}");
        }
        text
    }

    /// Returns which addresses are in use, and what could be freed.
    fn text_of_all(&self, take: &Take<'_>, times: &Times) -> String {
        let mut held: BTreeMap<Id, u32> = BTreeMap::new();
        let mut used = 0;
        let names = self.blocks(take);
        for name in &names {
            let block = &self.known[name];
            let slots = take.slots(&block.space, block.block);
            match &block.mode {
                Mode::Node(holder) => {
                    let count = match self.entries.get(name) {
                        Some(entry) => (entry.used() & slots).count_ones(),
                        None => block.used.map_or(32, |used| (used & slots).count_ones()),
                    };
                    used += count;
                    *held.entry(holder.node.clone()).or_default() += count;
                }
                Mode::Shared(all) | Mode::Closed(all) => {
                    let owned = all.iter().enumerate();
                    let owned = owned
                        .filter(|(slot, one)| slots & (1 << slot) != 0 && !one.owner.is_empty());
                    for (_, one) in owned {
                        used += 1;
                        for pod in one.pods.iter().take(1) {
                            *held.entry(pod.node.as_str().into()).or_default() += 1;
                        }
                    }
                }
            }
        }
        let mut text = format!("{} has no free address: {used} in use", take.text());
        let missing = held
            .iter()
            .filter_map(|(node, count)| Some((node, count, self.missing_since(node)?)));
        for (node, count, since) in missing {
            let left = times.gone.saturating_sub(since).as_secs().div_ceil(60);
            let _ = write!(
                text,
                ", {count} of them by node {node}, whose Node is gone: they are free in {left} min"
            );
        }
        for (name, why) in self.unusable.damaged.iter().chain(&self.unusable.spoilt) {
            if names.contains(name) || take.names(name) {
                let _ = write!(text, "; {why}");
            }
        }
        text
    }

    fn missing_since(&self, node: &Id) -> Option<Duration> {
        let prefix = format!("{node}/");
        let of_node = |key: &&Id| **key == *node || key.starts_with(&prefix);
        let mut keys = self.missing.keys();
        let key = keys.find(of_node)?;
        Some(self.missing[key].elapsed())
    }
}

/// A shared block of which an ADD may take a slot.
struct Offer<'a> {
    name: &'a String,
    /// The slots that have no owner, as far as this node knows, and were not refused.
    free: u32,
    /// Those of them that the other nodes leave to this one.
    share: u32,
    /// The number of the last answer about the block, if there was one.
    answered_at: Option<u64>,
}

impl Take<'_> {
    /// Returns the slots of a block that the ADD may have.
    pub(super) fn slots(&self, space: &str, block: Block) -> u32 {
        let ranges = self.list.iter().filter(|_| space == self.space);
        ranges.fold(0, |set, range| set | range.slots(block))
    }

    /// A request was refused. Returns whether it was the first one, for a slot: then another slot is tried before the block is read.
    pub(super) fn tries_another(&mut self, name: &str, change: &Change<Id>) -> bool {
        let slot = match change {
            Change::Slot(slot, Some(_)) if self.claim.is_none() && self.refused.is_none() => *slot,
            _ => return false,
        };
        self.refused = Some((name.to_owned(), slot));
        true
    }

    /// Returns the slots of a block that this ADD was refused, unless it has read the block since.
    fn refused_in(&self, name: &str) -> u32 {
        let refused = self.refused.iter().filter(|(block, _)| block == name);
        let refused = refused.filter(|_| !self.reread.contains(name));
        refused.fold(0, |set, (_, slot)| set | 1 << slot)
    }

    /// Returns whether the name of an object is that of a block for this ADD.
    fn names(&self, name: &str) -> bool {
        let (space, first) = object::split_name(name);
        let address = first.replace('-', ":").parse().ok();
        let address = address.filter(|_| object::space_label(self.space) == space);
        address.is_some_and(|address| self.slots(self.space, Block::of(address)) != 0)
    }

    pub(super) fn text(&self) -> String {
        let subnets = self.list.iter().map(|range| range.subnet().to_string());
        let subnets: Vec<_> = subnets.collect();
        format!(
            "network {}: {}",
            self.allocation.network,
            subnets.join(", ")
        )
    }
}

/// Returns the entry of a block, which is made where this node has nothing of it yet.
pub(super) fn entry<'a>(
    entries: &'a mut BTreeMap<String, Entry>,
    name: &str,
    own: &Own,
    block: Block,
    space: &str,
) -> &'a mut Entry {
    let new = || Entry::new(own.holder.node.clone(), space, block);
    entries.entry(name.to_owned()).or_insert_with(new)
}

/// The key of a holder among the missing ones: a Node that is made again under its name is another one.
pub(super) fn holder_key(holder: &Holder) -> Id {
    format!("{}/{}", holder.node, holder.uid).into()
}

/// Returns the nodes that have something of a block: holders with their uid.
fn nodes(mode: &Mode) -> Vec<Id> {
    match mode {
        Mode::Node(holder) => vec![holder.node.clone()],
        Mode::Shared(slots) | Mode::Closed(slots) => {
            let pods = slots.iter().flat_map(|slot| &slot.pods);
            pods.map(|pod| pod.node.as_str().into()).collect()
        }
    }
}

/// Returns the step that reads what there is of the ranges: their one block, or all of the space.
fn look(take: &Take<'_>, total: u128) -> Step {
    match place(take.list, 0) {
        Some(block) if total == 1 => Step::Read(object::name(take.space, block)),
        _ => Step::List,
    }
}

/// Returns the block at a place among those of all ranges.
fn place(list: &[Range], mut place: u128) -> Option<Block> {
    for range in list {
        if let Some(block) = range.block_at(place) {
            return Some(block);
        }
        place -= range.block_count();
    }
    None
}

/// Returns the name of the block at a place among those of all ranges.
fn name_at(take: &Take<'_>, at: u128) -> String {
    place(take.list, at).map_or_else(String::new, |block| object::name(take.space, block))
}

/// Returns all names, beginning at a place that the seed chooses.
fn rotated<'a>(names: &'a [String], seed: &str) -> impl Iterator<Item = &'a String> + use<'a> {
    let start = hash(&[seed]) % (names.len() as u128).max(1);
    let (before, after) = names.split_at(usize::try_from(start).unwrap_or_default());
    after.iter().chain(before)
}

/// Returns those of the free slots that the other nodes with pods in a block leave to this one: a slot is that of the node whose hash has the
/// greatest byte there. So nodes that know of each other choose different slots, although each takes the others' newest ones for free.
fn share(free: u32, slots: &[Slot], block: &str, node: &str) -> u32 {
    let weights =
        |node| -> ([u8; 32], &str) { (Sha256::digest([block, node].concat()).into(), node) };
    let pods = slots.iter().flat_map(|slot| &slot.pods);
    let nodes: BTreeSet<_> = pods.map(|pod| pod.node.as_str()).collect();
    let others = nodes.into_iter().filter(|other| *other != node);
    let (own, others) = (weights(node), others.map(weights).collect::<Vec<_>>());
    let at = |(weights, node): &([u8; 32], _), slot: usize| (weights[slot], *node);
    let is_own = |slot: &usize| {
        others
            .iter()
            .all(|other| at(other, *slot) < at(&own, *slot))
    };
    (0..32).filter(is_own).fold(0, |set, slot| set | 1 << slot) & free
}

/// Returns one slot of a set that is not empty, which the seed chooses.
fn one_of(slots: u32, seed: u128) -> u32 {
    let mut rest = slots;
    for _ in 0..seed % u128::from(slots.count_ones()) {
        rest &= rest - 1;
    }
    rest & rest.wrapping_neg()
}

pub(super) fn hash(parts: &[&str]) -> u128 {
    let digest = <[u8; 32]>::from(Sha256::digest(parts.concat()));
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    u128::from_be_bytes(first)
}

/// Blocks that are not used, by name, and why.
#[derive(Default)]
pub(super) struct Unusable {
    /// Those whose record is damaged, until the machine is started again.
    pub(super) damaged: HashMap<String, String>,
    /// Those whose object somebody has edited, until it is read without a fault or is gone.
    pub(super) spoilt: HashMap<String, String>,
}

impl Unusable {
    pub(super) fn why(&self, name: &str) -> Option<&String> {
        self.damaged.get(name).or_else(|| self.spoilt.get(name))
    }
}
