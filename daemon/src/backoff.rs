//! Pauses between attempts, which double with each failure.

use std::time::Duration;

/// Returns the pause after so many failures: `first` after the first one, twice as long after each further one, up to `longest`.
pub(crate) fn doubled(failures: u32, first: Duration, longest: Duration) -> Duration {
    let doublings = failures.saturating_sub(1).min(20);
    first.saturating_mul(1 << doublings).min(longest)
}

/// Returns the same pause, reduced by a random part of at most half; `random` is from 0 to 1.
pub(crate) fn backoff(failures: u32, first: Duration, longest: Duration, random: f64) -> Duration {
    doubled(failures, first, longest).mul_f64(0.5 + random / 2.0)
}
