//! The pause that a busy registry names in `Retry-After`. The protocol's crate drops the headers of a refusal, so the address that
//! refused gets one more HEAD request.

use std::time::{Duration, SystemTime};

use oci_client::errors::{OciDistributionError as Error, OciErrorCode};
use reqwest::{Client, StatusCode, header::RETRY_AFTER};

/// Returns the address that refused, if the error means that the registry is busy.
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

/// Returns how long to wait, or `None` when the registry does not say it or is no longer busy.
pub(super) async fn fetch(client: &Client, address: &str) -> Option<Duration> {
    let response = client.head(address).send().await.ok()?;
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    is_busy(response.status()).then_some(())?;
    parse(value, SystemTime::now())
}

fn is_busy(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    )
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
    use super::*;

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
    fn only_busy_errors_have_an_address() {
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
