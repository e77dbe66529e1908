//! The result of each check as it happens, and the summary at the end.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

/// Counters of checks by result.
pub(crate) struct Report {
    passed: u32,
    failed: u32,
    differing: u32,
    not_run: u32,
    start: Instant,
}

/// A check failed and is already reported. The suite ends, because later checks would fail for the same reason.
#[derive(Debug, thiserror::Error)]
#[error("a check failed")]
pub(crate) struct CheckFailed;

/// The outcome of checks.
pub(crate) type Checked<T = ()> = Result<T, CheckFailed>;

impl Report {
    pub(crate) fn new() -> Self {
        Self {
            passed: 0,
            failed: 0,
            differing: 0,
            not_run: 0,
            start: Instant::now(),
        }
    }

    /// Returns the number of checks that passed so far.
    pub(crate) fn passed(&self) -> u32 {
        self.passed
    }

    /// Runs one check and prints its result.
    pub(crate) fn check<T>(
        &mut self,
        name: &str,
        check: impl FnOnce() -> anyhow::Result<T>,
    ) -> Checked<T> {
        let start = Instant::now();
        match check() {
            Ok(value) => {
                self.passed += 1;
                say(&format!("ok      {name} ({})", seconds(start.elapsed())));
                Ok(value)
            }
            Err(error) => {
                self.failed += 1;
                say(&format!("FAILED  {name}: {error:#}"));
                Err(CheckFailed)
            }
        }
    }

    /// Prints that a case cannot run on this machine. It counts as nothing.
    pub(crate) fn not_run(&mut self, name: &str, why: &str) {
        self.not_run += 1;
        say(&format!("not run: {name}, because {why}"));
    }

    /// Prints that a case failed for a known difference.
    pub(crate) fn differs(&mut self, name: &str, how: &anyhow::Error) {
        self.differing += 1;
        say(&format!("differs {name}: {how:#}"));
    }

    /// Prints the summary; returns whether at least one check passed and none failed.
    pub(crate) fn close(&self) -> bool {
        say(&format!("{} passed, {} failed", self.passed, self.failed));
        if self.differing > 0 {
            say(&format!("{} differ, as is known", self.differing));
        }
        if self.not_run > 0 {
            say(&format!("{} not run on this machine", self.not_run));
        }
        say(&format!("in {}", seconds(self.start.elapsed())));
        self.failed == 0 && self.passed > 0
    }
}

/// Prints a line on stdout.
pub(crate) fn say(line: &str) {
    // With stdout closed the exit status is the only result.
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
