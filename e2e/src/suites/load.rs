//! Suite `load`: a full node. Bursts, hung plugins, an API server that hangs or answers 429, a journal with an entry for every pod, and a
//! silent container runtime, with the release's programs, a real containerd and a real API server.
//!
//! The plugins are scripts that create no interface: this suite is about the daemon's limits, not about networks. Cases are independent;
//! after a failed one the next case gets a new node.

mod container;
mod fixture;

use std::{
    fs,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, ensure};
use http::Method;

use self::{
    container::{Container, finish},
    fixture::{
        DEFAULT_PLUGIN, LoadFixture, PODS, SECOND_PLUGIN, SOFT_LIMIT, pod_name, started_calls,
    },
};
use crate::{
    control_plane::{http_proxy::RequestFault, objects},
    options::Options,
    programs::Needs,
    report::{Checked, Report, say},
    sandbox::Answer,
    sh,
    single_node::{BIN_DIR, GENERATED},
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = super::cri::NEEDS;

/// Containers of a burst, and entries of the journal.
const MANY: usize = 250;
/// Containers whose plugin hangs: the most pods that a kubelet runs by default.
const HUNG: usize = 110;
/// The most memory of the daemon during a burst, in kB.
const PEAK_MEMORY: u64 = 24 * 1024;
/// Time in which STATUS answers, whatever the daemon is doing.
const STATUS_WITHIN: Duration = Duration::from_secs(1);
/// Time in which ADD answers while plugins of another namespace hang.
const ADD_WITHIN: Duration = Duration::from_secs(2);
/// Time in which a daemon with a full journal is ready.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Time of the runtime's silence: longer than the period in which the daemon checks the runtime.
const SILENCE: Duration = Duration::from_secs(40);
const LONG_SILENCE: Duration = Duration::from_secs(130);

/// The name and the function of a case; the function's argument is `--long`.
type Case = (
    &'static str,
    fn(&LoadFixture<'_>, bool) -> anyhow::Result<()>,
);

const CASES: &[Case] = &[
    ("burst: 250 ADDs at once under 1024 files", burst),
    (
        "hung plugin: STATUS answers while 110 containers wait",
        hung_plugin,
    ),
    (
        "hung namespace: a pod of another one starts at once",
        hung_namespace,
    ),
    (
        "hung patch: the daemon patches the status on another connection",
        hung_patch,
    ),
    ("busy API server: Retry-After is respected", busy_api_server),
    (
        "cancelled caller: its DEL leaves the queue",
        cancelled_caller,
    ),
    ("journal: 250 entries delay only their own pods", journal),
    (
        "silent runtime: pods start and end, and no file is removed",
        silent_runtime,
    ),
];

/// Runs the cases whose names have the text of `--case`; a failed one does not end the suite.
pub(crate) fn run(env: &TestEnv, options: &Options, report: &mut Report) -> Checked {
    let mut fixture = None;
    for (name, run) in options.wanted(CASES, report)? {
        let current = match fixture.take() {
            Some(current) => current,
            None => report.check("a node with a runtime, an API server and 260 pods", || {
                let fixture = LoadFixture::new(env)?;
                fixture.launch()?;
                fixture.wait_ready(60)?;
                Ok(fixture)
            })?,
        };
        if report.check(name, || run(&current, options.long)).is_ok() {
            fixture = Some(current);
        }
    }
    Ok(())
}

/// The daemon has all requests at the same time: the first plugin of each waits until the last request has arrived.
fn burst(fixture: &LoadFixture<'_>, _: bool) -> anyhow::Result<()> {
    let containers = Container::many(MANY, "burst");
    let mut gate = fixture.close_gate(DEFAULT_PLUGIN, "ADD")?;
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
        "{} plugins had another soft limit of open files than {SOFT_LIMIT}: {}",
        others.len(),
        others[0]
    );
    fixture.all_succeed("DEL", &containers)?;
    fixture.wait_until_clean()?;
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
            fixture.status()?.success().context("STATUS")?;
            times.push(start.elapsed());
        }
        fixture.ensure_ready()?;
        times.sort();
        Ok(times)
    });
    gate.open()?;
    finish("ADD", &containers, running)?;
    let times = answered?;
    say(&format!("        STATUS took {times:.1?}"));
    // The median, because other processes of the machine may delay some of the answers.
    let median = times[times.len() / 2];
    ensure!(median < STATUS_WITHIN, "STATUS took {times:?}");
    fixture.all_succeed("DEL", &containers)?;
    fixture.wait_until_clean()
}

/// The plugin of one namespace's pods hangs, and leaves room for the ADD of another namespace.
fn hung_namespace(fixture: &LoadFixture<'_>, _: bool) -> anyhow::Result<()> {
    let hung = Container::many(HUNG, "of a hung namespace");
    let other = Container::new(PODS, "of another namespace");
    let mut gate = fixture.close_gate(SECOND_PLUGIN, "ADD")?;
    let running = fixture.start_all("ADD", &hung)?;
    let arrived = fixture.wait_connections(HUNG);
    let start = Instant::now();
    let adding = fixture.start("ADD", &other)?;
    let (sender, receiver) = mpsc::channel();
    let added = thread::scope(|scope| {
        scope.spawn(|| {
            // The receiver may have given up.
            let _ = sender.send(adding.answer());
        });
        let added = receiver.recv_timeout(ADD_WITHIN);
        gate.open()?;
        anyhow::Ok(added)
    })?;
    let took = start.elapsed();
    finish("ADD", &hung, running)?;
    arrived?;
    let added = added.map_err(|_| anyhow!("no answer within {ADD_WITHIN:?}"))??;
    added.success().context("ADD")?;
    say(&format!("        ADD took {took:.1?}"));
    fixture.succeed("DEL", &other)?;
    fixture.all_succeed("DEL", &hung)?;
    fixture.wait_until_clean()
}

fn hung_patch(fixture: &LoadFixture<'_>, _: bool) -> anyhow::Result<()> {
    let container = Container::new(0, "hung patch");
    let path = format!("/pods/{}/status", pod_name(container.pod));
    fixture
        .proxy
        .set_fault(Method::PATCH, &path, RequestFault::Hang);
    let before = fixture.proxy.requests(&Method::PATCH, &path).len();
    let start = Instant::now();
    let added = fixture.call("ADD", &container)?;
    let took = start.elapsed();
    let patched = wait_patched_again(fixture, &path, before);
    fixture.proxy.clear_fault();
    patched?;
    say(&format!(
        "        ADD took {took:.1?}, the next patch followed after {:.1?}",
        start.elapsed()
    ));
    ensure_attached(fixture, &container, &added)?;
    ensure!(took < ADD_WITHIN, "ADD waited for the API server");
    fixture.succeed("DEL", &container)?;
    fixture.wait_until_clean()
}

fn busy_api_server(fixture: &LoadFixture<'_>, _: bool) -> anyhow::Result<()> {
    const SECONDS: u64 = 3;
    let container = Container::new(1, "busy API server");
    let path = format!("/pods/{}/status", pod_name(container.pod));
    let before = fixture.proxy.requests(&Method::PATCH, &path).len();
    let fault = RequestFault::Busy { seconds: SECONDS };
    fixture.proxy.set_fault(Method::PATCH, &path, fault);
    let added = fixture.call("ADD", &container)?;
    let retried = wait_patched_again(fixture, &path, before);
    fixture.proxy.clear_fault();
    retried?;
    ensure_attached(fixture, &container, &added)?;
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
    fixture.succeed("DEL", &container)?;
    fixture.wait_until_clean()
}

/// Waits until the daemon has patched a pod's status at least twice after the first `before` patches. The pod may have a status of an earlier
/// case, so only another patch shows that the daemon goes on.
fn wait_patched_again(fixture: &LoadFixture<'_>, path: &str, before: usize) -> anyhow::Result<()> {
    sh::until(30, "another patch", || {
        let patches = fixture.proxy.requests(&Method::PATCH, path).len() - before;
        ensure!(patches >= 2, "{patches} patches were sent");
        Ok(())
    })
}

/// Fails unless an ADD has succeeded, the network status is written, and no network was rolled back.
fn ensure_attached(
    fixture: &LoadFixture<'_>,
    container: &Container,
    added: &Answer,
) -> anyhow::Result<()> {
    added.success().context("ADD")?;
    let networks = sh::until(30, "the network status", || {
        objects::status(&fixture.pod(container.pod)?)
    })?;
    let calls = fixture.calls()?;
    let own_calls = calls.iter().filter(|call| call.container == container.id);
    let mut dels = own_calls.filter(|call| call.verb == "DEL");
    ensure!(dels.next().is_none(), "a network was rolled back");
    ensure!(networks.len() == 2, "the status has {networks:?}");
    Ok(())
}

fn cancelled_caller(fixture: &LoadFixture<'_>, _: bool) -> anyhow::Result<()> {
    let kept = Container::new(HUNG, "cancelled caller");
    fixture.succeed("ADD", &kept)?;
    let containers = Container::many(HUNG, "next to a cancelled caller");
    let mut gate = fixture.close_gate(SECOND_PLUGIN, "ADD")?;
    let running = fixture.start_all("ADD", &containers)?;
    let cancelled = fixture.wait_connections(HUNG).and_then(|()| {
        let caller = fixture.start_caller("DEL", &kept)?;
        fixture.wait_connections(HUNG + 1)?;
        fixture.node.end(&caller, "KILL")?;
        fixture.wait_connections(HUNG)
    });
    gate.open()?;
    finish("ADD", &containers, running)?;
    cancelled?;
    // When these DELs end, the daemon has started everything that was queued before them.
    fixture.all_succeed("DEL", &containers)?;
    let calls = fixture.calls()?;
    let deleted = started_calls(&calls, SECOND_PLUGIN, "DEL").contains_key(kept.id.as_str());
    ensure!(!deleted, "the DEL ran although its caller was killed");
    ensure!(fixture.has_state(&kept.id), "the state was deleted");
    fixture.succeed("DEL", &kept)?;
    fixture.wait_until_clean()
}

/// The daemon starts with a journaled DEL for each container, and the plugin is slow.
fn journal(fixture: &LoadFixture<'_>, _: bool) -> anyhow::Result<()> {
    let containers = Container::many(MANY, "journal");
    // Not as a burst, since pods start over time.
    for some in containers.chunks(25) {
        fixture.all_succeed("ADD", some)?;
    }
    fixture.stop()?;
    fixture.all_succeed("DEL", &containers)?;
    let entries = fixture.journal()?.len();
    ensure!(entries == MANY, "the journal has {entries} entries");
    let slow = fixture.slow_down(SECOND_PLUGIN, "DEL")?;
    fixture.launch()?;
    let took = fixture.wait_ready(180)?;
    say(&format!("        ready after {took:.1?}"));
    let other = Container::new(MANY, "journal");
    fixture.succeed("ADD", &other)?;
    let left = fixture.journal()?.len();
    say(&format!("        {left} entries left after the first ADD"));
    ensure!(took < READY_WITHIN, "ready after {took:?}");
    ensure!(left > 0, "the ADD of another pod waited for all entries");
    // A pod whose journaled DEL has not started.
    let calls = fixture.calls()?;
    let begun = started_calls(&calls, SECOND_PLUGIN, "DEL");
    let waiting = containers.iter().rev();
    let waiting = waiting.filter(|container| !begun.contains_key(container.id.as_str()));
    let old = waiting
        .clone()
        .next()
        .context("all journaled DELs have started")?;
    let new = Container::new(old.pod, "journal, its next container");
    let added = fixture.start("ADD", &new)?;
    fs::remove_file(slow)?;
    let mut answer = added.answer()?;
    sh::until(120, "the pod's ADD succeeds", || {
        if answer.is_retriable() {
            answer = fixture.call("ADD", &new)?;
        }
        answer.success().map(drop)
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
    fixture.all_succeed("DEL", &[other, new])?;
    fixture.wait_until_clean()
}

fn silent_runtime(fixture: &LoadFixture<'_>, is_long: bool) -> anyhow::Result<()> {
    let kept = Container::new(0, "silent runtime");
    fixture.succeed("ADD", &kept)?;
    let silence = if is_long { LONG_SILENCE } else { SILENCE };
    // The kernel's queue still accepts connections to the socket of the stopped runtime.
    let cycles = fixture
        .node
        .while_stopped(&fixture.runtime.containerd, |_| {
            let start = Instant::now();
            let mut cycles = 0;
            while start.elapsed() < silence {
                let container = Container::new(1, &format!("silent runtime {cycles}"));
                fixture.succeed("ADD", &container)?;
                fixture.succeed("DEL", &container)?;
                fixture.ensure_ready()?;
                cycles += 1;
                // This loop lasts as long as the silence; it waits for no condition.
                thread::sleep(Duration::from_millis(500));
            }
            Ok(cycles)
        })?;
    say(&format!("        {cycles} pods started and ended"));
    for file in [GENERATED.to_owned(), format!("{BIN_DIR}/multus-shim")] {
        ensure!(fixture.node.path(&file).exists(), "{file} was removed");
    }
    let calls = fixture.calls()?;
    let deleted = started_calls(&calls, SECOND_PLUGIN, "DEL").contains_key(kept.id.as_str());
    ensure!(!deleted, "a running container was detached");
    ensure!(fixture.has_state(&kept.id), "the state was deleted");
    fixture.succeed("DEL", &kept)?;
    fixture.wait_until_clean()
}
