//! Retries temporary errors, each time after a longer pause, or after the pause that a busy registry names; other errors are returned at
//! once.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

use oci_client::errors::{OciDistributionError as Error, OciErrorCode};

use super::retry_after;

/// Attempts at one request, the first included.
const ATTEMPTS: u32 = 5;
/// The pause after the first attempt.
const PAUSE: Duration = Duration::from_millis(200);

/// The longest pause that a registry may name.
const LONGEST: Duration = Duration::from_mins(1);

/// Why a request is not retried.
#[derive(Debug)]
pub(super) enum Failure {
    /// The attempts are used up, or the error is not temporary.
    Final(Error),
    /// The registry names a pause that is longer than [`LONGEST`].
    Busy(Duration),
}

/// The kinds of errors, by their consequence for the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorKind {
    /// Another attempt may succeed.
    Temporary,
    /// A login is required.
    Login,
    /// The registry does not have it.
    Missing,
    /// Another attempt would fail too.
    Final,
}

/// Sends a request until it succeeds or fails for good. `retry_after` returns the pause that an address names.
pub(super) async fn until_final<T>(
    request: &mut impl AsyncFnMut() -> Result<T, Error>,
    retry_after: impl AsyncFn(&str) -> Option<Duration>,
) -> Result<T, Failure> {
    let mut attempt = 1;
    loop {
        let error = match request().await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        if attempt == ATTEMPTS || kind(&error) != ErrorKind::Temporary {
            return Err(Failure::Final(error));
        }
        let named = match retry_after::address(&error) {
            Some(address) => retry_after(address).await.unwrap_or_default(),
            None => Duration::ZERO,
        };
        if named > LONGEST {
            return Err(Failure::Busy(named));
        }
        let pause = pause(attempt, RandomState::new().build_hasher().finish());
        tokio::time::sleep(pause.max(named)).await;
        attempt += 1;
    }
}

/// Returns a pause that doubles with each attempt, plus up to half of it as jitter, so that many clients do not retry at once.
fn pause(attempt: u32, random: u64) -> Duration {
    let pause = PAUSE * 2_u32.pow(attempt - 1);
    let thousandths = u32::try_from(random % 500).unwrap_or_default();
    pause + pause * thousandths / 1000
}

/// The faults of an encrypted connection that the user can mend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsFault {
    /// The registry answers in plain text.
    NoTls,
    /// The registry's certificate is of no known authority.
    Certificate,
}

/// Returns the fault of the connection that an error reports, if any.
pub(super) fn tls_fault(error: &Error) -> Option<TlsFault> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        let text = error.to_string();
        if text.contains("InvalidContentType") {
            return Some(TlsFault::NoTls);
        }
        if ["CaUsedAsEndEntity", "UnknownIssuer"]
            .iter()
            .any(|name| text.contains(name))
        {
            return Some(TlsFault::Certificate);
        }
        source = error.source();
    }
    None
}

pub(super) fn kind(error: &Error) -> ErrorKind {
    if tls_fault(error).is_some() {
        return ErrorKind::Final;
    }
    match error {
        Error::UnauthorizedError { .. } | Error::AuthenticationFailure(_) => ErrorKind::Login,
        Error::ImageManifestNotFoundError(_) => ErrorKind::Missing,
        Error::ServerError { code, .. } => of_status(*code),
        Error::IoError(_) => ErrorKind::Temporary,
        Error::RequestError(error) => match error.status() {
            Some(status) => of_status(status.as_u16()),
            None if error.is_builder() || error.is_redirect() => ErrorKind::Final,
            None => ErrorKind::Temporary,
        },
        Error::RegistryError { envelope, .. } => {
            let first = envelope.errors.first();
            first.map_or(ErrorKind::Final, |error| of_code(&error.code))
        }
        _ => ErrorKind::Final,
    }
}

fn of_status(status: u16) -> ErrorKind {
    match status {
        401 | 403 => ErrorKind::Login,
        404 => ErrorKind::Missing,
        408 | 425 | 429 | 500..=599 => ErrorKind::Temporary,
        _ => ErrorKind::Final,
    }
}

fn of_code(code: &OciErrorCode) -> ErrorKind {
    match code {
        OciErrorCode::Unauthorized | OciErrorCode::Denied => ErrorKind::Login,
        OciErrorCode::BlobUnknown | OciErrorCode::ManifestUnknown | OciErrorCode::NameUnknown => {
            ErrorKind::Missing
        }
        OciErrorCode::Toomanyrequests => ErrorKind::Temporary,
        _ => ErrorKind::Final,
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
    fn temporary_errors_are_distinguished_from_final_ones() {
        for (code, expected) in [
            (429, ErrorKind::Temporary),
            (503, ErrorKind::Temporary),
            (401, ErrorKind::Login),
            (404, ErrorKind::Missing),
            (400, ErrorKind::Final),
        ] {
            assert_eq!(kind(&server(code)), expected, "{code}");
        }
        let cut = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(&cut.into()), ErrorKind::Temporary);
    }

    #[test]
    fn faults_of_certificates_are_found_among_the_causes() {
        for (text, expected) in [
            (
                "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))",
                Some(TlsFault::Certificate),
            ),
            (
                "invalid peer certificate: UnknownIssuer",
                Some(TlsFault::Certificate),
            ),
            (
                "received corrupt message of type InvalidContentType",
                Some(TlsFault::NoTls),
            ),
            ("connection refused", None),
        ] {
            let error = Error::from(std::io::Error::other(text));
            assert_eq!(tls_fault(&error), expected, "{text}");
            assert_eq!(kind(&error) == ErrorKind::Final, expected.is_some());
        }
    }

    #[test]
    fn pauses_double_and_have_jitter() {
        assert_eq!(pause(1, 0), PAUSE);
        assert_eq!(pause(3, 0), PAUSE * 4);
        assert!(pause(3, 499) < PAUSE * 6);
        assert!(pause(1, 1) > pause(1, 0));
    }

    fn attempts(
        responses: &mut Vec<Result<(), Error>>,
        retry_after: Option<Duration>,
    ) -> (Result<(), Failure>, u32, Duration) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let (start, mut count) = (Instant::now(), 0);
        let mut request = async || {
            count += 1;
            responses.pop().unwrap_or_else(|| Err(server(404)))
        };
        let outcome = runtime.block_on(until_final(&mut request, async |_: &str| retry_after));
        (outcome, count, start.elapsed())
    }

    #[test]
    fn only_temporary_errors_are_retried() {
        let (outcome, count, _) =
            attempts(&mut vec![Ok(()), Err(server(503)), Err(server(429))], None);
        assert!(outcome.is_ok());
        assert_eq!(count, 3);
        let (outcome, count, _) = attempts(&mut Vec::new(), None);
        assert!(matches!(outcome, Err(Failure::Final(_))));
        assert_eq!(count, 1);
    }

    #[test]
    fn named_pause_is_made_unless_it_is_too_long() {
        let named = Duration::from_millis(900);
        let (outcome, count, took) = attempts(&mut vec![Ok(()), Err(server(429))], Some(named));
        assert!(outcome.is_ok() && count == 2 && took >= named, "{took:?}");
        // Only a busy registry is asked for a pause.
        let (outcome, _, took) = attempts(&mut vec![Ok(()), Err(server(500))], Some(named));
        assert!(outcome.is_ok() && took < named, "{took:?}");
        let longer = LONGEST + Duration::from_secs(1);
        let (outcome, count, _) = attempts(&mut vec![Ok(()), Err(server(503))], Some(longer));
        assert!(matches!(outcome, Err(Failure::Busy(wait)) if wait == longer));
        assert_eq!(count, 1);
    }
}
