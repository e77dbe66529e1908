//! What the service does without a pod that waits for it: frees slots, tells how much is used, shares what others want, gives back what
//! nobody uses, takes over its own blocks after a boot, and finds out which nodes are gone. None of it is done while nothing happens.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::choice::holder_key;
use super::entry::Entry;
use super::{Api, ApiError, Context, Exchanged, Failure, Service, State};
use crate::claim::{Usage, slot_owner, usage_of};
use crate::node::{self, Mode, Request, User};
use crate::object::{self, AddressBlock, Slot, SlotPod};
use crate::range::Block;
use crate::request::{Id, Own, report};

/// So often a block is tried to be given back that others write at the same time.
const ATTEMPTS: u32 = 5;

/// A thread frees slots of a block until this is dropped.
struct Sweep<'a, A: Api> {
    service: &'a Service<A>,
    name: &'a str,
}

impl<'a, A: Api> Sweep<'a, A> {
    /// Begins, or waits until the thread that frees slots of the block already has ended, and returns `None`.
    fn begin(service: &'a Service<A>, name: &'a str) -> Option<Self> {
        let mut state = service.lock();
        let Some(&other) = state.swept.get(name) else {
            state.swept.insert(name.to_owned(), Instant::now());
            return Some(Self { service, name });
        };
        let is_same = |state: &mut State| state.swept.get(name) == Some(&other);
        drop(service.turned.wait_while(state, is_same));
        None
    }
}

impl<A: Api> Drop for Sweep<'_, A> {
    fn drop(&mut self) {
        self.service.lock().swept.remove(self.name);
        self.service.turned.notify_all();
    }
}

impl<A: Api> Service<A> {
    /// Does what is due. Returns when there is more to do, or `None` when nothing is.
    pub fn work(&self) -> Option<Duration> {
        let now = Instant::now();
        let has_to_adopt = self.store().has_to_adopt();
        if has_to_adopt && self.adopt().is_err() {
            return Some(self.times.again);
        }
        if self.lock().settle_due.is_some_and(|due| due <= now) && self.settle().is_err() {
            return Some(self.times.again);
        }
        self.look_at_node();
        let (mut sweeps, mut reports, mut unused) = (Vec::new(), Vec::new(), BTreeSet::new());
        let (mut unconfirmed, mut wanted) = (Vec::new(), Vec::new());
        {
            let mut state = self.lock();
            let State { known, entries, .. } = &mut *state;
            let deleted = known.iter().filter(|(_, known)| known.is_deleted);
            unused.extend(deleted.map(|(name, _)| name.clone()));
            for (name, entry) in entries {
                let is_pending = entry.node.pending.is_some();
                if entry.sweep_due.is_some_and(|due| due <= now) && !is_pending {
                    sweeps.push(name.clone());
                }
                if entry.report_due.is_some_and(|due| due <= now) {
                    reports.push(name.clone());
                }
                if entry.share_due.is_some_and(|due| due <= now) && !is_pending {
                    wanted.push(name.clone());
                    entry.share_due = None;
                }
                if entry.has_to_be_confirmed() {
                    unconfirmed.push(name.clone());
                }
                let is_due = entry.give_back_due.is_some_and(|due| due <= now);
                if is_due && entry.is_unused(known.get(name)) {
                    unused.insert(name.clone());
                    entry.give_back_due = None;
                }
            }
        }
        let mut again = None;
        for name in unconfirmed {
            if self.hold_on(&name).is_err() {
                again = Some(Instant::now() + self.times.again);
            }
        }
        for name in sweeps {
            if self.sweep(&name).is_err() {
                self.postpone(&name, |entry, again| entry.sweep_due = Some(again));
            }
        }
        for name in reports {
            if self.report(&name).is_err() {
                self.postpone(&name, |entry, again| entry.report_due = Some(again));
            }
        }
        for name in wanted {
            self.heed(&name);
        }
        for name in unused {
            if self.give_back(&name).is_err() {
                self.postpone(&name, |entry, again| entry.give_back_due = Some(again));
            }
        }
        let mut state = self.lock();
        let State {
            known,
            entries,
            settle_due,
            ..
        } = &mut *state;
        for (name, entry) in entries.iter_mut() {
            let due = entry.give_back_due;
            let due = due.unwrap_or_else(|| Instant::now() + self.times.unused);
            entry.give_back_due = entry.is_unused(known.get(name)).then_some(due);
        }
        let due = entries
            .values()
            .filter(|entry| entry.node.pending.is_none())
            .flat_map(|entry| {
                [
                    entry.sweep_due,
                    entry.report_due,
                    entry.share_due,
                    entry.give_back_due,
                ]
            });
        let next = due.flatten().chain(again).chain(*settle_due).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn postpone(&self, name: &str, set: impl Fn(&mut Entry, Instant)) {
        if let Some(entry) = self.lock().entries.get_mut(name) {
            set(entry, Instant::now() + self.times.again);
        }
    }

    /// Frees the slots of owners whose use has ended, or waits until another thread has freed them or has failed to.
    pub(super) fn sweep(&self, name: &str) -> Result<(), Failure> {
        let own = self.own()?;
        let Some(_sweep) = Sweep::begin(self, name) else {
            return Ok(());
        };
        let mut has_read = false;
        loop {
            let (request, over, is_done) = {
                let state = self.lock();
                let entry = state.entries.get(name);
                // The outcome of a pending request says whether there is something to free.
                let Some(entry) = entry.filter(|entry| entry.node.pending.is_none()) else {
                    return Ok(());
                };
                let view = state.known.get(name).map(|known| own.view(known));
                let request = view.and_then(|view| ended_use(entry, &view));
                let is_done = entry.ended.is_empty() && entry.open_until.is_none();
                (request, entry.ended.clone(), is_done)
            };
            if let Some((user, request)) = request {
                self.end_use(&own, name, &user, &request)?;
            } else if !has_read && !is_done {
                has_read = true;
                self.read(&own, name)?;
            } else {
                return self.end_sweep(&own, name, &over);
            }
        }
    }

    /// Ends the use of a pod of this node. When that fails it may be made yet, and until then the same use must not begin again.
    fn end_use(
        &self,
        own: &Own,
        name: &str,
        user: &User<Id>,
        request: &Request<Id>,
    ) -> Result<(), Failure> {
        let outcome = self.free(own, name, request);
        let mut state = self.lock();
        let State { known, entries, .. } = &mut *state;
        if let Some(entry) = entries.get_mut(name) {
            match &outcome {
                Err(_) => entry.open_until = Some(Instant::now() + self.times.settled),
                // Another request of the same owner may be made yet, as long as an outcome is open.
                Ok(true) if entry.open_until.is_none() => {
                    let is_claim = Usage::parse(&user.pod).is_some();
                    // A container that goes on after a boot has its slot of before, too.
                    let has_another = known.get(name).is_some_and(|block| block.has(&user.pod));
                    if !is_claim && !has_another {
                        entry.ended.retain(|ended| *ended != *user.pod);
                    }
                }
                Ok(_) => {}
            }
        }
        drop(state);
        outcome?;
        self.let_go(name)
    }

    /// These owners have no slot any more, unless an outcome is still open.
    fn end_sweep(&self, own: &Own, name: &str, over: &[String]) -> Result<(), Failure> {
        let is_unconfirmed = {
            let mut state = self.lock();
            let Some(entry) = state.entries.get_mut(name) else {
                return Ok(());
            };
            let now = Instant::now();
            entry.open_until = entry.open_until.filter(|until| *until > now);
            entry.sweep_due = entry.open_until;
            if entry.open_until.is_none() {
                let claims = over.iter().map(|ended| slot_owner(ended).to_owned());
                let claims = claims.filter(|owner| owner.starts_with("claim/"));
                entry.claims.extend(claims);
                entry.ended.retain(|ended| !over.contains(ended));
                // A use that has ended meanwhile is looked for anew.
                entry.sweep_due = (!entry.ended.is_empty()).then_some(now);
            }
            entry.node.record.is_none() && entry.open_until.is_none()
        };
        // A request to create the block, whose outcome was unknown, may have been granted.
        let confirm =
            |entry: &mut Entry, known: &AddressBlock| entry.node.confirm(&own.view(known));
        if is_unconfirmed && self.ask(own, name, confirm)? {
            return Ok(());
        }
        self.note(&mut self.lock(), name)?;
        self.settle_claims(own, name)
    }

    /// Frees a slot of a shared block, or ends the use of one, if it is still as it was read. Returns false when it is not.
    pub(super) fn free(
        &self,
        own: &Own,
        name: &str,
        request: &Request<Id>,
    ) -> Result<bool, Failure> {
        let patch = {
            let state = self.lock();
            let Some(seen) = state.known.get(name) else {
                return Ok(false);
            };
            patch_of(own, seen, request)
        };
        match patch {
            Some(patch) => self.change(own, name, &patch),
            None => self.read(own, name).map(|()| false),
        }
    }

    /// Writes how many addresses of a held block are used, for those who read it.
    fn report(&self, name: &str) -> Result<(), Failure> {
        let own = self.own()?;
        let patch = {
            let mut state = self.lock();
            let Some(entry) = state.entries.get_mut(name) else {
                return Ok(());
            };
            entry.report_due = None;
            let Some(record) = entry.node.record.as_ref() else {
                return Ok(());
            };
            report(&record.uid, record.turn, entry.used())
        };
        if self.change(&own, name, &patch)? {
            return Ok(());
        }
        // The record is older than the block, as on an older disk: under a turn that this node raises the number is right.
        self.hold_on(name)
    }

    /// A block of this node has changed; what others want of it is shared.
    pub fn changed(&self, object: &Value) {
        let Ok(block) = AddressBlock::parse(object) else {
            return;
        };
        let name = object::name(&block.space, block.block);
        // An event may be older than the last answer. The block is read where something is to be done.
        let is_wanted = {
            let state = self.lock();
            let is_mended = state.unusable.spoilt.contains_key(&name);
            let has_to_read = !block.wanted.is_empty() || block.is_deleted || is_mended;
            state.entries.contains_key(&name) && has_to_read
        };
        if is_wanted {
            self.heed(&name);
        }
    }

    /// Does what others want of a block, now or, where that fails, later.
    fn heed(&self, name: &str) {
        if self.share(name).is_err() {
            self.postpone(name, |entry, again| entry.share_due = Some(again));
        }
    }

    /// Lets a block go that is deleted and not used, and shares one that others want. After a boot its turn is raised first.
    fn share(&self, name: &str) -> Result<(), Failure> {
        let own = self.own()?;
        self.read(&own, name)?;
        self.let_go(name)?;
        let next = |entry: &mut Entry, known: &AddressBlock| {
            if known.wanted.is_empty() {
                return None;
            }
            let share = entry.node.share();
            share.or_else(|| entry.node.confirm(&own.view(known)))
        };
        while self.ask(&own, name, next)? {}
        let state = self.lock();
        let is_held =
            |block: &AddressBlock| own.view(block).mode == Mode::Node(own.holder.node.clone());
        match state.known.get(name) {
            Some(block) if !block.wanted.is_empty() && is_held(block) => {
                Err(Failure::Busy(format!("block {name}")))
            }
            _ => Ok(()),
        }
    }

    /// Sends a request about a block that was read, if there is one to send; returns whether there was. It is on disk before.
    fn ask(
        &self,
        own: &Own,
        name: &str,
        request: impl FnOnce(&mut Entry, &AddressBlock) -> Option<Request<Id>>,
    ) -> Result<bool, Failure> {
        let request = {
            let mut state = self.lock();
            let State { known, entries, .. } = &mut *state;
            let (Some(known), Some(entry)) = (known.get(name), entries.get_mut(name)) else {
                return Ok(false);
            };
            let before = entry.clone();
            let Some(request) = request(entry, known) else {
                return Ok(false);
            };
            if let Err(failure) = self.note(&mut state, name) {
                state.entries.insert(name.to_owned(), before);
                return Err(failure);
            }
            request
        };
        if let Exchanged::Refused = self.exchange(own, name, &request)? {
            self.read(own, name)?;
        }
        Ok(true)
    }

    /// A slot of a block was freed that this node has no record of: a block that nobody uses is given back.
    pub(super) fn look_after(&self, space: &str, block: Block) {
        let name = object::name(space, block);
        let Ok(own) = self.own() else { return };
        // Whoever uses the block next gives it back otherwise.
        if self.read(&own, &name).is_err() {
            return;
        }
        let mut state = self.lock();
        let State { known, entries, .. } = &mut *state;
        if known.get(&name).is_some_and(AddressBlock::is_unused) {
            let new = || Entry::new(own.holder.node.clone(), space, block);
            entries.entry(name.clone()).or_insert_with(new);
            let _ = self.note(&mut state, &name);
        }
    }

    /// Lets a block go that somebody has deleted, unless it is used.
    pub(super) fn let_go(&self, name: &str) -> Result<(), Failure> {
        let known = self.lock().known.get(name).cloned();
        if known.is_some_and(|known| known.is_deleted) {
            self.give_back(name)?;
        }
        Ok(())
    }

    /// Gives back a block that nobody uses: asks for its deletion, and removes the finalizer. Between the two everybody reads that the block
    /// is deleted. No block is kept for the next pod, since the pod comes by the API server, and then a block costs one request.
    fn give_back(&self, name: &str) -> Result<(), Failure> {
        let own = self.own()?;
        let mut has_read = false;
        for _ in 0..ATTEMPTS {
            let answers = self.answers();
            let known = self.lock().known.get(name).cloned();
            let Some(seen) = known else {
                if has_read {
                    return self.note(&mut self.lock(), name);
                }
                has_read = true;
                self.read(&own, name)?;
                continue;
            };
            let request = {
                let mut state = self.lock();
                let mut without = node::Node::new(own.holder.node.clone(), 0);
                let entry = state.entries.get_mut(name);
                let node = entry.map_or(&mut without, |entry| &mut entry.node);
                let request = node.give_back(&own.view(&seen));
                self.note(&mut state, name)?;
                request
            };
            let Some(request) = request else {
                return Ok(());
            };
            has_read = true;
            match self.remove(&own, name, &seen, &request) {
                Ok(object) => self.seen(&own, name, object.as_ref(), answers)?,
                Err(ApiError::Refused(_)) => self.read(&own, name)?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(Failure::Busy(format!("block {name}")))
    }

    /// Sends a request that gives a block back. Returns the block while it is there.
    fn remove(
        &self,
        own: &Own,
        name: &str,
        seen: &AddressBlock,
        request: &Request<Id>,
    ) -> Result<Option<Value>, ApiError> {
        match patch_of(own, seen, request) {
            // Without finalizers a deleted block is gone.
            Some(patch) => self.api.patch(name, &patch).map(|_| None),
            None => self.api.delete(name, &seen.uid, &seen.resource_version),
        }
    }

    /// After a boot nothing has a use: the node takes its blocks without a record, and frees the slots that its pods had.
    fn adopt(&self) -> Result<(), Failure> {
        self.take_former(&*self.own()?)?;
        self.store().set_adopted().map_err(Failure::identity)
    }

    /// Looks once more for what the node has, when no request from before the boot can be made any more.
    fn settle(&self) -> Result<(), Failure> {
        self.take_former(&*self.own()?)?;
        self.store().set_settled().map_err(Failure::identity)?;
        self.lock().settle_due = None;
        Ok(())
    }

    /// Takes the blocks that this node had before the boot, and has slots of former pods looked at.
    fn take_former(&self, own: &Own) -> Result<(), Failure> {
        self.take_stock(own)?;
        let names: Vec<String> = self.lock().entries.keys().cloned().collect();
        names.iter().try_for_each(|name| self.hold_again(own, name))
    }

    /// Finds blocks and slots of this node that its records do not know, and has them looked at.
    fn take_stock(&self, own: &Own) -> Result<(), Failure> {
        let answers = self.answers();
        // The disk may be an older one, or another directory: it does not say which shared blocks have slots of this node.
        let nodes = [&own.holder.node, ""];
        let lists = nodes.map(|node| self.api.list(object::NODE_LABEL, node));
        let objects = lists.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
        for object in &objects {
            let Ok(block) = AddressBlock::parse(object) else {
                continue;
            };
            let name = object::name(&block.space, block.block);
            let mut state = self.lock();
            if state.unusable.why(&name).is_some() {
                continue;
            }
            let former = state.entries.get(&name).cloned();
            // The list is then older than what this node knows. It still says which slots former pods had, and a sweep reads them before it frees them.
            let is_newer = former
                .as_ref()
                .is_some_and(|entry| entry.answered_at > answers || entry.node.pending.is_some());
            let is_known = former.is_some();
            let new = || Entry::new(own.holder.node.clone(), &block.space, block.block);
            let mut entry = former.unwrap_or_else(new);
            match (&block.mode, own.view(&block).mode) {
                (_, Mode::Node(_)) if is_newer => continue,
                (_, Mode::Node(node)) if node == own.holder.node && is_known => {
                    // A daemon that was killed has noted it, and has not taken it yet.
                    drop(state);
                    self.seen(own, &name, Some(object), answers)?;
                    continue;
                }
                (object::Mode::Node(holder), Mode::Node(node))
                    if node == own.holder.node && own.is_former(&holder.boot) => {}
                (object::Mode::Shared(slots), _) => {
                    let mut ended = former_owners(slots, own);
                    ended.retain(|owner| entry.uses.iter().all(|one| one.owner != *owner));
                    if ended.is_empty() && (is_newer || !block.is_unused()) {
                        continue;
                    }
                    entry.ended.extend(ended);
                }
                _ => continue,
            }
            let now = Instant::now();
            // The outcome of a request since the boot may be open for longer.
            entry.open_until.get_or_insert(now);
            entry.sweep_due = Some(now);
            if !is_newer {
                state.known.insert(name.clone(), block);
            }
            state.entries.insert(name.clone(), entry);
            self.note(&mut state, &name)?;
        }
        Ok(())
    }

    /// Raises the turn of a block that was held by an earlier directory of this node, under the new one's name.
    fn hold_again(&self, own: &Own, name: &str) -> Result<(), Failure> {
        let confirm = |entry: &mut Entry, known: &AddressBlock| match &known.mode {
            object::Mode::Node(holder) if holder.incarnation != own.holder.incarnation => {
                entry.node.confirm(&own.view(known))
            }
            _ => None,
        };
        self.ask(own, name, confirm).map(drop)
    }

    /// Reads the Node of a node with blocks now and then.
    fn look_at_node(&self) {
        let mut state = self.lock();
        let is_recent = |read: Instant| read.elapsed() < self.times.node;
        let holds = state
            .entries
            .values()
            .any(|entry| entry.node.record.is_some());
        if holds && !state.node_read.is_some_and(is_recent) {
            state.node_read = Some(Instant::now());
            drop(state);
            // Without an answer the former uid stays.
            let _ = self.read_own();
        }
    }

    /// Notes the uid of the Node. A Node that was made anew is another holder, and the blocks of the former one are perhaps taken already:
    /// as after a boot, none gives before its turn was raised, now under the new uid.
    pub(super) fn set_node(&self, state: &mut State, uid: &str) -> Result<(), Failure> {
        let is_new = self.store().node().is_some_and(|former| former != uid);
        let entries = state.entries.iter_mut().filter(|_| is_new);
        let mut names = Vec::new();
        for (name, entry) in entries {
            if entry.node.pending.is_some() {
                // Its outcome has the former uid.
                return Err(Failure::Busy("this node's Node".to_owned()));
            }
            if let Some(record) = &mut entry.node.record {
                record.confirmed = false;
                names.push(name.clone());
            }
        }
        for name in names {
            self.note(state, &name)?;
        }
        self.store().set_node(uid).map_err(Failure::identity)
    }

    /// Raises the turn of a block with pods that is not confirmed.
    fn hold_on(&self, name: &str) -> Result<(), Failure> {
        let own = self.own()?;
        self.read(&own, name)?;
        let confirm =
            |entry: &mut Entry, known: &AddressBlock| entry.node.confirm(&own.view(known));
        self.ask(&own, name, confirm).map(drop)
    }

    /// Reads Nodes, and notes since when one is missing whose blocks or pods are still there.
    pub(super) fn look_for(&self, nodes: &BTreeSet<Id>) -> Result<(), Failure> {
        for node in nodes {
            let uid = self.api.node(node)?;
            let is_bound = self.api.has_pods(node)?;
            let mut state = self.lock();
            let holders: BTreeSet<Id> = {
                let known = state.known.values();
                let modes = known.filter_map(|block| match &block.mode {
                    object::Mode::Node(holder) if holder.node == *node => Some(holder),
                    _ => None,
                });
                let others = modes.filter(|holder| uid.as_deref() != Some(&*holder.uid));
                others.map(holder_key).collect()
            };
            let now = Instant::now();
            let prefix = format!("{node}/");
            state.missing.retain(|key, _| {
                let is_of_node = *key == *node || key.starts_with(&prefix);
                !is_of_node
                    || (!is_bound && (holders.contains(key) || (*key == *node && uid.is_none())))
            });
            if is_bound {
                continue;
            }
            for key in holders
                .into_iter()
                .chain(uid.is_none().then(|| node.clone()))
            {
                state.missing.entry(key).or_insert(now);
            }
        }
        Ok(())
    }
}

/// Returns the owners of slots that pods of this node had before the node was started anew.
fn former_owners(slots: &[Slot], own: &Own) -> Vec<String> {
    let is_former = |pod: &&SlotPod| {
        *pod.node == *own.holder.node && !pod.boot.is_empty() && own.is_former(&pod.boot)
    };
    let owners = slots.iter().flat_map(|slot| {
        let pods = slot.pods.iter().filter(is_former);
        pods.map(|pod| usage_of(slot, pod))
    });
    owners.collect()
}

/// Returns the patch of a request that no pod waits for.
fn patch_of(own: &Own, seen: &AddressBlock, request: &Request<Id>) -> Option<Value> {
    let context = Context {
        own,
        space: &seen.space,
        block: seen.block,
        seen: Some(seen),
        pod: &|_| None,
    };
    context.patch(request)
}

/// Returns the request that ends a use of this node which is over.
fn ended_use(entry: &Entry, view: &node::Block<Id>) -> Option<(User<Id>, Request<Id>)> {
    let mut all = entry.node.free(view, |_| false).into_iter();
    all.find(|(user, _)| entry.ends(&user.pod))
}
