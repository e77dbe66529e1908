//! Keys from PEM files, and signatures with them: ECDSA on the curve P-256 with SHA-256, and Ed25519.
//!
//! Both make the same signature of the same bytes each time (RFC 6979 and RFC 8032), so that a release that is signed twice stays as it is.

use std::{
    fmt,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use archive::digest::{Digest, sha256};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ed25519_dalek::pkcs8::EncodePublicKey as _;
use p256::{
    ecdsa,
    ecdsa::signature::{Signer as _, Verifier as _},
    pkcs8::{DecodePrivateKey as _, DecodePublicKey as _, LineEnding},
};

/// Why a file is not a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file holds no PEM.
    #[error("it is not a key in PEM, which begins with -----BEGIN")]
    NoPem,
    /// The private key is protected by a passphrase.
    #[error(
        "it is encrypted, and this program asks for no passphrase: write it with `openssl pkcs8 -in KEY -out NEW` to a file that only you can read"
    )]
    Encrypted,
    /// The private key has the form of one algorithm.
    #[error(
        "it is a private key in the form `{0}`: convert it with `openssl pkcs8 -topk8 -nocrypt -in KEY -out NEW`"
    )]
    Form(String),
    /// A private key was expected.
    #[error("it is a public key: name the private one")]
    IsPublic,
    /// The private key has `OpenSSH`'s own form.
    #[error(
        "it is a private key of OpenSSH: `ssh-keygen -p -N '' -m PKCS8 -f COPY` converts a copy that is ECDSA, and for Ed25519 make a new one with `openssl genpkey -algorithm ed25519 -out NEW`"
    )]
    OpenSsh,
    /// The private key has cosign's own form.
    #[error(
        "it is cosign's own form of a private key, which no other program reads: make one with `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out NEW`; `cosign import-key-pair` takes it"
    )]
    Cosign,
    /// A public key was expected.
    #[error(
        "it is a private key: name the public one, as `openssl pkey -in KEY -pubout` prints it"
    )]
    IsPrivate,
    /// Something else in PEM.
    #[error("it holds `{0}` and no key")]
    Other(String),
    /// The key is damaged, or of another algorithm.
    #[error(
        "it is damaged, or neither ECDSA on the curve P-256 nor Ed25519: make one with `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out NEW`"
    )]
    Unknown,
}

/// Why a file cannot be used as a public key.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read.
    #[error("cannot use the key {}, name the file of a public key in PEM", path.display())]
    Read {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// It holds something else.
    #[error("cannot use the key {}", path.display())]
    Content {
        path: PathBuf,
        #[source]
        cause: KeyError,
    },
}

/// More bytes than any key has.
const MAX_KEY: u64 = 1 << 16;

/// Why a signature does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The text is not what a signature is written as.
    #[error("it is not a signature in base64")]
    Form,
    /// Another key made it, or it is over other bytes.
    #[error("it is not by this key over these bytes")]
    Mismatch,
}

/// A key that signs. It is never printed.
pub struct SecretKey(Secret);

enum Secret {
    P256(Box<ecdsa::SigningKey>),
    Ed25519(Box<ed25519_dalek::SigningKey>),
}

/// A key that verifies.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey(Public);

#[derive(Clone, PartialEq, Eq)]
enum Public {
    P256(ecdsa::VerifyingKey),
    Ed25519(ed25519_dalek::VerifyingKey),
}

/// The kind of a key, with the public part in the form that `OpenPGP` has in its packets.
pub(crate) enum Point {
    /// The uncompressed point.
    P256(Vec<u8>),
    /// The compressed point.
    Ed25519([u8; 32]),
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.public().id())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.id())
    }
}

impl SecretKey {
    /// Reads a private key in PKCS#8, as `openssl genpkey` writes it.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        match label(text)? {
            "PRIVATE KEY" => {}
            "PUBLIC KEY" => return Err(KeyError::IsPublic),
            "OPENSSH PRIVATE KEY" => return Err(KeyError::OpenSsh),
            label if label.contains("COSIGN") || label.contains("SIGSTORE") => {
                return Err(KeyError::Cosign);
            }
            // What `openssl ecparam -genkey` writes before the key.
            "EC PARAMETERS" => return Err(KeyError::Form("EC PRIVATE KEY".to_owned())),
            label if label.contains("ENCRYPTED") => return Err(KeyError::Encrypted),
            label if label.ends_with("PRIVATE KEY") => {
                return Err(KeyError::Form(label.to_owned()));
            }
            label => return Err(KeyError::Other(label.to_owned())),
        }
        if let Ok(key) = ecdsa::SigningKey::from_pkcs8_pem(text) {
            return Ok(Self(Secret::P256(Box::new(key))));
        }
        let key = ed25519_dalek::SigningKey::from_pkcs8_pem(text);
        let key = key.map_err(|_| KeyError::Unknown)?;
        Ok(Self(Secret::Ed25519(Box::new(key))))
    }

    /// Returns the key that verifies what this one signs.
    pub fn public(&self) -> PublicKey {
        PublicKey(match &self.0 {
            Secret::P256(key) => Public::P256(*key.verifying_key()),
            Secret::Ed25519(key) => Public::Ed25519(key.verifying_key()),
        })
    }

    /// Signs bytes: the DER form of ECDSA over their SHA-256, or the 64 bytes of Ed25519 over the bytes themselves.
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        match &self.0 {
            Secret::P256(key) => {
                let signature: ecdsa::Signature = key.sign(message);
                signature.to_der().as_bytes().to_vec()
            }
            Secret::Ed25519(key) => key.sign(message).to_bytes().to_vec(),
        }
    }

    /// Returns the text of a `.sig` file: the signature in base64, and a newline.
    pub fn sign_text(&self, message: &[u8]) -> String {
        STANDARD.encode(self.sign(message)) + "\n"
    }
}

impl PublicKey {
    /// Reads a public key, as `openssl pkey -pubout` writes it.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        match label(text)? {
            "PUBLIC KEY" => {}
            label if label.ends_with("PRIVATE KEY") => return Err(KeyError::IsPrivate),
            label => return Err(KeyError::Other(label.to_owned())),
        }
        if let Ok(key) = ecdsa::VerifyingKey::from_public_key_pem(text) {
            return Ok(Self(Public::P256(key)));
        }
        let key = ed25519_dalek::VerifyingKey::from_public_key_pem(text);
        Ok(Self(Public::Ed25519(key.map_err(|_| KeyError::Unknown)?)))
    }

    /// Reads the file of a public key.
    pub fn from_file(path: &Path) -> Result<Self, KeyFileError> {
        let mut text = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MAX_KEY).read_to_end(&mut text));
        read.map_err(|cause| KeyFileError::Read {
            path: path.to_owned(),
            cause,
        })?;
        // What is cut off is not a key either.
        Self::from_pem(&String::from_utf8_lossy(&text)).map_err(|cause| KeyFileError::Content {
            path: path.to_owned(),
            cause,
        })
    }

    /// Returns the key in PEM, as `openssl pkey -pubout` writes it.
    pub fn to_pem(&self) -> String {
        let pem = match &self.0 {
            Public::P256(key) => key.to_public_key_pem(LineEnding::LF),
            Public::Ed25519(key) => key.to_public_key_pem(LineEnding::LF),
        };
        pem.expect("a key of a known algorithm has a PEM form")
    }

    /// Returns the SHA-256 of the key's DER form, the name of the key: `openssl pkey -pubin -outform DER | sha256sum` prints it.
    pub fn id(&self) -> Digest {
        let der = match &self.0 {
            Public::P256(key) => key.to_public_key_der(),
            Public::Ed25519(key) => key.to_public_key_der(),
        };
        sha256(
            der.expect("a key of a known algorithm has a DER form")
                .as_bytes(),
        )
    }

    /// Checks a signature that [`SecretKey::sign`] or another program made.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
        let mismatch = |_| SignatureError::Mismatch;
        match &self.0 {
            Public::P256(key) => {
                let signature = ecdsa::Signature::from_der(signature).map_err(mismatch)?;
                key.verify(message, &signature).map_err(mismatch)
            }
            Public::Ed25519(key) => {
                let signature =
                    ed25519_dalek::Signature::from_slice(signature).map_err(mismatch)?;
                key.verify_strict(message, &signature).map_err(mismatch)
            }
        }
    }

    /// Checks the content of a `.sig` file.
    pub fn verify_text(&self, message: &[u8], text: &[u8]) -> Result<(), SignatureError> {
        let signature = STANDARD.decode(text.trim_ascii());
        self.verify(message, &signature.map_err(|_| SignatureError::Form)?)
    }

    pub(crate) fn point(&self) -> Point {
        match &self.0 {
            Public::P256(key) => Point::P256(key.to_sec1_point(false).as_bytes().to_vec()),
            Public::Ed25519(key) => Point::Ed25519(key.to_bytes()),
        }
    }
}

/// Returns the label of the first block in PEM.
fn label(text: &str) -> Result<&str, KeyError> {
    let mut lines = text.lines().map(str::trim_end);
    let label = lines.find_map(|line| line.strip_prefix("-----BEGIN ")?.strip_suffix("-----"));
    label.ok_or(KeyError::NoPem)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Keys of `openssl genpkey` for tests alone.
    pub(crate) const P256: &str = include_str!("../tests/fixtures/p256.pem");
    pub(crate) const ED25519: &str = include_str!("../tests/fixtures/ed25519.pem");
    const P256_PUBLIC: &str = include_str!("../tests/fixtures/p256.pub");
    const ED25519_PUBLIC: &str = include_str!("../tests/fixtures/ed25519.pub");

    #[test]
    fn keys_of_openssl_are_read_and_their_signatures_are_verified() {
        for (secret, public, by_openssl) in [
            (
                P256,
                P256_PUBLIC,
                include_str!("../tests/fixtures/p256.message.sig"),
            ),
            (
                ED25519,
                ED25519_PUBLIC,
                include_str!("../tests/fixtures/ed25519.message.sig"),
            ),
        ] {
            let secret = SecretKey::from_pem(secret).unwrap();
            let (text, public) = (public, PublicKey::from_pem(public).unwrap());
            assert_eq!(secret.public(), public);
            assert_eq!(public.to_pem(), text);
            public
                .verify_text(b"message\n", by_openssl.as_bytes())
                .unwrap();
            let own = secret.sign_text(b"message\n");
            assert_eq!(own, secret.sign_text(b"message\n"));
            public.verify_text(b"message\n", own.as_bytes()).unwrap();
            for (message, text, expected) in [
                (&b"massage\n"[..], own.as_str(), SignatureError::Mismatch),
                (b"message\n", "AAAA", SignatureError::Mismatch),
                (b"message\n", "", SignatureError::Mismatch),
                (b"message\n", "~", SignatureError::Form),
            ] {
                let found = public.verify_text(message, text.as_bytes());
                assert_eq!(found, Err(expected), "{text}");
            }
        }
    }

    #[test]
    fn signature_of_one_key_is_none_of_the_other() {
        let keys = [P256, ED25519].map(|text| SecretKey::from_pem(text).unwrap());
        let signature = keys[0].sign(b"x");
        assert_eq!(
            keys[1].public().verify(b"x", &signature),
            Err(SignatureError::Mismatch)
        );
        assert_ne!(keys[0].public().id(), keys[1].public().id());
    }

    #[test]
    fn id_is_the_hash_that_openssl_shows() {
        let expected = include_str!("../tests/fixtures/p256.id");
        let public = PublicKey::from_pem(P256_PUBLIC).unwrap();
        assert_eq!(public.id().hex(), expected.trim());
    }

    #[test]
    fn files_that_are_no_keys_are_named_with_the_cure() {
        let secret = |text: &str| SecretKey::from_pem(text).unwrap_err().to_string();
        let public = |text: &str| PublicKey::from_pem(text).unwrap_err().to_string();
        let block = |label: &str| format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n");
        for (found, expected) in [
            (secret("x"), "not a key in PEM"),
            (
                secret(&block("ENCRYPTED PRIVATE KEY")),
                "openssl pkcs8 -in KEY",
            ),
            (
                secret(&block("ENCRYPTED SIGSTORE PRIVATE KEY")),
                "cosign import-key-pair",
            ),
            (secret(&block("OPENSSH PRIVATE KEY")), "ssh-keygen -p"),
            (secret(&block("EC PARAMETERS")), "openssl pkcs8 -topk8"),
            (
                secret(&block("EC PRIVATE KEY")),
                "`EC PRIVATE KEY`: convert",
            ),
            (secret(P256_PUBLIC), "name the private one"),
            (secret(&block("CERTIFICATE")), "`CERTIFICATE` and no key"),
            (secret(&block("PRIVATE KEY")), "neither ECDSA"),
            (public(P256), "name the public one"),
            (public(&block("CERTIFICATE")), "`CERTIFICATE` and no key"),
            (public(&block("PUBLIC KEY")), "neither ECDSA"),
            (public(""), "not a key in PEM"),
        ] {
            assert!(found.contains(expected), "{found}");
        }
        let rsa = include_str!("../tests/fixtures/rsa.pub");
        assert!(public(rsa).contains("neither ECDSA"), "{}", public(rsa));
    }

    #[test]
    fn secret_key_is_not_printed() {
        let key = SecretKey::from_pem(P256).unwrap();
        let expected = format!("SecretKey({})", key.public().id());
        assert_eq!(format!("{key:?}"), expected);
    }
}
