//! A key that neither a log, an error nor a core file shows.

use std::{fmt, hint::black_box};

/// A key. It is printed as dots, and overwritten when it is dropped.
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Takes over the bytes of a key, which its caller overwrites wherever else they are.
    pub fn new(key: impl Into<Box<[u8]>>) -> Self {
        Self(key.into())
    }

    /// Returns the key itself, for a file of mode 0600 and nothing else.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.fill(0);
        // Bytes that are not used again may be left as they are, unless something reads them.
        black_box(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_not_printed() {
        let key = Secret::new(*b"tskey-auth-abc");
        assert_eq!(
            format!("{key:?} {:?}", Some(&key)),
            "Secret(…) Some(Secret(…))"
        );
        assert_eq!(key.expose(), b"tskey-auth-abc");
    }
}
