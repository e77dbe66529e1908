//! Suite `scale`: hundreds of real daemons, each as a node of its own, against one real API server and etcd on this machine.
//!
//! The suite measures the load of a node on the API server at the daemons' start, while the cluster is idle, and when the API server is
//! killed and restarted. At the end the Nodes get labels for the networks that they can serve. It prints the figures and writes them to `figures.json`. `docs/contributing/performance.md` has those of a release, and conclusions.
//! Times depend on the machine; numbers of requests, bytes and CPU hardly do.

mod audit;
mod fleet;
mod published;

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use serde_json::{Value, json};

use self::{
    audit::{Audit, Requests},
    fleet::{DEFINITIONS, Fleet, PODS_PER_NODE, audit_log},
};
use crate::{
    options::Options,
    programs::{Module, Needs},
    report::{Checked, Report, say},
    sh, single_node,
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: single_node::NEEDS.debian,
    modules: &[Module::Helm, Module::Kubernetes],
};

/// Seconds in which all daemons are ready, and have their watches again after the API server is ready: on two cores.
const WITHIN: u64 = 180;
/// The most requests of a node at its daemon's start: two lists, two watches, the DaemonSet, and a few retries.
const START_REQUESTS: usize = 8;
/// The most requests of a node that a restarted API server gets.
const RESTART_REQUESTS: usize = 12;
/// The most lists of pods that an API server reads from etcd for its own cache.
const MOST_LISTS_FROM_ETCD: f64 = 5.0;
/// Time of the idle phase; with `--long` longer than a watch lasts.
const IDLE: Duration = Duration::from_mins(1);
const LONG_IDLE: Duration = Duration::from_mins(11);
/// Time of the phase without daemons.
const WITHOUT: Duration = Duration::from_secs(30);

/// Time, requests and resources of a phase.
struct Phase {
    name: &'static str,
    seconds: f64,
    requests: Requests,
    /// Bytes to the API server, and from it.
    bytes: [u64; 2],
    /// CPU seconds of API server and etcd.
    cpu: [f64; 2],
    /// CPU seconds of all daemons.
    daemons: f64,
    /// Lists of pods that the API server read from etcd, including those for its own cache.
    etcd_lists: f64,
    /// The reason why the phase did not end in time.
    failure: Option<anyhow::Error>,
}

/// The counters at one time.
struct Reading {
    at: Instant,
    bytes: [u64; 2],
    cpu: [f64; 2],
    daemons: f64,
    etcd_lists: f64,
}

impl Reading {
    fn take(fleet: &Fleet<'_>) -> anyhow::Result<Self> {
        Ok(Self {
            at: Instant::now(),
            bytes: fleet.bytes()?,
            cpu: fleet.cpu()?,
            daemons: fleet.usage()?.0,
            etcd_lists: fleet.metric("apiserver_storage_list_total", "resource=\"pods\"")?,
        })
    }

    /// Returns the differences since this reading, for a phase that took `seconds`.
    fn until(self, name: &'static str, now: &Self, seconds: f64, requests: Requests) -> Phase {
        Phase {
            name,
            seconds,
            requests,
            bytes: [0, 1].map(|side| now.bytes[side] - self.bytes[side]),
            cpu: [0, 1].map(|process| now.cpu[process] - self.cpu[process]),
            daemons: now.daemons - self.daemons,
            etcd_lists: now.etcd_lists - self.etcd_lists,
            failure: None,
        }
    }
}

pub(crate) fn run(env: &TestEnv, options: &Options, report: &mut Report) -> Checked {
    let nodes = options.nodes;
    let pods = nodes * PODS_PER_NODE;
    let fleet = report.check(
        &format!("an API server with {pods} pods and {DEFINITIONS} networks"),
        || Fleet::new(env, nodes),
    )?;
    let mut audit = Audit::new(audit_log(env));
    let mut phases = Vec::new();
    let without = report.check("the API server without a daemon", || {
        rest("without", &fleet, &mut audit, WITHOUT)
    })?;
    phases.push(without);
    let started = start(&fleet, &mut audit);
    let mut ended = measured(
        &mut phases,
        started,
        &format!("{nodes} daemons become ready"),
        report,
    );
    if ended.is_ok() {
        let time = if options.long { LONG_IDLE } else { IDLE };
        let idle = report.check("the cluster is idle", || {
            rest("idle", &fleet, &mut audit, time)
        })?;
        phases.push(idle);
        let restarted = restart(&fleet, &mut audit);
        let name = "the API server is killed and restarted, and every daemon has its watches again";
        ended = measured(&mut phases, restarted, name, report);
    }
    report.check("the figures are written", || {
        write_figures(env, &fleet, &phases)
    })?;
    ended?;
    // Every check runs, because a figure that is too high says nothing about the others.
    for (name, judge) in [
        (
            "a start needs few requests",
            few_at_start as fn(&Fleet<'_>, &[Phase]) -> anyhow::Result<()>,
        ),
        (
            "a restart of the API server needs few requests",
            few_after_restart,
        ),
        ("no list is paginated or read from etcd", lists_from_cache),
        ("idle daemons send hardly a request", quiet_while_idle),
    ] {
        let _ = report.check(name, || judge(&fleet, &phases));
    }
    published::run(&fleet, &mut audit, report)
}

/// Records the figures of a phase, and reports whether it ended in time.
fn measured(
    phases: &mut Vec<Phase>,
    phase: anyhow::Result<Phase>,
    name: &str,
    report: &mut Report,
) -> Checked {
    report.check(name, || {
        let mut phase = phase?;
        let failure = phase.failure.take();
        phases.push(phase);
        failure.map_or(Ok(()), Err)
    })
}

fn start(fleet: &Fleet<'_>, audit: &mut Audit) -> anyhow::Result<Phase> {
    let before = Reading::take(fleet)?;
    fleet.start()?;
    let ready = fleet.wait_ready(WITHIN);
    let seconds = before.at.elapsed().as_secs_f64();
    let mut requests = Requests::default();
    let watched = ready.and_then(|()| wait_watches(fleet, audit, &mut requests));
    audit.read(&mut requests)?;
    let now = Reading::take(fleet)?;
    let phase = before.until("start", &now, seconds, requests);
    Ok(Phase {
        failure: watched.err(),
        ..phase
    })
}

/// Measures a phase in which the test does nothing.
fn rest(
    name: &'static str,
    fleet: &Fleet<'_>,
    audit: &mut Audit,
    time: Duration,
) -> anyhow::Result<Phase> {
    let before = Reading::take(fleet)?;
    thread::sleep(time);
    let now = Reading::take(fleet)?;
    let mut requests = Requests::default();
    audit.read(&mut requests)?;
    Ok(before.until(name, &now, time.as_secs_f64(), requests))
}

/// Measures the phase from the time at which the restarted API server is ready.
fn restart(fleet: &Fleet<'_>, audit: &mut Audit) -> anyhow::Result<Phase> {
    let mut before = Reading::take(fleet)?;
    fleet.restart_server()?;
    // The API server is a new process, and its counters begin at 0.
    before.cpu[0] = 0.0;
    before.etcd_lists = 0.0;
    let ready = Instant::now();
    let mut requests = Requests::default();
    let watched = wait_watches(fleet, audit, &mut requests);
    let seconds = ready.elapsed().as_secs_f64();
    let well = watched.and_then(|()| fleet.wait_ready(WITHIN));
    audit.read(&mut requests)?;
    let now = Reading::take(fleet)?;
    let phase = before.until("restart", &now, seconds, requests);
    Ok(Phase {
        failure: well.err(),
        ..phase
    })
}

/// Waits until every daemon has its watch of pods, and there are as many watches of network definitions.
fn wait_watches(
    fleet: &Fleet<'_>,
    audit: &mut Audit,
    requests: &mut Requests,
) -> anyhow::Result<()> {
    sh::until(WITHIN, "every daemon has its watches", || {
        audit.read(requests)?;
        let (pods, definitions) = (requests.pod_watches.len(), requests.definition_watches);
        ensure!(
            pods >= fleet.nodes && definitions >= fleet.nodes,
            "pods of {pods} nodes are watched, definitions {definitions} times"
        );
        Ok(())
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "figures for readers, far below the precision's end"
)]
fn write_figures(env: &TestEnv, fleet: &Fleet<'_>, phases: &[Phase]) -> anyhow::Result<()> {
    let nodes = fleet.nodes as f64;
    let (_, memory) = fleet.usage()?;
    let rejected = fleet.metric("apiserver_flowcontrol_rejected_requests_total", "")?;
    let mut figures = Vec::<Value>::new();
    for phase in phases {
        let [to, from] = phase.bytes.map(|bytes| bytes as f64 / nodes / 1024.0);
        let [server, etcd] = phase.cpu;
        let requests = phase.requests.total() as f64 / nodes;
        say(&format!(
            "        {:8} {:.1} s; per node {requests:.2} requests, {to:.1} kB sent, {from:.1} kB received; CPU of API server {server:.1} s, etcd {etcd:.1} s, a daemon {:.1} ms; {} requests in the fullest second; {} lists of pods from etcd; refused {:?}",
            phase.name,
            phase.seconds,
            phase.daemons * 1000.0 / nodes,
            phase.requests.peak(),
            phase.etcd_lists,
            phase.requests.refused,
        ));
        for (kind, count) in &phase.requests.kinds {
            say(&format!("            {count:5} {kind}"));
        }
        figures.push(json!({
            "phase": phase.name, "seconds": phase.seconds, "requests": phase.requests.json(),
            "bytesToServer": phase.bytes[0], "bytesFromServer": phase.bytes[1],
            "listsFromEtcd": phase.etcd_lists,
            "cpuServer": server, "cpuEtcd": etcd, "cpuDaemons": phase.daemons,
        }));
    }
    say(&format!(
        "        a daemon has {memory:.0} kB resident; the API server's priority and fairness rejected {rejected} requests"
    ));
    let figures = json!({"nodes": fleet.nodes, "pods": fleet.nodes * PODS_PER_NODE, "definitions": DEFINITIONS,
        "daemonMemory": memory, "rejected": rejected, "phases": figures});
    Ok(fs::write(
        env.dir.join("figures.json"),
        serde_json::to_vec_pretty(&figures)?,
    )?)
}

fn few_at_start(fleet: &Fleet<'_>, phases: &[Phase]) -> anyhow::Result<()> {
    few(fleet, &phases[1], START_REQUESTS)
}

fn few_after_restart(fleet: &Fleet<'_>, phases: &[Phase]) -> anyhow::Result<()> {
    few(fleet, &phases[3], RESTART_REQUESTS)
}

fn few(fleet: &Fleet<'_>, phase: &Phase, most: usize) -> anyhow::Result<()> {
    let total = phase.requests.total();
    ensure!(
        total <= most * fleet.nodes,
        "{total} requests of {} nodes, more than {most} of each: {:?}",
        fleet.nodes,
        phase.requests.kinds
    );
    Ok(())
}

fn lists_from_cache(_: &Fleet<'_>, phases: &[Phase]) -> anyhow::Result<()> {
    let limited: usize = phases
        .iter()
        .map(|phase| phase.requests.paginated_lists())
        .sum();
    ensure!(
        limited == 0,
        "{limited} lists are paginated, and many API servers read those from etcd"
    );
    // The API server fills its own cache from etcd, once or twice.
    let start = phases[1].etcd_lists;
    ensure!(
        start < MOST_LISTS_FROM_ETCD,
        "{start} lists of pods were read from etcd at the start"
    );
    Ok(())
}

/// Watches end after five to ten minutes, so a node starts fewer than one per minute.
fn quiet_while_idle(fleet: &Fleet<'_>, phases: &[Phase]) -> anyhow::Result<()> {
    let idle = &phases[2];
    let total = idle.requests.total();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole minutes, eleven at most"
    )]
    let minutes = (idle.seconds / 60.0) as usize;
    ensure!(
        total <= fleet.nodes * minutes,
        "{total} requests of {} nodes in {minutes} min: {:?}",
        fleet.nodes,
        idle.requests.kinds
    );
    Ok(())
}
