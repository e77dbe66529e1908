//! Pods that are created and deleted while shim, daemon or plugins are killed.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

use super::{
    container::{Container, Outcome},
    fixture::{FaultsFixture, Pod},
    process_fault::{Phase, ProcessFault, Target},
    random::Random,
};
use crate::{pool, report::say, single_node::TRY_AGAIN_LATER};

/// Containers at the same time.
const WORKERS: usize = 4;
/// Pods of each worker, which it uses in turn.
const PODS: usize = 2;
/// Cycles after which the workers stop and the node is checked.
const ROUND: u32 = 20;
/// No ADD takes longer, whatever happens; a kubelet waits four minutes.
const ADD_WITHIN: Duration = Duration::from_mins(2);

/// Counts for the summary.
#[derive(Default)]
struct Tally {
    hit: BTreeMap<Target, u32>,
    attached: u32,
    refused: u32,
    /// Leases that a killed host-local left without a container.
    empty_leases: usize,
}

/// Runs the cycles in rounds; the first failure ends them.
pub(super) fn run(fixture: &FaultsFixture, seed: u64, cycles: u32) -> anyhow::Result<()> {
    let names: [_; WORKERS * PODS] = std::array::from_fn(|number| format!("faults-{number}"));
    let pods = fixture.create_pods(names.each_ref().map(String::as_str))?;
    let tally = Mutex::new(Tally::default());
    let mut begin = 0;
    while begin < cycles {
        let end = cycles.min(begin + ROUND);
        round(fixture, seed, begin..end, &pods, &tally)?;
        fixture
            .wait_for_one_ready_daemon()
            .and_then(|()| remove_empty_leases(fixture, &tally))
            .and_then(|()| fixture.is_clean())
            .with_context(|| format!("seed {seed}, after cycle {end}"))?;
        begin = end;
    }
    tally
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .close(cycles)
}

/// Removes leases that name no container: host-local creates the file of an address before it writes the container into it. When it is
/// killed between the two, no DEL can release the address.
fn remove_empty_leases(fixture: &FaultsFixture, tally: &Mutex<Tally>) -> anyhow::Result<()> {
    let empty_leases = fixture.remove_empty_leases()?;
    tally
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .empty_leases += empty_leases;
    Ok(())
}

fn round(
    fixture: &FaultsFixture,
    seed: u64,
    cycles: std::ops::Range<u32>,
    pods: &[Pod],
    tally: &Mutex<Tally>,
) -> anyhow::Result<()> {
    let next = AtomicU32::new(cycles.start);
    let run_cycles = |own: &[Pod]| -> anyhow::Result<()> {
        for pod in own.iter().cycle() {
            let number = next.fetch_add(1, Ordering::SeqCst);
            if number >= cycles.end {
                break;
            }
            let fault = ProcessFault::choose(&mut Random::new(seed, number));
            let outcome = cycle(fixture, pod, &format!("{seed}/{number}"), fault);
            let outcome = outcome.with_context(|| format!("seed {seed}, cycle {number}, {fault}"));
            if outcome.is_err() {
                // The other workers stop after their current cycle.
                next.store(cycles.end, Ordering::SeqCst);
            }
            let (attached, hit) = outcome?;
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.count(fault.target, attached, hit);
        }
        Ok(())
    };
    pool::at_once(pods.chunks(PODS), run_cycles).map(drop)
}

/// Runs the lifecycle of one container, from its namespace to its last DEL; returns whether its ADD succeeded and whether the fault hit.
fn cycle(
    fixture: &FaultsFixture,
    pod: &Pod,
    name: &str,
    fault: ProcessFault,
) -> anyhow::Result<(bool, bool)> {
    let container = Container::new(fixture, pod, name)?;
    let add = || container.add();
    let start = Instant::now();
    let (added, mut hit) = match fault.during {
        Phase::Add => fault.cause_during(fixture, &container.sandbox.id, add)?,
        Phase::Del => (add()?, false),
    };
    ensure!(
        start.elapsed() < ADD_WITHIN,
        "ADD took {:?}",
        start.elapsed()
    );
    let attached = match added {
        Outcome::Done(result) => container.ensure_complete(&result).map(|()| true)?,
        Outcome::Refused { code, text } => {
            let is_plugin = hit && matches!(fault.target, Target::Bridge | Target::HostLocal);
            ensure!(
                is_plugin || code == TRY_AGAIN_LATER,
                "ADD failed for another reason than the fault: {text}"
            );
            false
        }
        Outcome::Lost(_) if hit && fault.target == Target::Shim => false,
        Outcome::Lost(output) => bail!("the shim printed no document: {output}"),
    };
    if fault.during == Phase::Del {
        let (deleted, is_hit) =
            fault.cause_during(fixture, &container.sandbox.id, || container.del())?;
        hit = is_hit;
        if let Outcome::Lost(output) = deleted {
            ensure!(
                hit && fault.target == Target::Shim,
                "the shim printed no document: {output}"
            );
        }
    }
    container.remove()?;
    Ok((attached, hit))
}

impl Tally {
    fn count(&mut self, target: Target, attached: bool, hit: bool) {
        *self.hit.entry(target).or_default() += u32::from(hit);
        *if attached {
            &mut self.attached
        } else {
            &mut self.refused
        } += 1;
    }

    /// Prints the counts; fails unless every target was hit and a fifth of the pods started nevertheless.
    fn close(&self, cycles: u32) -> anyhow::Result<()> {
        say(&format!(
            "        {} pods attached, {} refused and undone; hit: {:?}; {} leases without a container by a killed host-local",
            self.attached, self.refused, self.hit, self.empty_leases
        ));
        for (target, hits) in &self.hit {
            ensure!(
                *hits > 0 || *target == Target::None,
                "{target:?} was never hit"
            );
        }
        ensure!(
            self.attached >= cycles / 5,
            "only {} of {cycles} pods started",
            self.attached
        );
        Ok(())
    }
}
