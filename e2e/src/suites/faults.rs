//! Suite `faults`: whatever happens to shim, daemon, plugins, API server and disk, no pod silently has fewer networks
//! than it asked for, and nothing of a pod that is gone stays.
//!
//! The test is runtime and kubelet: it calls the shim, deletes again what failed, and starts a daemon that ended.
//! What is done to whom follows from a seed; how far the target is at that moment does not.

mod clock;
mod container;
mod cycles;
mod files;
mod fixture;
mod process_fault;
mod random;
mod server;
mod vdso;

use std::time::{SystemTime, UNIX_EPOCH};

use self::fixture::FaultsFixture;
use crate::{
    report::{CheckFailed, Report, say},
    test_env::TestEnv,
};

/// What this level is told beside the release.
#[derive(Debug, clap::Args)]
#[group(id = "faults")]
pub(crate) struct Options {
    /// faults: ten times as many kills; load: a runtime that is silent for two minutes; scale: idle for longer than a watch lasts
    #[arg(long)]
    long: bool,
    /// faults: choose as the run did that printed this seed
    #[arg(long)]
    seed: Option<u64>,
    /// faults: one part alone
    #[arg(long, value_enum)]
    part: Option<Part>,
}

/// What is disturbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Processes: shim, daemon and plugins are killed
    Kill,
    /// The API server
    Server,
    /// Files: a full disk, a deleted directory, times that are far off
    Files,
    /// The daemon's wall clock
    Clock,
}

const CYCLES: u32 = 100;
const LONG: u32 = 10;

pub(crate) fn run(
    env: &TestEnv,
    options: &Options,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    let fixture = report.check("a node whose daemon is a service account", || {
        FaultsFixture::new(env)
    })?;
    report.check("the daemon becomes ready", || {
        fixture.told(fixture.start().and_then(|()| fixture.settle()))
    })?;
    if options.wants(Part::Kill) {
        let seed = options.seed.unwrap_or_else(fresh_seed);
        let cycles = if options.long { CYCLES * LONG } else { CYCLES };
        say(&format!("seed    {seed}"));
        report.check(
            &format!("{cycles} pods whose shim, daemon or plugins are killed"),
            || fixture.told(cycles::run(&fixture, seed, cycles)),
        )?;
    }
    if options.wants(Part::Server) {
        server::run(&fixture, options.long, report)?;
    }
    if options.wants(Part::Files) {
        files::run(&fixture, report)?;
    }
    if options.wants(Part::Clock) {
        clock::run(&fixture, report)?;
    }
    Ok(())
}

impl Options {
    /// Whether the full counts are wanted.
    pub(crate) fn is_long(&self) -> bool {
        self.long
    }

    fn wants(&self, part: Part) -> bool {
        self.part.is_none_or(|wanted| wanted == part)
    }
}

/// Another one each time: what a run finds, the next one need not look for.
fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |now| now.as_secs() ^ u64::from(now.subsec_nanos()))
}
