//! `kubectl multus ipam adopt` and `return`: the pools of whereabouts become addresses of blocks, and pools again, under running pods.
//!
//! `ipam::guest::moving` says what is written, and in which order nothing is lost. Each command may be interrupted, and goes on when it is
//! run again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::IpAddr,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail, ensure};
use cmdline::counted;
use ipam::{
    AddressBlock, Mode,
    guest::{
        self, POOLS, RESERVATIONS,
        moving::{self, Adoption, Obstacle, PodPlace, Return, StoredPool},
        pool::{ADOPTED, ADOPTING, RETURNING},
        reservation,
    },
    object::{self, POOL_OWNER},
    request::{free, want},
    service::guest::serves,
};
use plan::netconf::Netconf;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    gather,
    snapshot::{Network, Snapshot},
};
use crate::{
    CommandStatus, Output,
    cluster::{Cluster, Write},
    object::DEFINITION,
    validate,
};

/// The label of the pools' namespace. From `adopted` on nobody makes reservations, from `closed` on those of the blocks are made, and from
/// `open` on they are complete and pools give addresses.
const MARK: &str = "ipam.multus-rs.cni.cncf.io/pools";
const CLOSED: &str = "closed";
const OPEN: &str = "open";
const GROUP: (&str, &str) = ("whereabouts.cni.cncf.io", "v1alpha1");
/// Whom holders are asked to share their blocks for; no node has this name.
const ASKING: &str = "/return";
/// So long a holder may take to share its blocks.
const SHARED_WITHIN: u32 = 60;
/// So often blocks are written that others write at the same time.
const ATTEMPTS: u32 = 5;
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Arguments of both commands.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Whose pools; there are no others
    #[arg(value_parser = ["whereabouts"])]
    whose: String,
    /// Move them; without it nothing is changed
    #[arg(long)]
    yes: bool,
}

/// Arguments of `ipam adopt`.
#[derive(Debug, clap::Args)]
pub(super) struct AdoptArgs {
    #[command(flatten)]
    common: Args,
    /// Leave out addresses of pods that do not exist, which none of their containers must use any more
    #[arg(long)]
    without_leaked: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    pools: usize,
    /// The addresses of pods in them.
    addresses: usize,
    /// Those of pods that do not exist.
    leaked: Vec<String>,
    /// The blocks that are written.
    blocks: usize,
    /// What keeps the pools where they are.
    obstacles: Vec<String>,
    /// Whether they were moved.
    is_done: bool,
    #[serde(skip)]
    done: &'static str,
}

/// The pools and all blocks.
struct Stored {
    /// At least one, all of one namespace.
    pools: Vec<StoredPool>,
    blocks: Vec<AddressBlock>,
}

/// Everything that decides whether and how pools are moved.
struct Seen {
    stored: Stored,
    /// The label of the pools' namespace.
    mark: String,
    /// The pods of reservations by their names.
    reservations: BTreeMap<String, String>,
    /// The networks of all definitions.
    networks: Vec<Network>,
    /// What definitions of whereabouts say of reservations, by the names of their pools.
    wanted: BTreeMap<String, BTreeSet<bool>>,
    pods: BTreeMap<String, PodPlace>,
    /// DaemonSets with its program.
    programs: Vec<String>,
}

pub(super) async fn adopt(
    args: &AdoptArgs,
    cluster: &Cluster,
    output: Output,
) -> anyhow::Result<CommandStatus> {
    let mut seen = Seen::read(cluster).await?;
    if seen.stored.has(RETURNING) {
        ensure!(
            seen.mark != OPEN,
            "pools are going back already: finish it with kubectl multus ipam return whereabouts --yes"
        );
        return reopen(args, cluster, &seen, output).await;
    }
    let is_begun = seen.stored.has(ADOPTED);
    let mut adoption = seen.adoption();
    let leaked = adoption.leaked.clone();
    let mut report = adoption_report(&seen, &adoption);
    if seen.stored.pools.iter().all(|pool| pool.word == ADOPTED) {
        report.is_done = true;
        report.done = "all pools are in blocks";
        return finish(&report, output);
    }
    if !args.common.yes || !report.obstacles.is_empty() {
        return finish(&report, output);
    }
    if !is_begun {
        let assign = |pool: &StoredPool| pool.assign(ADOPTING, &seen.space_to_be(pool));
        stamp(cluster, StoredPool::is_open, assign).await?;
        mark(cluster, seen.stored.namespace(), ADOPTED).await?;
        // Requests of a run that was interrupted may be made meanwhile.
        for attempt in 0.. {
            seen = Seen::read(cluster).await?;
            if args.without_leaked {
                seen.leave_out(&leaked);
            }
            adoption = seen.adoption();
            report = adoption_report(&seen, &adoption);
            if !report.obstacles.is_empty() {
                // A node that had not heard of a return frees what it has got since.
                let is_transient = |one: &Obstacle| matches!(one, Obstacle::InUse { .. });
                if attempt < ATTEMPTS && adoption.obstacles.iter().any(is_transient) {
                    tokio::time::sleep(LOOK_AGAIN).await;
                    continue;
                }
                report.done = "pods wait for their addresses until this is cured and the command is run again, or until kubectl multus ipam return whereabouts --yes";
                return finish(&report, output);
            }
            let changed = write_blocks(cluster, &seen.stored.blocks, &adoption).await?;
            if changed == 0 {
                break;
            }
            ensure!(
                attempt < ATTEMPTS,
                "others write {} meanwhile: run the command again",
                counted(changed, "block")
            );
        }
    }
    let is_meant = |pool: &StoredPool| pool.word == ADOPTING || (pool.is_open() && pool.is_empty());
    let assign = |pool: &StoredPool| pool.assign(ADOPTED, &seen.space_to_be(pool));
    stamp(cluster, is_meant, assign).await?;
    report.obstacles = texts(&moving::late(&pools(cluster).await?));
    report.is_done = report.obstacles.is_empty();
    report.done = if report.is_done {
        "adopted"
    } else {
        "the other pools are adopted"
    };
    finish(&report, output)
}

/// Goes back to blocks when pools have not been written yet.
async fn reopen(
    args: &AdoptArgs,
    cluster: &Cluster,
    seen: &Seen,
    output: Output,
) -> anyhow::Result<CommandStatus> {
    let Stored { pools, blocks } = &seen.stored;
    let closed = blocks
        .iter()
        .filter(|block| matches!(block.mode, Mode::Closed(_)) && seen.stored.has_pool_of(block));
    let patches: Vec<_> = closed
        .map(|block| (name(block), moving::change_mode(block, "shared", None)))
        .collect();
    let mut report = Report {
        pools: pools.len(),
        addresses: blocks.iter().map(taken).sum(),
        leaked: Vec::new(),
        blocks: patches.len(),
        obstacles: Vec::new(),
        is_done: args.common.yes,
        done: "in blocks again",
    };
    if args.common.yes {
        mark(cluster, seen.stored.namespace(), ADOPTED).await?;
        patch_blocks(cluster, &patches).await?;
        // One that was made since has no space yet.
        let patches: Vec<_> = pools
            .iter()
            .map(|pool| (pool, pool.assign(ADOPTED, &seen.space_to_be(pool))))
            .collect();
        patch_pools(cluster, &patches).await?;
    } else {
        report.done = "";
    }
    finish(&report, output)
}

pub(super) async fn give_back(
    args: &Args,
    cluster: &Cluster,
    output: Output,
) -> anyhow::Result<CommandStatus> {
    let seen = Seen::read(cluster).await?;
    let stored = &seen.stored;
    let mut report = Report {
        pools: stored.pools.len(),
        addresses: stored.give_back().addresses,
        leaked: Vec::new(),
        blocks: 0,
        obstacles: seen.obstacles_of_return(),
        is_done: false,
        done: "",
    };
    if stored.has(ADOPTING) {
        ensure!(
            !stored.has(ADOPTED),
            "pools are being adopted: finish it with kubectl multus ipam adopt whereabouts --yes"
        );
        if args.yes {
            stop(cluster, stored).await?;
            (report.is_done, report.done) = (true, "not adopted");
        }
        return finish(&report, output);
    }
    let is_written = seen.mark == OPEN && !stored.has(ADOPTED);
    let mut blocks = stored.blocks.iter();
    if stored.pools.iter().all(StoredPool::is_open)
        && !blocks.any(|block| matches!(block.mode, Mode::Closed(_)))
    {
        (report.is_done, report.done) = (true, "no pool is in blocks");
        return finish(&report, output);
    }
    if !args.yes || !report.obstacles.is_empty() {
        return finish(&report, output);
    }
    if !is_written {
        let is_meant = |pool: &StoredPool| pool.word != RETURNING;
        stamp(cluster, is_meant, |pool| pool.stamp(RETURNING)).await?;
        report.blocks = close(cluster).await?;
        mark(cluster, stored.namespace(), CLOSED).await?;
    }
    let mut has_reservations = is_written;
    loop {
        let mut stored = Stored::read(cluster).await?;
        if !stored.has(RETURNING) {
            break;
        }
        // Nothing was given of blocks that were made since.
        stored
            .blocks
            .retain(|block| matches!(block.mode, Mode::Closed(_)));
        let back = stored.give_back();
        // An address that a pool has again may be free there.
        if !std::mem::replace(&mut has_reservations, true) {
            report.addresses = back.addresses;
            report.obstacles = texts(&back.obstacles);
            if !report.obstacles.is_empty() {
                report.done = "pods wait for their addresses until this is cured and the command is run again, or until kubectl multus ipam adopt whereabouts --yes";
                return finish(&report, output);
            }
            write_reservations(cluster, &stored.pools, &back).await?;
            mark(cluster, stored.namespace(), OPEN).await?;
        }
        let patches = stored.pools.iter().zip(&back.allocations);
        let patches: Vec<_> = patches
            .filter(|(pool, _)| pool.word == RETURNING)
            .map(|(pool, entries)| (pool, pool.reopen(Some(entries))))
            .collect();
        // One that has changed is read again.
        patched_pools(cluster, &patches).await?;
    }
    remove_closed(cluster).await?;
    (report.is_done, report.done) = (true, "returned");
    finish(&report, output)
}

/// Reads the pools, which have to be of one namespace.
async fn pools(cluster: &Cluster) -> anyhow::Result<Vec<StoredPool>> {
    let objects = cluster.all(GROUP, "IPPool", POOLS).await;
    let objects = objects.map_err(|reason| anyhow!("cannot list {POOLS}: {reason}"))?;
    let pools = objects.iter().flatten().map(StoredPool::parse);
    let pools: Vec<_> = pools.collect::<Result<_, _>>()?;
    let first = pools
        .first()
        .context("the cluster has no pools of whereabouts")?;
    ensure!(
        pools.iter().all(|pool| pool.namespace == first.namespace),
        "there are pools in several namespaces, of which daemons use one (ipam.whereaboutsNamespace): delete those that nobody uses"
    );
    Ok(pools)
}

/// Reads the pods of reservations by the reservations' names.
async fn reservations(cluster: &Cluster) -> anyhow::Result<BTreeMap<String, String>> {
    let kind = "OverlappingRangeIPReservation";
    let objects = cluster.all(GROUP, kind, RESERVATIONS).await;
    let objects = objects.map_err(|reason| anyhow!("cannot list {RESERVATIONS}: {reason}"))?;
    let named = objects.iter().flatten();
    Ok(named
        .map(|one| (text_at(one, "/metadata/name"), text_at(one, "/spec/podref")))
        .collect())
}

fn text_at(object: &Value, path: &str) -> String {
    let text = object.pointer(path).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// Fails unless everything that was read can be used.
fn ensure_complete(snapshot: &Snapshot) -> anyhow::Result<()> {
    let unusable = snapshot.unusable.iter();
    let faults: Vec<_> = unusable
        .map(|one| format!("{}: {}", one.object, one.reason))
        .chain(snapshot.gaps.iter().cloned())
        .collect();
    ensure!(
        faults.is_empty(),
        "not everything could be read: {}",
        faults.join("; ")
    );
    Ok(())
}

impl Stored {
    async fn read(cluster: &Cluster) -> anyhow::Result<Self> {
        let pools = pools(cluster).await?;
        Self::new(pools, gather::blocks(cluster).await?)
    }

    fn new(pools: Vec<StoredPool>, snapshot: Snapshot) -> anyhow::Result<Self> {
        ensure_complete(&snapshot)?;
        let blocks = snapshot.blocks.into_iter();
        Ok(Self {
            pools,
            blocks: blocks.map(|block| block.content).collect(),
        })
    }

    fn namespace(&self) -> &str {
        &self.pools[0].namespace
    }

    /// Returns whether a pool has this word; an empty one is that of a pool which gives addresses.
    fn has(&self, word: &str) -> bool {
        self.pools.iter().any(|pool| pool.word == word)
    }

    /// Returns whether a block has addresses of a pool.
    fn has_pool_of(&self, block: &AddressBlock) -> bool {
        self.pools.iter().any(|pool| pool.has_block(block))
    }

    fn give_back(&self) -> Return {
        moving::give_back(&self.pools, &self.blocks)
    }
}

impl Seen {
    async fn read(cluster: &Cluster) -> anyhow::Result<Self> {
        let pools = pools(cluster).await?;
        let namespace = &pools[0].namespace;
        let object = cluster.object(("", "v1"), "Namespace", "namespaces", "", namespace);
        let object = object
            .await
            .map_err(|reason| anyhow!("cannot read namespace {namespace}: {reason}"))?;
        let mark =
            object.and_then(|one| Some(one["metadata"]["labels"][MARK].as_str()?.to_owned()));
        let reservations = reservations(cluster).await?;
        let netconf = validate::netconf(Map::new()).context("cannot use the defaults")?;
        let plural = "network-attachment-definitions";
        let nads = cluster.all(("k8s.cni.cncf.io", "v1"), DEFINITION, plural);
        let nads = nads
            .await
            .map_err(|reason| anyhow!("cannot list {plural}: {reason}"))?;
        let mut wanted: BTreeMap<_, BTreeSet<bool>> = BTreeMap::new();
        let nads = nads.into_iter().flatten();
        for definition in nads.flat_map(|nad| definitions(nad, &netconf)) {
            for pool in definition.pools() {
                let wanted = wanted.entry(pool).or_default();
                wanted.insert(definition.is_reserved);
            }
        }
        let sets = cluster.all(("apps", "v1"), "DaemonSet", "daemonsets").await;
        let sets = sets.map_err(|reason| anyhow!("cannot list daemonsets: {reason}"))?;
        let programs = sets.into_iter().flatten().filter(has_program);
        let programs = programs.map(|set| {
            let part = |key: &str| text_at(&set, &format!("/metadata/{key}"));
            format!("{}/{}", part("namespace"), part("name"))
        });
        let programs = programs.collect();
        let mut snapshot = gather::all(cluster).await?;
        let pods = snapshot.pods().map(|pod| {
            let uid = pod.pod.view.uid.clone();
            let node = pod.node.clone();
            (pod.name(), PodPlace { uid, node })
        });
        let pods = pods.collect();
        Ok(Self {
            mark: mark.unwrap_or_default(),
            reservations,
            networks: std::mem::take(&mut snapshot.networks),
            wanted,
            pods,
            programs,
            stored: Stored::new(pools, snapshot)?,
        })
    }

    /// Returns the space that a pool's addresses get to.
    fn space_to_be(&self, pool: &StoredPool) -> String {
        pool.space_to_be(&self.reservations, &self.wanted)
    }

    fn adoption(&self) -> Adoption {
        let Stored { pools, blocks } = &self.stored;
        let spaces: Vec<_> = pools.iter().map(|pool| self.space_to_be(pool)).collect();
        let place = |pod: &str| self.pods.get(pod).cloned();
        moving::adopt(pools, &spaces, &self.reservations, place, blocks)
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
        let pools = &self.stored.pools;
        let mut all = texts(&moving::late(pools));
        for pool in pools {
            let networks = self.networks.iter();
            let others = networks.filter(|network| {
                let mut ranges = network.ranges.iter();
                network.is_own
                    && network.space == pool.space()
                    && ranges.any(|range| pool.has(range.subnet()))
            });
            all.extend(others.map(|network| {
                format!(
                    "definition {} of multus-ipam has addresses of IPPool {}: delete its pods and the definition, or give it another range or space",
                    network.name, pool.name
                )
            }));
        }
        all.extend(texts(&self.stored.give_back().obstacles));
        all.sort();
        all.dedup();
        all
    }
}

/// Returns what a definition asks of pools.
fn definitions(nad: Value, netconf: &Netconf) -> Vec<guest::Definition> {
    let Ok(nad) = plan::objects::definition(nad) else {
        return Vec::new();
    };
    let objects = validate::ipam_objects(&nad, netconf).unwrap_or_default();
    let served = objects.iter().filter(|ipam| serves(ipam));
    served
        .filter_map(|ipam| guest::Definition::parse(ipam).ok())
        .collect()
}

/// Returns whether a DaemonSet brings the program of whereabouts to nodes.
fn has_program(set: &Value) -> bool {
    let spec = &set["spec"]["template"]["spec"];
    let containers = [&spec["containers"], &spec["initContainers"]];
    let mut containers = containers.into_iter().filter_map(Value::as_array).flatten();
    containers.any(|container| {
        let image = container["image"].as_str().unwrap_or_default();
        image
            .rsplit('/')
            .next()
            .is_some_and(|name| name.contains("whereabouts"))
    })
}

fn adoption_report(seen: &Seen, adoption: &Adoption) -> Report {
    let programs = seen.programs.iter().map(|set| {
        format!("DaemonSet {set} has the program of whereabouts, whose pods would get no addresses: uninstall it")
    });
    // Blocks are written before any pool is adopted.
    let obstacles = if seen.stored.has(ADOPTED) {
        texts(&moving::late(&seen.stored.pools))
    } else {
        programs.chain(texts(&adoption.obstacles)).collect()
    };
    let leaked = adoption.leaked.iter();
    Report {
        pools: seen.stored.pools.len(),
        addresses: adoption.addresses,
        leaked: leaked
            .map(|(pool, address)| format!("{address} of IPPool {pool}"))
            .collect(),
        blocks: adoption.blocks.len(),
        obstacles,
        is_done: false,
        done: "",
    }
}

fn texts(obstacles: &[Obstacle]) -> Vec<String> {
    obstacles.iter().map(Obstacle::to_string).collect()
}

/// Stamps all pools that are meant, also those that are made meanwhile.
async fn stamp(
    cluster: &Cluster,
    is_meant: impl Fn(&StoredPool) -> bool,
    patch: impl Fn(&StoredPool) -> Value,
) -> anyhow::Result<()> {
    loop {
        let pools = pools(cluster).await?;
        let patches: Vec<_> = pools
            .iter()
            .filter(|pool| is_meant(pool))
            .map(|pool| (pool, patch(pool)))
            .collect();
        if patches.is_empty() {
            return Ok(());
        }
        // One that has changed is read again.
        patched_pools(cluster, &patches).await?;
    }
}

/// Marks the namespace of the pools, so that the chart's policy knows who gives their addresses.
async fn mark(cluster: &Cluster, namespace: &str, word: &str) -> anyhow::Result<()> {
    let path = format!("/metadata/labels/{}", MARK.replace('/', "~1"));
    // Each namespace has a label with its name.
    let label = json!([{"op": "add", "path": path, "value": word}]);
    let marked = cluster
        .write(Write::Patch("/api/v1/namespaces", namespace, &label))
        .await;
    marked.map_err(|reason| {
        anyhow!("cannot label the namespace of the pools: {reason}; run the command again")
    })
}

async fn patched_pools(
    cluster: &Cluster,
    patches: &[(&StoredPool, Value)],
) -> anyhow::Result<usize> {
    let Some((first, _)) = patches.first() else {
        return Ok(0);
    };
    let path = collection(&first.namespace, POOLS);
    let writes = patches
        .iter()
        .map(|(pool, patch)| Write::Patch(&path, &pool.name, patch));
    let changed = cluster.write_all(writes).await;
    changed.map_err(|reason| anyhow!("cannot change {POOLS}: {reason}; run the command again"))
}

async fn patch_pools(cluster: &Cluster, patches: &[(&StoredPool, Value)]) -> anyhow::Result<()> {
    let changed = patched_pools(cluster, patches).await?;
    ensure!(
        changed == 0,
        "{} changed meanwhile: run the command again",
        counted(changed, "pool")
    );
    Ok(())
}

async fn patch_blocks(cluster: &Cluster, patches: &[(String, Value)]) -> anyhow::Result<()> {
    let changed = put(cluster, &[], patches).await?;
    ensure!(
        changed == 0,
        "{} changed meanwhile: run the command again",
        counted(changed, "block")
    );
    Ok(())
}

/// Writes the blocks of an adoption that are not as they have to be. Returns how many somebody else has written meanwhile.
async fn write_blocks(
    cluster: &Cluster,
    blocks: &[AddressBlock],
    adoption: &Adoption,
) -> anyhow::Result<usize> {
    let (mut patches, mut objects) = (Vec::new(), Vec::new());
    for ((space, block), slots) in &adoption.blocks {
        let mut known = blocks.iter();
        match known.find(|one| (&one.space, one.block) == (space, *block)) {
            Some(one) if matches!(&one.mode, Mode::Shared(written) if written == slots) => {}
            Some(one) => patches.push((name(one), moving::change_mode(one, "shared", Some(slots)))),
            None => objects.push(moving::block(space, *block, slots)),
        }
    }
    put(cluster, &objects, &patches).await
}

/// Makes blocks and changes others. Returns how many somebody else has written meanwhile.
async fn put(
    cluster: &Cluster,
    objects: &[Value],
    patches: &[(String, Value)],
) -> anyhow::Result<usize> {
    let creations = objects
        .iter()
        .map(|object| Write::Create(object::PATH, object));
    let patches = patches
        .iter()
        .map(|(name, patch)| Write::Patch(object::PATH, name, patch));
    let written = cluster.write_all(creations.chain(patches)).await;
    written.map_err(|reason| anyhow!("cannot write a block: {reason}; run the command again"))
}

/// Ends an adoption that was begun, before any pool is in blocks.
async fn stop(cluster: &Cluster, stored: &Stored) -> anyhow::Result<()> {
    let written = stored.blocks.iter().flat_map(|block| {
        let (Mode::Shared(slots) | Mode::Closed(slots)) = &block.mode else {
            return Vec::new();
        };
        let slots = slots.iter().enumerate();
        let of_pools = slots.filter(|(_, slot)| slot.owner.starts_with(POOL_OWNER));
        let patches = of_pools.filter_map(|(slot, _)| free(block, slot));
        patches.map(|patch| (name(block), patch)).collect()
    });
    let patches: Vec<_> = written.collect();
    patch_blocks(cluster, &patches).await?;
    mark(cluster, stored.namespace(), OPEN).await?;
    let begun = stored.pools.iter().filter(|pool| pool.word == ADOPTING);
    let patches: Vec<_> = begun.map(|pool| (pool, pool.reopen(None))).collect();
    patch_pools(cluster, &patches).await
}

/// Closes the blocks of the pools' ranges. Returns how many there are. A node that makes another one reads the pools before it gives of it.
async fn close(cluster: &Cluster) -> anyhow::Result<usize> {
    for _ in 0..SHARED_WITHIN {
        let stored = Stored::read(cluster).await?;
        let (mut patches, mut count, mut is_held) = (Vec::new(), 0, false);
        let blocks = stored.blocks.iter();
        for block in blocks.filter(|block| stored.has_pool_of(block)) {
            count += 1;
            match &block.mode {
                Mode::Node(_) => {
                    is_held = true;
                    if !block.wanted.iter().any(|one| **one == *ASKING) {
                        patches.push((name(block), want(block, ASKING)));
                    }
                }
                Mode::Shared(_) => {
                    patches.push((name(block), moving::change_mode(block, "closed", None)));
                }
                Mode::Closed(_) => {}
            }
        }
        if patches.is_empty() && !is_held {
            return Ok(count);
        }
        // What has changed is read again.
        put(cluster, &[], &patches).await?;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    bail!(
        "not all blocks are closed: a node does not share those that it holds (kubectl multus ipam); start its daemon, or free them when its machine is off (kubectl multus ipam free --node NAME), and run the command again, or go back to blocks with kubectl multus ipam adopt whereabouts --yes"
    )
}

/// Makes the reservations of all addresses, and removes those of others.
async fn write_reservations(
    cluster: &Cluster,
    pools: &[StoredPool],
    back: &Return,
) -> anyhow::Result<()> {
    let known = reservations(cluster).await?;
    let namespace = &pools[0].namespace;
    let path = collection(namespace, RESERVATIONS);
    let is_wrong = |name: &str, pod: &String| {
        let right = back.reservations.get(name);
        right.is_some_and(|right| right.pod != *pod) || moving::is_stale(pools, name, back)
    };
    let wrong: BTreeSet<_> = known
        .iter()
        .filter(|(name, pod)| is_wrong(name, pod))
        .map(|(name, _)| name)
        .collect();
    let failed = |reason| anyhow!("cannot write a reservation: {reason}; run the command again");
    let removals = wrong.iter().map(|name| Write::Delete(&path, name));
    cluster.write_all(removals).await.map_err(failed)?;
    let missing = back
        .reservations
        .iter()
        .filter(|(name, _)| !known.contains_key(*name) || wrong.contains(name));
    let objects: Vec<_> = missing
        .map(|(name, owner)| reservation::object(namespace, name, owner))
        .collect();
    let creations = objects.iter().map(|object| Write::Create(&path, object));
    cluster.write_all(creations).await.map(drop).map_err(failed)
}

/// Removes the blocks that are closed.
async fn remove_closed(cluster: &Cluster) -> anyhow::Result<()> {
    let finalizers = json!([{"op": "test", "path": "/spec/mode", "value": "closed"},
        {"op": "remove", "path": "/metadata/finalizers"}]);
    for _ in 0..ATTEMPTS {
        let stored = Stored::read(cluster).await?;
        let closed = stored
            .blocks
            .iter()
            .filter(|block| matches!(block.mode, Mode::Closed(_)));
        let names: Vec<_> = closed.map(name).collect();
        if names.is_empty() {
            return Ok(());
        }
        let failed = |reason| anyhow!("cannot remove a block: {reason}; run the command again");
        let removals = names.iter().map(|name| Write::Delete(object::PATH, name));
        cluster.write_all(removals).await.map_err(failed)?;
        let patches = names
            .iter()
            .map(|name| Write::Patch(object::PATH, name, &finalizers));
        cluster.write_all(patches).await.map_err(failed)?;
    }
    bail!("closed blocks come back: run the command again")
}

fn collection(namespace: &str, resource: &str) -> String {
    let (group, version) = GROUP;
    format!("/apis/{group}/{version}/namespaces/{namespace}/{resource}")
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

fn finish(report: &Report, output: Output) -> anyhow::Result<CommandStatus> {
    output.print(report, || text(report))?;
    Ok(if report.is_done {
        CommandStatus::Ok
    } else {
        CommandStatus::ProblemFound
    })
}

fn text(report: &Report) -> String {
    let Report {
        pools,
        addresses,
        leaked,
        obstacles,
        done,
        ..
    } = report;
    let mut text = String::new();
    for leaked in leaked {
        let _ = writeln!(
            text,
            "note: {leaked} is that of a pod that does not exist: it is moved as well, unless you add --without-leaked"
        );
    }
    for obstacle in obstacles {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "obstacle: {obstacle}");
    }
    let what = format!(
        "{} with {}",
        counted(*pools, "pool"),
        counted(*addresses, "address")
    );
    let _ = match (report.is_done, obstacles.is_empty()) {
        (true, _) => writeln!(text, "{what}: {done}"),
        (false, false) if done.is_empty() => writeln!(text, "\n{what}: nothing was changed"),
        (false, false) => writeln!(text, "\n{what}: {done}"),
        (false, true) => writeln!(text, "{what}: nothing was changed; move them with --yes"),
    };
    text
}
