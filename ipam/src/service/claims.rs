//! The addresses of claims: which slot a claim has, who uses it, and when it is free again.

use std::time::Instant;

use super::choice::{Step, entry, hash};
use super::{Api, ApiError, Failure, Service, State, Take, Times, chosen, now};
use crate::claim::{self, Claim, ClaimError, MOST_PODS, Reference, Usage, slot_owner};
use crate::config::{Definition, Sticky};
use crate::node::User;
use crate::object::{Mode, Slot, SlotPod};
use crate::range::Range;
use crate::request::{Id, Own};
use crate::wire::{Allocation, Grant};

/// A claim without a pod, in a block, that may be gone.
pub(super) type Abandoned = (String, usize, Reference);

/// How many claims an ADD asks for that finds its range full.
pub(super) const MOST_QUESTIONS: usize = 8;

impl State {
    /// Adds the pod to those of the claim's slot, where the claim has one.
    pub(super) fn take_claimed(
        &mut self,
        take: &mut Take<'_>,
        own: &Own,
        times: &Times,
    ) -> Option<Step> {
        let owner = take.claim?.owner();
        let usage = Usage::parse(&take.owner)?;
        for name in self.blocks(take) {
            let block = &self.known[&name];
            let usable = take.slots(&block.space, block.block);
            let Mode::Shared(slots) = &block.mode else {
                continue;
            };
            let mut numbered = slots.iter().enumerate();
            let found =
                numbered.find(|(slot, one)| usable & (1 << slot) != 0 && one.owner == owner);
            let Some((number, slot)) = found else {
                continue;
            };
            let others: Vec<&SlotPod> = usage.others(slot).collect();
            let is_twice = others.iter().any(|pod| is_same_pod(pod, usage));
            if is_twice || others.len() >= MOST_PODS {
                // A pod that this node knows of has perhaps ended on another one since.
                if take.read.insert(name.clone()) {
                    return Some(Step::Read(name));
                }
                let entry = self.entries.get(&name);
                let has_ended = entry.is_some_and(|entry| !entry.ended.is_empty());
                if has_ended && !std::mem::replace(&mut take.has_swept, true) {
                    return Some(Step::Sweep(vec![name]));
                }
                let nodes = others.iter().map(|pod| pod.node.as_str().into()).collect();
                if !std::mem::replace(&mut take.has_asked_for_nodes, true) {
                    return Some(Step::ReadNodes(nodes));
                }
                let mut left = self.left(&own.view(block), own, times);
                let of_claim = |user: &User<Id>| slot_owner(&user.pod) == owner;
                if !is_twice && let Some((_, left)) = left.find(|(user, _)| of_claim(user)) {
                    return Some(Step::Free(name, left));
                }
                return Some(Step::Refused(in_use(take.claim?, &others)));
            }
            let view = own.view(block);
            let entry = entry(&mut self.entries, &name, own, block.block, take.space);
            if entry.ends(&take.owner) {
                return Some(if take.read.insert(name.clone()) {
                    Step::Sweep(vec![name])
                } else {
                    Step::Wait
                });
            }
            if entry.node.pending.is_some() {
                return Some(Step::Wait);
            }
            let request = entry.hold(&view, number, &take.owner, take.allocation)?;
            return Some(Step::Exchange(name, request));
        }
        None
    }

    /// Shares a block of this node in which a claim is to have a slot.
    pub(super) fn share_own(&mut self, take: &mut Take<'_>, own: &Own) -> Option<Step> {
        let State { entries, known, .. } = self;
        for (name, entry) in entries {
            let is_held = entry.node.record.is_some();
            if !is_held || take.slots(&entry.space, entry.block) == 0 {
                continue;
            }
            if entry.node.pending.is_some() {
                return Some(Step::Wait);
            }
            if take.read.insert(name.clone()) {
                return Some(Step::Read(name.clone()));
            }
            let view = own.view(known.get(name)?);
            let request = entry.node.confirm(&view).or_else(|| entry.node.share());
            if let Some(request) = request {
                return Some(Step::Exchange(name.clone(), request));
            }
        }
        None
    }

    /// Returns the slots of claims without a pod, in blocks of this ADD: some of these claims may be gone.
    pub(super) fn abandoned(&self, take: &Take<'_>) -> Vec<Abandoned> {
        let own = take.claim.map(Reference::owner);
        let names = self.blocks(take).into_iter();
        let all = names.flat_map(|name| {
            let slots = match &self.known[&name].mode {
                Mode::Shared(slots) => slots.as_slice(),
                _ => &[],
            };
            let slots = slots.iter().enumerate();
            slots.filter_map(move |(number, slot)| {
                let reference = Reference::parse(&slot.owner)?;
                slot.pods
                    .is_empty()
                    .then(|| (name.clone(), number, reference))
            })
        });
        let others = all.filter(|(_, _, claim)| own.as_ref() != Some(&claim.owner()));
        let mut others: Vec<_> = others.collect();
        // Pods, and a pod's next container, ask for different ones.
        let start = hash(&[&take.owner]) % (others.len() as u128).max(1);
        others.rotate_left(usize::try_from(start).unwrap_or_default());
        others.truncate(MOST_QUESTIONS);
        others
    }
}

/// Returns whether a pod of a slot is the one of a use, by another interface of the same container.
fn is_same_pod(pod: &SlotPod, usage: Usage<'_>) -> bool {
    fn container(interface: &str) -> Option<&str> {
        interface.split('/').next()
    }
    pod.uid == usage.pod && container(&pod.interface) == container(usage.interface)
}

fn in_use(claim: &Reference, pods: &[&SlotPod]) -> ClaimError {
    let pods = pods
        .iter()
        .map(|pod| format!("{}/{} on {}", pod.namespace, pod.name, pod.node));
    ClaimError::InUse {
        name: claim.to_string(),
        pods: pods.collect::<Vec<_>>().join(" and "),
    }
}

impl<A: Api> Service<A> {
    /// Returns the claim whose address a pod is to have: the one it refers to, or the one that is made for a pod that keeps its address.
    pub(super) fn claim_name(
        &self,
        allocation: &Allocation,
        definition: &Definition,
    ) -> Result<Option<String>, Failure> {
        let is_chosen = !allocation.addresses.is_empty();
        if !allocation.claim.is_empty() {
            if is_chosen {
                return Err(ClaimError::WithAddresses.into());
            }
            return Ok(Some(allocation.claim.clone()));
        }
        // A pod that chooses its address has it again without a claim.
        if definition.sticky == Sticky::Pod || is_chosen {
            return Ok(None);
        }
        let namespace = &allocation.pod.namespace;
        let pod = self.api.pod(namespace, &allocation.pod.name)?;
        let uid = pod
            .as_ref()
            .and_then(|pod| pod.pointer("/metadata/uid")?.as_str());
        let Some(pod) = pod.as_ref().filter(|_| uid == Some(&*allocation.pod.uid)) else {
            return Err(ApiError::Failed("the pod no longer exists".to_owned()).into());
        };
        let machine = |name: &str| self.api.machine(namespace, name);
        let Some(sticky) = claim::sticky(pod, machine)? else {
            return Ok(None);
        };
        let ifname = &allocation.attachment.ifname;
        let (name, object) = sticky.claim(namespace, &allocation.network, ifname);
        match self.api.create_claim(namespace, &object) {
            // The pod before has made it.
            Ok(()) | Err(ApiError::Refused(_)) => Ok(Some(name)),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a pod the addresses of a claim, which gets them with its first pod.
    pub(super) fn take_for_claim(
        &self,
        allocation: &Allocation,
        definition: &Definition,
        name: &str,
    ) -> Result<Vec<Grant>, Failure> {
        let (namespace, deadline) = (
            &allocation.pod.namespace,
            Instant::now() + self.times.patience,
        );
        let mut former = None;
        loop {
            let object = self.api.claim(namespace, name)?;
            let claim = Claim::parse(object.as_ref(), namespace, name, &allocation.network)?;
            let addresses = former.replace(claim.addresses.clone());
            // The slot is the right one as long as the claim has no other address.
            if addresses.is_some_and(|addresses| addresses != claim.addresses) {
                self.release(&allocation.attachment)?;
            }
            let outcome = lists(&claim, definition).and_then(|lists| {
                let claim = Some(&claim.reference);
                self.take_all(allocation, &definition.space, &lists, claim)
            });
            let grants = match outcome {
                Ok(grants) => grants,
                Err(failure) => {
                    self.tell(&claim, &failure);
                    return Err(failure);
                }
            };
            let cidrs: Vec<String> = grants.iter().map(|grant| grant.address.clone()).collect();
            let patch = claim.allocated(&cidrs, &allocation.pod.name, &api::time::rfc3339(now()));
            match self.api.patch_claim(namespace, name, &patch) {
                Ok(()) => return Ok(grants),
                Err(ApiError::Refused(_)) if Instant::now() < deadline => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Says in the claim why it has no address, for those who look there.
    fn tell(&self, claim: &Claim, failure: &Failure) {
        let reason = match failure {
            Failure::Full(_) | Failure::Chosen(_) if claim.addresses.is_empty() => {
                "SubnetExhausted"
            }
            Failure::Full(_) | Failure::Chosen(_) => "IPAddressConflict",
            _ => return,
        };
        let Reference {
            namespace, name, ..
        } = &claim.reference;
        let patch = claim.failed(reason, &failure.to_string(), &api::time::rfc3339(now()));
        // The pod's event says the same.
        let _ = self.api.patch_claim(namespace, name, &patch);
    }

    /// Frees slots of claims that are gone, of those that this node looks after.
    pub(super) fn settle_claims(&self, own: &Own, name: &str) -> Result<(), Failure> {
        let is_looked_after = |state: &State| {
            let entry = state.entries.get(name);
            entry.is_some_and(|entry| !entry.claims.is_empty())
        };
        if !is_looked_after(&self.lock()) {
            return Ok(());
        }
        self.read(own, name)?;
        let abandoned: Vec<Abandoned> = {
            let mut state = self.lock();
            let State { entries, known, .. } = &mut *state;
            let Some(entry) = entries.get_mut(name) else {
                return Ok(());
            };
            let slots: &[Slot] = match known.get(name).map(|block| &block.mode) {
                Some(Mode::Shared(slots)) => slots,
                _ => &[],
            };
            let is_without_pod = |owner: &String| {
                let mut slots = slots.iter();
                slots.any(|slot| slot.owner == *owner && slot.pods.is_empty())
            };
            // The node of the last pod looks after a claim.
            entry.claims.retain(is_without_pod);
            let slots = slots.iter().enumerate();
            let all = slots.filter(|(_, slot)| entry.claims.contains(&slot.owner));
            all.filter_map(|(number, slot)| {
                Some((name.to_owned(), number, Reference::parse(&slot.owner)?))
            })
            .collect()
        };
        for one in &abandoned {
            self.free_abandoned(own, one)?;
        }
        self.note(&mut self.lock(), name)
    }

    /// Frees the slot of a claim without a pod, if the claim is gone or has another address.
    pub(super) fn free_abandoned(
        &self,
        own: &Own,
        (name, number, reference): &Abandoned,
    ) -> Result<(), Failure> {
        let request = {
            let object = self.api.claim(&reference.namespace, &reference.name)?;
            let state = self.lock();
            let Some(block) = state.known.get(name) else {
                return Ok(());
            };
            let slot = u32::try_from(*number).expect("a block has few slots");
            if !claim::is_over(object.as_ref(), reference, block.block.address(slot)) {
                return Ok(());
            }
            own.view(block)
                .free_claim(*number, &reference.owner().into())
        };
        let Some(request) = request else {
            return Ok(());
        };
        if !self.free(own, name, &request)? {
            return Ok(());
        }
        if let Some(entry) = self.lock().entries.get_mut(name) {
            entry.claims.remove(&reference.owner());
        }
        self.let_go(name)
    }

    /// A claim has changed or is gone, or any for an empty uid: the slots of those without a pod are looked at. Returns whether there is
    /// something to do.
    pub fn claims_changed(&self, uid: &str) -> bool {
        let prefix = if uid.is_empty() {
            String::new()
        } else {
            format!("claim/{uid}/")
        };
        let mut state = self.lock();
        let mut is_meant = false;
        for entry in state.entries.values_mut() {
            if entry.claims.iter().any(|owner| owner.starts_with(&prefix)) {
                entry.sweep_due = Some(Instant::now());
                is_meant = true;
            }
        }
        is_meant
    }

    /// Returns whether this node has to know when claims are gone.
    pub fn has_claims(&self) -> bool {
        let state = self.lock();
        let mut entries = state.entries.values();
        entries.any(|entry| !entry.claims.is_empty())
    }
}

/// Returns the lists of ranges of a claim: its own addresses, once it has some.
fn lists(claim: &Claim, definition: &Definition) -> Result<Vec<Vec<Range>>, Failure> {
    let lists = chosen(definition, &claim.addresses)?;
    let is_whole = claim.addresses.is_empty() || claim.addresses.len() == lists.len();
    if is_whole {
        return Ok(lists);
    }
    let name = &claim.reference;
    let (has, needed) = (claim.addresses.len(), lists.len());
    Err(Failure::Chosen(format!(
        "claim {name} has {has} addresses in status.ips, and the network gives {needed}: delete the claim to get new ones"
    )))
}
