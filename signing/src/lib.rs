//! Keys and signatures, and the forms in which other programs read them: `.sig` files, envelopes and bundles of Sigstore, and `OpenPGP`
//! for Helm.
//!
//! Everything but `PublicKey::from_file` is a function over bytes. It knows nothing of releases: `release` decides what is signed, and which key is trusted.

mod key;

pub mod bundle;
pub mod envelope;
pub mod openpgp;

pub use self::key::{KeyError, KeyFileError, PublicKey, SecretKey, SignatureError};
