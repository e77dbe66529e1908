//! Fuzz target of a registry's demand for a login. `docs/contributing/testing.md` says how it runs.

use super::challenge::find;

/// The headers of a refusal, one in a line.
pub fn challenges(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    find(text.lines()).is_some()
}

#[cfg(test)]
mod tests {
    #[test]
    fn challenges() {
        testkit::fuzz::corpus::run("registry_challenges", super::challenges);
    }
}
