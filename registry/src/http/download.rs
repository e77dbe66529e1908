//! Downloads one file from one address: resumes where an attempt ended, follows redirects and proxies, retries what may be temporary.
//!
//! Status, range and length in a server's answer are checked here; whether the bytes are the right ones is for the caller to check.

use std::{cell::Cell, fmt, path::Path};

use reqwest::{Method, Url};

use super::{Arrived, Failure, Http, part::Part, retry, transfer::receive};

/// The most bytes of a download.
const LIMIT: u64 = 4 << 30;

/// The address of a file. It may have a login, which is sent to its server and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(Url);

impl Address {
    /// Parses an address, or returns `None` when it is not an address of an HTTP server.
    pub fn parse(text: &str) -> Option<Self> {
        let address: Url = text.parse().ok()?;
        matches!(address.scheme(), "http" | "https").then_some(Self(address))
    }
}

/// Prints no user and no password.
impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.0.clone();
        // Addresses of HTTP servers can have a login, so they can be without one.
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
        formatter.write_str(shown.as_str())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Why a file did not arrive.
#[derive(Debug, thiserror::Error)]
#[error("cannot fetch {address}{repeated}")]
pub struct Error {
    address: Address,
    /// The number of attempts, for a failure that may be temporary, or how long its server is busy.
    repeated: String,
    #[source]
    source: Box<Failure>,
}

/// Completes `part`, from the bytes that it already has.
pub fn fetch(
    http: &Http,
    address: &Address,
    part: &Path,
    progress: &dyn Fn(Arrived),
) -> Result<(), Error> {
    let arrived = Cell::new(0);
    let count = |step: Arrived| {
        arrived.set(arrived.get() + step.bytes);
        progress(step);
    };
    let attempt = async || {
        let mut part = Part::open(part, LIMIT)?;
        let request = http.request(Method::GET, address.0.clone());
        receive(http, request, &mut part, &count).await
    };
    let outcome = http.block_on(retry::until_final(attempt, || arrived.get()));
    if outcome.is_err() && std::fs::metadata(part).is_ok_and(|found| found.len() == 0) {
        // A part without bytes is of no use; one that stays does no harm.
        let _ = std::fs::remove_file(part);
    }
    outcome.map_err(|source| Error {
        address: address.clone(),
        repeated: match source.retry_after() {
            Some(pause) if pause > retry::LONGEST => {
                format!(", which is busy for {} s more", pause.as_secs())
            }
            _ if source.is_temporary() => format!(", {} times in a row", retry::ATTEMPTS),
            _ => String::new(),
        },
        source: Box::new(source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_of_an_address_is_not_printed() {
        let address = Address::parse("https://me:hidden@r.example:1/a/b?c=d").unwrap();
        assert_eq!(address.to_string(), "https://r.example:1/a/b?c=d");
        assert_eq!(format!("{address:?}"), "https://r.example:1/a/b?c=d");
        for text in ["ftp://r.example/x", "r.example/x", "https://me:hid den"] {
            assert!(Address::parse(text).is_none(), "{text}");
        }
    }
}
