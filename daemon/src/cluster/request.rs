//! One request to the API server: bounded in time, and what went wrong with it in one line.

use std::time::Duration;

use tokio::time::timeout;

use crate::causes::causes;

/// A request that did not get what it asked for.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    /// The HTTP status, when it was the API server that refused.
    pub(crate) code: Option<u16>,
    text: String,
}

/// Waits for the answer, no longer than `patience`.
pub(crate) async fn bounded<T>(
    patience: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Failure> {
    let failure = |code, text| Failure { code, text };
    match timeout(patience, request).await {
        Ok(Ok(answer)) => Ok(answer),
        // A refusal in the API server's own words, anything else with its causes.
        Ok(Err(kube::Error::Api(status))) => Err(failure(
            Some(status.code),
            format!("{} (code {})", status.message, status.code),
        )),
        Ok(Err(error)) => Err(failure(None, causes(&error))),
        Err(_) => Err(failure(
            None,
            format!("no answer within {} s", patience.as_secs()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[tokio::test]
    async fn a_refusal_has_its_code_and_words_silence_an_end() {
        let status = Status::failure("not you", "Forbidden").with_code(403);
        let refused = async { Err::<(), _>(kube::Error::Api(status.boxed())) };
        let failure = bounded(Duration::from_mins(1), refused).await.unwrap_err();
        assert_eq!(failure.code, Some(403));
        assert_eq!(failure.to_string(), "not you (code 403)");
        let silent = std::future::pending::<kube::Result<()>>();
        let failure = bounded(Duration::ZERO, silent).await.unwrap_err();
        assert_eq!(failure.code, None);
        assert_eq!(failure.to_string(), "no answer within 0 s");
    }
}
