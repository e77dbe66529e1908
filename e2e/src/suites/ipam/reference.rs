//! The program of whereabouts by itself, while connections, the API server, machines and its own processes fail: the figures beside ours.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{
    BACK_OFF, PAUSE, Tally,
    fleet::{Fleet, Member},
    guest, held,
    history::History,
};
use crate::{
    control_plane::tcp_proxy::{CONDITIONS, Condition, PORT},
    pool,
    report::say,
    sh,
    suites::faults::random::Random,
};

/// The keys of a definition whose program reaches the API server through the node's connection that can fail.
const FLAT_FILE: &str = "/etc/whereabouts-proxied.conf";
const RANGE: &str = "10.42.0.0/25";
/// Its pool.
const POOL: &str = "10.42.0.0-25 ";
/// How many addresses are given, by so many containers of a node at a time. The program takes seconds for one.
const GIVEN: usize = 200;
const AT_ONCE: usize = 2;
/// Longer than that is not waited.
const WITHIN: Duration = Duration::from_mins(10);
/// The runtime ends one of so many ADDs, at this time at the latest.
const ENDED: u32 = 6;
const ENDED_WITHIN: u32 = 3_000;
/// How many containers a worker has at most.
const LIVING: usize = 4;
/// How many addresses each program gives where nothing fails.
const BESIDE: u32 = 24;
/// The first stream of random numbers of the containers.
const CONTAINERS: u32 = 2_000;

/// Lets containers come and go whose addresses the program gives, while faults hit them.
pub(super) fn under_faults(fleet: &Fleet, seed: u64) -> anyhow::Result<Tally> {
    let kubeconfig = fleet.control.pki.file("whereabouts-proxied.kubeconfig");
    let server = format!("https://127.0.0.1:{PORT}");
    fleet
        .control
        .pki
        .kubeconfig(&kubeconfig, &server, "admin")?;
    for member in &fleet.members {
        guest::write_flat_file(member, FLAT_FILE, &kubeconfig)?;
    }
    let (history, next, is_over) = (
        History::default(),
        AtomicUsize::new(0),
        AtomicBool::new(false),
    );
    let begin = Instant::now();
    let faults = thread::scope(|scope| {
        let (history, next, is_over) = (&history, &next, &is_over);
        let breaker = scope.spawn(|| break_things(fleet, history, is_over, Random::new(seed, 98)));
        let members = fleet.members.iter();
        let workers = members
            .flat_map(|member| [member; AT_ONCE])
            .zip(CONTAINERS..);
        let ended = pool::at_once(workers, |(member, stream)| {
            let random = Random::new(seed, stream);
            come_and_go(member, &fleet.reference, history, (next, begin), random)
        });
        is_over.store(true, Ordering::Relaxed);
        let faults = pool::joined(breaker);
        let ended: u32 = ended?.iter().sum();
        anyhow::Ok(format!("{ended} processes ended, {}", faults?))
    })?;
    fleet.heal()?;
    let (pools, _) = fleet.pools()?;
    let left = pools.iter().filter(|entry| entry.starts_with(POOL));
    let tally = Tally::new(&history, begin.elapsed(), faults, left.count());
    say(&format!("        {tally}"));
    ensure!(
        history.given() >= GIVEN,
        "it has not given {GIVEN} addresses within {} min",
        WITHIN.as_secs() / 60
    );
    Ok(tally)
}

/// Lets the program give addresses to pods of an idle node, one after the other, and then our plugin, and prints how long each takes for one.
pub(super) fn beside_ours(fleet: &Fleet) -> anyhow::Result<()> {
    let member = &fleet.members[0];
    let time = |plugin: &dyn Fn(&str, &str) -> anyhow::Result<Value>| {
        let pod = |number| format!("beside-{number}");
        // The first one makes the pool, or the block.
        plugin("ADD", &pod(0))?;
        let begin = Instant::now();
        for number in 1..=BESIDE {
            plugin("ADD", &pod(number))?;
        }
        let took = begin.elapsed() / BESIDE;
        for number in 0..=BESIDE {
            plugin("DEL", &pod(number))?;
        }
        anyhow::Ok(took)
    };
    let range = json!({"type": "whereabouts", "range": "10.43.0.0/24"});
    let (theirs, ours) = (
        guest::config(&guest::with_flat_file(range)),
        guest::config(&held()),
    );
    let theirs = time(&|verb, pod| member.whereabouts(&fleet.reference, verb, pod, &theirs))?;
    let ours = time(&|verb, pod| member.plugin(verb, pod, &ours))?;
    say(&format!(
        "        {:.1} ms for an address by the program of whereabouts, {:.1} ms by ours from a held block: {:.0} times as fast",
        theirs.as_secs_f64() * 1e3,
        ours.as_secs_f64() * 1e3,
        theirs.as_secs_f64() / ours.as_secs_f64()
    ));
    Ok(())
}

/// Adds and deletes containers as a runtime does, and returns how many processes it has ended.
fn come_and_go(
    member: &Member,
    program: &Path,
    history: &History,
    (next, begin): (&AtomicUsize, Instant),
    mut random: Random,
) -> anyhow::Result<u32> {
    let config = json!({"cniVersion": "1.0.0", "name": "lan", "type": "macvlan",
        "ipam": {"type": "whereabouts", "range": RANGE, "configuration_path": FLAT_FILE}});
    let node = &member.node.name;
    let del = |pod: &str| {
        sh::until(120, "a DEL of the reference succeeds", || {
            member.whereabouts(program, "DEL", pod, &config).map(drop)
        })
    };
    let (mut living, mut ended) = (Vec::new(), 0);
    while history.given() < GIVEN && begin.elapsed() < WITHIN {
        let pod = format!("r{}", next.fetch_add(1, Ordering::Relaxed));
        let boot = history.boot(node);
        let end = (random.below(ENDED) == 0).then(|| random.below(ENDED_WITHIN));
        let end = end.map(|milliseconds| Duration::from_millis(milliseconds.into()));
        let added = member.whereabouts_until(program, "ADD", &pod, &config, end);
        if let Ok(result) = added {
            let address = result["ips"][0]["address"].as_str();
            let address = address.context("there is no address")?;
            if history.begin("reference", address, node, boot, &pod) {
                living.push(pod);
            } else {
                del(&pod)?;
            }
        } else {
            ended += u32::from(end.is_some());
            history.failed("the reference gives no address");
            del(&pod)?;
            thread::sleep(BACK_OFF);
        }
        while living.len() > LIVING || (!living.is_empty() && random.below(3) == 0) {
            let chosen = random.below(u32::try_from(living.len())?);
            let pod = living.swap_remove(chosen as usize);
            history.end(node, &pod);
            del(&pod)?;
        }
    }
    for pod in living {
        history.end(node, &pod);
        del(&pod)?;
    }
    Ok(ended)
}

/// Breaks one thing after the other. Returns what it has done.
fn break_things(
    fleet: &Fleet,
    history: &History,
    is_over: &AtomicBool,
    mut random: Random,
) -> anyhow::Result<String> {
    let (mut cut, mut booted, mut servers) = (0, 0, 0);
    let members: Vec<usize> = (0..fleet.members.len()).collect();
    while !is_over.load(Ordering::Relaxed) {
        let member = &fleet.members[random.one_of(&members)];
        match random.below(8) {
            0..5 => {
                cut += 1;
                member.proxy.set(random.one_of(&CONDITIONS));
            }
            // All containers of the machine have ended; its runtime deletes them when it is up again.
            5..7 => {
                booted += 1;
                history.power_cut(&member.node.name);
            }
            _ => {
                servers += 1;
                fleet.restart_server()?;
            }
        }
        // It is the time in which the fault has an effect.
        thread::sleep(PAUSE);
        if random.below(2) == 0 {
            member.proxy.set(Condition::Open);
        }
    }
    Ok(format!(
        "{cut} connections changed, {booted} machines restarted, {servers} API servers killed"
    ))
}
