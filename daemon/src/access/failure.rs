//! A request to the API server that did not get what it asked for.

use std::time::Duration;

/// What went wrong, in one line; what it means for another try is in `kind`.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// How long the API server wants to be left alone.
    pub(crate) retry_after: Option<Duration>,
    text: String,
}

/// How a request can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The API server answered with this HTTP status.
    Refused(u16),
    /// There was no connection, or it broke.
    Broken,
    /// No answer came in time.
    Silent,
    /// The answer is not what was asked for.
    Unusable,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            retry_after: None,
            text: text.into(),
        }
    }

    pub(crate) fn broken(text: impl Into<String>) -> Self {
        Self::new(FailureKind::Broken, text)
    }

    pub(crate) fn unusable(text: impl Into<String>) -> Self {
        Self::new(FailureKind::Unusable, text)
    }

    /// No answer within this time.
    pub(crate) fn silent(patience: Duration) -> Self {
        let text = format!("no answer within {} s", patience.as_secs_f32());
        Self::new(FailureKind::Silent, text)
    }

    /// A refusal with its status and body: the `message` of a `Status`, or the beginning of whatever it is.
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
            kind: FailureKind::Refused(code),
            retry_after,
            text,
        }
    }

    /// The HTTP status, when it was the API server that refused.
    pub(crate) fn code(&self) -> Option<u16> {
        match self.kind {
            FailureKind::Refused(code) => Some(code),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_their_code_and_words() {
        let text = |body: &str| Failure::refused(403, None, body.as_bytes()).to_string();
        assert_eq!(text(r#"{"message": "not you"}"#), "not you (code 403)");
        assert_eq!(text("no JSON\n"), "no JSON (code 403)");
        assert_eq!(text(""), "code 403");
        let failure = Failure::refused(429, Some(Duration::from_secs(1)), b"");
        assert_eq!(failure.code(), Some(429));
        let silent = Failure::silent(Duration::from_secs(25));
        assert_eq!(silent.to_string(), "no answer within 25 s");
        assert_eq!(silent.code(), None);
    }
}
