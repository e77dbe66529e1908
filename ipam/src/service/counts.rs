//! What the service counts, for metrics: addresses and blocks of this node, and blocks that contradict what it has given.

use std::collections::{BTreeMap, HashMap};

use super::entry::Entry;
use super::{Api, Service, State};
use crate::claim::slot_owner;
use crate::guest;
use crate::node::{Block, Mode};
use crate::object::{self, AddressBlock};
use crate::range::{BLOCK_SIZE, Range};
use crate::request::{CLOSED, Id};
use crate::store::Use;
use crate::wire::Attachment;

/// What a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub addresses: Addresses,
    pub held_blocks: usize,
    /// The shared blocks of which pods of this node have addresses.
    pub shared_blocks: usize,
    /// The lists of ranges of which pods of this node have asked for an address since the service started, in the order of space and range.
    pub ranges: Vec<RangeCount>,
}

/// Numbers of addresses by the name of their network.
pub type Addresses = BTreeMap<(String, AddressState), usize>;

/// Whether a pod of this node has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressState {
    /// The request for it has no answer yet.
    Asked,
    Given,
}

impl AddressState {
    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Given => "given",
        }
    }
}

/// A list of ranges, of which a pod gets one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeCount {
    pub space: String,
    /// First and last address of each range, as in `10.20.0.2-10.20.0.254`.
    pub range: String,
    /// The number of its addresses that pods of this node have.
    pub used: usize,
    /// The number of its addresses.
    pub size: u128,
}

/// The number of lists of ranges that are counted. Nodes need a handful, and users must not be able to fill the memory.
const LISTS: usize = 32;

/// Lists of ranges by space and text; of two lists with one text the newer one is kept.
#[derive(Debug, Default)]
pub(super) struct Lists(BTreeMap<(String, String), Vec<Range>>);

impl Lists {
    /// A pod asks for addresses of these lists, each of a space. Beyond the limit, lists of which no pod has an address are forgotten.
    pub(super) fn note<'a>(
        &mut self,
        lists: impl Iterator<Item = (&'a str, &'a [Range])>,
        used: impl Fn(&str, &[Range]) -> usize,
    ) {
        for (space, list) in lists {
            let texts = list
                .iter()
                .map(|range| format!("{}-{}", range.first(), range.last()));
            let text = texts.collect::<Vec<_>>().join(", ");
            let key = (space.to_owned(), text);
            if self.0.len() >= LISTS {
                self.0.retain(|(space, _), list| used(space, list) > 0);
            }
            if self.0.len() < LISTS || self.0.contains_key(&key) {
                self.0.insert(key, list.to_owned());
            }
        }
    }

    /// Returns the lists, with the number of their addresses that pods have.
    pub(super) fn counts(&self, used: impl Fn(&str, &[Range]) -> usize) -> Vec<RangeCount> {
        let counts = self.0.iter().map(|((space, text), list)| RangeCount {
            space: space.clone(),
            range: text.clone(),
            used: used(space, list),
            size: list.iter().map(Range::count).sum(),
        });
        counts.collect()
    }
}

/// The blocks that contradict what this node has given.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    /// The slots of each block.
    slots: HashMap<String, u32>,
    /// The number of conflicts that were found and not counted yet.
    new: u64,
}

impl<A: Api> Service<A> {
    /// Returns what the node has. Without `pools`, addresses of blocks that pools have become do not count.
    pub fn counts(&self, pools: bool) -> Counts {
        let state = self.lock();
        let entries = state.entries.values();
        let uses = entries.clone().flat_map(|entry| &entry.uses);
        let uses = uses.filter(|one| pools || one.pool.is_empty());
        let state_of = |one: &Use| {
            if one.is_asked {
                AddressState::Asked
            } else {
                AddressState::Given
            }
        };
        let is_held = |entry: &&Entry| entry.node.record.is_some();
        let is_shared = |entry: &&Entry| entry.uses.iter().any(|one| one.is_shared);
        Counts {
            addresses: by_network(uses.map(|one| (&one.network, state_of(one), 1))),
            held_blocks: entries.clone().filter(is_held).count(),
            shared_blocks: entries.filter(is_shared).count(),
            ranges: state
                .lists
                .counts(|space, list| used(space, list, &state.entries)),
        }
    }

    /// Returns how many conflicts were found since the last call: addresses of pods of this node whose block gives them to others.
    pub fn take_conflicts(&self) -> u64 {
        std::mem::take(&mut self.lock().conflicts.new)
    }
}

/// Adds the numbers of each network.
pub(super) fn by_network<'a>(
    numbers: impl Iterator<Item = (&'a String, AddressState, usize)>,
) -> Addresses {
    let mut addresses = Addresses::new();
    for (network, state, number) in numbers {
        *addresses.entry((network.clone(), state)).or_default() += number;
    }
    addresses
}

impl State {
    /// A pod asks for addresses of these lists, each of a space.
    pub(super) fn note_ranges<'a>(&mut self, lists: impl Iterator<Item = (&'a str, &'a [Range])>) {
        let Self {
            lists: known,
            entries,
            ..
        } = self;
        known.note(lists, |space, list| used(space, list, entries));
    }

    /// A block was read, after all that was answered: compares it with what this node has given.
    pub(super) fn note_conflicts(&mut self, name: &str, node: &Id, block: Option<&Block<Id>>) {
        let found = self.entries.get(name).map_or(0, |entry| {
            contradicted(entry, node, block, self.known.get(name))
        });
        let known = self.conflicts.slots.remove(name).unwrap_or_default();
        self.conflicts.new += u64::from((found & !known).count_ones());
        if found != 0 {
            self.conflicts.slots.insert(name.to_owned(), found);
        }
    }
}

/// Returns how many addresses of a list pods have.
fn used(space: &str, list: &[Range], entries: &BTreeMap<String, Entry>) -> usize {
    let of_entry = |entry: &Entry| {
        let (first, end) = (entry.block.first(), entry.block.address(BLOCK_SIZE - 1));
        // Most blocks are of other lists.
        let may_have = |range: &&Range| range.first() <= end && first <= range.last();
        let ranges: Vec<_> = list.iter().filter(may_have).collect();
        let addresses = entry.uses.iter().map(|one| entry.block.address(one.slot));
        let in_list =
            addresses.filter(|address| ranges.iter().any(|range| range.contains(*address)));
        in_list.count()
    };
    let entries = entries.values().filter(|entry| entry.space == space);
    entries.map(of_entry).sum()
}

/// Returns the slots that pods of this node use and that the block gives to somebody else, or to nobody. What a node has asked for and
/// not got yet is no use.
fn contradicted(
    entry: &Entry,
    node: &Id,
    block: Option<&Block<Id>>,
    stored: Option<&AddressBlock>,
) -> u32 {
    // A guest that has not heard of a return has a slot until it reads the pool, and gives nothing of it.
    let is_of_pool = |slot: usize| match stored.map(|block| &block.mode) {
        Some(object::Mode::Shared(slots)) => {
            slots[slot].pods.iter().any(|pod| !pod.pool.is_empty())
        }
        _ => false,
    };
    let is_right = |one: &Use| match block.map(|block| &block.mode) {
        // The pools have gone back, and have the address.
        None => !one.pool.is_empty(),
        Some(Mode::Node(holder)) if **holder == *CLOSED => !one.pool.is_empty(),
        Some(Mode::Node(holder)) => holder == node,
        Some(Mode::Shared(owners)) => match &owners[one.slot as usize] {
            Some(owner) => {
                let Attachment { container, ifname } = &one.attachment;
                let name = &**owner.name();
                // It has gone to a pool, and come back with it.
                let is_back = !one.pool.is_empty() && name == guest::slot_owner(container, ifname);
                let is_passing = !one.pool.is_empty() && is_of_pool(one.slot as usize);
                name == slot_owner(&one.owner) || is_back || is_passing
            }
            None => !one.pool.is_empty(),
        },
    };
    let given = entry.uses.iter().filter(|one| !one.is_asked);
    let wrong = given.filter(|one| !is_right(one));
    wrong.fold(0, |set, one| set | 1 << one.slot)
}
