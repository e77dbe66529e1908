//! The service of a node: gives addresses to the pods of this node, from blocks that it holds and from shared ones.
//!
//! An address of a held block costs one file and no request. Everything else is one exchange with the API server at a time for each block,
//! without the lock: other pods get their addresses meanwhile, or wait for the outcome of this exchange.

mod choice;
mod claims;
mod counts;
pub mod dispatch;
mod entry;
pub mod guest;
mod housekeeping;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

pub use self::counts::{AddressState, Addresses, Counts, RangeCount};

use self::choice::{Step, Unusable};
use self::counts::{Conflicts, Lists};
use self::entry::Entry;
use crate::claim::{ClaimError, Reference, Usage};
use crate::config::{self, ConfigError, Definition};
use crate::guest::PoolError;
use crate::node::{Change, Outcome, Request};
use crate::object::{self, AddressBlock, Holder, ObjectError};
use crate::range::Range;
use crate::request::{Context, Id, Own, pod_owner};
use crate::store::{Read, Store};
use crate::wire::{Allocation, Answer, Ask, Attachment, Grant};

/// What the service asks the API server for. The blocks' objects are those of [`crate::object`].
pub trait Api: Send + Sync {
    /// Reads a block from etcd.
    fn get(&self, name: &str) -> Result<Option<Value>, ApiError>;
    /// Reads all blocks with this label from etcd.
    fn list(&self, label: &str, value: &str) -> Result<Vec<Value>, ApiError>;
    fn create(&self, object: &Value) -> Result<Value, ApiError>;
    /// Applies a JSON patch (RFC 6902).
    fn patch(&self, name: &str, patch: &Value) -> Result<Value, ApiError>;
    /// Asks for the deletion of a block that has this uid and `resourceVersion`. Returns it as it waits for its finalizer, or `None` when it
    /// had none and is gone.
    fn delete(&self, name: &str, uid: &str, version: &str) -> Result<Option<Value>, ApiError>;
    /// Returns the uid of a Node, read from etcd.
    fn node(&self, name: &str) -> Result<Option<String>, ApiError>;
    /// Returns whether a pod is bound to the name of a node, read from etcd.
    fn has_pods(&self, node: &str) -> Result<bool, ApiError>;
    /// Reads a pod by namespace and name.
    fn pod(&self, namespace: &str, name: &str) -> Result<Option<Value>, ApiError>;
    /// Reads a virtual machine (`kubevirt.io`); `None` also where the cluster has no such kind.
    fn machine(&self, namespace: &str, name: &str) -> Result<Option<Value>, ApiError>;
    /// Reads a claim from etcd.
    fn claim(&self, namespace: &str, name: &str) -> Result<Option<Value>, ApiError>;
    fn create_claim(&self, namespace: &str, object: &Value) -> Result<(), ApiError>;
    /// Applies a JSON patch to a claim's status.
    fn patch_claim(&self, namespace: &str, name: &str, patch: &Value) -> Result<(), ApiError>;
}

/// Why the API server did not do what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// A test failed, or the object is there already, or no longer: nothing changed, and reading again shows why.
    #[error("{0}")]
    Refused(String),
    /// Nothing changed, for another reason.
    #[error("{0}")]
    Failed(String),
    /// The change may have been made, or may be made yet.
    #[error("{0}")]
    Unknown(String),
}

/// Why a request of a plugin failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the pod has no uid in CNI_ARGS: K8S_POD_UID has to be set, as kubelet does")]
    NoUid,
    #[error(
        "the pod has no namespace and name in CNI_ARGS: K8S_POD_NAMESPACE and K8S_POD_NAME have to be set, as kubelet does"
    )]
    NoPod,
    #[error(
        "definitions of whereabouts are not served: set ipam.whereabouts in Multus' chart, or use the type multus-ipam"
    )]
    NotServed,
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error(
        "IPPools are in namespace {found}, but this node's are in {own}: set ipam.whereaboutsNamespace in Multus' chart to the one that whereabouts uses, or delete pools that nobody uses any more"
    )]
    OtherNamespace { found: String, own: String },
    #[error(
        "the pools of whereabouts are being moved; kubectl multus ipam adopt or return goes on if it was interrupted"
    )]
    Moving,
    #[error(
        "NodeSlicePool {name} has no slice for node {node}: whereabouts' node-slice-controller makes it and gives slices to nodes, as long as there are some; start it, or take node_slice_size out of the definition"
    )]
    NoSlice { name: String, node: String },
    #[error(
        "the pools of whereabouts are in blocks, which have no slices of nodes: take node_slice_size out of the definition"
    )]
    SlicesInBlocks,
    #[error(transparent)]
    Block(#[from] ObjectError),
    #[error("{0}")]
    Full(String),
    /// An address was asked for that the network does not give.
    #[error("{0}")]
    Chosen(String),
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error("cannot reach the API server: {0}")]
    Api(#[from] ApiError),
    #[error("cannot write the record of block {name}: {source}")]
    Record {
        name: String,
        source: std::io::Error,
    },
    #[error("the container was deleted meanwhile")]
    Cancelled,
    #[error("other requests for {0} took too long")]
    Busy(String),
    #[error("{0} has no address of this network")]
    Unassigned(String),
}

impl Failure {
    /// The file that tells this node's records from others cannot be written.
    fn identity(source: std::io::Error) -> Self {
        Self::Record {
            name: "of this node".to_owned(),
            source,
        }
    }

    /// Returns whether the same request may succeed later.
    fn is_temporary(&self) -> bool {
        !matches!(
            self,
            Self::Config(_) | Self::NoUid | Self::NoPod | Self::Unassigned(_) | Self::Chosen(_)
        )
    }
}

/// The times of the service.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// How long an ADD may take.
    pub patience: Duration,
    /// How long a holder may take to share a block.
    pub sharing: Duration,
    /// How long an ADD waits while pools of whereabouts are being moved.
    pub moving: Duration,
    /// The pause before the block is read again that another node is to share.
    pub look_again: Duration,
    /// For how long a Node has to be gone until its blocks are free.
    pub gone: Duration,
    /// The kernel sends a request for up to 25 s (`daemon::access`), and the API server applies it for up to a minute: until then an unknown
    /// outcome may still change.
    pub settled: Duration,
    /// How old the number of used addresses may be that a block's object has.
    pub report: Duration,
    /// After what time without a use a block is given back, so that a pod that is restarted finds the block of its node.
    pub unused: Duration,
    /// How old the uid of the Node may be when something happens.
    pub node: Duration,
    /// The pause after a request of the housekeeping that failed.
    pub again: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(30),
            sharing: Duration::from_secs(2),
            moving: Duration::from_secs(5),
            look_again: Duration::from_millis(200),
            gone: Duration::from_mins(10),
            settled: Duration::from_secs(90),
            report: Duration::from_secs(5),
            unused: Duration::from_mins(10),
            node: Duration::from_mins(5),
            again: Duration::from_secs(30),
        }
    }
}

/// The service of a node.
pub struct Service<A> {
    api: A,
    times: Times,
    node: Id,
    store: Mutex<Store>,
    state: Mutex<State>,
    /// Notified of each exchange that ended.
    turned: Condvar,
}

#[derive(Default)]
struct State {
    /// Unknown until the Node was read.
    own: Option<Arc<Own>>,
    /// When the Node was read last.
    node_read: Option<Instant>,
    /// The blocks of which this node has something, by the name of their object.
    entries: BTreeMap<String, Entry>,
    /// Every block as it was read last.
    known: HashMap<String, AddressBlock>,
    /// The ADDs under way, and whether a DEL has ended one.
    active: HashMap<Attachment, bool>,
    /// Since when a Node is missing, by its holder or by its name alone.
    missing: HashMap<Id, Instant>,
    unusable: Unusable,
    /// When requests from before the boot can no longer be made, and what they have left is looked for.
    settle_due: Option<Instant>,
    lists: Lists,
    conflicts: Conflicts,
    /// The blocks in which a thread frees slots, and since when.
    swept: HashMap<String, Instant>,
    /// The number of answers about blocks that this node has something of.
    answers: u64,
}

/// An ADD for one list of ranges.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says what was done for this ADD already"
)]
struct Take<'a> {
    allocation: &'a Allocation,
    owner: Id,
    /// The claim that the address belongs to.
    claim: Option<&'a Reference>,
    space: &'a str,
    list: &'a [Range],
    deadline: Instant,
    /// The blocks of the space were read for this ADD.
    is_listed: bool,
    /// A block was tried whose place was not known to be free.
    has_tried: bool,
    /// The blocks that were read for this ADD.
    read: BTreeSet<String>,
    /// The slot of a shared block that the first refused request of this ADD was about. The block was not read again.
    refused: Option<(String, usize)>,
    /// The shared blocks that were read before one of their slots is tried; empty as long as what the node knows of a block was new enough.
    reread: BTreeSet<String>,
    has_asked_for_nodes: bool,
    has_asked_for_claims: bool,
    has_swept: bool,
    /// Slots whose use has ended were freed first, since they were many.
    has_caught_up: bool,
    /// Until when a block is awaited that another node is to share, and which.
    wanted: Option<(Instant, String)>,
    /// The blocks that others were asked to share, and how many of them were not shared in time.
    asked: BTreeSet<String>,
    silent: u32,
}

/// The outcome of a request that the API server has answered.
enum Exchanged {
    /// It was made, and a pod has perhaps got this address.
    Made(Option<IpAddr>),
    /// The block is another one than this node knows.
    Refused,
}

impl<A: Api> Service<A> {
    /// Goes on with the records of a directory.
    pub fn resume(api: A, store: Store, node: &str, times: Times) -> std::io::Result<Self> {
        let mut state = State::default();
        let settled = Instant::now() + times.settled;
        state.settle_due = store.is_open().then_some(settled);
        for read in store.all()? {
            let (record, is_current) = match read {
                Read::Current(record) => (record, true),
                Read::Former(record) => (record, false),
                Read::Damaged(name) => {
                    state.block(&name);
                    continue;
                }
            };
            match Entry::resume(node.into(), &record, is_current, settled) {
                Some(entry) => {
                    if !is_current {
                        // The uses of a former boot are over, and go from the disk when that takes a file.
                        let _ = store.keep(&entry.record());
                    }
                    state.entries.insert(record.name, entry);
                }
                None => state.block(&record.name),
            }
        }
        Ok(Self {
            api,
            times,
            node: node.into(),
            store: Mutex::new(store),
            state: Mutex::new(state),
            turned: Condvar::new(),
        })
    }

    /// Serves a request.
    pub fn serve(&self, ask: &Ask) -> Answer {
        let outcome = match ask {
            Ask::Allocate(allocation) => self.add(allocation),
            Ask::Check(attachment) => self.check(attachment).map(|()| Vec::new()),
            Ask::Release(attachment) => self.del(attachment).map(|()| Vec::new()),
            Ask::ReleaseFrom(from) => self.del(&from.attachment).map(|()| Vec::new()),
            Ask::Collect { network, valid } => self.collect(network, valid).map(|()| Vec::new()),
        };
        answer(outcome)
    }

    /// Gives an address of each list of ranges, or none.
    pub fn add(&self, allocation: &Allocation) -> Result<Vec<Grant>, Failure> {
        let definition = config::parse(&allocation.ipam)?;
        let lists = definition.lists.iter();
        let lists = lists.map(|list| (definition.space.as_str(), list.as_slice()));
        self.give(allocation, lists, || {
            if let Some(name) = self.claim_name(allocation, &definition)? {
                return self.take_for_claim(allocation, &definition, &name);
            }
            let lists = chosen(&definition, &allocation.addresses)?;
            self.take_all(allocation, &definition.space, &lists, None)
        })
    }

    /// Gives what an ADD takes of these lists of ranges, all of it or nothing.
    fn give<'a>(
        &self,
        allocation: &Allocation,
        lists: impl Iterator<Item = (&'a str, &'a [Range])>,
        take: impl FnOnce() -> Result<Vec<Grant>, Failure>,
    ) -> Result<Vec<Grant>, Failure> {
        if allocation.pod.uid.is_empty() {
            return Err(Failure::NoUid);
        }
        self.lock().note_ranges(lists);
        let attachment = &allocation.attachment;
        match self.lock().active.entry(attachment.clone()) {
            hash_map::Entry::Occupied(_) => return Err(Failure::Busy(attachment.text())),
            hash_map::Entry::Vacant(place) => place.insert(false),
        };
        let granted = take();
        let is_cancelled = self.lock().active.remove(attachment).unwrap_or(true);
        let granted = if is_cancelled {
            granted.and(Err(Failure::Cancelled))
        } else {
            granted
        };
        if granted.is_err() {
            // The first error is the one that is reported.
            let _ = self.release(attachment);
        }
        granted
    }

    fn take_all(
        &self,
        allocation: &Allocation,
        space: &str,
        lists: &[Vec<Range>],
        claim: Option<&Reference>,
    ) -> Result<Vec<Grant>, Failure> {
        let deadline = Instant::now() + self.times.patience;
        let Attachment { container, ifname } = &allocation.attachment;
        let owner: Id = match claim {
            Some(claim) => Usage {
                owner: &claim.owner(),
                pod: &allocation.pod.uid,
                interface: &format!("{container}/{ifname}"),
            }
            .text()
            .into(),
            None => pod_owner(&allocation.pod.uid, container, ifname),
        };
        let mut grants = Vec::new();
        for list in lists {
            let take = Take {
                allocation,
                owner: owner.clone(),
                claim,
                space,
                list,
                deadline,
                is_listed: false,
                has_tried: false,
                read: BTreeSet::new(),
                refused: None,
                reread: BTreeSet::new(),
                has_asked_for_nodes: false,
                has_asked_for_claims: false,
                has_swept: false,
                has_caught_up: false,
                wanted: None,
                asked: BTreeSet::new(),
                silent: 0,
            };
            let (address, range) = self.take(take)?;
            grants.push(Grant {
                address: format!("{address}/{}", range.subnet().length()),
                gateway: range.gateway().map(|it| it.to_string()).unwrap_or_default(),
            });
        }
        Ok(grants)
    }

    fn take<'a>(&self, mut take: Take<'a>) -> Result<(IpAddr, &'a Range), Failure> {
        let own = self.own()?;
        loop {
            if Instant::now() > take.deadline {
                return Err(Failure::Busy(take.text()));
            }
            let step = {
                let mut state = self.lock();
                if state.active.get(&take.allocation.attachment) != Some(&false) {
                    return Err(Failure::Cancelled);
                }
                let step = state.next(&mut take, &own, &self.times);
                if let Step::Granted(name, _) | Step::Exchange(name, _) = &step {
                    self.note_step(&mut state, name, &take.owner)?;
                }
                if matches!(step, Step::Wait) {
                    drop(self.turned.wait_timeout(state, self.times.sharing));
                }
                step
            };
            let granted = match step {
                Step::Had(address) | Step::Granted(_, address) => Some(address),
                Step::Exchange(name, request) => match self.exchange(&own, &name, &request)? {
                    Exchanged::Made(granted) => granted,
                    Exchanged::Refused => {
                        if !take.tries_another(&name, &request.change) {
                            self.read(&own, &name)?;
                            take.reread.insert(name);
                        }
                        None
                    }
                },
                step => {
                    self.prepare(&own, take.space, step)?;
                    None
                }
            };
            if let Some(address) = granted {
                let range = take.list.iter().find(|range| range.contains(address));
                let range = range.ok_or_else(|| Failure::Full(take.text()))?;
                return Ok((address, range));
            }
        }
    }

    /// Does what the next step rests on.
    fn prepare(&self, own: &Own, space: &str, step: Step) -> Result<(), Failure> {
        match step {
            Step::Read(name) => self.read(own, &name),
            Step::List => self.list(own, object::SPACE_LABEL, &object::space_label(space)),
            Step::Free(name, request) => {
                self.free(own, &name, &request)?;
                self.let_go(&name)
            }
            Step::AskForClaims(abandoned) => abandoned
                .iter()
                .try_for_each(|one| self.free_abandoned(own, one)),
            Step::Want(name, patch) => self.change(own, &name, &patch).map(drop),
            Step::LookAgain(name) => {
                std::thread::sleep(self.times.look_again);
                self.read(own, &name)
            }
            Step::ReadNodes(nodes) => self.look_for(&nodes),
            Step::Sweep(names) => names.iter().try_for_each(|name| {
                self.sweep(name)?;
                self.let_go(name)
            }),
            Step::Full(text) => Err(Failure::Full(text)),
            Step::Refused(error) => Err(error.into()),
            Step::Wait | Step::Had(_) | Step::Granted(..) | Step::Exchange(..) => Ok(()),
        }
    }

    /// Fails unless the attachment has an address.
    pub fn check(&self, attachment: &Attachment) -> Result<(), Failure> {
        let state = self.lock();
        let mut uses = state.entries.values().flat_map(|entry| &entry.uses);
        if uses.any(|one| one.attachment == *attachment && !one.is_asked) {
            return Ok(());
        }
        Err(Failure::Unassigned(attachment.text()))
    }

    /// Frees the addresses of an attachment. It succeeds where there are none.
    pub fn del(&self, attachment: &Attachment) -> Result<(), Failure> {
        if let Some(is_cancelled) = self.lock().active.get_mut(attachment) {
            *is_cancelled = true;
        }
        self.turned.notify_all();
        self.release(attachment)
    }

    /// Returns whether an attachment has an address of a block, or may still have one.
    pub(super) fn has(&self, attachment: &Attachment) -> bool {
        let state = self.lock();
        let Attachment { container, ifname } = attachment;
        let place = format!("/{container}/{ifname}");
        let mut entries = state.entries.values();
        entries.any(|entry| {
            let mut uses = entry.uses.iter();
            uses.any(|one| one.attachment == *attachment)
                || entry.ended.iter().any(|ended| ended.ends_with(&place))
        })
    }

    /// Frees the addresses of a network but those of the valid attachments, and those that are under way.
    pub fn collect(&self, network: &str, valid: &[Attachment]) -> Result<(), Failure> {
        let over: BTreeSet<Attachment> = {
            let state = self.lock();
            let uses = state.entries.values().flat_map(|entry| &entry.uses);
            let uses = uses.filter(|one| one.network == network);
            uses.map(|one| &one.attachment)
                .filter(|one| !valid.contains(one) && !state.active.contains_key(one))
                .cloned()
                .collect()
        };
        over.iter()
            .try_for_each(|attachment| self.release(attachment))
    }

    /// Ends the uses of an attachment on disk. What has to be freed at the API server is freed by [`Self::work`]: a DEL waits for nobody.
    fn release(&self, attachment: &Attachment) -> Result<(), Failure> {
        let mut state = self.lock();
        let report = Instant::now() + self.times.report;
        let names: Vec<String> = state.entries.keys().cloned().collect();
        for name in names {
            let entry = state.entries.get_mut(&name).expect("it was listed");
            let before = entry.clone();
            if !entry.end(attachment, report) {
                continue;
            }
            if let Err(failure) = self.note(&mut state, &name) {
                // The runtime repeats a DEL that has failed.
                state.entries.insert(name, before);
                return Err(failure);
            }
        }
        drop(state);
        self.turned.notify_all();
        Ok(())
    }

    /// Writes the record before a step is done: on a failure the pod has no address, and nothing is asked for.
    fn note_step(&self, state: &mut State, name: &str, owner: &Id) -> Result<(), Failure> {
        self.note(state, name).inspect_err(|_| {
            if let Some(entry) = state.entries.get_mut(name) {
                entry.withdraw(owner);
            }
        })
    }

    /// Sends a request that the entry of a block has pending.
    fn exchange(&self, own: &Own, name: &str, request: &Request<Id>) -> Result<Exchanged, Failure> {
        enum Call {
            Create(Value),
            Patch(Value),
        }
        let call = {
            let state = self.lock();
            let entry = &state.entries[name];
            let pod = |owner: &str| entry.pod(owner);
            let context = Context {
                own,
                space: &entry.space,
                block: entry.block,
                seen: state.known.get(name),
                pod: &pod,
            };
            match &request.change {
                Change::Create(mode) => Some(Call::Create(context.object(mode))),
                _ => context.patch(request).map(Call::Patch),
            }
        };
        let outcome = match call {
            Some(Call::Create(object)) => self.api.create(&object),
            Some(Call::Patch(patch)) => self.api.patch(name, &patch),
            None => Err(ApiError::Refused("the block was read anew".to_owned())),
        };
        let made = outcome.and_then(|object| {
            // An answer that cannot be read leaves the outcome open.
            AddressBlock::parse(&object).map_err(|error| ApiError::Unknown(error.to_string()))
        });
        let granted = self.answered(own, name, made.as_ref());
        self.turned.notify_all();
        match (made, granted) {
            (Ok(_), granted) => granted.map(Exchanged::Made),
            (Err(ApiError::Refused(_)), granted) => granted.map(|_| Exchanged::Refused),
            (Err(error), _) => Err(error.into()),
        }
    }

    fn answered(
        &self,
        own: &Own,
        name: &str,
        made: Result<&AddressBlock, &ApiError>,
    ) -> Result<Option<IpAddr>, Failure> {
        let mut state = self.lock();
        if let Ok(block) = made {
            state.known.insert(name.to_owned(), block.clone());
        }
        let times = &self.times;
        state.answers += 1;
        let answers = state.answers;
        let entry = state.entries.get_mut(name).expect("its request was sent");
        entry.answered_at = answers;
        let slot = match made {
            Ok(block) => entry.answered(Outcome::Made(&own.view(block))),
            Err(ApiError::Unknown(_)) => {
                entry.give_up(Instant::now() + times.settled);
                None
            }
            Err(_) => entry.answered(Outcome::Refused),
        };
        let address = slot.map(|slot| entry.address(slot));
        self.note(&mut state, name)?;
        Ok(address)
    }

    /// Sends a patch that no entry has pending. Returns false when somebody was faster: then the block was read.
    fn change(&self, own: &Own, name: &str, patch: &Value) -> Result<bool, Failure> {
        let answers = self.answers();
        match self.api.patch(name, patch) {
            Ok(object) => self.seen(own, name, Some(&object), answers).map(|()| true),
            Err(ApiError::Refused(_)) => self.read(own, name).map(|()| false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the number of answers so far: what is read from now on is newer than all of them.
    fn answers(&self) -> u64 {
        self.lock().answers
    }

    /// Reads a block from etcd.
    fn read(&self, own: &Own, name: &str) -> Result<(), Failure> {
        let answers = self.answers();
        let object = self.api.get(name)?;
        self.seen(own, name, object.as_ref(), answers)
    }

    fn list(&self, own: &Own, label: &str, value: &str) -> Result<(), Failure> {
        let answers = self.answers();
        let objects = self.api.list(label, value)?;
        let mut names = BTreeSet::new();
        for object in &objects {
            let name = object.pointer("/metadata/name").and_then(Value::as_str);
            if let Some(name) = name {
                names.insert(name.to_owned());
                self.seen(own, name, Some(object), answers)?;
            }
        }
        if label == object::SPACE_LABEL {
            let mut state = self.lock();
            let State {
                known,
                entries,
                unusable,
                ..
            } = &mut *state;
            let spoilt = &mut unusable.spoilt;
            spoilt.retain(|name, _| object::split_name(name).0 != value || names.contains(name));
            known.retain(|name, block| {
                let is_newer = entries
                    .get(name)
                    .is_some_and(|entry| entry.answered_at > answers);
                object::space_label(&block.space) != value || names.contains(name) || is_newer
            });
        }
        Ok(())
    }

    /// A block was read when there were so many answers: `None` is one that does not exist. A block that somebody edited is not used.
    fn seen(
        &self,
        own: &Own,
        name: &str,
        object: Option<&Value>,
        answers: u64,
    ) -> Result<(), Failure> {
        let block = object.map(AddressBlock::parse).transpose();
        let mut state = self.lock();
        let entry = state.entries.get(name);
        if entry.is_some_and(|entry| entry.answered_at > answers) {
            return Ok(());
        }
        let block = match block {
            Ok(block) => block,
            Err(error) => {
                state.known.remove(name);
                let spoilt = &mut state.unusable.spoilt;
                spoilt.insert(name.to_owned(), error.to_string());
                return Ok(());
            }
        };
        if state.unusable.spoilt.remove(name).is_some() {
            // A boot before it was mended has not seen which of its slots former pods have.
            state.settle_due.get_or_insert_with(Instant::now);
        }
        let view = block.as_ref().map(|block| own.view(block));
        match block {
            Some(block) => state.known.insert(name.to_owned(), block),
            None => state.known.remove(name),
        };
        if let Some(entry) = state.entries.get_mut(name) {
            let before = entry.clone();
            entry.read(view.as_ref());
            if *entry != before {
                self.note(&mut state, name)?;
            }
        }
        state.note_conflicts(name, &own.holder.node, view.as_ref());
        Ok(())
    }

    /// Writes the record of a block, or forgets it when nothing of this node is left.
    fn note(&self, state: &mut State, name: &str) -> Result<(), Failure> {
        let Some(entry) = state.entries.get_mut(name) else {
            return Ok(());
        };
        let store = self.store();
        // This node has perhaps freed the last address, and has to remove the block.
        let is_unused = state.known.get(name).is_some_and(AddressBlock::is_unused);
        let outcome = if entry.is_empty() && !is_unused {
            state.entries.remove(name);
            store.forget(name)
        } else {
            store.keep(&entry.record())
        };
        outcome.map_err(|source| Failure::Record {
            name: name.to_owned(),
            source,
        })
    }

    /// Returns this node's part in the protocol.
    fn own(&self) -> Result<Arc<Own>, Failure> {
        if let Some(own) = &self.lock().own {
            return Ok(Arc::clone(own));
        }
        self.read_own()
    }

    /// Reads the Node. While that fails, its uid is the one of before.
    fn read_own(&self) -> Result<Arc<Own>, Failure> {
        let read = match self.api.node(&self.node) {
            Ok(Some(uid)) => Ok(uid),
            Ok(None) => {
                let text = format!("the cluster has no Node {:?}", &*self.node);
                return Err(ApiError::Failed(text).into());
            }
            Err(error) => Err(error),
        };
        let mut state = self.lock();
        let is_read = read.is_ok();
        let uid = match read {
            Ok(uid) => self.set_node(&mut state, &uid).map(|()| uid)?,
            Err(error) => self.store().node().map(str::to_owned).ok_or(error)?,
        };
        let store = self.store();
        let own = Arc::new(Own {
            holder: Holder {
                node: self.node.clone(),
                uid: uid.into(),
                incarnation: store.incarnation().into(),
                boot: store.boot().into(),
            },
        });
        drop(store);
        if is_read {
            state.own = Some(Arc::clone(&own));
            state.node_read = Some(Instant::now());
        }
        Ok(own)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store is locked after the state, where both are.
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A: Api> guest::Blocks for Service<A> {
    fn add(
        &self,
        allocation: &Allocation,
        ranges: &[(String, Range)],
    ) -> Result<Vec<Grant>, Failure> {
        let lists = ranges
            .iter()
            .map(|(space, range)| (space, vec![range.clone()]));
        let lists: Vec<_> = lists.collect();
        let noted = lists
            .iter()
            .map(|(space, list)| (space.as_str(), list.as_slice()));
        self.give(allocation, noted, || {
            let taken = lists.iter().map(|(space, list)| {
                self.take_all(allocation, space, std::slice::from_ref(list), None)
            });
            Ok(taken.collect::<Result<Vec<_>, _>>()?.concat())
        })
    }

    fn end(&self, attachment: &Attachment) {
        // A failure leaves it to the DEL that the runtime sends.
        let _ = self.release(attachment);
    }

    fn answers(&self) -> u64 {
        self.lock().answers
    }
}

impl State {
    /// Without its record a block gives nothing.
    fn block(&mut self, name: &str) {
        let why = format!(
            "block {name} gives nothing until this node was started again: its record is damaged"
        );
        self.unusable.damaged.insert(name.to_owned(), why);
    }
}

impl Attachment {
    fn text(&self) -> String {
        format!("{} of container {}", self.ifname, self.container)
    }
}

/// Returns the lists of ranges from which a pod gets an address each: where one was chosen, that address alone.
fn chosen(definition: &Definition, addresses: &[IpAddr]) -> Result<Vec<Vec<Range>>, Failure> {
    let mut lists = definition.lists.clone();
    let mut is_chosen = vec![None; lists.len()];
    for address in addresses {
        let only = |list: &Vec<Range>| list.iter().find_map(|range| range.only(*address));
        let mut found = definition.lists.iter().map(only).enumerate();
        let Some((place, range)) = found.find_map(|(place, range)| Some((place, range?))) else {
            let all = definition.lists.iter().flatten();
            let all: Vec<_> = all.map(|range| range.subnet().to_string()).collect();
            return Err(Failure::Chosen(format!(
                "{address} is not an address that the network gives from {}: choose another one, no gateway and none of its exclusions",
                all.join(", ")
            )));
        };
        if let Some(other) = is_chosen[place].replace(*address)
            && other != *address
        {
            return Err(Failure::Chosen(format!(
                "{other} and {address} are of one list of ranges, of which a pod gets one address: leave one out"
            )));
        }
        lists[place] = vec![range];
    }
    Ok(lists)
}

fn answer(outcome: Result<Vec<Grant>, Failure>) -> Answer {
    match outcome {
        Ok(grants) => Answer::Done(grants),
        Err(failure) => Answer::Failed {
            is_temporary: failure.is_temporary(),
            reason: failure.to_string(),
        },
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map(|since| since.as_secs()).unwrap_or_default()
}
