//! Suite `ipam`: several nodes get addresses from common ranges, on a real API server and etcd, while daemons, connections, the API server
//! and machines fail. A history that knows nothing of blocks says whether an address was ever used twice, and at the end nothing is left.

mod claims;
mod fleet;
mod guest;
mod history;
mod moving;
mod reference;

pub(super) use fleet::pool_kinds;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use ipam::wire::Allocation;
use serde_json::{Value, json};

use self::{
    fleet::{Fleet, Member, Outcome},
    history::History,
};
use crate::{
    control_plane::tcp_proxy::{CONDITIONS, Condition},
    options::Options,
    page_table, pool,
    programs::{Module, Needs},
    report::{CheckFailed, Report, say},
    sh,
    suites::faults::random::Random,
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: crate::single_node::NEEDS.debian,
    modules: &[Module::Helm, Module::Kubernetes, Module::Whereabouts],
};

/// The cases of the suite: each kind of address, everything fails, pools become blocks and pools again, an older etcd, the program of
/// whereabouts while everything fails, and fifty nodes at once.
const CASES: [&str; 6] = [ADDRESSES, FAULTS, MOVES, BACKUP, REFERENCE, AT_ONCE];
const ADDRESSES: &str = "addresses";
const FAULTS: &str = "faults";
const MOVES: &str = "moves";
/// These cases run with `--long`, or when `--case` names them.
const BACKUP: &str = "backup";
const REFERENCE: &str = "reference";
const AT_ONCE: &str = "at-once";
/// The page with what was found while everything failed.
const PAGE: &str = "docs/contributing/addresses.md";

/// How many nodes and containers there are while everything fails, and how many addresses are given meanwhile.
struct Load {
    nodes: u8,
    /// Containers of a node that ask at the same time.
    at_once: usize,
    given: usize,
    /// How many faults hit them at least.
    broken: usize,
    /// Of so many containers one is of the small range, one of the large one and one of a pool, where all nodes change the same objects.
    kinds: u32,
    /// `break_things` draws each fault by a number below this one.
    faults: u32,
}

const SHORT: Load = Load {
    nodes: 4,
    at_once: 4,
    given: 1_000,
    broken: 0,
    kinds: 3,
    faults: 12,
};
/// That of `--long`.
const LONG: Load = Load {
    nodes: 8,
    at_once: 16,
    given: 100_000,
    broken: 60,
    kinds: 32,
    // Full disks, other clocks and Nodes that are made anew are each night's.
    faults: 16,
};
/// How many containers have an address at most while everything fails: more than the small range has, fewer than the large one.
const LIVING: usize = 192;
/// How many containers of a node ask at once while nothing fails.
const TAKERS: usize = 4;

/// Of a check of its own.
const MANY_NODES: u8 = 50;
/// The addresses of the range there.
const MANY_ADDRESSES: usize = 253;

/// How nodes take the addresses of a range.
#[derive(Clone, Copy)]
struct Taking {
    count: usize,
    /// Containers of a node that ask at the same time.
    takers: usize,
    /// The time from the begin of a taker's address to that of its next one; takers begin one after the other within it.
    every: Duration,
}

impl Taking {
    /// Each taker asks again as soon as it has an answer.
    const fn at_once(count: usize, takers: usize) -> Self {
        Self {
            count,
            takers,
            every: Duration::ZERO,
        }
    }
}

/// Each node takes an address a second, until three quarters of the range are taken.
const STEADY: Taking = Taking {
    count: MANY_ADDRESSES * 3 / 4,
    takers: 1,
    every: Duration::from_secs(1),
};
/// The first stream of random numbers of the containers; those below are of machines and faults.
const CONTAINERS: u32 = 1_000;
/// So many seconds are clocks ahead.
const CLOCKS: [i64; 2] = [3_600, 3 * 86_400];
/// The pause between two faults.
const PAUSE: Duration = Duration::from_millis(400);
/// How long a kubelet waits at least before it tries a pod again.
const BACK_OFF: Duration = Duration::from_millis(200);
/// So many reasons of failed requests are printed.
const REASONS: usize = 5;
/// Two minutes after the last fault nothing is left.
const CLEAN_WITHIN: u64 = 120;

/// Returns the kind of claims, which is not of this release.
pub(crate) fn kind_of_claims() -> anyhow::Result<Value> {
    Ok(serde_yaml::from_str(include_str!("ipam/ipamclaims.yaml"))?)
}

/// A range that is shared from the start, and two of blocks that nodes hold: one is used up before things fail, after which its blocks are
/// shared.
fn small() -> Value {
    json!({"type": "multus-ipam", "subnet": "10.30.0.0/25"})
}

fn large() -> Value {
    json!({"type": "multus-ipam", "subnet": "10.20.0.0/22"})
}

/// The addresses that [`large`] gives.
const ALL_OF_LARGE: usize = 1_021;

fn held() -> Value {
    json!({"type": "multus-ipam", "space": "held", "subnet": "10.20.0.0/22"})
}

pub(crate) fn run(
    env: &TestEnv,
    options: &Options,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    options.ensure_selected(&CASES, report)?;
    let load = if options.long { LONG } else { SHORT };
    let nodes = load.nodes;
    let name = format!("{nodes} nodes with daemons that may give addresses");
    let peer = options.peer.as_deref();
    let fleet = report.check(&name, || Fleet::new(env, nodes, peer))?;
    if options.selects(ADDRESSES) {
        addresses(&fleet, report)?;
    }
    let seed = options.seed();
    say(&format!("seed    {seed}"));
    if options.selects(FAULTS) {
        let name = format!(
            "{} addresses while daemons, connections, API server and machines fail",
            load.given
        );
        let tally = report.check(&name, || under_faults(&fleet, seed, &load))?;
        report.check("nothing is left of what was given", || nothing_left(&fleet))?;
        report.check(
            "a block that is deleted goes when its holder hears of it",
            || deleted_blocks(&fleet),
        )?;
        tally.record(env, options, "multus-ipam and whereabouts' pools", report)?;
    }
    // The time that an adoption may take is not met on every machine.
    if options.selects(MOVES) {
        moving::run(env, &fleet, options.long, report)?;
    }
    let is_meant = |case| (options.long || options.case.is_some()) && options.selects(case);
    if is_meant(BACKUP) {
        report.check(
            "machines that start after etcd was restored from a backup give no address twice, and leave none",
            || restored(&fleet),
        )?;
    }
    // The last one, since it may leave addresses in the pools.
    if is_meant(REFERENCE) {
        report.check(
            "the program of whereabouts gives addresses, and ours",
            || reference::beside_ours(&fleet),
        )?;
        let tally = report.check(
            "the program of whereabouts gives addresses while connections, API server and machines fail",
            || reference::under_faults(&fleet, seed),
        )?;
        tally.record(env, options, "whereabouts' program", report)?;
    }
    drop(fleet);
    if is_meant(AT_ONCE) {
        report.check(
            "50 nodes take the addresses of a shared range at once",
            || many_nodes(env),
        )?;
    }
    Ok(())
}

/// Nothing fails, and each kind of address is given.
fn addresses(fleet: &Fleet, report: &mut Report) -> Result<(), CheckFailed> {
    report.check("the plugin gives, checks and frees an address", || {
        plugin(fleet)
    })?;
    report.check("a held block gives addresses without a request", || {
        without_requests(fleet)
    })?;
    report.check("128 pods of a node with 16 networks each", || {
        many_networks(fleet)
    })?;
    report.check("a range serves as many pods as it has addresses", || {
        all_of_a_range(fleet)
    })?;
    report.check(
        "another node's block is shared when a range is used up",
        || shared_on_demand(fleet),
    )?;
    report.check("a node without its API server gives from its block", || {
        server_away(fleet)
    })?;
    report.check("a chosen address is one pod's", || claims::chosen(fleet))?;
    report.check(
        "a claim keeps its address while its machine moves 100 times, until it is deleted",
        || claims::life(fleet),
    )?;
    report.check("a stateful pod has its address again", || {
        claims::sticky(fleet)
    })?;
    guest::run(fleet, report)
}

fn plugin(fleet: &Fleet) -> anyhow::Result<()> {
    let [node, ..] = &fleet.members[..] else {
        anyhow::bail!("the fleet has nodes")
    };
    let config = json!({"cniVersion": "1.1.0", "name": "lan", "type": "macvlan", "ipam": small()});
    let result = node.plugin("ADD", "plugin", &config)?;
    let address = result["ips"][0]["address"].as_str().unwrap_or_default();
    ensure!(
        address.starts_with("10.30.0.") && address.ends_with("/25"),
        "{result}"
    );
    ensure!(result["ips"][0]["gateway"] == "10.30.0.1", "{result}");
    node.plugin("CHECK", "plugin", &config)?;
    let mut with_request = config.clone();
    with_request["runtimeConfig"] = json!({"ips": ["10.31.0.9"]});
    fails(
        node.plugin("ADD", "other", &with_request),
        "10.31.0.9 is not an address that the network gives from 10.30.0.0/25",
    )?;
    for _ in 0..2 {
        node.plugin("DEL", "plugin", &config)?;
    }
    fails(node.plugin("CHECK", "plugin", &config), "has no address")?;
    // The requests of the next check are counted.
    until_free(fleet)
}

fn fails<T>(outcome: anyhow::Result<T>, expected: &str) -> anyhow::Result<()> {
    let error = outcome.err().context("it succeeds")?;
    ensure!(format!("{error:#}").contains(expected), "{error:#}");
    Ok(())
}

/// Gives a pod an address, or fails with the service's reason.
fn add(member: &Member, pod: &str, ipam: &Value) -> anyhow::Result<String> {
    give(member, fleet::allocation(pod, ipam)?)
}

/// Gives what an allocation asks for, or fails with the service's reason.
fn give(member: &Member, allocation: Allocation) -> anyhow::Result<String> {
    let (node, pod) = (&member.node.name, allocation.pod.name.clone());
    match member.allocate(allocation)? {
        Outcome::Given(address) => Ok(address),
        Outcome::Refused(reason) => anyhow::bail!("{node}: {pod}: {reason}"),
        Outcome::Lost => anyhow::bail!("{node}: {pod}: no answer"),
    }
}

fn without_requests(fleet: &Fleet) -> anyhow::Result<()> {
    let member = &fleet.members[0];
    let mut given = BTreeSet::new();
    let before = member.requests()?;
    given.insert(add(member, "0", &large())?);
    let first = member.requests()? - before;
    ensure!(first == 1, "{first} requests for the first address");
    let before = member.requests()?;
    let begin = Instant::now();
    for pod in 1..25 {
        let pod = pod.to_string();
        ensure!(
            given.insert(add(member, &pod, &large())?),
            "twice: {given:?}"
        );
    }
    let time = begin.elapsed() / 24;
    let requests = member.requests()? - before;
    say(&format!(
        "        {} us for an address of a held block",
        time.as_micros()
    ));
    ensure!(
        requests == 0,
        "{requests} requests for addresses of a held block"
    );
    for pod in 0..25 {
        member.del(&pod.to_string())?;
    }
    Ok(())
}

/// Gives a node's pods addresses of many networks, one after the other.
fn many_networks(fleet: &Fleet) -> anyhow::Result<()> {
    const PODS: usize = 128;
    const NETWORKS: usize = 16;
    let member = &fleet.members[0];
    let attachments = || {
        let of_pod = |pod: usize| (0..NETWORKS).map(move |network| (pod, network));
        (0..PODS).flat_map(of_pod)
    };
    let allocation = |(pod, network): (usize, usize)| {
        let ipam = json!({"type": "multus-ipam", "space": format!("net{network}"), "subnet": "10.20.0.0/16"});
        let mut allocation = fleet::allocation(&format!("many-{pod}"), &ipam)?;
        allocation.attachment.ifname = format!("net{network}");
        anyhow::Ok(allocation)
    };
    let before = member.requests()?;
    let begin = Instant::now();
    for one in attachments() {
        let outcome = member.allocate(allocation(one)?)?;
        ensure!(matches!(outcome, Outcome::Given(_)), "{one:?}: {outcome:?}");
    }
    let (time, requests) = (begin.elapsed(), member.requests()? - before);
    let count = PODS * NETWORKS;
    say(&format!(
        "        {count} addresses in {} ms with {requests} requests",
        time.as_millis()
    ));
    ensure!(requests <= 100, "{requests} requests for {count} addresses");
    for one in attachments() {
        member.release(allocation(one)?.attachment)?;
    }
    Ok(())
}

/// Lets all nodes take every address of a range at once.
fn all_of_a_range(fleet: &Fleet) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut times = take_all(fleet, Taking::at_once(125, TAKERS), |_| small())?;
    let total = begin.elapsed().as_millis();
    times.sort_unstable();
    say(&format!(
        "        125 addresses of a shared range by {} nodes in {total} ms, {} of 125 within {} ms each",
        fleet.members.len(),
        times.len() * 99 / 100,
        times[times.len() * 99 / 100 - 1].as_millis()
    ));
    let full = match fleet.members[1].add("full", &small())? {
        Outcome::Refused(reason) => reason,
        other => anyhow::bail!("the range is used up, and yet: {other:?}"),
    };
    ensure!(
        full.contains("10.30.0.0/25 has no free address: 125 in use"),
        "{full}"
    );
    free_all(fleet)
}

/// Lets all nodes take addresses. Returns how long each took.
fn take_all(
    fleet: &Fleet,
    taking: Taking,
    ipam: impl Fn(&Member) -> Value + Sync,
) -> anyhow::Result<Vec<Duration>> {
    // No runtime gives a container the name of an earlier one.
    static PODS: AtomicUsize = AtomicUsize::new(0);
    let (taken, given) = (AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
    let members = fleet.members.iter();
    let takers: Vec<_> = members
        .flat_map(|member| vec![member; taking.takers])
        .collect();
    let between = taking.every / u32::try_from(takers.len())?;
    let start = Instant::now();
    let times = pool::at_once((0..).zip(takers), |(place, member)| {
        let ipam = ipam(member);
        let mut times = Vec::new();
        let mut due = start + between * place;
        loop {
            if taken.fetch_add(1, Ordering::Relaxed) >= taking.count {
                return Ok(times);
            }
            let number = PODS.fetch_add(1, Ordering::Relaxed);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            due += taking.every;
            let begin = Instant::now();
            let address = add(member, &format!("all-{number}"), &ipam)?;
            times.push(begin.elapsed());
            note_new(&given, &format!("{} {address}", ipam["space"]))?;
        }
    })?;
    Ok(times.concat())
}

/// Notes an address that was given, and fails if it had been given before.
fn note_new(given: &Mutex<BTreeSet<String>>, address: &str) -> anyhow::Result<()> {
    let mut given = given.lock().expect("no thread panics");
    ensure!(
        given.insert(address.to_owned()),
        "{address} was given twice"
    );
    Ok(())
}

/// Measures the ADDs of many nodes that request all addresses of a shared range at once, the first ones and later ones, beside as many ADDs
/// of the same nodes from shared blocks that each has alone. Then the nodes use up a large range.
fn many_nodes(env: &TestEnv) -> anyhow::Result<()> {
    let fleet = Fleet::new(env, MANY_NODES, None)?;
    let own = |member: &Member| json!({"type": "multus-ipam", "space": member.node.name, "subnet": "10.30.0.0/27"});
    let range = |_: &Member| json!({"type": "multus-ipam", "subnet": "10.30.0.0/24"});
    for member in &fleet.members {
        add(member, "first", &own(member))?;
    }
    let all = Taking::at_once(MANY_ADDRESSES, 1);
    for (what, taking, rounds) in [
        ("at once", all, &["first", "later"][..]),
        ("one a second of each node", STEADY, &["more"]),
    ] {
        let floor = measure(
            &fleet,
            &format!("addresses of own blocks, {what}"),
            taking,
            own,
        )?;
        for round in rounds {
            let time = measure(&fleet, &format!("{round} addresses, {what}"), taking, range)?;
            let times = time / floor;
            say(&format!("        that is {times:.2} times the floor"));
        }
    }
    let begin = Instant::now();
    take_all(&fleet, Taking::at_once(ALL_OF_LARGE, 1), |_| large())?;
    say(&format!(
        "        {ALL_OF_LARGE} addresses of a range that has no more, in {} ms",
        begin.elapsed().as_millis()
    ));
    free_all(&fleet)
}

/// Lets the nodes take addresses, and frees them. Prints within which times half of them and 99 of 100 were given, and returns the second one
/// in seconds.
fn measure(
    fleet: &Fleet,
    what: &str,
    taking: Taking,
    ipam: impl Fn(&Member) -> Value + Sync,
) -> anyhow::Result<f64> {
    let before = all_requests(fleet)?;
    let mut times = take_all(fleet, taking, ipam)?;
    let requests = all_requests(fleet)? - before;
    times.sort_unstable();
    let within = |percent: usize| times[times.len() * percent / 100];
    say(&format!(
        "        {} {what}: half of them within {} ms each, 99 of 100 within {} ms, with {requests} requests about a block",
        times.len(),
        within(50).as_millis(),
        within(99).as_millis()
    ));
    free_all(fleet)?;
    until_free(fleet)?;
    Ok(within(99).as_secs_f64())
}

/// Returns how many requests about one block all daemons have sent.
fn all_requests(fleet: &Fleet) -> anyhow::Result<u64> {
    fleet.members.iter().map(Member::requests).sum()
}

/// The cluster has an older etcd again, as an operator restores one, and all machines are started anew.
fn restored(fleet: &Fleet) -> anyhow::Result<()> {
    let all = |count| -> anyhow::Result<()> {
        take_all(fleet, Taking::at_once(count, TAKERS), |_| small())?;
        take_all(fleet, Taking::at_once(count, TAKERS), |_| held()).map(drop)
    };
    all(60)?;
    fleet.control.back_up(&fleet.server)?;
    fleet.wait()?;
    nothing_left(fleet)?;
    // Others have the addresses of the backup, and blocks that it has are gone or another node's.
    take_all(fleet, Taking::at_once(ALL_OF_LARGE, TAKERS), |_| large())?;
    all(125)?;
    for member in &fleet.members {
        member.stop()?;
    }
    fleet.control.restore(&fleet.server)?;
    let slots = |block: &Value| {
        block["spec"]["slots"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let slots = fleet.blocks()?.iter().flat_map(slots).collect::<Vec<_>>();
    let owned = slots.iter().filter(|slot| slot["owner"] != "").count();
    ensure!(owned == 60, "the backup has {owned} addresses");
    for member in &fleet.members {
        member.boot()?;
    }
    fleet.wait()?;
    // What is left of the pods of the backup is free again, or the range would not have so many.
    all(125)?;
    take_all(fleet, Taking::at_once(ALL_OF_LARGE, TAKERS), |_| large())?;
    nothing_left(fleet)
}

fn free_all(fleet: &Fleet) -> anyhow::Result<()> {
    for member in &fleet.members {
        for (container, _) in member.records()? {
            member.del_container(&container)?;
        }
    }
    Ok(())
}

fn shared_on_demand(fleet: &Fleet) -> anyhow::Result<()> {
    // They are in 32 blocks, of which nodes hold 24: the last ones are those of others.
    take_all(fleet, Taking::at_once(ALL_OF_LARGE, TAKERS), |_| large())?;
    ensure!(
        matches!(fleet.members[2].add("full", &large())?, Outcome::Refused(_)),
        "the range is used up"
    );
    free_all(fleet)
}

/// A node gives addresses of its block while the API server does not answer, also after its daemon was killed, and gives none twice.
fn server_away(fleet: &Fleet) -> anyhow::Result<()> {
    let member = &fleet.members[3];
    let lan = json!({"type": "multus-ipam", "space": "away", "subnet": "10.20.0.0/22"});
    let first = add(member, "away-0", &lan)?;
    member.proxy.set(Condition::Refusing);
    member.crash()?;
    let outcome = (1..20).map(|pod| add(member, &format!("away-{pod}"), &lan));
    let given = outcome.collect::<anyhow::Result<BTreeSet<_>>>();
    let freed = member.del("away-0");
    member.proxy.set(Condition::Open);
    let given = given.context("with a block at hand, and no API server")?;
    freed?;
    ensure!(given.len() == 19 && !given.contains(&first), "{given:?}");
    for pod in 1..20 {
        member.del(&format!("away-{pod}"))?;
    }
    Ok(())
}

/// The figures of a run under faults.
struct Tally {
    given: usize,
    seconds: u64,
    /// How many requests failed.
    failed: usize,
    faults: String,
    /// How often an address was given that another pod had.
    twice: usize,
    /// How many addresses no pod has, and are not free.
    left: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} addresses in {} s, {} requests failed, {}; {} given twice, {} left",
            self.given, self.seconds, self.failed, self.faults, self.twice, self.left
        )
    }
}

impl Tally {
    fn new(history: &History, took: Duration, faults: String, left: usize) -> Self {
        let (given, failed) = history.counts();
        Self {
            given,
            seconds: took.as_secs(),
            failed: failed.iter().map(|(_, count)| count).sum(),
            faults,
            twice: history.twice().len(),
            left,
        }
    }

    /// Writes the row of who gave the addresses, with `--record`.
    fn record(
        &self,
        env: &TestEnv,
        options: &Options,
        who: &str,
        report: &mut Report,
    ) -> Result<(), CheckFailed> {
        if !options.record {
            return Ok(());
        }
        let row = format!(
            "{} | {} | {} | {} | {} | {}",
            self.given, self.seconds, self.faults, self.failed, self.twice, self.left
        );
        report.check(&format!("{PAGE} has what was found"), || {
            page_table::write_row(env, PAGE, &format!("| {who} |"), &row)
        })
    }
}

/// Lets containers come and go on all nodes while faults hit them. Fails when an address was given twice; what is left is looked for later.
fn under_faults(fleet: &Fleet, seed: u64, load: &Load) -> anyhow::Result<Tally> {
    let history = History::default();
    let (next, broken) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (is_over, is_machine_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let begin = Instant::now();
    let faults = thread::scope(|scope| {
        let mut workers = Vec::new();
        for (at, member) in fleet.members.iter().enumerate() {
            for worker in 0..load.at_once {
                let (history, next, broken) = (&history, &next, &broken);
                let number = u32::try_from(at * load.at_once + worker).expect("a handful");
                let random = Random::new(seed, CONTAINERS + number);
                let is_over = || {
                    history.given() >= load.given && broken.load(Ordering::Relaxed) >= load.broken
                };
                workers.push(
                    scope.spawn(move || come_and_go(member, history, next, load, is_over, random)),
                );
            }
        }
        let breaker = scope.spawn(|| {
            let random = Random::new(seed, 99);
            let faults = break_things(fleet, &history, &is_over, &broken, random, load.faults);
            // A breaker that has failed makes no more faults, so the containers must not wait for them.
            broken.fetch_add(load.broken, Ordering::Relaxed);
            faults
        });
        let (history, is_machine_over) = (&history, &is_machine_over);
        let machines: Vec<_> = (0..claims::MACHINES)
            .map(|number| {
                let stream = u32::try_from(50 + number).expect("a handful");
                scope.spawn(move || {
                    let mut random = Random::new(seed, stream);
                    claims::migrate(fleet, number, history, is_machine_over, &mut random)
                })
            })
            .collect();
        let mut outcome = Ok(());
        for worker in workers {
            outcome = outcome.and(pool::joined(worker));
        }
        is_machine_over.store(true, Ordering::Relaxed);
        let mut moves = 0;
        for machine in machines {
            match pool::joined(machine) {
                Ok(count) => moves += count,
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let faults = outcome.and(pool::joined(breaker))?;
        ensure!(moves > 0, "no machine has moved");
        anyhow::Ok(format!("{faults}, machines moved {moves} times"))
    })?;
    fleet.heal()?;
    let again = end_again(fleet, &history)?;
    let faults = format!("{faults}, {again} DELs of pools lost with an older disk");
    let tally = Tally::new(&history, begin.elapsed(), faults, 0);
    say(&format!("        {tally}"));
    for (reason, count) in history.counts().1.iter().take(REASONS) {
        say(&format!("        {count} x {reason}"));
    }
    history.check()?;
    Ok(tally)
}

/// Adds containers, lets them live for a while and deletes them, as a runtime does: a DEL is repeated until it succeeds.
fn come_and_go(
    member: &Member,
    history: &History,
    next: &AtomicUsize,
    load: &Load,
    is_over: impl Fn() -> bool,
    mut random: Random,
) -> anyhow::Result<()> {
    let most = LIVING / (usize::from(load.nodes) * load.at_once);
    let mut living: Vec<(String, Value)> = Vec::new();
    while !is_over() {
        let pod = format!("f{}", next.fetch_add(1, Ordering::Relaxed));
        let (name, ipam) = match random.below(load.kinds) {
            0 => ("small", small()),
            1 => ("pool", guest::pool()),
            2 => ("large", large()),
            _ => ("held", held()),
        };
        let boot = history.boot(&member.node.name);
        if name == "pool" {
            history.asks_pool(&member.node.name, &pod);
        }
        match member.add(&pod, &ipam)? {
            Outcome::Given(address) => {
                if history.begin(name, &address, &member.node.name, boot, &pod) {
                    living.push((pod, ipam));
                }
            }
            // The runtime deletes a container that has failed.
            Outcome::Refused(reason) => {
                history.failed(&reason);
                del_until_done(member, &pod, &ipam)?;
                thread::sleep(BACK_OFF);
            }
            Outcome::Lost => {
                history.failed("the service does not answer");
                del_until_done(member, &pod, &ipam)?;
            }
        }
        while living.len() > most || (!living.is_empty() && random.below(3) == 0) {
            let chosen = random.below(u32::try_from(living.len())?);
            let (pod, ipam) = living.swap_remove(chosen as usize);
            history.end(&member.node.name, &pod);
            del_until_done(member, &pod, &ipam)?;
        }
    }
    for (pod, ipam) in living {
        history.end(&member.node.name, &pod);
        del_until_done(member, &pod, &ipam)?;
    }
    Ok(())
}

/// A DEL of a pool that was on the disk, and not done, is not on an older one, and the pool does not say which node has an address. Sends such
/// DELs again, where the reconciler of whereabouts would free the address. Returns how many; fails for nodes that lost no disk.
fn end_again(fleet: &Fleet, history: &History) -> anyhow::Result<usize> {
    // The history has no use of an address whose machine lost its power meanwhile.
    for member in &fleet.members {
        for record in member.documents("whereabouts")? {
            if record["state"] == "given" {
                let container = record["container"].as_str();
                member.del_container(container.context("a record has a container")?)?;
            }
        }
    }
    sh::until(
        CLEAN_WITHIN,
        "the nodes have done all DELs of pools",
        || {
            for member in &fleet.members {
                let left = member.documents("whereabouts")?;
                ensure!(left.is_empty(), "{}: {left:?}", member.node.name);
            }
            Ok(())
        },
    )?;
    let (taken, _) = fleet.pools()?;
    let pods = taken.iter().filter_map(|entry| entry.rsplit('/').next());
    let pods: Vec<_> = pods.collect();
    for pod in &pods {
        let node = history.node_that_lost(pod)?;
        let member = fleet.members.iter().find(|one| one.node.name == node);
        let member = member.context("it is a node of the fleet")?;
        del_until_done(member, pod, &guest::pool())?;
    }
    Ok(pods.len())
}

/// Frees as the plugin of the definition does, also what a machine with an older disk has no record of.
fn del_until_done(member: &Member, pod: &str, ipam: &Value) -> anyhow::Result<()> {
    sh::until(60, "a DEL succeeds", || member.del_from(pod, ipam))
}

/// Breaks one thing after the other. Returns what it has done.
fn break_things(
    fleet: &Fleet,
    history: &History,
    is_over: &AtomicBool,
    broken: &AtomicUsize,
    mut random: Random,
    faults: u32,
) -> anyhow::Result<String> {
    let (mut killed, mut cut, mut servers) = (0, 0, 0);
    let (mut booted, mut rolled_back, mut emptied, mut renewed) = (0, 0, 0, 0);
    let (mut full, mut clocks) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let members: Vec<usize> = (0..fleet.members.len()).collect();
        let member = &fleet.members[random.one_of(&members)];
        match random.below(faults) {
            0..4 => {
                killed += 1;
                member.stop()?;
                if random.below(3) == 0 {
                    member.take_snapshot()?;
                }
                member.start()?;
            }
            4..9 => {
                cut += 1;
                member.proxy.set(random.one_of(&CONDITIONS));
            }
            9..11 => {
                booted += 1;
                member.stop()?;
                history.power_cut(&member.node.name);
                // The machine may come back with an older disk, or with a new one.
                let is_older = random.below(2) == 0 && member.roll_back()?;
                let is_new = !is_older && random.below(3) == 0;
                if is_new {
                    member.empty()?;
                }
                if is_older || is_new {
                    rolled_back += u32::from(is_older);
                    emptied += u32::from(is_new);
                    history.comes_back_older(&member.node.name);
                }
                member.boot()?;
            }
            11 => {
                servers += 1;
                fleet.restart_server()?;
            }
            12 => {
                // The API server may be on its way.
                renewed += u32::from(fleet.renew(member).is_ok());
            }
            13..15 => {
                full += 1;
                member.fill_disk()?;
            }
            _ => clocks += u32::from(member.move_clock(random.one_of(&CLOCKS))?),
        }
        broken.fetch_add(1, Ordering::Relaxed);
        // It is the time in which the fault has an effect.
        thread::sleep(PAUSE);
        member.clear_disk()?;
        if random.below(2) == 0 {
            member.proxy.set(Condition::Open);
        }
    }
    Ok(format!(
        "{killed} daemons killed, {cut} connections changed, {booted} machines restarted ({rolled_back} with an older disk, {emptied} with a new one), {renewed} Nodes made anew, {servers} API servers killed, {full} disks full and {clocks} clocks moved"
    ))
}

/// Fails unless all that was given is free again in the API and on the nodes.
fn nothing_left(fleet: &Fleet) -> anyhow::Result<()> {
    free_all(fleet)?;
    until_free(fleet)
}

fn until_free(fleet: &Fleet) -> anyhow::Result<()> {
    until_free_within(fleet, CLEAN_WITHIN)
}

fn until_free_within(fleet: &Fleet, seconds: u64) -> anyhow::Result<()> {
    sh::until(seconds, "all addresses are free", || {
        for member in &fleet.members {
            let records = member.records()?;
            let (name, count) = (&member.node.name, records.len());
            ensure!(count == 0, "{name}: {count} records: {:?}", records.first());
        }
        fleet.ensure_pools_are_empty()?;
        for block in fleet.blocks()? {
            let spec = &block["spec"];
            let slots = spec["slots"].as_array().into_iter().flatten();
            let owned: Vec<_> = slots.filter(|slot| slot["owner"] != "").collect();
            ensure!(owned.is_empty(), "{}: {owned:?}", spec["first"]);
            if spec["mode"] == "node" {
                ensure!(spec["used"] == "00000000", "{spec}");
            }
        }
        Ok(())
    })
}

/// Deletes the blocks that nodes hold and do not use, as they were read. Their finalizer keeps them until their holder lets go.
fn deleted_blocks(fleet: &Fleet) -> anyhow::Result<()> {
    let held = || -> anyhow::Result<Vec<Value>> {
        let mut blocks = fleet.blocks()?;
        blocks.retain(|block| block["spec"]["mode"] == "node");
        Ok(blocks)
    };
    let blocks = held()?;
    ensure!(!blocks.is_empty(), "no node holds a block");
    for block in &blocks {
        let version = &block["metadata"]["resourceVersion"];
        ensure!(
            fleet.delete(block, &json!("1")).is_err(),
            "it was deleted as another version"
        );
        let deleted = fleet.delete(block, version)?;
        let is_marked = deleted["metadata"]["deletionTimestamp"].is_string();
        ensure!(deleted["kind"] == "AddressBlock" && is_marked, "{deleted}");
    }
    sh::until(CLEAN_WITHIN, "the deleted blocks are gone", || {
        let left = held()?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
}
