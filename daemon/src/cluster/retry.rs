//! Retries of requests to the API server: a function that decides whether and when to try again, and the loop that follows it.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use crate::access::{ApiError, ApiErrorKind};

/// The time limit of each of the first tries; up to half of it is added. A healthy server answers in milliseconds, and a hanging one is
/// given up early.
const TRY: Duration = Duration::from_secs(1);
/// From this try on the time limit doubles with each: a server that is slow but does not hang would never get to answer otherwise.
const SLOW_FROM: u32 = 3;
const LONGEST_TRY: Duration = Duration::from_secs(6);
/// The pause before the second try, doubled with each.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A longer `Retry-After` counts as this one.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(10);
/// With less time than this left there is no further try.
const SHORTEST_TRY: Duration = Duration::from_millis(200);

const CONFLICT: u16 = 409;
const TOO_MANY_REQUESTS: u16 = 429;

/// The tries so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tried {
    /// The number of failed tries.
    pub(crate) tries: u32,
    /// The time since the first try began.
    pub(crate) elapsed: Duration,
}

/// Returns the pause before the next try, or `None` when there is no further try. `random` is from 0 to 1.
pub(crate) fn next(
    tried: Tried,
    kind: ApiErrorKind,
    retry_after: Option<Duration>,
    time_limit: Duration,
    random: f64,
) -> Option<Duration> {
    let is_temporary = match kind {
        ApiErrorKind::Broken | ApiErrorKind::TimedOut => true,
        ApiErrorKind::Invalid => false,
        ApiErrorKind::Refused(code) => {
            matches!(code, CONFLICT | TOO_MANY_REQUESTS | 500..=599)
        }
    };
    let left = time_limit
        .checked_sub(tried.elapsed)
        .filter(|left| is_temporary && *left >= SHORTEST_TRY)?;
    let pause = match retry_after {
        // Never earlier than the server wants, and not all daemons at the same moment.
        Some(wanted) => wanted.min(LONGEST_RETRY_AFTER).mul_f64(1.0 + random / 4.0),
        None => backoff(tried.tries, FIRST_PAUSE, LONGEST_PAUSE, random),
    };
    // The last pause is shortened, so that one more try fits into the time limit.
    let last = left.saturating_sub(TRY + TRY / 2);
    Some(pause.min(last.max(left.saturating_sub(SHORTEST_TRY) / 2)))
}

/// Returns the time limit of one try after `failed` failed ones.
pub(crate) fn time_of_try(failed: u32, random: f64) -> Duration {
    let time = TRY.mul_f64(1.0 + random / 2.0);
    let doublings = (failed + 1).saturating_sub(SLOW_FROM).min(8);
    (time * (1 << doublings)).min(LONGEST_TRY)
}

/// Returns a pause that doubles with each failure up to `longest`, reduced by a random part of at most half.
pub(crate) fn backoff(failures: u32, first: Duration, longest: Duration, random: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(20);
    let full = first.saturating_mul(1 << doublings).min(longest);
    full.mul_f64(0.5 + random / 2.0)
}

/// Tries until there is an answer, a permanent error, or `time_limit` has ended. `attempt` gets the time limit of each try.
pub(crate) async fn with_retries<T, F>(
    time_limit: Duration,
    attempt: impl Fn(Duration) -> F,
) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, ApiError>>,
{
    let start = Instant::now();
    let mut tries = 0;
    loop {
        let left = time_limit.saturating_sub(start.elapsed());
        let time = time_of_try(tries, random()).min(left);
        let answer = timeout(left, attempt(time)).await;
        let failure = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(failure)) => failure,
            Err(_) => ApiError::timed_out(time_limit),
        };
        tries += 1;
        let so_far = Tried {
            tries,
            elapsed: start.elapsed(),
        };
        match next(
            so_far,
            failure.kind,
            failure.retry_after,
            time_limit,
            random(),
        ) {
            Some(pause) => sleep(pause).await,
            None if failure.kind == ApiErrorKind::TimedOut => {
                return Err(ApiError::timed_out(time_limit));
            }
            None => return Err(failure),
        }
    }
}

/// Returns a number from 0 to 1 that differs from node to node and from call to call.
pub(crate) fn random() -> f64 {
    let number = RandomState::new().hash_one(std::process::id());
    f64::from(u32::try_from(number >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const TIME_LIMIT: Duration = Duration::from_secs(25);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn temporary_failures_are_retried() {
        use ApiErrorKind::{Broken, Invalid, Refused, TimedOut};
        for (kind, expected) in [
            (Broken, true),
            (TimedOut, true),
            (Invalid, false),
            (Refused(400), false),
            (Refused(401), false),
            (Refused(403), false),
            (Refused(404), false),
            (Refused(409), true),
            (Refused(422), false),
            (Refused(429), true),
            (Refused(500), true),
            (Refused(503), true),
        ] {
            let tried = Tried {
                tries: 1,
                elapsed: ms(1),
            };
            let pause = next(tried, kind, None, TIME_LIMIT, 0.5);
            assert_eq!(pause.is_some(), expected, "{kind:?}");
        }
    }

    #[test]
    fn pauses_double_within_bounds_and_fit_into_the_time_limit() {
        let silent = ApiErrorKind::TimedOut;
        for (tries, elapsed, retry_after, random, expected) in [
            (1, 0, None, 1.0, Some(ms(20))),
            (1, 0, None, 0.0, Some(ms(10))),
            (3, 0, None, 1.0, Some(ms(80))),
            (30, 0, None, 1.0, Some(ms(2000))),
            // Retry-After is a lower bound, and is itself limited.
            (1, 0, Some(3000), 0.0, Some(ms(3000))),
            (1, 0, Some(3000), 1.0, Some(ms(3750))),
            (1, 0, Some(600_000), 0.0, Some(ms(10_000))),
            (9, 0, Some(0), 1.0, Some(ms(0))),
            // The last pauses are shortened, so that time is left for the try.
            (30, 23_000, None, 1.0, Some(ms(900))),
            (30, 24_000, Some(5000), 1.0, Some(ms(400))),
            (30, 24_801, None, 1.0, None),
            (30, 25_000, None, 0.0, None),
            (30, 99_000, None, 0.0, None),
        ] {
            let tried = Tried {
                tries,
                elapsed: ms(elapsed),
            };
            let pause = next(tried, silent, retry_after.map(ms), TIME_LIMIT, random);
            assert_eq!(pause, expected, "{tried:?} {retry_after:?} {random}");
        }
    }

    #[test]
    fn time_limits_of_tries_grow_for_a_slow_server() {
        for (failed, random, expected) in [
            (0, 0.0, 1000),
            (0, 1.0, 1500),
            (1, 0.5, 1250),
            (2, 0.0, 1000),
            (3, 0.0, 2000),
            (4, 0.0, 4000),
            (5, 1.0, 6000),
            (u32::MAX - 1, 1.0, 6000),
        ] {
            assert_eq!(time_of_try(failed, random), ms(expected), "{failed}");
        }
    }

    #[test]
    fn random_numbers_differ_and_are_in_range() {
        let all: Vec<f64> = (0..50).map(|_| random()).collect();
        assert!(all.iter().all(|one| (0.0..=1.0).contains(one)));
        assert!(all.windows(2).any(|pair| (pair[0] - pair[1]).abs() > 0.01));
    }

    #[tokio::test]
    async fn failed_tries_are_repeated() {
        let tries = &Cell::new(0);
        let answer = with_retries(TIME_LIMIT, |time| async move {
            tries.set(tries.get() + 1);
            match tries.get() {
                1 => Err(ApiError::timed_out(time)),
                2 => Err(ApiError::refused(503, None, b"busy")),
                tries => Ok(tries),
            }
        });
        assert_eq!(answer.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn retries_end_with_the_time_limit() {
        let time_limit = ms(900);
        let start = Instant::now();
        let failed = with_retries(time_limit, |_| async {
            Err::<(), _>(ApiError::refused(503, None, b"busy"))
        });
        assert_eq!(failed.await.unwrap_err().to_string(), "busy (code 503)");
        assert!(start.elapsed() + SHORTEST_TRY > time_limit);
        let failed = with_retries(time_limit, |_| std::future::pending::<Result<(), _>>());
        let failed = failed.await.unwrap_err().to_string();
        assert_eq!(failed, "no answer within 0.9 s");
    }
}
