//! A key that neither a log, an error nor a core file shows.

use std::fmt;

use zeroize::Zeroizing;

/// A key. It is printed as dots, and overwritten when it is dropped.
pub struct Secret(Zeroizing<Box<[u8]>>);

impl Secret {
    /// Takes over the bytes of a key, which its caller overwrites wherever else they are.
    pub fn new(key: impl Into<Box<[u8]>>) -> Self {
        Self(Zeroizing::new(key.into()))
    }

    /// Returns the key itself, for a file of mode 0600 and nothing else.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Returns a text without this key. The secret of an OAuth client is also found without the options behind its `?`.
    pub fn masked(&self, text: &str) -> String {
        let key = String::from_utf8_lossy(&self.0);
        let key = key.trim();
        let without_options = key.split('?').next().unwrap_or(key);
        let parts = [key, without_options].into_iter();
        parts
            .filter(|part| !part.is_empty())
            .fold(text.to_owned(), |text, part| text.replace(part, "…"))
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

    #[test]
    fn key_is_masked_with_and_without_its_options() {
        let masked = |key: &'static str, text: &str| Secret::new(key.as_bytes()).masked(text);
        assert_eq!(masked("a-key\n", "bad key a-key, a-key"), "bad key …, …");
        let client = "tskey-client-abc?ephemeral=false&preauthorized=true";
        assert_eq!(masked(client, "no client tskey-client-abc"), "no client …");
        assert_eq!(masked(client, &format!("bad key {client}")), "bad key …");
        assert_eq!(masked("", "bad key"), "bad key");
        assert_eq!(masked("?x", "bad ?x key"), "bad … key");
    }
}
