//! Fuzz target of a registry's demand for a login.

use super::challenge::find;

/// The headers of a refusal, one in a line.
pub fn challenges(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    find(text.lines()).is_some()
}
