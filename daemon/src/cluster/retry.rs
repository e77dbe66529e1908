//! Retries of requests to the API server: a function that decides whether and when to try again, and the loop that follows it.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use crate::{
    access::{ApiError, ApiErrorKind},
    backoff::backoff,
};

/// The time limit of each try; up to a quarter of it is added. It is long, because a server that is slow does not become faster when it
/// gets the same request again. A dead connection is noticed much earlier, by its client.
const TRY: Duration = Duration::from_secs(8);
/// The pause before the second try, doubled with each.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A longer `Retry-After` counts as this one.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(10);
/// With less time than this left there is no further try.
const SHORTEST_TRY: Duration = Duration::from_millis(200);
/// The time that is left for the last try.
const LAST_TRY: Duration = Duration::from_millis(1500);
/// The pause after a 401: the token is read again, and a server that has just started gets to know its authenticators.
const UNAUTHORIZED_PAUSE: Duration = Duration::from_secs(1);

const UNAUTHORIZED: u16 = 401;
const CONFLICT: u16 = 409;
const TOO_MANY_REQUESTS: u16 = 429;

/// The tries so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tried {
    /// The number of failed tries.
    pub(crate) tries: u32,
    /// The number of tries that ended with a 401. The first is retried with the token that is current then.
    pub(crate) unauthorized: u32,
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
        ApiErrorKind::Refused(UNAUTHORIZED) => tried.unauthorized <= 1,
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
        None if kind == ApiErrorKind::Refused(UNAUTHORIZED) => {
            backoff(1, UNAUTHORIZED_PAUSE, UNAUTHORIZED_PAUSE, random)
        }
        None => backoff(tried.tries, FIRST_PAUSE, LONGEST_PAUSE, random),
    };
    // The last pause is shortened, so that one more try fits into the time limit.
    let last = left.saturating_sub(LAST_TRY);
    Some(pause.min(last.max(left.saturating_sub(SHORTEST_TRY) / 2)))
}

/// Returns the time limit of one try.
fn time_of_try(random: f64) -> Duration {
    TRY.mul_f64(1.0 + random / 4.0)
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
    let (mut tries, mut unauthorized) = (0, 0);
    loop {
        let left = time_limit.saturating_sub(start.elapsed());
        let time = time_of_try(random()).min(left);
        let answer = timeout(left, attempt(time)).await;
        let failure = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(failure)) => failure,
            Err(_) => ApiError::timed_out(time_limit),
        };
        tries += 1;
        unauthorized += u32::from(failure.code() == Some(UNAUTHORIZED));
        let so_far = Tried {
            tries,
            unauthorized,
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
            (Refused(401), true),
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
                unauthorized: 1,
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
                unauthorized: 0,
                elapsed: ms(elapsed),
            };
            let pause = next(tried, silent, retry_after.map(ms), TIME_LIMIT, random);
            assert_eq!(pause, expected, "{tried:?} {retry_after:?} {random}");
        }
    }

    #[test]
    fn second_refusal_of_the_credential_is_final() {
        let refused = ApiErrorKind::Refused(401);
        for (unauthorized, expected) in [(1, Some(ms(1000))), (2, None)] {
            let tried = Tried {
                tries: 2,
                unauthorized,
                elapsed: ms(1),
            };
            assert_eq!(next(tried, refused, None, TIME_LIMIT, 1.0), expected);
        }
    }

    #[test]
    fn slow_server_gets_one_try_of_some_seconds() {
        assert_eq!(time_of_try(0.0), ms(8000));
        assert_eq!(time_of_try(1.0), ms(10_000));
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
