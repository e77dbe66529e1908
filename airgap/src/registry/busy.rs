//! How long a registry wants to be left alone. The crate that speaks the protocol keeps no headers of a refusal, so the address that
//! refused is asked for its head once more.

use std::time::{Duration, SystemTime};

use oci_client::errors::{OciDistributionError as Error, OciErrorCode};
use reqwest::{Client, StatusCode, header::RETRY_AFTER};

/// The address that says "not now", where the error is such.
pub(super) fn address(error: &Error) -> Option<&str> {
    match error {
        Error::ServerError {
            code: 429 | 503,
            url,
            ..
        } => Some(url),
        Error::RegistryError { envelope, url } => {
            let mut codes = envelope.errors.iter().map(|error| &error.code);
            let is_busy = codes.any(|code| matches!(code, OciErrorCode::Toomanyrequests));
            is_busy.then_some(url.as_str())
        }
        Error::RequestError(error) => {
            let is_busy = error.status().is_some_and(is_busy);
            error.url().filter(|_| is_busy).map(reqwest::Url::as_str)
        }
        _ => None,
    }
}

/// Asks how long to wait; nothing where it does not say, or is not busy any more.
pub(super) async fn wait(client: &Client, address: &str) -> Option<Duration> {
    let answer = client.head(address).send().await.ok()?;
    let value = answer.headers().get(RETRY_AFTER)?.to_str().ok()?;
    is_busy(answer.status()).then_some(())?;
    read(value, SystemTime::now())
}

fn is_busy(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    )
}

/// Reads the header: seconds, or a moment (RFC 9110, 10.2.3).
fn read(value: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let moment = httpdate::parse_http_date(value.trim()).ok()?;
    // A moment that is past is now.
    Some(moment.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_moments_are_read() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let check = |value, expected: Option<u64>| {
            let expected = expected.map(Duration::from_secs);
            assert_eq!(read(value, now), expected, "{value}");
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
    fn only_a_busy_registry_is_asked() {
        let server = |code| Error::ServerError {
            code,
            url: "http://r.example/v2/".into(),
            message: String::new(),
        };
        assert_eq!(address(&server(429)), Some("http://r.example/v2/"));
        assert_eq!(address(&server(503)), Some("http://r.example/v2/"));
        assert_eq!(address(&server(500)), None);
        let envelope = |code: &str| Error::RegistryError {
            envelope: serde_json::from_str(&format!(r#"{{"errors": [{{"code": "{code}"}}]}}"#))
                .unwrap(),
            url: "http://r.example/x".into(),
        };
        assert_eq!(
            address(&envelope("TOOMANYREQUESTS")),
            Some("http://r.example/x")
        );
        assert_eq!(address(&envelope("DENIED")), None);
    }
}
