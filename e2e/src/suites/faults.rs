//! Suite `faults`: whatever happens to shim, daemon, plugins, API server, disk and clock, no pod silently has fewer networks than it
//! requested, and a deleted pod leaves nothing.
//!
//! The test plays runtime and kubelet: it calls the shim, repeats a failed DEL, and restarts a daemon that ended. A seed determines which
//! process is killed in which cycle and after which delay; it does not determine what the process is doing at that moment.

mod api_server;
mod clock;
mod cycles;
pub(crate) mod files;

mod container;
mod fixture;
mod guest;
mod outage;
mod process_fault;
pub(crate) mod random;
pub(crate) mod vdso;

use std::time::{SystemTime, UNIX_EPOCH};

use self::fixture::FaultsFixture;
use crate::{
    options::{Options, Part},
    report::{Checked, Report, say},
    test_env::TestEnv,
};

const CYCLES: u32 = 100;
/// How many times as many cycles `--long` runs.
const LONG: u32 = 10;

pub(crate) fn run(env: &TestEnv, options: &Options, report: &mut Report) -> Checked {
    let fixture = report.check("a node whose daemon has a service account", || {
        FaultsFixture::new(env)
    })?;
    report.check("the daemon becomes ready", || {
        fixture.with_log(
            fixture
                .start()
                .and_then(|()| fixture.wait_for_one_ready_daemon()),
        )
    })?;
    if options.wants(Part::Kill) {
        let seed = options.seed();
        let cycles = if options.long { CYCLES * LONG } else { CYCLES };
        say(&format!("seed    {seed}"));
        report.check(
            &format!("{cycles} pods whose shim, daemon or plugins are killed"),
            || fixture.with_log(cycles::run(&fixture, seed, cycles)),
        )?;
    }
    if options.wants(Part::Server) {
        api_server::run(&fixture, options.long, report)?;
    }
    if options.wants(Part::Files) {
        files::run(&fixture, report)?;
    }
    if options.wants(Part::Clock) {
        clock::run(&fixture, report)?;
    }
    if options.part == Some(Part::Guest) || options.part.is_none() && options.long {
        guest::run(env, &fixture, report)?;
    }
    Ok(())
}

impl Options {
    /// Returns the seed, or a fresh one in each run without it.
    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(fresh_seed)
    }

    fn wants(&self, part: Part) -> bool {
        self.part.is_none_or(|wanted| wanted == part)
    }
}

/// Returns another seed in each run, so that the runs together try more combinations.
pub(crate) fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |now| now.as_secs() ^ u64::from(now.subsec_nanos()))
}
