//! SHA-256 digests as OCI writes them: `sha256:<64 lower case hex digits>`.

use std::{
    fmt,
    io::{self, Read, Write},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

/// A SHA-256 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// The text is not a SHA-256 digest; it is kept for the message.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a digest of the form sha256:<64 lower case hex digits>")]
pub struct ParseError(String);

/// Hashes `bytes`.
pub fn sha256(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

/// Hashes everything to its end.
pub fn hash(from: impl Read) -> io::Result<Digest> {
    Ok(copy(from, io::sink())?.0)
}

/// Copies everything to its end; returns the digest and the number of the bytes.
pub fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<(Digest, u64)> {
    let (mut hasher, mut length) = (Sha256::new(), 0);
    let mut piece = vec![0; 1 << 16];
    loop {
        let count = match from.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if count == 0 {
            return Ok((Digest(hasher.finalize().into()), length));
        }
        hasher.update(&piece[..count]);
        to.write_all(&piece[..count])?;
        length += count as u64;
    }
}

impl Digest {
    /// Returns the 32 bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the 64 hex digits without `sha256:`, as blobs' file names and checksum files have them.
    pub fn hex(&self) -> String {
        use fmt::Write as _;
        self.0
            .iter()
            .fold(String::with_capacity(64), |mut text, byte| {
                write!(text, "{byte:02x}").expect("a String takes every write");
                text
            })
    }

    /// Parses the form that [`Digest::hex`] returns.
    pub fn from_hex(hex: &str) -> Result<Self, ParseError> {
        let bad = || ParseError(hex.to_owned());
        let well_formed = hex
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if hex.len() != 64 || !well_formed {
            return Err(bad());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| bad())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| bad())?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        text.strip_prefix("sha256:")
            .and_then(|hex| Self::from_hex(hex).ok())
            .ok_or_else(|| ParseError(text.to_owned()))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_matches_the_published_test_vector() {
        let expected = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc").to_string(), expected);
        assert_eq!(expected.parse::<Digest>().unwrap(), sha256(b"abc"));
        let pieces = b"a".chain(&b"bc"[..]);
        assert_eq!(hash(pieces).unwrap(), sha256(b"abc"));
    }

    #[test]
    fn other_forms_are_refused() {
        let hex = sha256(b"abc").hex();
        for text in [
            hex.clone(),
            format!("sha512:{hex}"),
            format!("sha256:{}", hex.to_uppercase()),
            format!("sha256:{}", &hex[1..]),
            format!("sha256:{hex}0"),
            "sha256:".to_owned() + &"+1".repeat(32),
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
