//! A certificate authority: signs requests as a cluster's signer does, and issues a certificate for a server on loopback.
//! Certificates are encoded by hand with the fields that tests need; nothing is validated.

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use x509_cert::{
    der::{
        Decode as _, Encode as _,
        asn1::{Any, BitString, ObjectIdentifier},
        pem::{self, LineEnding},
    },
    name::Name,
    request::CertReq,
    spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned},
    time::{Time, Validity},
};

const NAME: &str = "CN=authority";
const SEQUENCE: u8 = 0x30;

/// A key pair and the certificates that it signs.
pub struct Authority {
    key: EcdsaKeyPair,
    pkcs8: Vec<u8>,
    self_signed: OnceLock<Vec<u8>>,
}

impl Authority {
    /// An authority with a new key pair.
    pub fn generate() -> Self {
        let (pkcs8, key) = key();
        Self {
            key,
            pkcs8,
            self_signed: OnceLock::new(),
        }
    }

    /// The authority's own key (PKCS#8) in DER.
    pub fn pkcs8(&self) -> Vec<u8> {
        self.pkcs8.clone()
    }

    /// A self-signed certificate in DER as `openssl req -x509` makes it: for a server at 127.0.0.1, and allowed to sign others.
    /// Each call returns the same one.
    pub fn self_signed_server(&self) -> Vec<u8> {
        let make = || {
            let constraints = extension("2.5.29.19", &[0x30, 0x03, 0x01, 0x01, 0xff]);
            let names = extension("2.5.29.17", &der(SEQUENCE, &[0x87, 4, 127, 0, 0, 1]));
            let extensions = [constraints, names].concat();
            self.issue(NAME, &self.key, Duration::from_hours(1), Some(extensions))
        };
        self.self_signed.get_or_init(make).clone()
    }

    /// A new self-signed certificate in DER, which may sign others.
    pub fn certificate(&self) -> Vec<u8> {
        let constraints = [0x30, 0x03, 0x01, 0x01, 0xff];
        self.issue(
            NAME,
            &self.key,
            Duration::from_hours(1),
            Some(extension("2.5.29.19", &constraints)),
        )
    }

    /// The certificate for a request, both in PEM, valid from now for `lifetime`.
    pub fn sign(&self, request: &str, lifetime: Duration) -> String {
        let (_, der) = pem::decode_vec(request.as_bytes()).unwrap();
        let info = CertReq::from_der(&der).unwrap().info;
        let public = info.public_key.to_der().unwrap();
        let certificate = self.issue_for(&info.subject, &public, lifetime, None);
        to_pem("CERTIFICATE", &certificate)
    }

    /// Certificate and key (PKCS#8) of a server at 127.0.0.1, both in DER.
    pub fn server(&self) -> (Vec<u8>, Vec<u8>) {
        let (pkcs8, key) = key();
        let names = der(SEQUENCE, &[0x87, 4, 127, 0, 0, 1]);
        let extension = extension("2.5.29.17", &names);
        (
            self.issue("CN=server", &key, Duration::from_hours(1), Some(extension)),
            pkcs8,
        )
    }

    fn issue(
        &self,
        name: &str,
        key: &EcdsaKeyPair,
        lifetime: Duration,
        extension: Option<Vec<u8>>,
    ) -> Vec<u8> {
        let public = SubjectPublicKeyInfoOwned {
            algorithm: AlgorithmIdentifierOwned {
                oid: oid("1.2.840.10045.2.1"),
                parameters: Some(Any::from(oid("1.2.840.10045.3.1.7"))),
            },
            subject_public_key: BitString::from_bytes(key.public_key().as_ref()).unwrap(),
        };
        self.issue_for(
            &name.parse().unwrap(),
            &public.to_der().unwrap(),
            lifetime,
            extension,
        )
    }

    fn issue_for(
        &self,
        subject: &Name,
        public: &[u8],
        lifetime: Duration,
        extension: Option<Vec<u8>>,
    ) -> Vec<u8> {
        let now = SystemTime::now();
        let time = |time| Time::try_from(time).unwrap();
        let algorithm = der(SEQUENCE, &oid("1.2.840.10045.4.3.2").to_der().unwrap());
        let extensions = extension.map(|one| der(0xa3, &der(SEQUENCE, &one)));
        let signed = der(
            SEQUENCE,
            &[
                der(0xa0, &[2, 1, 2]),
                vec![2, 1, 1],
                algorithm.clone(),
                NAME.parse::<Name>().unwrap().to_der().unwrap(),
                Validity::<x509_cert::certificate::Rfc5280>::new(time(now), time(now + lifetime))
                    .to_der()
                    .unwrap(),
                subject.to_der().unwrap(),
                public.to_vec(),
                extensions.unwrap_or_default(),
            ]
            .concat(),
        );
        let signature = self.key.sign(&SystemRandom::new(), &signed).unwrap();
        let signature = BitString::from_bytes(signature.as_ref()).unwrap();
        der(
            SEQUENCE,
            &[signed, algorithm, signature.to_der().unwrap()].concat(),
        )
    }
}

pub fn to_pem(label: &str, der: &[u8]) -> String {
    pem::encode_string(label, LineEnding::LF, der).unwrap()
}

fn key() -> (Vec<u8>, EcdsaKeyPair) {
    let (algorithm, random) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
    (pkcs8.as_ref().to_vec(), pair)
}

fn oid(text: &str) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(text)
}

fn extension(id: &str, value: &[u8]) -> Vec<u8> {
    der(
        SEQUENCE,
        &[oid(id).to_der().unwrap(), der(4, value)].concat(),
    )
}

/// A value of DER: tag, length, content.
fn der(tag: u8, value: &[u8]) -> Vec<u8> {
    let length = value.len();
    let head = match length {
        0..0x80 => vec![tag, u8::try_from(length).unwrap()],
        0x80..0x100 => vec![tag, 0x81, u8::try_from(length).unwrap()],
        _ => {
            let [high, low] = u16::try_from(length).unwrap().to_be_bytes();
            vec![tag, 0x82, high, low]
        }
    };
    [head, value.to_vec()].concat()
}
