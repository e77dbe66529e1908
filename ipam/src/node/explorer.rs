//! Every history of a small cluster, the shortest first: nodes lose power and return, daemons are killed, answers get lost, and writes
//! land late. The nodes run the code of [`super`]; each [`Rule`] can be broken, and then a violation must be found.
//!
//! - Claims: how the block changes is decided in [`super`], and the write to the claim and the end of its slot in [`crate::claim`], on
//!   objects of the API. The order of these steps is that of the service, written once more.
//! - `wanted`: a holder shares its block here whenever it may, so each history in which others ask it to is among them. That it does so once
//!   it was asked is not shown here.
//! - GC: containers end without a DEL, and any use that none has may be freed, but that of an ADD under way.
//! - Directories: one is emptied while its machine runs, or a machine starts with a new disk. Whose block is whose then is decided in
//!   [`crate::request::Own`], and written here once more on [`Name`]s.
//! - Not here: guests of whereabouts, an older disk, and a claim that is made again under its name.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::{Answer, Block, Change, Mode, Node, Outcome, Owner, Request, Test, User};
use crate::claim::{self, MOST_PODS, Reference};
use crate::service::tests::patched;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// 1: a change of hands tests the turn.
    Turn,
    /// 1: and the block's identity.
    Uid,
    /// 1 and 3: and raises the turn.
    Raise,
    /// 2: a block is frozen before the request that shares it.
    Freeze,
    /// 2: and before the requests that give it back.
    FreezeToGiveBack,
    /// 3: nothing is given after a boot before the turn was raised.
    Confirm,
    /// 4: a node's block is taken only when its Node is gone.
    Gone,
    /// 4: a Node is deleted only when its machine is off.
    Off,
    /// 6: a slot is written only when its owner is the one that was read.
    Owner,
    /// A block is given back only as it was read.
    Unchanged,
    /// 8: a pod uses the address of a claim only when the claim's status has it.
    Status,
    /// 8: and two pods at most.
    Two,
    /// 8: the slot of a claim is freed only when no pod uses it.
    Unused,
    /// 8: and when the claim is gone or has another address.
    Over,
    /// GC frees nothing of an ADD that is under way.
    UnderWay,
    /// A use does not begin again while a request that ends it is under way.
    Ended,
    /// 9: an emptied directory gives nothing of what was held in this boot.
    Boot,
}

#[derive(Clone, Copy)]
struct Limits {
    slots: usize,
    pods: u8,
    under_way: usize,
    power_cuts: u8,
    lives: u8,
    turns: u64,
    /// How often a directory is emptied or a disk is new.
    emptied: u8,
    states: usize,
    has_claim: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Machine {
    is_on: bool,
    is_registered: bool,
    node: Node<u8>,
    adding: Option<Adding>,
}

/// The holder of a block, or the node of a slot: a machine in one of its boots with one of its directories. In the protocol it is a number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name {
    machine: u8,
    boot: u8,
    directory: u8,
}

impl Name {
    fn of(number: u8) -> Self {
        Self {
            machine: number & 1,
            boot: number >> 1 & 7,
            directory: number >> 4,
        }
    }

    fn number(self) -> u8 {
        assert!(self.boot < 8 && self.directory < 8);
        self.machine | self.boot << 1 | self.directory << 4
    }

    /// Returns whether this machine has what another name has: its directory says so, or the uses were over when it was started.
    fn is(self, other: Self, broken: Option<Rule>) -> bool {
        let is_known = self.directory == other.directory || self.boot != other.boot;
        self.machine == other.machine && (is_known || broken == Some(Rule::Boot))
    }
}

/// Returns the index of the machine with this name.
fn index(name: u8) -> usize {
    usize::from(Name::of(name).machine)
}

/// The ADD of a pod of the claim: the claim as it was read, and the slot that the pod has in the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Adding {
    pod: u8,
    read: Claim,
    slot: Option<usize>,
}

/// The claim as the API server has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Claim {
    version: usize,
    slot: Option<usize>,
}

/// A write that is under way, with the machine that awaits its answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Block(Option<u8>, Request<u8>),
    Claim(u8, Adding),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    api: Option<Block<u8>>,
    machines: Vec<Machine>,
    claim: Option<Claim>,
    messages: Vec<Message>,
    /// As the containers have them.
    uses: Vec<Use>,
    pods: u8,
    lives: u8,
    power_cuts: u8,
    emptied: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Use {
    slot: usize,
    is_claimed: bool,
    pod: u8,
    on: u8,
}

impl Machine {
    /// Returns the block as this machine sees it.
    fn view(&self, block: &Block<u8>, broken: Option<Rule>) -> Block<u8> {
        let own = Name::of(self.node.name);
        let seen = |name: u8| {
            if own.is(Name::of(name), broken) {
                own.number()
            } else {
                name
            }
        };
        let mut view = block.clone();
        match &mut view.mode {
            Mode::Node(holder) => *holder = seen(*holder),
            Mode::Shared(owners) => {
                let users = owners.iter_mut().flatten().flat_map(users_of);
                users.for_each(|user| user.node = seen(user.node));
            }
        }
        view
    }

    /// Begins a directory without a record.
    fn empty(&mut self) {
        let name = Name::of(self.node.name);
        let directory = name.directory + 1;
        self.node = Node::new(Name { directory, ..name }.number(), self.node.slots);
    }

    /// No answer is awaited any more, and the ADD that awaits one fails.
    fn give_up(&mut self) {
        self.node.give_up();
        self.fail();
    }

    fn fail(&mut self) {
        if let Some(adding) = self.adding.take() {
            self.node.del(&adding.pod);
        }
    }
}

impl State {
    fn start_use(&mut self, slot: usize, pod: u8, on: u8, is_claimed: bool) {
        self.uses.push(Use {
            slot,
            is_claimed,
            pod,
            on,
        });
        self.uses.sort_unstable();
    }

    /// Numbers the versions of the claim anew: only which of them are equal matters, and which is the newest.
    fn forget_writes(&mut self) {
        let mut all: Vec<_> = self.claims().map(|claim| claim.version).collect();
        all.sort_unstable();
        all.dedup();
        for claim in self.claims() {
            claim.version = all.partition_point(|one| *one < claim.version);
        }
        self.messages.sort();
    }

    /// Returns the claim, and as which it was read.
    fn claims(&mut self) -> impl Iterator<Item = &mut Claim> {
        let adding = self.machines.iter_mut().flat_map(|it| &mut it.adding);
        let messages = self.messages.iter_mut().filter_map(|it| match it {
            Message::Claim(_, adding) => Some(&mut adding.read),
            Message::Block(..) => None,
        });
        let read = adding.map(|adding| &mut adding.read);
        read.chain(messages).chain(&mut self.claim)
    }

    /// An address is used twice, or by more pods than a claim may have, or a claim has two, or not the one of its status.
    fn is_violated(&self) -> bool {
        let is_twice = |pair: &[Use]| {
            pair[0].slot == pair[1].slot && !(pair[0].is_claimed && pair[1].is_claimed)
        };
        let claimed: Vec<_> = self.uses.iter().filter(|used| used.is_claimed).collect();
        let is_kept = |slot: usize| match self.api.as_ref().map(|block| block.owner(slot)) {
            Some(owner) => matches!(owner, Some(Owner::Claim(..))),
            None => false,
        };
        self.uses.windows(2).any(is_twice)
            || claimed.len() > MOST_PODS
            || claimed.windows(2).any(|pair| pair[0].slot != pair[1].slot)
            || !self.claim.and_then(|claim| claim.slot).is_none_or(is_kept)
    }
}

/// The name of the claim in the protocol.
const CLAIM: u8 = u8::MAX;

/// Returns the object of the claim.
fn object(claim: Claim) -> Value {
    let ips: Vec<_> = claim.slot.map(address).into_iter().collect();
    json!({
        "metadata": {"uid": "u", "resourceVersion": claim.version.to_string()},
        "spec": {"network": "lan"},
        "status": {"ips": ips},
    })
}

fn address(slot: usize) -> IpAddr {
    Ipv4Addr::from(u32::try_from(slot).expect("it is small")).into()
}

fn parse(object: &Value) -> claim::Claim {
    claim::Claim::parse(Some(object), "shop", "vm", "lan").expect("it is a claim")
}

/// The API server: the pod's address is written into the status of the claim, unless a test fails.
fn bind(claim: Claim, adding: Adding) -> Option<Claim> {
    let ips = [address(adding.slot?).to_string()];
    let patch = parse(&object(adding.read)).allocated(&ips, "pod", "now");
    let made = parse(&patched(&object(claim), &patch)?);
    let mut slots = 0..usize::MAX;
    Some(Claim {
        version: claim.version + 1,
        slot: slots.find(|slot| made.addresses == [address(*slot)]),
    })
}

/// A test failed.
struct Refused;

/// The API server: tests, then changes. The block is `None` when the change removed it.
fn apply(
    state: &State,
    request: &Request<u8>,
    broken: Option<Rule>,
    slots: usize,
) -> Result<Option<Block<u8>>, Refused> {
    let passes = |test: &Test<u8>| match (test, &state.api) {
        (Test::Absent, api) => api.is_none(),
        (_, None) => false,
        (Test::Uid(uid), Some(block)) => broken == Some(Rule::Uid) || *uid == block.uid,
        (Test::Turn(turn), Some(block)) => broken == Some(Rule::Turn) || *turn == block.turn,
        (Test::HeldBy(node), Some(block)) => block.mode == Mode::Node(*node),
        (Test::NotDeleted, Some(_)) => true,
        (Test::Shared, Some(block)) => matches!(block.mode, Mode::Shared(_)),
        (Test::Slot(slot, owner), Some(block)) => {
            let is_same = |now: &Option<Owner<u8>>| match broken {
                Some(Rule::Owner) => true,
                Some(Rule::Unused) => {
                    now.as_ref().map(without_users) == owner.as_ref().map(without_users)
                }
                _ => now == owner,
            };
            matches!(&block.mode, Mode::Shared(owners) if is_same(&owners[*slot]))
        }
        (Test::Unchanged(seen), Some(block)) => {
            seen == block || (broken == Some(Rule::Unchanged) && seen.uid == block.uid)
        }
    };
    if !request.tests.iter().all(passes) {
        return Err(Refused);
    }
    let mut block = state.api.clone().unwrap_or(Block {
        uid: state.lives,
        turn: 0,
        mode: Mode::Shared(vec![None; slots]),
        is_deleted: false,
    });
    match &request.change {
        Change::Create(mode) => block.mode = mode.clone(),
        Change::Hold { holder, turn } => {
            let is_same = block.mode == Mode::Node(*holder);
            block.turn = if broken == Some(Rule::Raise) && is_same {
                block.turn
            } else {
                *turn
            };
            block.mode = Mode::Node(*holder);
        }
        Change::Share { owners, turn } => {
            (block.turn, block.mode) = (*turn, Mode::Shared(owners.clone()));
        }
        Change::Delete => block.is_deleted = true,
        Change::LetGo => return Ok(None),
        Change::Slot(slot, owner) => {
            if let Mode::Shared(owners) = &mut block.mode {
                owners[*slot].clone_from(owner);
            }
        }
    }
    Ok(Some(block))
}

/// Sends a request, which names what its sender has seen as the API server has it.
fn post(
    next: &mut Vec<State>,
    mut state: State,
    sender: Option<u8>,
    request: Option<Request<u8>>,
    limits: Limits,
) {
    let Some(mut request) = request else { return };
    if let Some(seen) = &state.api {
        for test in &mut request.tests {
            match test {
                Test::HeldBy(name) => {
                    if let Mode::Node(holder) = seen.mode {
                        *name = holder;
                    }
                }
                Test::Slot(slot, owner) => *owner = seen.owner(*slot).cloned(),
                Test::Unchanged(block) => *block = seen.clone(),
                _ => {}
            }
        }
        if let Change::Slot(slot, Some(owner)) = &mut request.change {
            let known = seen.owner(*slot).map_or(&[][..], Owner::users);
            for user in users_of(owner) {
                let is_same = |one: &&User<u8>| one.pod == user.pod;
                user.node = known.iter().find(is_same).map_or(user.node, |one| one.node);
            }
        }
    }
    if let Some(sender) = sender {
        let pending = &mut state.machines[usize::from(sender)].node.pending;
        *pending = pending.is_some().then(|| request.clone());
    }
    send(next, state, Message::Block(sender, request), limits);
}

fn users_of(owner: &mut Owner<u8>) -> &mut [User<u8>] {
    match owner {
        Owner::Pod(user) => std::slice::from_mut(user),
        Owner::Claim(_, users) => users,
    }
}

fn send(next: &mut Vec<State>, mut state: State, message: Message, limits: Limits) {
    if state.messages.len() < limits.under_way && !state.messages.contains(&message) {
        state.messages.push(message);
        state.messages.sort();
        next.push(state);
    }
}

/// Returns the pod that a request takes an address for.
fn pod(change: &Change<u8>) -> u8 {
    let owner = match change {
        Change::Slot(_, owner) => owner.as_ref(),
        Change::Create(Mode::Shared(owners)) => owners.iter().flatten().next(),
        _ => None,
    };
    let users = owner.expect("it takes an address").users();
    users.last().expect("a pod takes it").pod
}

fn deliver(next: &mut Vec<State>, state: &State, broken: Option<Rule>, limits: Limits) {
    for index in 0..state.messages.len() {
        let mut rest = state.clone();
        match rest.messages.remove(index) {
            Message::Block(sender, request) => {
                deliver_to_block(next, rest, sender, &request, broken, limits);
            }
            Message::Claim(name, adding) => deliver_to_claim(next, rest, name, adding),
        }
    }
}

fn deliver_to_block(
    next: &mut Vec<State>,
    mut lost: State,
    sender: Option<u8>,
    request: &Request<u8>,
    broken: Option<Rule>,
    limits: Limits,
) {
    let outcome = apply(&lost, request, broken, limits.slots);
    if let Ok(made) = &outcome {
        let is_new = lost.api.is_none();
        let is_beyond = made.as_ref().is_some_and(|block| block.turn > limits.turns);
        if is_beyond || (is_new && lost.lives >= limits.lives) {
            return;
        }
        lost.lives += u8::from(is_new);
        lost.api.clone_from(made);
    }
    if let Some(name) = sender
        && lost.machines[usize::from(name)].node.pending.as_ref() == Some(request)
    {
        let mut told = lost.clone();
        let outcome = match &outcome {
            Ok(Some(block)) => Outcome::Made(block),
            Ok(None) | Err(Refused) => Outcome::Refused,
        };
        let machine = &mut told.machines[usize::from(name)];
        if let Some(slot) = machine.node.answered(outcome) {
            let pod = pod(&request.change);
            let adding = machine.adding.as_mut();
            match adding.filter(|adding| adding.pod == pod) {
                Some(adding) if broken != Some(Rule::Status) => adding.slot = Some(slot),
                adding => {
                    let is_claimed = adding.is_some();
                    machine.adding = machine.adding.filter(|_| !is_claimed);
                    told.start_use(slot, pod, name, is_claimed);
                }
            }
        }
        next.push(told);
    }
    next.push(lost);
}

fn deliver_to_claim(next: &mut Vec<State>, mut lost: State, name: u8, adding: Adding) {
    let made = lost.claim.and_then(|claim| bind(claim, adding));
    lost.claim = made.or(lost.claim);
    let mut told = lost.clone();
    let machine = &mut told.machines[usize::from(name)];
    if machine.adding == Some(adding) {
        match (made, lost.claim, adding.slot) {
            (Some(_), _, Some(slot)) => {
                machine.adding = None;
                told.start_use(slot, adding.pod, name, true);
            }
            // It is read again. The slot is the right one as long as the claim has no other address.
            (_, Some(read), slot) => {
                let is_other = read.slot != adding.read.slot;
                if is_other {
                    machine.node.del(&adding.pod);
                }
                let slot = slot.filter(|_| !is_other);
                machine.adding = Some(Adding {
                    read,
                    slot,
                    ..adding
                });
            }
            _ => machine.fail(),
        }
        next.push(told);
    }
    next.push(lost);
}

fn power(next: &mut Vec<State>, state: &State, name: u8, broken: Option<Rule>, limits: Limits) {
    let index = usize::from(name);
    let machine = &state.machines[index];
    if machine.is_registered && (!machine.is_on || broken == Some(Rule::Off)) {
        let mut deleted = state.clone();
        deleted.machines[index].is_registered = false;
        next.push(deleted);
    }
    let mut changed = state.clone();
    if machine.is_on {
        if state.power_cuts < limits.power_cuts {
            changed.power_cuts += 1;
            changed.machines[index].is_on = false;
            changed.machines[index].give_up();
            changed.uses.retain(|used| used.on != name);
            next.push(changed);
        }
        return;
    }
    let booted = &mut changed.machines[index];
    (booted.is_on, booted.is_registered) = (true, true);
    booted.node.boot();
    let name = Name::of(booted.node.name);
    let boot = name.boot + 1;
    booted.node.name = Name { boot, ..name }.number();
    if state.emptied < limits.emptied {
        let mut renewed = changed.clone();
        renewed.emptied += 1;
        renewed.machines[index].empty();
        next.push(renewed);
    }
    let booted = &mut changed.machines[index];
    if let Some(record) = booted
        .node
        .record
        .as_mut()
        .filter(|_| broken == Some(Rule::Confirm))
    {
        record.confirmed = true;
    }
    next.push(changed);
}

fn work(next: &mut Vec<State>, state: &State, name: u8, broken: Option<Rule>, limits: Limits) {
    let at = usize::from(name);
    let is_gone =
        |other: &u8| broken == Some(Rule::Gone) || !state.machines[index(*other)].is_registered;
    let view = state.api.as_ref();
    let view = view.map(|block| state.machines[at].view(block, broken));
    let seen = view.as_ref();
    let variant = |change: &mut dyn FnMut(&mut Node<u8>)| {
        let mut changed = state.clone();
        change(&mut changed.machines[at].node);
        changed
    };
    let mut given_up = state.clone();
    given_up.machines[at].give_up();
    if state.emptied < limits.emptied {
        let mut emptied = given_up.clone();
        emptied.emptied += 1;
        emptied.machines[at].empty();
        next.push(emptied);
    }
    next.push(given_up);
    next.push(variant(&mut |node| node.read(seen)));
    let own = state.uses.iter().enumerate();
    for (place, _) in own.filter(|(_, used)| used.on == name) {
        let mut ended = state.clone();
        ended.uses.remove(place);
        next.push(ended);
    }
    // DEL or GC, as the runtime repeats or forgets a DEL: neither ends the use of an ADD that is under way.
    let is_listed = |pod: u8| state.uses.iter().any(|used| used.pod == pod);
    let adding = state.machines[at].adding.map(|adding| adding.pod);
    let active = adding.filter(|_| broken != Some(Rule::UnderWay));
    for pod in (0..state.pods).filter(|pod| !is_listed(*pod) && active != Some(*pod)) {
        next.push(variant(&mut |node| node.del(&pod)));
    }
    let slots: Vec<usize> = (0..limits.slots).collect();
    for shares in [false, true] {
        if state.pods >= limits.pods || (shares && seen.is_some()) {
            continue;
        }
        let mut answer = Answer::Wait;
        let mut added = variant(&mut |node| {
            answer = node.add(seen, None, &state.pods, &slots, shares, is_gone);
        });
        match answer {
            Answer::Granted(slot) => {
                added.start_use(slot, state.pods, name, false);
                added.pods += 1;
                next.push(added);
            }
            Answer::Send(request) => {
                let takes = matches!(
                    request.change,
                    Change::Slot(..) | Change::Create(Mode::Shared(_))
                );
                added.pods += u8::from(takes);
                post(next, added, Some(name), Some(request), limits);
            }
            Answer::Full | Answer::Wait => {}
        }
    }
    let mut request = None;
    if let Some(block) = seen {
        let confirming = variant(&mut |node| request = node.confirm(block));
        post(next, confirming, Some(name), request.take(), limits);
        for (_, free) in state.machines[at].node.free(block, is_gone) {
            post(next, state.clone(), None, Some(free), limits);
        }
        let given_back = variant(&mut |node| {
            request = node.give_back(block);
            thaw(node, broken == Some(Rule::FreezeToGiveBack));
        });
        post(next, given_back, None, request.take(), limits);
    }
    let shared = variant(&mut |node| {
        request = node.share();
        thaw(node, broken == Some(Rule::Freeze));
    });
    post(next, shared, Some(name), request.take(), limits);
    add_claimed(next, state, name, broken, limits);
}

/// The ADD of a pod of the claim goes on, or the one of a new pod begins.
fn add_claimed(
    next: &mut Vec<State>,
    state: &State,
    name: u8,
    broken: Option<Rule>,
    limits: Limits,
) {
    let mut changed = state.clone();
    let machine = &mut changed.machines[usize::from(name)];
    let new = |read| Adding {
        pod: state.pods,
        read,
        slot: None,
    };
    let begun = state.claim.filter(|_| state.pods < limits.pods).map(new);
    changed.pods += u8::from(machine.adding.is_none());
    let Some(adding) = machine.adding.or(begun) else {
        return;
    };
    machine.adding = Some(adding);
    let is_ending = state.messages.iter().any(|one| ends(one, adding.pod));
    if is_ending && broken != Some(Rule::Ended) {
        return;
    }
    if adding.slot.is_some() {
        return send(next, changed, Message::Claim(name, adding), limits);
    }
    let view = state.api.as_ref().map(|block| machine.view(block, broken));
    let seen = view.as_ref();
    let (slots, read) = (0..limits.slots, adding.read);
    let slots: Vec<_> = slots
        .filter(|slot| read.slot.is_none_or(|its| its == *slot))
        .collect();
    let is_its = |slot: usize| matches!(seen?.owner(slot)?, Owner::Claim(..)).then_some(slot);
    let its = slots.iter().find_map(|slot| is_its(*slot));
    let request = if let (Some(block), Some(slot)) = (seen, its) {
        let most = MOST_PODS + usize::from(broken == Some(Rule::Two));
        machine.node.hold(block, slot, &adding.pod, most)
    } else {
        let is_gone = |other: &u8| !state.machines[index(*other)].is_registered;
        let (node, claim) = (&mut machine.node, Some(&CLAIM));
        match node.add(seen, claim, &adding.pod, &slots, true, is_gone) {
            Answer::Send(request) => Some(request),
            Answer::Granted(_) | Answer::Full | Answer::Wait => None,
        }
    };
    post(next, changed, Some(name), request, limits);
}

/// Returns whether a write ends the use of a pod.
fn ends(message: &Message, pod: u8) -> bool {
    let has = |owner: &Option<Owner<u8>>| {
        let users = owner.iter().flat_map(Owner::users);
        users.into_iter().any(|user| user.pod == pod)
    };
    match message {
        Message::Block(
            None,
            Request {
                tests,
                change: Change::Slot(_, owner),
            },
        ) => {
            let mut tests = tests.iter();
            !has(owner) && tests.any(|test| matches!(test, Test::Slot(_, before) if has(before)))
        }
        _ => false,
    }
}

/// The claim is deleted, and a slot that is not its any more is freed.
fn end_claim(next: &mut Vec<State>, state: &State, broken: Option<Rule>, limits: Limits) {
    if state.claim.is_some() {
        next.push(State {
            claim: None,
            ..state.clone()
        });
    }
    let mut seen = state.api.clone();
    if let Some(block) = &mut seen
        && broken == Some(Rule::Unused)
        && let Mode::Shared(owners) = &mut block.mode
    {
        let owners = owners.iter_mut().flatten();
        owners.for_each(|owner| *owner = without_users(owner));
    }
    let claim = Reference {
        uid: "u".to_owned(),
        namespace: "shop".to_owned(),
        name: "vm".to_owned(),
    };
    for slot in 0..limits.slots {
        let free = seen.as_ref().and_then(|seen| seen.free_claim(slot, &CLAIM));
        let is_over = |_: &Request<u8>| {
            let object = state.claim.map(object);
            broken == Some(Rule::Over) || claim::is_over(object.as_ref(), &claim, address(slot))
        };
        post(next, state.clone(), None, free.filter(is_over), limits);
    }
}

fn without_users(owner: &Owner<u8>) -> Owner<u8> {
    match owner {
        Owner::Claim(claim, _) => Owner::Claim(*claim, Vec::new()),
        Owner::Pod(_) => owner.clone(),
    }
}

fn thaw(node: &mut Node<u8>, is_broken: bool) {
    if let Some(record) = node.record.as_mut().filter(|_| is_broken) {
        record.frozen = false;
    }
}

/// Somebody asks for the deletion of the block.
fn delete(next: &mut Vec<State>, state: &State) {
    let mut deleted = state.clone();
    if let Some(block) = &mut deleted.api {
        block.is_deleted = true;
        next.push(deleted);
    }
}

/// Explores all histories within the limits. Returns how many states there are, whether these are all, and whether one is a violation, whose
/// history is printed unless a rule is broken.
fn explore(limits: Limits, broken: Option<Rule>) -> (usize, bool, bool) {
    let found = search(limits, broken, &mut |_, _| {});
    if broken.is_none()
        && let (_, _, Some(violated)) = &found
    {
        // Once more, with the state before each one.
        let mut before = HashMap::new();
        search(limits, None, &mut |state, next| {
            before.entry(hash(next)).or_insert_with(|| hash(state));
        });
        let mut history = vec![hash(violated)];
        while let Some(one) = before.get(&history[history.len() - 1]) {
            history.push(*one);
        }
        search(limits, None, &mut |_, next| {
            if let Some(left) = history.iter().position(|one| *one == hash(next)) {
                println!("{left} steps before the violation: {next:?}");
            }
        });
    }
    (found.0, found.1, found.2.is_some())
}

/// 64 bits of a state: two of a million are the same one time in 40 million, two of a hundred million one time in 4,000.
fn hash(state: &State) -> u64 {
    BuildHasherDefault::<DefaultHasher>::new().hash_one(state)
}

/// Looks at one state after the other, and tells of each new one and the state before it. Returns how many there are, whether these are all,
/// and the one that is a violation, which ends the search.
fn search(
    limits: Limits,
    broken: Option<Rule>,
    found: &mut impl FnMut(&State, &State),
) -> (usize, bool, Option<State>) {
    let machine = |name| Machine {
        is_on: true,
        is_registered: true,
        node: Node::new(name, limits.slots),
        adding: None,
    };
    let start = State {
        api: None,
        claim: limits.has_claim.then_some(Claim {
            version: 0,
            slot: None,
        }),
        machines: vec![machine(0), machine(1)],
        messages: Vec::new(),
        uses: Vec::new(),
        pods: 0,
        lives: 0,
        power_cuts: 0,
        emptied: 0,
    };
    let mut seen = HashSet::from([hash(&start)]);
    let mut queue = VecDeque::from([start]);
    loop {
        let state = if queue.len() < MOST_WAITING {
            queue.pop_front()
        } else {
            queue.pop_back()
        };
        let Some(state) = state else {
            return (seen.len(), true, None);
        };
        if seen.len() > limits.states {
            return (seen.len(), false, None);
        }
        let mut next = Vec::new();
        deliver(&mut next, &state, broken, limits);
        if !limits.has_claim {
            delete(&mut next, &state);
        }
        end_claim(&mut next, &state, broken, limits);
        for name in 0..2 {
            power(&mut next, &state, name, broken, limits);
            if state.machines[usize::from(name)].is_on {
                work(&mut next, &state, name, broken, limits);
            }
        }
        for mut next in next {
            let is_violated = next.is_violated();
            next.forget_writes();
            if seen.insert(hash(&next)) {
                found(&state, &next);
                if is_violated {
                    return (seen.len(), false, Some(next));
                }
                queue.push_back(next);
            }
        }
    }
}

/// States that have been found and not looked at. When they are more, the one found last is the next, so that their number stays the same
/// and a run of any length has room in the memory of a small machine.
const MOST_WAITING: usize = 2_000_000;

const SMALL: Limits = Limits {
    slots: 1,
    pods: 2,
    under_way: 1,
    power_cuts: 1,
    lives: 2,
    turns: 2,
    emptied: 0,
    states: 5_000_000,
    has_claim: false,
};

/// What breaks a rule is found in it; all its histories are too many for a test.
const LARGER: Limits = Limits {
    pods: 3,
    under_way: 2,
    lives: 3,
    turns: 4,
    states: 200_000,
    ..SMALL
};

#[test]
fn no_history_gives_an_address_twice() {
    let (states, is_complete, is_violated) = explore(SMALL, None);
    assert!(
        is_complete && !is_violated,
        "{states} states, violated: {is_violated}"
    );
    assert!(
        states > 10_000,
        "the exploration is no longer one: {states} states"
    );
}

/// A machine loses its directory, while it runs or with its power.
const EMPTIED: Limits = Limits {
    emptied: 1,
    ..SMALL
};

#[test]
fn no_history_with_an_emptied_directory_gives_an_address_twice() {
    let claimed = Limits {
        pods: 2,
        emptied: 1,
        ..CLAIMED
    };
    for limits in [EMPTIED, claimed] {
        let (states, is_complete, is_violated) = explore(limits, None);
        assert!(
            is_complete && !is_violated && states > 100_000,
            "{states} states, violated: {is_violated}"
        );
    }
}

/// Two addresses, and pods of a claim or without one. The block is made as a shared one, or is not shared.
const CLAIMED: Limits = Limits {
    slots: 2,
    pods: 3,
    lives: 1,
    turns: 0,
    has_claim: true,
    ..SMALL
};

#[test]
fn no_history_gives_a_claim_two_addresses_or_its_own_to_others() {
    for (pods, turns) in [(3, 0), (2, 1)] {
        let limits = Limits {
            pods,
            turns,
            ..CLAIMED
        };
        let (states, is_complete, is_violated) = explore(limits, None);
        assert!(
            is_complete && !is_violated && states > 100_000,
            "{states} states, violated: {is_violated}"
        );
    }
}

#[test]
fn each_rule_is_needed() {
    use Rule::{Boot, Ended, Over, Status, Two, UnderWay, Unused};
    use Rule::{Confirm, Freeze, FreezeToGiveBack, Gone, Off, Owner, Raise, Turn, Uid, Unchanged};
    let rules = [
        Turn,
        Uid,
        Raise,
        Freeze,
        FreezeToGiveBack,
        Confirm,
        Gone,
        Off,
        Owner,
        Unchanged,
    ];
    let of_claims = [Two, Unused, Over, UnderWay];
    // Two nodes write at once.
    let at_once = Limits {
        under_way: 2,
        states: LARGER.states,
        ..CLAIMED
    };
    let one_address = Limits {
        slots: 1,
        pods: 2,
        power_cuts: 0,
        ..at_once
    };
    let all = rules.map(|rule| (rule, LARGER));
    let all = all
        .into_iter()
        .chain(of_claims.map(|rule| (rule, CLAIMED)))
        .chain([(Status, at_once), (Ended, one_address), (Boot, EMPTIED)]);
    let is_useless = |(rule, limits): &(Rule, Limits)| !explore(*limits, Some(*rule)).2;
    let useless = all.filter(is_useless).map(|(rule, _)| rule);
    let useless: Vec<Rule> = useless.collect();
    assert_eq!(useless, []);
}

#[test]
#[ignore = "a minute with --release"]
fn no_history_shares_a_block_for_a_claim_wrongly() {
    let limits = Limits {
        turns: 1,
        ..CLAIMED
    };
    let (states, is_complete, is_violated) = explore(limits, None);
    assert!(
        is_complete && !is_violated,
        "{states} states, violated: {is_violated}"
    );
}

#[test]
#[ignore = "minutes with --release"]
fn no_history_with_two_writes_under_way_gives_an_address_twice() {
    for (turns, power_cuts) in [(2, 1), (3, 0)] {
        let larger = Limits {
            under_way: 2,
            turns,
            power_cuts,
            states: 100_000_000,
            ..SMALL
        };
        let (states, is_complete, is_violated) = explore(larger, None);
        println!("{states} states");
        assert!(
            is_complete && !is_violated,
            "{states} states, violated: {is_violated}"
        );
    }
}

#[test]
#[ignore = "an hour with --release"]
fn none_of_a_hundred_million_states_has_an_address_twice() {
    let larger = Limits {
        power_cuts: 2,
        emptied: 1,
        ..LARGER
    };
    let claimed = Limits {
        pods: 4,
        under_way: 2,
        power_cuts: 2,
        lives: 2,
        turns: 2,
        emptied: 1,
        ..CLAIMED
    };
    for limits in [larger, claimed] {
        let limits = Limits {
            states: 50_000_000,
            ..limits
        };
        let (states, _, is_violated) = explore(limits, None);
        println!("{states} states");
        assert!(!is_violated && states > limits.states, "{states} states");
    }
}

#[test]
fn no_short_history_of_a_larger_cluster_gives_an_address_twice() {
    let (states, _, is_violated) = explore(LARGER, None);
    assert!(!is_violated && states > LARGER.states, "{states} states");
}

/// Under the record's turn each request to share the block would be refused, and the block would stay its holder's.
#[test]
fn turn_that_was_raised_without_an_answer_is_raised_again_before_the_block_is_shared() {
    let mut node = Node::new("a", 1);
    node.record = Some(super::Record {
        uid: "u",
        turn: 1,
        frozen: true,
        confirmed: true,
        pods: vec![None],
    });
    let block = Block {
        uid: "u",
        turn: 2,
        mode: Mode::Node("a"),
        is_deleted: false,
    };
    node.read(Some(&block));
    assert_eq!(node.share(), None);
    let request = node.confirm(&block).unwrap();
    let holder = "a";
    assert_eq!(request.change, Change::Hold { holder, turn: 3 });
}
