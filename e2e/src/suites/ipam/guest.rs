//! Pools of whereabouts: our daemons and its own program give addresses of one pool at the same time, on a real API server.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use ipam::guest::POOLS;
use serde_json::{Value, json};

use super::{
    CLEAN_WITHIN, add, fails,
    fleet::{Fleet, Member},
    note_new,
};
use crate::{
    pool,
    report::{CheckFailed, Report, say},
    sh,
};

/// The file of a node with the keys that every definition has.
pub(super) const FLAT_FILE: &str = "/etc/whereabouts.conf";
/// The nodes whose daemons take addresses of the common pool, which has no room for more.
const NODES: usize = 4;
/// How many addresses each of two workers of a node takes of the pool, and how many the reference takes on each of two nodes.
const OF_WORKER: usize = 12;
const OF_REFERENCE: usize = 8;

/// A range for all checks with faults.
pub(super) fn pool() -> Value {
    json!({"type": "whereabouts", "range": "10.40.0.0/25"})
}

/// A range that daemons and the reference's program give at once.
fn common() -> Value {
    json!({"type": "whereabouts", "range": "10.41.0.5-10.41.0.200/24", "exclude": ["10.41.0.16/28"], "network_name": "common",
        "configuration_path": FLAT_FILE, "gateway": "10.41.0.1"})
}

pub(super) fn run(fleet: &Fleet, report: &mut Report) -> Result<(), CheckFailed> {
    report.check(
        "the plugin whereabouts takes and frees an address of a pool",
        || plugin(fleet),
    )?;
    report.check(
        "daemons and the program of whereabouts give each address once",
        || both(fleet),
    )
}

/// Adds the name of the file with the keys of every definition.
pub(super) fn with_flat_file(mut ipam: Value) -> Value {
    ipam["configuration_path"] = FLAT_FILE.into();
    ipam
}

pub(super) fn config(ipam: &Value) -> Value {
    json!({"cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "ipam": ipam})
}

fn plugin(fleet: &Fleet) -> anyhow::Result<()> {
    let member = &fleet.members[0];
    let mut both = common();
    both["ipRanges"] = json!([{"range": "fd00:41::/64"}]);
    let result = member.whereabouts(&member.plugins, "ADD", "plugin", &config(&both))?;
    let addresses: Vec<_> = result["ips"].as_array().into_iter().flatten().collect();
    let [v4, v6] = &addresses[..] else {
        anyhow::bail!("{result}")
    };
    ensure!(
        v4["address"] == "10.41.0.5/24" && v4["gateway"] == "10.41.0.1",
        "{result}"
    );
    ensure!(v6["address"] == "fd00:41::1/64", "{result}");
    let (pools, reservations) = fleet.pools()?;
    ensure!(
        pools
            == [
                "common-10.41.0.0-24 5 default/plugin",
                "common-fd00-41---64 1 default/plugin"
            ],
        "{pools:?}"
    );
    ensure!(
        reservations
            == [
                "common-10.41.0.5 default/plugin",
                "common-fd00-41--1 default/plugin"
            ],
        "{reservations:?}"
    );
    for pool in fleet.of_whereabouts(POOLS)? {
        let fields = &pool["metadata"]["managedFields"];
        ensure!(
            fields.is_null(),
            "the fields of a pool are tracked: {fields}"
        );
    }
    let without_slice = json!({"type": "whereabouts", "range": "10.41.0.0/24", "node_slice_size": "/26", "configuration_path": FLAT_FILE});
    let outcome = member.whereabouts(&member.plugins, "ADD", "other", &config(&without_slice));
    fails(outcome, "NodeSlicePool lan has no slice for node")?;
    for _ in 0..2 {
        member.whereabouts(&member.plugins, "DEL", "plugin", &config(&both))?;
    }
    sh::until(CLEAN_WITHIN, "the pools are empty", || {
        fleet.ensure_pools_are_empty()
    })
}

/// Lets nodes take addresses of one pool at once, and on two of them the reference's program, whose DELs are then done by both.
fn both(fleet: &Fleet) -> anyhow::Result<()> {
    let given = Mutex::new(BTreeSet::new());
    let ipam = common();
    let members = &fleet.members[..NODES];
    // The time of all ADDs of daemons, and of those of the reference's program with the tries that failed.
    let (ours, theirs) = (Mutex::new(Duration::ZERO), Mutex::new(Duration::ZERO));
    let timed = |total: &Mutex<Duration>, add: &dyn Fn() -> anyhow::Result<String>| {
        let start = Instant::now();
        let address = add();
        *total.lock().expect("no thread panics") += start.elapsed();
        address
    };
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for (number, member) in members.iter().enumerate() {
            for worker in 0..2 {
                let (given, ipam, timed, ours) = (&given, &ipam, &timed, &ours);
                workers.push(scope.spawn(move || {
                    (0..OF_WORKER).try_for_each(|at| {
                        let pod = format!("guest-{number}-{worker}-{at}");
                        note_new(given, &timed(ours, &|| add(member, &pod, ipam))?)
                    })
                }));
            }
        }
        for (number, member) in members.iter().take(2).enumerate() {
            let (given, ipam, timed, theirs) = (&given, &ipam, &timed, &theirs);
            workers.push(scope.spawn(move || {
                (0..OF_REFERENCE).try_for_each(|at| {
                    let pod = of_reference(number, at);
                    let address =
                        timed(theirs, &|| reference(member, &fleet.reference, &pod, ipam))?;
                    note_new(given, &address)
                })
            }));
        }
        workers.into_iter().try_for_each(pool::joined)
    })?;
    let count = NODES * 2 * OF_WORKER + 2 * OF_REFERENCE;
    let (pools, reservations) = fleet.pools()?;
    let mean = |total: Mutex<Duration>, count: usize| {
        let total = total.into_inner().expect("no thread panics");
        total.as_millis() / u128::try_from(count).expect("it is small")
    };
    let by_reference = 2 * OF_REFERENCE;
    say(&format!(
        "        {count} addresses within {} ms each, {by_reference} of them by the reference within {} ms each",
        mean(ours, count - by_reference),
        mean(theirs, by_reference)
    ));
    ensure!(
        pools.len() == count && reservations.len() == count,
        "{pools:?} {reservations:?}"
    );
    for (number, member) in members.iter().enumerate() {
        for worker in 0..2 {
            for at in 0..OF_WORKER {
                member.del(&format!("guest-{number}-{worker}-{at}"))?;
            }
        }
    }
    for (number, member) in members.iter().take(2).enumerate() {
        for at in 0..OF_REFERENCE {
            // Of the reference's addresses, ours frees those of the second node.
            let program = [&fleet.reference, &member.plugins][number];
            let container = of_reference(number, at);
            member.whereabouts(program, "DEL", &container, &config(&ipam))?;
        }
    }
    sh::until(CLEAN_WITHIN, "the pool is empty", || {
        fleet.ensure_pools_are_empty()
    })
}

fn of_reference(number: usize, at: usize) -> String {
    format!("reference-{number}-{at}")
}

/// Takes an address with the reference's program, as a kubelet does: a pod that fails is deleted and tried again.
fn reference(
    member: &Member,
    program: &Path,
    container: &str,
    ipam: &Value,
) -> anyhow::Result<String> {
    let config = config(ipam);
    sh::until(120, "the reference gives an address", || {
        let added = member.whereabouts(program, "ADD", container, &config);
        if added.is_err() {
            member.whereabouts(program, "DEL", container, &config)?;
        }
        let result = added?;
        let address = result["ips"][0]["address"].as_str();
        address.map(str::to_owned).context("there is an address")
    })
}

/// Writes a file of the node with the keys of definitions that name it.
pub(super) fn write_flat_file(
    member: &Member,
    path: &str,
    kubeconfig: &Path,
) -> anyhow::Result<()> {
    let file = json!({"datastore": "kubernetes", "kubernetes": {"kubeconfig": kubeconfig}, "log_level": "error"});
    member.node.write(path, file.to_string())
}
