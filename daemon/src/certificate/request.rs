//! Keys and signing requests (PKCS#10): creates the daemon's own, and reads the subject of any request.

use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use x509_cert::{
    der::{
        Decode as _, Encode as _, Tag, Tagged as _,
        asn1::{Any, BitString, ObjectIdentifier, SetOfVec},
        pem::{self, LineEnding},
    },
    name::Name,
    request::{CertReq, CertReqInfo, Version},
    spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned},
};

use super::{ORGANIZATION, common_name};

const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const ECDSA_WITH_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");

const REQUEST_LABEL: &str = "CERTIFICATE REQUEST";

/// The error of a key or request, as text: the libraries give no details.
#[derive(Debug, thiserror::Error)]
#[error("cannot create a key and a signing request: {0}")]
pub(super) struct RequestError(String);

/// A private key, ECDSA on P-256. Only [`pem`](Self::pem) reveals it.
pub(super) struct Key {
    pkcs8: Vec<u8>,
    pair: EcdsaKeyPair,
}

impl Key {
    /// Generates a key.
    pub(super) fn generate() -> Result<Self, RequestError> {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random)
            .map_err(|error| RequestError(error.to_string()))?;
        Self::from_pkcs8(pkcs8.as_ref())
            .ok_or_else(|| RequestError("the new key does not load".to_owned()))
    }

    /// Loads a stored key.
    pub(super) fn from_pkcs8(pkcs8: &[u8]) -> Option<Self> {
        let random = SystemRandom::new();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8, &random).ok()?;
        Some(Self {
            pkcs8: pkcs8.to_vec(),
            pair,
        })
    }

    /// Returns the public key as certificates have it: a point on the curve.
    pub(super) fn public(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    /// Returns the private key in PEM. It must go to the store and to TLS only.
    pub(super) fn pem(&self) -> Result<String, RequestError> {
        pem::encode_string("PRIVATE KEY", LineEnding::LF, &self.pkcs8)
            .map_err(|error| RequestError(error.to_string()))
    }

    /// Returns a request for this node's certificate, signed with this key.
    pub(super) fn request(&self, node: &str) -> Result<String, RequestError> {
        self.request_of(|| format!("CN={},O={ORGANIZATION}", common_name(node)).parse())
    }

    /// Returns a request for any name, signed with this key.
    pub(super) fn request_of(
        &self,
        subject: impl Fn() -> Result<Name, x509_cert::der::Error>,
    ) -> Result<String, RequestError> {
        let make = || {
            let info = CertReqInfo {
                version: Version::V1,
                subject: subject()?,
                public_key: SubjectPublicKeyInfoOwned {
                    algorithm: AlgorithmIdentifierOwned {
                        oid: EC_PUBLIC_KEY,
                        parameters: Some(Any::from(P256)),
                    },
                    subject_public_key: BitString::from_bytes(self.public())?,
                },
                attributes: SetOfVec::new(),
            };
            let signed = self.pair.sign(&SystemRandom::new(), &info.to_der()?);
            let signature = signed.map_err(|_| Tag::BitString.value_error())?;
            let request = CertReq {
                info,
                algorithm: AlgorithmIdentifierOwned {
                    oid: ECDSA_WITH_SHA256,
                    parameters: None,
                },
                signature: BitString::from_bytes(signature.as_ref())?,
            };
            let request = request.to_der()?;
            Ok(pem::encode_string(REQUEST_LABEL, LineEnding::LF, &request)?)
        };
        make().map_err(|error: x509_cert::der::Error| RequestError(error.to_string()))
    }
}

/// The subject of a request or certificate: every value of the two attributes from which the API server takes user and groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// The user. The API server accepts one only.
    pub common_names: Vec<String>,
    /// The groups.
    pub organizations: Vec<String>,
}

impl Subject {
    /// Reads the subject from a distinguished name.
    pub(super) fn of(name: &Name) -> Self {
        let all = |oid| {
            let attributes = name.iter().filter(move |attribute| attribute.oid == oid);
            attributes.map(|attribute| text(&attribute.value)).collect()
        };
        Self {
            common_names: all(COMMON_NAME),
            organizations: all(ORGANIZATION_NAME),
        }
    }

    /// Returns the subject of a node's daemon.
    pub fn for_node(node: &str) -> Self {
        Self {
            common_names: vec![common_name(node)],
            organizations: vec![ORGANIZATION.to_owned()],
        }
    }
}

/// Returns the subject of a signing request in PEM, or `None` for any other text.
pub fn subject(request: &[u8]) -> Option<Subject> {
    let (label, der) = pem::decode_vec(request).ok()?;
    if label != REQUEST_LABEL {
        return None;
    }
    let request = CertReq::from_der(&der).ok()?;
    Some(Subject::of(&request.info.subject))
}

/// Returns a value in any of the text encodings that contain ASCII. Any other value becomes a text that equals no expected one.
fn text(value: &Any) -> String {
    match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::TeletexString => {
            String::from_utf8_lossy(value.value()).into_owned()
        }
        tag => format!("a value of type {tag}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_node_and_the_group() {
        let key = Key::generate().unwrap();
        let request = key.request("node-a.example.com").unwrap();
        let subject = subject(request.as_bytes()).unwrap();
        assert_eq!(subject, Subject::for_node("node-a.example.com"));
        assert_eq!(subject.common_names, ["system:multus:node-a.example.com"]);
        assert_eq!(subject.organizations, ["system:multus"]);
    }

    #[test]
    fn a_request_is_signed_with_its_key() {
        use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
        let key = Key::generate().unwrap();
        let (_, der) = pem::decode_vec(key.request("n").unwrap().as_bytes()).unwrap();
        let request = CertReq::from_der(&der).unwrap();
        let public = request.info.public_key.subject_public_key.raw_bytes();
        assert_eq!(public, key.public());
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, public)
            .verify(
                &request.info.to_der().unwrap(),
                request.signature.raw_bytes(),
            )
            .unwrap();
    }

    #[test]
    fn other_texts_than_requests_have_no_subject() {
        assert_eq!(subject(b""), None);
        assert_eq!(
            subject(
                b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"
            ),
            None
        );
        let key = Key::generate().unwrap();
        assert_eq!(subject(key.pem().unwrap().as_bytes()), None);
    }
}
