//! What was checked, said as it happens, and the closing line that CI reads.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

/// Counts checks.
pub(crate) struct Report {
    passed: u32,
    failed: u32,
    differing: u32,
    start: Instant,
}

/// A check failed, and has been reported; what follows it would only fail for the same reason.
#[derive(Debug, thiserror::Error)]
#[error("a check failed")]
pub(crate) struct CheckFailed;

impl Report {
    pub(crate) fn new() -> Self {
        Self {
            passed: 0,
            failed: 0,
            differing: 0,
            start: Instant::now(),
        }
    }

    /// Runs one check and says how it went.
    pub(crate) fn check<T>(
        &mut self,
        name: &str,
        check: impl FnOnce() -> anyhow::Result<T>,
    ) -> Result<T, CheckFailed> {
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

    /// Says that something went otherwise, as it was known that it would.
    pub(crate) fn differs(&mut self, name: &str, how: &anyhow::Error) {
        self.differing += 1;
        say(&format!("differs {name}: {how:#}"));
    }

    /// The closing line; whether all is well.
    pub(crate) fn close(&self) -> bool {
        say(&format!("{} passed, {} failed", self.passed, self.failed));
        if self.differing > 0 {
            say(&format!("{} differ, as is known", self.differing));
        }
        say(&format!("in {}", seconds(self.start.elapsed())));
        self.failed == 0 && self.passed > 0
    }
}

/// A line on stdout.
pub(crate) fn say(line: &str) {
    // Nobody listens when stdout is closed; the exit status still tells.
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
