//! What may pass by itself is asked again, each time after a longer pause; what will not is told at once.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

use oci_client::errors::{OciDistributionError as Error, OciErrorCode};

/// Attempts at one thing, the first included.
const ATTEMPTS: u32 = 5;
/// Pause after the first.
const PAUSE: Duration = Duration::from_millis(200);

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

/// Asks until the answer is yes or a no that stays.
pub(super) async fn until_final<T>(
    ask: &mut impl AsyncFnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let mut attempt = 1;
    loop {
        match ask().await {
            Err(error) if attempt < ATTEMPTS && kind(&error) == Kind::Passing => {
                tokio::time::sleep(pause(attempt, RandomState::new().build_hasher().finish()))
                    .await;
                attempt += 1;
            }
            answer => return answer,
        }
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

    fn attempts(answers: &mut Vec<Result<(), Error>>) -> (Result<(), Error>, u32) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let mut count = 0;
        let answer = runtime.block_on(until_final(&mut async || {
            count += 1;
            answers.pop().unwrap_or_else(|| Err(server(404)))
        }));
        (answer, count)
    }

    #[test]
    fn only_what_may_pass_is_asked_again() {
        let (answer, count) = attempts(&mut vec![Ok(()), Err(server(503)), Err(server(429))]);
        assert!(answer.is_ok());
        assert_eq!(count, 3);
        let (answer, count) = attempts(&mut Vec::new());
        assert!(answer.is_err());
        assert_eq!(count, 1);
    }
}
