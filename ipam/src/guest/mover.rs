//! The steps of an adoption and of a return, in their order, over a cluster that can be read and written.
//!
//! [`moving`] says what is written. Whoever takes the steps may be interrupted at any place, and takes them from the beginning when he goes
//! on. Tests take them between the requests of nodes, in all orders.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::net::IpAddr;
use std::ops::Deref;

use serde_json::{Map, Value, json};

use super::moving::{self, Adoption, Obstacle, PodPlace, Reserved, Return, StoredPool};
use super::pool::{ADOPTED, ADOPTING, RETURNING};
use super::{POOLS, RESERVATIONS, collection, reservation};
use crate::object::{self, AddressBlock, Mode, POOL_OWNER, Slot};
use crate::request::{add, test, want};

/// The label of the pools' namespace. From `adopted` on nodes make no reservations, from `closed` on a return makes those of the first pools,
/// and from `open` on pools give addresses, of which all have reservations.
pub const MARK: &str = "ipam.multus-rs.cni.cncf.io/pools";
/// The label that names the last run of a command that has changed something: each run takes it with its first change, and changes nothing
/// once another one has it.
pub const RUN: &str = "ipam.multus-rs.cni.cncf.io/pools-run";
const CLOSED: &str = "closed";
const OPEN: &str = "open";
pub(crate) const NAMESPACES: &str = "/api/v1/namespaces";
/// Whom holders are asked to share their blocks for; no node has this name.
const ASKING: &str = "/return";
/// So often it is looked whether holders have shared their blocks.
const SHARED_WITHIN: u32 = 60;
/// So many blocks that may exist are read one by one; for more all are listed.
const FEW_BLOCKS: usize = 512;
/// So often blocks are written that others write at the same time.
const ATTEMPTS: u32 = 5;

/// A change of an object in the collection of this path.
pub enum Write<'a> {
    Create(&'a str, &'a Value),
    /// A JSON patch (RFC 6902) of the object with this name, whose tests must hold for the object as it is then.
    Patch(&'a str, &'a str, &'a Value),
    /// A deletion of the object with this name and uid: one that was given up on must not remove the next of that name.
    Delete(&'a str, &'a str, &'a str),
}

/// The cluster whose pools are moved. An error is a sentence; the request may have been made all the same.
pub trait Cluster {
    /// Reads everything that decides but pods and reservations, after these pools.
    fn seen(&self, pools: Vec<StoredPool>) -> impl Future<Output = Result<Seen, String>>;
    /// Reads the name of the pools' namespace.
    fn home(&self) -> impl Future<Output = Result<String, String>>;
    /// Reads the namespace of the pools.
    fn namespace(&self, name: &str) -> impl Future<Output = Result<Namespace, String>>;
    /// Reads the pools, which are of one namespace; there is at least one.
    fn pools(&self) -> impl Future<Output = Result<Vec<StoredPool>, String>>;
    /// Reads the pools that were just made, and give no address yet.
    fn new_pools(&self) -> impl Future<Output = Result<Vec<StoredPool>, String>>;
    /// Reads one pool; `None` is one that is gone.
    fn pool(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<StoredPool>, String>>;
    /// Reads the blocks with these names, or all.
    fn blocks(
        &self,
        names: Option<&BTreeSet<String>>,
    ) -> impl Future<Output = Result<Vec<AddressBlock>, String>>;
    /// Reads where pods are, by namespace and name: where these are, or all.
    fn pods(
        &self,
        names: Option<BTreeSet<&str>>,
    ) -> impl Future<Output = Result<BTreeMap<String, PodPlace>, String>>;
    /// Reads the reservations by their names.
    fn reservations(&self) -> impl Future<Output = Result<BTreeMap<String, Reserved>, String>>;
    /// Makes changes in any order. Returns each object as it is then; `None` where nothing was changed, since the object was another one.
    fn write_all(
        &self,
        writes: Vec<Write<'_>>,
    ) -> impl Future<Output = Result<Vec<Option<Value>>, String>>;
    /// Waits a quarter of a second for what nodes do.
    fn look_again(&self) -> impl Future<Output = ()>;
    /// Hears which step begins.
    fn begins(&self, _step: Step) {}
}

/// A step that takes a while, with the number of objects that it writes.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Everything that decides is read.
    Read,
    /// Pools are stamped.
    Stamp(usize),
    WriteBlocks(usize),
    /// The holders of so many blocks are asked to share them.
    Share(usize),
    Close(usize),
    RemoveBlocks(usize),
    /// Reservations are made.
    Reserve(usize),
}

/// The namespace of the pools.
#[derive(Clone, Debug)]
pub struct Namespace {
    pub version: String,
    /// Its labels [`MARK`] and [`RUN`].
    pub mark: String,
    pub run: String,
}

impl Namespace {
    pub fn parse(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        Self {
            version: text(&metadata["resourceVersion"]),
            mark: text(&metadata["labels"][MARK]),
            run: text(&metadata["labels"][RUN]),
        }
    }
}

/// What was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Order {
    /// Whether anything is changed.
    pub is_meant: bool,
    /// Whether addresses of pods that do not exist are left out.
    pub without_leaked: bool,
}

/// What was done, or would be.
#[derive(Debug, Default)]
pub struct Report {
    pub pools: usize,
    /// The addresses of pods in them.
    pub addresses: usize,
    /// Those of pods that do not exist.
    pub leaked: Vec<String>,
    /// The blocks that are written.
    pub blocks: usize,
    /// What keeps the pools where they are.
    pub obstacles: Vec<String>,
    /// Whether they were moved.
    pub is_done: bool,
    /// What they are now; empty where nothing was changed.
    pub done: &'static str,
}

/// Why the steps ended. They are taken again.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error("{0}")]
    Cluster(String),
    #[error(
        "pools are going back already: finish it with kubectl multus ipam return whereabouts --yes"
    )]
    Returning,
    #[error("pools are being adopted: finish it with kubectl multus ipam adopt whereabouts --yes")]
    Adopting,
    #[error(
        "another run of adopt or return has begun meanwhile: when it has ended, run that command once more"
    )]
    Overtaken,
    #[error("{0} changed meanwhile: run the command again")]
    Changed(&'static str),
    #[error(
        "a node does not share the blocks that it holds (kubectl multus ipam): start its daemon, or free them when its machine is off (kubectl multus ipam free --node NAME), and run the command again"
    )]
    Held,
    #[error("closed blocks come back: run the command again")]
    ComeBack,
}

type Outcome<T> = Result<T, MoveError>;

/// A run of a command. With its first change it takes over from the run before, which may still be under way.
struct Run<'a, C> {
    cluster: &'a C,
    /// The name of the pools' namespace.
    namespace: String,
    id: String,
    has_taken_over: Cell<bool>,
}

impl<'a, C: Cluster> Run<'a, C> {
    async fn begin(cluster: &'a C) -> Outcome<Self> {
        let mut run = Self {
            cluster,
            namespace: cluster.home().await.map_err(MoveError::Cluster)?,
            id: String::new(),
            has_taken_over: Cell::new(false),
        };
        run.id = run.namespace().await?.version;
        Ok(run)
    }

    /// Takes over with the first call. Fails when another run has done so since this one began.
    async fn take_over(&self) -> Outcome<()> {
        if self.has_taken_over.get() {
            let is_last = self.namespace().await?.run == self.id;
            return is_last.then_some(()).ok_or(MoveError::Overtaken);
        }
        let label = json!([
            test("/metadata/resourceVersion", &*self.id),
            add(&label(RUN), &*self.id),
        ]);
        if self.patch_namespace(&label).await? {
            self.has_taken_over.set(true);
            return Ok(());
        }
        Err(MoveError::Changed("the namespace of the pools"))
    }

    async fn namespace(&self) -> Outcome<Namespace> {
        let read = self.cluster.namespace(&self.namespace).await;
        read.map_err(MoveError::Cluster)
    }

    /// Returns whether it was as the patch says.
    async fn patch_namespace(&self, patch: &Value) -> Outcome<bool> {
        let writes = vec![Write::Patch(NAMESPACES, &self.namespace, patch)];
        let written = self.cluster.write_all(writes).await;
        let written =
            written.map_err(|reason| failed("label the namespace of the pools", &reason))?;
        Ok(refused(&written) == 0)
    }
}

impl<C> Deref for Run<'_, C> {
    type Target = C;

    fn deref(&self) -> &C {
        self.cluster
    }
}

/// The pools and all blocks.
pub struct Stored {
    /// At least one, all of one namespace.
    pub pools: Vec<StoredPool>,
    pub blocks: Vec<AddressBlock>,
}

/// Everything that decides whether and how pools are moved.
pub struct Seen {
    pub stored: Stored,
    /// The label of the pools' namespace.
    pub mark: String,
    /// Of an adoption where they decide, and of a return.
    pub reservations: BTreeMap<String, Reserved>,
    /// What definitions of whereabouts say of reservations, by the names of their pools.
    pub wanted: BTreeMap<String, BTreeSet<bool>>,
    /// The pools that each definition names: a pod gets an address of every one.
    pub joint: BTreeSet<BTreeSet<String>>,
    /// Of an adoption: where pods are, by namespace and name.
    pub pods: BTreeMap<String, PodPlace>,
    /// What keeps pools from being adopted, and adopted ones from going back, beside what is in pools and blocks.
    pub against_adoption: Vec<String>,
    pub against_return: Vec<String>,
}

/// Pools that are adopted at once. A pod waits while its own are.
enum Batch {
    /// The pools with these names; no other pool has one of their addresses.
    Of(BTreeSet<String>),
    /// All pools whose addresses are not in blocks. While these pools are moved, no node makes reservations.
    Rest,
}

/// Pools by their names; `None` is one that is gone.
type Pools = BTreeMap<String, Option<StoredPool>>;

/// The entries of pools that go back, by the names of the pools.
type Entries = BTreeMap<String, Map<String, Value>>;

/// The number of addresses from which on a batch gets no further pool; in tests each pool is a batch.
const MOST_AT_ONCE: usize = if cfg!(test) { 1 } else { 1_000 };

/// Moves the addresses of all pools into blocks.
pub async fn adopt(cluster: &impl Cluster, order: Order) -> Outcome<Report> {
    while_others_write(async || adopt_once(cluster, order).await).await
}

/// Moves the addresses of blocks back into the pools.
pub async fn give_back(cluster: &impl Cluster, order: Order) -> Outcome<Report> {
    while_others_write(async || give_back_once(cluster, order).await).await
}

/// Runs a command, again while something changes that it has read: requests of a command that was ended are made up to a minute later.
async fn while_others_write(command: impl AsyncFn() -> Outcome<Report>) -> Outcome<Report> {
    let mut outcome = command().await;
    for _ in 1..ATTEMPTS {
        if !matches!(outcome, Err(MoveError::Changed(_))) {
            break;
        }
        outcome = command().await;
    }
    outcome
}

async fn adopt_once(cluster: &impl Cluster, order: Order) -> Outcome<Report> {
    let run = &Run::begin(cluster).await?;
    let pools = begin(run, order, StoredPool::is_adopting).await?;
    let mut seen = certain(run, pools).await?;
    if seen.stored.pools.iter().any(StoredPool::is_returning) {
        if seen.mark == OPEN {
            return Err(MoveError::Returning);
        }
        return reopen(run, order, &seen).await;
    }
    let adoption = seen.adoption(&Batch::Rest);
    let mut report = seen.adoption_report(&adoption);
    if seen.stored.pools.iter().all(|pool| pool.word == ADOPTED) {
        report.is_done = true;
        report.done = "all pools are in blocks";
        return Ok(report);
    }
    if !order.is_meant || !report.obstacles.is_empty() {
        return Ok(report);
    }
    // Pools whose blocks an interrupted run has written lack only their last stamp.
    let to_write = names(&seen.members(&Batch::Rest));
    let mut written = names(&seen.stored.pools.iter().collect::<Vec<_>>());
    written.retain(|name| !to_write.contains(name));
    for batch in &seen.batches() {
        // From the first adopted pool to the last one there is always one that is being adopted: a new pool waits for it.
        stamp_one(run, &mut seen, batch).await?;
        finish(run, &seen, &written).await?;
        if let Some(obstacles) = write(run, &mut seen, batch, order, &adoption.leaked).await? {
            report.obstacles = obstacles;
            report.done = if seen.stored.has(ADOPTED) {
                "pods of the other pools wait for their addresses until this is cured and the command is run again"
            } else {
                "pods wait for their addresses until this is cured and the command is run again, or until kubectl multus ipam return whereabouts --yes"
            };
            return Ok(report);
        }
        written = names(&seen.members(batch));
    }
    finish(run, &seen, &written).await?;
    let is_new = |pool: &StoredPool| pool.is_open() && pool.is_empty();
    let assign = |pool: &StoredPool, word| pool.assign(word, &seen.space_to_be(pool));
    stamp(run, &is_new, &|pool| assign(pool, ADOPTING)).await?;
    let adopt = |pool: &StoredPool| assign(pool, ADOPTED);
    let pools = stamp(run, &StoredPool::is_adopting, &adopt).await?;
    report.obstacles = texts(&moving::late(&pools));
    report.is_done = report.obstacles.is_empty();
    report.done = if report.is_done {
        "adopted"
    } else {
        "the other pools are adopted"
    };
    Ok(report)
}

/// Stamps a pool of a batch, if one gives addresses.
async fn stamp_one(run: &Run<'_, impl Cluster>, seen: &mut Seen, batch: &Batch) -> Outcome<()> {
    let Some(&first) = seen.open_members(batch).first() else {
        return Ok(());
    };
    let patch = |pool: &StoredPool| seen.first_stamp(pool);
    let stamped = stamp_read(run, &[first], &StoredPool::is_open, &patch).await?;
    seen.note(stamped);
    Ok(())
}

/// Writes the last stamps of these pools, whose addresses are in blocks.
async fn finish(run: &Run<'_, impl Cluster>, seen: &Seen, names: &BTreeSet<String>) -> Outcome<()> {
    let mut pools: Vec<_> = seen.stored.pools.iter().collect();
    pools.retain(|pool| names.contains(&pool.name));
    let assign = |pool: &StoredPool| pool.assign(ADOPTED, &seen.space_to_be(pool));
    stamp_read(run, &pools, &StoredPool::is_adopting, &assign)
        .await
        .map(drop)
}

/// Stamps the pools of a batch, and writes their blocks. Returns what keeps them from being adopted, if there is something.
async fn write(
    run: &Run<'_, impl Cluster>,
    seen: &mut Seen,
    batch: &Batch,
    order: Order,
    leaked: &BTreeSet<(String, IpAddr)>,
) -> Outcome<Option<Vec<String>>> {
    loop {
        let open = seen.open_members(batch);
        if !open.is_empty() {
            run.begins(Step::Stamp(open.len()));
        }
        let patch = |pool: &StoredPool| seen.first_stamp(pool);
        stamp_read(run, &open, &StoredPool::is_open, &patch).await?;
        if matches!(batch, Batch::Rest) {
            mark(run, ADOPTED).await?;
        }
        seen.read_again(run, batch).await?;
        if seen.open_members(batch).is_empty() {
            break;
        }
    }
    // Requests of a run that was interrupted may be made meanwhile.
    for attempt in 0.. {
        if order.without_leaked {
            seen.leave_out(leaked);
        }
        let adoption = seen.adoption(batch);
        let changed = if adoption.obstacles.is_empty() {
            // Spaces are written before blocks: if this run is interrupted, definitions may have changed before the next one.
            let spaces = seen.unsaid_spaces(batch);
            match refused(&patched_pools(run, &spaces).await?) {
                0 if write_blocks(run, &seen.stored.blocks, &adoption).await? == 0 => break,
                0 => "blocks",
                _ => "pools",
            }
        } else {
            // A node that had not heard of a return frees what it has got since.
            let is_transient = |one: &Obstacle| matches!(one, Obstacle::InUse { .. });
            if attempt == ATTEMPTS || !adoption.obstacles.iter().any(is_transient) {
                return Ok(Some(texts(&adoption.obstacles)));
            }
            run.look_again().await;
            "blocks"
        };
        if attempt == ATTEMPTS {
            return Err(MoveError::Changed(changed));
        }
        seen.read_again(run, batch).await?;
        seen.stored.blocks = run.blocks(None).await.map_err(MoveError::Cluster)?;
    }
    Ok(None)
}

/// Goes back to blocks when pools have not been written yet.
async fn reopen(run: &Run<'_, impl Cluster>, order: Order, seen: &Seen) -> Outcome<Report> {
    let Stored { pools, blocks } = &seen.stored;
    // A late request of the return that closes a shared block fails under another turn.
    let patches = blocks
        .iter()
        .filter(|block| !matches!(block.mode, Mode::Node(_)) && seen.stored.has_pool_of(block))
        .map(|block| (name(block), moving::change_mode(block, "shared", None)));
    let patches: Vec<_> = patches.collect();
    let mut report = Report {
        pools: pools.len(),
        addresses: blocks.iter().map(taken).sum(),
        blocks: patches.len(),
        is_done: order.is_meant,
        ..Report::default()
    };
    if order.is_meant {
        mark(run, ADOPTED).await?;
        patch_blocks(run, &patches).await?;
        // One that was made since has no space yet.
        let patches: Vec<_> = pools
            .iter()
            .map(|pool| (pool, pool.assign(ADOPTED, &seen.space_to_be(pool))))
            .collect();
        patch_pools(run, &patches).await?;
        report.done = "in blocks again";
    }
    Ok(report)
}

async fn give_back_once(cluster: &impl Cluster, order: Order) -> Outcome<Report> {
    let run = &Run::begin(cluster).await?;
    run.begins(Step::Read);
    let pools = begin(run, order, StoredPool::is_returning).await?;
    let seen = run.seen(pools).await;
    let mut seen = seen.map_err(MoveError::Cluster)?;
    let stored = &seen.stored;
    let mut report = Report {
        pools: stored.pools.len(),
        addresses: stored.give_back().addresses,
        obstacles: seen.obstacles_of_return(),
        ..Report::default()
    };
    if stored.pools.iter().any(StoredPool::is_adopting) {
        if stored.has(ADOPTED) {
            return Err(MoveError::Adopting);
        }
        if order.is_meant {
            stop(run).await?;
            (report.is_done, report.done) = (true, "not adopted");
        }
        return Ok(report);
    }
    let is_open = stored.pools.iter().all(StoredPool::is_open);
    // A request of an interrupted adoption may be made after the pools have gone back.
    let left = stored.without_slots_of_pools();
    let left = left.filter(|_| is_open && seen.mark == OPEN);
    let left: Vec<_> = left.collect();
    let mut blocks = stored.blocks.iter();
    if is_open && left.is_empty() && !blocks.any(|block| matches!(block.mode, Mode::Closed(_))) {
        (report.is_done, report.done) = (true, "no pool is in blocks");
        return Ok(report);
    }
    if !order.is_meant || !report.obstacles.is_empty() {
        return Ok(report);
    }
    patch_blocks(run, &left).await?;
    // A node that does not share its blocks lets no pod wait.
    release(run, stored.blocks_of_pools(), false).await?;
    if seen.mark != OPEN && !is_open {
        // Later on, a pool without a stamp is one that has gone back.
        let back = |pool: &StoredPool| pool.stamp(RETURNING);
        seen.stored.pools = stamp(run, &|pool| pool.word.is_empty(), &back).await?;
    }
    seen.reservations = reservations(run).await?;
    report.addresses = 0;
    let mut written = Entries::new();
    while let Some(batch) = seen.next_to_give_back(&written) {
        // From the first open pool to the last one in blocks there is always one that goes back: a new pool waits for it.
        stamp_one_back(run, &mut seen, &batch).await?;
        reopen_pools(run, &mut seen, &written).await?;
        let closed = close(run, &mut seen, &batch).await?;
        report.blocks += closed.len();
        let back = moving::give_back(&seen.stored.pools, &closed);
        report.obstacles = texts(&back.obstacles);
        if !report.obstacles.is_empty() {
            report.done = if seen.mark == OPEN {
                "pods of the pools that have not gone back wait for their addresses until this is cured and the command is run again"
            } else {
                "pods wait for their addresses until this is cured and the command is run again, or until kubectl multus ipam adopt whereabouts --yes"
            };
            return Ok(report);
        }
        // Until then the chart's policy refuses reservations.
        let is_first = seen.mark != OPEN;
        if is_first {
            mark(run, CLOSED).await?;
        }
        write_reservations(run, &mut seen, &batch, &back).await?;
        if is_first {
            mark(run, OPEN).await?;
            OPEN.clone_into(&mut seen.mark);
        }
        report.addresses += back.addresses;
        written = seen.entries(&batch, &back);
    }
    reopen_pools(run, &mut seen, &written).await?;
    remove_closed(run).await?;
    // Of blocks that nodes have made meanwhile no pod has an address; the next adoption needs them shared.
    let stored = Stored::read(run).await?;
    release(run, stored.blocks_of_pools(), false).await?;
    (report.is_done, report.done) = (true, "returned");
    Ok(report)
}

/// Reads everything that decides on an adoption, the pools first and the pods after them. A pod whose entry has not changed since `before`
/// is taken from there.
async fn seen(
    run: &Run<'_, impl Cluster>,
    pools: Vec<StoredPool>,
    before: Option<Seen>,
) -> Outcome<Seen> {
    run.begins(Step::Read);
    let mut seen = run.seen(pools).await.map_err(MoveError::Cluster)?;
    let names = before.map(|before| {
        let unknown = before.unknown_pods(&seen.stored.pools);
        seen.pods = before.pods;
        seen.pods.retain(|name, _| !unknown.contains(name.as_str()));
        unknown
    });
    let read = run.pods(names).await.map_err(MoveError::Cluster)?;
    seen.pods.extend(read);
    if seen.asks_for_reservations(&Batch::Rest) {
        seen.reservations = reservations(run).await?;
    }
    Ok(seen)
}

/// Reads everything that decides on an adoption, again while addresses have two entries and these change: while one reads, an entry may be
/// freed and the next one made.
async fn certain(run: &Run<'_, impl Cluster>, pools: Vec<StoredPool>) -> Outcome<Seen> {
    let mut seen = seen(run, pools, None).await?;
    let mut doubled = seen.doubled(&Batch::Rest);
    for _ in 0..ATTEMPTS {
        if doubled.is_empty() {
            break;
        }
        run.look_again().await;
        seen = self::seen(run, self::pools(run).await?, Some(seen)).await?;
        let before = std::mem::replace(&mut doubled, seen.doubled(&Batch::Rest));
        if doubled.iter().any(|one| before.contains(one)) {
            break;
        }
    }
    Ok(seen)
}

async fn reservations(run: &Run<'_, impl Cluster>) -> Outcome<BTreeMap<String, Reserved>> {
    run.reservations().await.map_err(MoveError::Cluster)
}

async fn pools(run: &Run<'_, impl Cluster>) -> Outcome<Vec<StoredPool>> {
    run.pools().await.map_err(MoveError::Cluster)
}

impl Stored {
    async fn read(run: &Run<'_, impl Cluster>) -> Outcome<Self> {
        let pools = pools(run).await?;
        let blocks = run.blocks(None).await.map_err(MoveError::Cluster)?;
        Ok(Self { pools, blocks })
    }

    /// Returns whether a pool has this word; an empty one is that of a pool which gives addresses.
    fn has(&self, word: &str) -> bool {
        self.pools.iter().any(|pool| pool.word == word)
    }

    /// Returns whether a block has addresses of a pool.
    fn has_pool_of(&self, block: &AddressBlock) -> bool {
        self.pools.iter().any(|pool| pool.has_block(block))
    }

    fn blocks_of_pools(&self) -> Vec<AddressBlock> {
        let mut blocks = self.blocks.clone();
        blocks.retain(|block| self.has_pool_of(block));
        blocks
    }

    fn give_back(&self) -> Return {
        moving::give_back(&self.pools, &self.blocks)
    }

    /// Returns the patches that free the slots of shared blocks whose addresses came with pools, with the names of the blocks.
    fn without_slots_of_pools(&self) -> impl Iterator<Item = (String, Value)> {
        let is_of_pool = |slot: &Slot| slot.owner.starts_with(POOL_OWNER);
        self.blocks.iter().filter_map(move |block| {
            let Mode::Shared(slots) = &block.mode else {
                return None;
            };
            if !slots.iter().any(is_of_pool) {
                return None;
            }
            let mut slots = slots.clone();
            let of_pools = slots.iter_mut().filter(|slot| is_of_pool(slot));
            of_pools.for_each(|slot| *slot = Slot::default());
            Some((
                name(block),
                moving::change_mode(block, "shared", Some(&slots)),
            ))
        })
    }
}

impl Seen {
    /// Returns the pods of these pools that are to be read again: those of entries that are new since, and those that did not exist. A pod
    /// that is created again under its name has another container, which its entry names.
    pub fn unknown_pods<'a>(&self, pools: &'a [StoredPool]) -> BTreeSet<&'a str> {
        let before = self.stored.pools.iter().flat_map(StoredPool::owners);
        let before: BTreeSet<_> = before
            .filter(|owner| self.pods.contains_key(&owner.pod))
            .collect();
        let now = pools.iter().flat_map(StoredPool::owners);
        let unknown = now.filter(|owner| !before.contains(owner));
        unknown.map(|owner| owner.pod.as_str()).collect()
    }

    /// Reads the pools again, and what depends on their entries. A pod whose entry has not changed stays as it was read.
    async fn read_again(&mut self, run: &Run<'_, impl Cluster>, batch: &Batch) -> Outcome<()> {
        let pools = pools(run).await?;
        let unknown = self.unknown_pods(&pools);
        let read = run.pods(Some(unknown.clone())).await;
        self.pods.retain(|name, _| !unknown.contains(name.as_str()));
        self.pods.extend(read.map_err(MoveError::Cluster)?);
        self.stored.pools = pools;
        if self.asks_for_reservations(batch) {
            self.reservations = reservations(run).await?;
        }
        Ok(())
    }

    /// Takes note of how pools are now.
    fn note(&mut self, now: Pools) {
        let pools = &mut self.stored.pools;
        for (name, now) in now {
            let place = pools.iter().position(|pool| pool.name == name);
            match (place, now) {
                (Some(place), Some(now)) => pools[place] = now,
                (Some(place), None) => drop(pools.remove(place)),
                (None, now) => pools.extend(now),
            }
        }
    }

    /// Returns the pools whose addresses are not in blocks: of pools that have a block in common all are, once one is adopted.
    fn to_write(&self) -> Vec<&StoredPool> {
        let parts = parts(self.stored.pools.iter(), &BTreeSet::new()).into_iter();
        let parts = parts.filter(|part| part.iter().all(|pool| pool.word != ADOPTED));
        parts.flatten().collect()
    }

    /// Returns the batches of an adoption in their order. Before the last one pods make reservations, so it has the pools for which these
    /// decide: those that have a block in common, and those whose space nothing else says.
    fn batches(&self) -> Vec<Batch> {
        let is_free = |part: &Vec<&StoredPool>| {
            let mut pairs = part.iter().enumerate();
            part.iter()
                .all(|pool| pool.known_space(&self.wanted).is_some())
                && pairs.all(|(at, pool)| part[..at].iter().all(|one| !one.shares_blocks(pool)))
        };
        let parts = parts(self.to_write(), &self.joint);
        let mut parts = parts.into_iter().filter(is_free);
        let batches = iter::from_fn(|| next_batch(&mut parts, |pool| pool.owners().count()));
        batches.map(Batch::Of).chain([Batch::Rest]).collect()
    }

    /// Returns the pools that have not gone back, and whose entries are not these.
    fn to_give_back(&self, written: &Entries) -> Vec<&StoredPool> {
        let pools = self.stored.pools.iter();
        let left = pools.filter(|pool| !pool.word.is_empty());
        left.filter(|pool| !written.contains_key(&pool.name))
            .collect()
    }

    /// Returns the names of the pools that go back next; `None` when none is left.
    fn next_to_give_back(&self, written: &Entries) -> Option<BTreeSet<String>> {
        let parts = parts(self.to_give_back(written), &self.joint);
        let used = |pool: &StoredPool| {
            let blocks = self.stored.blocks.iter();
            let own = blocks.filter(|block| pool.has_block(block));
            own.map(taken).sum()
        };
        next_batch(&mut parts.into_iter(), used)
    }

    /// Returns the pools of a batch, also those that were made since and have a block in common with one of it.
    fn members(&self, batch: &Batch) -> Vec<&StoredPool> {
        match batch {
            Batch::Of(names) => with_same_blocks(self.to_write(), names),
            Batch::Rest => self.to_write(),
        }
    }

    /// Returns these pools that go back, also those that were made since and have a block in common with one of them.
    fn members_to_give_back(&self, names: &BTreeSet<String>) -> Vec<&StoredPool> {
        with_same_blocks(self.to_give_back(&Entries::new()), names)
    }

    fn unstamped_to_give_back(&self, names: &BTreeSet<String>) -> Vec<&StoredPool> {
        let mut members = self.members_to_give_back(names);
        members.retain(|pool| !pool.is_returning());
        members
    }

    /// Returns what pools with these names, and those that go back with them, get.
    fn entries(&self, of: &BTreeSet<String>, back: &Return) -> Entries {
        let members = names(&self.members_to_give_back(of));
        let pools = self.stored.pools.iter().zip(&back.allocations);
        let own = pools.filter(|(pool, _)| members.contains(&pool.name));
        own.map(|(pool, entries)| (pool.name.clone(), entries.clone()))
            .collect()
    }

    fn open_members(&self, batch: &Batch) -> Vec<&StoredPool> {
        let mut members = self.members(batch);
        members.retain(|pool| pool.is_open());
        members
    }

    /// Returns whether an adoption depends on reservations: on those of a pool whose space nothing else says, or of an address with two
    /// entries, one of which is being freed.
    fn asks_for_reservations(&self, batch: &Batch) -> bool {
        let is_unsaid = |pool: &&StoredPool| pool.known_space(&self.wanted).is_none();
        self.members(batch).iter().any(is_unsaid) || !self.doubled(batch).is_empty()
    }

    /// Returns the addresses that two pods have.
    fn doubled(&self, batch: &Batch) -> Vec<Obstacle> {
        let mut obstacles = self.adoption(batch).obstacles;
        obstacles.retain(|one| matches!(one, Obstacle::Twice { .. }));
        obstacles
    }

    /// Returns the space that a pool's addresses get to.
    fn space_to_be(&self, pool: &StoredPool) -> String {
        pool.space_to_be(&self.reservations, &self.wanted)
    }

    /// Returns the patch that stamps a pool first. Where neither the pool nor a definition says its space, its entries decide once they do
    /// not change any more.
    fn first_stamp(&self, pool: &StoredPool) -> Value {
        match pool.known_space(&self.wanted) {
            Some(space) => pool.assign(ADOPTING, &space),
            None => pool.stamp(ADOPTING),
        }
    }

    /// Returns the patches that write the spaces of pools without one.
    fn unsaid_spaces(&self, batch: &Batch) -> Vec<(&StoredPool, Value)> {
        let members = self.members(batch).into_iter();
        members
            .filter(|pool| !pool.says_space())
            .map(|pool| (pool, pool.assign(ADOPTING, &self.space_to_be(pool))))
            .collect()
    }

    fn adoption(&self, batch: &Batch) -> Adoption {
        let members = self.members(batch);
        let others = self.stored.pools.iter();
        let others: Vec<_> = others
            .filter(|pool| members.iter().all(|member| member.name != pool.name))
            .collect();
        // Closed blocks that no pool has are opened with the last ones.
        let is_meant = |block: &&AddressBlock| match batch {
            Batch::Of(_) => members.iter().any(|pool| pool.has_block(block)),
            Batch::Rest => others.iter().all(|pool| !pool.has_block(block)),
        };
        let blocks: Vec<_> = self.stored.blocks.iter().filter(is_meant).collect();
        let spaces: Vec<_> = members.iter().map(|pool| self.space_to_be(pool)).collect();
        let place = |pod: &str| self.pods.get(pod).cloned();
        moving::adopt(&members, &spaces, &self.reservations, place, &blocks)
    }

    fn adoption_report(&self, adoption: &Adoption) -> Report {
        // From the last batch on, no pool gives addresses.
        let obstacles = if self.mark == ADOPTED && self.stored.has(ADOPTED) {
            texts(&moving::late(&self.stored.pools))
        } else {
            [&self.against_adoption[..], &texts(&adoption.obstacles)].concat()
        };
        let leaked = adoption.leaked.iter();
        Report {
            pools: self.stored.pools.len(),
            addresses: adoption.addresses,
            leaked: leaked
                .map(|(pool, address)| format!("{address} of IPPool {pool}"))
                .collect(),
            blocks: adoption.blocks.len(),
            obstacles,
            ..Report::default()
        }
    }

    /// Leaves out addresses of pods that did not exist before either.
    fn leave_out(&mut self, leaked: &BTreeSet<(String, IpAddr)>) {
        for pool in &mut self.stored.pools {
            let pods = &self.pods;
            let name = pool.name.clone();
            pool.retain(|address, pod| {
                pods.contains_key(pod) || !leaked.contains(&(name.clone(), address))
            });
        }
    }

    fn obstacles_of_return(&self) -> Vec<String> {
        let mut all = self.against_return.clone();
        // Once pools go back, an open one beside an adopted one has gone back.
        if self.mark != OPEN {
            all.extend(texts(&moving::late(&self.stored.pools)));
        }
        all.extend(texts(&self.stored.give_back().obstacles));
        all.sort();
        all.dedup();
        all
    }
}

/// Returns pools in parts, so that pools of different parts have no block in common, and no set of these names has pools of both.
pub(super) fn parts<'a>(
    pools: impl IntoIterator<Item = &'a StoredPool>,
    joint: &BTreeSet<BTreeSet<String>>,
) -> Vec<Vec<&'a StoredPool>> {
    let mut pools: Vec<_> = pools.into_iter().collect();
    pools.sort_by(|one, other| one.place().cmp(&other.place()));
    let names = pools.iter().map(|pool| pool.name.as_str());
    let mut part_of: BTreeMap<&str, usize> = names.zip(0..).collect();
    let mut parts: Vec<_> = pools.iter().map(|pool| vec![*pool]).collect();
    let mut join = |one: &str, other: &str| {
        let (from, to) = (part_of[one], part_of[other]);
        if from != to {
            let joining = std::mem::take(&mut parts[from]);
            part_of.extend(joining.iter().map(|pool| (pool.name.as_str(), to)));
            parts[to].extend(joining);
        }
    };
    let mut last: Option<&StoredPool> = None;
    for pool in &pools {
        let before = last.filter(|last| last.shares_blocks(pool));
        if let Some(before) = before {
            join(&pool.name, &before.name);
        }
        let ends_later = before.filter(|before| before.place().2 > pool.place().2);
        last = ends_later.or(Some(pool));
    }
    let known: BTreeSet<_> = pools.iter().map(|pool| pool.name.as_str()).collect();
    for names in joint {
        let names = names.iter().filter(|name| known.contains(name.as_str()));
        let names: Vec<_> = names.collect();
        names.windows(2).for_each(|pair| join(pair[0], pair[1]));
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Returns the pools with these names, and those that have a block in common with one of them.
fn with_same_blocks<'a>(
    pools: Vec<&'a StoredPool>,
    names: &BTreeSet<String>,
) -> Vec<&'a StoredPool> {
    let mut parts = parts(pools, &BTreeSet::new());
    parts.retain(|part| part.iter().any(|pool| names.contains(&pool.name)));
    parts.concat()
}

/// Takes parts for a batch, as long as it has fewer than the most addresses. Returns the names of their pools; `None` when no part is left.
fn next_batch<'a>(
    parts: &mut impl Iterator<Item = Vec<&'a StoredPool>>,
    used: impl Fn(&StoredPool) -> usize,
) -> Option<BTreeSet<String>> {
    let (mut batch, mut addresses) = (BTreeSet::new(), 0);
    while addresses < MOST_AT_ONCE
        && let Some(part) = parts.next()
    {
        addresses += part.iter().map(|pool| used(pool).max(1)).sum::<usize>();
        batch.extend(names(&part));
    }
    (!batch.is_empty()).then_some(batch)
}

fn names(pools: &[&StoredPool]) -> BTreeSet<String> {
    pools.iter().map(|pool| pool.name.clone()).collect()
}

fn texts(obstacles: &[Obstacle]) -> Vec<String> {
    obstacles.iter().map(Obstacle::to_string).collect()
}

/// Stamps all pools that are meant, also those that are made meanwhile. Returns the pools as they are then.
async fn stamp(
    run: &Run<'_, impl Cluster>,
    is_meant: &dyn Fn(&StoredPool) -> bool,
    patch: &dyn Fn(&StoredPool) -> Value,
) -> Outcome<Vec<StoredPool>> {
    loop {
        let pools = pools(run).await?;
        let meant: Vec<_> = pools.iter().filter(|pool| is_meant(pool)).collect();
        if meant.is_empty() {
            return Ok(pools);
        }
        run.begins(Step::Stamp(meant.len()));
        stamp_read(run, &meant, is_meant, patch).await?;
    }
}

/// Stamps those of these pools that are meant. Returns them as they are then.
async fn stamp_read(
    run: &Run<'_, impl Cluster>,
    pools: &[&StoredPool],
    is_meant: &dyn Fn(&StoredPool) -> bool,
    patch: &dyn Fn(&StoredPool) -> Value,
) -> Outcome<Pools> {
    let meant = pools.iter().filter(|pool| is_meant(pool));
    let patches: Vec<_> = meant.map(|pool| (*pool, patch(pool))).collect();
    let stamped = patched_pools(run, &patches).await?;
    let mut now = Pools::new();
    // A pool that pods come from changes sooner than all pools are listed, so each is read alone.
    for ((pool, _), mut stamped) in patches.into_iter().zip(stamped) {
        while stamped.is_none() {
            let read = run.pool(&pool.namespace, &pool.name).await;
            let read = read.map_err(MoveError::Cluster)?;
            let Some(meant) = read.as_ref().filter(|read| is_meant(read)) else {
                stamped = read;
                break;
            };
            let again = patched_pools(run, &[(meant, patch(meant))]).await?;
            stamped = again.into_iter().next().flatten();
        }
        now.insert(pool.name.clone(), stamped);
    }
    Ok(now)
}

/// Reads the pools at the beginning of a run, which changes the stamps of those that are on their way if it changes anything.
async fn begin(
    run: &Run<'_, impl Cluster>,
    order: Order,
    is_on_its_way: fn(&StoredPool) -> bool,
) -> Outcome<Vec<StoredPool>> {
    if order.is_meant {
        renew(run, is_on_its_way).await
    } else {
        pools(run).await
    }
}

/// Changes the stamps of pools that are on their way, so that a late request of an interrupted run fails. Returns all pools as they are then:
/// a pool that the interrupted run has opened meanwhile is open.
async fn renew(
    run: &Run<'_, impl Cluster>,
    is_on_its_way: fn(&StoredPool) -> bool,
) -> Outcome<Vec<StoredPool>> {
    let mut is_renewed = false;
    for _ in 0..=ATTEMPTS {
        let pools = pools(run).await?;
        let begun = pools.iter().filter(|pool| is_on_its_way(pool));
        let patches: Vec<_> = begun.map(|pool| (pool, pool.renew())).collect();
        if is_renewed || patches.is_empty() {
            return Ok(pools);
        }
        is_renewed = refused(&patched_pools(run, &patches).await?) == 0;
    }
    Err(MoveError::Changed("pools"))
}

/// Marks the namespace of the pools, so that the chart's policy knows who gives their addresses.
async fn mark(run: &Run<'_, impl Cluster>, word: &str) -> Outcome<()> {
    run.take_over().await?;
    let label = json!([test(&label(RUN), &*run.id), add(&label(MARK), word)]);
    if run.patch_namespace(&label).await? {
        return Ok(());
    }
    Err(MoveError::Overtaken)
}

/// Returns the place of a namespace's label. Each namespace has one, with its name.
fn label(name: &str) -> String {
    format!("/metadata/labels/{}", name.replace('/', "~1"))
}

/// Makes changes, if no other run of a command has begun. Those that are made later all the same are as those of a run that was interrupted.
/// Returns each object as it is then; `None` where nothing was changed.
async fn write_all(
    run: &Run<'_, impl Cluster>,
    what: &str,
    writes: Vec<Write<'_>>,
) -> Outcome<Vec<Option<Value>>> {
    run.take_over().await?;
    run.cluster
        .write_all(writes)
        .await
        .map_err(|reason| failed(what, &reason))
}

/// Reads the objects that [`write_all`] returns.
fn parsed<T, E: ToString>(
    written: &[Option<Value>],
    parse: impl Fn(&Value) -> Result<T, E>,
) -> Outcome<Vec<Option<T>>> {
    let objects = written.iter();
    let parsed = objects.map(|object| object.as_ref().map(&parse).transpose());
    let parsed = parsed.collect::<Result<_, _>>();
    parsed.map_err(|error| MoveError::Cluster(error.to_string()))
}

fn refused<T>(written: &[Option<T>]) -> usize {
    written.iter().filter(|one| one.is_none()).count()
}

fn failed(what: &str, reason: &str) -> MoveError {
    MoveError::Cluster(format!("cannot {what}: {reason}; run the command again"))
}

async fn patched_pools(
    run: &Run<'_, impl Cluster>,
    patches: &[(&StoredPool, Value)],
) -> Outcome<Vec<Option<StoredPool>>> {
    let Some((first, _)) = patches.first() else {
        return Ok(Vec::new());
    };
    let path = collection(&first.namespace, POOLS);
    let writes = patches
        .iter()
        .map(|(pool, patch)| Write::Patch(&path, &pool.name, patch));
    let written = write_all(run, "change a pool", writes.collect()).await?;
    parsed(&written, StoredPool::parse)
}

async fn patch_pools(run: &Run<'_, impl Cluster>, patches: &[(&StoredPool, Value)]) -> Outcome<()> {
    match refused(&patched_pools(run, patches).await?) {
        0 => Ok(()),
        _ => Err(MoveError::Changed("pools")),
    }
}

async fn patch_blocks(run: &Run<'_, impl Cluster>, patches: &[(String, Value)]) -> Outcome<()> {
    match refused(&put(run, &[], patches).await?) {
        0 => Ok(()),
        _ => Err(MoveError::Changed("blocks")),
    }
}

/// Writes the blocks of an adoption, also those that are as they have to be. Returns how many somebody else has written meanwhile.
async fn write_blocks(
    run: &Run<'_, impl Cluster>,
    blocks: &[AddressBlock],
    adoption: &Adoption,
) -> Outcome<usize> {
    let (mut patches, mut objects) = (Vec::new(), Vec::new());
    for ((space, block), slots) in &adoption.blocks {
        let mut known = blocks.iter();
        match known.find(|one| (&one.space, one.block) == (space, *block)) {
            Some(one) => patches.push((name(one), moving::change_mode(one, "shared", Some(slots)))),
            None => objects.push(moving::block(space, *block, slots)),
        }
    }
    run.begins(Step::WriteBlocks(objects.len() + patches.len()));
    let written = put(run, &objects, &patches).await?;
    Ok(refused(&written))
}

/// Makes blocks and changes others. Returns each as it is then; `None` is one that somebody else has written meanwhile.
async fn put(
    run: &Run<'_, impl Cluster>,
    objects: &[Value],
    patches: &[(String, Value)],
) -> Outcome<Vec<Option<AddressBlock>>> {
    let creations = objects
        .iter()
        .map(|object| Write::Create(object::PATH, object));
    let patches = patches
        .iter()
        .map(|(name, patch)| Write::Patch(object::PATH, name, patch));
    let writes = creations.chain(patches).collect();
    let written = write_all(run, "write a block", writes).await?;
    parsed(&written, AddressBlock::parse)
}

/// Ends an adoption that was begun, before any pool is in blocks.
async fn stop(run: &Run<'_, impl Cluster>) -> Outcome<()> {
    // A pool whose last stamp is made later has its addresses in blocks.
    renew(run, StoredPool::is_adopting).await?;
    let stored = Stored::read(run).await?;
    if stored.has(ADOPTED) {
        return Err(MoveError::Adopting);
    }
    let patches: Vec<_> = stored.without_slots_of_pools().collect();
    patch_blocks(run, &patches).await?;
    mark(run, OPEN).await?;
    let begun = stored.pools.iter().filter(|pool| pool.is_adopting());
    let patches: Vec<_> = begun.map(|pool| (pool, pool.reopen(None))).collect();
    patch_pools(run, &patches).await?;
    // A return before it may have ended before they were gone.
    remove_closed(run).await
}

/// Stamps pools as those that go back.
async fn stamp_back(run: &Run<'_, impl Cluster>, pools: &[&StoredPool]) -> Outcome<Pools> {
    let is_meant = |pool: &StoredPool| !pool.is_returning();
    stamp_read(run, pools, &is_meant, &|pool| pool.stamp(RETURNING)).await
}

/// Stamps a pool with one of these names, unless one is stamped.
async fn stamp_one_back(
    run: &Run<'_, impl Cluster>,
    seen: &mut Seen,
    names: &BTreeSet<String>,
) -> Outcome<()> {
    let mut own: Vec<_> = seen.stored.pools.iter().collect();
    own.retain(|pool| names.contains(&pool.name));
    if !own.iter().any(|pool| pool.is_returning()) {
        own.truncate(1);
        let stamped = stamp_back(run, &own).await?;
        seen.note(stamped);
    }
    Ok(())
}

/// Writes the entries of pools, which then give addresses.
async fn reopen_pools(
    run: &Run<'_, impl Cluster>,
    seen: &mut Seen,
    entries: &Entries,
) -> Outcome<()> {
    let is_meant = |pool: &StoredPool| pool.is_returning() && entries.contains_key(&pool.name);
    let reopen = |pool: &StoredPool| pool.reopen(entries.get(&pool.name));
    let pools: Vec<_> = seen.stored.pools.iter().collect();
    let open = stamp_read(run, &pools, &is_meant, &reopen).await?;
    seen.note(open);
    Ok(())
}

/// Stamps pools that go back, and closes the blocks of their ranges. Returns these. A node that makes another one reads the pools before it
/// gives of it.
async fn close(
    run: &Run<'_, impl Cluster>,
    seen: &mut Seen,
    names: &BTreeSet<String>,
) -> Outcome<Vec<AddressBlock>> {
    loop {
        let open = seen.unstamped_to_give_back(names);
        if !open.is_empty() {
            run.begins(Step::Stamp(open.len()));
        }
        let stamped = stamp_back(run, &open).await?;
        seen.note(stamped);
        let new = run.new_pools().await.map_err(MoveError::Cluster)?;
        let new = new.into_iter().map(|pool| (pool.name.clone(), Some(pool)));
        seen.note(new.collect());
        if seen.unstamped_to_give_back(names).is_empty() {
            break;
        }
    }
    let members = seen.members_to_give_back(names);
    let own = block_names(&members);
    let mut blocks = run.blocks(own.as_ref()).await.map_err(MoveError::Cluster)?;
    blocks.retain(|block| members.iter().any(|pool| pool.has_block(block)));
    release(run, blocks, true).await
}

/// Returns the names of the blocks that pools may have; `None` for more than a few.
pub(super) fn block_names(pools: &[&StoredPool]) -> Option<BTreeSet<String>> {
    let names = pools.iter().flat_map(|pool| pool.block_names());
    // Pools that overlap have names in common, so it is the list that has to end.
    let names: Vec<_> = names.take(FEW_BLOCKS + 1).collect();
    (names.len() <= FEW_BLOCKS).then(|| names.into_iter().collect())
}

/// Has these blocks shared by the nodes that hold them, and then closed, if that is meant. Returns them as they are then.
async fn release(
    run: &Run<'_, impl Cluster>,
    mut blocks: Vec<AddressBlock>,
    is_closed: bool,
) -> Outcome<Vec<AddressBlock>> {
    let mut released = Vec::new();
    for _ in 0..SHARED_WITHIN {
        let is_held = ask_to_share(run, &blocks).await?;
        let is_shared = |block: &AddressBlock| matches!(block.mode, Mode::Shared(_));
        let is_ready = |block: &AddressBlock| match block.mode {
            Mode::Node(_) => false,
            Mode::Shared(_) => !is_closed,
            Mode::Closed(_) => true,
        };
        let (ready, mut left): (Vec<_>, Vec<_>) = blocks.into_iter().partition(is_ready);
        released.extend(ready);
        let closures = left.iter().filter(|block| is_shared(block));
        let closures: Vec<_> = closures
            .map(|block| (name(block), moving::change_mode(block, "closed", None)))
            .collect();
        if !closures.is_empty() {
            run.begins(Step::Close(closures.len()));
            released.extend(put(run, &[], &closures).await?.into_iter().flatten());
        }
        left.retain(|block| released.iter().all(|one| one.uid != block.uid));
        if left.is_empty() {
            return Ok(released);
        }
        if is_held {
            run.look_again().await;
        }
        let names = left.iter().map(name).collect();
        let read = run.blocks(Some(&names)).await;
        blocks = read.map_err(MoveError::Cluster)?;
        blocks.retain(|block| left.iter().any(|one| one.uid == block.uid));
    }
    Err(MoveError::Held)
}

/// Asks the holders of these blocks to share them. Returns whether a block is held.
async fn ask_to_share(run: &Run<'_, impl Cluster>, blocks: &[AddressBlock]) -> Outcome<bool> {
    let is_held = |block: &&AddressBlock| matches!(block.mode, Mode::Node(_));
    let is_asked = |block: &AddressBlock| block.wanted.iter().any(|one| **one == *ASKING);
    let wishes = blocks
        .iter()
        .filter(is_held)
        .filter(|block| !is_asked(block));
    let wishes: Vec<_> = wishes
        .map(|block| (name(block), want(block, ASKING)))
        .collect();
    if !wishes.is_empty() {
        run.begins(Step::Share(wishes.len()));
        put(run, &[], &wishes).await?;
    }
    Ok(blocks.iter().any(|block| is_held(&block)))
}

/// Makes the reservations of addresses that go back, and removes those of others. An address that an open pool may give is that pool's, and
/// its reservation was made before the pool was opened.
async fn write_reservations(
    run: &Run<'_, impl Cluster>,
    seen: &mut Seen,
    names: &BTreeSet<String>,
    back: &Return,
) -> Outcome<()> {
    let namespace = seen.stored.pools[0].namespace.clone();
    let path = collection(&namespace, RESERVATIONS);
    for _ in 0..=ATTEMPTS {
        let members = seen.members_to_give_back(names);
        let open = seen.stored.pools.iter();
        let open: Vec<_> = open.filter(|pool| pool.word.is_empty()).collect();
        let is_of_open = |name: &str| open.iter().any(|pool| pool.reserves(name));
        let is_wrong = |name: &str, one: &Reserved| match back.reservations.get(name) {
            Some(right) => right.pod != one.pod,
            None => members.iter().any(|pool| pool.reserves(name)),
        };
        let wrong: BTreeMap<_, _> = seen
            .reservations
            .iter()
            .filter(|(name, one)| is_wrong(name, one) && !is_of_open(name))
            .collect();
        let removals = wrong
            .iter()
            .map(|(name, one)| Write::Delete(&path, name, &one.uid));
        let is_missing =
            |name: &String| !seen.reservations.contains_key(name) || wrong.contains_key(name);
        let missing = back.reservations.iter();
        let missing = missing.filter(|(name, _)| is_missing(name) && !is_of_open(name));
        let objects: Vec<_> = missing
            .map(|(name, owner)| reservation::object(&namespace, name, owner))
            .collect();
        if objects.is_empty() && wrong.is_empty() {
            return Ok(());
        }
        let gone = write_all(run, "remove a reservation", removals.collect()).await?;
        run.begins(Step::Reserve(objects.len()));
        let creations = objects.iter().map(|object| Write::Create(&path, object));
        let made = write_all(run, "make a reservation", creations.collect()).await?;
        if refused(&gone) + refused(&made) == 0 {
            return Ok(());
        }
        // Requests of a run that was interrupted may be made meanwhile.
        seen.reservations = reservations(run).await?;
    }
    Err(MoveError::Changed("reservations"))
}

/// Removes the blocks that are closed.
async fn remove_closed(run: &Run<'_, impl Cluster>) -> Outcome<()> {
    for _ in 0..ATTEMPTS {
        let stored = Stored::read(run).await?;
        let closed = stored
            .blocks
            .iter()
            .filter(|block| matches!(block.mode, Mode::Closed(_)));
        let closed: Vec<_> = closed
            .map(|block| (name(block), &*block.uid, moving::let_go(block)))
            .collect();
        if closed.is_empty() {
            return Ok(());
        }
        run.begins(Step::RemoveBlocks(closed.len()));
        let what = "remove a block";
        let removals = closed
            .iter()
            .map(|(name, uid, _)| Write::Delete(object::PATH, name, uid));
        write_all(run, what, removals.collect()).await?;
        let patches = closed
            .iter()
            .map(|(name, _, patch)| Write::Patch(object::PATH, name, patch));
        write_all(run, what, patches.collect()).await?;
    }
    Err(MoveError::ComeBack)
}

fn name(block: &AddressBlock) -> String {
    object::name(&block.space, block.block)
}

fn taken(block: &AddressBlock) -> usize {
    match &block.mode {
        Mode::Node(_) => 0,
        Mode::Shared(slots) | Mode::Closed(slots) => {
            slots.iter().filter(|slot| !slot.owner.is_empty()).count()
        }
    }
}
