//! Bundles of Sigstore (format 0.3): one file with a signature or an envelope, and a hint at the key. They are what cosign reads.
//!
//! Certificates and entries of transparency logs, which need a network, are neither written nor asked for.

use archive::digest::sha256;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use crate::{PublicKey, SecretKey, SignatureError, envelope, envelope::Envelope};

pub const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    media_type: String,
    verification_material: Material,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message_signature: Option<MessageSignature>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dsse_envelope: Option<Envelope>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    public_key: Option<Hint>,
}

/// Says which key it was; the key itself comes from the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Hint {
    hint: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageSignature {
    message_digest: MessageDigest,
    /// In base64.
    signature: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct MessageDigest {
    algorithm: String,
    /// In base64.
    digest: String,
}

/// Why a bundle does not count.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not JSON of this form.
    #[error("it is damaged")]
    Json(#[from] serde_json::Error),
    /// The format is another one, perhaps a newer one.
    #[error("it is a bundle in the format `{0}`, and this program reads {MEDIA_TYPE}")]
    MediaType(String),
    /// The bundle holds something else.
    #[error("it holds no {0}")]
    Content(&'static str),
    /// Other readers may read what this one does not.
    #[error("it has more than the signature, or has it in another form")]
    Form,
    /// The envelope does not count.
    #[error(transparent)]
    Envelope(#[from] envelope::Error),
    /// The signature does not count.
    #[error(transparent)]
    Signature(#[from] SignatureError),
}

/// Returns the bundle with a signature over a file.
pub fn sign_blob(blob: &[u8], key: &SecretKey) -> Vec<u8> {
    let digest = MessageDigest {
        algorithm: "SHA2_256".to_owned(),
        digest: STANDARD.encode(sha256(blob).bytes()),
    };
    to_bytes(&Bundle {
        message_signature: Some(MessageSignature {
            message_digest: digest,
            signature: STANDARD.encode(key.sign(blob)),
        }),
        ..empty(&key.public())
    })
}

/// Returns the bundle with a signed statement.
pub fn sign_statement(statement: &[u8], key: &SecretKey) -> Vec<u8> {
    to_bytes(&Bundle {
        dsse_envelope: Some(Envelope::sign(statement, key)),
        ..empty(&key.public())
    })
}

/// Checks a bundle with a signature over a file.
pub fn verify_blob(bundle: &[u8], blob: &[u8], key: &PublicKey) -> Result<(), Error> {
    let signature = parse(bundle)?.message_signature;
    let signature = signature.ok_or(Error::Content("signature of a file"))?;
    key.verify_text(blob, signature.signature.as_bytes())?;
    // Readers find the file by this digest, so a bundle with a wrong one is not whole.
    let digest = STANDARD.encode(sha256(blob).bytes());
    if signature.message_digest.digest != digest {
        return Err(SignatureError::Mismatch.into());
    }
    let digest = MessageDigest {
        algorithm: "SHA2_256".to_owned(),
        digest,
    };
    let expected = Bundle {
        message_signature: Some(MessageSignature {
            message_digest: digest,
            signature: signature.signature.trim().to_owned(),
        }),
        ..empty(key)
    };
    check_form(bundle, &expected)
}

/// Returns the statement in a bundle, if this key signed it.
pub fn open_statement(bundle: &[u8], key: &PublicKey) -> Result<Vec<u8>, Error> {
    let envelope = parse(bundle)?.dsse_envelope;
    let envelope = envelope.ok_or(Error::Content("statement"))?;
    let statement = envelope.open(key)?;
    let expected = Bundle {
        dsse_envelope: Some(envelope.trim()),
        ..empty(key)
    };
    check_form(bundle, &expected)?;
    Ok(statement)
}

/// Returns the statement in a bundle, whoever signed it: for those who pass it on, and trust nothing in it.
pub fn statement_of_anyone(bundle: &[u8]) -> Result<Vec<u8>, Error> {
    let envelope = parse(bundle)?.dsse_envelope;
    let envelope = envelope.ok_or(Error::Content("statement"))?;
    Ok(envelope.payload()?)
}

fn parse(bytes: &[u8]) -> Result<Bundle, Error> {
    /// The part that is the same in every format.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Format {
        media_type: String,
    }
    let format: Format = serde_json::from_slice(bytes)?;
    if format.media_type != MEDIA_TYPE {
        return Err(Error::MediaType(format.media_type));
    }
    Ok(serde_json::from_slice(bytes)?)
}

/// Checks that a bundle has the bytes in which it was written.
fn check_form(bundle: &[u8], expected: &Bundle) -> Result<(), Error> {
    if bundle == to_bytes(expected) {
        Ok(())
    } else {
        Err(Error::Form)
    }
}

fn empty(key: &PublicKey) -> Bundle {
    let hint = STANDARD.encode(key.id().bytes());
    Bundle {
        media_type: MEDIA_TYPE.to_owned(),
        verification_material: Material {
            public_key: Some(Hint { hint }),
        },
        message_signature: None,
        dsse_envelope: None,
    }
}

fn to_bytes(bundle: &Bundle) -> Vec<u8> {
    serde_json::to_vec(bundle).expect("these types have text keys and no floats")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::tests::{ED25519, P256};

    #[test]
    fn bundles_are_verified_by_their_key_alone() {
        let [key, other] = [P256, ED25519].map(|text| SecretKey::from_pem(text).unwrap());
        for key in [&key, &other] {
            let public = key.public();
            verify_blob(&sign_blob(b"x", key), b"x", &public).unwrap();
            let statement = sign_statement(b"{}", key);
            assert_eq!(open_statement(&statement, &public).unwrap(), b"{}");
            assert_eq!(statement_of_anyone(&statement).unwrap(), b"{}");
        }
        let blob = sign_blob(b"x", &key);
        let refused = |outcome: Result<(), Error>, expected: &str| {
            let error = outcome.expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        };
        let public = key.public();
        refused(verify_blob(&blob, b"y", &public), "not by this key");
        refused(verify_blob(&blob, b"x", &other.public()), "not by this key");
        refused(verify_blob(b"", b"x", &public), "damaged");
        let statement = sign_statement(b"{}", &key);
        refused(verify_blob(&statement, b"{}", &public), "no signature of a");
        refused(
            open_statement(&blob, &public).map(drop),
            "holds no statement",
        );
        // The signature still counts, but others may read something else.
        let text = String::from_utf8(blob).unwrap();
        let statement_text = String::from_utf8(statement.clone()).unwrap();
        let key_id = STANDARD.encode(public.id().bytes());
        let other_id = STANDARD.encode(other.public().id().bytes());
        for (from, to) in [
            (key_id.as_str(), other_id.as_str()),
            ("\"publicKey\":", "\"tlogEntries\":[{}],\"publicKey\":"),
            ("{\"mediaType\"", "{ \"mediaType\""),
            ("SHA2_256", "SHA2_512"),
            ("\"signature\":\"", "\"signature\":\" "),
            ("\"sig\":", "\"keyid\":\"x\",\"sig\":"),
            ("\"sig\":\"", "\"sig\":\" "),
        ] {
            let changed = text.replace(from, to);
            if changed != text {
                let outcome = verify_blob(changed.as_bytes(), b"x", &public);
                refused(outcome, "more than the signature");
            }
            let changed_statement = statement_text.replace(from, to);
            if changed_statement != statement_text {
                let outcome = open_statement(changed_statement.as_bytes(), &public);
                refused(outcome.map(drop), "more than the signature");
            }
            assert!(
                changed != text || changed_statement != statement_text,
                "{from}"
            );
        }
        let (open, more) = (text.strip_suffix('}'), statement_text.split_once("}},"));
        let both = format!("{},{}", open.unwrap(), more.unwrap().1);
        refused(
            verify_blob(both.as_bytes(), b"x", &public),
            "more than the signature",
        );
        let future = text.replace("v0.3", "v0.4");
        refused(
            verify_blob(future.as_bytes(), b"x", &public),
            "bundle.v0.4+json`, and this program reads",
        );
        let digest = STANDARD.encode(sha256(b"x").bytes());
        let changed = text.replace(&digest, &STANDARD.encode(sha256(b"y").bytes()));
        refused(
            verify_blob(changed.as_bytes(), b"x", &public),
            "not by this key",
        );
    }
}
