//! The error of a request to the API server.

use std::time::Duration;

/// Why a request failed, in one line. Its `kind` decides whether another try is worthwhile.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct ApiError {
    pub(crate) kind: ApiErrorKind,
    /// The time that the API server wants the client to wait.
    pub(crate) retry_after: Option<Duration>,
    text: String,
}

/// The kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApiErrorKind {
    /// The API server answered with this HTTP status.
    Refused(u16),
    /// There was no connection, or it broke.
    Broken,
    /// No answer came in time.
    TimedOut,
    /// The answer does not have the expected content.
    Invalid,
}

impl ApiError {
    pub(crate) fn new(kind: ApiErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            retry_after: None,
            text: text.into(),
        }
    }

    /// Returns the failure of a connection. Events of pods show its text, so the link to the manual of rustls at the end of some texts is cut
    /// off.
    pub(crate) fn broken(text: impl Into<String>) -> Self {
        let mut text = text.into();
        if let Some(link) = text.find(": https://docs.rs/") {
            text.truncate(link);
        }
        Self::new(ApiErrorKind::Broken, text)
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(ApiErrorKind::Invalid, text)
    }

    /// Returns the failure of a request without an answer within `time_limit`.
    pub(crate) fn timed_out(time_limit: Duration) -> Self {
        let text = format!("no answer within {} s", time_limit.as_secs_f32());
        Self::new(ApiErrorKind::TimedOut, text)
    }

    /// Returns the failure of a refused request. Its text is the `message` of a `Status`, or the beginning of any other body.
    pub(crate) fn refused(code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        #[derive(serde::Deserialize)]
        struct Status {
            message: String,
        }
        let message = serde_json::from_slice::<Status>(body).map_or_else(
            |_| {
                let text = String::from_utf8_lossy(body);
                text.trim().chars().take(200).collect()
            },
            |status| status.message,
        );
        let text = if message.is_empty() {
            format!("code {code}")
        } else {
            format!("{message} (code {code})")
        };
        Self {
            kind: ApiErrorKind::Refused(code),
            retry_after,
            text,
        }
    }

    /// Returns the HTTP status with which the API server refused the request.
    pub(crate) fn code(&self) -> Option<u16> {
        match self.kind {
            ApiErrorKind::Refused(code) => Some(code),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_a_text_of_one_line() {
        let text = |body: &str| ApiError::refused(403, None, body.as_bytes()).to_string();
        assert_eq!(text(r#"{"message": "not you"}"#), "not you (code 403)");
        assert_eq!(text("no JSON\n"), "no JSON (code 403)");
        assert_eq!(text(""), "code 403");
        let failure = ApiError::refused(429, Some(Duration::from_secs(1)), b"");
        assert_eq!(failure.code(), Some(429));
        let silent = ApiError::timed_out(Duration::from_secs(25));
        assert_eq!(silent.to_string(), "no answer within 25 s");
        assert_eq!(silent.code(), None);
        let closed = "peer closed connection: https://docs.rs/rustls/latest/rustls/manual";
        let closed = ApiError::broken(closed).to_string();
        assert_eq!(closed, "peer closed connection");
    }
}
