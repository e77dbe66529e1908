//! A client certificate with its key: whether this node can use it, and when its renewal is due. Nothing here touches a file.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};
use x509_cert::{
    Certificate,
    der::{Decode as _, pem},
};

use super::request::{Key, Subject};

const CERTIFICATE: &str = "CERTIFICATE";

/// A certificate that belongs to this node and this key.
#[derive(Clone)]
pub struct ClientCertificate {
    /// The content of the store, in PEM: the certificate, any certificates that the signer added to it, and the key.
    pem: String,
    not_before: Timestamp,
    not_after: Timestamp,
}

/// Why a certificate cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableCertificate {
    /// The certificate or the key is missing or unreadable.
    #[error("it has no readable {0} in PEM")]
    Missing(&'static str),
    /// The certificate belongs to another node.
    #[error("it is for {found}, not for {expected}")]
    OtherSubject {
        /// The certificate's common names.
        found: String,
        /// The common name of this node's daemon.
        expected: String,
    },
    /// The certificate belongs to another key.
    #[error("it belongs to another key")]
    OtherKey,
    /// The certificate has expired.
    #[error("it expired at {0} by this node's clock")]
    Expired(Timestamp),
}

impl ClientCertificate {
    /// Checks certificate and key. The begin of validity is left to the API server: a fresh certificate from a server whose clock is ahead
    /// is usable.
    pub fn validate(pem: &str, node: &str, now: Timestamp) -> Result<Self, UnusableCertificate> {
        let certificate = first(pem, CERTIFICATE)
            .and_then(|der| Certificate::from_der(&der).ok())
            .ok_or(UnusableCertificate::Missing("certificate"))?;
        let key = first(pem, "PRIVATE KEY")
            .and_then(|der| Key::from_pkcs8(&der))
            .ok_or(UnusableCertificate::Missing("key"))?;
        let certificate = certificate.tbs_certificate();
        let (found, expected) = (Subject::of(certificate.subject()), Subject::for_node(node));
        if found != expected {
            return Err(UnusableCertificate::OtherSubject {
                found: found.common_names.join(" and "),
                expected: expected.common_names.concat(),
            });
        }
        let public = &certificate.subject_public_key_info().subject_public_key;
        if public.raw_bytes() != key.public() {
            return Err(UnusableCertificate::OtherKey);
        }
        let time = |time: x509_cert::time::Time| {
            let seconds = i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
            Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
        };
        let validity = certificate.validity();
        let certificate = Self {
            pem: pem.to_owned(),
            not_before: time(validity.not_before),
            not_after: time(validity.not_after),
        };
        if certificate.is_expired(now) {
            return Err(UnusableCertificate::Expired(certificate.not_after));
        }
        Ok(certificate)
    }

    /// Whether the certificate has expired.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.not_after
    }

    /// Returns the time at which the certificate expires.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// Returns the time to request the next certificate: after 70 to 90 per cent of this one's validity. The exact share follows from the
    /// certificate, so that nodes differ and a restart changes nothing.
    pub fn renew_at(&self) -> Timestamp {
        let spread = Sha256::digest(&self.pem)[0];
        renew_at(self.not_before, self.not_after, spread)
    }

    /// Returns certificate and key, for the store.
    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the certificate, with any certificates that the signer added to it.
    pub(super) fn chain(&self) -> &str {
        self.split().0
    }

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

/// Hides the key, so that no log can have it.
impl std::fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientCertificate")
            .field("not_before", &self.not_before)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

fn renew_at(not_before: Timestamp, not_after: Timestamp, spread: u8) -> Timestamp {
    let validity = not_after.duration_since(not_before).as_secs();
    // 7/10 of the validity and up to 2/10 more, in seconds. It is computed in i128, since a validity may be of any length.
    let share = i128::from(validity) * (7 * 255 + 2 * i128::from(spread)) / (10 * 255);
    let share = SignedDuration::from_secs(i64::try_from(share).unwrap_or(i64::MAX));
    not_before.checked_add(share).unwrap_or(not_after)
}

/// Returns the first PEM block with this label.
fn first(text: &str, label: &str) -> Option<Vec<u8>> {
    let (begin, end) = (
        format!("-----BEGIN {label}-----"),
        format!("-----END {label}-----"),
    );
    let text = &text[text.find(&begin)?..];
    let text = &text[..text.find(&end)? + end.len()];
    pem::decode_vec(text.as_bytes()).ok().map(|(_, der)| der)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use testkit::authority::Authority;

    use super::*;

    const VALIDITY: Duration = Duration::from_secs(1000);

    struct Issued {
        key: Key,
        certificate: String,
        begin: Timestamp,
    }

    fn issued(node: &str) -> Issued {
        let (authority, key) = (Authority::generate(), Key::generate().unwrap());
        let begin = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
        let request = key.request(node).unwrap();
        Issued {
            certificate: authority.sign(&request, VALIDITY),
            key,
            begin,
        }
    }

    impl Issued {
        fn pem(&self) -> String {
            self.certificate.clone() + &self.key.pem().unwrap()
        }

        fn validate(
            &self,
            pem: &str,
            node: &str,
            after: i64,
        ) -> Result<ClientCertificate, UnusableCertificate> {
            ClientCertificate::validate(pem, node, self.begin + SignedDuration::from_secs(after))
        }
    }

    #[test]
    fn a_valid_certificate_of_this_node_and_key_is_usable() {
        let issued = issued("node-a");
        let certificate = issued.validate(&issued.pem(), "node-a", 0).unwrap();
        assert!(
            certificate
                .chain()
                .starts_with("-----BEGIN CERTIFICATE-----")
        );
        assert!(certificate.key().starts_with("-----BEGIN PRIVATE KEY-----"));
        assert!(!certificate.chain().contains("KEY") && !certificate.key().contains("CERTIFICATE"));
        issued.validate(&issued.pem(), "node-a", -300).unwrap();
        issued.validate(&issued.pem(), "node-a", 998).unwrap();
        let late = issued.validate(&issued.pem(), "node-a", 1002).unwrap_err();
        assert!(matches!(late, UnusableCertificate::Expired(_)), "{late}");
    }

    #[test]
    fn a_certificate_of_another_node_or_key_is_refused() {
        let issued = issued("node-a");
        let other = issued.validate(&issued.pem(), "node-b", 0).unwrap_err();
        assert_eq!(
            other.to_string(),
            "it is for system:multus:node-a, not for system:multus:node-b"
        );
        let foreign = issued.certificate.clone() + &Key::generate().unwrap().pem().unwrap();
        assert_eq!(
            issued.validate(&foreign, "node-a", 0).unwrap_err(),
            UnusableCertificate::OtherKey
        );
    }

    #[test]
    fn incomplete_files_are_refused() {
        let issued = issued("node-a");
        let pem = issued.pem();
        let key = pem.find("-----BEGIN PRIVATE").unwrap();
        for (text, missing) in [
            ("", "certificate"),
            (&pem[..key / 2], "certificate"),
            (&pem[key..], "certificate"),
            (&pem[..key], "key"),
            (&pem[..pem.len() - 10], "key"),
        ] {
            let why = issued.validate(text, "node-a", 0).unwrap_err();
            assert_eq!(why, UnusableCertificate::Missing(missing));
        }
    }

    #[test]
    fn renewal_is_due_between_70_and_90_per_cent_of_the_validity() {
        for _ in 0..5 {
            let issued = issued("node-a");
            let certificate = issued.validate(&issued.pem(), "node-a", 0).unwrap();
            let due = certificate
                .renew_at()
                .duration_since(issued.begin)
                .as_secs();
            assert!((700..=901).contains(&due), "{due}");
            let again = issued.validate(&issued.pem(), "node-a", 5).unwrap();
            assert_eq!(
                again.renew_at(),
                certificate.renew_at(),
                "a restart changes nothing"
            );
        }
    }

    #[test]
    fn keys_are_not_printed() {
        let issued = issued("node-a");
        let certificate = issued.validate(&issued.pem(), "node-a", 0).unwrap();
        let printed = format!("{certificate:?}");
        assert!(
            printed.contains("not_after") && !printed.contains("BEGIN"),
            "{printed}"
        );
    }
}
