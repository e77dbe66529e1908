//! Why a request failed, and whether another attempt may succeed. No text has the login of an address.

use std::{error::Error, io, time::Duration};

use reqwest::{StatusCode, Url};
use rustls::InvalidMessage;
use serde_json::Value;

use super::{proxy::Proxy, tls::Unreadable};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server's response is not a success.
    #[error("{message}")]
    Status {
        status: u16,
        /// The pause that a busy server names.
        retry_after: Option<Duration>,
        message: String,
    },
    #[error("{0} speaks no TLS: give --plain-http")]
    NoTls(String),
    #[error("{0}'s certificate is not trusted: name its CA in SSL_CERT_FILE")]
    Certificate(String),
    #[error(transparent)]
    Unreadable(Unreadable),
    /// The certificate is trusted, but not valid.
    #[error("{host}'s certificate is not valid")]
    Invalid {
        host: String,
        #[source]
        source: rustls::Error,
    },
    #[error("{0} refused the connection")]
    ProxyRefused(Proxy),
    #[error("{0} requires a login: write http://USER:PASSWORD@HOST:PORT")]
    ProxyLogin(Proxy),
    #[error("{proxy} makes no connection to {host}")]
    Proxy {
        proxy: Proxy,
        host: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("nothing arrives")]
    TimedOut,
    #[error(transparent)]
    Transport(reqwest::Error),
    /// The server breaks the protocol.
    #[error("{0}")]
    Protocol(&'static str),
    /// A registry with TLS wants the login to be sent without it.
    #[error(
        "the registry names a token server without TLS, to which no login is sent: correct that address in the registry's settings"
    )]
    PlainTokens,
    #[error("more than {0} bytes arrive")]
    TooLarge(u64),
    #[error("cannot store what arrives")]
    Io(#[from] io::Error),
}

impl Failure {
    /// Finds the cause of an error; `proxy` is that of the address.
    pub(super) fn of(error: reqwest::Error, proxy: Option<&Proxy>) -> Self {
        let host = error.url().map(host).unwrap_or_default();
        let error = error.without_url();
        match tls_error(&error) {
            Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
                return Self::NoTls(host);
            }
            Some(rustls::Error::InvalidCertificate(fault)) => {
                use rustls::CertificateError as Fault;
                if let Fault::Other(fault) = fault
                    && let Some(reason) = fault.0.downcast_ref::<Unreadable>()
                {
                    return Self::Unreadable(reason.clone());
                }
                return match fault {
                    // `CaUsedAsEndEntity` is one of the faults that rustls has no variant for. A signature is bad when a trusted CA has
                    // the name of the right one, as a CA that was made again.
                    Fault::UnknownIssuer | Fault::BadSignature | Fault::Other(_) => {
                        Self::Certificate(host)
                    }
                    fault => Self::Invalid {
                        host,
                        source: fault.clone().into(),
                    },
                };
            }
            _ => {}
        }
        let Some(proxy) = proxy.filter(|_| error.is_connect()).cloned() else {
            return Self::Transport(error);
        };
        let refused = |cause: &(dyn Error + 'static)| {
            let cause = cause.downcast_ref::<io::Error>();
            cause.is_some_and(|cause| cause.kind() == io::ErrorKind::ConnectionRefused)
        };
        let causes = || causes(&error);
        if causes().any(refused) {
            Self::ProxyRefused(proxy)
        } else if causes().any(|cause| cause.to_string().contains("proxy authorization required")) {
            Self::ProxyLogin(proxy)
        } else {
            Self::Proxy {
                proxy,
                host,
                source: error,
            }
        }
    }

    /// Returns whether another attempt may succeed.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..=599),
            Self::Transport(error) => !error.is_builder() && !error.is_redirect(),
            Self::TimedOut | Self::ProxyRefused(_) | Self::Proxy { .. } | Self::Protocol(_) => true,
            Self::NoTls(_)
            | Self::Certificate(_)
            | Self::Unreadable(_)
            | Self::Invalid { .. }
            | Self::ProxyLogin(_)
            | Self::PlainTokens
            | Self::TooLarge(_)
            | Self::Io(_) => false,
        }
    }

    /// Returns the status of a busy server.
    pub(crate) fn busy(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => {
                Some(*status).filter(|status| matches!(status, 429 | 503))
            }
            _ => None,
        }
    }

    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns the pause that the server names.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// Returns name and, unless it is the usual one, port.
pub(crate) fn host(address: &Url) -> String {
    let name = address.host_str().unwrap_or_default();
    let port = address.port();
    port.map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

/// Returns the status, and the first message of a registry's errors.
pub(super) fn message(status: StatusCode, body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let first = &body["errors"][0];
    let text = |key: &str| first[key].as_str().filter(|text| !text.is_empty());
    match text("message").or_else(|| text("code")) {
        Some(reason) => format!("{status}: {reason}"),
        None => status.to_string(),
    }
}

/// Returns an error and its causes.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Finds the error of an encrypted connection, which errors of the standard library have inside and do not name as their cause.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    causes(error).find_map(|mut cause| {
        while let Some(io) = cause.downcast_ref::<io::Error>() {
            cause = io.get_ref()?;
        }
        cause.downcast_ref()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_failures_are_distinguished_from_final_ones() {
        for (status, expected) in [
            (408, true),
            (429, true),
            (500, true),
            (503, true),
            (401, false),
            (404, false),
            (400, false),
        ] {
            let failure = Failure::Status {
                status,
                retry_after: None,
                message: String::new(),
            };
            assert_eq!(failure.is_temporary(), expected, "{status}");
        }
        assert!(Failure::TimedOut.is_temporary());
        assert!(!Failure::NoTls(String::new()).is_temporary());
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert!(!Failure::from(full).is_temporary());
    }

    #[test]
    fn message_is_the_first_of_the_registry() {
        let body = br#"{"errors": [{"code": "DENIED", "message": "no such project"}]}"#;
        let status = StatusCode::FORBIDDEN;
        assert_eq!(message(status, body), "403 Forbidden: no such project");
        let body = br#"{"errors": [{"code": "DENIED", "message": ""}]}"#;
        assert_eq!(message(status, body), "403 Forbidden: DENIED");
        assert_eq!(message(status, b"<html>"), "403 Forbidden");
    }
}
