//! `kubectl multus ipam adopt` and `return`: the pools of whereabouts become addresses of blocks, and pools again, under running pods.
//!
//! `ipam::guest::mover` takes the steps; here is what they read and write.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::Write as _,
    time::Duration,
};

use cmdline::counted;
use ipam::{
    AddressBlock,
    guest::{
        self, API_VERSION, POOLS, RESERVATIONS,
        mover::{self, Namespace, Order, Report, Seen, Step, Stored, Write},
        moving::{PodPlace, Reserved, StoredPool},
        pool::{NEW, STAMP},
    },
    object::{GROUP, KIND, RESOURCE, VERSION},
    service::guest::serves,
};
use plan::netconf::Netconf;
use serde_json::{Map, Value, json};

use super::{
    gather,
    snapshot::{Network, Snapshot},
};
use crate::{CommandStatus, Output, cluster::Cluster, object::DEFINITION, validate};

const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// So many pods are read one by one; more are listed.
const FEW_PODS: usize = 1_000;

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

pub(super) async fn adopt(
    args: &AdoptArgs,
    cluster: &Cluster,
    output: Output,
) -> anyhow::Result<CommandStatus> {
    let order = Order {
        is_meant: args.common.yes,
        without_leaked: args.without_leaked,
    };
    finish(&mover::adopt(cluster, order).await?, output)
}

pub(super) async fn give_back(
    args: &Args,
    cluster: &Cluster,
    output: Output,
) -> anyhow::Result<CommandStatus> {
    let order = Order {
        is_meant: args.yes,
        ..Order::default()
    };
    finish(&mover::give_back(cluster, order).await?, output)
}

impl mover::Cluster for Cluster {
    async fn seen(&self, pools: Vec<StoredPool>) -> Result<Seen, String> {
        let namespace = &pools[0].namespace;
        let Namespace { mark, .. } = self.namespace(namespace).await?;
        let netconf = validate::netconf(Map::new());
        let netconf = netconf.map_err(|error| format!("cannot use the defaults: {error:#}"))?;
        let snapshot = gather::blocks(self).await;
        let mut snapshot = snapshot.map_err(|error| format!("{error:#}"))?;
        let nads = listed(self, "k8s.cni.cncf.io/v1", DEFINITION, DEFINITIONS).await?;
        let mut wanted: BTreeMap<_, BTreeSet<bool>> = BTreeMap::new();
        let mut joint = BTreeSet::new();
        for nad in nads {
            for definition in definitions(nad.clone(), &netconf) {
                for pool in definition.pools() {
                    let wanted = wanted.entry(pool).or_default();
                    wanted.insert(definition.is_reserved);
                }
                joint.insert(definition.pools().collect());
            }
            snapshot.add_definition(nad, &netconf);
        }
        let sets = listed(self, "apps/v1", "DaemonSet", "daemonsets").await?;
        let programs = sets.iter().filter(|set| has_program(set)).map(|set| {
            let part = |key: &str| text_at(set, &format!("/metadata/{key}"));
            format!(
                "DaemonSet {}/{} has the program of whereabouts, whose pods would get no addresses: uninstall it",
                part("namespace"),
                part("name")
            )
        });
        let sliced = listed(self, API_VERSION, "NodeSlicePool", guest::SLICES).await?;
        let sliced = sliced.iter().map(|one| {
            let name = text_at(one, "/metadata/name");
            format!(
                "NodeSlicePool {namespace}/{name} cuts a range into slices of nodes, which blocks do not have: take node_slice_size out of its definitions and delete their pods, then their pools and it"
            )
        });
        Ok(Seen {
            mark,
            reservations: BTreeMap::new(),
            wanted,
            joint,
            pods: BTreeMap::new(),
            against_adoption: programs.chain(sliced).collect(),
            against_return: of_other_networks(&pools, &snapshot.networks),
            stored: Stored {
                blocks: complete(snapshot)?,
                pools,
            },
        })
    }

    async fn home(&self) -> Result<String, String> {
        let group = API_VERSION.split_once('/').unwrap_or_default();
        let first = self.first(group, "IPPool", POOLS).await;
        let first = first.map_err(|reason| format!("cannot list {POOLS}: {reason}"))?;
        let namespace = |pool| text_at(&pool, "/metadata/namespace");
        first.map(namespace).ok_or_else(no_pools)
    }

    async fn namespace(&self, name: &str) -> Result<Namespace, String> {
        let read = self.object(("", "v1"), "Namespace", "namespaces", "", name);
        let cannot = |reason| format!("cannot read namespace {name}: {reason}");
        let object = read.await.map_err(cannot)?;
        Ok(Namespace::parse(&object.unwrap_or_default()))
    }

    async fn pools(&self) -> Result<Vec<StoredPool>, String> {
        let objects = listed(self, API_VERSION, "IPPool", POOLS).await?;
        let pools = parsed(&objects)?;
        let first = pools.first().ok_or_else(no_pools)?;
        if pools.iter().any(|pool| pool.namespace != first.namespace) {
            return Err("there are pools in several namespaces, of which daemons use one (ipam.whereaboutsNamespace): delete those that nobody uses".to_owned());
        }
        Ok(pools)
    }

    async fn new_pools(&self) -> Result<Vec<StoredPool>, String> {
        let group = API_VERSION.split_once('/').unwrap_or_default();
        let label = format!("{STAMP}={NEW}");
        let objects = self.labelled(group, "IPPool", POOLS, None, &label).await;
        let objects = objects.map_err(|reason| format!("cannot list {POOLS}: {reason}"))?;
        parsed(&objects)
    }

    async fn pool(&self, namespace: &str, name: &str) -> Result<Option<StoredPool>, String> {
        let group = API_VERSION.split_once('/').unwrap_or_default();
        let object = self.object(group, "IPPool", POOLS, namespace, name).await;
        let object = object.map_err(|reason| format!("cannot read pool {name}: {reason}"))?;
        let pool = object.as_ref().map(StoredPool::parse);
        pool.transpose().map_err(|error| error.to_string())
    }

    async fn blocks(&self, names: Option<&BTreeSet<String>>) -> Result<Vec<AddressBlock>, String> {
        let Some(names) = names else {
            let snapshot = gather::blocks(self).await;
            return complete(snapshot.map_err(|error| format!("{error:#}"))?);
        };
        let names = names.iter().map(|name| ("", name.as_str()));
        let objects = self.existing((GROUP, VERSION), KIND, RESOURCE, names).await;
        let objects = objects.map_err(|reason| format!("cannot read {RESOURCE}: {reason}"))?;
        let mut snapshot = Snapshot::default();
        for object in objects {
            snapshot.add_block(object);
        }
        complete(snapshot)
    }

    async fn reservations(&self) -> Result<BTreeMap<String, Reserved>, String> {
        let kind = "OverlappingRangeIPReservation";
        let objects = listed(self, API_VERSION, kind, RESERVATIONS).await?;
        let named = objects.iter().map(|one| {
            let reserved = Reserved {
                pod: text_at(one, "/spec/podref"),
                uid: text_at(one, "/metadata/uid"),
            };
            (text_at(one, "/metadata/name"), reserved)
        });
        Ok(named.collect())
    }

    async fn pods(
        &self,
        names: Option<BTreeSet<&str>>,
    ) -> Result<BTreeMap<String, PodPlace>, String> {
        let objects = match names {
            Some(names) if names.len() <= FEW_PODS => self.pods_of(names).await,
            Some(_) | None => Cluster::pods(self, None).await,
        };
        let objects = objects.map_err(|reason| format!("cannot read pods: {reason}"))?;
        let places = objects.iter().map(|pod| {
            let at = |path| text_at(pod, path);
            let name = format!("{}/{}", at("/metadata/namespace"), at("/metadata/name"));
            let (uid, node) = (at("/metadata/uid"), at("/spec/nodeName"));
            (name, PodPlace { uid, node })
        });
        Ok(places.collect())
    }

    async fn write_all(&self, writes: Vec<Write<'_>>) -> Result<Vec<Option<Value>>, String> {
        Cluster::write_all(self, writes).await
    }

    async fn look_again(&self) {
        tokio::time::sleep(LOOK_AGAIN).await;
    }

    fn begins(&self, step: Step) {
        let after = self.begun.elapsed().as_secs_f32();
        // Nothing depends on whether it can be said.
        let _ = writeln!(
            std::io::stderr().lock(),
            "{after:6.1} s  {} …",
            progress(step)
        );
    }
}

fn progress(step: Step) -> String {
    match step {
        Step::Read => "reading pools, reservations, blocks and pods".to_owned(),
        Step::Stamp(count) => format!("stamping {}", counted(count, "pool")),
        Step::WriteBlocks(count) => format!("writing {}", counted(count, "block")),
        Step::Share(count) => format!("asking nodes to share {}", counted(count, "block")),
        Step::Close(count) => format!("closing {}", counted(count, "block")),
        Step::RemoveBlocks(count) => format!("removing {}", counted(count, "block")),
        Step::Reserve(count) => format!("making {}", counted(count, "reservation")),
    }
}

const DEFINITIONS: &str = "network-attachment-definitions";

fn parsed(pools: &[Value]) -> Result<Vec<StoredPool>, String> {
    let pools = pools.iter().map(StoredPool::parse);
    let pools = pools.collect::<Result<_, _>>();
    pools.map_err(|error| error.to_string())
}

/// Lists all objects of a kind; of one that the cluster does not know there are none.
async fn listed(
    cluster: &Cluster,
    api_version: &str,
    kind: &str,
    plural: &str,
) -> Result<Vec<Value>, String> {
    let group = api_version.split_once('/').unwrap_or(("", api_version));
    let objects = cluster.all(group, kind, plural).await;
    let objects = objects.map_err(|reason| format!("cannot list {plural}: {reason}"))?;
    Ok(objects.unwrap_or_default())
}

fn no_pools() -> String {
    "the cluster has no pools of whereabouts".to_owned()
}

fn text_at(object: &Value, path: &str) -> String {
    let text = object.pointer(path).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// Returns the blocks; fails unless everything that was read can be used.
fn complete(snapshot: Snapshot) -> Result<Vec<AddressBlock>, String> {
    let unusable = snapshot.unusable.iter();
    let faults: Vec<_> = unusable
        .map(|one| format!("{}: {}", one.object, one.reason))
        .chain(snapshot.gaps.iter().cloned())
        .collect();
    if !faults.is_empty() {
        return Err(format!(
            "not everything could be read: {}",
            faults.join("; ")
        ));
    }
    let blocks = snapshot.blocks.into_iter();
    Ok(blocks.map(|block| block.content).collect())
}

/// Returns a sentence for each network of multus-ipam that has addresses of an adopted pool.
fn of_other_networks(pools: &[StoredPool], networks: &[Network]) -> Vec<String> {
    let all = pools.iter().flat_map(|pool| {
        let others = networks.iter().filter(|network| {
            let mut ranges = network.ranges.iter();
            network.is_own
                && network.space == pool.space()
                && ranges.any(|range| pool.has(range.subnet()))
        });
        others.map(|network| {
            format!(
                "definition {} of multus-ipam has addresses of IPPool {}: delete its pods and the definition, or give it another range or space",
                network.name, pool.name
            )
        })
    });
    all.collect()
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

fn finish(report: &Report, output: Output) -> anyhow::Result<CommandStatus> {
    let Report {
        pools,
        addresses,
        leaked,
        blocks,
        obstacles,
        is_done,
        ..
    } = report;
    let values = json!({"pools": pools, "addresses": addresses, "leaked": leaked, "blocks": blocks,
        "obstacles": obstacles, "isDone": is_done});
    output.print(&values, || text(report))?;
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
