//! Level `rules`: every rule of the multiplexer's behaviour, shown from outside on whatever programs are given.
//!
//! The programs are a parameter: the release's own, or those of another implementation. Cases do not know which;
//! where the other one is known to differ, `DIFFERENCES.md` says so and why.

mod bench;
mod cases;
mod catalogue;
mod definitions;
mod differences;
mod exchange;
pub(crate) mod plugin;
mod table;

use std::path::{Path, PathBuf};

pub(crate) use self::bench::Programs;
pub(crate) use self::table::print;
use self::{
    bench::{Bench, Settings},
    differences::Differences,
};
use crate::{
    node::Kernel,
    report::{CheckFailed, Report},
    test_env::TestEnv,
};

/// What this level is told beside the release.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// rules: test the programs in this folder instead of the release's; upgrade: upstream's programs
    #[arg(long, value_name = "DIR")]
    peer: Option<PathBuf>,
    /// rules: exchange the release's programs with the peer's in the middle of pods' lives
    #[arg(long, requires = "peer")]
    exchange: bool,
    /// rules, load: only cases whose names contain this
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// rules: without the system calls that the oldest kernel does not have
    #[arg(long)]
    old_kernel: bool,
}

/// One case: independent of all others, and cleaned up after.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The rules that it shows.
    pub(crate) rules: &'static [&'static str],
    /// What runs meanwhile.
    pub(crate) daemon: Settings,
    pub(crate) run: fn(&Bench) -> anyhow::Result<()>,
}

pub(crate) fn run(
    work: &TestEnv,
    options: &Options,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    let programs = match &options.peer {
        Some(dir) if !options.exchange => Programs::peer(dir),
        _ => Programs::ours(work),
    };
    if let Some(text) = &options.case {
        let is_known = cases::all().any(|case| options.wants(case.name));
        report.check(&format!("cases are named with `{text}`"), || {
            anyhow::ensure!(is_known, "no case has it in its name: look at --table");
            Ok(())
        })?;
    }
    let bench = report.check(
        "a node with an API server and a plugin that records",
        || Bench::new(work, options.kernel(), programs?),
    )?;
    if let (Some(dir), true) = (&options.peer, options.exchange) {
        return exchange::run(work, dir, &bench, report);
    }
    let differences = if options.peer.is_some() {
        report.check("the known differences are read", Differences::read)?
    } else {
        Differences::default()
    };
    for settings in [Settings::Plain, Settings::Overlaid, Settings::None] {
        let wanted = |case: &&Case| case.daemon == settings && options.wants(case.name);
        let group: Vec<_> = cases::all().filter(wanted).collect();
        if group.is_empty() {
            continue;
        }
        if settings != Settings::None {
            report.check(&format!("the daemon is ready: {settings:?}"), || {
                bench.start(&settings.file())
            })?;
        }
        for case in group {
            one(&bench, case, &differences, report);
        }
        let _ = bench.stop("TERM");
    }
    Ok(())
}

/// Runs one case; its failure is counted and ends nothing.
fn one(bench: &Bench, case: &Case, differences: &Differences, report: &mut Report) {
    let Some(reason) = differences.of(case.name) else {
        let _ = report.check(case.name, || (case.run)(bench));
        return bench.clean();
    };
    let outcome = (case.run)(bench);
    bench.clean();
    match outcome {
        Err(error) => report.differs(case.name, &error),
        Ok(()) => {
            let _ = report.check(case.name, || -> anyhow::Result<()> {
                anyhow::bail!("it passes: take its line out of DIFFERENCES.md ({reason})")
            });
        }
    }
}

impl Options {
    /// The folder of the peer's programs.
    pub(crate) fn peer(&self) -> Option<&Path> {
        self.peer.as_deref()
    }

    /// The text that names of cases have to contain.
    pub(crate) fn case(&self) -> Option<&str> {
        self.case.as_deref()
    }

    fn kernel(&self) -> Kernel {
        if self.old_kernel {
            Kernel::Old
        } else {
            Kernel::Own
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.case
            .as_ref()
            .is_none_or(|text| name.contains(text.as_str()))
    }
}
