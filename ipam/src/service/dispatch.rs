//! Both services of a node behind one socket: blocks of our own, and pools of `whereabouts`.

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::Value;

use super::counts::by_network;
use super::guest::{self, Guest, Objects};
use super::{Api, Counts, Failure, RangeCount, Service, answer};
use crate::wire::{Answer, Ask, Attachment};

/// What a node gives addresses from.
pub struct Services<A, O> {
    blocks: Service<A>,
    /// Absent where definitions of `whereabouts` are not served.
    guest: Option<Guest<O>>,
}

impl<A: Api, O: Objects> Services<A, O> {
    pub fn new(blocks: Service<A>, guest: Option<Guest<O>>) -> Self {
        Self { blocks, guest }
    }

    /// Serves a request.
    pub fn serve(&self, ask: &Ask) -> Answer {
        let nothing = |outcome: Result<(), Failure>| answer(outcome.map(|()| Vec::new()));
        match (ask, &self.guest) {
            (Ask::Allocate(of) | Ask::ReleaseFrom(of), None) if guest::serves(&of.ipam) => {
                answer(Err(Failure::NotServed))
            }
            (Ask::Allocate(allocation), Some(guest)) if guest::serves(&allocation.ipam) => {
                answer(guest.add(allocation, &self.blocks))
            }
            (Ask::ReleaseFrom(from), Some(guest)) => {
                let freed = guest.del(&from.attachment, Some(from));
                nothing(freed.and(self.blocks.del(&from.attachment)))
            }
            (Ask::Check(attachment), Some(guest)) if guest.knows(attachment) => {
                nothing(guest.check(attachment))
            }
            (Ask::Release(attachment), _) => nothing(self.del(attachment)),
            (Ask::Collect { network, valid }, Some(guest)) => {
                let collected = guest.collect(network, valid);
                nothing(collected.and(self.blocks.collect(network, valid)))
            }
            _ => self.blocks.serve(ask),
        }
    }

    /// Frees the addresses of an attachment, of either service.
    pub fn del(&self, attachment: &Attachment) -> Result<(), Failure> {
        let guest = self.guest.as_ref();
        let freed = guest.map_or(Ok(()), |guest| guest.del(attachment, None));
        freed.and(self.blocks.del(attachment))
    }

    /// Does what is due. Returns when there is more to do, or `None` when nothing is.
    pub fn work(&self) -> Option<Duration> {
        let blocks = self.blocks.work();
        let Some(guest) = &self.guest else {
            return blocks;
        };
        let next = guest.work(|attachment| self.blocks.has(attachment));
        let freed = guest.take_freed();
        for (space, block) in &freed {
            self.blocks.look_after(space, *block);
        }
        let again = (!freed.is_empty()).then_some(Duration::ZERO);
        [blocks, next, again].into_iter().flatten().min()
    }

    /// A block of this node has changed.
    pub fn changed(&self, object: &Value) {
        self.blocks.changed(object);
    }

    /// Takes note that claims have changed, as [`Service::claims_changed`] does.
    pub fn claims_changed(&self, uid: &str) -> bool {
        self.blocks.claims_changed(uid)
    }

    /// Returns whether this node frees the slot of a claim.
    pub fn has_claims(&self) -> bool {
        self.blocks.has_claims()
    }

    /// Returns how many contradictions were found since the last call.
    pub fn take_conflicts(&self) -> u64 {
        self.blocks.take_conflicts()
    }

    /// Returns what the node has.
    pub fn counts(&self) -> Counts {
        let mut counts = self.blocks.counts(self.guest.is_none());
        if let Some(guest) = &self.guest {
            let of_pools = guest.addresses();
            let all = counts.addresses.iter().chain(&of_pools);
            counts.addresses =
                by_network(all.map(|((network, state), number)| (network, *state, *number)));
            for range in guest.ranges() {
                // Of a range that is in blocks, the guest knows the addresses that came with its pool, too.
                let is_same = |one: &&mut RangeCount| {
                    (&one.space, &one.range) == (&range.space, &range.range)
                };
                match counts.ranges.iter_mut().find(is_same) {
                    Some(known) => known.used = known.used.max(range.used),
                    None => counts.ranges.push(range),
                }
            }
        }
        counts
    }
}
