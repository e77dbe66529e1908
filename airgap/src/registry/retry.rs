//! What may pass by itself is asked again, each time after a longer pause, or after the one that a busy registry names; what will not
//! is told at once.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

use oci_client::errors::{OciDistributionError as Error, OciErrorCode};

use super::busy;

/// Attempts at one thing, the first included.
const ATTEMPTS: u32 = 5;
/// Pause after the first.
const PAUSE: Duration = Duration::from_millis(200);

/// The longest pause that a registry may name.
const LONGEST: Duration = Duration::from_mins(1);

/// Why it is not asked again.
#[derive(Debug)]
pub(super) enum End {
    /// It was asked often enough, or the no stays.
    No(Error),
    /// It wants to be asked later than anybody waits here.
    Later(Duration),
}

/// What kind of a no it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Another attempt may do.
    Passing,
    /// A login is wanted.
    Login,
    /// It is not there.
    Missing,
    /// No, and no again.
    Final,
}

/// Asks until the answer is yes or a no that stays. `told` is asked how long an address wants to be left alone.
pub(super) async fn until_final<T>(
    ask: &mut impl AsyncFnMut() -> Result<T, Error>,
    told: impl AsyncFn(&str) -> Option<Duration>,
) -> Result<T, End> {
    let mut attempt = 1;
    loop {
        let error = match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if attempt == ATTEMPTS || kind(&error) != Kind::Passing {
            return Err(End::No(error));
        }
        let wanted = match busy::address(&error) {
            Some(address) => told(address).await.unwrap_or_default(),
            None => Duration::ZERO,
        };
        if wanted > LONGEST {
            return Err(End::Later(wanted));
        }
        let pause = pause(attempt, RandomState::new().build_hasher().finish());
        tokio::time::sleep(pause.max(wanted)).await;
        attempt += 1;
    }
}

/// Twice as long each time, and up to half of that more, so that many clients do not come back at once.
fn pause(attempt: u32, random: u64) -> Duration {
    let pause = PAUSE * 2_u32.pow(attempt - 1);
    let thousandths = u32::try_from(random % 500).unwrap_or_default();
    pause + pause * thousandths / 1000
}

/// Reads an error.
pub(super) fn kind(error: &Error) -> Kind {
    match error {
        Error::UnauthorizedError { .. } | Error::AuthenticationFailure(_) => Kind::Login,
        Error::ImageManifestNotFoundError(_) => Kind::Missing,
        Error::ServerError { code, .. } => of_status(*code),
        Error::IoError(_) => Kind::Passing,
        Error::RequestError(error) => match error.status() {
            Some(status) => of_status(status.as_u16()),
            None if error.is_builder() || error.is_redirect() => Kind::Final,
            None => Kind::Passing,
        },
        Error::RegistryError { envelope, .. } => {
            let first = envelope.errors.first();
            first.map_or(Kind::Final, |error| of_code(&error.code))
        }
        _ => Kind::Final,
    }
}

fn of_status(status: u16) -> Kind {
    match status {
        401 | 403 => Kind::Login,
        404 => Kind::Missing,
        408 | 425 | 429 | 500..=599 => Kind::Passing,
        _ => Kind::Final,
    }
}

fn of_code(code: &OciErrorCode) -> Kind {
    match code {
        OciErrorCode::Unauthorized | OciErrorCode::Denied => Kind::Login,
        OciErrorCode::BlobUnknown | OciErrorCode::ManifestUnknown | OciErrorCode::NameUnknown => {
            Kind::Missing
        }
        OciErrorCode::Toomanyrequests => Kind::Passing,
        _ => Kind::Final,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn server(code: u16) -> Error {
        Error::ServerError {
            code,
            url: String::new(),
            message: String::new(),
        }
    }

    #[test]
    fn a_no_is_told_from_a_not_now() {
        for (code, expected) in [
            (429, Kind::Passing),
            (503, Kind::Passing),
            (401, Kind::Login),
            (404, Kind::Missing),
            (400, Kind::Final),
        ] {
            assert_eq!(kind(&server(code)), expected, "{code}");
        }
        let cut = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(&cut.into()), Kind::Passing);
    }

    #[test]
    fn pauses_grow_and_differ() {
        assert_eq!(pause(1, 0), PAUSE);
        assert_eq!(pause(3, 0), PAUSE * 4);
        assert!(pause(3, 499) < PAUSE * 6);
        assert!(pause(1, 1) > pause(1, 0));
    }

    fn attempts(
        answers: &mut Vec<Result<(), Error>>,
        told: Option<Duration>,
    ) -> (Result<(), End>, u32, Duration) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let (start, mut count) = (Instant::now(), 0);
        let mut ask = async || {
            count += 1;
            answers.pop().unwrap_or_else(|| Err(server(404)))
        };
        let answer = runtime.block_on(until_final(&mut ask, async |_: &str| told));
        (answer, count, start.elapsed())
    }

    #[test]
    fn only_what_may_pass_is_asked_again() {
        let (answer, count, _) =
            attempts(&mut vec![Ok(()), Err(server(503)), Err(server(429))], None);
        assert!(answer.is_ok());
        assert_eq!(count, 3);
        let (answer, count, _) = attempts(&mut Vec::new(), None);
        assert!(matches!(answer, Err(End::No(_))));
        assert_eq!(count, 1);
    }

    #[test]
    fn a_pause_that_is_named_is_made_unless_it_is_too_long() {
        let wanted = Duration::from_millis(900);
        let (answer, count, took) = attempts(&mut vec![Ok(()), Err(server(429))], Some(wanted));
        assert!(answer.is_ok() && count == 2 && took >= wanted, "{took:?}");
        // Nobody names a pause who is not busy.
        let (answer, _, took) = attempts(&mut vec![Ok(()), Err(server(500))], Some(wanted));
        assert!(answer.is_ok() && took < wanted, "{took:?}");
        let longer = LONGEST + Duration::from_secs(1);
        let (answer, count, _) = attempts(&mut vec![Ok(()), Err(server(503))], Some(longer));
        assert!(matches!(answer, Err(End::Later(wait)) if wait == longer));
        assert_eq!(count, 1);
    }
}
