//! Suite `load`: a full node. Bursts, plugins that hang, an API server that hangs or asks for patience, a journal of a whole node,
//! and a container runtime that stops to answer, on the programs of the release, a real containerd and a real API server.
//!
//! Plugins are scripts that make no interface: this level is about the daemon's limits, not about networks. Each case is independent;
//! after one that failed, the next one gets a new node.

mod container;
mod fixture;

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use http::Method;

use self::{
    container::{Container, Outcome, finish},
    fixture::{LoadFixture, PRIMARY_PLUGIN, SECOND_PLUGIN, SOFT_LIMIT, begun, pod_name},
};
use crate::{
    control_plane::{http_proxy::RequestFault, objects},
    programs::Needs,
    report::{CheckFailed, Report, say},
    sh,
    single_node::{BIN_DIR, GENERATED},
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = super::cri::NEEDS;

/// Containers of a burst, and DELs of a node that was rebooted.
const MANY: usize = 250;
/// Containers whose plugin hangs: as many pods as a kubelet runs by default.
const HUNG: usize = 110;
/// The most memory of the daemon with a burst at env, in kB.
const PEAK_MEMORY: u64 = 24 * 1024;
/// STATUS answers within, whatever the daemon is at.
const STATUS_WITHIN: Duration = Duration::from_secs(1);
/// A daemon with a full journal is ready within.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// A runtime is silent for longer than the daemon's period between two looks at it.
const SILENCE: Duration = Duration::from_secs(40);
const LONG_SILENCE: Duration = Duration::from_secs(130);

/// One case, by name.
type Case = (
    &'static str,
    fn(&LoadFixture<'_>, bool) -> anyhow::Result<()>,
);

const CASES: &[Case] = &[
    ("burst: 250 ADDs at once under 1024 files", burst),
    (
        "hung plugin: STATUS answers beside 110 containers that wait",
        hung_plugin,
    ),
    (
        "hung patch: the next connection carries the status",
        hung_patch,
    ),
    ("busy API server: Retry-After is respected", busy_api_server),
    ("caller gone: its DEL leaves the queue", caller_gone),
    ("journal: 250 entries hold up their own pods alone", journal),
    (
        "silent runtime: pods come and go, nothing is removed",
        silent_runtime,
    ),
];

/// Runs the cases whose names contain `case`, each of them whatever became of the others.
pub(crate) fn run(
    env: &TestEnv,
    case: Option<&str>,
    is_long: bool,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    let wanted = |name: &str| case.is_none_or(|text| name.contains(text));
    report.check("the cases exist", || {
        let found = CASES.iter().any(|(name, _)| wanted(name));
        ensure!(
            found,
            "no case is named with `{}`",
            case.unwrap_or_default()
        );
        Ok(())
    })?;
    let mut fixture = None;
    for (name, run) in CASES.iter().filter(|(name, _)| wanted(name)) {
        let current = match fixture.take() {
            Some(current) => current,
            None => report.check("a node with a runtime, an API server and 260 pods", || {
                let fixture = LoadFixture::new(env)?;
                fixture.launch()?;
                fixture.wait_ready(60)?;
                Ok(fixture)
            })?,
        };
        if report.check(name, || run(&current, is_long)).is_ok() {
            fixture = Some(current);
        }
    }
    Ok(())
}

/// All requests are at the daemon at the same time: the first plugin of each waits until the last one is there.
fn burst(fixture: &LoadFixture<'_>, _: bool) -> anyhow::Result<()> {
    let containers = Container::many(MANY, "burst");
    let mut gate = fixture.close_gate(PRIMARY_PLUGIN, "ADD")?;
    let running = fixture.start_all("ADD", &containers)?;
    let arrived = fixture.wait_connections(MANY);
    gate.open()?;
    finish("ADD", &containers, running)?;
    arrived?;
    let calls = fixture.calls()?;
    let limits = calls.iter().filter(|call| call.soft_limit != SOFT_LIMIT);
    let others: Vec<_> = limits.map(|call| &call.soft_limit).collect();
    ensure!(
        others.is_empty(),
        "{} plugins had another soft limit than {SOFT_LIMIT}: {}",
        others.len(),
        others[0]
    );
    fixture.all_well("DEL", &containers)?;
    fixture.is_clean()?;
    let peak = fixture.peak_memory()?;
    say(&format!("        peak memory of the daemon: {peak} kB"));
    ensure!(peak < PEAK_MEMORY, "{peak} kB, more than {PEAK_MEMORY} kB");
    Ok(())
}

fn hung_plugin(fixture: &LoadFixture<'_>, _: bool) -> anyhow::Result<()> {
    let containers = Container::many(HUNG, "hung");
    let mut gate = fixture.close_gate(SECOND_PLUGIN, "ADD")?;
    let running = fixture.start_all("ADD", &containers)?;
    let answered = fixture.wait_connections(HUNG).and_then(|()| {
        let mut times = Vec::new();
        for _ in 0..5 {
            let start = Instant::now();
            match fixture.status()? {
                Outcome::Done(_) => times.push(start.elapsed()),
                Outcome::Refused(error) => bail!("STATUS: {error}"),
            }
        }
        fixture.is_ready()?;
        times.sort();
        Ok(times)
    });
    gate.open()?;
    finish("ADD", &containers, running)?;
    let times = answered?;
    say(&format!("        STATUS took {times:.1?}"));
    // The machine may be busy with other things, and then some of them take longer.
    let median = times[times.len() / 2];
    ensure!(median < STATUS_WITHIN, "STATUS took {times:?}");
    fixture.all_well("DEL", &containers)?;
    fixture.is_clean()
}

fn hung_patch(fixture: &LoadFixture<'_>, _: bool) -> anyhow::Result<()> {
    let container = Container::new(0, "hung patch");
    let path = format!("/pods/{}/status", pod_name(container.pod));
    fixture
        .proxy
        .set_fault(Method::PATCH, &path, RequestFault::Hang);
    let before = fixture.proxy.requests(&Method::PATCH, &path).len();
    let start = Instant::now();
    let added = fixture.call("ADD", &container);
    fixture.proxy.clear_fault();
    let took = start.elapsed();
    is_attached(fixture, &container, added?)?;
    let patches = fixture.proxy.requests(&Method::PATCH, &path).len() - before;
    say(&format!("        ADD took {took:.1?}, {patches} patches"));
    ensure!(patches >= 2, "the status was patched {patches} times");
    fixture.well("DEL", &container)?;
    fixture.is_clean()
}

fn busy_api_server(fixture: &LoadFixture<'_>, _: bool) -> anyhow::Result<()> {
    const SECONDS: u64 = 3;
    let container = Container::new(1, "busy API server");
    let path = format!("/pods/{}/status", pod_name(container.pod));
    let before = fixture.proxy.requests(&Method::PATCH, &path).len();
    let fault = RequestFault::Busy { seconds: SECONDS };
    fixture.proxy.set_fault(Method::PATCH, &path, fault);
    let added = fixture.call("ADD", &container);
    fixture.proxy.clear_fault();
    is_attached(fixture, &container, added?)?;
    let seen = fixture.proxy.requests(&Method::PATCH, &path);
    let patches = &seen[before..];
    let waited = patches.last().context("no patch")?.at - patches[0].at;
    say(&format!(
        "        {} patches in {waited:.1?}",
        patches.len()
    ));
    ensure!(
        waited >= Duration::from_secs(SECONDS) && (2..=3).contains(&patches.len()),
        "{} patches in {waited:?}",
        patches.len()
    );
    fixture.well("DEL", &container)?;
    fixture.is_clean()
}

/// An ADD has succeeded, the status is written, and no network was undone on the way.
fn is_attached(
    fixture: &LoadFixture<'_>,
    container: &Container,
    added: Outcome,
) -> anyhow::Result<()> {
    if let Outcome::Refused(error) = added {
        bail!("ADD: {error}");
    }
    let networks = objects::status(&fixture.pod(container.pod)?)?;
    ensure!(networks.len() == 2, "the status names {networks:?}");
    let calls = fixture.calls()?;
    let of_container = calls.iter().filter(|call| call.container == container.id);
    let mut undone = of_container.filter(|call| call.verb == "DEL");
    ensure!(undone.next().is_none(), "a network was undone");
    Ok(())
}

fn caller_gone(fixture: &LoadFixture<'_>, _: bool) -> anyhow::Result<()> {
    let kept = Container::new(HUNG, "caller gone");
    fixture.well("ADD", &kept)?;
    let containers = Container::many(HUNG, "beside a caller that goes");
    let mut gate = fixture.close_gate(SECOND_PLUGIN, "ADD")?;
    let running = fixture.start_all("ADD", &containers)?;
    let gone = fixture.wait_connections(HUNG).and_then(|()| {
        let caller = fixture.start_caller("DEL", &kept)?;
        fixture.wait_connections(HUNG + 1)?;
        fixture.node.end(&caller, "KILL")?;
        fixture.wait_connections(HUNG)
    });
    gate.open()?;
    finish("ADD", &containers, running)?;
    gone?;
    // Whatever was queued before this one has begun when it ends.
    fixture.all_well("DEL", &containers)?;
    let calls = fixture.calls()?;
    let deleted = begun(&calls, SECOND_PLUGIN, "DEL").contains_key(kept.id.as_str());
    ensure!(!deleted, "the DEL ran although its caller was gone");
    ensure!(fixture.has_state(&kept.id), "the container was forgotten");
    fixture.well("DEL", &kept)?;
    fixture.is_clean()
}

/// A node comes back with a DEL written down for each container, and its plugin is slow.
fn journal(fixture: &LoadFixture<'_>, _: bool) -> anyhow::Result<()> {
    let containers = Container::many(MANY, "journal");
    // As over time, not as a burst.
    for some in containers.chunks(25) {
        fixture.all_well("ADD", some)?;
    }
    fixture.stop()?;
    fixture.all_well("DEL", &containers)?;
    let entries = fixture.journal()?.len();
    ensure!(entries == MANY, "{entries} DELs are written down");
    let slow = fixture.slow_down(SECOND_PLUGIN, "DEL")?;
    fixture.launch()?;
    let took = fixture.wait_ready(180)?;
    say(&format!("        ready after {took:.1?}"));
    let other = Container::new(MANY, "journal");
    fixture.well("ADD", &other)?;
    let left = fixture.journal()?.len();
    say(&format!("        {left} entries left after the first ADD"));
    ensure!(took < READY_WITHIN, "ready after {took:?}");
    ensure!(left > 0, "the ADD of another pod waited for all entries");
    // A pod whose entry nobody has begun with.
    let calls = fixture.calls()?;
    let begun = begun(&calls, SECOND_PLUGIN, "DEL");
    let waiting = containers.iter().rev();
    let waiting = waiting.filter(|container| !begun.contains_key(container.id.as_str()));
    let old = waiting.clone().next().context("all entries have begun")?;
    let new = Container::new(old.pod, "journal, its next container");
    let added = fixture.start("ADD", &new)?;
    fs::remove_file(slow)?;
    let mut outcome = added.outcome()?;
    sh::until(120, "the pod's ADD succeeds", || {
        if outcome.is_for_later() {
            outcome = fixture.call("ADD", &new)?;
        }
        match &outcome {
            Outcome::Done(_) => Ok(()),
            Outcome::Refused(error) => bail!("{error}"),
        }
    })?;
    let calls = fixture.calls()?;
    let position = |moment: &str, verb: &str, container: &Container| {
        let found = calls.iter().position(|call| {
            call.moment == moment && call.verb == verb && call.container == container.id
        });
        found.with_context(|| format!("no {moment} of {verb} of {}", container.id))
    };
    ensure!(
        position("end", "DEL", old)? < position("begin", "ADD", &new)?,
        "the ADD did not wait for the DEL of the same pod"
    );
    sh::until(120, "the journal is empty", || {
        let left = fixture.journal()?.len();
        ensure!(left == 0, "{left} entries are left");
        Ok(())
    })?;
    fixture.all_well("DEL", &[other, new])?;
    fixture.is_clean()
}

fn silent_runtime(fixture: &LoadFixture<'_>, is_long: bool) -> anyhow::Result<()> {
    let kept = Container::new(0, "silent runtime");
    fixture.well("ADD", &kept)?;
    let silence = if is_long { LONG_SILENCE } else { SILENCE };
    // Its socket still takes connections, by way of the kernel's queue.
    let cycles = fixture
        .node
        .while_stopped(&fixture.runtime.containerd, |_| {
            let start = Instant::now();
            let mut cycles = 0;
            while start.elapsed() < silence {
                let container = Container::new(1, &format!("silent runtime {cycles}"));
                fixture.well("ADD", &container)?;
                fixture.well("DEL", &container)?;
                fixture.is_ready()?;
                cycles += 1;
                // The runtime has to be silent for a time, and nothing else is to be waited for.
                thread::sleep(Duration::from_millis(500));
            }
            Ok(cycles)
        })?;
    say(&format!("        {cycles} pods came and went"));
    for file in [GENERATED.to_owned(), format!("{BIN_DIR}/multus-shim")] {
        ensure!(fixture.node.path(&file).exists(), "{file} was removed");
    }
    ensure!(fixture.has_state(&kept.id), "a container was forgotten");
    let calls = fixture.calls()?;
    let deleted = begun(&calls, SECOND_PLUGIN, "DEL").contains_key(kept.id.as_str());
    ensure!(!deleted, "a container that runs was detached");
    fixture.well("DEL", &kept)?;
    fixture.is_clean()
}
