//! Sends a request again after a temporary failure: each time after a longer pause, or after the pause that a busy server names. Other
//! failures are returned at once.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::{Duration, SystemTime},
};

use reqwest::header::{HeaderMap, RETRY_AFTER};

use super::Failure;

/// Attempts in a row without a new byte, the first included.
pub(crate) const ATTEMPTS: u32 = 5;
/// The pause after the first attempt.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest pause that a server may name.
pub(crate) const LONGEST: Duration = Duration::from_mins(1);

/// Sends a request until it succeeds or fails for good. `arrived` returns a number that grows with each attempt that made progress.
pub(crate) async fn until_final<T>(
    mut request: impl AsyncFnMut() -> Result<T, Failure>,
    arrived: impl Fn() -> u64,
) -> Result<T, Failure> {
    let mut fruitless = 0;
    loop {
        let before = arrived();
        let failure = match request().await {
            Ok(response) => return Ok(response),
            Err(failure) => failure,
        };
        fruitless = if arrived() > before { 0 } else { fruitless + 1 };
        let named = failure.retry_after().unwrap_or_default();
        if fruitless == ATTEMPTS || !failure.is_temporary() || named > LONGEST {
            return Err(failure);
        }
        let pause = pause(fruitless, RandomState::new().build_hasher().finish());
        tokio::time::sleep(pause.max(named)).await;
    }
}

/// Returns a pause that doubles with each attempt, plus up to half of it as jitter, so that many clients do not retry at once.
/// There is none after an attempt that made progress.
fn pause(fruitless: u32, random: u64) -> Duration {
    let Some(doublings) = fruitless.checked_sub(1) else {
        return Duration::ZERO;
    };
    let pause = PAUSE * 2_u32.pow(doublings);
    let thousandths = u32::try_from(random % 500).unwrap_or_default();
    pause + pause * thousandths / 1000
}

/// Returns the pause that a busy server names.
pub(super) fn named_pause(status: u16, headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    matches!(status, 429 | 503).then_some(())?;
    parse(value, SystemTime::now())
}

/// Parses the header: seconds, or a date (RFC 9110, 10.2.3).
fn parse(value: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value.trim()).ok()?;
    // A date in the past means no pause.
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Instant};

    use super::*;

    fn refusal(status: u16, retry_after: Option<Duration>) -> Failure {
        Failure::Status {
            status,
            retry_after,
            message: String::new(),
        }
    }

    #[test]
    fn pauses_double_and_have_jitter() {
        assert_eq!(pause(0, 1), Duration::ZERO);
        assert_eq!(pause(1, 0), PAUSE);
        assert_eq!(pause(3, 0), PAUSE * 4);
        assert!(pause(3, 499) < PAUSE * 6);
        assert!(pause(1, 1) > pause(1, 0));
    }

    #[test]
    fn seconds_and_dates_are_parsed() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let check = |value, expected: Option<u64>| {
            let expected = expected.map(Duration::from_secs);
            assert_eq!(parse(value, now), expected, "{value}");
        };
        check("7", Some(7));
        check("0", Some(0));
        check("Sun, 06 Nov 1994 08:50:00 GMT", Some(23));
        check("Sun, 06 Nov 1994 08:00:00 GMT", Some(0));
        check("soon", None);
        check("-1", None);
        check("", None);
    }

    #[test]
    fn only_a_busy_server_names_a_pause() {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, "7".parse().unwrap())]);
        let seconds = Some(Duration::from_secs(7));
        for (status, expected) in [(429, seconds), (503, seconds), (500, None), (200, None)] {
            assert_eq!(named_pause(status, &headers), expected, "{status}");
        }
    }

    /// Returns the outcome of these failures, the last first, before a success, and the number of attempts.
    fn attempts(
        failures: &mut Vec<Failure>,
        is_fruitful: bool,
    ) -> (Result<(), Failure>, u32, Duration) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let (start, count) = (Instant::now(), Cell::new(0));
        let request = async || {
            count.set(count.get() + 1);
            failures.pop().map_or(Ok(()), Err)
        };
        let arrived = || {
            if is_fruitful {
                u64::from(count.get())
            } else {
                0
            }
        };
        let outcome = runtime.block_on(until_final(request, arrived));
        (outcome, count.get(), start.elapsed())
    }

    #[test]
    fn only_temporary_failures_are_retried() {
        let mut failures = vec![refusal(503, None), refusal(429, None)];
        let (outcome, count, _) = attempts(&mut failures, false);
        assert!(outcome.is_ok() && count == 3);
        let (outcome, count, _) = attempts(&mut vec![refusal(404, None)], false);
        assert!(outcome.is_err() && count == 1);
    }

    #[test]
    fn progress_starts_the_count_again() {
        let failures = || (0..7).map(|_| refusal(500, None)).collect();
        let (outcome, count, _) = attempts(&mut failures(), true);
        assert!(outcome.is_ok() && count == 8);
        let (outcome, count, _) = attempts(&mut failures(), false);
        assert!(outcome.is_err() && count == ATTEMPTS);
    }

    #[test]
    fn named_pause_is_made_unless_it_is_too_long() {
        let named = Duration::from_millis(900);
        let (outcome, count, took) = attempts(&mut vec![refusal(429, Some(named))], false);
        assert!(outcome.is_ok() && count == 2 && took >= named, "{took:?}");
        let longer = LONGEST + Duration::from_secs(1);
        let (outcome, count, _) = attempts(&mut vec![refusal(503, Some(longer))], false);
        assert!(outcome.is_err() && count == 1);
    }
}
