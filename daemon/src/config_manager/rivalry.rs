//! Another program that takes our configuration away whenever we put it back: neither gives in, but nobody is busy with it.

use std::time::{Duration, Instant};

/// So often the file is put back at once: some program may have started just now and have tidied up.
const AT_ONCE: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// After so long without a loss it is over.
const OVER: Duration = Duration::from_mins(1);

/// How often the file was lost lately.
#[derive(Debug, Default)]
pub(super) struct Rivalry {
    losses: u32,
    last: Option<Instant>,
}

impl Rivalry {
    /// The file was lost once more.
    pub(super) fn lost(&mut self, now: Instant) {
        self.settle(now);
        self.losses = self.losses.saturating_add(1);
        self.last = Some(now);
    }

    /// How long not to look, while it is on.
    pub(super) fn pause(&mut self, now: Instant) -> Option<Duration> {
        self.settle(now);
        let beyond = self.losses.checked_sub(AT_ONCE + 1)?;
        Some(LONGEST_PAUSE.min(FIRST_PAUSE * 2_u32.saturating_pow(beyond)))
    }

    fn settle(&mut self, now: Instant) {
        if self
            .last
            .is_some_and(|last| now.saturating_duration_since(last) >= OVER)
        {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_grow_and_are_forgotten() {
        let (start, mut rivalry) = (Instant::now(), Rivalry::default());
        for _ in 0..AT_ONCE {
            rivalry.lost(start);
            assert_eq!(rivalry.pause(start), None);
        }
        for seconds in [1, 2, 4, 8, 8] {
            rivalry.lost(start);
            assert_eq!(rivalry.pause(start), Some(Duration::from_secs(seconds)));
        }
        for _ in 0..100 {
            rivalry.lost(start);
        }
        assert_eq!(rivalry.pause(start), Some(LONGEST_PAUSE));
        assert_eq!(rivalry.pause(start + OVER), None);
        rivalry.lost(start + OVER);
        assert_eq!(rivalry.pause(start + OVER), None);
    }
}
