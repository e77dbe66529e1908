//! The backoff while another program removes our configuration whenever the manager restores it: the manager continues, but with pauses.

use std::time::{Duration, Instant};

use crate::backoff::doubled;

/// The number of times that the file is restored without a pause: a program that has just started may have tidied up.
const WITHOUT_PAUSE: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// After this time without a loss the backoff ends.
const RESET_AFTER: Duration = Duration::from_mins(1);

/// The recent losses of the file.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    losses: u32,
    last: Option<Instant>,
}

impl Backoff {
    /// Records one more loss of the file.
    pub(super) fn lost(&mut self, now: Instant) {
        self.reset_if_over(now);
        self.losses = self.losses.saturating_add(1);
        self.last = Some(now);
    }

    /// Returns the pause before the file is restored again, or `None` when there is no backoff.
    pub(super) fn pause(&mut self, now: Instant) -> Option<Duration> {
        self.reset_if_over(now);
        let beyond = self.losses.checked_sub(WITHOUT_PAUSE + 1)?;
        Some(doubled(beyond + 1, FIRST_PAUSE, LONGEST_PAUSE))
    }

    fn reset_if_over(&mut self, now: Instant) {
        if self
            .last
            .is_some_and(|last| now.saturating_duration_since(last) >= RESET_AFTER)
        {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_reset_after_a_while() {
        let (start, mut backoff) = (Instant::now(), Backoff::default());
        for _ in 0..WITHOUT_PAUSE {
            backoff.lost(start);
            assert_eq!(backoff.pause(start), None);
        }
        for seconds in [1, 2, 4, 8, 8] {
            backoff.lost(start);
            assert_eq!(backoff.pause(start), Some(Duration::from_secs(seconds)));
        }
        for _ in 0..100 {
            backoff.lost(start);
        }
        assert_eq!(backoff.pause(start), Some(LONGEST_PAUSE));
        assert_eq!(backoff.pause(start + RESET_AFTER), None);
        backoff.lost(start + RESET_AFTER);
        assert_eq!(backoff.pause(start + RESET_AFTER), None);
    }
}
