//! A token file, such as the kubelet keeps for every pod.
//!
//! It is read again when the `stat` before a request shows a changed file, and after the API server refused the token. No clock decides
//! that: after a correction of a clock that was ahead, an old token would stay in use until the wrong time is reached, while the kubelet
//! replaces it within the hour.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use hyper::header::HeaderValue;

use super::stamp::Stamp;

/// The file, and the token that was last read from it.
pub(super) struct TokenFile {
    path: PathBuf,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    /// The stamp of the file when `value` was read. `None` makes the next request read it again.
    stamp: Option<Stamp>,
    value: Option<HeaderValue>,
}

impl TokenFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            last: Mutex::default(),
        }
    }

    /// Returns the current token, or the last one while none can be read.
    pub(super) fn now(&self) -> Option<HeaderValue> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // Stamped before it is read, so that a file which changes meanwhile has another stamp afterwards.
        let stamp = Stamp::of(&self.path);
        if stamp.is_none() || stamp != last.stamp {
            let token = std::fs::read_to_string(&self.path).unwrap_or_default();
            if !token.trim().is_empty()
                && let Some(value) = bearer(token.trim())
            {
                *last = Last {
                    stamp,
                    value: Some(value),
                };
            }
        }
        last.value.clone()
    }

    /// Reports that the API server refused the token. The file will be read again whatever its stamp.
    pub(super) fn refused(&self) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.stamp = None;
    }
}

/// Returns the header value, or `None` when the token has characters that no header can have.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_changes_the_token() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let token = TokenFile::new(path.clone());
        let now = || token.now().map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(now(), None);
        let first = Some("Bearer one".to_owned());
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(now(), first);
        // Another process is about to write it, or has removed it.
        std::fs::write(&path, "").unwrap();
        assert_eq!(now(), first);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(now(), first);
        std::fs::write(&path, "two").unwrap();
        assert_eq!(now(), Some("Bearer two".to_owned()));
        assert!(!format!("{:?}", token.now()).contains("two"));
    }

    #[test]
    fn a_refused_token_is_read_again_whatever_the_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "one").unwrap();
        let token = TokenFile::new(path);
        token.now().unwrap();
        let stamped = |token: &TokenFile| token.last.lock().unwrap().stamp.is_some();
        assert!(stamped(&token));
        token.refused();
        assert!(!stamped(&token));
        token.now().unwrap();
        assert!(stamped(&token));
    }
}
