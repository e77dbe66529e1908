//! Envelopes (DSSE 1.0): a payload with its type, both of which the signature covers.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use crate::{PublicKey, SecretKey, SignatureError};

/// The type of a payload that is a statement of in-toto.
pub const IN_TOTO: &str = "application/vnd.in-toto+json";

/// A signed payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// The payload in base64.
    payload: String,
    payload_type: String,
    signatures: Vec<Signature>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Signature {
    /// The signature in base64.
    sig: String,
}

/// Why an envelope does not count.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The payload is of another type.
    #[error("its payload is of the type `{0}` and no statement of in-toto")]
    Type(String),
    /// The payload is not in base64.
    #[error("its payload is damaged")]
    Payload,
    /// Sigstore's bundles have one signature.
    #[error("it has {0} signatures, where one belongs")]
    Count(usize),
    /// The signature is damaged, of another key or over another payload.
    #[error("its signature does not count: {0}")]
    Signature(#[from] SignatureError),
}

impl Envelope {
    pub fn sign(statement: &[u8], key: &SecretKey) -> Self {
        let signature = key.sign(&signed_bytes(IN_TOTO, statement));
        Self {
            payload: STANDARD.encode(statement),
            payload_type: IN_TOTO.to_owned(),
            signatures: vec![Signature {
                sig: STANDARD.encode(signature),
            }],
        }
    }

    /// Returns the statement, if this key signed it.
    pub fn open(&self, key: &PublicKey) -> Result<Vec<u8>, Error> {
        let payload = self.payload()?;
        let [signature] = &self.signatures[..] else {
            return Err(Error::Count(self.signatures.len()));
        };
        let signed = signed_bytes(&self.payload_type, &payload);
        key.verify_text(&signed, signature.sig.as_bytes())?;
        Ok(payload)
    }

    /// Removes the white space around signatures, which their reader ignores.
    pub(crate) fn trim(mut self) -> Self {
        for signature in &mut self.signatures {
            signature.sig = signature.sig.trim().to_owned();
        }
        self
    }

    /// Returns the statement, whoever signed it.
    pub(crate) fn payload(&self) -> Result<Vec<u8>, Error> {
        if self.payload_type != IN_TOTO {
            return Err(Error::Type(self.payload_type.clone()));
        }
        let payload = STANDARD.decode(&self.payload);
        payload.map_err(|_| Error::Payload)
    }
}

/// Returns the bytes that are signed: the lengths keep type and payload apart.
fn signed_bytes(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!(
        "DSSEv1 {} {payload_type} {} ",
        payload_type.len(),
        payload.len()
    );
    [head.as_bytes(), payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::tests::{ED25519, P256};

    #[test]
    fn signed_bytes_are_those_of_the_specification() {
        let found = signed_bytes("http://example.com/HelloWorld", b"hello world");
        let expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world";
        assert_eq!(found, expected);
    }

    #[test]
    fn statement_comes_out_as_it_went_in_and_for_its_key_alone() {
        let [key, other] = [P256, ED25519].map(|text| SecretKey::from_pem(text).unwrap());
        let sound = Envelope::sign(b"{}", &key);
        assert_eq!(sound.open(&key.public()).unwrap(), b"{}");
        let refused = |change: &dyn Fn(&mut Envelope), expected: Error| {
            let mut envelope = sound.clone();
            change(&mut envelope);
            assert_eq!(envelope.open(&key.public()), Err(expected));
        };
        let mismatch = || Error::Signature(SignatureError::Mismatch);
        assert_eq!(sound.open(&other.public()), Err(mismatch()));
        refused(&|one| one.payload = STANDARD.encode("[]"), mismatch());
        refused(&|one| one.payload = "~".into(), Error::Payload);
        refused(
            &|one| one.payload_type = "text/plain".into(),
            Error::Type("text/plain".into()),
        );
        refused(&|one| one.signatures.clear(), Error::Count(0));
        refused(
            &|one| one.signatures.extend(sound.signatures.clone()),
            Error::Count(2),
        );
        refused(
            &|one| one.signatures[0].sig = "~".into(),
            Error::Signature(SignatureError::Form),
        );
    }
}
