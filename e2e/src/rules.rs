//! The suite `rules`: a black-box conformance suite for any shim and daemon, rule by rule.
//!
//! The programs under test are a parameter: those of the release, or those of another implementation. Cases do not know
//! which; `DIFFERENCES.md` says which cases upstream fails and why. `docs/contributing/testing.md` says how to run the suite.

mod cases;
mod catalogue;
mod definitions;
mod differences;
mod document;
mod exchange;
mod harness;
pub(crate) mod recorder;

use std::path::Path;

pub(crate) use self::document::print;
pub(crate) use self::harness::Programs;
use self::{
    differences::Differences,
    harness::{DaemonSetup, Harness},
};
use crate::{
    node::Kernel,
    options::Options,
    report::{Checked, Report},
    test_env::TestEnv,
};

/// A case depends on no other, and the harness cleans up after it.
pub(crate) struct Case {
    subject: &'static str,
    function: &'static str,
    /// The ids of the rules that it shows.
    rules: &'static [&'static str],
    /// The daemon that runs meanwhile.
    daemon: DaemonSetup,
    run: fn(&Harness) -> anyhow::Result<()>,
}

impl Case {
    fn name(&self) -> String {
        format!("{}-{}", self.subject, self.function.replace('_', "-"))
    }
}

pub(crate) fn run(work: &TestEnv, options: &Options, report: &mut Report) -> Checked {
    let programs = match options.peer_alone() {
        Some(dir) => Programs::peer(dir),
        None => Programs::ours(work),
    };
    let names: Vec<_> = cases::all().map(Case::name).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    options.ensure_selected(&names, report)?;
    let harness = report.check("a node with an API server and a recording plugin", || {
        Harness::new(work, options.kernel(), programs?)
    })?;
    if let (Some(dir), true) = (&options.peer, options.exchange) {
        return exchange::run(work, dir, &harness, report);
    }
    let differences = if options.peer.is_some() {
        report.check("the known differences are read", || {
            Differences::read(options.differences.as_deref())
        })?
    } else {
        Differences::default()
    };
    for setup in [DaemonSetup::Plain, DaemonSetup::Overlaid, DaemonSetup::Own] {
        let selected = |case: &&Case| case.daemon == setup && options.selects(&case.name());
        let group: Vec<_> = cases::all().filter(selected).collect();
        if group.is_empty() {
            continue;
        }
        if setup != DaemonSetup::Own {
            report.check(&format!("the daemon is ready: {setup:?}"), || {
                harness.start_daemon(&setup.file())
            })?;
        }
        for case in group {
            run_case(&harness, case, &differences, report);
        }
        let _ = harness.stop_daemon("TERM");
    }
    Ok(())
}

/// Runs one case. The report counts its failure, and the next case runs.
fn run_case(harness: &Harness, case: &Case, differences: &Differences, report: &mut Report) {
    let name = case.name();
    let Some(reason) = differences.of(&name) else {
        let _ = report.check(&name, || (case.run)(harness));
        return harness.clean_up();
    };
    let outcome = (case.run)(harness);
    harness.clean_up();
    match outcome {
        Err(error) => report.differs(&name, &error),
        Ok(()) => {
            let _ = report.check(&name, || -> anyhow::Result<()> {
                anyhow::bail!("it passes: remove it from the known differences ({reason})")
            });
        }
    }
}

impl Options {
    /// Returns the directory of the peer's programs if the suite runs no programs of the release.
    pub(crate) fn peer_alone(&self) -> Option<&Path> {
        self.peer.as_deref().filter(|_| !self.exchange)
    }

    fn kernel(&self) -> Kernel {
        if self.old_kernel {
            Kernel::Old
        } else {
            Kernel::Own
        }
    }

    /// Returns whether a name is that of a wanted case.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.case
            .as_ref()
            .is_none_or(|text| name.contains(text.as_str()))
    }

    /// Returns the wanted ones of cases that have names; fails when one is wanted and is none of these.
    pub(crate) fn wanted<'a, C>(
        &self,
        cases: &'a [(&'a str, C)],
        report: &mut Report,
    ) -> Checked<Vec<&'a (&'a str, C)>> {
        let names: Vec<&str> = cases.iter().map(|(name, _)| *name).collect();
        self.ensure_selected(&names, report)?;
        // The name of one case may begin with that of another.
        let has_name = |name: &str| self.case.as_deref() == Some(name);
        let is_named = names.iter().any(|name| has_name(name));
        let is_wanted = |name| {
            if is_named {
                has_name(name)
            } else {
                self.selects(name)
            }
        };
        let wanted = cases.iter().filter(|(name, _)| is_wanted(name));
        Ok(wanted.collect())
    }

    /// Fails when a case is wanted and is none of these.
    pub(crate) fn ensure_selected(&self, names: &[&str], report: &mut Report) -> Checked {
        let Some(text) = &self.case else {
            return Ok(());
        };
        report.check(&format!("a case has `{text}` in its name"), || {
            anyhow::ensure!(
                names.iter().any(|name| self.selects(name)),
                "none has; they are {}",
                names.join("; ")
            );
            Ok(())
        })
    }
}
