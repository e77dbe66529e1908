//! A certificate with its key: whether it serves this node, and when it is due to be renewed. Nothing here touches a file.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};
use x509_cert::{
    Certificate,
    der::{Decode as _, pem},
};

use super::request::{Key, Subject};

const CERTIFICATE: &str = "CERTIFICATE";

/// A certificate that was found to be for this node and this key.
#[derive(Clone)]
pub struct Held {
    /// The certificate, with what the signer added to it, then the key, in PEM: what the store keeps.
    pem: String,
    not_before: Timestamp,
    not_after: Timestamp,
}

/// Why a certificate cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Not what was expected.
    #[error("it holds no {0} in PEM that can be read")]
    Missing(&'static str),
    /// Somebody else's.
    #[error("it is for {found}, not for {expected}")]
    OtherSubject {
        /// Whom it is for.
        found: String,
        /// Whom it has to be for.
        expected: String,
    },
    /// Another key's.
    #[error("it belongs to another key")]
    OtherKey,
    /// Too old.
    #[error("it expired at {0} by this node's clock")]
    Expired(Timestamp),
}

impl Held {
    /// Judges certificate and key. When it begins to be valid is left to who is shown it: a fresh one of a server whose clock is ahead
    /// is a good one.
    pub fn judge(pem: &str, node: &str, now: Timestamp) -> Result<Self, Unusable> {
        let certificate = first(pem, CERTIFICATE)
            .and_then(|der| Certificate::from_der(&der).ok())
            .ok_or(Unusable::Missing("certificate"))?;
        let key = first(pem, "PRIVATE KEY")
            .and_then(|der| Key::from_pkcs8(&der))
            .ok_or(Unusable::Missing("key"))?;
        let certificate = certificate.tbs_certificate();
        let (found, expected) = (Subject::of(certificate.subject()), Subject::of_node(node));
        if found != expected {
            return Err(Unusable::OtherSubject {
                found: found.common_names.join(" and "),
                expected: expected.common_names.concat(),
            });
        }
        let public = &certificate.subject_public_key_info().subject_public_key;
        if public.raw_bytes() != key.public() {
            return Err(Unusable::OtherKey);
        }
        let time = |time: x509_cert::time::Time| {
            let seconds = i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
            Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
        };
        let validity = certificate.validity();
        let held = Self {
            pem: pem.to_owned(),
            not_before: time(validity.not_before),
            not_after: time(validity.not_after),
        };
        if held.is_expired(now) {
            return Err(Unusable::Expired(held.not_after));
        }
        Ok(held)
    }

    /// Whether nobody accepts it any more.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.not_after
    }

    /// When it ends.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// When to ask for the next one: after 70 to 90 hundredths of its life. Which of them follows from the certificate, so that nodes
    /// differ and a restart changes nothing.
    pub fn renew_at(&self) -> Timestamp {
        let spread = Sha256::digest(&self.pem)[0];
        renew_at(self.not_before, self.not_after, spread)
    }

    /// Everything, for the store.
    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// The certificate, with what the signer added to it.
    pub(super) fn certificate(&self) -> &str {
        self.split().0
    }

    /// The key.
    pub(super) fn key(&self) -> &str {
        self.split().1
    }

    fn split(&self) -> (&str, &str) {
        let key = self
            .pem
            .find("-----BEGIN PRIVATE KEY")
            .unwrap_or(self.pem.len());
        self.pem.split_at(key)
    }
}

/// Keys are in no log, whoever prints what.
impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held")
            .field("not_before", &self.not_before)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

fn renew_at(not_before: Timestamp, not_after: Timestamp, spread: u8) -> Timestamp {
    let life = not_after.duration_since(not_before).as_secs();
    // 7/10 of the life and up to 2/10 more, in seconds; i128 as a life may be as long as it likes.
    let share = i128::from(life) * (7 * 255 + 2 * i128::from(spread)) / (10 * 255);
    let share = SignedDuration::from_secs(i64::try_from(share).unwrap_or(i64::MAX));
    not_before.checked_add(share).unwrap_or(not_after)
}

/// The first part with this label.
fn first(text: &str, label: &str) -> Option<Vec<u8>> {
    let (begin, end) = (
        format!("-----BEGIN {label}-----"),
        format!("-----END {label}-----"),
    );
    let text = &text[text.find(&begin)?..];
    let text = &text[..text.find(&end)? + end.len()];
    pem::decode_vec(text.as_bytes()).ok().map(|(_, der)| der)
}
