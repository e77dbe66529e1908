//! What one node does with one block: it gives addresses of its own block from its record, and those of a shared block by requests.
//!
//! Nothing here does I/O, knows the time or draws a number. The caller reads the block, writes the record to disk after each call that
//! changes it and before it sends a request or answers a grant, and reports each answer. `I` is the type of identities: of nodes, blocks
//! and pods.
//!
//! **Invariant**: each request tests all that its sender relies on, so one that lands late changes nothing.

/// A block as it was read from the API server, or as a request makes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block<I> {
    pub uid: I,
    pub turn: u64,
    pub mode: Mode<I>,
    /// Somebody asked for its deletion, which nothing takes back: nobody gives of it, and it is there until somebody lets it go.
    pub is_deleted: bool,
}

impl<I: Clone + Eq> Block<I> {
    fn owner(&self, slot: usize) -> Option<&Owner<I>> {
        match &self.mode {
            Mode::Shared(owners) => owners.get(slot)?.as_ref(),
            Mode::Node(_) => None,
        }
    }

    /// Returns the request that gives a slot to somebody else, or frees it, if it has the owner and the users that were read.
    fn write(&self, slot: usize, owner: Option<Owner<I>>) -> Request<I> {
        Request {
            tests: vec![
                Test::Uid(self.uid.clone()),
                Test::Shared,
                Test::Slot(slot, self.owner(slot).cloned()),
            ],
            change: Change::Slot(slot, owner),
        }
    }

    /// Returns the request that frees the slot of a claim that is over, if no pod uses it.
    pub fn free_claim(&self, slot: usize, claim: &I) -> Option<Request<I>> {
        let is_unused = |owner: &&Owner<I>| **owner == Owner::Claim(claim.clone(), Vec::new());
        let unused = self.owner(slot).filter(is_unused);
        unused.map(|_| self.write(slot, None))
    }
}

/// Who gives a block's addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode<I> {
    Node(I),
    Shared(Owners<I>),
}

/// The owner of each slot; `None` is a free one.
pub type Owners<I> = Vec<Option<Owner<I>>>;

/// Who has a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner<I> {
    Pod(User<I>),
    /// A claim, and the pods that use its address.
    Claim(I, Vec<User<I>>),
}

/// A pod that uses an address, and its node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct User<I> {
    pub node: I,
    pub pod: I,
}

impl<I> Owner<I> {
    /// Returns the claim that has the slot, or else the pod.
    pub fn name(&self) -> &I {
        let (Self::Claim(name, _) | Self::Pod(User { pod: name, .. })) = self;
        name
    }

    /// Returns the pods that use the slot. The one that has come last is the last.
    pub fn users(&self) -> &[User<I>] {
        match self {
            Self::Pod(user) => std::slice::from_ref(user),
            Self::Claim(_, users) => users,
        }
    }
}

/// A change to a block that the API server makes only when all tests pass.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Request<I> {
    pub tests: Vec<Test<I>>,
    pub change: Change<I>,
}

/// What must be so at the moment of the change.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Test<I> {
    Absent,
    Uid(I),
    Turn(u64),
    HeldBy(I),
    Shared,
    /// Nobody has asked for its deletion. No rule rests on it: it keeps a pod out of a block that would have to wait for its end.
    NotDeleted,
    /// The owner of a slot, and all of its users.
    Slot(usize, Option<Owner<I>>),
    /// The whole object is as it was read: a precondition on `resourceVersion`.
    Unchanged(Block<I>),
}

/// What a request changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Change<I> {
    Create(Mode<I>),
    Hold {
        holder: I,
        turn: u64,
    },
    Share {
        owners: Owners<I>,
        turn: u64,
    },
    /// Asks for the deletion of the block, which stays until it is let go.
    Delete,
    /// Removes a deleted block.
    LetGo,
    Slot(usize, Option<Owner<I>>),
}

/// What a node knows of a block that it holds; it is kept on disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Record<I> {
    pub uid: I,
    pub turn: u64,
    /// Set before the node asks to share the block or to give it back. A frozen block never gives again under this turn.
    pub frozen: bool,
    /// The turn was raised since the machine started.
    pub confirmed: bool,
    /// The pod that has each address.
    pub pods: Vec<Option<I>>,
}

/// What happens with a pod's request for an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<I> {
    /// The pod has the address of this slot.
    Granted(usize),
    /// The request has to be sent, and the pod to ask again after its answer, unless that was the grant.
    Send(Request<I>),
    /// Each address is in use.
    Full,
    /// The node cannot give: an answer is awaited, or another node holds the block.
    Wait,
}

/// One node's part in the protocol of one block.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node<I> {
    pub name: I,
    pub slots: usize,
    pub record: Option<Record<I>>,
    /// Slots of the shared block that pods of this node use.
    pub shared: Vec<(usize, I)>,
    pub pending: Option<Request<I>>,
}

impl<I: Clone + Eq> Node<I> {
    /// A node that has never had an address of this block.
    pub fn new(name: I, slots: usize) -> Self {
        Self {
            name,
            slots,
            record: None,
            shared: Vec::new(),
            pending: None,
        }
    }

    /// The machine started: every use has ended, and the disk may be an older one, so the turn has to be raised before the block gives.
    pub fn boot(&mut self) {
        self.pending = None;
        self.shared.clear();
        if let Some(record) = &mut self.record {
            record.confirmed = false;
            record.pods.fill(None);
        }
    }

    /// Returns what to do for a pod without an address. It may get one of these slots, the first that is free, of a block that is shared from
    /// the start where `shares` says so. A slot that it takes belongs to its claim, which has none yet. `is_gone` says of a node that its
    /// machine is off for good.
    pub fn add(
        &mut self,
        seen: Option<&Block<I>>,
        claim: Option<&I>,
        pod: &I,
        slots: &[usize],
        shares: bool,
        is_gone: impl Fn(&I) -> bool,
    ) -> Answer<I> {
        if self.pending.is_some() {
            return Answer::Wait;
        }
        if let Some(record) = &mut self.record {
            if record.frozen || !record.confirmed || claim.is_some() {
                return Answer::Wait;
            }
            let mut slots = slots.iter().copied();
            let free = slots.find(|slot| record.pods[*slot].is_none());
            return free.map_or(Answer::Full, |slot| {
                record.pods[slot] = Some(pod.clone());
                Answer::Granted(slot)
            });
        }
        let me = self.name.clone();
        match seen {
            None => {
                let mode = match slots.first() {
                    Some(slot) if shares => {
                        let mut owners = vec![None; self.slots];
                        owners[*slot] = Some(self.owner(claim, pod));
                        Mode::Shared(owners)
                    }
                    _ => Mode::Node(me),
                };
                self.send(vec![Test::Absent], Change::Create(mode))
            }
            Some(
                block @ Block {
                    mode: Mode::Shared(owners),
                    is_deleted: false,
                    ..
                },
            ) => match slots.iter().copied().find(|slot| owners[*slot].is_none()) {
                None => Answer::Full,
                Some(slot) => {
                    let owner = Some(self.owner(claim, pod));
                    let Request { mut tests, change } = block.write(slot, owner);
                    tests.push(Test::NotDeleted);
                    self.send(tests, change)
                }
            },
            Some(Block {
                uid,
                turn,
                mode: Mode::Node(holder),
                ..
            }) if *holder != me && is_gone(holder) => {
                let tests = held(uid, *turn, holder);
                self.send(
                    tests,
                    Change::Hold {
                        holder: me,
                        turn: turn + 1,
                    },
                )
            }
            Some(_) => Answer::Wait,
        }
    }

    /// Returns the request that adds a pod of this node to those of a claim's slot, unless there are so many others.
    pub fn hold(
        &mut self,
        seen: &Block<I>,
        slot: usize,
        pod: &I,
        most: usize,
    ) -> Option<Request<I>> {
        let Some(Owner::Claim(claim, users)) = seen.owner(slot) else {
            return None;
        };
        let others = users.iter().filter(|user| user.pod != *pod);
        let mut users: Vec<_> = others.cloned().collect();
        if self.pending.is_some() || users.len() >= most {
            return None;
        }
        users.push(self.user(pod));
        let Request { tests, change } = seen.write(slot, Some(Owner::Claim(claim.clone(), users)));
        self.request(tests, change)
    }

    /// A pod of this node no longer uses its address.
    pub fn del(&mut self, pod: &I) {
        self.shared.retain(|(_, user)| user != pod);
        if let Some(record) = &mut self.record {
            for user in record
                .pods
                .iter_mut()
                .filter(|user| user.as_ref() == Some(pod))
            {
                *user = None;
            }
        }
    }

    /// Returns the request that raises the turn of a block that is this node's, and not confirmed since the machine started or frozen:
    /// under the new turn it gives again.
    pub fn confirm(&mut self, seen: &Block<I>) -> Option<Request<I>> {
        let gives = |record: &Record<I>| record.confirmed && !record.frozen;
        let needed = !self.record.as_ref().is_some_and(gives);
        if self.pending.is_some() || !needed || seen.mode != Mode::Node(self.name.clone()) {
            return None;
        }
        let (tests, holder) = (held(&seen.uid, seen.turn, &self.name), self.name.clone());
        self.request(
            tests,
            Change::Hold {
                holder,
                turn: seen.turn + 1,
            },
        )
    }

    /// Freezes the block and returns the request that shares it.
    pub fn share(&mut self) -> Option<Request<I>> {
        let name = &self.name;
        let idle = self.pending.is_none();
        let record = self
            .record
            .as_mut()
            .filter(|record| idle && record.confirmed)?;
        record.frozen = true;
        let owner = |pod: &I| {
            Owner::Pod(User {
                node: name.clone(),
                pod: pod.clone(),
            })
        };
        let owners = record
            .pods
            .iter()
            .map(|pod| pod.as_ref().map(owner))
            .collect();
        let (tests, turn) = (held(&record.uid, record.turn, name), record.turn + 1);
        self.request(tests, Change::Share { owners, turn })
    }

    /// Returns the request that gives back a block without a use, of this node or shared: it asks for the deletion, or lets a deleted block
    /// go. A block of this node is frozen before. The outcome is read with the block.
    pub fn give_back(&mut self, seen: &Block<I>) -> Option<Request<I>> {
        let is_unused = match &seen.mode {
            Mode::Shared(owners) => owners.iter().all(Option::is_none),
            Mode::Node(holder) => {
                let is_mine = *holder == self.name && self.pending.is_none();
                let record = self.record.as_mut().filter(|_| is_mine);
                let mut unused = record.filter(|record| record.pods.iter().all(Option::is_none));
                if let Some(record) = &mut unused {
                    record.frozen = true;
                }
                unused.is_some()
            }
        };
        is_unused.then(|| Request {
            tests: vec![Test::Unchanged(seen.clone())],
            change: if seen.is_deleted {
                Change::LetGo
            } else {
                Change::Delete
            },
        })
    }

    /// Returns the users that no longer are, and the requests that end their use: of this node, which knows all of its pods since the machine
    /// started, and of nodes that are gone. A pod's slot is free then, and a claim keeps its own.
    pub fn free(
        &self,
        seen: &Block<I>,
        is_gone: impl Fn(&I) -> bool,
    ) -> Vec<(User<I>, Request<I>)> {
        let Mode::Shared(owners) = &seen.mode else {
            return Vec::new();
        };
        let is_unused = |slot: usize, user: &User<I>| {
            let used = (slot, user.pod.clone());
            if user.node == self.name {
                // The answer to a request that is under way may still be a grant.
                self.pending.is_none() && !self.shared.contains(&used) && !self.has_recorded(&used)
            } else {
                is_gone(&user.node)
            }
        };
        let mut all = Vec::new();
        for (slot, owner) in owners.iter().enumerate() {
            let Some(owner) = owner else { continue };
            for user in owner.users().iter().filter(|user| is_unused(slot, user)) {
                let left = match owner {
                    Owner::Pod(_) => None,
                    Owner::Claim(claim, users) => {
                        let others = users.iter().filter(|one| *one != user);
                        Some(Owner::Claim(claim.clone(), others.cloned().collect()))
                    }
                };
                all.push((user.clone(), seen.write(slot, left)));
            }
        }
        all
    }

    /// The block was read: a record of a block that is no longer this node's ends, and pods keep their shared addresses.
    pub fn read(&mut self, seen: Option<&Block<I>>) {
        if self.pending.is_some() {
            return;
        }
        if let Some(mine) = seen.filter(|block| block.mode == Mode::Node(self.name.clone())) {
            if let Some(record) = &mut self.record {
                // A request of this node was made whose outcome it did not know.
                record.confirmed &= record.uid == mine.uid && record.turn == mine.turn;
            }
            return;
        }
        if let Some(record) = self.record.take() {
            self.keep_shared(record.pods);
        }
    }

    /// The outcome of the pending request is unknown and will not be told any more.
    pub fn give_up(&mut self) {
        self.pending = None;
    }

    /// The pending request was answered. Returns the slot that a pod got.
    pub fn answered(&mut self, outcome: Outcome<'_, I>) -> Option<usize> {
        let request = self.pending.take()?;
        match (request.change, outcome) {
            (Change::Create(Mode::Shared(owners)), Outcome::Made(_)) => {
                let mut owners = owners.into_iter().enumerate();
                let (slot, owner) = owners.find_map(|(slot, owner)| Some((slot, owner?)))?;
                return self.granted(slot, &owner);
            }
            (Change::Create(Mode::Node(_)) | Change::Hold { .. }, Outcome::Made(block)) => {
                let known = self.record.take();
                let mut pods = known.map_or_else(|| vec![None; self.slots], |record| record.pods);
                for (slot, pod) in self.shared.drain(..) {
                    pods[slot] = Some(pod);
                }
                let (uid, turn) = (block.uid.clone(), block.turn);
                self.record = Some(Record {
                    uid,
                    turn,
                    frozen: false,
                    confirmed: true,
                    pods,
                });
            }
            (Change::Share { .. }, Outcome::Made(_)) => {
                let pods = self.record.take().map(|record| record.pods);
                self.keep_shared(pods.unwrap_or_default());
            }
            (Change::Slot(slot, Some(owner)), Outcome::Made(_)) => {
                return self.granted(slot, &owner);
            }
            _ => {}
        }
        None
    }

    fn user(&self, pod: &I) -> User<I> {
        User {
            node: self.name.clone(),
            pod: pod.clone(),
        }
    }

    fn owner(&self, claim: Option<&I>, pod: &I) -> Owner<I> {
        let user = self.user(pod);
        match claim {
            Some(claim) => Owner::Claim(claim.clone(), vec![user]),
            None => Owner::Pod(user),
        }
    }

    fn granted(&mut self, slot: usize, owner: &Owner<I>) -> Option<usize> {
        self.shared.push((slot, owner.users().last()?.pod.clone()));
        Some(slot)
    }

    /// The record keeps a pod's address until the node has read that the block is shared.
    fn has_recorded(&self, (slot, pod): &(usize, I)) -> bool {
        let pods = self.record.as_ref().map(|record| &record.pods);
        pods.is_some_and(|pods| pods[*slot].as_ref() == Some(pod))
    }

    fn keep_shared(&mut self, pods: Vec<Option<I>>) {
        let used = pods.into_iter().enumerate();
        self.shared
            .extend(used.filter_map(|(slot, pod)| Some((slot, pod?))));
    }

    fn send(&mut self, tests: Vec<Test<I>>, change: Change<I>) -> Answer<I> {
        self.request(tests, change)
            .map_or(Answer::Wait, Answer::Send)
    }

    fn request(&mut self, tests: Vec<Test<I>>, change: Change<I>) -> Option<Request<I>> {
        self.pending = Some(Request { tests, change });
        self.pending.clone()
    }
}

/// The API server's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a, I> {
    /// The block as the request made it.
    Made(&'a Block<I>),
    /// A test failed, and nothing changed.
    Refused,
}

fn held<I: Clone>(uid: &I, turn: u64, holder: &I) -> Vec<Test<I>> {
    vec![
        Test::Uid(uid.clone()),
        Test::Turn(turn),
        Test::HeldBy(holder.clone()),
    ]
}

#[cfg(test)]
mod explorer;
