//! Pods that come and go while what serves them is killed.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

use super::{
    container::{Container, Outcome, Pod, TRY_AGAIN_LATER},
    fixture::FaultsFixture,
    process_fault::{Phase, ProcessFault, Target},
    random::Random,
};
use crate::report::say;

/// Containers at a time.
const WORKERS: usize = 4;
/// Pods of one worker, in turn.
const PODS: usize = 2;
/// After so many cycles everything comes to rest and is looked at.
const ROUND: u32 = 20;
/// No ADD takes longer, whatever happens: a kubelet gives it four minutes.
const ADD_WITHIN: Duration = Duration::from_mins(2);

/// What happened, for the last lines.
#[derive(Default)]
struct Tally {
    hit: BTreeMap<Target, u32>,
    attached: u32,
    refused: u32,
    /// Addresses that the plugin itself lost.
    nameless: usize,
}

/// Runs the cycles in rounds; the first failure ends them.
pub(super) fn run(fixture: &FaultsFixture, seed: u64, cycles: u32) -> anyhow::Result<()> {
    let names: Vec<_> = (0..WORKERS * PODS)
        .map(|number| format!("faults-{number}"))
        .collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let pods = fixture.pods(&names)?;
    let tally = Mutex::new(Tally::default());
    let mut begin = 0;
    while begin < cycles {
        let end = cycles.min(begin + ROUND);
        round(fixture, seed, begin..end, &pods, &tally)?;
        fixture
            .settle()
            .and_then(|()| forgive(fixture, &tally))
            .and_then(|()| fixture.is_clean())
            .with_context(|| format!("seed {seed}, after cycle {end}"))?;
        begin = end;
    }
    tally
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .close(cycles)
}

/// host-local makes the file of an address first and then writes whose it is; killed between the two, it has leased to nobody,
/// and nobody can give that back.
fn forgive(fixture: &FaultsFixture, tally: &Mutex<Tally>) -> anyhow::Result<()> {
    let nameless = fixture.remove_nameless_leases()?;
    tally
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .nameless += nameless;
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
            let strike = ProcessFault::choose(&mut Random::new(seed, number));
            let lived = cycle(fixture, pod, &format!("{seed}/{number}"), strike);
            let lived = lived.with_context(|| format!("seed {seed}, cycle {number}, {strike}"));
            if lived.is_err() {
                // The others come to their end.
                next.store(cycles.end, Ordering::SeqCst);
            }
            let (attached, hit) = lived?;
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.count(strike.target, attached, hit);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = pods
            .chunks(PODS)
            .map(|own| scope.spawn(|| run_cycles(own)))
            .collect();
        let outcomes = workers.into_iter().map(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a worker panicked")))
        });
        outcomes.collect::<Vec<_>>().into_iter().collect()
    })
}

/// One container from its namespace to its last DEL; whether its ADD succeeded, and whether the strike hit.
fn cycle(
    fixture: &FaultsFixture,
    pod: &Pod,
    name: &str,
    strike: ProcessFault,
) -> anyhow::Result<(bool, bool)> {
    let container = Container::new(fixture, pod, name)?;
    let add = || container.add();
    let start = Instant::now();
    let (added, mut hit) = match strike.during {
        Phase::Add => strike.beside(fixture, &container.id, add)?,
        Phase::Del => (add()?, false),
    };
    ensure!(
        start.elapsed() < ADD_WITHIN,
        "ADD took {:?}",
        start.elapsed()
    );
    let attached = match added {
        Outcome::Done(result) => container.is_whole(&result).map(|()| true)?,
        Outcome::Refused { code, text } => {
            let is_plugins = hit && matches!(strike.target, Target::Bridge | Target::HostLocal);
            ensure!(
                is_plugins || code == TRY_AGAIN_LATER,
                "ADD failed for another reason than what was done: {text}"
            );
            false
        }
        Outcome::Lost(_) if hit && strike.target == Target::Shim => false,
        Outcome::Lost(words) => bail!("the shim answered with no document: {words}"),
    };
    if strike.during == Phase::Del {
        let (deleted, is_hit) = strike.beside(fixture, &container.id, || container.del())?;
        hit = is_hit;
        if let Outcome::Lost(words) = deleted {
            ensure!(
                hit && strike.target == Target::Shim,
                "the shim answered with no document: {words}"
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

    /// Fails unless everybody was hit and pods came up nevertheless.
    fn close(&self, cycles: u32) -> anyhow::Result<()> {
        say(&format!(
            "        {} pods attached, {} refused and taken back; hit: {:?}; {} leases to nobody by a killed host-local",
            self.attached, self.refused, self.hit, self.nameless
        ));
        for (target, hits) in &self.hit {
            ensure!(
                *hits > 0 || *target == Target::Nobody,
                "{target:?} was never hit"
            );
        }
        ensure!(
            self.attached >= cycles / 5,
            "only {} of {cycles} pods came up",
            self.attached
        );
        Ok(())
    }
}
